"""`kscn fit`: cluster a data set and write a run directory."""

import secrets
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn import __version__
from kscn.cli.rundir import CONFIG, HISTORY, LABELS, MODEL, RunWriter
from kscn.cli.summary import run_lines
from kscn.cli.terminal import Terminal

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
    "--method", type=click.Choice(["k-subspaces"]), default="k-subspaces", show_default=True
)
@click.option("--subspace-dim", type=SubspaceDim(), help="Dimension of the subspaces.")
@click.option("--affine", is_flag=True, help="Subspaces need not pass through the origin.")
@click.option(
    "--trim",
    type=float,
    help="Share of each cluster's farthest members to leave out of its update.",
)
@click.option("--init", help="How a start is made: k-means, neighbourhood, random or farthest.")
@click.option(
    "--n-init",
    type=int,
    help="Effort of the search for a start: independent chains; 1 is a single start.",
)
@click.option("--max-iter", type=int, help="Iterations at most.")
@click.option("--batch-size", type=int, help="Samples read at once.")
@click.option(
    "--seed", type=int, help="For the same result again. Drawn and recorded if not given."
)
@click.option("--overwrite", is_flag=True, help="Replace the run in the output directory.")
def command(
    data: str,
    clusters: int,
    output: Path,
    method: str,
    seed: int | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Cluster DATA into K subspaces and write a run directory.

    DATA is a file (.npy .npz .csv .parquet .h5, idx), a folder of images, or a name from
    `kscn data list`. Known labels never reach the fit; they only score its result.
    """
    from kscn.cli.progress import load_data

    # A seed of our own, so that config.toml can repeat the run even when none was given.
    options["random_state"] = secrets.randbelow(2**31) if seed is None else seed
    # What was not set is left to the estimator's own defaults.
    chosen = {name: value for name, value in options.items() if value is not None}
    loaded = load_data(data)
    _, result = fit_run(loaded, data, clusters, chosen, output, overwrite)
    terminal = Terminal.of()
    for line in run_lines(terminal, loaded.name, len(loaded.samples), loaded.samples.shape, result):
        terminal.say(line)
    terminal.say()
    for line in _where_lines(output, scored=result["scores"] is not None):
        terminal.say(line)


def fit_run(
    loaded: Any, data: str, clusters: int, options: dict[str, Any], output: Path, overwrite: bool
) -> tuple[Any, dict[str, Any]]:
    """Fit and write the run directory; also what `kscn demo` does.

    Returns
    -------
    model : KSubspaces
        The fitted estimator.
    result : dict
        The last line of the history: objective, iterations, seconds, seed, dims, sizes, scores.
    """
    from kscn.cli.progress import FitProgress
    from kscn.estimators.linear import KSubspaces

    model = KSubspaces(clusters, **options)
    with RunWriter(output, overwrite) as run:
        run.write_config(_config(loaded, data, model))
        started = time.perf_counter()
        with FitProgress() as progress:
            model.set_params(callbacks=(progress, lambda _, record: run.record(record)))
            model.fit(loaded.samples)
        result = _result(model, time.perf_counter() - started, loaded.labels)
        model.save(run.stage / MODEL)
        run.write_labels(model.labels_)
        run.record(result)
    return model, result


def _config(loaded: Any, data: str, model: Any) -> dict[str, dict[str, Any]]:
    parameters = model.get_params()
    del parameters["callbacks"]
    return {
        "run": {
            "kscn": __version__,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "method": "k-subspaces",
        },
        "data": {
            "source": data if data == loaded.name else str(Path(data).expanduser().absolute()),
            "name": loaded.name,
            "samples": len(loaded.samples),
            "shape": list(loaded.samples.shape),
        },
        "parameters": parameters,
    }


def _result(model: Any, seconds: float, labels: "np.ndarray | None") -> dict[str, Any]:
    import numpy as np

    from kscn import metrics
    from kscn.errors import InputError

    scores = None
    if labels is not None:
        # Labels that cannot score (all unlabelled, say) are no reason to lose a finished fit.
        with suppress(InputError):
            scores = metrics.scores(labels, model.labels_)
    return {
        "stage": "done",
        "objective": float(model.inertia_),
        "iterations": int(model.n_iter_),
        "seconds": seconds,
        "seed": int(model.random_state_),
        "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
        "dims": model.subspace_dims_.tolist(),
        "scores": scores,
    }


def _where_lines(output: Path, scored: bool) -> list[str]:
    """What was written and what to type next."""
    labels = "" if scored else " --labels y.npy"
    return [
        f"wrote {output}/: {MODEL}/  {LABELS}  {HISTORY}  {CONFIG}",
        "next:",
        f"  kscn evaluate {output}{labels}",
        f"  kscn predict {output} NEW_DATA -o labels.csv",
        f"  kscn info {output}",
    ]
