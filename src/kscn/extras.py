"""Packages that are not installed with kscn itself: imported when they are used, or asked for."""

from importlib import import_module
from typing import Any

from kscn.errors import InputError


def require(module: str, extra: str, what: str) -> Any:
    """Import a module of an optional package, or say how to install it.

    Parameters
    ----------
    module : str
        What is imported.
    extra : str
        The extra of kscn that installs it.
    what : str
        What needs it, as the sentence begins: "a report".
    """
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".")[0].replace("_", "-")
        raise InputError(
            f"{what} needs the package {package}; run pip install 'kscn[{extra}]'."
        ) from None
