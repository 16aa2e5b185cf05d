"""The methods of kscn by their names, as the command line and run directories call them."""

from collections.abc import Sequence
from typing import Any

from kscn.errors import InputError, reason
from kscn.estimators import estimator_class

# The method decides how subspaces are updated.
UPDATES: dict[str, dict[str, Any]] = {
    "kscn-s": {"update": "svd"},
    "kscn-g": {"update": "grassmann"},
}
BEST, LINEAR = "best", "k-subspaces"
NAMES = (*UPDATES, BEST, LINEAR)
# What fits data of any kind when no method is named.
DEFAULT = BEST


def make(method: str, n_clusters: int, **parameters: Any) -> Any:
    """An estimator of a method, one of `NAMES`, that is not fitted yet."""
    if method not in NAMES:
        raise InputError(
            f"the method {reason(method)!r} is not available; give one of {', '.join(NAMES)}."
        )
    kind = {BEST: "KSCNPlus", LINEAR: "KSubspaces"}.get(method, "KSCN")
    return estimator_class(kind)(n_clusters, **UPDATES.get(method, {}) | parameters)


def accepted(method: str) -> set[str]:
    """The names of the parameters that a method takes."""
    return set(make(method, 2).get_params())


def configured(
    method: str, n_clusters: int, shape: Sequence[int], n_samples: int, **given: Any
) -> Any:
    """An estimator for samples of a shape, with a value for what it would decide by them."""
    model = make(method, n_clusters, **given)
    if method in UPDATES:
        from kscn.estimators.defaults import kscn_settings

        used = kscn_settings(shape, n_samples, n_clusters, model.get_params())
        model.set_params(**used)
    return model


def repeated(method: str, recorded: dict[str, Any]) -> Any:
    """An estimator with the recorded parameters of another one, without those that were None."""
    if method in UPDATES:
        from kscn.estimators.defaults import OPEN

        recorded = dict.fromkeys(OPEN) | recorded
    return make(method, **recorded)
