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

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from kscn.runtime.blocks import Blocks
from kscn.runtime.group import place
from kscn.runtime.labels import assign
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
        self.pool, self.dims = pool, start.dims.cpu()
        self.labels = torch.full((n,), -1, dtype=torch.int32, device=blocks.device)
        # With trimming, -1 for a sample beyond the cut.
        self.counted = self.labels.clone() if trim > 0 else self.labels
        affine = start.offsets is not None
        bounded = trim == 0 and not affine and n * k <= MARGINS
        self.margins = torch.zeros(n, k, device=blocks.device) if bounded else None
        self.own = ScatterSums(k, blocks.dim, affine, blocks.device)  # over our samples
        self.sums = self.own  # over all samples
        self.exact = blocks.dim <= NARROW  # whether updates are
        self.previous = np.inf  # objective of the iteration before
        self.rescues = 0

    def iterate(self, numbers: Iterable[int], tol: float, stage: str, max_iter: int) -> None:
        """Iterate until no label changes or the objective stands still, or to the end.

        `numbers` are those of the iterations, from 0 on, of `max_iter` that a `stage` has; those of
        a stage without a name are not recorded.
        """
        group = self.run.group
        for number in numbers:
            moved: float = self._assign() if self.trim == 0 else self._assign_trimmed()
            self.sums = group.sum_scatter(self.own)
            rescued, objective = self._rescue(), self._update()
            moved, n = group.add(moved, len(self.labels))
            about = {"stage": stage, "iteration": number + 1, "max_iter": max_iter}
            stop = stage != "" and self.run.record(**about, objective=objective, changed=moved / n)
            fallen = self.previous - objective
            still = not rescued and (moved == 0 or fallen < tol * self.previous)
            if group.any(stop or (still and self.exact)):
                break
            self.exact = group.any(self.exact or still)
            self.previous = np.inf if rescued else objective
        if not self.exact:
            self.exact = True
            self._update()

    # Assignment ---------------------------------------------------------------------------------

    def _assign(self) -> int:
        """Give every sample to its nearest subspace; return how many moved."""
        moved, energy = 0, torch.zeros((), dtype=torch.float64, device=self.blocks.device)
        for start, z in self.blocks:
            rows = self._open(start, len(z))
            if len(rows) < len(z):
                z = z.index_select(0, rows)
            index, norms = rows + start, z.square().sum(dim=1)
            energy += norms.sum(dtype=torch.float64)
            residual = self.subspaces.residuals(z, norms)
            nearest, new = residual.min(dim=1)
            if self.margins is not None:
                gap = residual.sub_(nearest[:, None]).div_(norms.clamp(min=1e-30)[:, None])
                self.margins[index] = gap.float().scatter_(1, new[:, None], torch.inf)
            moved += self._move(z, self.labels, new.int(), index)
        self.blocks.check(float(energy))
        return moved

    def _assign_trimmed(self) -> int:
        """The same, where who counts is known only when the distances of all are."""
        nearest = assign(self.blocks, self.subspaces)
        keep = self.run.group.keep_nearest(
            nearest.distance, nearest.labels, self.trim, self.subspaces.n_clusters
        )
        counted = nearest.labels.where(keep, -1)
        for start, z in self.blocks:
            index = torch.arange(start, start + len(z), device=z.device)
            self._move(z, self.counted, counted[index], index)
        moved = int((self.labels != nearest.labels).sum())
        self.labels = nearest.labels
        return moved

    def _open(self, start: int, count: int) -> Tensor:
        """Rows of a block whose label might change, or all where that is most of them."""
        everyone = torch.arange(count, device=self.blocks.device)
        if self.margins is None:
            return everyone
        rows = (self.margins[start : start + count].amin(dim=1) <= ROUNDING).nonzero().flatten()
        return rows if len(rows) < GATHERED * count else everyone

    def _move(self, z: Tensor, labels: Tensor, new: Tensor, index: Tensor) -> int:
        """Give samples, which are `index` of all, `new` labels and move them between the sums."""
        old = labels[index]
        rows = (old != new).nonzero().flatten()
        z, index = z[rows].double(), index[rows]
        weights = None if self.weights is None else self.weights[index]
        self.own.add(z, new[rows].long(), weights)
        self.own.add(z, old[rows].long(), weights, sign=-1.0)
        labels[index] = new[rows]
        return len(rows)

    # Update -------------------------------------------------------------------------------------

    def _rescue(self) -> bool:
        """Give empty clusters a new subspace; their next members then come by themselves."""
        weight = self.sums.weight
        empty = (weight <= 1e-12 * weight.sum()).nonzero().flatten()
        if len(empty) == 0 or self.rescues >= RESCUES:
            return False
        self.rescues += 1
        draws = generator(self.run.seed, "rescue", self.rescues)
        self._turn_to(rescue_empty(self.subspaces, empty, self.pool, draws))
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
        found = {"labels": gather(self.labels), "counted": gather(self.counted)}
        found["facts"] = torch.tensor(facts, dtype=torch.float64)
        return found | tensors_of(self.subspaces)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state`."""
        exact, self.previous, rescues = state["facts"].tolist()
        self.exact, self.rescues = bool(exact), int(rescues)
        found = Subspaces(state["bases"], state.get("offsets"))
        self.subspaces = found.to(self.blocks.dtype, self.blocks.device)
        first, _ = place(self.blocks.source)
        self.labels[:] = state["labels"][first : first + len(self.labels)]
        self.counted[:] = state["counted"][first : first + len(self.labels)]
        # There may be no iteration left, and what was found has sums all the same.
        filled(self.own, self.blocks, self.counted, self.weights)
        self.sums = self.run.group.sum_scatter(self.own)


def filled(
    sums: ScatterSums,
    blocks: Iterable[tuple[int, Tensor]],
    members: Tensor,
    weights: Tensor | None = None,
) -> ScatterSums:
    """The sums, after all samples were added to the clusters (n,) that they are members of."""
    for start, z in blocks:
        own = slice(start, start + len(z))
        sums.add(z.double(), members[own], None if weights is None else weights[own])
    return sums


def tensors_of(subspaces: Subspaces) -> dict[str, Tensor]:
    """Subspaces as a state holds them."""
    found = {"bases": subspaces.bases, "offsets": subspaces.offsets}
    return {name: tensor for name, tensor in found.items() if tensor is not None}
