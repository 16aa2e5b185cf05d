"""`python -m kscn ...` is the same as `kscn ...`."""

from kscn.cli import main

if __name__ == "__main__":
    main()
