"""How well a clustering agrees with known classes.

Labels only ever score here; nothing in this module is used by training. Two marks are special:

- `-1` in `y_pred` is *noise*, a sample that no cluster took. It counts as wrong in the accuracy
  and is one more group of samples to NMI and ARI.
- `-1` in `y_true` is *unlabelled* (or an outlier by design). Such samples are left out of every
  score.

Labels may be integers or strings (where the marks read "-1").
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from kscn.errors import InputError

NOISE = -1
# A contingency table past this many cells means measurements were passed where classes belong.
_MAX_CELLS = 50_000_000


@dataclass(frozen=True)
class ConfusionMatrix:
    """Classes against clusters, the columns put in the order that matches the rows best.

    Attributes
    ----------
    counts : ndarray of shape (n_classes, n_columns)
        Samples of each class in each cluster.
    classes : ndarray of shape (n_classes,)
        The class of each row, sorted.
    clusters : ndarray of shape (n_columns,)
        The cluster id of each column: first the clusters matched to a class, in the order of the
        classes; then the unmatched ones, in the order of their ids; last noise (-1), if any.
    matches : tuple of int
        For every column the row that it is matched to, or -1.
    """

    counts: NDArray[np.int64]
    classes: NDArray
    clusters: NDArray
    matches: tuple[int, ...]


def clustering_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Share of samples whose cluster is the one matched to their class.

    The one-to-one matching of clusters to classes that makes this share largest is found by the
    Hungarian algorithm. The number of clusters may differ from the number of classes: samples of
    a cluster or a class that is left over count as wrong.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Classes; samples with -1 are left out.
    y_pred : array-like of shape (n_samples,)
        Clusters; samples with -1 (noise) count as wrong.

    Returns
    -------
    float
        Between 0 and 1; never below 1 / max(number of clusters, number of classes) without noise.

    Examples
    --------
    >>> from kscn import metrics
    >>> metrics.clustering_accuracy([0, 0, 1, 1], [1, 1, 0, 1])
    0.75
    """
    pair = _LabelPair(y_true, y_pred)
    rows, columns = pair.matching()
    return float(pair.counts[rows, columns].sum() / pair.counts.sum())


