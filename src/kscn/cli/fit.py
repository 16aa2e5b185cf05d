"""`kscn fit`: cluster a data set and write a run directory."""

import os
import secrets
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.cli.encoding import resumed_encoder
from kscn.cli.fitting import Choice, Done, fit_run, keeps_states, set_checkpoints, stopped
from kscn.cli.interrupt import interruptible
from kscn.cli.options import DIMENSIONS, PATH, folder_options, output_option
from kscn.cli.rundata import data_again, open_data, say_left_out, say_one_column, say_photographs
from kscn.cli.rundir import CONFIG, MODEL, read_unfinished
from kscn.cli.summary import next_lines, run_lines
from kscn.cli.terminal import Terminal
from kscn.errors import InputError, ModelFileError

if TYPE_CHECKING:
    from kscn.runtime.group import Group


# Options that say how to open a folder of images.
_OF_FOLDERS = ["size", "skip_broken"]


@click.command("fit", short_help="Cluster a data set and write a run directory.")
@click.argument("data", required=False)
@click.option(
    "-k",
    "--clusters",
    type=click.IntRange(min=1),
    help="How many clusters to find.  [required]",
)
@output_option("The run directory to write.  [required]")
@click.option(
    "--resume",
    type=PATH,
    metavar="RUN",
    help="Go on with a run that did not finish, instead of all other arguments but --device and "
    "--encoder.",
)
@click.option(
    "--method",
    help="best, kscn-s, kscn-g, k-subspaces or a baseline; by default best, for data of any kind.",
)
@click.option(
    "--preset",
    help="Settings of kscn-s and kscn-g: tuned (default), paper, or a .toml file of your own.",
)
@click.option("--subspace-dim", type=DIMENSIONS, help="k-subspaces, kscn: dimension.")
@click.option(
    "--trim",
    type=float,
    help="k-subspaces, kscn: share of each cluster's farthest members to leave out of its update.",
)
@click.option(
    "--init",
    help="How a start is made; k-subspaces: auto, neighbours, ensemble, k-means, neighbourhood, "
    "random or farthest; kscn: k-subspaces, drawn, neighbours, ensemble, k-means or dsc.",
)
@click.option(
    "--n-init",
    type=int,
    help="k-subspaces, kscn: independent chains of the search for a start; 1 is a single start.",
)
@click.option("--starts", type=int, help="best: runs of k-subspaces per space and dimension.")
@click.option(
    "--refine",
    is_flag=True,
    help="best: refine even if samples are few, and keep the result in any case.",
)
@click.option("--affine", is_flag=True, help="k-subspaces: they need not pass through the origin.")
@click.option("--max-iter", type=int, help="k-subspaces: iterations at most.")
@click.option("--pretrain-epochs", type=int, help="kscn: epochs of the autoencoder alone.")
@click.option("--epochs", type=int, help="kscn, best: epochs of network and subspaces.")
@click.option("--weight", type=float, help="kscn: weight of the subspaces beside reconstruction.")
@click.option("--learning-rate", type=float, help="kscn, best: step size of Adam.")
@click.option(
    "--autoencoder",
    type=click.Choice(["cae", "sae"]),
    help="kscn: convolutional (images) or dense.",
)
@click.option(
    "--pretrained",
    type=PATH,
    metavar="RUN",
    help="kscn: take the autoencoder from this run or model instead of pretraining one.",
)
@click.option("--batch-size", type=int, help="Samples read at once; kscn, best: also per step.")
@click.option(
    "--device",
    help="Where to compute: cpu, cuda, cuda:1; by default a GPU where there is one.",
)
@click.option(
    "--seed", type=int, help="For the same result again. Drawn and recorded if not given."
)
@click.option(
    "--checkpoint-minutes",
    type=float,
    help="Longest time that a kill can cost; 10 if not given.",
)
@folder_options
@click.option(
    "--encoder",
    help="best: a pretrained network that images go through first, an .onnx file or timm:NAME, "
    "open_clip:NAME/WEIGHTS, torchvision:NAME.",
)
@click.option("--copy-encoder", is_flag=True, help="Keep a copy of the .onnx file in the run.")
@click.option("--overwrite", is_flag=True, help="Replace the run in the output directory.")
def command(
    data: str | None,
    clusters: int | None,
    output: Path | None,
    method: str | None,
    preset: str | None,
    seed: int | None,
    overwrite: bool,
    resume: Path | None,
    **options: Any,
) -> None:
    """Cluster DATA into K clusters and write a run directory.

    DATA is a file (.npy .npz .csv .parquet .h5, idx), a folder of images (of any sizes and modes
    with --size or --encoder), or a name from `kscn data list`. Known labels never reach the fit;
    they only score its result. K is all that the method needs to be told; it tries many clusterings
    and says which it took, why, and how sure it is. Options that begin with the name of another
    method need that --method. Photographs need an --encoder.

    Many processes share the work when torchrun starts them: torchrun --nproc-per-node 4 -m kscn
    fit ... A run that was stopped or killed goes on with --resume.
    """
    # What was not set is left to the preset and the estimator's own defaults.
    chosen = {name: v for name, v in options.items() if v is not None and v is not False}
    if resume is not None:
        device = chosen.pop("device", None)  # a run may go on elsewhere
        encoder = chosen.pop("encoder", None)  # which may have been moved
        others = [data, clusters, output, method, preset, seed, *chosen.values()]
        if overwrite or any(other is not None for other in others):
            raise click.UsageError(
                "--resume takes no other arguments but --device and --encoder: those of the run "
                "count."
            )
        output = resume
    elif data is None or clusters is None or output is None:
        missing = {"argument 'DATA'": data, "option '-k'": clusters, "option '-o'": output}
        raise click.UsageError(f"Missing {next(n for n, v in missing.items() if v is None)}.")
    with _together(output) as group:
        if resume is not None:
            done = _go_on(resume, device, encoder, group)
        else:
            assert data is not None and clusters is not None
            done = _begin(data, clusters, output, method, preset, seed, overwrite, chosen, group)
        if done is not None:
            _tell(output, *done)


