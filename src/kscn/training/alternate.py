"""The alternation of kSCN: the network lowers its loss, then the subspaces follow the latents.

Algorithm 1 (kSCN-S) updates the subspaces by a trimmed SVD of the members once per epoch,
algorithm 2 (kSCN-G) by a gradient step on the Grassmann manifold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kscn.errors import InputError, TrainingError
from kscn.runtime.blocks import Blocks
from kscn.runtime.group import place
from kscn.runtime.labels import Assignment, assign
from kscn.runtime.minibatches import encode
from kscn.runtime.rows import generator, sample, sample_rows
from kscn.subspaces import ScatterSums, Subspaces, largest_turn
from kscn.subspaces.grassmann import descend
from kscn.subspaces.seeding import rescue_empty
from kscn.training.driver import Run
from kscn.training.losses import LOSSES, LossOptions
from kscn.training.pretrain import squared_error
from kscn.training.trainer import Trainer

STAGE = "fit"

# Latents of mini-batches that are added up together: large products cost less, and another device
# than the CPU has to wait for their clusters.
TOGETHER, DEVICE_TOGETHER = 4096, 65536
# Latents (about as many) that a cluster which has lost all of its own gets a subspace from.
POOL = 4096
# Share of latents that may be zero: ReLU leaves a few, a collapsed network nearly all.
ZEROS = 0.5
# Share of the epochs in which clusters that were found elsewhere than in the latent are kept:
# the network learns them first. On MNIST's test images 0, 0.34, 0.75 and 0.85 had 94.8, 95.3,
# 95.7 and 96.2, the last in 15 epochs instead of 10.
HELD = 0.8


@dataclass(frozen=True)
class Options:
    """The settings of an alternation."""

    epochs: int
    update: str  # how subspaces follow: "svd" or "grassmann"
    weight: float  # of the subspace loss against the reconstruction
    loss: str  # of LOSSES
    about_loss: LossOptions = field(default_factory=LossOptions)
    trim: float = 0.0  # share of each cluster's farthest members that count for nothing
    tol: float = 0.0  # stop when no more than this share of the samples changes cluster


@dataclass
class Moving:
    """Subspaces that follow the latents, as part of the states of a fit."""

    subspaces: Subspaces

    def state_dict(self) -> dict[str, Tensor]:
        """Their bases."""
        return {"bases": self.subspaces.bases}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from other subspaces."""
        self.subspaces = Subspaces(state["bases"].to(self.subspaces.bases))


def alternate(
    trainer: Trainer, start: Subspaces, options: Options, run: Run, found: Tensor | None = None
) -> Subspaces:
    """kSCN from a pretrained network and subspaces S (k, d, p) in its latent space.

    `found` (n,) are clusters of the samples of this process that were found elsewhere than in the
    latent: the network learns them in the first epochs, and `start` only says how many dimensions
    their subspaces have.
    """
    loss, now = LOSSES[options.loss], Moving(start)
    nearest: Assignment | None = None
    for epoch in run.epochs(STAGE, options.epochs, trainer=trainer, subspaces=now):
        held = found if epoch < HELD * options.epochs else None
        if nearest is None:  # the first epoch of a fit, new or resumed
            latents = latent_blocks(trainer)
            if found is not None and epoch == 0:
                now.subspaces = of_clusters(latents, found, start, run)
            nearest = assign_latents(latents, now.subspaces, trainer, run)
            del latents
        before, old = now.subspaces, nearest
        targets = held
        if targets is None:
            targets = without_farthest(old, options.trim, before.n_clusters, run)
        targets = run.group.gather(targets)  # mini-batches are drawn from all samples
        sums, seen = empty_sums(before), list[Tensor]()
        for batch in trainer.epoch(epoch):
            restored, z = trainer.wrapped(batch.seen)  # z (b, d)
            l_ae = squared_error(restored, batch.clean, batch.samples)
            own = targets[batch.rows.to(targets.device)].to(z.device)
            l_ksc = loss(z, before, own, batch.samples, options.about_loss)
            trainer.step(batch, l_ae, l_ksc, options.weight)
            if options.update == "grassmann":
                add_nearest(sums, before, seen, z.detach())
        add_nearest(sums, before, seen)
        reconstruction, subspace = trainer.losses()
        latents = latent_blocks(trainer)
        if options.update == "grassmann":
            now.subspaces = grassmann_step(sums, now.subspaces, run)
        elif found is not None and epoch + 1 < HELD * options.epochs:  # the next epoch learns them
            now.subspaces = of_clusters(latents, found, before, run)
        else:
            now.subspaces = svd_update(latents, now.subspaces, options.trim, trainer, run)
        nearest = assign_latents(latents, now.subspaces, trainer, run)
        if options.update == "grassmann" and (nearest.sizes == 0).any():
            # A cluster without members has no gradient to leave its place by.
            now.subspaces = rescued(latents, now.subspaces, nearest.sizes == 0, run)
            nearest = assign_latents(latents, now.subspaces, trainer, run)
        del latents
        (moved,) = run.group.add(int((nearest.labels != old.labels).sum()))
        changed = moved / int(nearest.sizes.sum())
        turn = float(largest_turn(before.bases, now.subspaces.bases).max())
        done = {"reconstruction": reconstruction, "subspace": subspace, "changed": changed}
        done |= {"objective": nearest.objective, "relative": nearest.relative}
        done |= {"angle": math.degrees(math.asin(turn))}
        counted = {"epoch": epoch + 1, "epochs": options.epochs}
        stop = run.record(stage=STAGE, **counted, **done, sizes=nearest.sizes.tolist())
        if run.group.any(stop or changed <= options.tol):
            break
    return now.subspaces


