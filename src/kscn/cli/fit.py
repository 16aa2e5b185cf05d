"""`kscn fit`: cluster a data set and write a run directory."""

import secrets
import time
import warnings
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn import __version__
from kscn.cli import options
from kscn.cli.interrupt import interruptible
from kscn.cli.loading import known_scores, load_data, say_left_out, say_what_to_expect
from kscn.cli.summary import next_lines, run_summary
from kscn.cli.terminal import complain, say
from kscn.errors import InputError, ModelFileError, reason
from kscn.runs.directory import CHECKPOINTS, CONFIG, read_unfinished, writing
from kscn.runs.opened import check_data, load_like, resumed_encoder
from kscn.runs.records import DONE

if TYPE_CHECKING:
    from kscn.runtime.group import Group

# The data, the model and what config.toml is to hold.
Job = tuple[Any, Any, dict[str, Any]]

BEST = "best"
METHODS = (BEST, "kscn-s", "kscn-g", "k-subspaces")
PRESETS = ("tuned", "paper")
# What a new run cannot do without, and how it is called on the command line.
_NEEDED = {"data": "argument 'DATA'", "clusters": "option '-k'", "output": "option '-o'"}


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
@click.option("--method", type=click.Choice(METHODS), help="By default best, for data of any kind.")
@click.option(
    "--preset", type=click.Choice(PRESETS), help="Settings of kscn-s and kscn-g; by default tuned."
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
@click.option("--batch-size", type=int, help="Samples read at once; kscn, best: also per step.")
@click.option(
    "--device", help="Where to compute: cpu, cuda, cuda:1; by default a GPU where there is one."
)
@click.option(
    "--seed", type=int, help="For the same result again. Drawn and recorded if not given."
)
@options.size
@options.skip_broken
@click.option(
    "--encoder",
    help="best: a pretrained network that images go through first, an .onnx file or timm:NAME.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Remove the run in the output directory as soon as the samples have passed all checks.",
)
def command(resume: Path | None, **values: Any) -> None:
    """Cluster DATA into K clusters and write a run directory.

    DATA is a file (.npy .npz .csv .parquet .h5, idx), a folder of images (of any sizes and modes
    with --size or --encoder), or a name from `kscn data list`. Known labels never reach the fit;
    they only score its result. K is all that the method needs to be told; it tries many clusterings
    and says which it took, why, and how sure it is. Options that begin with the name of another
    method need that --method. Photographs need an --encoder.

    Many processes share the work when torchrun starts them: torchrun --nproc-per-node 4 -m kscn
    fit ... A run that was stopped or killed goes on with --resume.
    """
    from kscn.cli.processes import joined

    # What was not set is left to the preset and the estimator's own defaults.
    given = {name: v for name, v in values.items() if v is not None and v is not False}
    if resume is not None and set(given) - {"device", "encoder"}:
        raise click.UsageError(
            "--resume takes no other arguments but --device and --encoder: those of the run count."
        )
    for name, words in _NEEDED.items():
        if resume is None and name not in given:
            raise click.UsageError(f"Missing {words}.")
    overwrite = given.pop("overwrite", False)
    output = given.pop("output") if resume is None else resume
    advice = f"go on with `kscn fit --resume {output}`, in any number of processes."
    with joined(advice) as group:
        if resume is None:
            loaded, model, config = _new(group, given)
        else:
            loaded, model, config = _resumed(resume, given)
        if group.rank > 0:
            assist(loaded, model, output)
            return
        resumed = resume is not None
        result = fit_run(loaded, model, config, output, overwrite=overwrite, resume=resumed)
        say(*run_summary(config, result), "", *next_lines(output, config, result))


def _new(group: "Group", given: dict[str, Any]) -> Job:
    """The data, the model and the config of a new run."""
    data, clusters, method = given.pop("data"), given.pop("clusters"), given.pop("method", BEST)
    images: dict[str, Any] = {n: given.pop(n) for n in ("size", "skip_broken") if n in given}
    if "encoder" in given:
        if "size" in images:
            raise InputError(
                "--size cannot be used with --encoder, which brings images to its own size; leave "
                "it out."
            )
        from kscn.features.encoders import load_encoder

        images["any_size"] = True
        given["encoder"] = load_encoder(given["encoder"])
    # A seed of our own, so that config.toml can repeat the run even when none was given.
    given["random_state"] = group.shared(given.pop("seed", secrets.randbelow(2**31)))
    loaded = load_data(data, **images)
    model = new_model(loaded, clusters, method, given)
    if group.rank == 0:
        say_left_out(loaded)
        if "encoder" not in given:
            say_what_to_expect(loaded)
    return loaded, model, new_config(loaded, data, model, method)


def _resumed(path: Path, given: dict[str, Any]) -> Job:
    """The data, the model and the config of a run that did not finish."""
    from kscn.estimators import methods

    run = read_unfinished(path)
    described, method = run.config["data"], run.config["run"]["method"]
    encoder = resumed_encoder(run, given.pop("encoder", None))
    skip_broken = described.get("skip_broken", False)
    loaded = load_like(run, described["source"], skip_broken=skip_broken)
    check_data(run.config, loaded.samples)
    try:
        model = methods.repeated(method, run.config["parameters"])
    except (KeyError, TypeError) as error:
        raise ModelFileError(
            f"{path} cannot go on: its {CONFIG} holds other settings than {method} takes "
            f"({reason(error)}); begin anew with --overwrite."
        ) from None
    if encoder is not None:
        given["encoder"] = encoder
    return loaded, model.set_params(**given), run.config


# What `kscn demo` does too ------------------------------------------------------------------------


def new_model(loaded: Any, clusters: int, method: str, given: dict[str, Any]) -> Any:
    """The estimator for what was asked, or why there is none.

    Of its parameters, those that were not given may depend on the number and shape of the samples.
    """
    from kscn.estimators import methods

    refused = sorted(set(given) - methods.accepted(method))
    if refused:
        flags = ", ".join(f"--{name}".replace("_", "-") for name in refused)
        able = [
            f"--method {name}" for name in methods.NAMES if set(given) <= methods.accepted(name)
        ]
        advice = f"add {' or '.join(able)}" if able else "no method takes all that was given"
        raise InputError(f"{flags} cannot be used with the method {method}; {advice}.")
    samples = loaded.samples
    return methods.configured(method, clusters, samples.shape, len(samples), **given)


def new_config(loaded: Any, data: str, model: Any, method: str) -> dict[str, dict[str, Any]]:
    """What config.toml of a new run on `data` holds; entries that are None are left out there."""
    from kscn.data.named import NAMES
    from kscn.training.driver import OF_THE_RUN

    samples = loaded.samples
    parameters = {n: value for n, value in model.get_params().items() if n not in OF_THE_RUN}
    encoder = getattr(model, "encoder", None)
    if encoder is not None:
        parameters["encoder"] = encoder.name
    preparation = getattr(samples, "preparation", None)
    left_out = len(getattr(samples, "left_out", ()))
    return {
        "run": {
            "kscn": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "method": method,
            "preset": getattr(model, "preset", None),
        },
        "data": {
            # A folder may well have the name under which it was given.
            "source": data if data in NAMES else str(Path(data).expanduser().absolute()),
            "name": loaded.name,
            "samples": len(samples),
            "shape": list(samples.shape),
            "files": None if samples.names is None else True,
            "preparation": None if preparation is None else asdict(preparation),
            "left_out": left_out or None,
            "skip_broken": True if left_out else None,
        },
        "parameters": parameters,
        **({} if encoder is None else {"encoder": encoder.about}),
    }


def fit_run(
    loaded: Any,
    model: Any,
    config: dict[str, Any],
    output: Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
) -> dict[str, Any]:
    """Fit and write the run directory; returns the result, which is the last line of its history.

    `config` is what config.toml is to hold: `new_config`, or that of the run to go on with.
    """
    from kscn.cli.progress import FitProgress

    with writing(output, config, overwrite, resume) as run, interruptible(run.advice):
        started = time.perf_counter()
        with FitProgress() as progress:
            model.set_params(checkpoint_dir=output / CHECKPOINTS, callbacks=(progress, run.listen))
            model.fit(loaded.samples)
        seconds = time.perf_counter() - started
        if resume:
            seconds = max(record["seconds"] for record in model.history_)
        result = _result(model, seconds, loaded)
        run.finish(model, loaded.samples, result)
    if run.replaces:
        complain(f"the run that was in {output} is gone")
    return result


def assist(loaded: Any, model: Any, output: Path) -> None:
    """What every process but the first does: its part of the fit, in silence."""
    model.set_params(checkpoint_dir=output / CHECKPOINTS)
    with interruptible(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(loaded.samples)


def _result(model: Any, seconds: float, loaded: Any) -> dict[str, Any]:
    """What is known of a fitted model."""
    import numpy as np

    tried = getattr(model, "tried_", None)
    points = hasattr(model, "chosen_")  # clusters of any shape have no dimension
    return {
        "stage": DONE,
        "objective": float(model.inertia_),
        "iterations": int(model.n_iter_),
        "unit": "epochs" if "epochs" in model.get_params(deep=False) else "iterations",
        "seconds": seconds,
        "seed": model.random_state_,
        "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
        "dims": [] if points else model.subspace_dims_.tolist(),
        "scores": known_scores(loaded, model.labels_),
        "chosen": tried and {**tried, "refined": model.encoder_ is not None},
    }
