"""The `kscn` script, and `python -m kscn ...`, which is the same."""

import sys


def main() -> None:
    """Run the command; importing it may be interrupted too."""
    try:
        from kscn.cli import main as command

        command()
    except KeyboardInterrupt:
        print("kscn: interrupted; nothing already on disk was lost", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
