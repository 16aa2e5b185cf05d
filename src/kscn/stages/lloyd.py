"""The k-subspaces loop: assign, update, repeat. Exact, out of core, skipping what cannot change.

Two accelerations, neither of which changes any label:

- *Moves*: scatter sums are kept between iterations; only samples that change cluster (or, with
  trimming, enter or leave the kept set) are added and subtracted.
- *Margins*: for each sample and cluster we keep a lower bound on how much farther that subspace is
  than the sample's own, in units of |z|^2. When subspace i turns from projector P to P', the
  residual changes by z^T (P - P') z, at most sin(largest angle) |z|^2. So margins shrink by known
  amounts, and while all margins of a sample are positive its label cannot change and it is not
  even read.
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
from kscn.subspaces import ScatterSums, Subspaces, largest_turn
from kscn.subspaces.seeding import rescue_empty


@dataclass(frozen=True)
class Rules:
    """The numbers of the loop."""

    # Margins cost 4 bytes per sample and cluster; samples beyond this many entries go without.
    margin_entries: int = 25_000_000
    rounding: float = 1e-5  # of a float32 residual relative to |z|^2, with room to spare
    # Above this share of active samples all are evaluated, which saves gathering them.
    gather_below: float = 0.7
    # Rows that change cluster are collected up to this many before their products are taken.
    moves_together: int = 16384
    # Samples of more columns than this are iterated with rough updates first: eigenvectors to nine
    # digits would take most of the time, and before the last iterations nobody needs them.
    narrow: int = 256
    rescues: int = 10  # how often empty clusters get a new place before they are left empty


RULES = Rules()


@dataclass(frozen=True)
class Iteration:
    """What one iteration did, for histories and progress."""

    number: int
    objective: float
    changed: float  # share of samples that changed cluster
    evaluated: float  # share of samples whose residuals were computed


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
    accelerate : bool
        False runs the plain loop: every residual and every sum anew, each iteration.
    product_dtype : torch.dtype
        Precision of the products in the scatter sums. In float64 the order in which samples come
        and go leaves no trace, so that the accelerated and the plain loop take the same path.
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
        accelerate: bool = True,
        product_dtype: torch.dtype = torch.float64,
        group: Group = ALONE,
        safe_points: SafePoints | None = None,
    ) -> None:
        n, k = len(blocks), start.n_clusters
        self.blocks, self.subspaces, self.trim = blocks, start, trim
        self.weights = None if weights is None else weights.to(blocks.device)
        self.pool, self.generator = pool.to(blocks.device), generator
        self.accelerate, self.product_dtype = accelerate, product_dtype
        self.group = group
        self.safe_points = SafePoints() if safe_points is None else safe_points
        self.affine = start.offsets is not None
        self.dims = start.dims.cpu()
        self.labels = torch.full((n,), -1, dtype=torch.int32, device=blocks.device)
        self.summed = False  # whether the sums hold all samples
        self.number = 0  # iterations done
        self.previous = np.inf  # objective of the last one
        self.exact = blocks.dim <= RULES.narrow  # whether updates are
        # With trimming, -1 for a sample beyond the cut.
        self.counted = self.labels.clone() if trim > 0 else self.labels
        self.distance = torch.empty(n if trim > 0 else 0, device=blocks.device)
        self.norms = torch.empty(n, dtype=blocks.dtype, device=blocks.device)
        self.unit = 0.0  # |z|^2 + unit is what margins are measured in; affine only
        rows = min(n, RULES.margin_entries // k) if accelerate and trim == 0 and k > 1 else 0
        self.margins = torch.zeros(rows, k, device=blocks.device)
        self.own = self._empty_sums()  # over our samples
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
                moved, evaluated = self._assign()
                rescued = self._rescue()
                objective = self._update()
                iterations.append(Iteration(self.number, objective, moved / n, evaluated / n))
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

    def _assign(self) -> tuple[float, float]:
        """Give every sample to its nearest subspace; return how many moved and were evaluated."""
        first = not self.summed
        if first and self.affine:
            self.unit = float(self.pool.square().sum(dim=1).mean())
        if not self.accelerate:
            frame, self.own = self.sums.frame, self._empty_sums()
            self.sums, self.sums.frame = self.own, frame
        moved: Tensor | int = 0
        evaluated = 0
        active, finite = self._active(), FiniteCheck(self.blocks.source.name)
        for where, z in self.blocks if active is None else self.blocks.where(active):
            index = slice(where, where + len(z)) if isinstance(where, int) else where
            if first:
                norms = z.square().sum(dim=1)
                finite(norms, z)
                self.norms[index] = norms
            old, new = self._assign_rows(index, z)
            moved = moved + (old != new).sum()
            evaluated += len(z)
            if self.trim > 0:
                continue  # who counts is known only when all distances are
            if first or not self.accelerate:
                self._add(z, new, index, 1.0)
                continue
            changed = (old != new).nonzero().flatten()
            if len(changed):
                rows = changed + where if isinstance(where, int) else where[changed]
                self._queue(z[changed], old[changed], new[changed], rows)
        finite.close()
        if self.trim > 0:
            self._recount()
        self._flush()
        self.summed = True
        self.sums = self.group.whole(self.own, self.sums)
        all_moved, all_evaluated = self.group.add(int(moved), evaluated)
        return all_moved, all_evaluated

    def _empty_sums(self) -> ScatterSums:
        return ScatterSums(
            self.subspaces.n_clusters, self.blocks.dim, self.affine, self.blocks.device
        )

    def _active(self) -> Tensor | None:
        """Samples whose label might change, or None when that is most of them."""
        covered = len(self.margins)
        if covered == 0 or not self.summed:
            return None
        active = torch.ones_like(self.labels, dtype=torch.bool)
        torch.le(self.margins.amin(dim=1), RULES.rounding, out=active[:covered])
        return active if active.float().mean() < RULES.gather_below else None

    def _assign_rows(self, index: slice | Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate these samples; return their labels before and after."""
        norms = self.norms[index]
        residual = self.subspaces.residuals(z, norms)
        nearest, label = residual.min(dim=1)
        before = self.labels[index].long()
        self.labels[index] = label.int()
        if self.trim > 0:
            self.distance[index] = nearest.float()
        covered = len(self.margins)
        if covered:
            gap = residual.sub_(nearest[:, None]).div_(
                (norms + self.unit).clamp_(min=1e-30)[:, None]
            )
            gap = gap.float().scatter_(1, label[:, None], torch.inf)
            if isinstance(index, slice):
                self.margins[index] = gap[: max(0, covered - index.start)]
            else:
                within = index < covered
                self.margins[index[within]] = gap[within]
        return before, label

    def _recount(self) -> None:
        """Trimming: decide who counts now and move those for whom that changed."""
        k = self.subspaces.n_clusters
        keep = self.group.keep_nearest(self.distance, self.labels, self.trim, k)
        counted = torch.where(keep, self.labels, -1)
        if not self.accelerate:
            self.counted = torch.full_like(self.labels, -1)  # sums begin anew
        for index, z in self.blocks.where(counted != self.counted):
            self._queue(z, self.counted[index].long(), counted[index].long(), index)
        self.counted = counted

    def _queue(self, z: Tensor, old: Tensor, new: Tensor, index: Tensor) -> None:
        """Note samples that go from cluster `old` to `new`; many together make larger products."""
        self.queue.append((z, old, new, index))
        if sum(len(entry[0]) for entry in self.queue) >= RULES.moves_together:
            self._flush()

    def _flush(self) -> None:
        if not self.queue:
            return
        z, old, new, index = (torch.cat(column) for column in zip(*self.queue, strict=True))
        self.queue.clear()
        self._add(z, new, index, 1.0)
        if self.accelerate:  # else nobody was anywhere before
            self._add(z, old, index, -1.0)

    def _add(self, z: Tensor, labels: Tensor, index: slice | Tensor, sign: float) -> None:
        weights = None if self.weights is None else self.weights[index]
        self.own.add(z.to(self.product_dtype), labels, weights, sign)

    # Update -------------------------------------------------------------------------------------

    def _rescue(self) -> bool:
        """Give empty clusters a new subspace; their next members then come by themselves."""
        weight = self.sums.weight
        empty = (weight <= 1e-12 * weight.sum()).nonzero().flatten()
        if len(empty) == 0 or self.rescues >= RULES.rescues:
            return False
        self.rescues += 1
        size = max(int(self.dims.max()) + 2, len(self.pool) // (3 * len(weight)))
        self._turn_to(rescue_empty(self.subspaces, empty, self.pool, size, self.generator))
        return True

    def _update(self) -> float:
        self._turn_to(self.sums.subspaces(self.dims, self.subspaces, self.exact))
        return self.sums.objective(self.subspaces.bases)

    def _turn_to(self, updated: Subspaces) -> None:
        """Replace the subspaces and shrink every margin by what the turn can have changed."""
        updated = self.group.agree_on(updated)
        if len(self.margins):
            drift = largest_turn(self.subspaces.bases, updated.bases)
            old, new = self.subspaces.offsets, updated.offsets
            if old is not None and new is not None:
                old, new = old.double(), new.double()
                drift = drift + (new - old).norm(dim=1) / self.unit**0.5
                drift = drift + (new.square().sum(1) - old.square().sum(1)).abs() / self.unit
            drift = drift.float()
            own = drift[self.labels[: len(self.margins)].long()]
            self.margins.sub_(drift).sub_(own[:, None])
        self.subspaces = updated
