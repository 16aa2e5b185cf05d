"""A fit as a run directory: what `kscn fit` and `kscn demo` do once a model is chosen."""

import time
import warnings
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kscn import __version__
from kscn.cli.interrupt import interruptible
from kscn.cli.loading import known_scores
from kscn.cli.terminal import complain
from kscn.errors import InputError
from kscn.runs.directory import CHECKPOINTS, writing
from kscn.runs.records import DONE


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
