"""The methods that kscn is compared with, all with scikit-learn's estimator interface.

`make("ssc", 10)` builds one by its name; `NAMES` lists them. `COMPOSITES` lists affinity methods on
the latent of a pretrained autoencoder, such as "ssc-sae". Nothing heavy is imported before.

These are the parameters and attributes that all methods have.

Parameters
----------
n_clusters : int, default=8
    Number of clusters.
device : str, default="auto"
    Torch device; "auto" takes a GPU when there is one.
random_state : int, RandomState or None, default=None
    Seed of everything random.
callbacks : sequence of callables, default=()
    Called as `callback(estimator, record)` with each history record; one that returns True ends
    the stage that it is called in.

Attributes
----------
labels_ : ndarray of shape (n,)
    Cluster of every sample. Clusters are numbered by falling size.
history_ : list of dict
    What was recorded in the course of the fit, each record with its `stage` and the `seconds`
    since the fit began.
random_state_, n_features_in_ : int
    The seed used, the number of features.
n_iter_ : int
    Iterations, epochs or sweeps; each method says of what.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from kscn.errors import InputError

__all__ = ["COMPOSITES", "NAMES", "make"]


class _Entry(NamedTuple):
    """Where a method is and with which parameters it bears its name."""

    module: str
    estimator: str
    params: dict[str, Any] = {}  # noqa: RUF012 - a default that nobody writes to


_METHODS: dict[str, _Entry] = {
    "k-means": _Entry("kmeans", "PixelKMeans"),
    "pca-ks": _Entry("pca_ks", "PCAKS"),
    "sae-km": _Entry("autoencoder", "AutoencoderKMeans"),
    "cae-km": _Entry("autoencoder", "AutoencoderKMeans", {"autoencoder": "cae"}),
    "dec": _Entry("dec", "DEC"),
    "idec": _Entry("dec", "IDEC"),
    "dcn": _Entry("dcn", "DCN"),
    "dcn-cae": _Entry("dcn", "DCN", {"autoencoder": "cae"}),
    "ssc": _Entry("ssc", "SSC"),
    "lrr": _Entry("lrr", "LRR"),
    "kssc": _Entry("kssc", "KSSC"),
    "ssc-omp": _Entry("ssc_omp", "SSCOMP"),
    "dsc-net": _Entry("dsc_net", "DSCNet"),
    "edesc": _Entry("edesc", "EDESC"),
    "k-fsc": _Entry("k_fsc", "KFSC"),
}
_COMPOSITES: dict[str, _Entry] = {
    f"{method}-{features}": _Entry(
        "on_features", "OnFeatures", {"method": method, "autoencoder": features}
    )
    for method in ("ssc", "lrr", "kssc", "ssc-omp")
    for features in ("sae", "cae")
}
NAMES: tuple[str, ...] = tuple(_METHODS)
COMPOSITES: tuple[str, ...] = tuple(_COMPOSITES)


def make(name: str, n_clusters: int, **params: Any) -> Any:
    """Build a method by its name.

    Parameters
    ----------
    name : str
        One of `NAMES` or `COMPOSITES`.
    n_clusters : int
        Number of clusters.
    **params
        Further parameters of the estimator, instead of its defaults. A composite also takes those
        of its affinity method, which end up in `method_params`.

    Returns
    -------
    estimator
        Not fitted.
    """
    entry = _METHODS.get(name) or _COMPOSITES.get(name)
    if entry is None:
        known = ", ".join((*NAMES, *COMPOSITES))
        raise InputError(f"{name!r} is not a known baseline; known ones are {known}.")
    estimator = _estimator(entry)
    chosen = {**entry.params, **params}
    own = estimator._get_param_names()
    inside: list[str] = []
    if name in _COMPOSITES:
        inside = [p for p in _inside_params(entry) if p not in own]
        for_method = {given: chosen.pop(given) for given in inside if given in chosen}
        if for_method:
            chosen["method_params"] = {**(chosen.get("method_params") or {}), **for_method}
    for given in chosen:
        if given not in own:
            raise InputError(
                f"{given!r} is not a parameter of {name}; it has {', '.join([*own, *inside])}."
            )
    return estimator(n_clusters, **chosen)


def _estimator(entry: _Entry) -> Any:
    return getattr(import_module(f"{__name__}.{entry.module}"), entry.estimator)


def _inside_params(composite: _Entry) -> list[str]:
    """The parameters of the affinity method of a composite."""
    return _estimator(_METHODS[composite.params["method"]])._get_param_names()
