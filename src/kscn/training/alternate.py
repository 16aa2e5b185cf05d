"""The alternation of kSCN: the network lowers its loss, then the subspaces follow the latents.

Algorithm 1 (kSCN-S) updates the subspaces by a trimmed SVD of the members once per epoch,
algorithm 2 (kSCN-G) by a gradient step on the Grassmann manifold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kscn.errors import InputError, TrainingError
from kscn.runtime.blocks import Blocks
from kscn.runtime.group import place
from kscn.runtime.labels import Assignment, assign
from kscn.runtime.rows import generator, sample, sample_rows
from kscn.subspaces import ScatterSums, Subspaces, largest_turn
from kscn.subspaces.grassmann import descend
from kscn.subspaces.seeding import rescue_empty
from kscn.training.driver import Held, Run
from kscn.training.lloyd import filled
from kscn.training.losses import LOSSES, LossOptions, residual_loss, squared_error
from kscn.training.trainer import Trainer

STAGE = "fit"

# Mini-batches whose latents are added up together: large products cost less, and another device
# than the CPU has to wait for their clusters.
TOGETHER = 64
NONE = torch.empty(0)
# Latents that a cluster which has lost all of its own gets a subspace from.
POOL = 4096
# Share of latents that may be zero: ReLU leaves a few, a collapsed network nearly all.
ZEROS = 0.5
# Share of the epochs in which clusters that were found elsewhere than in the latent are kept:
# the network learns them first. On MNIST's test images 0, 0.34, 0.75 and 0.85 had 94.8, 95.3,
# 95.7 and 96.2, the last in 15 epochs instead of 10.
HELD = 0.8


@dataclass(frozen=True, kw_only=True)
class Options(LossOptions):
    """The settings of an alternation, and of its loss."""

    epochs: int
    update: str  # how subspaces follow: "svd" or "grassmann"
    weight: float  # of the subspace loss against the reconstruction
    loss: str  # of LOSSES
    trim: float = 0.0  # share of each cluster's farthest members that count for nothing
    tol: float = 0.0  # stop when no more than this share of the samples changes cluster


def alternate(
    trainer: Trainer, start: Subspaces, options: Options, run: Run, found: Tensor = NONE
) -> tuple[Subspaces, Tensor | None]:
    """kSCN from a pretrained network and subspaces S (k, d, p) in its latent space.

    Also the labels (n,) of the samples of this process, if there was an epoch left.

    `found` (n,) are clusters of the samples of this process, if they were found elsewhere than in
    the latent: the network learns them in the first epochs, and `start` only says how many
    dimensions their subspaces have.
    """
    loss, now, nearest = LOSSES[options.loss], Held(bases=start.bases), None
    held = math.ceil(HELD * options.epochs) if len(found) else 0
    for epoch in run.epochs(STAGE, options.epochs, trainer=trainer, subspaces=now):
        before = Subspaces(now["bases"])
        if nearest is None:  # the first epoch of a fit, new or resumed
            latents = trainer.latents()
            if epoch == 0 < held:
                before = of_members(latents, found, before, run)
            nearest = assign_latents(latents, before, trainer, run)
            del latents
        targets = NONE  # the paper's loss goes by what is nearest now
        if loss is not residual_loss:
            own = found if epoch < held else without_farthest(nearest, options.trim, run)
            targets = run.group.gather(own)  # mini-batches are drawn from all samples
        sums, seen = empty_sums(before), list[Tensor]()
        for batch in trainer.epoch(epoch):
            restored, z = trainer.wrapped(batch.seen)  # z (b, d)
            l_ae = squared_error(restored, batch.clean, batch.samples)
            wanted = targets[batch.rows.to(z.device)] if len(targets) else targets  # (b,)
            l_ksc = loss(z, before, wanted, batch.samples, options)
            total = l_ae + options.weight * l_ksc
            trainer.step(batch, total, reconstruction=l_ae, subspace=l_ksc)
            if options.update == "grassmann":
                seen.append(z.detach())
                if len(seen) == TOGETHER:
                    add_nearest(sums, before, seen)
        losses, latents = trainer.losses(), trainer.latents()
        if options.update == "grassmann":
            subspaces = grassmann_step(sums, seen, before, run)
        elif epoch + 1 < held:  # the next epoch learns them
            subspaces = of_members(latents, found, before, run)
        else:
            subspaces = svd_update(latents, before, options.trim, trainer, run)
        old, nearest = nearest, assign_latents(latents, subspaces, trainer, run)
        if epoch + 1 >= held and (nearest.sizes == 0).any():
            subspaces = rescued(latents, subspaces, nearest.sizes == 0, run)
            nearest = assign_latents(latents, subspaces, trainer, run)
        del latents
        now["bases"] = subspaces.bases
        (moved,) = run.group.add(int((nearest.labels != old.labels).sum()))
        changed = moved / int(nearest.sizes.sum())
        turn = float(largest_turn(before.bases, subspaces.bases).max())
        stop = run.record(
            stage=STAGE,
            epoch=epoch + 1,
            epochs=options.epochs,
            **losses,
            changed=changed,
            objective=nearest.objective,
            relative=nearest.relative,
            angle=math.degrees(math.asin(turn)),
            sizes=nearest.sizes.tolist(),
        )
        if run.group.any(stop or changed <= options.tol):
            break
    return Subspaces(now["bases"]), None if nearest is None else nearest.labels


def svd_update(
    latents: Blocks, subspaces: Subspaces, trim: float, trainer: Trainer, run: Run
) -> Subspaces:
    """kSCN-S: assign, leave out each cluster's farthest share, and take the SVD of the others."""
    nearest = assign_latents(latents, subspaces, trainer, run)
    return of_members(latents, without_farthest(nearest, trim, run), subspaces, run)


