"""Every method by its name: those of kscn, and the rivals."""

from collections.abc import Sequence
from typing import Any

from kscn.errors import InputError, reason
from kscn.estimators import methods as ours
from kscn.estimators.methods import BEST, has_presets

__all__ = [
    "BEST",
    "accepted",
    "check_available",
    "configured",
    "defaults",
    "has_presets",
    "make",
    "names",
    "repeated",
    "settings",
]

# The start of the preset "paper": the name under which it is recorded.
DSC = "dsc"


def names() -> list[str]:
    """The methods that `make` knows, ours first."""
    from kscn_paper import rivals

    return [*ours.NAMES, *rivals.NAMES, *rivals.COMPOSITES]


def check_available(method: str) -> None:
    """Raise InputError when there is no such method."""
    if method not in names():
        raise InputError(
            f"the method {reason(method)!r} is not available; give one of {', '.join(names())}."
        )


def make(method: str, n_clusters: int, **parameters: Any) -> Any:
    """An estimator of a method, one of `names()`, that is not fitted yet."""
    from kscn_paper import rivals

    check_available(method)
    if method not in ours.NAMES:
        return rivals.make(method, n_clusters, **parameters)
    return ours.make(method, n_clusters, **_started(parameters))


def accepted(method: str) -> set[str]:
    """The names of the parameters that a method takes."""
    check_available(method)
    return ours.accepted(method) if method in ours.NAMES else set(make(method, 2).get_params())


def configured(
    method: str,
    n_clusters: int,
    *,
    preset: str | None,
    dataset: str | None,
    shape: Sequence[int],
    n_samples: int | None = None,
    **parameters: Any,
) -> Any:
    """An estimator with the settings of a preset, under those given by name.

    Methods that have presets need one; `dataset` is the name of the data in the catalogue, None for
    data of the user's own, and `shape` that of one sample. The seed and callbacks are left out for
    a method that takes none.
    """
    if has_presets(method):
        from kscn.estimators import presets
        from kscn.estimators.presets import derive

        if preset == "paper":
            parameters = {"init": DSC} | parameters
        parameters = _started(parameters)
        given = parameters | presets.METHODS[method]
        given |= {"n_clusters": n_clusters, "preset": preset}
        parameters |= derive.settings(given, shape, n_samples, dataset)
    takes = accepted(method)
    for name in {"random_state", "callbacks"} & set(parameters) - takes:
        del parameters[name]
    return make(method, n_clusters, **parameters)


def repeated(method: str, recorded: dict[str, Any]) -> Any:
    """An estimator with the `settings` of another one, of which a run leaves out what was None."""
    if method in ours.NAMES:
        return ours.repeated(method, _started(recorded))
    return make(method, **recorded)


def settings(model: Any) -> dict[str, Any]:
    """All parameters of an estimator as plain values, to be written down and compared."""
    from kscn_paper.rivals.self_expression import dsc_start

    found = ours.settings(model)
    return found | {"init": DSC} if getattr(model, "init", None) is dsc_start else found


def defaults(model: Any) -> dict[str, Any]:
    """What each parameter of an estimator is when nobody sets it, as plain values."""
    found = ours.defaults(model)
    # Two runs of kSCN-S in results/reproduce recorded it.
    return found | {"restarts": 1} if hasattr(type(model), "from_preset") else found


def _started(parameters: dict[str, Any]) -> dict[str, Any]:
    """With DSC-Net's start in place of its name."""
    from kscn_paper.rivals.self_expression import dsc_start

    named = isinstance(parameters.get("init"), str) and parameters["init"] == DSC
    return parameters | {"init": dsc_start} if named else parameters
