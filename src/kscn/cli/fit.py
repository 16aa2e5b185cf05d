"""`kscn fit`: cluster a data set and write a run directory."""

import os
import secrets
import time
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from kscn import __version__
from kscn.cli.interrupt import interruptible
from kscn.cli.rundir import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    RunWriter,
    read_unfinished,
)
from kscn.cli.summary import next_lines, run_lines
from kscn.cli.terminal import Terminal, complain
from kscn.errors import InputError, ModelFileError

if TYPE_CHECKING:
    import numpy as np

    from kscn.training.distributed import Group


class SubspaceDim(click.ParamType):
    """`auto`, one dimension for all subspaces, or one for each, separated by commas."""

    name = "P|P,P,...|auto"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int | list[int]:
        """Parse the option."""
        if value == "auto":
            return "auto"
        try:
            dims = [int(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is neither 'auto' nor a number nor numbers with commas", param)
        return dims if len(dims) > 1 else dims[0]


@click.command("fit", short_help="Cluster a data set and write a run directory.")
@click.argument("data", required=False)
@click.option(
    "-k",
    "--clusters",
    type=click.IntRange(min=1),
    help="How many subspaces to find.  [required]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The run directory to write.  [required]",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Go on with a run that did not finish, instead of all other arguments but --device.",
)
@click.option(
    "--method",
    help="kscn-s, kscn-g, best, k-subspaces or a baseline; by default kscn-s for images and "
    "k-subspaces for vectors.",
)
@click.option(
    "--preset",
    help="Settings of kscn-s and kscn-g: tuned (default), paper, or a .toml file of your own.",
)
@click.option("--subspace-dim", type=SubspaceDim(), help="Dimension of the subspaces.")
@click.option(
    "--trim",
    type=float,
    help="Share of each cluster's farthest members to leave out of its update.",
)
@click.option(
    "--init",
    help="How a start is made; k-subspaces: auto, neighbours, ensemble, k-means, neighbourhood, "
    "random or farthest; kscn: k-subspaces, neighbours, ensemble, k-means or dsc.",
)
@click.option(
    "--n-init",
    type=int,
    help="Effort of the search for a start: independent chains; 1 is a single start.",
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
@click.option("--learning-rate", type=float, help="kscn: step size of Adam.")
@click.option(
    "--autoencoder",
    type=click.Choice(["cae", "sae"]),
    help="kscn: convolutional (images) or dense.",
)
@click.option(
    "--pretrained",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="kscn: take the autoencoder from this run or model instead of pretraining one.",
)
@click.option("--batch-size", type=int, help="Samples read at once; kscn: also per step.")
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
    """Cluster DATA into K subspaces and write a run directory.

    DATA is a file (.npy .npz .csv .parquet .h5, idx), a folder of images, or a name from
    `kscn data list`. Known labels never reach the fit; they only score its result.

    Many processes share the work when torchrun starts them: torchrun --nproc-per-node 4 -m kscn
    fit ... A run that was stopped or killed goes on with --resume.
    """
    # What was not set is left to the preset and the estimator's own defaults.
    chosen = {name: v for name, v in options.items() if v is not None and v is not False}
    if resume is not None:
        device = chosen.pop("device", None)  # a run may go on elsewhere
        others = [data, clusters, output, method, preset, seed, *chosen.values()]
        if overwrite or any(other is not None for other in others):
            raise click.UsageError(
                "--resume takes no other arguments but --device: those of the run count."
            )
        output = resume
    elif data is None or clusters is None or output is None:
        missing = {"argument 'DATA'": data, "option '-k'": clusters, "option '-o'": output}
        raise click.UsageError(f"Missing {next(n for n, v in missing.items() if v is None)}.")
    with _together(output) as group:
        if resume is not None:
            done = _go_on(resume, device, group)
        else:
            assert data is not None and clusters is not None
            done = _begin(data, clusters, output, method, preset, seed, overwrite, chosen, group)
        if done is not None:
            _tell(output, *done)


def _together(output: Path) -> "AbstractContextManager[Group]":
    """The processes that torchrun started, or this one alone."""
    from kscn.training.joining import joined

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
) -> "Done | None":
    """A new run."""
    if "pretrained" in chosen:
        chosen["pretrained"] = _model_of(chosen["pretrained"])
        chosen.setdefault("pretrain_epochs", 0)
    # A seed of our own, so that config.toml can repeat the run even when none was given.
    seed = group.agree_int(secrets.randbelow(2**31) if seed is None else seed)
    loaded = _load(data, group)
    choice = choose(loaded, data, clusters, method, preset, seed, chosen)
    if group.size > 1 and not _keeps_states(choice.model):
        raise InputError(
            f"the method {choice.method} works in one process; start it without torchrun."
        )
    if group.rank > 0:
        _assist(loaded, choice, output)
        return None
    return fit_run(loaded, data, choice, output, overwrite)


def _go_on(run: Path, device: str | None, group: "Group") -> "Done | None":
    """A run that did not finish, with its own settings."""
    from kscn.experiments import methods

    config = read_unfinished(run)
    described = config["data"]
    loaded = _load(described["source"], group)
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
        raise ModelFileError(
            f"{run} cannot go on: its {CONFIG} holds other settings than {method} takes ({error}); "
            "begin anew with --overwrite."
        ) from None
    if device is not None:
        model.set_params(device=device)
    choice = Choice(model, method, config["run"].get("preset"))
    if group.rank > 0:
        _assist(loaded, choice, run)
        return None
    return fit_run(loaded, described["source"], choice, run, False, config)


def _load(data: str, group: "Group") -> Any:
    """Open the data; where it has to be fetched first, one process of a machine does so."""
    from kscn.cli.progress import load_data

    first = int(os.environ.get("LOCAL_RANK", "0")) == 0
    loaded = load_data(data) if first else None
    group.any(False)  # the others come when it is there
    return load_data(data) if loaded is None else loaded


def _assist(loaded: Any, choice: "Choice", output: Path) -> None:
    """What every process but the first does: its part of the fit, in silence."""
    model = choice.model
    _set_checkpoints(model, output)
    with interruptible(_keeps_states(model)) as interruption, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(loaded.samples)
        except (KeyboardInterrupt, _stopped()):
            raise SystemExit(interruption.code) from None


def _tell(output: Path, model: Any, config: dict[str, Any], result: dict[str, Any]) -> None:
    terminal = Terminal.of()
    for line in run_lines(terminal, config, result):
        terminal.say(line)
    terminal.say()
    for line in next_lines(output, config, result):
        terminal.say(line)


# A fitted model, what config.toml holds, and the last line of the history.
Done = tuple[Any, dict[str, Any], dict[str, Any]]


class Choice(NamedTuple):
    """A model to be fitted, and how it is called in the run's config."""

    model: Any
    method: str
    preset: str | None


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
        The data; method and preset depend on its shape and name where they were not given.
    data : str
        What the data was called on the command line.
    clusters, method, preset, seed
        As given on the command line.
    options : dict
        Parameters of the estimator that were given, by name.
    """
    from kscn.estimators import presets
    from kscn.experiments import methods

    shape = loaded.samples.shape
    method = methods.default(shape) if method is None else method
    takes = methods.accepted(method)
    refused = [name for name in options if name not in takes]
    if preset is not None and not methods.has_presets(method):
        refused.append("preset")
    if refused:
        known = [name for name in _estimator_options() if name in takes]
        raise InputError(
            f"{_flags(refused)} cannot be used with the method {method}; it takes "
            f"{_flags(known) or 'no such options'}."
        )
    if methods.has_presets(method):
        preset = presets.DEFAULT if preset is None else preset
    # A file that happens to be called mnist.npy is not the data set of the catalogue.
    dataset = loaded.name if data == loaded.name else None
    model = methods.configured(
        method,
        clusters,
        preset=preset,
        dataset=dataset,
        shape=shape,
        n_samples=len(loaded.samples),
        random_state=seed,
        **options,
    )
    return Choice(model, method, preset)


def fit_run(
    loaded: Any,
    data: str,
    choice: Choice,
    output: Path,
    overwrite: bool,
    resumed: dict[str, Any] | None = None,
) -> Done:
    """Fit and write the run directory; also what `kscn demo` does.

    Parameters
    ----------
    loaded, data, choice
        The samples, what they are called on the command line, and the model.
    output : Path
        The run directory.
    overwrite : bool
        Whether a run that is there may be replaced.
    resumed : dict, optional
        The config of the run in `output` that is gone on with.

    Returns
    -------
    model : estimator
        Fitted.
    config : dict
        What config.toml holds.
    result : dict
        The last line of the history: objective, iterations, seconds, seed, dims, sizes, scores.
    """
    from kscn.cli.progress import FitProgress

    model = choice.model
    config = _config(loaded, data, choice) if resumed is None else resumed
    with (
        interruptible(_keeps_states(model)) as interruption,
        RunWriter(output, overwrite, resumed is not None) as run,
    ):
        run.write_config(config)
        _set_checkpoints(model, output)
        started = time.perf_counter()
        with FitProgress() as progress:
            if "callbacks" in model.get_params(deep=False):
                model.set_params(callbacks=(progress, run.listen))
            try:
                model.fit(loaded.samples)
            except (KeyboardInterrupt, _stopped()):
                run.rewrite_history(getattr(model, "history_", ()))
                _leave(run, interruption.code)
        seconds = time.perf_counter() - started
        if resumed is not None and hasattr(model, "history_"):
            run.rewrite_history(model.history_)
            seconds = max(record["seconds"] for record in model.history_)
        result = _result(model, seconds, loaded.labels)
        if hasattr(model, "save"):
            model.save(run.stage / MODEL)
        run.write_labels(model.labels_)
        run.record(result)
    return model, config, result


def _keeps_states(model: Any) -> bool:
    return "checkpoint_dir" in model.get_params(deep=False)


def _set_checkpoints(model: Any, output: Path) -> None:
    if _keeps_states(model):
        model.set_params(checkpoint_dir=output / CHECKPOINTS)


def _stopped() -> type[Exception]:
    from kscn.training.checkpoint import StoppedError

    return StoppedError


def _leave(run: RunWriter, code: int) -> NoReturn:
    """After a signal: say how to go on."""
    advice = "nothing already on disk was lost"
    if run.learnt:
        advice = f"go on with `kscn fit --resume {run.path}`"
    complain(f"interrupted; {advice}")
    raise SystemExit(code)


def _config(loaded: Any, data: str, choice: Choice) -> dict[str, dict[str, Any]]:
    from kscn.experiments import methods

    parameters = methods.settings(choice.model)
    parameters.pop("device", None)  # where a run is computed is no setting of it
    return {
        "run": {
            "kscn": __version__,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "method": choice.method,
            "preset": choice.preset,
            "model": hasattr(choice.model, "save"),
        },
        "data": {
            "source": data if data == loaded.name else str(Path(data).expanduser().absolute()),
            "name": loaded.name,
            "samples": len(loaded.samples),
            "shape": list(loaded.samples.shape),
        },
        # With the preset, they make the same model again: TOML leaves out what is None.
        "parameters": parameters | ({} if choice.preset is None else {"preset": choice.preset}),
    }


def _result(model: Any, seconds: float, labels: "np.ndarray | None") -> dict[str, Any]:
    """What is known of any fitted model; None or empty where a baseline has no such thing."""
    import numpy as np

    from kscn import metrics

    scores = None
    if labels is not None:
        # Labels that cannot score (all unlabelled, say) are no reason to lose a finished fit.
        with suppress(InputError):
            scores = metrics.scores(labels, model.labels_)
    parameters = model.get_params(deep=False)
    points = hasattr(model, "chosen_")  # clusters of any shape have no dimension
    return {
        "stage": "done",
        "objective": _attribute(model, "inertia_", float),
        "iterations": _attribute(model, "n_iter_", int),
        "unit": "epochs" if "epochs" in parameters else "iterations",
        "seconds": seconds,
        "seed": getattr(model, "random_state_", parameters.get("random_state")),
        "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
        "dims": [] if points else np.asarray(getattr(model, "subspace_dims_", ())).tolist(),
        "scores": scores,
    }


def _attribute(model: Any, name: str, kind: type) -> Any:
    value = getattr(model, name, None)
    return None if value is None else kind(value)


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
    }  # fmt: skip
    return [p.name for p in command.params if p.name and p.name not in of_the_run]


def _flags(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)
