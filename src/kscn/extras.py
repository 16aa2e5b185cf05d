"""Packages that are not installed with kscn itself: imported when they are used, or asked for."""

from importlib import import_module
from typing import Any

from kscn.errors import InputError


def require(module: str, extra: str, what: str) -> Any:
    """Import a module that an extra of kscn installs, or say so: "a report" needs the package."""
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".")[0].replace("_", "-")
        raise InputError(
            f"{what} needs the package {package}; run pip install 'kscn[{extra}]'."
        ) from None
