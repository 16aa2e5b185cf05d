"""The methods that kscn is compared with, all with scikit-learn's estimator interface.

`make("ssc", 10)` builds one by its name; `NAMES` lists them. `COMPOSITES` lists affinity methods on
the latent of a pretrained autoencoder, such as "ssc-sae". Nothing heavy is imported before.
"""

from importlib import import_module
from typing import Any

from kscn.errors import InputError

__all__ = ["COMPOSITES", "NAMES", "make"]

# The module and the class of each method, and the parameters with which it bears its name.
_METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "k-means": ("kmeans", "PixelKMeans", {}),
    "pca-ks": ("pca_ks", "PCAKS", {}),
    "sae-km": ("autoencoder", "AutoencoderKMeans", {}),
    "cae-km": ("autoencoder", "AutoencoderKMeans", {"autoencoder": "cae"}),
    "dec": ("dec", "DEC", {}),
    "idec": ("dec", "IDEC", {}),
    "dcn": ("dcn", "DCN", {}),
    "dcn-cae": ("dcn", "DCN", {"autoencoder": "cae"}),
    "ssc": ("ssc", "SSC", {}),
    "lrr": ("lrr", "LRR", {}),
    "kssc": ("kssc", "KSSC", {}),
    "ssc-omp": ("ssc_omp", "SSCOMP", {}),
    "dsc-net": ("dsc_net", "DSCNet", {}),
    "edesc": ("edesc", "EDESC", {}),
    "k-fsc": ("k_fsc", "KFSC", {}),
}
_COMPOSITES: dict[str, tuple[str, str, dict[str, Any]]] = {
    f"{method}-{network}": ("on_features", "OnFeatures", {"method": method, "autoencoder": network})
    for method in ("ssc", "lrr", "kssc", "ssc-omp")
    for network in ("sae", "cae")
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
        Further parameters of the estimator, instead of its defaults. A composite takes those of its
        affinity method as `method_params`.

    Returns
    -------
    estimator
        Not fitted.

    Examples
    --------
    >>> from kscn import data
    >>> from kscn_paper import rivals
    >>> x, _, _ = data.make_union_of_subspaces(60, 2, 6, 1, random_state=0)
    >>> rivals.make("k-means", 2, random_state=0).fit_predict(x).shape
    (60,)
    """
    methods = _METHODS | _COMPOSITES
    if name not in methods:
        raise InputError(f"{name!r} is not a known rival; known ones are {', '.join(methods)}.")
    module, title, fixed = methods[name]
    estimator = getattr(import_module(f"{__name__}.{module}"), title)
    params, known = {**fixed, **params}, estimator._get_param_names()
    for given in params:
        if given not in known:
            raise InputError(f"{given!r} is not a parameter of {name}; it has {', '.join(known)}.")
    return estimator(n_clusters, **params)
