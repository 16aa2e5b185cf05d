"""The models that people fit, and `load_model`, which opens any of them from disk."""

import os
from importlib import import_module
from typing import Any

from kscn.errors import ModelFileError
from kscn.modelfile import read_model

# Kind in the model file -> module that holds the class of that name. Imported when it is needed.
_MODULES = {
    "KSubspaces": "kscn.estimators.linear",
    "KSCN": "kscn.estimators.deep",
    "KSCNPlus": "kscn.estimators.plus",
}


def load_model(path: str | os.PathLike[str], autoencoder: Any = None) -> Any:
    """Open a fitted estimator that `save` wrote.

    Parameters
    ----------
    path : path-like
        The model directory (`model/` in a run directory of `kscn fit`).
    autoencoder : nn.Module, optional
        What a file cannot hold: the network of a KSCN that was trained with a module of your own.

    Returns
    -------
    estimator
        Of the class that was saved, ready to `predict`.

    Raises
    ------
    ModelFileError
        When the directory is missing, foreign, damaged or from another version.

    Examples
    --------
    >>> import tempfile
    >>> from kscn import KSubspaces, data, load_model
    >>> x, _, _ = data.make_union_of_subspaces(60, 2, 6, 1, random_state=0)
    >>> model = KSubspaces(2, subspace_dim=1, random_state=0).fit(x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model")
    ...     again = load_model(f"{folder}/model")
    >>> bool((again.predict(x) == model.labels_).all())
    True
    """
    model = read_model(path)
    if model.kind not in _MODULES:
        raise ModelFileError(
            f"{path} holds a {model.kind!r}, which this version of kscn does not know; "
            f"it knows {', '.join(_MODULES)}."
        )
    from kscn.estimators import saving  # and torch with it

    return saving.read(estimator_class(model.kind), model, autoencoder)


def estimator_class(kind: str) -> Any:
    """The class of this name."""
    return getattr(import_module(_MODULES[kind]), kind)
