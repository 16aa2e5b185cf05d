"""Settings of `KSCN` by name: TOML files beside this one, or a file of the user's own.

A preset holds a section per data set, and one each for all other images and vectors; the form is
explained at the top of paper.toml. Nothing here knows what the parameters mean.
"""

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from kscn.constraints import check_names
from kscn.errors import InputError


@dataclass(frozen=True)
class Rules:
    """Which sections a set has, if there are such."""

    few: int = 20_000  # samples below which that is [few-images] or [few-vectors]
    small: int = 16  # pixels of the shorter side below which images have [small-images]


RULES = Rules()
# The method decides how subspaces are updated; a preset must not say otherwise.
METHODS: dict[str, dict[str, Any]] = {
    "kscn-s": {"update": "svd"},
    "kscn-g": {"update": "grassmann"},
}
DEFAULT = "tuned"
# Sections that belong to no named data set.
_GENERAL = {"common", "images", "few-images", "small-images", "vectors", "few-vectors"}


def names() -> list[str]:
    """The presets that come with kscn."""
    found = (entry.name for entry in files(__name__).iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def title(preset: str) -> str:
    """The name of a preset without a path, as results are filed under it."""
    return Path(preset).name.removesuffix(".toml")


def parameters(
    preset: str,
    method: str,
    dataset: str | None,
    shape: Sequence[int],
    n_samples: int | None = None,
) -> dict[str, Any]:
    """The parameters of `KSCN` that a preset gives for a data set.

    Parameters
    ----------
    preset : str
        A name of `names()`, or the path of a .toml file.
    method : {"kscn-s", "kscn-g"}
        The variant; its own tables in the preset count more than the sections around them.
    dataset : str or None
        Name in the catalogue, None for data of the user's own.
    shape : sequence of int
        Shape of one sample: it tells images from vectors, and small images from others.
    n_samples : int, optional
        How many there are: fewer than 20,000 of the user's own may have a section of their own.

    Returns
    -------
    dict
        To be passed as ``KSCN.from_settings(n_clusters, **parameters)``.

    Raises
    ------
    InputError
        When the preset is unknown, cannot be read, has no section for the data, or sets something
        that `KSCN` does not take.
    """
    sections = read(preset)
    own = _section(preset, sections, dataset, shape, n_samples)
    chosen = [sections.get("common", {}), sections[own]]
    found: dict[str, Any] = {}
    for section in chosen:
        found |= {key: value for key, value in section.items() if key not in METHODS}
    for section in chosen:
        found |= section.get(method, {})
    return found | METHODS[method]


def of_dataset(preset: str, method: str, dataset: str) -> dict[str, Any]:
    """The parameters in the section of a named data set, which the preset must have."""
    family, sections = _family(dataset), read(preset)
    if dataset not in sections and family not in sections:
        named = [name for name in sections if name not in _GENERAL]
        raise InputError(
            f"the preset {preset} has no section for the data set {dataset!r}; it has "
            f"{', '.join(named) or 'none for any'}."
        )
    return parameters(preset, method, dataset, ())


def method_of(update: Any) -> str:
    """The name of the method that updates subspaces in this way."""
    return "kscn-g" if isinstance(update, str) and update == "grassmann" else "kscn-s"


def is_image(shape: Sequence[int]) -> bool:
    """Whether samples of this shape are images: (h, w) or (c, h, w)."""
    return len(shape) in (2, 3)


def read(preset: str) -> dict[str, dict[str, Any]]:
    """The sections of a preset; a fault is refused whichever section it is in."""
    from kscn.estimators.presets.derive import OPEN

    try:
        sections = tomllib.loads(_text(preset))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the preset {preset} is not valid TOML ({error}); correct it.") from None
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise InputError(
                f"the preset {preset} sets {name} outside of any section; put it below [common]."
            )
        for key, value in section.items():
            names = value if key in METHODS else [key]
            check_names(names, OPEN, f"the preset {preset} sets")
    return sections


def _text(preset: str | os.PathLike[str]) -> str:
    if not isinstance(preset, (str, os.PathLike)):
        raise InputError(
            f"preset={preset!r} must be the name of a preset or the path of a .toml file."
        )
    preset = os.fspath(preset)
    if preset in names():
        return (files(__name__) / f"{preset}.toml").read_text(encoding="utf-8")
    if not preset.endswith(".toml"):
        raise InputError(
            f"{preset!r} is no known preset; known ones are {', '.join(names())}, or give the "
            "path of a .toml file."
        )
    if title(preset) in names():
        raise InputError(
            f"{preset} is named like a preset of kscn; rename it so that their results are not "
            "mixed up."
        )
    try:
        return Path(preset).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the preset {preset} ({reason}).") from None


def _section(
    preset: str,
    sections: dict[str, Any],
    dataset: str | None,
    shape: Sequence[int],
    n_samples: int | None,
) -> str:
    """The most particular section that there is for the data."""
    kind = "images" if is_image(shape) else "vectors"
    wanted = [] if dataset is None else [dataset, _family(dataset)]
    if is_image(shape) and min(shape[-2:]) < RULES.small:
        wanted.append("small-images")
    if n_samples is not None and n_samples < RULES.few:
        wanted.append(f"few-{kind}")
    wanted.append(kind)
    for name in wanted:
        if name in sections:
            return name
    raise InputError(
        f"the preset {preset} has no section for this data; add one of "
        f"{', '.join(f'[{name}]' for name in wanted)}."
    )


def _family(dataset: str) -> str:
    """The data set that `dataset` is a part of."""
    return dataset.removesuffix("-test").removesuffix("-train")