def _together(output: Path) -> "AbstractContextManager[Group]":
    """The processes that torchrun started, or this one alone."""
    from kscn.runtime.group import joined

    return joined(f"go on with `kscn fit --resume {output}`, in any number of processes.")


def _begin(
    data: str,
    clusters: int,
    output: Path,
    method: str | None,
    preset: str | None,
    seed: int | None,
    overwrite: bool,
    chosen: dict[str, Any],
    group: "Group",
) -> Done | None:
    """A new run."""
    if "pretrained" in chosen:
        chosen["pretrained"] = _model_of(chosen["pretrained"])
    folder = {name: chosen.pop(name) for name in _OF_FOLDERS if name in chosen}
    copy = chosen.pop("copy_encoder", False)
    if copy and "encoder" not in chosen:
        raise InputError("--copy-encoder has nothing to copy; add --encoder.")
    if "encoder" in chosen:
        chosen["encoder"] = _encoder(chosen["encoder"], folder)
    # A seed of our own, so that config.toml can repeat the run even when none was given.
    seed = group.agree_int(secrets.randbelow(2**31) if seed is None else seed)
    loaded = _load(group, lambda: open_data(data, **folder))
    choice = choose(loaded, data, clusters, method, preset, seed, chosen)
    if group.size > 1 and not keeps_states(choice.model):
        raise InputError(
            f"the method {choice.method} works in one process; start it without torchrun."
        )
    if group.rank > 0:
        _assist(loaded, choice, output)
        return None
    say_left_out(loaded)
    if "encoder" not in chosen:
        say_photographs(loaded)
        say_one_column(loaded, standardised=choice.method == "best")
    return fit_run(loaded, data, choice, output, overwrite, copy=copy)


def _go_on(run: Path, device: str | None, encoder: str | None, group: "Group") -> Done | None:
    """A run that did not finish, with its own settings."""
    from kscn.experiments import methods

    config = read_unfinished(run)
    described = config["data"]
    network = resumed_encoder(run, config, encoder)
    loaded = _load(group, lambda: data_again(config))
    found = (len(loaded.samples), list(loaded.samples.shape))
    if found != (described["samples"], described["shape"]):
        raise InputError(
            f"{described['source']} holds {found[0]} samples of shape {found[1]} now, and had "
            f"{described['samples']} of {described['shape']} when the run began; a run cannot go "
            "on with other data."
        )
    method = config["run"]["method"]
    try:
        model = methods.repeated(method, config["parameters"])
    except (KeyError, TypeError) as error:
        from kscn.errors import reason

        raise ModelFileError(
            f"{run} cannot go on: its {CONFIG} holds other settings than {method} takes "
            f"({reason(error)}); begin anew with --overwrite."
        ) from None
    if device is not None:
        model.set_params(device=device)
    if network is not None:
        model.set_params(encoder=network)
    run_of = config["run"]
    choice = Choice(model, method, run_of.get("preset"), run_of.get("checkpoint_minutes"))
    if group.rank > 0:
        _assist(loaded, choice, run)
        return None
    return fit_run(loaded, described["source"], choice, run, False, config)


