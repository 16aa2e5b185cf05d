"""Epochs of mini-batch steps on an autoencoder, with or without a subspace loss beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from kscn.errors import TrainingError
from kscn.runtime.checkpoint import (
    SafePoints,
    State,
    prefixed,
)
from kscn.runtime.device import generator_state, seeded, set_generator_state
from kscn.runtime.group import ALONE, Group, send_module
from kscn.runtime.memory import kept_memory
from kscn.runtime.minibatches import Minibatches
from kscn.stages.losses import SubspaceLoss

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
SCHEDULES = ("constant", "one-cycle")
# Steps between two looks at the loss on another device than the CPU.
LOOK = 64


@dataclass
class EpochLosses:
    """Means over the samples of an epoch."""

    reconstruction: float
    subspace: float


class _Network(nn.Module):
    """All that a step passes through in one module, as DistributedDataParallel needs it."""

    def __init__(self, autoencoder: nn.Module, latent: nn.Module, reconstruct: bool) -> None:
        super().__init__()
        self.autoencoder, self.latent, self.reconstruct = autoencoder, latent, reconstruct

    def forward(self, x: Tensor, cluster: bool) -> tuple[Tensor | None, Tensor]:
        """What is restored of x, if anything, and its latents; with a gradient to `cluster`."""
        codes = self.autoencoder.encode(x)  # type: ignore[operator]
        restored = self.autoencoder.decode(codes) if self.reconstruct else None  # type: ignore[operator]
        z = self.latent(codes)
        return restored, z if cluster else z.detach()


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
        The samples of this process, in its share of every mini-batch.
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
    reconstruct : bool
        False leaves the reconstruction out; `autoencoder` then needs no decode.
    average : float, optional
        Weights are averaged over the steps, with what was before counting this much, and `encoding`
        holds the average.
    group : Group
        The processes that train together: each step is taken on all their batches.
    safe_points : SafePoints
        Reached between epochs, and in the middle of one where that is due.
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
        reconstruct: bool = True,
        average: float | None = None,
        group: Group = ALONE,
        safe_points: SafePoints | None = None,
    ) -> None:
        self.autoencoder = autoencoder
        self.latent = latent
        self.batches = batches
        self.augment = augment
        self.generator = generator
        self.stage = stage
        self.network = _Network(autoencoder, latent, reconstruct)
        self.averaged: AveragedModel | None = None
        if average is not None:
            both = nn.ModuleList([autoencoder, latent])
            self.average = average
            self.averaged = AveragedModel(both, multi_avg_fn=self._move, use_buffers=True)
        self.group = group
        self.safe_points = SafePoints() if safe_points is None else safe_points
        self.epochs_done = 0
        # Of the epoch that is going on: steps, sums of losses, samples, the generator's state when
        # it began, and that of torch's own where the epoch was interrupted.
        self.steps_done = 0
        self.totals, self.seen = self._nothing(), 0.0
        self.order = generator.get_state()
        self.dropout: list[Tensor] = []
        self.parameters = [*autoencoder.parameters(), *latent.parameters()]
        # One fused kernel for all parameters instead of a dozen small ones for each.
        self.optimizer = torch.optim.Adam(self.parameters, lr=learning_rate, fused=True)
        self.scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
        if schedule == "one-cycle":
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, learning_rate, total_steps=max(1, epochs * batches.per_epoch)
            )

    @property
    def encoding(self) -> tuple[nn.Module, nn.Module]:
        """The autoencoder and latent map to encode samples by: averaged, if an average is kept."""
        if self.averaged is None:
            return self.autoencoder, self.latent
        both = self.averaged.module
        assert isinstance(both, nn.ModuleList)
        return both[0], both[1]

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
        device, seed = self.batches.device, self.generator.initial_seed() + self.epochs_done
        with (
            kept_memory(device),
            seeded(seed, device),  # dropout and the like
        ):
            return self._epoch(loss if weight else None, weight, on_latents)

    def _epoch(
        self,
        loss: SubspaceLoss | None,
        weight: float,
        on_latents: Callable[[Tensor], object] | None,
    ) -> EpochLosses:
        network = self.group.wrap(self.network.train())
        for indices, clean in self._rest_of_epoch():
            restored, z = network(self.augment(clean, self.generator), loss is not None)
            samples = self._samples(len(clean))
            total = reconstruction = clean.new_zeros(())
            if restored is not None:
                # Summed over pixels: the balance with the subspace loss is per sample, as in the
                # paper.
                error = nn.functional.mse_loss(restored, clean, reduction="sum")
                total = reconstruction = error / samples
            subspace = None
            if loss is not None:
                subspace = loss(z, indices)
                total = reconstruction + weight * subspace
            self.optimizer.zero_grad(set_to_none=True)
            # Losses are shares that add up over processes; gradients become their mean.
            (self.group.size * total).backward()
            due = self.safe_points.due()
            shares = [total, reconstruction, clean.new_zeros(()) if subspace is None else subspace]
            figures = torch.stack([*shares, clean.new_full((), due)]).detach().double()
            figures = self.group.sum(figures)
            pause = due if self.group.size == 1 else bool(figures[3])
            self._check_loss(figures[0], now=pause)
            if on_latents is not None:
                on_latents(z.detach())
            self.optimizer.step()
            if self.scheduler is not None:
                self.scheduler.step()
            if self.averaged is not None:
                self.averaged.update_parameters(nn.ModuleList([self.autoencoder, self.latent]))
            self.totals += figures[1:3] * samples
            self.seen += samples
            self.steps_done += 1
            if pause:
                self.safe_points.reached()
        # Running statistics, which everyone but the first process has of its own batches.
        send_module(self.group, filter(None, [self.network, self.averaged]))
        self.epochs_done += 1
        self.steps_done = 0
        reconstruction_mean, subspace_mean = (self.totals / self.seen).tolist()
        return EpochLosses(reconstruction_mean, subspace_mean)

    def _check_loss(self, loss: Tensor, now: bool) -> None:
        """Refuse to go on with a loss that is no number.

        Elsewhere than on the CPU a look makes the device wait, so there is one every LOOK steps, at
        the end of an epoch, and `now`. In between nothing is lost: such a loss does not get well.
        """
        step = self.steps_done + 1
        looks = loss.device.type == "cpu" or step % LOOK == 0 or step == self.batches.per_epoch
        if (now or looks) and not math.isfinite(value := float(loss)):
            raise TrainingError(
                f"the loss became {value} in step {step} of epoch {self.epochs_done + 1} of "
                f"{self.stage}; lower learning_rate (or weight) and fit again."
            )

    def _nothing(self) -> Tensor:
        """Sums of losses, of no steps."""
        return torch.zeros(2, dtype=torch.float64, device=self.batches.device)

    def _move(self, averaged: Any, current: Any, _: Any) -> None:
        """Step of a moving average that forgets the first steps sooner: they were far away."""
        assert self.averaged is not None
        if averaged[0].is_floating_point():  # counters among the buffers have no average
            # Not the argument, which is on the device.
            passed = float(self.averaged.n_averaged)
            share = 1 - min(self.average, (1 + passed) / (10 + passed))
            torch._foreach_lerp_(averaged, current, share)

    def _samples(self, own: int) -> float:
        """Samples of this step in all processes, from our `own`; only the last has to be asked."""
        if self.steps_done < self.batches.per_epoch - 1:
            return own * self.group.size
        (samples,) = self.group.add(own)
        return samples

    def _rest_of_epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The mini-batches of an epoch, or those left of it when its state was written."""
        if self.steps_done == 0:
            self.order = self.generator.get_state()
            self.totals, self.seen = self._nothing(), 0.0
            yield from self.batches.shuffled(self.generator, self.group)
            return
        now = self.generator.get_state()
        self.generator.set_state(self.order)
        batches = self.batches.shuffled(self.generator, self.group)
        for _ in islice(batches, self.steps_done):
            pass
        self.generator.set_state(now)
        if self.dropout:
            torch.set_rng_state(self.dropout[0])
        if len(self.dropout) > 1:
            set_generator_state(self.dropout[1], self.batches.device)
        yield from batches

    # Checkpoints --------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything that further steps depend on, but for the generator of the whole fit."""
        facts: dict[str, Any] = {"epochs_done": self.epochs_done, "steps_done": self.steps_done}
        facts["rates"] = [[g["lr"], *g["betas"]] for g in self.optimizer.param_groups]
        if self.scheduler is not None:
            facts["schedule"] = self.scheduler.state_dict()
        tensors = {
            f"optimizer.{i}.{name}": value
            for i, entries in self.optimizer.state_dict()["state"].items()
            for name, value in entries.items()
        }
        for name, module in (("autoencoder", self.autoencoder), ("latent", self.latent)):
            tensors |= prefixed(name, module.state_dict())
        if self.averaged is not None:
            tensors |= prefixed("averaged", self.averaged.state_dict())
        if self.steps_done:
            facts["seen"] = self.seen
            tensors["totals"] = self.totals
            tensors["order"] = self.group.gather(self.order[None])
            tensors["dropout"] = self.group.gather(torch.get_rng_state()[None])
            own = generator_state(self.batches.device)
            if own is not None:
                tensors["device dropout"] = self.group.gather(own[None])
        return State(facts, tensors)

    def load_state_dict(self, state: State) -> None:
        """Go on from `state`."""
        for name, module in (("autoencoder", self.autoencoder), ("latent", self.latent)):
            module.load_state_dict(state.part(name))
        self.epochs_done, self.steps_done = state.facts["epochs_done"], state.facts["steps_done"]
        for group, (rate, *betas) in zip(
            self.optimizer.param_groups, state.facts["rates"], strict=True
        ):
            group["lr"], group["betas"] = rate, tuple(betas)
        if self.scheduler is not None:
            # Another number of processes may split an epoch into another number of steps.
            total = self.scheduler.state_dict()["total_steps"]
            saved = state.facts["schedule"]
            passed = round(saved["last_epoch"] * total / saved["total_steps"])
            kept = self.scheduler.state_dict() if total != saved["total_steps"] else saved
            self.scheduler.load_state_dict({**kept, "last_epoch": passed})
        for i, parameter in enumerate(self.parameters):
            for name, value in state.part(f"optimizer.{i}").items():
                # In the layout of the weights, which the fused kernel takes for granted.
                like = value if value.ndim == 0 else parameter
                held = torch.empty_like(like, dtype=value.dtype, device=parameter.device)
                held.copy_(value)
                self.optimizer.state[parameter][name] = held
        if self.averaged is not None:
            self.averaged.load_state_dict(state.part("averaged"))
        if self.steps_done:
            self.totals = state.tensors["totals"].to(self.batches.device)
            self.seen = state.facts["seen"]
            if self.group.rank < len(state.tensors["order"]):
                # Clones, because torch crashes on a generator's state that is a row of a tensor.
                self.order = state.tensors["order"][self.group.rank].clone()
                kept = (state.tensors.get(name) for name in ("dropout", "device dropout"))
                self.dropout = [
                    states[self.group.rank].clone() for states in kept if states is not None
                ]


def pretrain(trainer: Trainer, epochs: int, on_epoch: Callable[[int, EpochLosses], object]) -> None:
    """Train the autoencoder alone, up to `epochs`; `on_epoch` may return True to stop."""
    while trainer.epochs_done < epochs:
        losses = trainer.epoch()
        if trainer.group.any(on_epoch(trainer.epochs_done, losses) is True):
            break
        trainer.safe_points.reached()
