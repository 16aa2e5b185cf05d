"""Data for a command: opened with progress on the terminal, and what is to be said of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kscn.cli.terminal import complain
from kscn.runs import opened

if TYPE_CHECKING:
    from kscn.data import Dataset

_NAMED = 3  # files on the terminal
# Samples that the spread of columns is looked at on, and the share of it that is too much for one.
_LOOKED_AT, _ALMOST_ALL = 1000, 0.9


def load_data(data: str, **options: Any) -> "Dataset":
    """Open data (see `kscn.data.load`), with progress in case it is fetched or decoded first."""
    from kscn.cli.progress import working
    from kscn.data import load

    if options.get("size") is None and not options.get("skip_broken"):
        return fetching(load, data, **options)
    with working(f"decoding the images of {data}"):
        return load(data, **options)


def fetching(open_data: Callable[..., "Dataset"], *args: Any, **options: Any) -> "Dataset":
    """What a function opens, with progress in case it is fetched first."""
    from kscn.cli.progress import FetchProgress

    with FetchProgress() as progress:
        return open_data(*args, progress=progress, **options)


def embedded(model: Any, loaded: "Dataset") -> "tuple[Any, Dataset]":
    """A model and samples for it: of a run with an encoder, embeddings that stand for images."""
    from kscn.cli.progress import FitProgress

    with FitProgress() as bar:
        return opened.embedded(model, loaded, bar.embedding)


def say_left_out(loaded: "Dataset") -> None:
    """Say which files of a folder cannot be read, where they are left out."""
    left_out = getattr(loaded.samples, "left_out", {})
    if left_out:
        named = ", ".join(list(left_out)[:_NAMED]) + ", ..." * (len(left_out) > _NAMED)
        total = len(left_out) + len(loaded.samples)
        complain(f"left out {len(left_out)} of {total} images, which cannot be read: {named}")


def say_what_to_expect(loaded: "Dataset", standardised: bool) -> None:
    """Say what distances between samples go by, where that is hardly what was meant.

    `standardised`: whether the method standardises columns that have different units.
    """
    import numpy as np

    from kscn.choice.candidates import different_units
    from kscn.report.pictures import is_image

    source, shape = loaded.samples, tuple(loaded.samples.shape)
    if len(shape) == 3 and is_image(shape) and 3 in (shape[0], shape[2]):
        complain(
            "these are colour images: if they are photographs, clusters of their pixels go by "
            "colour and layout, not by what they show; pass a pretrained network by --encoder"
        )
    if len(shape) != 1 or shape[0] < 2:
        return
    rows = np.random.default_rng(0).permutation(len(source))[:_LOOKED_AT]
    with np.errstate(all="ignore"):  # numbers that are none are refused by the fit
        values = source.take(np.sort(rows))
        spread = np.nan_to_num(np.var(values, axis=0, dtype=np.float64))
        if standardised and different_units(values):
            return
    largest = int(spread.argmax())
    if spread[largest] > _ALMOST_ALL * spread.sum():
        complain(
            f"{source.feature_names[largest]} has {spread[largest] / spread.sum():.1%} of the "
            "variance, so that distances go by it almost alone; if columns have different units, "
            "divide each by its standard deviation first"
        )
