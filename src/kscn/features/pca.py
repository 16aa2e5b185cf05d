"""Principal components of data of any length, by sums over blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.constraints import Alternative, Integer, Number
from kscn.data import Source
from kscn.errors import InputError
from kscn.features.base import FeatureMap, blocks, check_finite, working_dtype
from kscn.modelparts import check_array
from kscn.parallel import one_thread
from kscn.subspaces.decompositions import eigh, orthonormal

# Rows in a product when features are computed: always as many, so that those of a sample do not
# depend on the others, not even by rounding; and during a fit.
ROWS = 256
_FIT_ROWS = 4096
# Columns of the covariance computed together; what lies below them is known by symmetry.
_STRIP = 512
MOST_FEATURES = 16384  # beyond, the covariance takes more than 2 GiB
# Samples of fewer bytes than this, at most half as many as features, are taken into memory at
# once: 6,000 samples of 40,000 features are.
_FEW_BYTES = 2**31
# Of more than _MANY features, up to one direction in _FEW are found by some rounds of subspace
# iteration with a share of directions more than are wanted (Halko, Martinsson, Tropp 2011): 300 of
# 3,472 took a fifth of the time, and the first 150 were exact to 1e-5.
_MANY, _FEW, _ROUNDS, _MORE = 1000, 8, 6, 0.2


class PCAFeatures(FeatureMap):
    """Centred samples in their directions of largest variance, then at unit length.

    The covariance is summed up over blocks in one pass, in float64, so memory does not depend on
    the number of samples; it takes 8 d**2 bytes for d features. Its directions are exact, or where
    a few of thousands are wanted those of subspace iteration from a fixed start: all but the last
    ones, which hardly differ in variance, are the same to several digits.

    Parameters
    ----------
    n_components : int, optional
        Directions to keep; all of them by default.
    whiten : bool
        Divide each component by its standard deviation.
    unit_norm : bool
        Divide each sample's components by their Euclidean length. Zeros stay zeros.
    constant : float
        If not 0, a last coordinate that is the same for all samples: so many times their root mean
        square length. A linear subspace of such homogeneous coordinates is an affine one of the
        components, of one dimension less; one of dimension 1 is a point. Lengths hardly differ
        then, so that unit norm changes little.
    centre : bool
        Measure from the mean of the samples, or from the origin; then directions are those of the
        largest mean square.

    Attributes
    ----------
    mean_ : ndarray of shape (d,)
    components_ : ndarray of shape (n_components, d)
        Orthonormal rows, in the order of falling variance.
    explained_variance_ : ndarray of shape (n_components,)
    """

    _parameter_constraints: ClassVar[Mapping[str, Sequence[Alternative]]] = {
        "n_components": (None, Integer(1)),
        "whiten": (bool,),
        "unit_norm": (bool,),
        "constant": (Number(0),),
        "centre": (bool,),
    }

    def __init__(
        self,
        n_components: int | None = None,
        whiten: bool = False,
        unit_norm: bool = True,
        constant: float = 0.0,
        centre: bool = True,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.unit_norm = unit_norm
        self.constant = constant
        self.centre = centre

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find mean and directions of the samples X, which are read once."""
        source = self._open(X, reset=True)
        n, d = len(source), self.n_features_in_
        few = 2 * n <= d and 8 * n * d <= _FEW_BYTES
        if d > MOST_FEATURES and not few:
            raise InputError(
                f"X has {d} features, whose covariance would take {8 * d**2 / 2**30:.0f} GiB; give "
                f"at most {MOST_FEATURES}, for example smaller images or fewer columns."
            )
        if n < 2:
            raise InputError(f"n_samples={n}: a variance needs at least 2 samples.")
        k = int(self.n_components or min(n, d))
        if k > min(n, d):
            raise InputError(
                f"n_components={k} must be an integer from 1 to {min(n, d)}, the smaller of "
                f"n_samples={n} and n_features={d}."
            )
        if few:
            mean, variance, vectors = self._of_few(np.asarray(source), k)
        else:
            mean, variance, vectors = self._of_sums(source, k)
        directions = np.ascontiguousarray(vectors.T[::-1])
        # The sign is free: let the largest entry be positive, so that it does not vary.
        peak = np.abs(directions).argmax(axis=1)
        directions *= np.sign(directions[np.arange(k), peak])[:, None]
        dtype = working_dtype(source.dtype)
        self.mean_ = mean.astype(dtype)
        self.components_ = directions.astype(dtype)
        self.explained_variance_ = np.maximum(variance[::-1], 0)
        return self._prepare()

    def _of_sums(self, source: Source, k: int) -> tuple[NDArray, NDArray, NDArray]:
        """Mean, and rising variances (k,) and directions (d, k), by the covariance."""
        n, d = len(source), self.n_features_in_
        mean, covariance = _moments(source, d, self.device)
        if not self.centre:
            covariance += n / (n - 1) * np.outer(mean, mean)
            mean = np.zeros_like(mean)
        return mean, *_leading(covariance, k, self.device)

    def _of_few(self, rows: NDArray, k: int) -> tuple[NDArray, NDArray, NDArray]:
        """The same by the products of samples, of which there are fewer than features."""
        check_finite(rows, "X")
        rows = rows.reshape(len(rows), -1).astype(np.float64)
        mean = rows.mean(axis=0) if self.centre else np.zeros(rows.shape[1])
        rows -= mean
        products = rows @ rows.T / (len(rows) - 1)
        if not np.isfinite(products).all():
            raise _too_large("X")
        variance, shares = _leading(products, k, self.device)
        vectors = rows.T @ shares
        # What carries no variance has no direction of its own; QR finds it an orthogonal one.
        with one_thread():
            return mean, variance, np.linalg.qr(vectors[:, ::-1])[0][:, ::-1]

    def _prepare(self) -> Self:
        """Mean and matrix for `_apply`, rows filled up to a multiple of 64 bytes."""
        scale = np.ones(len(self.components_))
        if self.whiten:
            # A direction without variance holds rounding only; whitened, it would be all noise.
            least = 10 * np.finfo(self._dtype).eps * self.explained_variance_.max()
            spread = np.sqrt(self.explained_variance_)
            scale = np.divide(1, spread, out=np.zeros_like(spread), where=spread**2 > least)
        missing = (0, -self.components_.shape[1] % 16)
        matrix = torch.from_numpy((scale[:, None] * self.components_).astype(self._dtype))
        self._matrix = nn.functional.pad(matrix, missing).to(self.device)
        self._shift = nn.functional.pad(torch.from_numpy(self.mean_), missing).to(self.device)
        self._relative = scale.astype(self._dtype)
        length = float(np.sqrt((scale**2 * self.explained_variance_).sum()))
        self._last = [self.constant * (length or 1.0)] if self.constant else []
        self._n_features_out = len(self.components_) + len(self._last)
        return self

    @property
    def _dtype(self) -> np.dtype:
        return self.components_.dtype

    def _input_dtype(self, stored: np.dtype) -> np.dtype:
        return self._dtype

    def _apply(self, samples: Tensor) -> Tensor:
        z = samples.reshape(len(samples), -1).to(self._matrix.dtype)
        z = nn.functional.pad(z, (0, self._matrix.shape[1] - z.shape[1])) - self._shift
        z = nn.functional.pad(z, (0, 0, 0, -len(z) % ROWS))
        found = torch.cat([block @ self._matrix.T for block in z.split(ROWS)])
        return self._finished(found[: len(samples)])

    def of_components(self, components: Tensor) -> Tensor:
        """Features (n, d) of samples whose components, as many or more, are known unscaled."""
        scale = torch.from_numpy(self._relative).to(components)
        return self._finished(components[:, : len(scale)] * scale).contiguous()

    def _finished(self, out: Tensor) -> Tensor:
        for value in self._last:
            out = nn.functional.pad(out, (0, 1), value=value)
        if not self.unit_norm:
            return out
        return nn.functional.normalize(out, eps=torch.finfo(out.dtype).tiny)

    def _arrays(self) -> dict[str, NDArray]:
        return {
            "mean": self.mean_,
            "components": self.components_,
            "explained_variance": self.explained_variance_,
        }

    def _restore(self, arrays: Mapping[str, NDArray]) -> Self:
        mean, components = arrays["mean"], arrays["components"]
        k, d = len(components), self.n_features_in_
        check_array("components", components, (None, d))
        check_array("mean", mean, (d,), (components.dtype.name,))
        check_array("explained_variance", arrays["explained_variance"], (k,), ("float64",))
        if k > d or self.n_components not in (None, k):
            raise ValueError(f"it has {k} components of {d} features")
        self.mean_, self.components_ = mean, components
        self.explained_variance_ = arrays["explained_variance"]
        return self._prepare()


