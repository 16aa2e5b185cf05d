"""Arguments and options that several commands have, and values of options that are lists."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
run_argument = click.argument("run", type=PATH)
data_option = click.option("--data", help="The data of the run, if it is no longer where it was.")
device_option = click.option(
    "--device", default="auto", help="Where to compute: cpu, cuda, cuda:1."
)
encoder_option = click.option(
    "--encoder", help="The encoder of the run, if it is no longer where it was."
)
labels_option = click.option(
    "--labels",
    "labels_path",
    type=PATH,
    help="True classes: a .npy array, or a .csv or .txt file with the label in the last column.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
skip_broken_option = click.option(
    "--skip-broken", is_flag=True, help="Leave out images that cannot be read, and list them."
)


def output_option(what: str, **settings: Any) -> Callable[[Function], Function]:
    """Where a command writes to."""
    return click.option("-o", "--output", type=PATH, help=what, **settings)


def folder_options(command: Function) -> Function:
    """The options of a command that opens a folder of images anew."""
    size = click.option(
        "--size",
        type=int,
        metavar="N",
        help="Bring the images of a folder, of any size and mode, to N x N pixels.",
    )
    return size(skip_broken_option(command))


class Numbers(click.ParamType):
    """Numbers in one of several forms.

    Parameters
    ----------
    name : str
        The forms, as `--help` shows them.
    parse : callable
        From the text to its value, or a ValueError.
    fault : str
        What a text is that has none of the forms.
    """

    def __init__(self, name: str, parse: Callable[[str], Any], fault: str) -> None:
        self.name, self._parse, self._fault = name, parse, fault

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the option."""
        try:
            return self._parse(str(value))
        except ValueError:
            self.fail(f"{value!r} is {self._fault}", param, ctx)


def _dimensions(text: str) -> str | int | list[int]:
    if text == "auto":
        return text
    dims = [int(part) for part in text.split(",")]
    return dims if len(dims) > 1 else dims[0]


def _span(text: str) -> list[int]:
    if ":" not in text:
        return [int(part) for part in text.split(",")]
    low, high = map(int, text.split(":"))
    if high < low:
        raise ValueError
    return list(range(low, high + 1))


# `auto`, one dimension for all subspaces, or one for each.
DIMENSIONS = Numbers(
    "P|P,P,...|auto", _dimensions, "neither 'auto' nor a number nor numbers with commas"
)
# `2:20` is 2 to 20 with both ends, `7` is 7, `2,4,8` is these three.
SPAN = Numbers("A:B|A,B,...|A", _span, "neither a range 2:20 nor numbers with commas")
