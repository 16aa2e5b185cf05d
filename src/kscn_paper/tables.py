"""Tables of published figures: the paper's, read from tables.toml, or one of the user's own."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from kscn.checked import FLAG, TEXT, check, integer, number, require
from kscn.errors import InputError, reason

SCORES = ("acc", "nmi", "ari")
ALL = "all"
# A data set that a table goes by -> the table.
_ALIASES = {"fashion-mnist": "fashion", "mnist-test": "subspace", "fashion-mnist-test": "subspace"}


@dataclass(frozen=True)
class Table:
    """Published figures of some methods on some data sets, by which dictionaries begin."""

    name: str  # that `kscn reproduce` calls it by, and results are filed under
    title: str
    clusters: int  # asked for on each of the data sets
    rows: dict[str, dict[str, dict[str, Any]]]  # by method: the paper's scores in per cent
    # The file of a data set that is not in the catalogue.
    sources: dict[str, str] = field(default_factory=dict)
    # The data of which affinity methods have their pretrained network, where it is other data.
    pretraining: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, dict[str, str]] = field(default_factory=dict)  # by method: on our figure
    extras: bool = True  # methods that are not in it are shown too once they have been measured
    # By method: parameters that it is run with, where defaults are not wanted.
    settings: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        """Every method of the table, in the paper's order."""
        return list(dict.fromkeys(method for rows in self.rows.values() for method in rows))


def names() -> list[str]:
    """The names that `find` takes."""
    return [*_tables(), *_ALIASES, ALL]


def find(name: str) -> list[Table]:
    """The tables of a name: one, a part of one by an alias, all of them, or those of a file.

    Raises
    ------
    InputError
        When no table has that name, or the file of that name does not hold tables.
    """
    tables = _tables()
    if name == ALL:
        return list(tables.values())
    if name in tables:
        return [tables[name]]
    if name in _ALIASES:
        whole = tables[_ALIASES[name]]
        rows = {name: whole.rows[name]}
        # A part is filed under its own name, so that it never replaces the result of the whole.
        return [whole if rows == whole.rows else replace(whole, name=name, rows=rows)]
    if name.endswith(".toml"):
        return _own(Path(name).expanduser())
    raise InputError(
        f"{name!r} is no table of the paper; give one of {', '.join(names())}, or a .toml file "
        "with a table of your own."
    )


def _tables() -> dict[str, Table]:
    remarks = _packaged("remarks.toml")
    everywhere = remarks.pop("everywhere")
    return {
        name: _table(
            name,
            content,
            {
                part: everywhere | remarks.get(name, {}).get(part, {})
                for part in _others(content, _OF_TABLES)
            },
        )
        for name, content in _packaged("tables.toml").items()
    }


def _packaged(file: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / file).read_text(encoding="utf-8"))


def _own(path: Path) -> list[Table]:
    """The tables in a file of the user's own, whose data files lie beside it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read the table {path} ({reason(error)}); correct it.") from None
    try:
        found = [_table(name, section, {}) for name, section in content.items()]
        require(bool(found), "it is empty")
    except ValueError as error:
        raise InputError(
            f"{path} holds no table of results: {error}; `kscn reproduce --help` shows the form."
        ) from None
    for table in found:
        if table.name in names():
            raise InputError(
                f"{path} calls a table {table.name}, which is one of kscn's own; rename it so that "
                "their results are not mixed up."
            )
        for dataset, source in table.sources.items():
            table.sources[dataset] = str((path.parent / Path(source).expanduser()).resolve())
    return found


# Entries of tables that are no data sets, of data sets that are no methods, and of methods.
_OF_TABLES = {"title?": TEXT, "clusters": integer(1), "extras?": FLAG}
_OF_DATASETS = {"source?": TEXT, "pretrain_on?": TEXT, "settings?": {}}
_OF_METHODS = {"approximate?": FLAG} | {f"{score}?": number(-100, 100) for score in SCORES}


def _table(name: str, content: Any, remarks: dict[str, dict[str, str]]) -> Table:
    """A table from its section; ValueError says what is wrong with one of the user's own."""
    check(content, _OF_TABLES, name)
    sections = _others(content, _OF_TABLES)
    for word in (name, *sections):  # which become parts of file names
        fine = re.fullmatch(r"\w[\w.-]*", word) is not None
        require(fine, f"the name {word!r} is not letters, digits, - and _")
    require(bool(sections), f"[{name}] has no data set, a section like [{name}.mnist]")
    rows = {}
    for dataset, section in sections.items():
        where = f"{name}.{dataset}"
        check(section, _OF_DATASETS, where)
        for method, parameters in section.get("settings", {}).items():
            check(parameters, {}, f"{where}.settings.{method}")
        rows[dataset] = _others(section, _OF_DATASETS)
        for method, scores in rows[dataset].items():
            check(scores, _OF_METHODS, f"{where}.{method}")
            unknown = ", ".join(_others(scores, _OF_METHODS))
            allowed = ", ".join(SCORES)
            require(not unknown, f"{where}.{method} has {unknown}, which is none of {allowed}")
    return Table(
        name,
        content.get("title", name),
        content["clusters"],
        rows,
        sources={key: part["source"] for key, part in sections.items() if "source" in part},
        pretraining={
            key: part["pretrain_on"] for key, part in sections.items() if "pretrain_on" in part
        },
        remarks=remarks,
        extras=content.get("extras", True),
        settings={key: part.get("settings", {}) for key, part in sections.items()},
    )


def _others(table: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a table that are not among those known."""
    return {key: part for key, part in table.items() if not {key, f"{key}?"} & set(known)}
