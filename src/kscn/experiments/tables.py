"""The paper's tables, read from tables.toml."""

import sys
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from kscn.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCORES = ("acc", "nmi", "ari")
ALL = "all"
# Another name of a table -> the table and the data sets of it that are meant.
_ALIASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "fashion-mnist": ("fashion", ("fashion-mnist",)),
    "mnist-test": ("subspace", ("mnist-test",)),
    "fashion-mnist-test": ("subspace", ("fashion-mnist-test",)),
}


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes
    ----------
    name : str
        What `kscn reproduce` calls it, and results are filed under.
    title : str
        What it shows.
    clusters : int
        Clusters asked for on each of its data sets.
    rows : dict of dict of dict
        Data set -> method -> the paper's scores, in per cent.
    """

    name: str
    title: str
    clusters: int
    rows: dict[str, dict[str, dict[str, Any]]]

    @property
    def methods(self) -> list[str]:
        """Every method of the table, in the paper's order."""
        return list(dict.fromkeys(method for rows in self.rows.values() for method in rows))


def names() -> list[str]:
    """The names that `find` takes."""
    return [*_tables(), *_ALIASES, ALL]


def find(name: str) -> list[Table]:
    """The tables of a name: one, a part of one by an alias, or all of them.

    Raises
    ------
    InputError
        When no table has that name.
    """
    tables = _tables()
    if name == ALL:
        return list(tables.values())
    if name in tables:
        return [tables[name]]
    if name in _ALIASES:
        target, datasets = _ALIASES[name]
        whole = tables[target]
        rows = {dataset: whole.rows[dataset] for dataset in datasets}
        # A part is filed under its own name, so that it never replaces the result of the whole.
        part = target if rows == whole.rows else name
        return [Table(part, whole.title, whole.clusters, rows)]
    raise InputError(f"{name!r} is no table of the paper; give one of {', '.join(names())}.")


def _tables() -> dict[str, Table]:
    text = (files(__package__) / "tables.toml").read_text(encoding="utf-8")
    return {
        name: Table(
            name,
            content.pop("title"),
            content.pop("clusters"),
            content,
        )
        for name, content in tomllib.loads(text).items()
    }
