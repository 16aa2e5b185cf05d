"""A fit as a run directory: what `kscn fit` and `kscn demo` do once a model is chosen."""

import time
import warnings
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kscn import __version__
from kscn.cli.interrupt import Interruption, interruptible
from kscn.cli.terminal import complain
from kscn.errors import InputError
from kscn.runs.directory import CHECKPOINTS, MODEL, RunWriter
from kscn.runs.opened import copy_encoder

if TYPE_CHECKING:
    import numpy as np


class Choice(NamedTuple):
    """A model to be fitted, how it is called in the run's config, and how its run is kept."""

    model: Any
    method: str
    preset: str | None
    minutes: float | None = None  # between two states at most, if that was said
    copy_encoder: bool = False  # into the run

    @property
    def keeps_states(self) -> bool:
        """Whether a fit of this model can go on where it was stopped."""
        return "checkpoint_dir" in self.model.get_params(deep=False)


def fit_run(
    loaded: Any,
    choice: Choice,
    config: dict[str, Any],
    output: Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
) -> dict[str, Any]:
    """Fit and write the run directory; returns the result, which is the last line of its history.

    `config` is what config.toml is to hold: `new_config`, or that of the run to go on with.
    """
    model = choice.model
    with (
        interruptible(choice.keeps_states) as interruption,
        RunWriter(output, overwrite, resume) as run,
    ):
        if choice.copy_encoder:
            copy_encoder(model.encoder, run.stage)
        run.write_config(config)
        _set_checkpoints(choice, output)
        started = time.perf_counter()
        _fit(model, loaded.samples, run, interruption)
        seconds = time.perf_counter() - started
        if resume and hasattr(model, "history_"):
            run.rewrite_history(model.history_)
            seconds = max(record["seconds"] for record in model.history_)
        result = _result(model, seconds, loaded.labels)
        if hasattr(model, "save"):
            model.save(run.stage / MODEL)
        run.write_labels(model.labels_, loaded.samples)
        run.record(result)
    return result


def assist(loaded: Any, choice: Choice, output: Path) -> None:
    """What every process but the first does: its part of the fit, in silence."""
    from kscn.runtime.checkpoint import StoppedError

    _set_checkpoints(choice, output)
    with interruptible(choice.keeps_states) as interruption, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            choice.model.fit(loaded.samples)
        except (KeyboardInterrupt, StoppedError):
            raise SystemExit(interruption.code) from None


def _fit(model: Any, samples: Any, run: RunWriter, interruption: Interruption) -> None:
    """Fit with progress on the terminal and in the run; after a signal, say how to go on."""
    from kscn.cli.progress import FitProgress
    from kscn.runtime.checkpoint import StoppedError

    with FitProgress() as progress:
        if "callbacks" in model.get_params(deep=False):
            model.set_params(callbacks=(progress, run.listen))
        try:
            model.fit(samples)
        except (KeyboardInterrupt, StoppedError):
            run.rewrite_history(getattr(model, "history_", ()))
            advice = "nothing already on disk was lost"
            if run.learnt:
                advice = f"go on with `kscn fit --resume {run.path}`"
            complain(f"interrupted; {advice}")
            raise SystemExit(interruption.code) from None


def _set_checkpoints(choice: Choice, output: Path) -> None:
    """Let the model keep its states in the run directory, if it keeps any."""
    if not choice.keeps_states:
        return
    directory: Any = output / CHECKPOINTS
    if choice.minutes is not None:
        from kscn.runtime.checkpoint import CheckpointDirectory

        directory = CheckpointDirectory(directory, choice.minutes)
    choice.model.set_params(checkpoint_dir=directory)


def new_config(loaded: Any, data: str, choice: Choice) -> dict[str, dict[str, Any]]:
    """What config.toml of a new run on `data` holds; entries that are None are left out there."""
    from kscn.data.catalog import NAMES
    from kscn.estimators import methods

    model, samples = choice.model, loaded.samples
    parameters = methods.settings(model)
    parameters.pop("device", None)  # where a run is computed is no setting of it
    encoder = getattr(model, "encoder", None)
    if encoder is not None:
        parameters["encoder"] = encoder.name
    preparation = getattr(samples, "preparation", None)
    left_out = len(getattr(samples, "left_out", ()))
    return {
        "run": {
            "kscn": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "method": choice.method,
            "preset": choice.preset,
            "model": hasattr(model, "save"),
            "checkpoint_minutes": choice.minutes,
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
        # With the preset, they make the same model again.
        "parameters": parameters | ({} if choice.preset is None else {"preset": choice.preset}),
        **({} if encoder is None else {"encoder": encoder.about}),
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
    objective, iterations = getattr(model, "inertia_", None), getattr(model, "n_iter_", None)
    tried = getattr(model, "tried_", None)
    points = hasattr(model, "chosen_")  # clusters of any shape have no dimension
    return {
        "stage": "done",
        "objective": None if objective is None else float(objective),
        "iterations": None if iterations is None else int(iterations),
        "unit": "epochs" if "epochs" in parameters else "iterations",
        "seconds": seconds,
        "seed": getattr(model, "random_state_", parameters.get("random_state")),
        "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
        "dims": np.asarray(() if points else getattr(model, "subspace_dims_", ())).tolist(),
        "scores": scores,
        "chosen": tried and {**tried, "refined": model.encoder_ is not None},
    }