def _too_large(name: str) -> InputError:
    return InputError(
        f"Input {name} holds values whose squares cannot be represented; multiply all samples by a "
        "constant first."
    )


def _leading(matrix: NDArray, k: int, device: torch.device) -> tuple[NDArray, NDArray]:
    """The k largest eigenvalues, rising, and their vectors (d, k), by the upper half of a matrix.

    It is overwritten.
    """
    d = len(matrix)
    if d <= _MANY or k * _FEW > d:
        some = {"subset_by_index": [d - k, d - 1], "overwrite_a": True, "check_finite": False}
        with one_thread():  # several wait for each other on a busy machine
            return scipy.linalg.eigh(matrix, lower=False, **some)
    scale = float(np.trace(matrix)) or 1.0  # float32 has fewer powers of ten
    upper = torch.from_numpy(matrix).div_(scale).float().to(device).triu_()
    whole = upper + upper.triu(1).mT
    generator = torch.Generator().manual_seed(0)
    space = torch.randn(d, round((1 + _MORE) * k), generator=generator).to(device)
    for _ in range(_ROUNDS):
        space = orthonormal(whole @ space)
    values, turn = eigh(space.mT @ (whole @ space))
    found = space @ turn[:, -k:]
    return scale * values[-k:].double().cpu().numpy(), found.double().cpu().numpy()


def _moments(source: Source, d: int, device: torch.device) -> tuple[NDArray, NDArray]:
    """Mean (d,) and covariance (d, d) with denominator n - 1, of which the upper half is filled."""
    dtype = working_dtype(source.dtype)
    total = torch.zeros(d, dtype=torch.float64, device=device)
    second = torch.zeros(d, d, dtype=torch.float64, device=device)
    pivot, strip = None, _STRIP
    for block in blocks(source, _FIT_ROWS, dtype, device):
        z = block.reshape(len(block), -1).to(torch.float32 if dtype == "f4" else torch.float64)
        if pivot is None:
            # Sums run relative to a point amid the samples: a mean that is large beside the
            # differences would otherwise drown these in rounding.
            pivot = z.mean(dim=0)
        z = z - pivot
        total += z.sum(dim=0, dtype=torch.float64)
        for low in range(0, d, strip):
            second[low : low + strip, low:] += z[:, low : low + strip].T @ z[:, low:]
    n = len(source)
    offset = total / n
    second.addr_(offset, offset, alpha=-n).div_(n - 1)
    if not second.triu().isfinite().all():
        raise _too_large(source.name)
    assert pivot is not None  # a source has samples
    return (pivot.double() + offset).cpu().numpy(), second.cpu().numpy()
