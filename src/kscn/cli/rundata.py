"""The data of a run, opened as it was when the run was fitted, and new data for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kscn.cli.rundir import Run, prepared_by
from kscn.cli.terminal import complain
from kscn.errors import DataError

if TYPE_CHECKING:
    from kscn.data import Dataset
    from kscn.data.images import Preparation

_NAMED = 3  # files on the terminal
# Samples that the spread of columns is looked at on, and the share of it that is too much for one.
_LOOKED_AT, _ALMOST_ALL = 1000, 0.9


def open_data(
    data: str, size: int | None = None, skip_broken: bool = False, any_size: bool = False
) -> "Dataset":
    """Open data for a fit; see `kscn.data.load`."""
    from kscn.cli.progress import load_data, working
    from kscn.data import load

    if size is None and not skip_broken:
        return load_data(data, any_size=any_size)
    with working(f"decoding the images of {data}"):
        return load(data, size=size, skip_broken=skip_broken, any_size=any_size)


def data_again(config: Mapping[str, Any]) -> "Dataset":
    """The data of a run that did not finish, by its config, opened as when it began."""
    about = config["data"]
    skip_broken = about.get("skip_broken", False)
    return _load_like(about["source"], prepared_by(config), skip_broken=skip_broken)


def new_data(run: Run, data: str, skip_broken: bool = False) -> "Dataset":
    """Other data than that of a run, prepared in the same way."""
    if "encoder" in run.config and run.preparation() is None:  # fitted on an array
        loaded = open_data(data, skip_broken=skip_broken, any_size=True)
    else:
        loaded = _load_like(data, run.preparation(), skip_broken=skip_broken)
    say_left_out(loaded)
    return loaded


def run_data(run: Run, moved: str | None = None) -> "Dataset":
    """The data of a run: the same files, prepared in the same way.

    Parameters
    ----------
    run : Run
        The run.
    moved : str, optional
        Where the data is now, if it is no longer where it was.
    """
    source = run.config["data"]["source"]
    try:
        return _load_like(moved or source, run.preparation(), names=run.names())
    except DataError as error:
        if moved is not None or Path(source).exists():
            raise
        raise DataError(
            f"the data of {run.path} is no longer at {source} ({str(error).rstrip('.')}); say "
            "where it is with --data."
        ) from None


def _load_like(data: str, preparation: "Preparation | None", **options: Any) -> "Dataset":
    from kscn.cli.progress import FetchProgress
    from kscn.data import load_like

    with FetchProgress() as progress:
        return load_like(data, preparation, progress=progress, **options)


def say_photographs(loaded: "Dataset") -> None:
    """Say what to expect of photographs that no encoder looks at."""
    from kscn.report.pictures import is_image

    shape = tuple(loaded.samples.shape)
    if len(shape) == 3 and is_image(shape) and 3 in (shape[0], shape[2]):
        complain(
            "these are colour images: if they are photographs, clusters of their pixels go by "
            "colour and layout, not by what they show; pass a pretrained network by --encoder"
        )


def say_one_column(loaded: "Dataset", standardised: bool) -> None:
    """Say that distances go by one column of a table alone, where they do.

    `standardised`: whether the method standardises columns that have different units.
    """
    import numpy as np

    from kscn.stages.candidates import different_units

    source = loaded.samples
    if len(source.shape) != 1 or source.shape[0] < 2:
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


def say_left_out(loaded: "Dataset") -> None:
    """Say which files of a folder cannot be read, where they are left out."""
    left_out = getattr(loaded.samples, "left_out", {})
    if left_out:
        named = ", ".join(list(left_out)[:_NAMED])
        named += ", ..." if len(left_out) > _NAMED else ""
        total = len(left_out) + len(loaded.samples)
        complain(f"left out {len(left_out)} of {total} images, which cannot be read: {named}")
