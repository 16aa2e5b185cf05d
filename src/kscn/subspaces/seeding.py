"""Starting points: R sets of k subspaces for the search, and a new subspace for an empty cluster.

Every start is built from the samples alone (never from coordinate axes), so a rotation of the data
rotates the starts with it. Only directions that a group of samples does not span are fixed ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kscn.subspaces.bases import Subspaces
from kscn.subspaces.decompositions import orthonormal

KMEANS_ITERATIONS = 10  # Lloyd's, after k-means++: a start needs no more
LOCAL_STEPS = 4  # power steps on a group of samples, instead of an exact SVD
# Share of something else that completes a basis where samples span fewer directions.
SPARE = 1e-6


def k_means_labels(z: Tensor, k: int, starts: int, generator: torch.Generator) -> Tensor:
    """Labels of `starts` independent short k-means runs, batched, shape (m, R).

    k-means++ draws, then a few Lloyd iterations: a start needs no more.
    """
    m, d = z.shape
    norms = z.square().sum(dim=1)
    centres = z.new_empty(starts, k, d)
    nearest = z.new_full((m, starts), torch.inf)
    for j in range(k):
        if j == 0:
            drawn = torch.randint(m, (starts,), generator=generator).to(z.device)
        else:
            drawn = draw_rows(nearest.mT, 1, generator)[:, 0]
        centres[:, j] = z[drawn]
        far = norms[:, None] + norms[drawn] - 2 * z @ z[drawn].mT
        nearest = torch.minimum(nearest, far.clamp_(min=0))
    shift = torch.arange(starts, device=z.device) * k
    for _ in range(KMEANS_ITERATIONS):
        flat = centres.view(starts * k, d)
        score = 2 * z @ flat.mT - flat.square().sum(dim=1)
        labels = score.view(m, starts, k).argmax(dim=2)
        member = z.new_zeros(m, starts * k).scatter_(1, labels + shift, 1.0)
        count = member.sum(dim=0)
        mean = (member.mT @ z) / count.clamp(min=1)[:, None]
        centres = torch.where((count > 0)[:, None], mean, flat).view(starts, k, d)
    return labels


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
    level = SPARE * z.square().mean().sqrt()
    axes = torch.eye(z.shape[1], used.shape[1], dtype=z.dtype, device=z.device)
    bases, held = _power_steps(group, level * axes)
    # Fewer rows than directions, or equal rows: the first axes have completed the basis. They may
    # be dead (the corner of an image), and then nothing turns them later. Random directions see
    # a little of everything.
    short = ((held <= 2 * level) & used).any(dim=1).nonzero().flatten()
    if len(short):
        bases[short] = _completed_at_random(group[short], used.shape[1])
    return Subspaces.through(mean if affine else None, bases * used[:, None])


def _power_steps(group: Tensor, spare: Tensor) -> tuple[Tensor, Tensor]:
    """Bases (s, d, p) after a few steps on groups (s, q, d), and what each direction holds (s, p).

    `spare` (d, p) is added in every step; what a group does not span comes from there.
    """
    p = spare.shape[-1]
    bases = group[:, :p].mT
    bases = torch.nn.functional.pad(bases, (0, p - bases.shape[2])) + spare
    for _ in range(LOCAL_STEPS):
        bases = orthonormal(bases)
        bases = group.mT @ (group @ bases) + spare
    bases, triangle = torch.linalg.qr(bases)
    return bases, triangle.diagonal(dim1=1, dim2=2).abs()


def _completed_at_random(group: Tensor, p: int) -> Tensor:
    """Bases (s, d, p) of groups that span less, completed by directions that are always the same.

    A generator of their own leaves the draws of all other starts as they are.
    """
    size = torch.linalg.vector_norm(group, dim=(1, 2), keepdim=True)
    generator = torch.Generator().manual_seed(0)
    shape = (len(group), group.shape[2], p)
    spare = torch.randn(shape, generator=generator, dtype=group.dtype) / shape[1] ** 0.5
    spare = spare.to(group.device)
    group = group / torch.where(size > 0, size, 1.0)  # of scatter 1, to which `spare` is a share
    return _power_steps(group, SPARE * spare)[0]


def draw_rows(mass: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` columns per row of `mass` in proportion to it; uniformly where all is zero.

    On the CPU, where the generator is, so that a seed means the same on any device.
    """
    place = mass.device
    mass = mass.cpu().clamp(min=0)
    empty = mass.sum(dim=1, keepdim=True) <= 0
    drawn = torch.multinomial(mass + empty, count, replacement=True, generator=generator)
    return drawn.to(place)


def rescue_empty(
    subspaces: Subspaces, empty: Tensor, pool: Tensor, size: int, generator: torch.Generator
) -> Subspaces:
    """Put each subspace without members at the neighbourhood of a badly served sample of `pool`.

    An empty cluster holds nothing, so moving its subspace cannot raise the objective.
    """
    nearest = subspaces.residuals(pool).amin(dim=1)
    affine = subspaces.offsets is not None
    seeds = draw_rows(nearest[None], len(empty), generator)[0]
    members = neighbourhood_members(pool, seeds, size, affine)
    new = local_subspaces(pool, members, subspaces.used[empty], affine)
    return subspaces.replaced(empty, new)
