"""The `kscn` command: one file per subcommand, loaded when it is called.

The modules of this package import click and the standard library at their top and everything
heavy inside functions, so `kscn --help` answers at once.
"""

import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from kscn import __version__
from kscn.cli.terminal import complain, printable
from kscn.errors import KscnError, reason

# In the order of `kscn --help`; the command `fit` is the object `command` in kscn/cli/fit.py.
COMMANDS = (
    "demo", "fit", "embed", "predict", "evaluate", "report", "explore", "sort", "serve",
    "export", "info", "data",
)  # fmt: skip

BAD_INPUT, INTERRUPTED, BUG = 2, 130, 1


class KscnGroup(click.Group):
    """Loads subcommands by name and turns every fault into one sentence and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of use, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of the command."""
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"kscn.cli.{name}").command
        return command

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run, and leave with 0, 2 (bad input, one sentence), 130 (Ctrl-C) or 1 (our fault)."""
        if not extra.setdefault("standalone_mode", True):
            return super().main(args, *rest, **extra)
        extra["standalone_mode"] = False
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                code = super().main(args, *rest, **extra)
        except click.ClickException as error:  # usage errors: click words them well
            words = io.StringIO()
            error.show(file=words)
            for line in words.getvalue().splitlines():
                click.echo(printable(line), err=True)
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            _leave("interrupted; nothing already on disk was lost", INTERRUPTED)
        except KscnError as error:
            _leave(str(error), BAD_INPUT)
        except BrokenPipeError:  # `kscn info run | head`: the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BUG)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            _leave(f"{where}{reason(error)}", BAD_INPUT)
        except MemoryError as error:
            _leave(f"not enough memory ({error}); try a smaller --batch-size", BAD_INPUT)
        except Exception as error:
            what = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
            advice = "this is a fault in kscn, KSCN_DEBUG=1 shows where"
            _leave(f"unexpected {what}; {advice}", BUG)
        sys.exit(code if isinstance(code, int) else 0)


def _show_warning(message: Warning | str, *rest: Any, **more: Any) -> None:
    """A warning in one line, without the place in the code that Python would add."""
    complain(f"warning: {' '.join(str(message).split())}")


def _leave(sentence: str, code: int) -> NoReturn:
    """Say one sentence on stderr and exit; KSCN_DEBUG=1 shows the traceback instead."""
    if os.environ.get("KSCN_DEBUG") == "1" and code != INTERRUPTED:
        raise  # the error that the caller is handling
    complain(sentence)
    sys.exit(code)


@click.group(
    cls=KscnGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="kscn")
def cli() -> None:
    """Cluster large sets of unlabelled images or vectors by the k subspaces they lie near.

    \b
    Start with
      kscn demo
      kscn fit DATA -k 10 -o run/
    where DATA is a file (.npy .npz .csv .parquet .h5, idx), a folder of images, or a name from
    `kscn data list`.
    """  # noqa: D301 (click wants the backspace itself: keep these lines as they are)


def main() -> None:
    """Run the `kscn` script."""
    cli.main(prog_name="kscn")
