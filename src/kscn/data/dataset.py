"""What loading gives: samples, and their labels if known."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kscn.data.base import Source
from kscn.errors import DataError, reason

SAMPLE_NAMES = ("X", "samples", "data", "images", "x_train")
LABEL_NAMES = ("y", "labels", "targets", "label", "target", "y_train")
LABEL_COLUMNS = ("label", "labels", "y", "target", "class")


@dataclass(frozen=True)
class Dataset:
    """Samples with everything known about them.

    Attributes
    ----------
    samples : Source
        Readable in batches; `numpy.asarray(samples)`, `samples[i]` and `samples[a:b]` work too.
    labels : numpy.ndarray of int64, or None
        One label per sample, only ever for scoring.
    name : str
        The name in the catalogue, or the file's or folder's.
    label_names : tuple of str, or None
        What the labels 0, 1, ... are called, where they were words.
    """

    samples: Source
    labels: np.ndarray | None
    name: str
    label_names: tuple[str, ...] | None = None

    @property
    def classes(self) -> np.ndarray | None:
        """The labels as they were given: words where those were words."""
        if self.labels is None or self.label_names is None:
            return self.labels
        return np.array(self.label_names)[self.labels]


def make_dataset(samples: Source, labels: Any, name: str) -> Dataset:
    """A data set whose labels are checked, and words among them numbered in alphabetical order."""
    if labels is None:
        return Dataset(samples, None, name)
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (len(samples),):
        raise DataError(
            f"{samples.name} has {len(samples)} samples but labels of shape {labels.shape}; "
            "give one label per sample."
        )
    numbers, words = _as_integers(labels, samples.name)
    return Dataset(samples, numbers, name, words)


def _as_integers(labels: np.ndarray, name: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Labels as integers, and the words that these stand for."""
    kind = labels.dtype.kind
    beyond = labels[np.abs(labels) >= 2**63] if kind in "uf" else []
    if len(beyond):
        raise DataError(
            f"{name} has the label {beyond[0]}, which is no integer of 64 bits; number the classes "
            "from 0."
        )
    if kind in "biu" or (kind == "f" and (labels % 1 == 0).all()):
        return labels.astype(np.int64), None
    words = [item.decode(errors="replace") if isinstance(item, bytes) else str(item)
             for item in labels.tolist()]  # fmt: skip
    # Not numpy.unique: its array would be as wide as the longest word in every row.
    names = sorted(set(words))
    numbers = {word: number for number, word in enumerate(names)}
    return np.fromiter((numbers[word] for word in words), np.int64, len(words)), tuple(names)


def choose_arrays(names: list[str], path: Path) -> tuple[str, str | None]:
    """Which arrays of a file are the samples and the labels, by name or by being alone."""
    labels = next((name for name in LABEL_NAMES if name in names), None)
    others = [name for name in names if name != labels] or names
    samples = next((name for name in SAMPLE_NAMES if name in names), others[0] if others else "")
    if samples not in SAMPLE_NAMES and len(others) != 1:
        found = reason(", ".join(names[:8])) + (", ..." if len(names) > 8 else "")
        raise DataError(
            f"{path} does not say which array holds the samples (found: {found or 'none'}); name "
            "it X."
        )
    return samples, labels if labels != samples else None
