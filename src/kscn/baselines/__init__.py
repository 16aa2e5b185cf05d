"""The methods that kscn is compared with, all with scikit-learn's estimator interface.

`make("ssc", 10)` builds one by its name; `NAMES` lists them. Nothing heavy is imported before.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from kscn.errors import InputError

__all__ = ["NAMES", "make"]


class _Entry(NamedTuple):
    """Where a method is and with which parameters it bears its name."""

    module: str
    estimator: str
    params: dict[str, Any] = {}  # noqa: RUF012 - a default that nobody writes to


_METHODS: dict[str, _Entry] = {
    "ssc": _Entry("ssc", "SSC"),
    "lrr": _Entry("lrr", "LRR"),
    "kssc": _Entry("kssc", "KSSC"),
    "ssc-omp": _Entry("ssc_omp", "SSCOMP"),
    "dsc-net": _Entry("dsc_net", "DSCNet"),
}
NAMES: tuple[str, ...] = tuple(_METHODS)


def make(name: str, n_clusters: int, **params: Any) -> Any:
    """Build a method by its name.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    n_clusters : int
        Number of clusters.
    **params
        Further parameters of the estimator, instead of its defaults.

    Returns
    -------
    estimator
        Not fitted.
    """
    if name not in _METHODS:
        raise InputError(f"{name!r} is not a known baseline; known ones are {', '.join(NAMES)}.")
    entry = _METHODS[name]
    estimator = getattr(import_module(f"{__name__}.{entry.module}"), entry.estimator)
    chosen = {**entry.params, **params}
    known = estimator._get_param_names()
    for given in chosen:
        if given not in known:
            raise InputError(
                f"{given!r} is not a parameter of {name}; it has {', '.join(known)}."
            )  # fmt: skip
    return estimator(n_clusters, **chosen)
