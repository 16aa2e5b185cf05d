"""The `kscn` script, and `python -m kscn ...`, which is the same."""

import sys


def main() -> None:
    """Run the command; importing it may be interrupted too."""
    try:
        from kscn.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("kscn: interrupted; nothing already on disk was lost\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
