"""Pretraining: epochs of mini-batch steps on an autoencoder.

The same steps, with a subspace loss beside the reconstruction, are half of the alternation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from kscn.errors import TrainingError
from kscn.model import SubspaceModel
from kscn.nn import network
from kscn.runtime.checkpoint import SafePoints, State, prefixed
from kscn.runtime.device import generator_state, kept_memory, seeded, set_generator_state
from kscn.runtime.group import ALONE, Group, send_module
from kscn.runtime.minibatches import Minibatches
from kscn.stages.losses import SubspaceLoss
from kscn.stages.run import Fit, Stage

LOOK = 64  # steps between two looks at the loss on another device than the CPU


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


@dataclass(eq=False)
class Trainer:
    """An autoencoder and its latent map under Adam.

    The loss of a sample is |x - decoded|^2 (summed over pixels) plus `weight` times its subspace
    loss; a step takes the mean over the mini-batch. The network may see augmented samples, but it
    always has to restore the clean ones.
    """

    autoencoder: nn.Module  # has encode and decode
    latent: nn.Module  # from codes to the latents that are clustered
    batches: Minibatches  # the samples of this process, in its share of every mini-batch
    _: KW_ONLY
    epochs: int  # that the schedule of the learning rate spans
    learning_rate: float  # constant, or the peak of the cycle
    schedule: str  # "constant", or "one-cycle": it warms up and comes down to zero over `epochs`
    generator: torch.Generator  # draws the order of the samples and the augmentation
    stage: str  # what this training is called in errors
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None  # changes of the input
    reconstruct: bool = True  # without it, `autoencoder` needs no decode
    average: float | None = None  # weights are averaged over steps: how much those before count
    group: Group = ALONE  # the processes that take each step together
    safe_points: SafePoints = field(default_factory=SafePoints)

    def __post_init__(self) -> None:
        self.network = _Network(self.autoencoder, self.latent, self.reconstruct)
        self.averaged: AveragedModel | None = None
        if self.average is not None:
            both = nn.ModuleList([self.autoencoder, self.latent])
            self.averaged = AveragedModel(both, multi_avg_fn=self._move, use_buffers=True)
        self.parameters = [*self.autoencoder.parameters(), *self.latent.parameters()]
        # One fused kernel for all parameters instead of a dozen small ones for each.
        self.optimizer = torch.optim.Adam(self.parameters, lr=self.learning_rate, fused=True)
        self.scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
        if self.schedule == "one-cycle":
            steps = max(1, self.epochs * self.batches.per_epoch)
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, self.learning_rate, total_steps=steps
            )
        self.epochs_done = 0
        # States of torch's own generators, where an epoch was interrupted.
        self.dropout: list[Tensor] = []
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.steps_done = 0
        self.totals = torch.zeros(2, dtype=torch.float64, device=self.batches.device)  # of losses
        self.seen = 0.0  # samples
        self.order = self.generator.get_state()  # which gives the same mini-batches again

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
        """One pass over the samples in random order, or what is left of it.

        Without `loss`, or with `weight` 0, the autoencoder alone is trained. `on_latents` sees the
        latents of every mini-batch (without gradient) before its step.
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
        wrapped = self.group.wrap(self.network.train())
        for indices, clean in self._rest_of_epoch():
            seen = clean if self.augment is None else self.augment(clean, self.generator)
            restored, z = wrapped(seen, loss is not None)
            samples = self._samples(len(clean))
            reconstruction = subspace = clean.new_zeros(())
            if restored is not None:
                # Summed over pixels: the balance with the subspace loss is per sample, as in the
                # paper.
                error = nn.functional.mse_loss(restored, clean, reduction="sum")
                reconstruction = error / samples
            if loss is not None:
                subspace = loss(z, indices)
            total = reconstruction + weight * subspace
            self.optimizer.zero_grad(set_to_none=True)
            # Losses are shares that add up over processes; gradients become their mean.
            (self.group.size * total).backward()
            due = self.safe_points.due()
            figures = torch.stack([total, reconstruction, subspace, clean.new_full((), due)])
            figures = self.group.sum(figures.detach().double())
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

        Elsewhere than on the CPU a look makes the device wait, so there is one now and then
        (`LOOK`), at the end of an epoch, and `now`. In between nothing is lost: such a loss
        does not get well.
        """
        step = self.steps_done + 1
        last = step == self.batches.per_epoch
        looks = loss.device.type == "cpu" or step % LOOK == 0 or last
        if (now or looks) and not math.isfinite(value := float(loss)):
            raise TrainingError(
                f"the loss became {value} in step {step} of epoch {self.epochs_done + 1} of "
                f"{self.stage}; lower learning_rate (or weight) and fit again."
            )

    def _move(self, averaged: Any, current: Any, _: Any) -> None:
        """Step of a moving average that forgets the first steps sooner: they were far away."""
        assert self.averaged is not None and self.average is not None
        if averaged[0].is_floating_point():  # counters among the buffers have no average
            # Not the argument, which is on the device.
            passed = float(self.averaged.n_averaged)
            kept = min(self.average, (1 + passed) / (10 + passed))
            get_ema_multi_avg_fn(kept)(averaged, current, _)

    def _samples(self, own: int) -> float:
        """Samples of this step in all processes, from our `own`; only the last has to be asked."""
        if self.steps_done < self.batches.per_epoch - 1:
            return own * self.group.size
        (samples,) = self.group.add(own)
        return samples

    def _rest_of_epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The mini-batches of an epoch, or those left of it when its state was written."""
        if self.steps_done == 0:
            self._begin_epoch()
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


class NetworkStage(Stage):
    """A stage that trains or uses the network of a model, by settings none of which is "auto"."""

    def __init__(
        self, model: SubspaceModel, batches: Minibatches, settings: Mapping[str, Any]
    ) -> None:
        self.model, self.batches, self.settings = model, batches, settings

    @property
    def network(self) -> nn.Module:
        """The autoencoder."""
        assert self.model.network is not None
        return self.model.network

    def _trainer(self, fit: Fit, epochs: int, stage: str) -> Trainer:
        use = self.settings
        return Trainer(
            self.network,
            self.model.latent,
            self.batches,
            epochs=epochs,
            learning_rate=use["learning_rate"],
            schedule=use["schedule"],
            augment=network.augmentation(use["augment"], self.model.shape),
            generator=fit.generator,
            stage=stage,
            group=fit.group,
            safe_points=fit.safe_points,
        )


class Pretrain(NetworkStage):
    """The autoencoder alone."""

    name = "pretrain"
    trainer: Trainer | None = None

    def run(self, fit: Fit) -> None:
        """Train for the epochs that are left."""
        epochs = self.settings["pretrain_epochs"]

        def report(number: int, losses: EpochLosses) -> bool:
            record = {"stage": "pretrain", "epoch": number, "epochs": epochs}
            return fit.record(record | {"reconstruction": losses.reconstruction})

        self.trainer = self._trainer(fit, epochs, "pretraining")
        if self.loaded is not None:
            self.trainer.load_state_dict(self.loaded)
        pretrain(self.trainer, epochs, report)
        self.trainer = None

    def state_dict(self) -> State:
        """That of the training; the network once it is over."""
        if self.trainer is not None:
            return self.trainer.state_dict()
        return State({}, prefixed("autoencoder", self.network.state_dict()))

    def load_state_dict(self, state: State) -> None:
        """Let `run` go on from here, or put back the network if training was over."""
        super().load_state_dict(state)
        if "epochs_done" not in state.facts and state.tensors:
            self.network.load_state_dict(state.part("autoencoder"))