def of_members(latents: Blocks, members: Tensor, now: Subspaces, run: Run) -> Subspaces:
    """The top-p left singular vectors of the members (n,) of each cluster; -1 is in none.

    They are the leading eigenvectors of the scatter sums A_i = sum z z^T. A cluster without members
    keeps the subspace that it has `now`.
    """
    sums = filled(empty_sums(now), latents, members)
    return run.group.agree_on(run.group.sum_scatter(sums).subspaces(now.dims.cpu(), now))


def grassmann_step(
    sums: ScatterSums, seen: list[Tensor], subspaces: Subspaces, run: Run
) -> Subspaces:
    """kSCN-G: down the gradient -2 A_i S_i, along the tangent space, and back by QR."""
    add_nearest(sums, subspaces, seen)
    bases = descend(run.group.sum_scatter(sums).second, subspaces.bases.double())
    return run.group.agree_on(Subspaces(bases.to(subspaces.bases.dtype)))


def add_nearest(sums: ScatterSums, subspaces: Subspaces, seen: list[Tensor]) -> None:
    """Add the latents that were seen to the sums of their nearest subspaces, and forget them."""
    if seen:
        z = torch.cat(seen)
        sums.add(z, subspaces.assign(z)[0])
        seen.clear()


def empty_sums(like: Subspaces) -> ScatterSums:
    """Sums without members for as many clusters."""
    return ScatterSums(like.n_clusters, like.ambient_dim, affine=False, device=like.bases.device)


def without_farthest(nearest: Assignment, trim: float, run: Run) -> Tensor:
    """Labels (n,) with -1 for the farthest share `trim` of each cluster."""
    keep = run.group.keep_nearest(nearest.distance, nearest.labels, trim, len(nearest.sizes))
    return torch.where(keep, nearest.labels.long(), -1)


def rescued(latents: Blocks, subspaces: Subspaces, empty: Tensor, run: Run) -> Subspaces:
    """Each subspace without members (mask `empty`) goes to where samples are badly served."""
    rows = sample_rows(place(latents.source)[1], POOL, run.seed)
    pool = sample(latents.source, rows, run.device, run.group)
    draws = generator(run.seed, "rescue", len(run.history))
    found = rescue_empty(subspaces, empty.nonzero().flatten(), pool, draws)
    return run.group.agree_on(found)


def assign_latents(latents: Blocks, subspaces: Subspaces, trainer: Trainer, run: Run) -> Assignment:
    """The nearest subspace of every sample of this process; refused if latents are of no use."""
    when = f"epoch {trainer.epochs_done} of {trainer.stage}"
    try:
        nearest = assign(latents, subspaces, run.group)
    except InputError:  # the network's fault: the samples are known to be finite
        raise TrainingError(
            f"the latent is no longer finite after {when}; lower learning_rate (or weight) and "
            "fit again."
        ) from None
    if nearest.zeros > ZEROS:
        raise TrainingError(
            f"the latent collapsed by {when}: {nearest.zeros:.0%} of the samples have a latent of "
            "zero, which is in every subspace; lower weight or learning_rate and fit again."
        )
    return nearest