def normalized_mutual_info(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Mutual information of classes and clusters over the arithmetic mean of their entropies.

    It is 1 when classes and clusters are the same partition, 0 when they are independent.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Classes and clusters, see the head of this module for -1.

    Examples
    --------
    >>> from kscn import metrics
    >>> round(metrics.normalized_mutual_info([0, 0, 1, 1], [1, 1, 0, 0]), 3)
    1.0
    """
    from sklearn.metrics import normalized_mutual_info_score  # takes long to import

    pair = _LabelPair(y_true, y_pred)
    return float(normalized_mutual_info_score(pair.true_codes, pair.scored_codes))


def adjusted_rand(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Agreement on pairs of samples: 1 for the same partition, about 0 for a random one.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Classes and clusters, see the head of this module for -1.

    Examples
    --------
    >>> from kscn import metrics
    >>> metrics.adjusted_rand([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    from sklearn.metrics import adjusted_rand_score

    pair = _LabelPair(y_true, y_pred)
    return float(adjusted_rand_score(pair.true_codes, pair.scored_codes))


def scores(y_true: ArrayLike, y_pred: ArrayLike) -> dict[str, float]:
    """Return the three usual scores of a clustering as `{"acc": ..., "nmi": ..., "ari": ...}`.

    Examples
    --------
    >>> from kscn import metrics
    >>> sorted(metrics.scores([0, 0, 1, 1], [1, 1, 0, 0]))
    ['acc', 'ari', 'nmi']
    """
    return {
        "acc": clustering_accuracy(y_true, y_pred),
        "nmi": normalized_mutual_info(y_true, y_pred),
        "ari": adjusted_rand(y_true, y_pred),
    }


def align_labels(y_true: ArrayLike, y_pred: ArrayLike) -> NDArray:
    """Rename the clusters to the classes that they match best.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Classes and clusters, see the head of this module for -1.

    Returns
    -------
    ndarray of shape (n_samples,)
        `y_pred` in the names of `y_true`, so that `mean(align_labels(y_true, y_pred) == y_true)`
        over the labelled samples is the clustering accuracy. A cluster that shares no sample with
        the class left for it is unmatched: it gets an integer from `max(y_true) + 1` on, or
        "cluster <id>" when classes are strings. Noise stays -1 ("-1" when classes are strings).

    Examples
    --------
    >>> from kscn import metrics
    >>> metrics.align_labels([0, 0, 1, 1], [1, 1, 0, 0]).tolist()
    [0, 0, 1, 1]
    """
    pair = _LabelPair(y_true, y_pred)
    rows, columns = pair.matching()
    matched = dict(zip(columns.tolist(), rows.tolist(), strict=True))
    numbers = pair.classes.dtype.kind in "iuf"
    unused = itertools.count(int(pair.classes.max()) + 1 if numbers else 0)
    names: list[object] = []
    for column, cluster in enumerate(pair.clusters):
        if column in matched:
            names.append(pair.classes[matched[column]])
        elif pair.noise[column]:
            names.append(NOISE if numbers else str(NOISE))
        else:
            names.append(next(unused) if numbers else f"cluster {cluster}")
    return np.array(names)[pair.pred_codes]


def confusion_matrix(y_true: ArrayLike, y_pred: ArrayLike) -> ConfusionMatrix:
    """Count the samples of every class in every cluster, matched clusters first.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Classes and clusters, see the head of this module for -1.

    Returns
    -------
    ConfusionMatrix
        With as many clusters as classes the matched counts are the diagonal.

    Examples
    --------
    >>> from kscn import metrics
    >>> metrics.confusion_matrix([0, 0, 1, 1], [1, 1, 0, 0]).counts.tolist()
    [[2, 0], [0, 2]]
    """
    pair = _LabelPair(y_true, y_pred)
    rows, columns = pair.matching()
    unmatched = np.setdiff1d(np.flatnonzero(~pair.noise), columns)
    order = np.concatenate([columns, unmatched, np.flatnonzero(pair.noise)])
    matches = tuple(rows.tolist()) + (NOISE,) * (len(order) - len(rows))
    return ConfusionMatrix(pair.counts[:, order], pair.classes, pair.clusters[order], matches)


class _LabelPair:
    """Checked labels as codes: what every score above starts from."""

    def __init__(self, y_true: ArrayLike, y_pred: ArrayLike) -> None:
        true, pred = _as_labels("y_true", y_true), _as_labels("y_pred", y_pred)
        if len(true) != len(pred):
            raise InputError(
                f"y_true has {len(true)} labels and y_pred has {len(pred)}; "
                "both must label the same samples in the same order."
            )
        scored = ~_marks(true)
        if not scored.any():
            raise InputError(
                "every label in y_true is -1 (unlabelled), so there is nothing to score."
            )
        self.classes, self.true_codes = np.unique(true[scored], return_inverse=True)
        # Clusters keep the codes of all samples, because align_labels renames all of them.
        self.clusters, self.pred_codes = np.unique(pred, return_inverse=True)
        self.scored_codes = self.pred_codes[scored]
        self.noise = _marks(self.clusters)  # (n_clusters,)
        shape = (len(self.classes), len(self.clusters))
        if math.prod(shape) > _MAX_CELLS:
            raise InputError(
                f"y_true has {shape[0]} and y_pred has {shape[1]} distinct values; "
                "labels are expected here, not measurements."
            )
        cells = self.true_codes * shape[1] + self.scored_codes
        # Samples of each class (row) in each cluster (column), noise included.
        self.counts = np.bincount(cells, minlength=math.prod(shape)).reshape(shape)

    def matching(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns of the best one-to-one matching.

        Noise matches nothing, and a cluster does not match a class that it shares no sample with.
        """
        counts = np.where(self.noise, 0, self.counts)
        rows, columns = linear_sum_assignment(counts, maximize=True)
        shared = counts[rows, columns] > 0
        return rows[shared], columns[shared]


def _as_labels(name: str, labels: ArrayLike) -> NDArray:
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise InputError(f"{name} must be one list of labels, got nested lists: {error}.") from None
    if array.ndim != 1 or array.size == 0:
        fault = "is empty" if array.size == 0 else f"has shape {array.shape}"
        raise InputError(f"{name} {fault}; a one-dimensional list of labels is needed.")
    if array.dtype.kind == "O":
        if any(value is None or value != value for value in array):
            raise InputError(f"{name} has missing labels; mark unlabelled samples with -1.")
        # Strings from pandas arrive as objects; so do mixtures, which then compare as strings.
        array = np.array(array.tolist())
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name} has NaN or infinite labels; mark unlabelled samples with -1.")
    if array.dtype.kind not in "biufUS" or array.ndim != 1:
        raise InputError(f"{name} must hold integers or strings, got {array.dtype}.")
    return array.astype({"b": np.int64, "S": str}.get(array.dtype.kind, array.dtype))


def _marks(labels: NDArray) -> NDArray[np.bool_]:
    """Where the label is the mark -1."""
    return labels == (str(NOISE) if labels.dtype.kind == "U" else NOISE)