def _encoder(name: str, folder: dict[str, Any]) -> Any:
    """The encoder of that name, for images at their own sizes, as `folder` is told."""
    from kscn.features.encoders import load_encoder

    if "size" in folder:
        raise InputError(
            "--size cannot be used with --encoder, which brings images to its own size; leave it "
            "out."
        )
    folder["any_size"] = True
    return load_encoder(name)


def _load(group: "Group", opened: Callable[[], Any]) -> Any:
    """Open the data; where it has to be fetched first, one process of a machine does so."""
    first = int(os.environ.get("LOCAL_RANK", "0")) == 0
    loaded = opened() if first else None
    group.any(False)  # the others come when it is there
    return opened() if loaded is None else loaded


def _assist(loaded: Any, choice: Choice, output: Path) -> None:
    """What every process but the first does: its part of the fit, in silence."""
    model = choice.model
    set_checkpoints(choice, output)
    with interruptible(keeps_states(model)) as interruption, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(loaded.samples)
        except (KeyboardInterrupt, stopped()):
            raise SystemExit(interruption.code) from None


def _tell(output: Path, model: Any, config: dict[str, Any], result: dict[str, Any]) -> None:
    terminal = Terminal.of()
    terminal.say(*run_lines(terminal, config, result), "", *next_lines(output, config, result))


def choose(
    loaded: Any,
    data: str,
    clusters: int,
    method: str | None,
    preset: str | None,
    seed: int,
    options: dict[str, Any],
) -> Choice:
    """The model for what was asked on the command line, or why it cannot be.

    Parameters
    ----------
    loaded : Dataset
        The data; settings depend on its shape and name where they were not given.
    data : str
        What the data was called on the command line.
    clusters, method, preset, seed
        As given on the command line.
    options : dict
        Parameters of the estimator that were given, by name.
    """
    from kscn.estimators import presets
    from kscn.experiments import methods

    refused = _refused(method or methods.DEFAULT, preset, options)
    if refused:
        raise InputError(_refusal(refused, method, preset, options))
    method = method or methods.DEFAULT
    options = dict(options)
    minutes = options.pop("checkpoint_minutes", None)
    if "pretrained" in options:
        options = {"pretrain_epochs": 0} | options
    if methods.has_presets(method):
        preset = presets.DEFAULT if preset is None else preset
    # A file that happens to be called mnist.npy is not the data set of the catalogue.
    dataset = loaded.name if data == loaded.name else None
    model = methods.configured(
        method,
        clusters,
        preset=preset,
        dataset=dataset,
        shape=loaded.samples.shape,
        n_samples=len(loaded.samples),
        random_state=seed,
        **options,
    )
    return Choice(model, method, preset, minutes)


def _taken(method: str) -> set[str]:
    """The options that a method takes: its parameters, and how often its state is written."""
    from kscn.experiments import methods

    takes = methods.accepted(method)
    return takes | ({"checkpoint_minutes"} if "checkpoint_dir" in takes else set())


def _refused(method: str, preset: str | None, options: Iterable[str]) -> list[str]:
    """The options that a method does not take."""
    from kscn.experiments import methods

    takes = _taken(method)
    refused = [name for name in options if name not in takes]
    return refused + ["preset"] * (preset is not None and not methods.has_presets(method))


def _refusal(
    refused: Iterable[str], method: str | None, preset: str | None, options: Iterable[str]
) -> str:
    """Why options cannot be used, and with which method they can.

    No method is taken because of an option: who adds one to the default would get clusters of
    another method without having asked for it.
    """
    from kscn.experiments import methods

    if method is None:
        told = f"{_flags(refused)} cannot be used with the default method, {methods.DEFAULT}"
        others = (methods.LINEAR, "kscn-s")
        able = [f"--method {name}" for name in others if not _refused(name, preset, options)]
        advice = f"add {' or '.join(able)}" if able else "name the method that is meant by --method"
        return f"{told}; {advice}, or leave out what it does not take."
    takes = _taken(method)
    known = [name for name in _estimator_options() if name in takes]
    return (
        f"{_flags(refused)} cannot be used with the method {method}; it takes "
        f"{_flags(known) or 'no such options'}."
    )


def _model_of(path: Path) -> str:
    """The model directory of a run, or the path itself if it is a model already."""
    if not path.exists():
        raise ModelFileError(f"{path} does not exist; give a run of `kscn fit` or a saved model.")
    inside = path / MODEL
    return str((inside if inside.is_dir() else path).absolute())


def _estimator_options() -> list[str]:
    """The options of this command that are parameters of some estimator."""
    of_the_run = {
        "data", "clusters", "output", "resume", "method", "preset", "seed", "overwrite",
        "copy_encoder", *_OF_FOLDERS,
    }  # fmt: skip
    return [p.name for p in command.params if p.name and p.name not in of_the_run]


def _flags(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)
