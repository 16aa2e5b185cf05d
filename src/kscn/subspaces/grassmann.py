"""The Grassmann manifold G(d, p): angles, tangents, retraction, all batched.

A point is an orthonormal basis S (d x p); only its span counts. Leading dimensions are a batch, so
k subspaces move in one call on a (k, d, p) tensor. Signs of QR columns do not matter: they change
the basis, not the span.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kscn.subspaces.decompositions import eigvalsh, orthonormal


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    """Angles between the spans of a (..., d, p) and b (..., d, q), ascending, in radians.

    The cosine loses small angles and the sine loses angles near a right angle, so each angle comes
    from whichever of the two is accurate there (Bjoerck and Golub 1973).
    """
    a, b = a.double(), b.double()
    if b.shape[-1] > a.shape[-1]:
        a, b = b, a
    inner = a.mT @ b
    cosines = torch.linalg.svdvals(inner).clamp(max=1)  # descending: angles ascend
    sines = torch.linalg.svdvals(b - a @ inner).clamp(max=1).flip(-1)  # ascending
    return torch.where(cosines > 0.5**0.5, sines.asin(), cosines.acos())


def largest_turn(a: Tensor, b: Tensor) -> Tensor:
    """Sine of the largest angle between equally large subspaces: |P_a - P_b| in the 2-norm."""
    a, b = a.double(), b.double()
    away = b - a @ (a.mT @ b)
    return eigvalsh(away.mT @ away)[..., -1].clamp(0, 1).sqrt()


def tangent(base: Tensor, gradient: Tensor) -> Tensor:
    """Project a Euclidean gradient at `base` on the tangent space: (I - S S^T) G."""
    return gradient - base @ (base.mT @ gradient)


def retract(base: Tensor, step: Tensor) -> Tensor:
    """Move along a tangent step and come back to the manifold by QR."""
    return orthonormal(base + step)


def descend(scatter: Tensor, bases: Tensor) -> Tensor:
    """One gradient step on every basis (k, d, p), with the best of a range of step sizes for each.

    With scatter sums A (k, d, d) of the members, the objective is trace(A) - trace(S^T A S). Its
    gradient -2 A S is projected on the tangent space and followed by QR retraction. Step sizes are
    tried in units of 1 / |S^T A S|, so they suit any scale of the latents; a subspace that no step
    improves stays, so the objective never rises.
    """
    downhill = -tangent(bases, -2 * scatter @ bases)
    # A cluster without members has no gradient and stays.
    curvature = torch.linalg.matrix_norm(bases.mT @ scatter @ bases, ord=2).clamp(min=1e-300)
    used = (bases != 0).any(dim=-2, keepdim=True)  # a smaller subspace has zero columns at the end
    best = bases
    held = (bases * (scatter @ bases)).sum(dim=(-2, -1))
    for exponent in range(-4, 9):
        step = downhill * (2.0**exponent / (2 * curvature))[..., None, None]
        moved = retract(bases, step) * used
        now = (moved * (scatter @ moved)).sum(dim=(-2, -1))
        better = now > held
        best = torch.where(better[..., None, None], moved, best)
        held = torch.where(better, now, held)
    return best
