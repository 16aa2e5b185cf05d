"""`kscn figure`: pictures of what a run found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kscn.atomicfile import atomic_file
from kscn.cli.labels import read_labels
from kscn.cli.rundata import new_data, run_data
from kscn.cli.rundir import CONFIG, MODEL, UNFINISHED, Run, read_run
from kscn.cli.terminal import Terminal
from kscn.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

PRETRAINED = "model-pretrained"  # in a run directory, if somebody put it there
_MOST = 20  # subspaces in one figure

_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The .png, .svg or .pdf file to write.",
)
_SAMPLES = click.option(
    "--samples",
    "n_samples",
    type=click.IntRange(min=4),
    default=10_000,
    show_default=True,
    help="How many samples to look at, drawn at random where there are more.",
)
_LABELS = click.option(
    "--labels",
    "labels_path",
    type=click.Path(path_type=Path),
    help="True classes: a .npy array, or a .csv or .txt file with the label in the last column.",
)
_DATA = click.option("--data", help="Other samples than those that the run was fitted on.")


@click.group("figure", short_help="Draw the latent or the subspaces of a run.")
def command() -> None:
    """Draw what a run found; needs the extra `viz` (pip install 'kscn[viz]')."""


@command.command("latent")
@click.argument("what", metavar="RUN|DATA")
@_OUTPUT
@_DATA
@_LABELS
@_SAMPLES
@click.option("-k", "--clusters", type=click.IntRange(min=1), help="DATA: subspaces to find.")
@click.option("--method", help="DATA: kscn-s (default) or kscn-g.")
@click.option("--preset", help="DATA: tuned (default), paper, or a .toml file of your own.")
@click.option("--seed", type=int, help="DATA: for the same result again; 0 if not given.")
@click.option(
    "--pretrained",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="RUN: a run or model with the autoencoder before clustering.",
)
def latent_command(
    what: str,
    output: Path,
    data: str | None,
    labels_path: Path | None,
    n_samples: int,
    pretrained: Path | None,
    **fit: Any,
) -> None:
    """Draw t-SNE of the pretrained latent beside ours after clustering.

    RUN is a directory that `kscn fit` wrote; its pretraining is repeated with the same seed, unless
    the run kept the pretrained model or --pretrained names one. DATA is fitted now, for which
    --clusters is needed. Samples are coloured by class where that is known, else by cluster.
    """
    kind = _check(output)
    with atomic_file(output) as file:
        from kscn.report import figures

        figures.require("openTSNE")
        if _is_run(what):
            _refuse("RUN", fit, "fit DATA with them instead")
            view = _view_of_run(Path(what), data, pretrained)
        else:
            _refuse("DATA", {"data": data, "pretrained": pretrained}, "give a RUN for them")
            view = _view_of_data(what, **fit)
        _save(_latent_figure(view, labels_path, n_samples), file, kind)
    Terminal.beside(output).say(f"wrote {output}")


@command.command("subspaces")
@click.argument("run", type=click.Path(path_type=Path))
@_OUTPUT
@_DATA
@_LABELS
@_SAMPLES
@click.option(
    "--directions",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Directions of each subspace to show.",
)
def subspaces_command(
    run: Path,
    output: Path,
    data: str | None,
    labels_path: Path | None,
    n_samples: int,
    directions: int,
) -> None:
    """Draw what each subspace of RUN is made of.

    For every subspace: the decoded mean of its members, that mean moved two standard deviations
    along the directions in which they vary most, and the members nearest to it and farthest from
    it. RUN is a directory that `kscn fit` wrote on images.
    """
    kind = _check(output)
    with atomic_file(output) as file:
        from kscn.cli.progress import working
        from kscn.report import figures

        figures.require("matplotlib.figure")
        opened, model, loaded = _opened(run, data)
        shape = loaded.samples.shape
        if len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] not in (1, 3)):
            raise InputError(
                f"{loaded.name} has samples of shape {shape}; the subspaces of grey images (h, w) "
                "or coloured ones (3, h, w) can be drawn."
            )
        rows, images = _drawn(loaded.samples, n_samples)
        truth, names = _truth(loaded, labels_path)
        with working("looking at the subspaces"):
            found = model.predict(images)
            titles = [
                _caption(i, found == i, None if truth is None else truth[rows], names)
                for i in range(model.n_clusters)
            ]
            if shape[:-2] == (1,):
                images = images[:, 0]
            shown = figures.portraits(model, images, titles[:_MOST], directions)
            caption = _subspaces_caption(opened, len(images), len(titles))
            _save(figures.subspace_figure(shown, caption), file, kind)
    Terminal.beside(output).say(f"wrote {output}")


@dataclass(frozen=True)
class View:
    """A fitted KSCN, the network that it began with, and the samples to look at."""

    loaded: Any
    method: str
    model: Any
    pretrained: Any


def _view_of_run(path: Path, data: str | None, pretrained: Path | None) -> View:
    run, model, loaded = _opened(path, data)
    _need_latent(model, run.config["run"]["method"])
    kept = path / PRETRAINED
    if pretrained is not None:
        inside = pretrained / MODEL
        before = _load(inside if inside.is_dir() else pretrained)
    elif kept.is_dir():
        before = _load(kept)
    else:
        before = _repeated(run, loaded)
    return View(loaded, run.config["run"]["method"], model, before.autoencoder_)


def _load(path: Path) -> Any:
    from kscn import load_model

    model = load_model(path)
    _need_latent(model, str(path))
    return model


def _repeated(run: Run, loaded: Any) -> Any:
    """The pretraining of a run done again; `loaded` may be its data, or other samples."""
    from kscn.cli.progress import FitProgress
    from kscn.experiments import pretraining

    labels = run.labels()
    about = run.config["data"]
    own = len(loaded.samples) == len(labels) and list(loaded.samples.shape) == about["shape"]
    fitted = loaded if own else run_data(run)
    with FitProgress() as progress:
        return pretraining.repeat(
            run.config["parameters"], fitted.samples, labels, run.history, [progress]
        )


def _view_of_data(
    data: str, clusters: int | None, method: str | None, preset: str | None, seed: int | None
) -> View:
    from kscn.cli.fit import choose
    from kscn.cli.progress import FitProgress, load_data
    from kscn.experiments.pretraining import KeepPretrained

    if clusters is None:
        raise InputError(
            f"{data} is no run, so it has to be fitted; say with -k how many subspaces to find."
        )
    loaded = load_data(data)
    choice = choose(loaded, data, clusters, method or "kscn-s", preset, seed or 0, {})
    model = choice.model
    if not hasattr(type(model), "reconstruct"):
        _need_latent(model, choice.method)
    keep = KeepPretrained()
    with FitProgress() as progress:
        model.set_params(callbacks=(progress, keep)).fit(loaded.samples)
    return View(loaded, choice.method, model, keep.autoencoder)


def _need_latent(model: Any, name: str) -> None:
    if not hasattr(model, "autoencoder_"):
        raise InputError(f"{name} has no latent to draw; fit with --method kscn-s or kscn-g.")


def _latent_figure(view: View, labels_path: Path | None, n_samples: int) -> "Figure":
    import torch

    from kscn import metrics
    from kscn.cli.progress import working
    from kscn.experiments import pretraining
    from kscn.report import figures

    loaded, model = view.loaded, view.model
    truth, names = _truth(loaded, labels_path)
    rows, samples = _drawn(loaded.samples, n_samples)
    found = model.predict(samples)
    title = f"after clustering by {view.method}"
    if truth is None:
        what, groups, names = "cluster", found, [str(i) for i in range(model.n_clusters)]
    else:
        what, groups = "class", truth[rows]
        title += f" (ACC {metrics.clustering_accuracy(groups, found):.1%})"
    spaces = {
        "pretrained autoencoder": pretraining.codes(view.pretrained, model.scaling_, samples),
        title: model.transform(samples),
    }
    panels = []
    for name, latents in spaces.items():
        with working(f"t-SNE of {len(samples):,} samples: {name}"):
            places = figures.embed(latents, threads=torch.get_num_threads())
        panels.append(figures.Panel(name, places))
    caption = f"{loaded.name}: t-SNE of {_told(len(samples), len(loaded.samples))}"
    return figures.latent_figure(panels, groups, names, what, caption)


# Reading ----------------------------------------------------------------------------------------


def _opened(path: Path, data: str | None) -> tuple[Run, Any, Any]:
    """A run, its model, and the samples to look at: its own, or others."""
    from kscn import load_model

    run = read_run(path)
    model = load_model(run.model)
    return run, model, run_data(run) if data is None else new_data(run, data)


def _drawn(samples: Any, count: int) -> "tuple[np.ndarray, np.ndarray]":
    """So many samples at random, in their order: which rows, and the samples."""
    import numpy as np

    rows = np.arange(len(samples))
    if len(samples) > count:
        rows = np.sort(np.random.default_rng(0).choice(len(samples), count, replace=False))
    return rows, samples.take(rows)


def _truth(loaded: Any, path: Path | None) -> "tuple[np.ndarray | None, Sequence[str]]":
    """The class of every sample as a number, and what the classes are called."""
    import numpy as np

    labels = loaded.labels if path is None else read_labels(path, len(loaded.samples))
    if labels is None:
        return None, []
    values, numbers = np.unique(labels, return_inverse=True)
    words = loaded.label_names if path is None else None
    return numbers, [str(value) if words is None else words[value] for value in values]


# Small things -----------------------------------------------------------------------------------


def _check(output: Path) -> str:
    """The format that a file name asks for."""
    from kscn.report.figures import FORMATS

    kind = output.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InputError(
            f"{output} does not end in .png, .svg or .pdf; the ending says what is drawn."
        )
    return kind


def _save(figure: "Figure", file: BinaryIO, kind: str) -> None:
    """Write a figure; a .png with 256 colours, which is a third as large and looks the same."""
    from kscn.report import figures

    if kind != "png":
        figures.save(figure, file, kind)
        return
    from PIL import Image  # comes with matplotlib

    drawn = BytesIO()
    figures.save(figure, drawn, kind)
    whole = Image.open(drawn).convert("RGB")
    few = whole.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(file, "PNG", optimize=True)


def _is_run(what: str) -> bool:
    path = Path(what).expanduser()
    return (path / CONFIG).is_file() or (path / UNFINISHED).is_dir()


def _refuse(kind: str, options: Mapping[str, Any], advice: str) -> None:
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"{', '.join(given)} cannot be used with {kind}; {advice}.")


def _told(count: int, total: int) -> str:
    return f"{total:,} samples" if count == total else f"{count:,} of {total:,} samples"


def _caption(
    number: int, members: "np.ndarray", truth: "np.ndarray | None", names: Sequence[str]
) -> str:
    """What is written beside a subspace."""
    import numpy as np

    count = int(members.sum())
    lines = [f"subspace {number}", f"{count:,} samples"]
    if truth is not None and count:
        classes = np.bincount(truth[members])
        lines.append(f"{classes.max() / count:.0%} “{names[int(classes.argmax())]}”")
    return "\n".join(lines)


def _subspaces_caption(run: Run, n_samples: int, n_clusters: int) -> str:
    from kscn.report.figures import STEP

    data, method = run.config["data"]["name"], run.config["run"]["method"]
    more = f" The first {_MOST} of {n_clusters} subspaces." if n_clusters > _MOST else ""
    return (
        f"{data}, {method}. Mean: of the members. Directions: the mean moved by {STEP:g} standard "
        "deviations along those of the subspace\nin which members vary most. Nearest, farthest: "
        f"members among {n_samples:,} samples, by distance to the subspace.{more}"
    )
