"""Tables of published figures: the paper's, read from tables.toml, or one of the user's own."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
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
    """Published figures of some methods on some data sets.

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
    sources : dict of str
        Data set -> the file it is in, for those that are not in the catalogue.
    pretraining : dict of str
        Data set -> the one of which affinity methods have their pretrained network, where it is
        another.
    remarks : dict of dict of str
        Data set -> method -> one sentence on our figure, where there is something to say.
    extras : bool
        Whether methods that are not in it are shown too once they have been measured.
    settings : dict of dict of dict
        Data set -> method -> parameters that it is run with, where defaults are not wanted.
    """

    name: str
    title: str
    clusters: int
    rows: dict[str, dict[str, dict[str, Any]]]
    sources: dict[str, str] = field(default_factory=dict)
    pretraining: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, dict[str, str]] = field(default_factory=dict)
    extras: bool = True
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
        target, datasets = _ALIASES[name]
        whole = tables[target]
        rows = {dataset: whole.rows[dataset] for dataset in datasets}
        # A part is filed under its own name, so that it never replaces the result of the whole.
        part = target if rows == whole.rows else name
        return [replace(whole, name=part, rows=rows)]
    if name.endswith(".toml"):
        return _own(Path(name).expanduser())
    raise InputError(
        f"{name!r} is no table of the paper; give one of {', '.join(names())}, or a .toml file "
        "with a table of your own."
    )


def _tables() -> dict[str, Table]:
    remarks = _packaged("remarks.toml")
    return {
        name: _table(name, content, remarks.get(name, {}))
        for name, content in _packaged("tables.toml").items()
    }


def _packaged(file: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / file).read_text(encoding="utf-8"))


def _own(path: Path) -> list[Table]:
    """The tables in a file of the user's own, whose data files lie beside it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the table {path} ({reason}); correct it.") from None
    try:
        found = [_table(name, section, {}) for name, section in content.items()]
        _check(bool(found), "it is empty")
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


def _table(name: str, content: Any, remarks: dict[str, dict[str, str]]) -> Table:
    """A table from its section; ValueError says what is wrong with one of the user's own."""
    _check(isinstance(content, Mapping), f"{name} stands outside of any section")
    _check_file_name(name)
    content = dict(content)
    title, clusters = content.pop("title", name), content.pop("clusters", None)
    extras = content.pop("extras", True)
    _check(isinstance(title, str), f"the title of {name} is no text")
    _check(
        isinstance(clusters, int) and not isinstance(clusters, bool) and clusters > 0,
        f"[{name}] needs clusters, the number of them to find",
    )
    _check(isinstance(extras, bool), f"extras of [{name}] is neither true nor false")
    _check(bool(content), f"[{name}] has no data set, a section like [{name}.mnist]")
    rows, settings = {}, {}
    named: dict[str, dict[str, str]] = {"source": {}, "pretrain_on": {}}
    for dataset, section in content.items():
        where = f"{name}.{dataset}"
        _check_file_name(dataset)
        _check(isinstance(section, Mapping), f"{where} is no section of methods")
        section = dict(section)
        for key in {*named} & {*section}:
            named[key][dataset] = section.pop(key)
            _check(isinstance(named[key][dataset], str), f"{key} of {where} is no name of data")
        settings[dataset] = section.pop("settings", {})
        _check_settings(settings[dataset], where)
        for method, scores in section.items():
            _check_scores(scores, f"{method} in [{where}]")
        rows[dataset] = section
    parts = named["source"], named["pretrain_on"], remarks, extras, settings
    return Table(name, title, clusters, rows, *parts)


def _check_settings(settings: Any, where: str) -> None:
    sound = isinstance(settings, Mapping) and all(
        isinstance(of_method, Mapping) for of_method in settings.values()
    )
    _check(sound, f"settings of {where} are no tables of parameters by method")


def _check_scores(scores: Any, where: str) -> None:
    _check(isinstance(scores, Mapping), f"{where} is no table of scores")
    for name, value in scores.items():
        known = name in SCORES or name == "approximate"
        _check(known, f"{where} has {name!r}, which is none of {', '.join(SCORES)}")
        fine = isinstance(value, bool) if name == "approximate" else _is_per_cent(value)
        _check(fine, f"{name} of {where} is {value!r}, not a number of per cent")


def _is_per_cent(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -100 <= value <= 100


def _check_file_name(name: str) -> None:
    """Names of tables and data sets become parts of file names."""
    plain = name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    _check(plain and not name.startswith("."), f"the name {name!r} is not letters, digits, - and _")


def _check(fine: bool, fault: str) -> None:
    if not fine:
        raise ValueError(fault)
