"""Scalable k-subspace clustering of images and vectors.

The public names load on first use (PEP 562), so `import kscn` and `kscn --help` cost milliseconds
and not the seconds that importing torch takes.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kscn import data, metrics
    from kscn.estimators import load_model
    from kscn.estimators.deep import KSCN
    from kscn.estimators.linear import KSubspaces
    from kscn.estimators.plus import KSCNPlus

__version__ = version("kscn")
__all__ = [
    "KSCN",
    "KSCNPlus",
    "KSubspaces",
    "__version__",
    "data",
    "load_model",
    "metrics",
]

# Public name -> the module that has it. Two names are modules themselves.
_MODULES = {
    "KSCN": "kscn.estimators.deep",
    "KSCNPlus": "kscn.estimators.plus",
    "KSubspaces": "kscn.estimators.linear",
    "load_model": "kscn.estimators",
}


def __getattr__(name: str) -> object:
    if name in ("data", "metrics"):
        return import_module(f"kscn.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'kscn' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
