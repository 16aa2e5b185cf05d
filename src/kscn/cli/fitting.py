"""A fit as a run directory: what `kscn fit` and `kscn demo` do once a model is chosen."""

import time
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from kscn import __version__
from kscn.cli.encoding import copy_encoder
from kscn.cli.interrupt import Interruption, interruptible
from kscn.cli.rundir import CHECKPOINTS, MODEL, RunWriter
from kscn.cli.terminal import complain
from kscn.errors import InputError

if TYPE_CHECKING:
    import numpy as np

# A fitted model, what config.toml holds, and the last line of the history.
Done = tuple[Any, dict[str, Any], dict[str, Any]]


class Choice(NamedTuple):
    """A model to be fitted, and how it is called in the run's config."""

    model: Any
    method: str
    preset: str | None
    minutes: float | None = None  # between two states at most, if that was said


def fit_run(
    loaded: Any,
    data: str,
    choice: Choice,
    output: Path,
    overwrite: bool,
    resumed: dict[str, Any] | None = None,
    copy: bool = False,
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
    copy : bool
        Whether a copy of the encoder is kept in the run.

    Returns
    -------
    model : estimator
        Fitted.
    config : dict
        What config.toml holds.
    result : dict
        The last line of the history: objective, iterations, seconds, seed, dims, sizes, scores.
    """
    model = choice.model
    config = _config(loaded, data, choice) if resumed is None else resumed
    with (
        interruptible(keeps_states(model)) as interruption,
        RunWriter(output, overwrite, resumed is not None) as run,
    ):
        if copy:
            copy_encoder(model.encoder, run.stage)
        run.write_config(config)
        set_checkpoints(choice, output)
        started = time.perf_counter()
        _fit(model, loaded.samples, run, interruption)
        seconds = time.perf_counter() - started
        if resumed is not None and hasattr(model, "history_"):
            run.rewrite_history(model.history_)
            seconds = max(record["seconds"] for record in model.history_)
        result = _result(model, seconds, loaded.labels)
        if hasattr(model, "save"):
            model.save(run.stage / MODEL)
        run.write_labels(model.labels_, loaded.samples.names)
        left_out = getattr(loaded.samples, "left_out", {})
        if left_out:
            run.write_left_out(left_out)
        run.record(result)
    return model, config, result


def _fit(model: Any, samples: Any, run: RunWriter, interruption: Interruption) -> None:
    """Fit with progress on the terminal and in the run; after a signal, leave."""
    from kscn.cli.progress import FitProgress

    with FitProgress() as progress:
        if "callbacks" in model.get_params(deep=False):
            model.set_params(callbacks=(progress, run.listen))
        try:
            model.fit(samples)
        except (KeyboardInterrupt, stopped()):
            run.rewrite_history(getattr(model, "history_", ()))
            _leave(run, interruption.code)


def keeps_states(model: Any) -> bool:
    """Whether a fit of this model can go on where it was stopped."""
    return "checkpoint_dir" in model.get_params(deep=False)


def set_checkpoints(choice: Choice, output: Path) -> None:
    """Let the model keep its states in the run directory, if it keeps any."""
    if not keeps_states(choice.model):
        return
    directory: Any = output / CHECKPOINTS
    if choice.minutes is not None:
        from kscn.runtime.checkpoint import CheckpointDirectory

        directory = CheckpointDirectory(directory, choice.minutes)
    choice.model.set_params(checkpoint_dir=directory)


def stopped() -> type[Exception]:
    """What a fit raises when a signal stopped it."""
    from kscn.runtime.checkpoint import StoppedError

    return StoppedError


def _leave(run: RunWriter, code: int) -> NoReturn:
    """After a signal: say how to go on."""
    advice = "nothing already on disk was lost"
    if run.learnt:
        advice = f"go on with `kscn fit --resume {run.path}`"
    complain(f"interrupted; {advice}")
    raise SystemExit(code)


def _config(loaded: Any, data: str, choice: Choice) -> dict[str, dict[str, Any]]:
    from kscn.data.catalog import NAMES
    from kscn.experiments import methods

    parameters = methods.settings(choice.model)
    parameters.pop("device", None)  # where a run is computed is no setting of it
    encoder = getattr(choice.model, "encoder", None)
    if encoder is not None:
        parameters["encoder"] = encoder.name
    return {
        "run": {
            "kscn": __version__,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "method": choice.method,
            "preset": choice.preset,
            "model": hasattr(choice.model, "save"),
            **({} if choice.minutes is None else {"checkpoint_minutes": choice.minutes}),
        },
        "data": {
            # A folder may well have the name under which it was given.
            "source": data if data in NAMES else str(Path(data).expanduser().absolute()),
            "name": loaded.name,
            "samples": len(loaded.samples),
            "shape": list(loaded.samples.shape),
            **_folder(loaded.samples),
        },
        # With the preset, they make the same model again: TOML leaves out what is None.
        "parameters": parameters | ({} if choice.preset is None else {"preset": choice.preset}),
        **({} if encoder is None else {"encoder": encoder.about}),
    }


def _folder(samples: Any) -> dict[str, Any]:
    """How a folder of images was opened, where anything was done to it."""
    preparation = getattr(samples, "preparation", None)
    left_out = len(getattr(samples, "left_out", ()))
    return {
        "files": None if samples.names is None else True,
        "preparation": None if preparation is None else asdict(preparation),
        "left_out": left_out or None,
        "skip_broken": True if left_out else None,
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
    tried = getattr(model, "tried_", None)
    points = hasattr(model, "chosen_")  # clusters of any shape have no dimension
    return {
        "stage": "done",
        "objective": _attribute(model, "inertia_", float),
        "iterations": _attribute(model, "n_iter_", int),
        "unit": "epochs" if "epochs" in parameters else "iterations",
        "seconds": seconds,
        "seed": getattr(model, "random_state_", parameters.get("random_state")),
        "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
        "dims": np.asarray(() if points else getattr(model, "subspace_dims_", ())).tolist(),
        "scores": scores,
        "chosen": tried and {**tried, "refined": model.encoder_ is not None},
    }


def _attribute(model: Any, name: str, kind: type) -> Any:
    value = getattr(model, name, None)
    return None if value is None else kind(value)
