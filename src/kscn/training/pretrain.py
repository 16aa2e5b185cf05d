"""Epochs of mini-batch steps on an autoencoder, with or without a subspace loss beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kscn.errors import TrainingError
from kscn.training.losses import SubspaceLoss
from kscn.training.memory import kept_memory
from kscn.training.minibatches import Minibatches

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
SCHEDULES = ("constant", "one-cycle")


@dataclass
class EpochLosses:
    """Means over the samples of an epoch."""

    reconstruction: float
    subspace: float


class Trainer:
    """An autoencoder and its latent map under Adam.

    The loss of a sample is |x - decoded|^2 (summed over pixels) plus `weight` times its subspace
    loss; a step takes the mean over the mini-batch. The network may see augmented samples, but it
    always has to restore the clean ones.

    Parameters
    ----------
    autoencoder, latent : nn.Module
        `autoencoder` has encode and decode; `latent` maps codes to the latents clustered.
    batches : Minibatches
        The samples.
    epochs : int
        How many epochs the schedule of the learning rate spans.
    learning_rate : float
        Of Adam: constant, or the peak of the cycle.
    schedule : {"constant", "one-cycle"}
        "one-cycle" warms up and comes down to zero over `epochs`.
    augment : callable (batch, generator) -> batch
        Random changes of the input.
    generator : torch.Generator
        Draws the order of the samples and the augmentation.
    stage : str
        What this training is called in errors.
    """

    def __init__(
        self,
        autoencoder: nn.Module,
        latent: nn.Module,
        batches: Minibatches,
        *,
        epochs: int,
        learning_rate: float,
        schedule: str,
        augment: Augmentation,
        generator: torch.Generator,
        stage: str,
    ) -> None:
        self.autoencoder = autoencoder
        self.latent = latent
        self.batches = batches
        self.augment = augment
        self.generator = generator
        self.stage = stage
        self.epochs_done = 0
        parameters = [*autoencoder.parameters(), *latent.parameters()]
        # One fused kernel for all parameters instead of a dozen small ones for each.
        self.optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)
        self.scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
        if schedule == "one-cycle":
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, learning_rate, total_steps=max(1, epochs * batches.per_epoch)
            )

    @kept_memory()
    def epoch(
        self,
        loss: SubspaceLoss | None = None,
        weight: float = 0.0,
        on_latents: Callable[[Tensor], object] | None = None,
    ) -> EpochLosses:
        """One pass over the samples in random order.

        Parameters
        ----------
        loss : SubspaceLoss, optional
            With `weight` 0 or without it, the autoencoder alone is trained.
        weight : float
            What `loss` counts against the reconstruction.
        on_latents : callable, optional
            Sees the latents of every mini-batch (without gradient) before its step.
        """
        # Dropout and the like draw from torch's global generator: seeded, and then as it was.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.generator.initial_seed() + self.epochs_done)
            return self._epoch(loss if weight else None, weight, on_latents)

    def _epoch(
        self,
        loss: SubspaceLoss | None,
        weight: float,
        on_latents: Callable[[Tensor], object] | None,
    ) -> EpochLosses:
        self.autoencoder.train()
        self.latent.train()
        totals = torch.zeros(2, dtype=torch.float64)
        for step, (indices, clean) in enumerate(self.batches.shuffled(self.generator), start=1):
            codes = self.autoencoder.encode(self.augment(clean, self.generator))  # type: ignore[operator]
            restored: Tensor = self.autoencoder.decode(codes)  # type: ignore[operator]
            # Summed over pixels: the balance with the subspace loss is per sample, as in the paper.
            total = reconstruction = torch.nn.functional.mse_loss(
                restored, clean, reduction="sum"
            ) / len(clean)
            z = self.latent(codes)
            subspace = None
            if loss is not None:
                subspace = loss(z, indices)
                total = reconstruction + weight * subspace
            value = total.item()
            if value != value or value in (float("inf"), float("-inf")):
                raise TrainingError(
                    f"the loss became {value} in step {step} of epoch {self.epochs_done + 1} of "
                    f"{self.stage}; lower learning_rate (or weight) and fit again."
                )
            if on_latents is not None:
                on_latents(z.detach())
            self.optimizer.zero_grad(set_to_none=True)
            total.backward()
            self.optimizer.step()
            if self.scheduler is not None:
                self.scheduler.step()
            totals[0] += reconstruction.item() * len(clean)
            totals[1] += (0.0 if subspace is None else subspace.item()) * len(clean)
        self.epochs_done += 1
        reconstruction_mean, subspace_mean = (totals / len(self.batches)).tolist()
        return EpochLosses(reconstruction_mean, subspace_mean)


def pretrain(trainer: Trainer, epochs: int, on_epoch: Callable[[int, EpochLosses], object]) -> None:
    """Train the autoencoder alone; `on_epoch` may return True to stop."""
    for number in range(1, epochs + 1):
        if on_epoch(number, trainer.epoch()) is True:
            break
