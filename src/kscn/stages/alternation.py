"""The alternation of kSCN: the network follows the subspaces, the subspaces follow the data.

An epoch of mini-batches moves the network with the subspaces fixed. Then the subspaces move:

- *svd* (kSCN-S): encode everything, assign, drop each cluster's farthest members, take the leading
  directions of the rest.
- *grassmann* (kSCN-G): the gradient in every basis, gathered over the mini-batches while they pass,
  is projected on the tangent space; a step against it is brought back by QR.

Both need sums over samples only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from kscn.errors import InputError, TrainingError
from kscn.runtime.blocks import Blocks
from kscn.runtime.checkpoint import State
from kscn.runtime.folds import drawn
from kscn.runtime.group import place
from kscn.runtime.labels import Numbered, assign, in_order
from kscn.runtime.latents import Encoder, encode
from kscn.stages.lloyd import Lloyd
from kscn.stages.losses import LOSSES, ClusterLoss
from kscn.stages.pretrain import EpochLosses, Trainer
from kscn.subspaces import ScatterSums, Subspaces, largest_turn
from kscn.subspaces.grassmann import descend
from kscn.subspaces.seeding import rescue_empty

# Samples (about as many) kept at hand for a cluster that has lost all of its own.
POOL = 4096
# Latents gathered for the gradient before their products are taken: large products cost less.
TOGETHER = 4096
# Times as many on another device than the CPU, which has to wait for their clusters.
ON_DEVICE = 16
# Share of latents that may be zero: ReLU leaves a few, a collapsed network nearly all.
ZEROS = 0.5
# Share of the epochs in which clusters that were found elsewhere than in the latent are kept:
# the network learns them first. On MNIST's test images 0, 0.34, 0.75 and 0.85 had 94.8, 95.3,
# 95.7 and 96.2, the last in 15 epochs instead of 10.
HELD = 0.8


@dataclass
class Epoch:
    """What one epoch of the alternation did."""

    number: int
    reconstruction: float
    subspace: float
    objective: float  # sum over all samples of the squared distance to the nearest subspace
    relative: float  # the same as a share of the latents' squared norms
    changed: float  # share of samples that changed cluster
    sizes: list[int]
    angle: float  # largest principal angle that a subspace turned by, in degrees
    update_seconds: float  # moving the subspaces, with all that is gathered for it on the way
    seconds: float


@dataclass(eq=False)
class Alternation:
    """State of one kSCN fit after pretraining."""

    trainer: Trainer  # the network, its optimiser, the samples of this process and its group
    subspaces: Subspaces  # where to begin, in the latent space
    _: KW_ONLY
    update: str  # how subspaces follow: "svd", "grassmann", or "none", if they do not
    loss: str  # of `LOSSES`: what the subspaces ask of the network
    weight: float  # of that loss against the reconstruction
    # Share of each cluster's farthest members that neither move its subspace nor, where the loss
    # needs labels, teach the network.
    trim: float
    temperature: float  # these three of the loss
    balance: float
    shares: Tensor | None = None
    # Clusters of all samples (n,) that were found elsewhere than in the latent.
    found: Tensor | None = None

    def __post_init__(self) -> None:
        self.group = self.trainer.group
        self.before = self.subspaces
        self.encoder = Encoder(*self.trainer.encoding)
        self.sums = self._empty_sums()
        self.queue: list[Tensor] = []
        self.gather_seconds = 0.0
        on_cpu = self.trainer.batches.device.type == "cpu"
        self.together = TOGETHER * (1 if on_cpu else ON_DEVICE)
        self.finished = False
        if self.found is not None:
            self.found = self._own(self.found)

    def begin(self) -> None:
        """Assign all samples to the subspaces to begin with; or load a state instead."""
        with self._sound():
            self.latents = encode(self.trainer.batches, self.encoder)
            if self.found is not None and self.trainer.epochs_done == 0:
                self.subspaces = self.before = self._of_clusters(self.found)
            self._assign()

    def run(self, epochs: int, tol: float, on_epoch: Callable[[Epoch], object]) -> None:
        """Alternate until at most a share `tol` of the samples changes cluster, or `epochs` are up.

        `on_epoch` may return True to stop.
        """
        began = time.perf_counter()
        while self.trainer.epochs_done < epochs and not self.finished:
            old_labels = self.labels
            if self.trainer.steps_done == 0:
                self.before, self.targets = self.subspaces, self._targets()
            self.gather_seconds = 0.0
            # Not held beside those that come after; an epoch that was resumed has none.
            vars(self).pop("latents", None)
            losses = self._train()
            with self._sound():
                self.latents = encode(self.trainer.batches, self.encoder)
                update_began = time.perf_counter()
                if self.update == "svd":
                    self.subspaces = self._svd_update()
                elif self.update == "grassmann":
                    self._grassmann_step()
                update_seconds = self.gather_seconds + time.perf_counter() - update_began
                self._assign()
                if self.update == "grassmann":
                    self._rescue()
            turn = largest_turn(self.before.bases, self.subspaces.bases).max()
            moved = (self.labels != old_labels).sum()
            # All that the device has to be waited for, at once.
            own = torch.stack([turn, moved, self.distance.double().sum(), *self._own_sizes()])
            sine, *sums = own.tolist()
            changed, objective, *sizes, n = self.group.add(*sums, len(self.labels))
            done = Epoch(
                self.trainer.epochs_done,
                losses.reconstruction,
                losses.subspace,
                objective,
                self.relative,
                changed / n,
                [int(size) for size in sizes],
                math.degrees(math.asin(sine)),
                update_seconds,
                time.perf_counter() - began,
            )
            self.finished = self.group.any(on_epoch(done) is True or done.changed <= tol)
            if not self.finished:
                self.trainer.safe_points.reached()
        self.finished = True

    def numbered(self) -> Numbered:
        """What was found, with clusters in canonical order."""
        known = self.labels, self.distance
        return in_order(self._blocks(), self.subspaces, self.group, known)

    def _own_sizes(self) -> Tensor:
        """Members of each cluster in this process, (k,); bincount would make a device wait."""
        sizes = self.labels.new_zeros(self.subspaces.n_clusters)
        return sizes.index_add_(0, self.labels, torch.ones_like(self.labels))

    def _train(self) -> EpochLosses:
        gather = self._gather if self.update == "grassmann" else None
        return self.trainer.epoch(self._make_loss(), self.weight, gather)

    def _make_loss(self) -> ClusterLoss:
        make = LOSSES[self.loss]
        # Mini-batches are drawn from all samples.
        labels = self.group.gather(self.targets) if make.needs_labels else None
        return make(self.subspaces, labels, self.temperature, self.balance, self.group, self.shares)

    def _targets(self) -> Tensor:
        """The clusters that the network learns from in an epoch; -1 where it learns nothing."""
        if not LOSSES[self.loss].needs_labels:
            return self.labels
        if (kept := self._kept()) is not None:
            return kept
        k = self.subspaces.n_clusters
        keep = self.group.keep_nearest(self.distance, self.labels, self.trim, k)
        return torch.where(keep, self.labels, -1)

    def _kept(self) -> Tensor | None:
        """The clusters that the next epoch keeps to, if it does."""
        early = self.trainer.epochs_done < HELD * self.trainer.epochs
        return self.found if early else None

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """Latents that are no numbers are the network's fault: the samples are known to be."""
        try:
            yield
        except InputError:
            raise TrainingError(
                f"the latent is no longer finite after epoch {self.trainer.epochs_done} of "
                f"{self.trainer.stage}; lower learning_rate (or weight) and fit again."
            ) from None

    def _assign(self) -> None:
        found = assign(self._blocks(), self.subspaces, self.group)
        if found.zeros > ZEROS:
            raise TrainingError(
                f"the latent collapsed by epoch {self.trainer.epochs_done} of "
                f"{self.trainer.stage}: {found.zeros:.0%} of the samples have a latent of zero, "
                "which is in every subspace; lower weight or learning_rate and fit again."
            )
        self.labels = found.labels.long()  # they number the classes of a cross-entropy
        self.distance, self.relative = found.distance, found.relative

    def _blocks(self) -> Blocks:
        return Blocks(self.latents, torch.float32, self.trainer.batches.device)

    def _svd_update(self) -> Subspaces:
        if (kept := self._kept()) is not None:
            return self._of_clusters(kept)
        loop = Lloyd(
            self._blocks(),
            self.subspaces,
            trim=self.trim,
            weights=None,
            pool=self._pool(),
            generator=self.trainer.generator,
            group=self.group,
        )
        return loop.run(1, 0.0, lambda _: None).subspaces

    def _of_clusters(self, labels: Tensor) -> Subspaces:
        """The leading directions of clusters (n,), in their order."""
        sums, bases = self._empty_sums(), self.subspaces.bases
        for first, z in self._blocks():
            sums.add(z.double(), labels[first : first + len(z)])
        found = self.group.whole(sums, sums).subspaces(self.subspaces.dims)
        return self.group.agree_on(found.to(bases.dtype, bases.device))

    def _pool(self) -> Tensor:
        """Latents from which a cluster without members gets a new subspace."""
        first, n = place(self.trainer.batches.source)
        seed = self.group.agree_int(self.trainer.generator.initial_seed())
        some = drawn(torch.arange(first, first + len(self.latents)), seed, POOL, n)
        own = self._blocks().take(some.nonzero().flatten().numpy())
        return self.group.gather(own)

    # Checkpoints --------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything that goes on from here; less between epochs."""
        state = self.trainer.state_dict()
        state.facts["finished"] = self.finished
        state.tensors["bases"] = self.subspaces.bases
        if self.trainer.steps_done:
            queue = [self.subspaces.bases.new_zeros(0, self.subspaces.ambient_dim), *self.queue]
            state.tensors |= {
                "before": self.before.bases,
                "labels": self.group.gather(self.labels),
                "targets": self.group.gather(self.targets),
                "weight": self.group.sum(self.sums.weight),
                "second": self.group.sum(self.sums.second),
                "queue": self.group.gather(torch.cat(queue)),
            }
        return state

    def load_state_dict(self, state: State) -> None:
        """Go on from `state`. Within an epoch there are no latents: they are made at its end."""
        self.trainer.load_state_dict(state)
        self.finished = state.facts["finished"]
        bases = state.tensors["bases"].to(self.subspaces.bases)
        self.subspaces = self.before = Subspaces(bases)
        if not self.trainer.steps_done:
            self.begin()
            return
        self.before = Subspaces(state.tensors["before"].to(bases))
        self.labels = self._own(state.tensors["labels"])
        self.targets = self._own(state.tensors["targets"])
        if self.group.rank == 0:  # sums of all processes: somebody has to bring them in
            self.sums.weight += state.tensors["weight"].to(bases.device)
            self.sums.second += state.tensors["second"].to(bases.device)
            self.queue = [state.tensors["queue"].to(bases)]

    def _own(self, rows: Tensor) -> Tensor:
        """Of something that all samples have, what belongs to those of this process."""
        first, _ = place(self.trainer.batches.source)
        return rows[first : first + len(self.trainer.batches)].to(self.trainer.batches.device)

    # Grassmann ----------------------------------------------------------------------------------

    def _empty_sums(self) -> ScatterSums:
        k, d, _ = self.subspaces.bases.shape
        return ScatterSums(k, d, affine=False, device=self.subspaces.bases.device)

    def _gather(self, z: Tensor) -> None:
        """Take in a mini-batch."""
        began = time.perf_counter()
        self.queue.append(z)
        if sum(map(len, self.queue)) >= self.together:
            self._flush()
        self.gather_seconds += time.perf_counter() - began

    def _flush(self) -> None:
        """Add what was gathered to the sums of z z^T per cluster: the gradient is -2 A S."""
        z = torch.cat(self.queue)
        self.queue.clear()
        labels = self.subspaces.assign(z)[0].cpu()
        pieces = (rows.split(TOGETHER) for rows in (z, labels))
        for piece, own in zip(*pieces, strict=True):
            self.sums.add(piece, own)

    def _grassmann_step(self) -> None:
        if self.queue:
            self._flush()
        sums = self.group.whole(self.sums, self.sums)
        bases = descend(sums.second, self.subspaces.bases.double())
        self.subspaces = self.group.agree_on(Subspaces(bases.to(self.subspaces.bases.dtype)))
        self.sums = self._empty_sums()

    def _rescue(self) -> None:
        """A cluster without members has no gradient to leave its place by: give it a new one."""
        k = self.subspaces.n_clusters
        empty = (self.group.sum(self._own_sizes()) == 0).nonzero().flatten()
        if len(empty) == 0:
            return
        pool = self._pool()
        size = max(int(self.subspaces.dims.max()) + 2, len(pool) // (3 * k))
        rescued = rescue_empty(self.subspaces, empty, pool, size, self.trainer.generator)
        self.subspaces = self.group.agree_on(rescued)
        self._assign()
