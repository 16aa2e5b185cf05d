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

# Public name -> (module, attribute in it, or None for the module itself).
_LAZY: dict[str, tuple[str, str | None]] = {
    "KSCN": ("kscn.estimators.deep", "KSCN"),
    "KSCNPlus": ("kscn.estimators.plus", "KSCNPlus"),
    "KSubspaces": ("kscn.estimators.linear", "KSubspaces"),
    "load_model": ("kscn.estimators", "load_model"),
    "data": ("kscn.data", None),
    "metrics": ("kscn.metrics", None),
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'kscn' has no attribute {name!r}")
    module_name, attribute = _LAZY[name]
    module = import_module(module_name)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value  # the next access is a plain lookup
    return value


def __dir__() -> list[str]:
    return __all__
