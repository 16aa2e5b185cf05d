"""The methods of kscn by their names, as the command line and run directories call them."""

from collections.abc import Sequence
from typing import Any

from kscn.constraints import plain
from kscn.errors import InputError, reason

# The method decides how subspaces are updated.
UPDATES: dict[str, dict[str, Any]] = {
    "kscn-s": {"update": "svd"},
    "kscn-g": {"update": "grassmann"},
}
BEST, LINEAR = "best", "k-subspaces"
NAMES = (*UPDATES, BEST, LINEAR)
# What fits data of any kind when no method is named.
DEFAULT = BEST


def has_presets(method: str) -> bool:
    """Whether a preset gives the parameters of a method."""
    return method in UPDATES


def make(method: str, n_clusters: int, **parameters: Any) -> Any:
    """An estimator of a method, one of `NAMES`, that is not fitted yet."""
    if has_presets(method):
        from kscn.estimators.deep import KSCN

        return KSCN.from_settings(n_clusters, **UPDATES[method] | parameters)
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
        from kscn.estimators import defaults

        given = parameters | UPDATES[method]
        given |= {"n_clusters": n_clusters, "preset": preset}
        parameters |= defaults.settings(given, shape, n_samples)
    return make(method, n_clusters, **parameters)


def repeated(method: str, recorded: dict[str, Any]) -> Any:
    """An estimator with the `settings` of another one, of which a run leaves out what was None."""
    if has_presets(method):
        from kscn.estimators import defaults

        recorded = defaults.OPEN | {k: v for k, v in recorded.items() if k != "preset"}
    return make(method, **recorded)


def settings(model: Any) -> dict[str, Any]:
    """All parameters of an estimator as plain values, to be written down and compared.

    The name of a preset is not among them: `configured` has put its values in.
    """
    flat = getattr(model, "_flat_params", model.get_params)()
    return {k: _plain(value) for k, value in flat.items() if k not in ("callbacks", "preset")}


def _plain(value: Any) -> Any:
    value = plain(value)
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    return type(value).__name__  # not repr, which may hold an address that changes every time
