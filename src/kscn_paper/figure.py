"""`kscn figure`: pictures of what a run found."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.atomicfile import atomic_file
from kscn.cli import options
from kscn.cli.terminal import Terminal
from kscn.errors import InputError
from kscn.runs.directory import CONFIG, UNFINISHED, Run, model_of, read_run
from kscn.runs.opened import new_data, run_data
from kscn.runs.table import read_labels

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

_MOST = 20  # subspaces in one figure

_output_option = options.output("The .png, .svg or .pdf file to write.", required=True)
_data_option = click.option("--data", help="Other samples than those that the run was fitted on.")
_samples_option = options.samples(4, 10_000)


@click.group("figure", short_help="Draw the latent or the subspaces of a run.")
def command() -> None:
    """Draw what a run found; needs the extra `viz` (pip install 'kscn[viz]')."""


@contextmanager
def picture_file(output: Path, package: str) -> Iterator[Callable[["Figure"], None]]:
    """The way to write a figure, where the place and the package for it are there.

    Both are looked for before the work. A .png gets 256 colours: a third as large, and looks alike.
    """
    from kscn_paper import figures

    kind = output.suffix.lower().removeprefix(".")
    if kind not in figures.FORMATS:
        raise InputError(
            f"{output} does not end in .png, .svg or .pdf; the ending says what is drawn."
        )
    with atomic_file(output) as file:
        figures.require(package)

        def save(figure: "Figure") -> None:
            if kind != "png":
                figures.save(figure, file, kind)
                return
            from PIL import Image  # comes with matplotlib

            drawn = BytesIO()
            figures.save(figure, drawn, kind)
            whole = Image.open(drawn).convert("RGB")
            few = whole.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            few.save(file, "PNG", optimize=True)

        yield save


# The latent -------------------------------------------------------------------------------------


@command.command("latent")
@click.argument("what", metavar="RUN|DATA")
@_output_option
@_data_option
@options.labels
@_samples_option
@click.option("-k", "--clusters", type=options.COUNT, help="DATA: subspaces to find.")
@click.option("--method", help="DATA: kscn-s (default) or kscn-g.")
@click.option("--preset", help="DATA: tuned (default), paper, or a .toml file of your own.")
@click.option("--seed", type=int, help="DATA: for the same result again; 0 if not given.")
@click.option(
    "--pretrained",
    type=options.PATH,
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
    --pretrained names a model. DATA is fitted now, for which --clusters is needed. Samples are
    coloured by class where that is known, else by cluster.
    """
    path = Path(what).expanduser()
    with picture_file(output, "openTSNE") as save:
        if (path / CONFIG).is_file() or (path / UNFINISHED).is_dir():
            _refuse("RUN", fit, "fit DATA with them instead")
            fitted = _fitted_run(path, data, pretrained)
        else:
            _refuse("DATA", {"data": data, "pretrained": pretrained}, "give a RUN for them")
            fitted = _fitted_data(what, **fit)
        save(_latent_figure(*fitted, labels_path, n_samples))
    Terminal.beside(output).say(f"wrote {output}")


# The samples to look at, the name of the method, its model, and the network that it began with.
Fitted = tuple[Any, str, Any, Any]


def _fitted_run(path: Path, data: str | None, pretrained: Path | None) -> Fitted:
    """A run, with the network of a saved model or else its pretraining done again."""
    from kscn import load_model
    from kscn.cli.progress import FitProgress
    from kscn_paper import pretraining

    run, model, loaded = _opened(path, data)
    method, parameters = run.config["run"]["method"], run.config["parameters"]
    _need_latent(model, method)
    if pretrained is not None:
        before = load_model(model_of(pretrained))
        _need_latent(before, str(pretrained))
    else:
        labels, shape = run.labels(), run.config["data"]["shape"]
        own = len(loaded.samples) == len(labels) and list(loaded.samples.shape) == shape
        samples = (loaded if own else run_data(run)).samples
        with FitProgress() as progress:
            before = pretraining.repeat(parameters, samples, labels, run.history, [progress])
    return loaded, method, model, before.autoencoder_


