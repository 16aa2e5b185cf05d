"""The k-subspaces loop: assign, update, repeat. Exact and out of core.

Scatter sums are kept between iterations: only samples that change cluster (or, with trimming, enter
or leave the kept set) are added and subtracted. Products are taken in float64, so that the order in
which samples come and go leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kscn.runtime.blocks import Blocks, FiniteCheck
from kscn.runtime.checkpoint import SafePoints, State
from kscn.runtime.device import kept_memory
from kscn.runtime.group import ALONE, Group, place
from kscn.subspaces import ScatterSums, Subspaces
from kscn.subspaces.seeding import rescue_empty

# Rows that change cluster are collected up to this many before their products are taken.
MOVES_TOGETHER = 16384
# Samples of more columns than this are iterated with rough updates first: eigenvectors to nine
# digits would take most of the time, and before the last iterations nobody needs them.
NARROW = 256
RESCUES = 10  # how often empty clusters get a new place before they are left empty


@dataclass(frozen=True)
class Iteration:
    """What one iteration did, for histories and progress."""

    number: int
    objective: float
    changed: float  # share of samples that changed cluster


@dataclass
class LloydResult:
    """Where the loop ended."""

    subspaces: Subspaces
    sums: ScatterSums
    iterations: list[Iteration]


class Lloyd:
    """State of one k-subspaces fit over `blocks`, the samples of this process.

    Parameters
    ----------
    pool : Tensor, shape (m, d)
        Samples from which an empty cluster gets a new subspace; the generator draws them.
    """

    def __init__(
        self,
        blocks: Blocks,
        start: Subspaces,
        *,
        trim: float,
        weights: Tensor | None,
        pool: Tensor,
        generator: torch.Generator,
        group: Group = ALONE,
        safe_points: SafePoints | None = None,
    ) -> None:
        n, k = len(blocks), start.n_clusters
        self.blocks, self.subspaces, self.trim = blocks, start, trim
        self.weights = None if weights is None else weights.to(blocks.device)
        self.pool, self.generator = pool.to(blocks.device), generator
        self.group = group
        self.safe_points = SafePoints() if safe_points is None else safe_points
        self.affine = start.offsets is not None
        self.dims = start.dims.cpu()
        self.labels = torch.full((n,), -1, dtype=torch.int32, device=blocks.device)
        self.summed = False  # whether the sums hold all samples
        self.number = 0  # iterations done
        self.previous = np.inf  # objective of the last one
        self.exact = blocks.dim <= NARROW  # whether updates are
        # With trimming, -1 for a sample beyond the cut.
        self.counted = self.labels.clone() if trim > 0 else self.labels
        self.distance = torch.empty(n if trim > 0 else 0, device=blocks.device)
        self.own = ScatterSums(k, blocks.dim, self.affine, blocks.device)  # over our samples
        self.sums = self.own  # over all samples
        self.queue: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self.rescues = 0

    def run(
        self, max_iter: int, tol: float, on_iteration: Callable[[Iteration], object]
    ) -> LloydResult:
        """Iterate until no label changes, the objective stands still, or max_iter is reached.

        `on_iteration` may return True to stop.
        """
        iterations = []
        (n,) = self.group.add(len(self.labels))
        with kept_memory(self.blocks.device):
            while self.number < max_iter:
                self.number += 1
                moved = self._assign()
                rescued = self._rescue()
                objective = self._update()
                iterations.append(Iteration(self.number, objective, moved / n))
                stop, still = on_iteration(iterations[-1]) is True, False
                if not rescued:
                    fallen = self.previous - objective
                    still = bool(np.isfinite(self.previous)) and fallen < tol * self.previous
                    still |= moved == 0
                if self.group.any(stop or (still and self.exact)):
                    break
                self.exact = self.group.any(self.exact or still)
                self.previous = np.inf if rescued else objective
                self.safe_points.reached()
            if not self.exact:
                self.exact = True
                self._update()
        return LloydResult(self.subspaces, self.sums, iterations)

    # Checkpoints --------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything that further iterations depend on; sums are made anew of the labels."""
        facts: dict[str, float] = {"iteration": self.number, "rescues": self.rescues}
        facts |= {"exact": self.exact, "objective": self.previous}
        tensors = {"bases": self.subspaces.bases, "labels": self.group.gather(self.labels)}
        if self.sums.frame is not None and not self.exact:
            tensors["frame"] = self.sums.frame.clone()  # which the next update writes to
        if self.subspaces.offsets is not None:
            tensors["offsets"] = self.subspaces.offsets
        tensors["rescue"] = self.generator.get_state()
        if not np.isfinite(self.previous):
            del facts["objective"]  # JSON has no infinity
        return State(facts, tensors)

    def load_state_dict(self, state: State) -> None:
        """Go on from `state`."""
        self.number, self.rescues = state.facts["iteration"], state.facts["rescues"]
        self.exact = state.facts["exact"]
        self.previous = state.facts.get("objective", np.inf)
        if "frame" in state.tensors:
            self.sums.frame = state.tensors["frame"].to(self.blocks.device)
        found = Subspaces(state.tensors["bases"], state.tensors.get("offsets"))
        self.subspaces = found.to(self.subspaces.bases.dtype, self.subspaces.bases.device)
        first, _ = place(self.blocks.source)
        self.labels[:] = state.tensors["labels"][first : first + len(self.labels)]
        self.generator.set_state(state.tensors["rescue"])

    # Assignment ---------------------------------------------------------------------------------

    def _assign(self) -> float:
        """Give every sample to its nearest subspace; return how many moved."""
        first = not self.summed
        moved: Tensor | int = 0
        finite = FiniteCheck(self.blocks.source.name)
        for start, z in self.blocks:
            index = slice(start, start + len(z))
            norms = z.square().sum(dim=1)
            if first:
                finite(norms, z)
            nearest, new = self.subspaces.residuals(z, norms).min(dim=1)
            old = self.labels[index].long()
            self.labels[index] = new.int()
            moved = moved + (old != new).sum()
            if self.trim > 0:  # who counts is known only when all distances are
                self.distance[index] = nearest.float()
            elif first:
                self._add(z, new, index, 1.0)
            else:
                changed = (old != new).nonzero().flatten()
                if len(changed):
                    self._queue(z[changed], old[changed], new[changed], changed + start)
        finite.close()
        if self.trim > 0:
            self._recount()
        self._flush()
        self.summed = True
        self.sums = self.group.whole(self.own, self.sums)
        return self.group.add(int(moved))[0]

    def _recount(self) -> None:
        """Trimming: decide who counts now and move those for whom that changed."""
        k = self.subspaces.n_clusters
        keep = self.group.keep_nearest(self.distance, self.labels, self.trim, k)
        counted = torch.where(keep, self.labels, -1)
        changed = counted != self.counted
        for start, z in self.blocks:
            rows = changed[start : start + len(z)].nonzero().flatten()
            if len(rows):
                index = rows + start
                self._queue(z[rows], self.counted[index].long(), counted[index].long(), index)
        self.counted = counted

    def _queue(self, z: Tensor, old: Tensor, new: Tensor, index: Tensor) -> None:
        """Note samples that go from cluster `old` to `new`; many together make larger products."""
        self.queue.append((z, old, new, index))
        if sum(len(entry[0]) for entry in self.queue) >= MOVES_TOGETHER:
            self._flush()

    def _flush(self) -> None:
        if not self.queue:
            return
        z, old, new, index = (torch.cat(column) for column in zip(*self.queue, strict=True))
        self.queue.clear()
        self._add(z, new, index, 1.0)
        self._add(z, old, index, -1.0)

    def _add(self, z: Tensor, labels: Tensor, index: slice | Tensor, sign: float) -> None:
        weights = None if self.weights is None else self.weights[index]
        self.own.add(z.double(), labels, weights, sign)

    # Update -------------------------------------------------------------------------------------

    def _rescue(self) -> bool:
        """Give empty clusters a new subspace; their next members then come by themselves."""
        weight = self.sums.weight
        empty = (weight <= 1e-12 * weight.sum()).nonzero().flatten()
        if len(empty) == 0 or self.rescues >= RESCUES:
            return False
        self.rescues += 1
        size = max(int(self.dims.max()) + 2, len(self.pool) // (3 * len(weight)))
        found = rescue_empty(self.subspaces, empty, self.pool, size, self.generator)
        self.subspaces = self.group.agree_on(found)
        return True

    def _update(self) -> float:
        found = self.sums.subspaces(self.dims, self.subspaces, self.exact)
        self.subspaces = self.group.agree_on(found)
        return self.sums.objective(self.subspaces.bases)
