"""Subspaces around samples: what swaps of the search try, and a new place for an empty cluster.

They are built from the samples alone (never from coordinate axes), so a rotation of the data
rotates them with it. Only directions that a group of samples does not span are fixed ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kscn.subspaces.bases import Subspaces
from kscn.subspaces.decompositions import orthonormal

LOCAL_STEPS = 4  # power steps on a group of samples, instead of an exact SVD
# Share of random directions that completes a basis where samples span fewer directions.
SPARE = 1e-6


def neighbourhood_members(
    z: Tensor, seeds: Tensor, size: int, affine: bool, block: int = 256
) -> Tensor:
    """The `size` samples nearest to each seed row: by angle for linear subspaces, else by distance.

    Two samples of one linear subspace may lie on opposite sides of the origin, so |cosine| counts.
    """
    norms = z.square().sum(dim=1)
    found = []
    for chosen in seeds.split(block):
        inner = z[chosen] @ z.mT  # (seeds, m)
        if affine:
            near = inner - norms / 2
        else:
            near = inner.abs() / norms.clamp(min=torch.finfo(z.dtype).tiny).sqrt()
        found.append(near.topk(min(size, len(z)), dim=1).indices)
    return torch.cat(found)


def local_subspaces(z: Tensor, members: Tensor, used: Tensor, affine: bool) -> Subspaces:
    """A good subspace for each small group of rows `members` (s, q), with columns `used` (s, p).

    By a few power steps on the group's scatter from p of its own rows: a start needs no exact SVD,
    and steps are many times cheaper.
    """
    group = z[members]  # (s, q, d)
    mean = group.mean(dim=1)
    if affine:
        group = group - mean[:, None]
    size = torch.linalg.vector_norm(group, dim=(1, 2), keepdim=True)
    group = group / torch.where(size > 0, size, 1.0)
    # What a group does not span comes from directions that are always the same. Random ones see a
    # little of everything; axes may be dead (the corner of an image), and nothing would turn them.
    shape, generator = (len(group), z.shape[1], used.shape[1]), torch.Generator().manual_seed(0)
    spare = SPARE * torch.randn(shape, generator=generator, dtype=z.dtype).to(z.device)
    rows = group[:, : used.shape[1]].mT
    bases = torch.nn.functional.pad(rows, (0, used.shape[1] - rows.shape[2])) + spare
    for _ in range(LOCAL_STEPS):
        bases = group.mT @ (group @ orthonormal(bases)) + spare / z.shape[1] ** 0.5
    return Subspaces.through(mean if affine else None, orthonormal(bases) * used[:, None])


def draw_rows(mass: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` entries of `mass` (m,) in proportion to it; uniformly where all is zero.

    On the CPU, where the generator is, so that a seed means the same on any device.
    """
    share = mass.cpu().clamp(min=0)
    share = share + (share.sum() <= 0)
    return torch.multinomial(share, count, replacement=True, generator=generator).to(mass.device)


def rescue_empty(
    subspaces: Subspaces, empty: Tensor, pool: Tensor, generator: torch.Generator
) -> Subspaces:
    """Put each subspace without members at the neighbourhood of a badly served sample of `pool`.

    An empty cluster holds nothing, so moving its subspace cannot raise the objective.
    """
    nearest = subspaces.residuals(pool).amin(dim=1)
    affine = subspaces.offsets is not None
    # A neighbourhood should be most of one cluster but little of the next.
    size = max(int(subspaces.dims.max()) + 2, len(pool) // (3 * subspaces.n_clusters))
    seeds = draw_rows(nearest, len(empty), generator)
    members = neighbourhood_members(pool, seeds, size, affine)
    return subspaces.replaced(empty, local_subspaces(pool, members, subspaces.used[empty], affine))
