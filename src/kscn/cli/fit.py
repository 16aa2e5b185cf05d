"""`kscn fit`: cluster a data set and write a run directory."""

import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.cli import options
from kscn.cli.fitting import Choice, assist, fit_run, new_config
from kscn.cli.summary import next_lines, run_lines
from kscn.cli.terminal import Terminal
from kscn.errors import InputError, ModelFileError, reason
from kscn.runs.directory import CONFIG, model_of, read_unfinished
from kscn.runs.opened import (
    load_like,
    open_data,
    resumed_encoder,
    say_left_out,
    say_what_to_expect,
)

if TYPE_CHECKING:
    from kscn.runtime.group import Group

# The data, the model and what config.toml is to hold.
Job = tuple[Any, Choice, dict[str, Any]]


@click.command("fit", short_help="Cluster a data set and write a run directory.")
@click.argument("data", required=False)
@click.option("-k", "--clusters", type=options.COUNT, help="How many clusters to find.  [required]")
@options.output("The run directory to write.  [required]")
@click.option(
    "--resume",
    type=options.PATH,
    metavar="RUN",
    help="Go on with a run that did not finish, instead of all other arguments but --device and "
    "--encoder.",
)
@click.option(
    "--method",
    help="best, kscn-s, kscn-g or k-subspaces; by default best, for data of any kind.",
)
@click.option(
    "--preset",
    help="Settings of kscn-s and kscn-g: tuned (default), paper, or a .toml file of your own.",
)
@click.option(
    "--subspace-dim",
    type=options.dimensions,
    metavar="P|P,P,...|auto",
    help="k-subspaces, kscn: dimension.",
)
@click.option(
    "--trim",
    type=float,
    help="k-subspaces, kscn: share of each cluster's farthest members to leave out of its update.",
)
@click.option(
    "--init",
    help="How a start is made; k-subspaces: auto, neighbours or k-means; "
    "kscn: k-subspaces, drawn, neighbours or k-means.",
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
    type=options.PATH,
    metavar="RUN",
    help="kscn: take the autoencoder from this run or model instead of pretraining one.",
)
@click.option("--batch-size", type=int, help="Samples read at once; kscn, best: also per step.")
@click.option(
    "--device", help="Where to compute: cpu, cuda, cuda:1; by default a GPU where there is one."
)
@click.option(
    "--seed", type=int, help="For the same result again. Drawn and recorded if not given."
)
@click.option(
    "--checkpoint-minutes", type=float, help="Longest time that a kill can cost; 10 if not given."
)
@options.size
@options.skip_broken
@click.option(
    "--encoder",
    help="best: a pretrained network that images go through first, an .onnx file or timm:NAME.",
)
@click.option("--copy-encoder", is_flag=True, help="Keep a copy of the .onnx file in the run.")
@click.option("--overwrite", is_flag=True, help="Replace the run in the output directory.")
def command(
    data: str | None,
    clusters: int | None,
    output: Path | None,
    resume: Path | None,
    overwrite: bool,
    **values: Any,
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
    from kscn.runtime.group import joined

    # What was not set is left to the preset and the estimator's own defaults.
    given = {name: v for name, v in values.items() if v is not None and v is not False}
    if resume is not None:
        # A run may go on elsewhere, and its encoder may have been moved.
        device, encoder = given.pop("device", None), given.pop("encoder", None)
        if given or overwrite or any(value is not None for value in (data, clusters, output)):
            raise click.UsageError(
                "--resume takes no other arguments but --device and --encoder: those of the run "
                "count."
            )
        output = resume
    elif data is None or clusters is None or output is None:
        missing = {"argument 'DATA'": data, "option '-k'": clusters, "option '-o'": output}
        raise click.UsageError(f"Missing {next(n for n, v in missing.items() if v is None)}.")
    advice = f"go on with `kscn fit --resume {output}`, in any number of processes."
    with joined(advice) as group:
        if resume is not None:
            loaded, choice, config = _resumed(resume, device, encoder, group)
        else:
            assert data is not None and clusters is not None
            loaded, choice, config = _new(data, clusters, given, group)
        if group.rank > 0:
            assist(loaded, choice, output)
            return
        resumed = resume is not None
        result = fit_run(loaded, choice, config, output, overwrite=overwrite, resume=resumed)
        terminal = Terminal.of()
        terminal.say(*run_lines(terminal, config, result), "", *next_lines(output, config, result))


def _new(data: str, clusters: int, given: dict[str, Any], group: "Group") -> Job:
    """The data, the model and the config of a new run."""
    opening = ("size", "skip_broken")
    folder: dict[str, Any] = {name: given.pop(name) for name in opening if name in given}
    method, preset = given.pop("method", None), given.pop("preset", None)
    if "pretrained" in given:
        given["pretrained"] = str(model_of(given["pretrained"]))
    if "encoder" in given:
        if "size" in folder:
            raise InputError(
                "--size cannot be used with --encoder, which brings images to its own size; leave "
                "it out."
            )
        from kscn.features.encoders import load_encoder

        folder["any_size"] = True
        given["encoder"] = load_encoder(given["encoder"])
    elif "copy_encoder" in given:
        raise InputError("--copy-encoder has nothing to copy; add --encoder.")
    # A seed of our own, so that config.toml can repeat the run even when none was given.
    seed = group.agree_int(given.pop("seed", secrets.randbelow(2**31)))
    loaded = _load(group, lambda: open_data(data, **folder))
    choice = choose(loaded, data, clusters, method, preset, seed, given)
    if group.size > 1 and not choice.keeps_states:
        raise InputError(
            f"the method {choice.method} works in one process; start it without torchrun."
        )
    if group.rank == 0:
        say_left_out(loaded)
        if "encoder" not in given:
            say_what_to_expect(loaded, standardised=choice.method == "best")
    return loaded, choice, new_config(loaded, data, choice)


def _resumed(path: Path, device: str | None, encoder: str | None, group: "Group") -> Job:
    """The data, the model and the config of a run that did not finish."""
    from kscn.estimators import methods

    run = read_unfinished(path)
    about, described, method = run.config["run"], run.config["data"], run.config["run"]["method"]
    network = resumed_encoder(run, encoder)
    skip_broken = described.get("skip_broken", False)
    loaded = _load(group, lambda: load_like(run, described["source"], skip_broken=skip_broken))
    found = (len(loaded.samples), list(loaded.samples.shape))
    if found != (described["samples"], described["shape"]):
        raise InputError(
            f"{described['source']} holds {found[0]} samples of shape {found[1]} now, and had "
            f"{described['samples']} of {described['shape']} when the run began; a run cannot go "
            "on with other data."
        )
    try:
        model = methods.repeated(method, run.config["parameters"])
    except (KeyError, TypeError) as error:
        raise ModelFileError(
            f"{path} cannot go on: its {CONFIG} holds other settings than {method} takes "
            f"({reason(error)}); begin anew with --overwrite."
        ) from None
    if device is not None:
        model.set_params(device=device)
    if network is not None:
        model.set_params(encoder=network)
    choice = Choice(model, method, about.get("preset"), about.get("checkpoint_minutes"))
    return loaded, choice, run.config


def _load(group: "Group", opened: Callable[[], Any]) -> Any:
    """Open the data; where it has to be fetched first, one process of a machine does so."""
    first = int(os.environ.get("LOCAL_RANK", "0")) == 0
    loaded = opened() if first else None
    group.any(False)  # the others come when it is there
    return opened() if loaded is None else loaded


def choose(
    loaded: Any,
    data: str,
    clusters: int,
    method: str | None,
    preset: str | None,
    seed: int,
    parameters: dict[str, Any],
) -> Choice:
    """The model for what was asked on the command line, or why it cannot be.

    Of the `parameters` of the estimator, those that were not given may depend on the number and
    shape of the samples.
    """
    from kscn.estimators import methods, presets

    _refuse_options(method, preset, parameters)
    method, parameters = method or methods.DEFAULT, dict(parameters)
    minutes = parameters.pop("checkpoint_minutes", None)
    copy = parameters.pop("copy_encoder", False)
    if "pretrained" in parameters:
        parameters = {"pretrain_epochs": 0} | parameters
    if methods.has_presets(method):
        preset = presets.DEFAULT if preset is None else preset
    model = methods.configured(
        method,
        clusters,
        preset=preset,
        shape=loaded.samples.shape,
        n_samples=len(loaded.samples),
        random_state=seed,
        **parameters,
    )
    return Choice(model, method, preset, minutes, copy)


def _taken(method: str) -> set[str]:
    """The options that a method takes: its parameters, and what is kept of its run."""
    from kscn.estimators import methods

    takes = methods.accepted(method)
    kept = {"checkpoint_dir": "checkpoint_minutes", "encoder": "copy_encoder"}
    return takes | {option for parameter, option in kept.items() if parameter in takes}


def _refuse_options(method: str | None, preset: str | None, given: Iterable[str]) -> None:
    """Say which options cannot be used with a method, and with which they can.

    No method is taken because of an option: who adds one to the default would get clusters of
    another method without having asked for it.
    """
    from kscn.estimators import methods

    def refused(method: str) -> list[str]:
        no_preset = preset is not None and not methods.has_presets(method)
        return [*sorted(set(given) - _taken(method)), *(["preset"] if no_preset else [])]

    found = refused(method or methods.DEFAULT)
    if not found:
        return
    if method is not None:
        known = [p.name for p in command.params if p.name in _taken(method) - {"preset"}]
        raise InputError(
            f"{_flags(found)} cannot be used with the method {method}; it takes "
            f"{_flags(known) or 'no such options'}."
        )
    able = [f"--method {name}" for name in (methods.LINEAR, "kscn-s") if not refused(name)]
    advice = f"add {' or '.join(able)}" if able else "name the method that is meant by --method"
    raise InputError(
        f"{_flags(found)} cannot be used with the default method, {methods.DEFAULT}; {advice}, or "
        "leave out what it does not take."
    )


def _flags(names: Iterable[str | None]) -> str:
    return ", ".join(f"--{name}".replace("_", "-") for name in names)
