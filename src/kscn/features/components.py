"""Principal components of a sample, and the step that computes them."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from kscn.subspaces.decompositions import eigh, orthonormal

# Directions of more features than this are found by some rounds of subspace iteration with a share
# of directions more than are wanted (Halko, Martinsson, Tropp 2011).
_MANY, _ROUNDS, _MORE = 1000, 6, 0.2


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
        Directions are exact, or those of subspace iteration from a fixed start for more than a
        thousand features: all but the last ones, which hardly differ in variance, are the same to
        several digits.
        """
        n, d = z.shape
        mean = z.mean(dim=0, dtype=torch.float64) if centre else z.new_zeros(d).double()
        # In two steps: a mean that is large beside the differences would drown them in rounding.
        z = z - mean.to(z.dtype)
        space = _leading_space(z, n_components) if d > _MANY else torch.eye(d).to(z)
        inside = (z @ space).double()
        energy, turn = eigh(inside.mT @ inside)
        directions = (space @ turn.to(space)).mT.flip(0)[:n_components]
        # The sign is free: let the largest entry be positive, so that it does not vary.
        peak = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
        made = cls(d, n_components, **settings)
        made.mean = mean.float()
        made.directions = (directions * peak.sign()).float().contiguous()
        made.variance = energy.flip(0)[:n_components].clamp(min=0) / (n - 1)
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


def _leading_space(z: Tensor, count: int) -> Tensor:
    """Orthonormal directions (d, q) along which rows z (n, d) vary most, more than `count`."""
    q = min(round((1 + _MORE) * count), *z.shape)
    space = torch.randn(z.shape[1], q, generator=torch.Generator().manual_seed(0)).to(z)
    for _ in range(_ROUNDS):
        space = orthonormal(z.mT @ (z @ space))
    return space
