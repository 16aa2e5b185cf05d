"""The methods of kscn by their names, as the command line and run directories call them."""

import inspect
from collections.abc import Sequence
from typing import Any

from kscn.errors import InputError, reason
from kscn.estimators import presets

BEST, LINEAR = "best", "k-subspaces"
NAMES = (*presets.METHODS, BEST, LINEAR)
# What fits data of any kind when no method is named.
DEFAULT = BEST


def has_presets(method: str) -> bool:
    """Whether a preset gives the parameters of a method."""
    return method in presets.METHODS


def make(method: str, n_clusters: int, **parameters: Any) -> Any:
    """An estimator of a method, one of `NAMES`, that is not fitted yet."""
    if has_presets(method):
        from kscn.estimators.deep import KSCN

        return KSCN.from_settings(n_clusters, **presets.METHODS[method] | parameters)
    if method == LINEAR:
        from kscn.estimators.linear import KSubspaces

        return KSubspaces(n_clusters, **parameters)
    if method == BEST:
        from kscn.estimators.plus import KSCNPlus

        return KSCNPlus(n_clusters, **parameters)
    raise InputError(
        f"the method {reason(method)!r} is not available; give one of {', '.join(NAMES)}."
    )


def accepted(method: str) -> set[str]:
    """The names of the parameters that a method takes."""
    takes = set(make(method, 2).get_params())
    if has_presets(method):
        from kscn.estimators.deep import SELDOM_SET

        takes = takes - {"settings"} | set(SELDOM_SET)
    return takes


def configured(
    method: str,
    n_clusters: int,
    *,
    preset: str | None,
    shape: Sequence[int],
    n_samples: int | None = None,
    **parameters: Any,
) -> Any:
    """An estimator with the settings of a preset, under those given by name.

    Methods that have presets need one; `shape` is that of one sample.
    """
    if has_presets(method):
        from kscn.estimators.presets import derive

        given = parameters | presets.METHODS[method]
        given |= {"n_clusters": n_clusters, "preset": preset}
        parameters |= derive.settings(given, shape, n_samples)
    return make(method, n_clusters, **parameters)


def repeated(method: str, recorded: dict[str, Any]) -> Any:
    """An estimator with the `settings` of another one, of which a run leaves out what was None."""
    if has_presets(method):
        from kscn.estimators.presets import derive

        recorded = derive.OPEN | {k: v for k, v in recorded.items() if k != "preset"}
    return make(method, **recorded)


def settings(model: Any) -> dict[str, Any]:
    """All parameters of an estimator as plain values, to be written down and compared.

    The name of a preset is not among them: `configured` has put its values in.
    """
    flat = getattr(model, "_flat_params", model.get_params)()
    return {k: _plain(value) for k, value in flat.items() if k not in ("callbacks", "preset")}


def defaults(model: Any) -> dict[str, Any]:
    """What each parameter of an estimator is when nobody sets it, as plain values."""
    parameters = model.get_params()
    found = {}
    for name in parameters:
        owner, _, own = name.rpartition("__")  # `features__epochs` belongs to `features`
        signature = inspect.signature(type(parameters[owner] if owner else model))
        default = getattr(signature.parameters.get(own), "default", inspect.Parameter.empty)
        if default is not inspect.Parameter.empty:
            found[name] = _plain(default)
    found.pop("settings", None)
    if hasattr(type(model), "from_preset"):  # whose own defaults depend on the data
        from kscn.estimators.deep import SELDOM_SET
        from kscn.estimators.presets import derive

        found |= dict.fromkeys(SELDOM_SET) | derive.OPEN
    return found


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return type(value).__name__  # not repr, which may hold an address that changes every time
