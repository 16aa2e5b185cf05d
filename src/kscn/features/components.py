"""Principal components of a sample, and the step that computes them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.parallel import one_thread
from kscn.subspaces import leading_directions
from kscn.subspaces.decompositions import eigh

# Rows that are summed up in float32, before float64, and columns of the covariance computed
# together; what lies below them is known by symmetry.
_FIT_ROWS, _STRIP = 4096, 512
MOST_FEATURES = 16384  # beyond, the covariance takes more than 2 GiB
# Of more than _MANY features, up to one direction in _FEW are found by some rounds of subspace
# iteration with a share of directions more than are wanted (Halko, Martinsson, Tropp 2011): 300 of
# 3,472 took a fifth of the time, and the first 150 were exact to 1e-5.
_MANY, _FEW, _ROUNDS, _MORE = 1000, 8, 6, 0.2


class Components(nn.Module):
    """Centred vectors in orthonormal directions of a sample, of falling variance.

    Parameters
    ----------
    n_features, n_components : int
        Lengths of the vectors, and of what is made of them.
    whiten : bool
        Divide each component by its standard deviation.
    unit_norm : bool
        Divide each vector's components by their Euclidean length. Zeros stay zeros.
    constant : float
        If not 0, a last coordinate that is the same for all vectors: so many times their root mean
        square length. A linear subspace of such homogeneous coordinates is an affine one of the
        components, of one dimension less; one of dimension 1 is a point. Lengths hardly differ
        then, so that unit norm changes little.

    Attributes
    ----------
    mean : Tensor of shape (n_features,)
    directions : Tensor of shape (n_components, n_features)
    variance : Tensor of shape (n_components,)
        Along the directions, float64.
    """

    mean: Tensor
    directions: Tensor
    variance: Tensor

    def __init__(
        self,
        n_features: int,
        n_components: int,
        whiten: bool = False,
        unit_norm: bool = True,
        constant: float = 0.0,
    ) -> None:
        super().__init__()
        self.whiten, self.unit_norm, self.constant = whiten, unit_norm, constant
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("directions", torch.zeros(n_components, n_features))
        self.register_buffer("variance", torch.zeros(n_components, dtype=torch.float64))

    @classmethod
    def fit(cls, z: Tensor, n_components: int, *, centre: bool = True, **settings: Any) -> Self:
        """The leading components of vectors (m, d).

        Without `centre` they are measured from the origin: the directions of largest mean square.
        Directions are exact, or where a few of thousands are wanted those of subspace iteration
        from a fixed start: all but the last ones, which hardly differ in variance, are the same to
        several digits.
        """
        n, d = z.shape
        few = 2 * n <= d
        if d > MOST_FEATURES and not few:
            raise InputError(
                f"X has {d} features, whose covariance would take {8 * d**2 / 2**30:.0f} GiB; give "
                f"at most {MOST_FEATURES}, for example smaller images or fewer columns."
            )
        mean = z.mean(dim=0, dtype=torch.float64) if centre else z.new_zeros(d).double()
        # In two steps: a mean that is large beside the differences would drown them in rounding.
        z = z - mean.to(z.dtype)
        variance, vectors = _leading(_products(z.mT if few else z) / (n - 1), n_components)
        if few:  # from the products of vectors, of which there are fewer than features
            vectors = z.double().mT @ vectors.double()
            # What carries no variance has no direction of its own; QR finds it an orthogonal one.
            with one_thread():
                vectors = torch.linalg.qr(vectors.flip(1)).Q.flip(1)
        directions = vectors.mT.flip(0)
        # The sign is free: let the largest entry be positive, so that it does not vary.
        peak = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
        made = cls(d, n_components, **settings)
        made.mean = mean.float()
        made.directions = (directions * peak.sign()).float().contiguous()
        made.variance = variance.flip(0).clamp(min=0)
        return made

    def reduced(self, n_components: int, **settings: Any) -> Self:
        """The first components, with other settings, without fitting again."""
        config = self.config() | {"n_components": n_components} | settings
        made = type(self)(**config)
        made.mean = self.mean
        made.directions = self.directions[:n_components].clone()
        made.variance = self.variance[:n_components].clone()
        return made

    def forward(self, samples: Tensor) -> Tensor:
        """Components (n, k) of vectors (n, d)."""
        samples = samples.flatten(1).to(self.mean.dtype)
        return self.of_components(nn.functional.linear(samples - self.mean, self.directions))

    def of_components(self, components: Tensor) -> Tensor:
        """What is made of components, as many or more, that are known unscaled."""
        # A direction without variance holds rounding only; whitened, it would be all noise.
        least = 10 * torch.finfo(torch.float32).eps * self.variance.max()
        scale = torch.ones_like(self.variance)
        if self.whiten:
            scale = torch.where(self.variance > least, self.variance.rsqrt(), 0.0)
        out = components[:, : len(scale)] * scale.to(components.dtype)
        if self.constant:
            length = (scale.square() * self.variance).sum().sqrt()
            last = self.constant * length.where(length > 0, 1.0).to(out.dtype)
            out = torch.cat([out, last.expand(len(out), 1)], dim=1)
        if not self.unit_norm:
            return out
        return nn.functional.normalize(out, eps=torch.finfo(out.dtype).tiny)

    def config(self) -> dict[str, Any]:
        """The arguments that build this step again."""
        k, d = self.directions.shape
        return {
            "n_features": d,
            "n_components": k,
            "whiten": self.whiten,
            "unit_norm": self.unit_norm,
            "constant": self.constant,
        }


def _products(z: Tensor) -> Tensor:
    """z^T z (d, d) of rows z (n, d) in float64, of which the upper half is filled."""
    d = z.shape[1]
    total = torch.zeros(d, d, dtype=torch.float64, device=z.device)
    for block in z.split(_FIT_ROWS):
        for low in range(0, d, _STRIP):
            total[low : low + _STRIP, low:] += block[:, low : low + _STRIP].mT @ block[:, low:]
    return total


def _leading(matrix: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest eigenvalues, rising, and their vectors (d, k), by the upper half."""
    d, device = len(matrix), matrix.device
    if d <= _MANY or k * _FEW > d:
        with one_thread():  # several wait for each other on a busy machine
            found: tuple[NDArray, NDArray] = scipy.linalg.eigh(
                matrix.cpu().numpy(), lower=False, subset_by_index=[d - k, d - 1]
            )
        values, vectors = (torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in found)
        return values, vectors
    scale = float(matrix.trace()) or 1.0  # float32 has fewer powers of ten
    upper = (matrix / scale).float().triu_()
    whole = upper + upper.triu(1).mT
    space = leading_directions(whole, round((1 + _MORE) * k), _ROUNDS)
    values, turn = eigh(space.mT @ (whole @ space))
    return scale * values[-k:].double(), space @ turn[:, -k:]
