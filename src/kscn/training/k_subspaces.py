"""k-subspaces on samples of any kind: where it starts, and the iterations from there.

`kscn.subspaces.search` does the searching, on a subsample; here is decided what it searches, and
for what. `kscn.training.lloyd` does the iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn import checks as check
from kscn.data import Source
from kscn.errors import InputError
from kscn.parallel import threads_for
from kscn.runtime.blocks import Blocks, check_finite
from kscn.runtime.group import place
from kscn.runtime.labels import Numbered, in_order
from kscn.runtime.rows import sample, sample_rows
from kscn.subspaces import ScatterSums, Subspaces, keep_nearest
from kscn.subspaces.axes import Coordinates
from kscn.subspaces.decompositions import orthonormal
from kscn.subspaces.search import Problem, find_start
from kscn.training.driver import Result, Run
from kscn.training.lloyd import Lloyd, filled, tensors_of

# Samples that are searched: so many, or per cluster, or per cluster and dimension, if ...
POOL = 2048
PER_CLUSTER = 200
PER_DIM = 20
USUAL_DIM = 8  # for as long as the dimension is not known
SWEEP_COST = 2e9  # ... one sweep of one candidate over them takes no more arithmetic
# Dimensions chosen per cluster differ from the usual one by this factor at most: a subspace
# that is much larger than the others is near everything and takes in their samples.
SPREAD = 1.6
# What races in a search: whether starts drawn by k-means, and whether that of the neighbour graph.
RACED = {"auto": (True, True), "neighbours": (False, True), "k-means": (True, False)}


@dataclass(frozen=True)
class Options:
    """The settings of `KSubspaces`."""

    n_clusters: int
    subspace_dim: int | Sequence[int] | str
    affine: bool = False
    trim: float = 0.0
    init: str | NDArray = "auto"
    n_init: int = 2
    max_iter: int = 100
    tol: float = 1e-4
    batch_size: int | None = None

    @property
    def usual_dim(self) -> int:
        """The largest dimension of a subspace; what it mostly is where it is to be chosen."""
        return USUAL_DIM if isinstance(self.subspace_dim, str) else int(np.max(self.subspace_dim))


def k_subspaces(
    source: Source, use: Options, run: Run, weights: Tensor | None = None, stage: str = "fit"
) -> tuple[Numbered, ScatterSums, Tensor | None]:
    """Search a start on a subsample, then iterate over all samples.

    Returns the clusters in canonical order, with the weighted inertia of the samples that are not
    trimmed; the sums of their members; and the origin (d,) of affine subspaces.

    `source` holds the samples of this process, `weights` (n,) are those of all processes, which
    search the same subsample. Iterations are recorded under the name `stage`, if that is not empty;
    those of the stage "fit" are kept in states.
    """
    (first, n), k = place(source), use.n_clusters
    # As many threads as one sweep over all samples is worth.
    with threads_for(4.0 * n * int(np.prod(source.shape)) * k * use.usual_dim):
        rows, pool, shift = draw_pool(source, use, run)
        blocks = Blocks(source, pool.dtype, run.device, shift, use.batch_size)

        def find() -> Result:
            return Result({}, tensors_of(_start(blocks, rows, pool, use, run, weights)))

        kept = stage == "fit"
        begin = (run.once("search", find) if kept else find()).tensors
        start = Subspaces(begin["bases"], begin.get("offsets")).to(blocks.dtype, run.device)
        own = None if weights is None else weights[first : first + len(source)]
        loop = Lloyd(blocks, start, trim=use.trim, weights=own, pool=pool, run=run)
        numbers = run.epochs(stage, use.max_iter, lloyd=loop) if kept else range(use.max_iter)
        loop.iterate(numbers, use.tol, stage, use.max_iter)
        found, sums, labels = loop.subspaces, loop.sums, loop.labels
        del loop  # bookkeeping per sample, before the final assignment makes its own
        result = in_order(blocks, found, run.group, labels, weights)
    distance = result.distance.cpu()
    if use.trim > 0:
        nearest = torch.from_numpy(result.labels[first : first + len(source)])
        distance = distance * run.group.keep_nearest(distance, nearest, use.trim, k)
    if own is not None:
        distance = distance * own
    (inertia,) = run.group.add(float(distance.sum()))
    return result._replace(inertia=inertia), sums[result.order], shift


# The subsample ------------------------------------------------------------------------------------


def draw_pool(source: Source, use: Options, run: Run) -> tuple[NDArray, Tensor, Tensor | None]:
    """The subsample that is searched, in the precision that the whole fit should use.

    Returns which samples they are (m,), the samples (m, d), and for affine subspaces their mean
    (d,), which becomes the origin and is subtracted from them.
    """
    k, p, d = use.n_clusters, use.usual_dim, int(np.prod(source.shape))
    fair = max(POOL, PER_CLUSTER * k, PER_DIM * k * p)
    affordable = max(4 * k, int(SWEEP_COST / (4 * d * k * p)))
    rows = sample_rows(place(source)[1], min(fair, affordable), run.seed)
    z = sample(source, rows, run.device, run.group)
    if not z.square().sum(dim=1).median().isfinite():
        z = z.double()  # all samples are that large, not one that is amiss
    check_finite(z.square().sum(dim=1), source.name, rows)
    z = _with_squares(z, source.name)
    if not use.affine:
        return rows, z, None
    shift = z.mean(dim=0)
    return rows, z - shift, shift


def _with_squares(z: Tensor, name: str) -> Tensor:
    """z in the first precision that holds squared lengths and, below them, small distances."""
    for dtype in (z.dtype, torch.float64):
        rows, limits = z.to(dtype), torch.finfo(dtype)
        mean = float(rows.square().sum(dim=1).mean())
        if limits.tiny / limits.eps < mean < float("inf") or not rows.any():
            return rows
    raise InputError(
        f"Input {name} holds values around {float(z.abs().max()):.0e}, whose squares cannot be "
        "represented; multiply all samples by a constant first."
    )


# The start ----------------------------------------------------------------------------------------


def _start(
    blocks: Blocks, rows: NDArray, pool: Tensor, use: Options, run: Run, weights: Tensor | None
) -> Subspaces:
    """The subspaces to begin with: given, or found by a search on the samples `rows`, the pool."""
    init, generator = use.init, torch.Generator().manual_seed(run.seed)
    if isinstance(init, str) and len(pool) == use.n_clusters:
        # One subspace may hold several samples: a search would see no fault in that.
        init = np.arange(len(pool))
    # The search may run in float32 whatever the data: it only has to find the right valley.
    # Scaling to unit mean square keeps it clear of overflow.
    scale = float(pool.square().sum(dim=1).mean().sqrt()) or 1.0
    z = Coordinates.leading((pool / scale).float(), use.n_clusters * use.usual_dim)
    dims = _dims(z, use, run.seed, generator)
    if not isinstance(init, str):
        return _given(init, blocks, dims, use, run, weights)
    picked = None if weights is None else weights[rows].to(z.z)
    problem = Problem(z.z, picked, dims, use.affine, use.trim, generator, blocks.dim)

    def report(done: int, most: int, starts: int, objective: float) -> None:
        about = {"round": done, "rounds": most, "starts": starts, "samples": len(pool)}
        run.record(stage="search", **about, objective=objective * scale**2)

    drawn, graph = RACED[init] if use.n_clusters > 1 else (True, False)
    given = None
    if graph:
        from kscn.neighbours.starts import graph_start  # and with it all of scikit-learn

        given = graph_start(problem)
    found = run.group.agree_on(find_start(problem, use.n_init, report, given, drawn))
    if isinstance(use.subspace_dim, str):
        found = _with_own_dims(found, z, use)
    found = z.back(found)
    return Subspaces(found.bases, None if found.offsets is None else found.offsets * scale)


def _given(
    init: NDArray, blocks: Blocks, dims: Tensor, use: Options, run: Run, weights: Tensor | None
) -> Subspaces:
    """The start that `init` holds as labels or bases."""
    first, n = place(blocks.source)
    k, d, p = use.n_clusters, blocks.dim, int(dims.max())
    array = np.asarray(init)
    if array.ndim == 1:
        check.given_labels(array, n, k)
        own = slice(first, first + len(blocks))
        labels = torch.from_numpy(array.astype(np.int64)[own])
        sums = ScatterSums(k, d, use.affine, blocks.device)
        filled(sums, blocks, labels, None if weights is None else weights[own])
        blocks.check(float(sums.second.sum()))
        return run.group.sum_scatter(sums).subspaces(dims)
    if array.shape != (k, d, p):
        raise InputError(
            f"init has shape {array.shape}; labels have shape ({n},) and bases ({k}, {d}, {p})."
        )
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise InputError("init holds NaN or infinity, or no numbers; bases must be finite.")
    used = torch.arange(p) < dims[:, None]
    bases = orthonormal(torch.from_numpy(array.astype(np.float64))) * used[:, None]
    points = torch.zeros(k, d, dtype=torch.float64) if use.affine else None
    return Subspaces.through(points, bases)


# Dimensions ---------------------------------------------------------------------------------------


def _dims(pooled: Coordinates, use: Options, seed: int, generator: torch.Generator) -> Tensor:
    """Dimensions to search for, shape (k,).

    "auto" reads them off the clusters of the neighbour graph, which are purer than any that
    k-subspaces finds before it knows the dimensions. Twice, since the second graph is better.
    """
    k, z = use.n_clusters, pooled.z
    if not isinstance(use.subspace_dim, str):
        return torch.as_tensor(use.subspace_dim).long().expand(k)
    if k == 1:
        return _own_dims(pooled, z.new_zeros(len(z), dtype=torch.long), use).cpu()
    from kscn.neighbours.starts import graph_rows, neighbour_clusters

    part = pooled[torch.randperm(len(z), generator=generator)[: graph_rows(k)].to(z.device)]
    usual = None
    for _ in range(2):
        labels = neighbour_clusters(part.z, k, usual, affine=use.affine, seed=seed % 2**31)
        dims = _own_dims(part, torch.from_numpy(labels).long().to(z.device), use).cpu()
        usual = int(dims.median())
    return dims


def _with_own_dims(found: Subspaces, pooled: Coordinates, use: Options) -> Subspaces:
    """Each subspace in the dimension that the spectrum of its members speaks for."""
    labels, distance = found.assign(pooled.z)
    members = labels.where(keep_nearest(distance, labels, use.trim, use.n_clusters), -1)
    dims, sums = _own_dims(pooled, members, use), _sums(pooled, members, use)
    dims = torch.where(sums.weight > found.dims, dims, found.dims)  # too few members to tell
    return sums.subspaces(dims).to(torch.float32)


def _own_dims(pooled: Coordinates, members: Tensor, use: Options) -> Tensor:
    """The dimension (k,) that the spectrum of each cluster's members (m,) speaks for.

    Constants say nothing about clusters, but their energy would hide that of all else. A linear
    subspace needs one dimension for them; an affine one has them in its offset.
    """
    varying, constants = pooled.varying()
    sums = _sums(varying, members, use)
    dims, known = varying.dims(sums, members), sums.weight > 1
    usual = float(dims[known].double().quantile(0.5)) if known.any() else 1.0
    dims = torch.where(known, dims, round(usual))
    least, most = (max(1, round(usual * by)) for by in (1 / SPREAD, SPREAD))
    return dims.clamp(least, most) + int(constants and not use.affine)


def _sums(pooled: Coordinates, members: Tensor, use: Options) -> ScatterSums:
    """Sums over the samples by the clusters (m,) that they are members of."""
    z = pooled.z
    return filled(ScatterSums(use.n_clusters, z.shape[1], use.affine, z.device), [(0, z)], members)
