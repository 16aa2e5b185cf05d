"""k-subspaces on samples of any kind: where it starts, and the iterations from there.

`kscn.subspaces.search` does the searching, on a subsample; here is decided what it searches, and
for what. `kscn.training.lloyd` does the iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn import checks as check
from kscn.data import Source
from kscn.errors import InputError
from kscn.parallel import threads_for
from kscn.runtime.blocks import Blocks, check_finite, working_dtype
from kscn.runtime.group import place
from kscn.runtime.labels import Numbered, in_order
from kscn.runtime.rows import sample, sample_rows
from kscn.subspaces import ScatterSums, Subspaces, keep_nearest
from kscn.subspaces.axes import Coordinates
from kscn.subspaces.decompositions import orthonormal
from kscn.subspaces.search import Problem, find_start
from kscn.training.driver import Result, Run
from kscn.training.lloyd import Iteration, Lloyd

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
class Pool:
    """A subsample, in the coordinates and the precision that the whole fit should use."""

    rows: NDArray  # (m,), which samples they are
    z: Tensor  # (m, d), the samples less `shift`, on the device of the fit
    shift: Tensor | None  # (d,), their mean, which becomes the origin; affine subspaces only


@dataclass(frozen=True)
class StartSearch:
    """The settings of `KSubspaces` that decide where it starts, and the steps that do so.

    The processes of the run hold all samples together, and all search the same subsample.
    """

    run: Run

    n_clusters: int
    subspace_dim: int | Sequence[int] | str
    affine: bool = False
    trim: float = 0.0
    init: str | NDArray = "auto"
    n_init: int = 2

    def threads(self, source: Source) -> AbstractContextManager[None]:
        """As many threads as one sweep over all samples is worth."""
        n, d = place(source)[1], int(np.prod(source.shape))
        return threads_for(4.0 * n * d * self.n_clusters * self._usual_dim)

    def draw_pool(self, blocks: Blocks) -> Pool:
        """The subsample that the search works on; `blocks` are not shifted yet."""
        _, n = place(blocks.source)
        k, name = self.n_clusters, blocks.source.name
        p = self._usual_dim
        fair = max(POOL, PER_CLUSTER * k, PER_DIM * k * p)
        affordable = max(4 * k, int(SWEEP_COST / (4 * blocks.dim * k * p)))
        size = min(n, fair, affordable)
        rows = sample_rows(n, size, self.run.seed)
        z = sample(blocks.source, rows, blocks.device, self.run.group)
        if not z.square().sum(dim=1).median().isfinite():
            z = z.double()  # all samples are that large, not one that is amiss
        check_finite(z.square().sum(dim=1), name, rows)
        z = _with_squares(z, name)
        shift = z.mean(dim=0) if self.affine else None
        return Pool(rows, z if shift is None else z - shift, shift)

    def find(self, blocks: Blocks, pool: Pool, weights: Tensor | None) -> Subspaces:
        """The subspaces to begin with: given, or found by the search on `pool`.

        `blocks` are shifted like the pool and `weights` (n,) are those of all samples.
        """
        init, n = self.init, place(blocks.source)[1]
        if isinstance(init, str) and n == self.n_clusters:
            # One subspace may hold several samples: a search would see no fault in that.
            init = np.arange(n)
        generator = torch.Generator().manual_seed(self.run.seed)
        # The search may run in float32 whatever the data: it only has to find the right valley.
        # Scaling to unit mean square keeps it clear of overflow.
        scale = float(pool.z.square().sum(dim=1).mean().sqrt()) or 1.0
        pooled = Coordinates.leading((pool.z / scale).float(), self.n_clusters * self._usual_dim)
        z, dims = pooled.z, self._dims(pooled, generator)
        picked = None if weights is None else weights[pool.rows].to(z)
        problem = Problem(z, picked, dims, self.affine, self.trim, generator, blocks.dim)
        if not isinstance(init, str):
            return self._given(init, blocks, problem.dims, weights)

        def report(done: int, most: int, starts: int, objective: float) -> None:
            about = {"round": done, "rounds": most, "starts": starts, "samples": len(z)}
            self.run.record(stage="search", **about, objective=objective * scale**2)

        drawn, graph = RACED[init] if self.n_clusters > 1 else (True, False)
        given = None
        if graph:
            from kscn.neighbours.starts import graph_start  # and with it all of scikit-learn

            given = graph_start(problem)
        found = find_start(problem, self.n_init, report, given, drawn)
        found = self.run.group.agree_on(found)
        if isinstance(self.subspace_dim, str):
            found = self._adapt_dims(pooled, found)
        found = pooled.back(found)
        offsets = None if found.offsets is None else found.offsets * scale
        return Subspaces(found.bases, offsets)

    @property
    def _usual_dim(self) -> int:
        if isinstance(self.subspace_dim, str):
            return USUAL_DIM
        return int(np.max(self.subspace_dim))

    def _dims(self, pooled: Coordinates, generator: torch.Generator) -> Tensor:
        """Dimensions to search for, shape (k,).

        "auto" reads them off the clusters of the neighbour graph, which are purer than any that
        k-subspaces finds before it knows the dimensions. Twice, since the second graph is better.
        """
        k = self.n_clusters
        if not isinstance(self.subspace_dim, str):
            dims = torch.as_tensor(np.broadcast_to(self.subspace_dim, (k,)).copy())
            return dims.long()
        z = pooled.z
        if k == 1:
            everyone = torch.zeros(len(z), dtype=torch.long, device=z.device)
            return self._own_dims(pooled, everyone).cpu()
        from kscn.neighbours.starts import graph_rows, neighbour_clusters

        part = pooled[torch.randperm(len(z), generator=generator)[: graph_rows(k)].to(z.device)]
        usual = None
        for _ in range(2):
            labels = neighbour_clusters(
                part.z, k, usual, affine=self.affine, seed=self.run.seed % 2**31
            )
            dims = self._own_dims(part, torch.from_numpy(labels).long().to(z.device)).cpu()
            usual = int(dims.median())
        return dims

    def _adapt_dims(self, pooled: Coordinates, found: Subspaces) -> Subspaces:
        """Give each subspace the dimension that the spectrum of its members speaks for."""
        labels, distance = found.assign(pooled.z)
        members = trimmed(labels, distance, self.trim, found.n_clusters)
        sums = self._sums(pooled.z, members)
        dims = self._own_dims(pooled, members)
        dims = torch.where(sums.weight > found.dims, dims, found.dims)  # too few members to tell
        return sums.subspaces(dims).to(torch.float32)

    def _own_dims(self, pooled: Coordinates, members: Tensor) -> Tensor:
        """The dimension (k,) that the spectrum of each cluster's members speaks for.

        Constants say nothing about clusters, but their energy would hide that of all else. A linear
        subspace needs one dimension for them; an affine one has them in its offset.
        """
        varying, constants = pooled.varying()
        sums = self._sums(varying.z, members)
        dims, known = varying.dims(sums, members), sums.weight > 1
        usual = float(dims[known].double().quantile(0.5)) if known.any() else 1.0
        dims = torch.where(known, dims, round(usual))
        least, most = (max(1, round(usual * by)) for by in (1 / SPREAD, SPREAD))
        return dims.clamp(least, most) + int(constants and not self.affine)

    def _sums(self, z: Tensor, members: Tensor) -> ScatterSums:
        sums = ScatterSums(self.n_clusters, z.shape[1], self.affine, z.device)
        sums.add(z, members)
        return sums

    def _given(
        self, init: NDArray, blocks: Blocks, dims: Tensor, weights: Tensor | None
    ) -> Subspaces:
        """The start that `init` holds as labels or bases."""
        first, n = place(blocks.source)
        k, d, p = self.n_clusters, blocks.dim, int(dims.max())
        array = np.asarray(init)
        if array.dtype.kind not in "biuf":
            raise InputError(
                f"init must be one of {', '.join(RACED)}, or an array of labels or bases, "
                f"not {type(self.init).__name__}."
            )
        given = torch.as_tensor(array.copy())
        if given.ndim == 1:
            check.given_labels(array, n, k)
            given = given.long()
            sums = ScatterSums(k, d, self.affine, blocks.device)
            for where, z in blocks:
                check_finite(z.square().sum(dim=1), blocks.source.name, first + where)
                part = slice(first + where, first + where + len(z))
                sums.add(z.double(), given[part], None if weights is None else weights[part])
            return self.run.group.sum_scatter(sums).subspaces(dims)
        if given.shape != (k, d, p):
            raise InputError(
                f"init has shape {tuple(given.shape)}; labels have shape ({n},) and bases "
                f"({k}, {d}, {p})."
            )
        if not given.isfinite().all():
            raise InputError("init holds NaN or infinity; bases must be finite.")
        used = torch.arange(given.shape[2]) < dims[:, None]
        bases = orthonormal(given.double()) * used[:, None]
        if not self.affine:
            return Subspaces(bases)
        return Subspaces(bases, torch.zeros(bases.shape[:2], dtype=torch.float64))


def trimmed(labels: Tensor, distance: Tensor, trim: float, k: int) -> Tensor:
    """Labels with -1 for the farthest share `trim` of each cluster."""
    labels = labels.long()
    if trim == 0:
        return labels
    return torch.where(keep_nearest(distance, labels, trim, k), labels, -1)


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


@dataclass(frozen=True)
class Found:
    """What k-subspaces has found, with clusters in canonical order."""

    subspaces: Subspaces
    labels: NDArray  # of all samples (n,)
    inertia: float  # weighted sum of squared distances, without the samples that are trimmed
    sums: ScatterSums  # of the members of the clusters
    blocks: Blocks  # the samples of this process, in the coordinates of the subspaces


def k_subspaces(
    source: Source,
    search: StartSearch,
    *,
    max_iter: int = 100,
    tol: float = 1e-4,
    batch_size: int | None = None,
    weights: Tensor | None = None,
    stage: str = "fit",
) -> Found:
    """Search a start on a subsample, then iterate over all samples.

    `source` holds the samples of this process, `weights` (n,) are those of all processes.
    Iterations are recorded under the name `stage`; those of the stage "fit" are kept in states.
    """
    run = search.run
    dtype = working_dtype(source.dtype)
    pool = search.draw_pool(Blocks(source, dtype, run.device, batch_size=batch_size))
    blocks = Blocks(source, pool.z.dtype, run.device, pool.shift, batch_size)
    first, _ = place(source)
    own_weights = None if weights is None else weights[first : first + len(source)]

    def find() -> Result:
        found = search.find(blocks, pool, weights)
        parts = {"bases": found.bases, "offsets": found.offsets}
        return Result({}, {name: part for name, part in parts.items() if part is not None})

    kept = stage == "fit"
    begin = (run.once("search", find) if kept else find()).tensors
    start = Subspaces(begin["bases"], begin.get("offsets")).to(blocks.dtype, run.device)
    loop = Lloyd(blocks, start, trim=search.trim, weights=own_weights, pool=pool.z, run=run)

    def report(number: int, done: Iteration) -> bool:
        about = {"stage": stage, "iteration": number, "max_iter": max_iter}
        return run.record(**about, objective=done.objective, changed=done.changed)

    iterations = run.epochs(stage, max_iter, lloyd=loop) if kept else range(max_iter)
    loop.iterate(iterations, tol, report)
    found, sums, labels = loop.subspaces, loop.sums, loop.labels
    del loop  # bookkeeping per sample, before the final assignment makes its own
    result = in_order(blocks, found, run.group, labels, weights)
    inertia = _inertia(result, search, source, own_weights)
    sums = sums[result.order]
    return Found(result.subspaces, result.labels, inertia, sums, blocks)


def _inertia(found: Numbered, search: StartSearch, source: Source, weights: Tensor | None) -> float:
    first, _ = place(source)
    group, distance = search.run.group, found.distance.cpu()
    if search.trim > 0:
        labels = torch.from_numpy(found.labels[first : first + len(source)]).long()
        distance = distance * group.keep_nearest(distance, labels, search.trim, search.n_clusters)
    if weights is not None:
        distance = distance * weights
    return group.add(float(distance.sum()))[0]


def subspaces_of(
    source: Source,
    labels: NDArray,
    n_clusters: int,
    subspace_dim: int | Sequence[int] | str,
    run: Run,
) -> Subspaces:
    """The subspaces of given clusters: one iteration from their labels, and nothing more."""
    search = StartSearch(run, n_clusters, subspace_dim, init=labels)
    blocks = Blocks(source, working_dtype(source.dtype), run.device)
    pool = search.draw_pool(blocks)
    start = search.find(blocks, pool, None).to(blocks.dtype, run.device)
    loop = Lloyd(blocks, start, trim=0.0, weights=None, pool=pool.z, run=run)
    loop.iterate(range(1), 0.0, lambda *_: False)
    return in_order(blocks, loop.subspaces, run.group, loop.labels).subspaces
