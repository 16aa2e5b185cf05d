"""Kernel sparse subspace clustering (Patel and Vidal, 2014): SSC in a kernel's feature space."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy import sparse
from torch import Tensor

from kscn.constraints import POSITIVE, Integer, Number, parameter
from kscn.data import Source
from kscn_paper.rivals.ssc import SSC


@dataclass(eq=False, repr=False, kw_only=True)
class KSSC(SSC):
    """Kernel sparse subspace clustering: the l1 self-expression of SSC between feature maps.

    The kernel is first written as inner products of short features, by a Cholesky factorisation
    that picks samples (pivots) until the rest of the kernel's trace is negligible: r n kernel
    values and r^2 n operations, never an n x n kernel. From there it is SSC.

    Parameters
    ----------
    gamma : float or None, default=None
        The kernel is (gamma x.y + coef0)^degree, divided so that every sample has a feature map of
        unit norm. None takes 1 / (mean squared norm).
    degree : int, default=2
        Of the polynomial.
    coef0 : float, default=1.0
        Constant of the polynomial.
    max_rank : int, default=1000
        Most features.
    kernel_tol : float, default=1e-3
        Share of the kernel's trace that features may miss.

    Attributes
    ----------
    gamma_ : float
        The one used.
    rank_ : int
        Number of features.
    missed_ : float
        Share of the kernel's trace that the features miss.
    """

    gamma: float | None = parameter(None, POSITIVE)
    degree: int = parameter(2, Integer(1))
    coef0: float = parameter(1.0, Number(0))
    max_rank: int = parameter(1000, Integer(1))
    kernel_tol: float = parameter(1e-3, Number(0, 1))

    def _make_affinity(self, source: Source) -> sparse.csr_array:
        z = self._samples(source)
        norms = z.square().sum(dim=1)
        scale = self.gamma_ = float(1 / norms.mean() if self.gamma is None else self.gamma)
        size = (scale * norms + self.coef0).pow(self.degree).sqrt()
        size = torch.where(size > 0, size, 1)

        def kernel(i: int) -> Tensor:
            return (scale * (z @ z[i]) + self.coef0).pow(self.degree) / (size * size[i])

        # Without a constant a zero sample has no feature map.
        own = torch.where((norms > 0) | (self.coef0 > 0), torch.ones_like(norms), 0)
        features, self.missed_ = kernel_features(
            kernel, own, min(self.max_rank, len(z)), self.kernel_tol
        )
        self.rank_ = features.shape[1]
        self._record("kernel", rank=self.rank_, missed=self.missed_)
        return self._code(features)


def kernel_features(
    kernel: Callable[[int], Tensor], own: Tensor, max_rank: int, tol: float
) -> tuple[Tensor, float]:
    """Features (n, r) whose inner products are the kernel, and the share of its trace they miss.

    By pivoted Cholesky: each step takes the sample that the features so far miss most, so the error
    falls about as fast as the kernel's eigenvalues do. `kernel` gives that of all samples with
    sample i (n,), `own` (n,) is that of every sample with itself. It ends at `max_rank` features,
    or when they miss less than the share `tol`.
    """
    left = own.double().clone()
    total = float(left.sum())
    # Feature by feature in memory, so that a step reads one contiguous stretch.
    features = torch.empty(max_rank, len(own), dtype=own.dtype, device=own.device)
    floor = 10 * torch.finfo(own.dtype).eps
    rank = 0
    while rank < max_rank and float(left.sum()) > tol * total:
        pivot = int(left.argmax())
        if left[pivot] <= floor * own[pivot]:
            break  # what is left is rounding
        column = kernel(pivot) - features[:rank, pivot] @ features[:rank]
        column /= left[pivot].sqrt()
        features[rank] = column
        left.sub_(column.double().square()).clamp_(min=0)
        left[pivot] = 0
        rank += 1
    return features[:rank].mT.contiguous(), float(left.sum()) / total
