"""The k-subspaces loop: assign, update, repeat. Exact and out of core.

Scatter sums are kept between iterations: only samples that change cluster (or, with trimming, enter
or leave the kept set) are added and subtracted. Products are taken in float64, so that the order in
which samples come and go leaves no trace.

Samples whose label cannot change are not evaluated. Of linear subspaces with projectors P_i the
residual r_i(z) = |z|^2 - z^T P_i z changes by z^T (P_i - P_i') z when the subspace turns, which is
at most t_i |z|^2, where t_i = |P_i - P_i'|_2 is the sine of the largest angle between the old and
the new one. If j is z's own, r_i - r_j therefore shrinks by no more than (t_i + t_j) |z|^2. The
*margins* are (r_i - r_j) / |z|^2 when z was last evaluated, less all turns since; while those of a
sample are positive, its own subspace is still the nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kscn.runtime.blocks import Blocks
from kscn.runtime.group import place
from kscn.runtime.rows import generator
from kscn.subspaces import ScatterSums, Subspaces, largest_turn
from kscn.subspaces.seeding import rescue_empty
from kscn.training.driver import Run

# Margins take 4 bytes per sample and cluster; beyond this many all samples are evaluated.
MARGINS = 25_000_000
ROUNDING = 1e-5  # of a residual in float32 as a share of |z|^2, with room to spare
GATHERED = 0.7  # share of a block above which all of it is evaluated, which saves gathering
# Samples of more columns than this are iterated with rough updates first: eigenvectors to nine
# digits would take most of the time, and before the last iterations nobody needs them.
NARROW = 256
RESCUES = 10  # how often empty clusters get a new place before they are left empty


@dataclass(frozen=True)
class Iteration:
    """What one iteration did."""

    objective: float
    changed: float  # share of samples that changed cluster
    rescued: bool  # whether a cluster without members got a new subspace


class Lloyd:
    """k-subspaces over `blocks`, the samples of this process.

    Parameters
    ----------
    blocks : Blocks
        The samples.
    start : Subspaces
        Where to begin.
    trim : float
        Share of each cluster's farthest members that do not move its subspace.
    weights : Tensor, shape (n,), optional
        Of the samples of this process.
    pool : Tensor, shape (m, d)
        Samples from which an empty cluster gets a new subspace.
    run : Run
        The fit.
    """

    def __init__(
        self,
        blocks: Blocks,
        start: Subspaces,
        *,
        trim: float,
        weights: Tensor | None,
        pool: Tensor,
        run: Run,
    ) -> None:
        n, k = len(blocks), start.n_clusters
        self.blocks, self.subspaces, self.trim, self.run = blocks, start, trim, run
        self.weights = None if weights is None else weights.to(blocks.device)
        self.pool = pool.to(blocks.device)
        self.dims = start.dims.cpu()
        self.labels = torch.full((n,), -1, dtype=torch.int32, device=blocks.device)
        # With trimming, -1 for a sample beyond the cut.
        self.counted = self.labels.clone() if trim > 0 else self.labels
        self.distance = torch.empty(n if trim > 0 else 0, device=blocks.device)
        affine = start.offsets is not None
        bounded = trim == 0 and not affine and n * k <= MARGINS
        self.margins = torch.zeros(n, k, device=blocks.device) if bounded else None
        self.own = ScatterSums(k, blocks.dim, affine, blocks.device)  # over our samples
        self.sums = self.own  # over all samples
        self.exact = blocks.dim <= NARROW  # whether updates are
        self.previous = np.inf  # objective of the iteration before
        self.rescues = 0

    def iterate(
        self, iterations: Iterable[int], tol: float, report: Callable[[int, Iteration], bool]
    ) -> None:
        """Iterate until no label changes or the objective stands still, or to the end.

        `report` is called with the number of each iteration, from 1, and what it did, and may
        return True to stop.
        """
        for number in iterations:
            done = self._iteration()
            stop, still = report(number + 1, done), False
            if not done.rescued:
                fallen = self.previous - done.objective
                still = bool(np.isfinite(self.previous)) and fallen < tol * self.previous
                still |= done.changed == 0
            if self.run.group.any(stop or (still and self.exact)):
                break
            self.exact = self.run.group.any(self.exact or still)
            self.previous = np.inf if done.rescued else done.objective
        if not self.exact:
            self.exact = True
            self._update()

    def _iteration(self) -> Iteration:
        moved = self._assign()
        rescued = self._rescue()
        objective = self._update()
        moved, n = self.run.group.add(moved, len(self.labels))
        return Iteration(objective, moved / n, rescued)

    # Assignment ---------------------------------------------------------------------------------

    def _assign(self) -> float:
        """Give every sample to its nearest subspace; return how many moved."""
        moved: Tensor | int = 0
        energy: Tensor | float = 0.0
        for start, z in self.blocks:
            rows = self._open(start, len(z))
            if len(rows) < len(z):
                z = z.index_select(0, rows)
            index, norms = rows + start, z.square().sum(dim=1)
            energy = energy + norms.sum(dtype=torch.float64)
            residual = self.subspaces.residuals(z, norms)
            nearest, new = residual.min(dim=1)
            if self.margins is not None:
                gap = residual.sub_(nearest[:, None]).div_(norms.clamp(min=1e-30)[:, None])
                self.margins[index] = gap.float().scatter_(1, new[:, None], torch.inf)
            old = self.labels[index].long()
            self.labels[index] = new.int()
            changed = (old != new).nonzero().flatten()
            moved = moved + len(changed)
            if self.trim > 0:  # who counts is known only when all distances are
                self.distance[index] = nearest.float()
            else:
                self._move(z[changed], old[changed], new[changed], index[changed])
        self.blocks.check(float(energy))
        if self.trim > 0:
            self._recount()
        self.sums = self.run.group.sum_scatter(self.own)
        return int(moved)

    def _open(self, start: int, count: int) -> Tensor:
        """Rows of a block whose label might change, or all where that is most of them."""
        everyone = torch.arange(count, device=self.blocks.device)
        if self.margins is None:
            return everyone
        rows = (self.margins[start : start + count].amin(dim=1) <= ROUNDING).nonzero().flatten()
        return rows if len(rows) < GATHERED * count else everyone

    def _recount(self) -> None:
        """Trimming: decide who counts now and move those for whom that changed."""
        k = self.subspaces.n_clusters
        keep = self.run.group.keep_nearest(self.distance, self.labels, self.trim, k)
        counted = torch.where(keep, self.labels, -1)
        for start, z in self.blocks:
            own = slice(start, start + len(z))
            rows = (counted[own] != self.counted[own]).nonzero().flatten()
            index = rows + start
            self._move(z[rows], self.counted[index].long(), counted[index].long(), index)
        self.counted = counted

    def _move(self, z: Tensor, old: Tensor, new: Tensor, index: Tensor) -> None:
        """Take samples out of the sums of clusters `old` and put them into `new`; -1 is none."""
        weights = None if self.weights is None else self.weights[index]
        z = z.double()
        self.own.add(z, new, weights)
        self.own.add(z, old, weights, sign=-1.0)

    # Update -------------------------------------------------------------------------------------

    def _rescue(self) -> bool:
        """Give empty clusters a new subspace; their next members then come by themselves."""
        weight = self.sums.weight
        empty = (weight <= 1e-12 * weight.sum()).nonzero().flatten()
        if len(empty) == 0 or self.rescues >= RESCUES:
            return False
        self.rescues += 1
        size = max(int(self.dims.max()) + 2, len(self.pool) // (3 * len(weight)))
        draws = generator(self.run.seed, "rescue", self.rescues)
        self._turn_to(rescue_empty(self.subspaces, empty, self.pool, size, draws))
        return True

    def _update(self) -> float:
        self._turn_to(self.sums.subspaces(self.dims, self.subspaces, self.exact))
        return self.sums.objective(self.subspaces.bases)

    def _turn_to(self, found: Subspaces) -> None:
        """Replace the subspaces, and take from the margins what the turn may have changed."""
        found = self.run.group.agree_on(found)
        if self.margins is not None:
            turn = largest_turn(self.subspaces.bases, found.bases).float()
            self.margins.sub_(turn).sub_(turn[self.labels.long()][:, None])
        self.subspaces = found

    # States -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that further iterations depend on; sums are made anew of the labels."""
        facts = [float(self.exact), self.previous, float(self.rescues)]
        gather = self.run.group.gather
        found = {"bases": self.subspaces.bases, "labels": gather(self.labels)}
        if self.trim > 0:
            found["counted"] = gather(self.counted)
        if self.subspaces.offsets is not None:
            found["offsets"] = self.subspaces.offsets
        return found | {"facts": torch.tensor(facts, dtype=torch.float64)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state`."""
        exact, self.previous, rescues = state["facts"].tolist()
        self.exact, self.rescues = bool(exact), int(rescues)
        found = Subspaces(state["bases"], state.get("offsets"))
        self.subspaces = found.to(self.subspaces.bases.dtype, self.subspaces.bases.device)
        first, _ = place(self.blocks.source)
        own = slice(first, first + len(self.labels))
        self.labels[:] = state["labels"][own]
        if self.trim > 0:
            self.counted[:] = state["counted"][own]
        # There may be no iteration left, and what was found has sums all the same.
        for start, z in self.blocks:
            index = torch.arange(start, start + len(z), device=self.blocks.device)
            labels = self.counted[index].long()
            self._move(z, torch.full_like(labels, -1), labels, index)
        self.sums = self.run.group.sum_scatter(self.own)