def svd_update(
    latents: Blocks, subspaces: Subspaces, trim: float, trainer: Trainer, run: Run
) -> Subspaces:
    """kSCN-S: the top-p left singular vectors of each cluster's nearest members.

    They are the leading eigenvectors of the scatter sums A_i = sum z z^T, from which the farthest
    share `trim` of the members is left out.
    """
    nearest, dims = assign_latents(latents, subspaces, trainer, run), subspaces.dims.cpu()
    members = without_farthest(nearest, trim, subspaces.n_clusters, run)
    sums = of_members(latents, members, subspaces, run)
    empty = sums.weight.cpu() == 0
    if empty.any():
        subspaces = rescued(latents, subspaces, empty, run)
    return run.group.agree_on(sums.subspaces(dims, subspaces))


def grassmann_step(own: ScatterSums, subspaces: Subspaces, run: Run) -> Subspaces:
    """kSCN-G: down the gradient -2 A_i S_i, along the tangent space, and back by QR."""
    sums = run.group.sum_scatter(own)
    bases = descend(sums.second, subspaces.bases.double())
    return run.group.agree_on(Subspaces(bases.to(subspaces.bases.dtype)))


def add_nearest(
    sums: ScatterSums, subspaces: Subspaces, waiting: list[Tensor], more: Tensor | None = None
) -> None:
    """Add latents to the sums of their nearest subspaces, all that wait if there are no `more`."""
    if more is not None:
        waiting.append(more)
        together = TOGETHER if more.device.type == "cpu" else DEVICE_TOGETHER
        if sum(map(len, waiting)) < together:
            return
    if waiting:
        z = torch.cat(waiting)
        waiting.clear()
        labels = subspaces.assign(z)[0].cpu()
        for piece, own in zip(z.split(TOGETHER), labels.split(TOGETHER), strict=True):
            sums.add(piece, own)


def of_clusters(latents: Blocks, labels: Tensor, like: Subspaces, run: Run) -> Subspaces:
    """The leading directions of given clusters (n,), with the dimensions of others."""
    sums = of_members(latents, labels, like, run)
    found = sums.subspaces(like.dims.cpu())
    return run.group.agree_on(found.to(like.bases.dtype, like.bases.device))


def of_members(latents: Blocks, labels: Tensor, like: Subspaces, run: Run) -> ScatterSums:
    """Scatter sums over the samples of all processes; label -1 is left out."""
    sums = empty_sums(like)
    for first, z in latents:
        sums.add(z.double(), labels[first : first + len(z)])
    return run.group.sum_scatter(sums)


def empty_sums(like: Subspaces) -> ScatterSums:
    """Sums without members for as many clusters."""
    return ScatterSums(like.n_clusters, like.ambient_dim, affine=False, device=like.bases.device)


def without_farthest(nearest: Assignment, trim: float, k: int, run: Run) -> Tensor:
    """Labels (n,) with -1 for the farthest share `trim` of each cluster."""
    keep = run.group.keep_nearest(nearest.distance, nearest.labels, trim, k)
    return torch.where(keep, nearest.labels.long(), -1)


def rescued(latents: Blocks, subspaces: Subspaces, empty: Tensor, run: Run) -> Subspaces:
    """Each subspace without members (mask `empty`) goes to where samples are badly served."""
    rows = sample_rows(place(latents.source)[1], POOL, run.seed)
    pool = sample(latents.source, rows, run.device, run.group)
    size = max(int(subspaces.dims.max()) + 2, len(pool) // (3 * subspaces.n_clusters))
    which = empty.nonzero().flatten()
    draws = generator(run.seed, "rescue", len(run.history))
    return run.group.agree_on(rescue_empty(subspaces, which, pool, size, draws))


def latent_blocks(trainer: Trainer) -> Blocks:
    """The latents of the samples of this process by the network as it is now."""
    with _sound(trainer):
        latents = encode(trainer.batches, trainer.encoding)
    return Blocks(latents, torch.float32, trainer.batches.device)


def assign_latents(latents: Blocks, subspaces: Subspaces, trainer: Trainer, run: Run) -> Assignment:
    """The nearest subspace of every sample of this process; refused if latents have collapsed."""
    with _sound(trainer):
        nearest = assign(latents, subspaces, run.group)
    if nearest.zeros > ZEROS:
        raise TrainingError(
            f"the latent collapsed by epoch {trainer.epochs_done} of {trainer.stage}: "
            f"{nearest.zeros:.0%} of the samples have a latent of zero, which is in every "
            "subspace; lower weight or learning_rate and fit again."
        )
    return nearest


@contextmanager
def _sound(trainer: Trainer) -> Iterator[None]:
    """Latents that are no numbers are the network's fault: the samples are known to be."""
    try:
        yield
    except InputError:
        raise TrainingError(
            f"the latent is no longer finite after epoch {trainer.epochs_done} of "
            f"{trainer.stage}; lower learning_rate (or weight) and fit again."
        ) from None
