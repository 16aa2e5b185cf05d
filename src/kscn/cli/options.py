"""Arguments and options that several commands have, and values of options that are lists."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)
POSITIVE = click.FloatRange(min=0, min_open=True)
run = click.argument("run", type=PATH)
data = click.option("--data", help="The data of the run, if it is no longer where it was.")
device = click.option("--device", default="auto", help="Where to compute: cpu, cuda, cuda:1.")
encoder = click.option("--encoder", help="The encoder of the run, if it is no longer where it was.")
labels = click.option(
    "--labels",
    "labels_path",
    type=PATH,
    help="True classes: a .npy array, or a .csv or .txt file with the label in the last column.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
size = click.option(
    "--size",
    type=int,
    metavar="N",
    help="Bring the images of a folder, of any size and mode, to N x N pixels.",
)
skip_broken = click.option(
    "--skip-broken", is_flag=True, help="Leave out images that cannot be read, and list them."
)


def output(what: str, **settings: Any) -> Callable[[Function], Function]:
    """Where a command writes to."""
    return click.option("-o", "--output", type=PATH, help=what, **settings)


def port(default: int, what: str) -> Callable[[Function], Function]:
    """Where a command listens."""
    return click.option("--port", type=click.IntRange(0, 65535), default=default, help=what)


def dimensions(text: str) -> str | int | list[int]:
    """`auto`, one dimension for all subspaces, or one for each with commas."""
    if text == "auto":
        return text
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} is neither 'auto' nor a number nor numbers with commas")
    return [int(part) for part in parts] if len(parts) > 1 else int(text)