def _fitted_data(
    data: str, clusters: int | None, method: str | None, preset: str | None, seed: int | None
) -> Fitted:
    from kscn.cli.fit import choose
    from kscn.cli.progress import FitProgress, load_data
    from kscn_paper.pretraining import KeepPretrained

    if clusters is None:
        raise InputError(
            f"{data} is no run, so it has to be fitted; say with -k how many subspaces to find."
        )
    loaded = load_data(data)
    choice = choose(loaded, data, clusters, method or "kscn-s", preset, seed or 0, {})
    model, keep = choice.model, KeepPretrained()
    _need_latent(model, choice.method)
    with FitProgress() as progress:
        model.set_params(callbacks=(progress, keep)).fit(loaded.samples)
    return loaded, choice.method, model, keep.autoencoder


def _need_latent(model: Any, name: str) -> None:
    if not hasattr(type(model), "reconstruct"):
        raise InputError(f"{name} has no latent to draw; fit with --method kscn-s or kscn-g.")


def _refuse(kind: str, values: Mapping[str, Any], advice: str) -> None:
    given = [f"--{name}" for name, value in values.items() if value is not None]
    if given:
        raise InputError(f"{', '.join(given)} cannot be used with {kind}; {advice}.")


def _latent_figure(
    loaded: Any, method: str, model: Any, pretrained: Any, labels_path: Path | None, n_samples: int
) -> "Figure":
    import torch

    from kscn import metrics
    from kscn.cli.progress import working
    from kscn_paper import figures, pretraining

    truth, names = _truth(loaded, labels_path)
    rows, samples = _drawn(loaded.samples, n_samples)
    found = model.predict(samples)
    title = f"after clustering by {method}"
    if truth is None:
        what, groups, names = "cluster", found, [str(i) for i in range(model.n_clusters)]
    else:
        what, groups = "class", truth[rows]
        title += f" (ACC {metrics.clustering_accuracy(groups, found):.1%})"
    spaces = {
        "pretrained autoencoder": pretraining.codes(pretrained, model.scaling_, samples),
        title: model.transform(samples),
    }
    panels = []
    for name, latents in spaces.items():
        with working(f"t-SNE of {len(samples):,} samples: {name}"):
            places = figures.embed(latents, threads=torch.get_num_threads())
        panels.append(figures.Panel(name, places))
    total = len(loaded.samples)
    some = "" if len(samples) == total else f"{len(samples):,} of "
    caption = f"{loaded.name}: t-SNE of {some}{total:,} samples"
    return figures.latent_figure(panels, groups, names, what, caption)


# The subspaces ----------------------------------------------------------------------------------


@command.command("subspaces")
@options.run
@_output_option
@_data_option
@options.labels
@_samples_option
@click.option(
    "--directions", type=options.COUNT, default=3, help="Directions of each subspace to show."
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
    with picture_file(output, "matplotlib.figure") as save:
        from kscn.cli.progress import working
        from kscn_paper import figures

        opened, model, loaded = _opened(run, data)
        shape = loaded.samples.shape
        if len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] not in (1, 3)):
            raise InputError(
                f"{loaded.name} has samples of shape {shape}; the subspaces of grey images (h, w) "
                "or coloured ones (3, h, w) can be drawn."
            )
        rows, images = _drawn(loaded.samples, n_samples)
        truth, names = _truth(loaded, labels_path)
        classes = None if truth is None else truth[rows]
        with working("looking at the subspaces"):
            found = model.predict(images)
            shown = range(min(model.n_clusters, _MOST))
            titles = [_title(number, found == number, classes, names) for number in shown]
            images = images[:, 0] if shape[:-2] == (1,) else images
            portraits = figures.portraits(model, images, titles, directions)
            about, more = opened.config, ""
            if model.n_clusters > _MOST:
                more = f" The first {_MOST} of {model.n_clusters} subspaces."
            caption = (
                f"{about['data']['name']}, {about['run']['method']}. Mean: of the members. "
                f"Directions: the mean moved by {figures.STEP:g} standard deviations along those "
                "of the subspace\nin which members vary most. Nearest, farthest: members among "
                f"{len(images):,} samples, by distance to the subspace.{more}"
            )
            save(figures.subspace_figure(portraits, caption))
    Terminal.beside(output).say(f"wrote {output}")


def _title(
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


# Reading ----------------------------------------------------------------------------------------


def _opened(path: Path, data: str | None) -> tuple[Run, Any, Any]:
    """A run, its model, and the samples to look at: its own, or others."""
    from kscn import load_model

    run = read_run(path)
    return run, load_model(run.model), run_data(run) if data is None else new_data(run, data)


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
