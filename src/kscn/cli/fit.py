"""`kscn fit`: cluster a data set and write a run directory."""

import math
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kscn import __version__
from kscn.cli.rundir import CONFIG, HISTORY, LABELS, MODEL, RunWriter
from kscn.cli.summary import run_lines
from kscn.cli.terminal import Terminal
from kscn.errors import InputError, ModelFileError

if TYPE_CHECKING:
    import numpy as np


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
@click.argument("data")
@click.option(
    "-k",
    "--clusters",
    type=click.IntRange(min=1),
    required=True,
    help="How many subspaces to find.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The run directory to write.",
)
@click.option(
    "--method",
    help="kscn-s, kscn-g, k-subspaces or a baseline; by default kscn-s for images and "
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
    help="How a start is made; k-subspaces: k-means, neighbourhood, random or farthest; kscn: "
    "k-subspaces, k-means or dsc.",
)
@click.option(
    "--n-init",
    type=int,
    help="Effort of the search for a start: independent chains; 1 is a single start.",
)
@click.option("--affine", is_flag=True, help="k-subspaces: they need not pass through the origin.")
@click.option("--max-iter", type=int, help="k-subspaces: iterations at most.")
@click.option("--pretrain-epochs", type=int, help="kscn: epochs of the autoencoder alone.")
@click.option("--epochs", type=int, help="kscn: epochs of network and subspaces together.")
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
    "--seed", type=int, help="For the same result again. Drawn and recorded if not given."
)
@click.option("--overwrite", is_flag=True, help="Replace the run in the output directory.")
def command(
    data: str,
    clusters: int,
    output: Path,
    method: str | None,
    preset: str | None,
    seed: int | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Cluster DATA into K subspaces and write a run directory.

    DATA is a file (.npy .npz .csv .parquet .h5, idx), a folder of images, or a name from
    `kscn data list`. Known labels never reach the fit; they only score its result.
    """
    from kscn.cli.progress import load_data

    # What was not set is left to the preset and the estimator's own defaults.
    chosen = {name: v for name, v in options.items() if v is not None and v is not False}
    if "pretrained" in chosen:
        chosen["pretrained"] = _model_of(chosen["pretrained"])
        chosen.setdefault("pretrain_epochs", 0)
    # A seed of our own, so that config.toml can repeat the run even when none was given.
    seed = secrets.randbelow(2**31) if seed is None else seed
    loaded = load_data(data)
    choice = choose(loaded, data, clusters, method, preset, seed, chosen)
    _, config, result = fit_run(loaded, data, choice, output, overwrite)
    terminal = Terminal.of()
    for line in run_lines(terminal, config, result):
        terminal.say(line)
    terminal.say()
    for line in _where_lines(output, config, result):
        terminal.say(line)


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
    if options.get("autoencoder") == "sae":  # images are vectors to a dense network
        dataset, shape = None, (math.prod(shape),)
    model = methods.configured(
        method,
        clusters,
        preset=preset,
        dataset=dataset,
        shape=shape,
        random_state=seed,
        **options,
    )
    return Choice(model, method, preset)


def fit_run(
    loaded: Any, data: str, choice: Choice, output: Path, overwrite: bool
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Fit and write the run directory; also what `kscn demo` does.

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
    config = _config(loaded, data, choice)
    with RunWriter(output, overwrite) as run:
        run.write_config(config)
        started = time.perf_counter()
        with FitProgress() as progress:
            if "callbacks" in model.get_params(deep=False):
                model.set_params(callbacks=(progress, lambda _, record: run.record(record)))
            model.fit(loaded.samples)
        result = _result(model, time.perf_counter() - started, loaded.labels)
        if config["run"]["model"]:
            model.save(run.stage / MODEL)
        run.write_labels(model.labels_)
        run.record(result)
    return model, config, result


def _config(loaded: Any, data: str, choice: Choice) -> dict[str, dict[str, Any]]:
    from kscn.experiments import methods

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
        "parameters": methods.settings(choice.model),
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
    return {
        "stage": "done",
        "objective": _attribute(model, "inertia_", float),
        "iterations": _attribute(model, "n_iter_", int),
        "unit": "epochs" if "epochs" in parameters else "iterations",
        "seconds": seconds,
        "seed": getattr(model, "random_state_", parameters.get("random_state")),
        "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
        "dims": np.asarray(getattr(model, "subspace_dims_", ())).tolist(),
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
    of_the_run = {"data", "clusters", "output", "method", "preset", "seed", "overwrite"}
    return [p.name for p in command.params if p.name and p.name not in of_the_run]


def _flags(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _where_lines(output: Path, config: dict[str, Any], result: dict[str, Any]) -> list[str]:
    """What was written and what to type next."""
    labels = "" if result["scores"] is not None else " --labels y.npy"
    evaluate, info = f"  kscn evaluate {output}{labels}", f"  kscn info {output}"
    if not config["run"]["model"]:
        return [
            f"wrote {output}/: {LABELS}  {HISTORY}  {CONFIG}",
            f"no model: {config['run']['method']} keeps nothing that could label new samples",
            "next:",
            evaluate,
            info,
        ]
    return [
        f"wrote {output}/: {MODEL}/  {LABELS}  {HISTORY}  {CONFIG}",
        "next:",
        evaluate,
        f"  kscn predict {output} NEW_DATA -o labels.csv",
        info,
    ]
