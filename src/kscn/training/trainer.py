"""Mini-batch steps on a network: Adam, its schedule, an average of the weights."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ConstantLR, LRScheduler, OneCycleLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from kscn.errors import TrainingError
from kscn.nn import DeepNetwork
from kscn.nn.network import part
from kscn.runtime.blocks import Blocks
from kscn.runtime.device import seeded
from kscn.runtime.group import place, send_module
from kscn.runtime.minibatches import Minibatches, encode
from kscn.runtime.rows import generator
from kscn.training.driver import Run

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


class Batch(NamedTuple):
    """A process's part of a mini-batch."""

    rows: Tensor  # (b,), numbers among all samples
    clean: Tensor  # (b, ...), the samples
    seen: Tensor  # and as the network sees them: augmented
    samples: int  # in the whole mini-batch, of all processes


class Trainer:
    """A network under Adam, with steps that the processes of a run take together.

    Parameters
    ----------
    network : DeepNetwork
        What is trained.
    batches : Minibatches
        The samples of this process, in its share of every mini-batch.
    run : Run
        The fit.
    stage : str
        What this training is called in records and errors.
    epochs : int
        That the schedule of the learning rate spans.
    learning_rate : float
        Constant, or the peak of the cycle.
    schedule : {"constant", "one-cycle"}
        The cycle warms up and comes down to zero over the epochs.
    augment : callable
        Random changes of the input, (samples, generator) -> samples.
    average : float, optional
        The share of the average of the weights that a step leaves; without it none is kept.
    """

    def __init__(
        self,
        network: DeepNetwork,
        batches: Minibatches,
        run: Run,
        stage: str,
        *,
        epochs: int,
        learning_rate: float,
        schedule: str,
        augment: Augmentation | None,
        average: float | None = None,
    ) -> None:
        self.network, self.batches, self.run, self.stage = network, batches, run, stage
        self.augment = augment
        self.wrapped = run.group.wrap(network)
        # One fused kernel for all parameters instead of a dozen small ones for each.
        self.optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, fused=True)
        self.scheduler: LRScheduler = ConstantLR(self.optimizer, factor=1.0)
        if schedule == "one-cycle":
            steps = max(1, epochs * batches.per_epoch)
            self.scheduler = OneCycleLR(self.optimizer, learning_rate, total_steps=steps)
        self.averaged = None if average is None else averaged(network, average)
        # What encodes samples: the average, if one is kept.
        self.encoding: Any = network if self.averaged is None else self.averaged.module
        self.epochs_done = 0

    def latents(self) -> Blocks:
        """The latents of the samples of this process by the network as it is now."""
        return Blocks(encode(self.batches, self.encoding), torch.float32, self.run.device)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The mini-batches of an epoch; every one of them is to be followed by a `step`."""
        run, batches = self.run, self.batches
        (_, n), usual = place(batches.source), batches.batch_size * run.group.size
        zero = torch.zeros((), dtype=torch.float64, device=run.device)
        self._totals: dict[str, Tensor] = defaultdict(zero.clone)
        self._samples = 0
        self.wrapped.train()
        order = generator(run.seed, "order", self.stage, epoch)
        layers = generator(run.seed, "layers", self.stage, epoch).initial_seed()
        with seeded(layers % 2**63, run.device):
            for step, (rows, clean) in enumerate(batches.shuffled(order)):
                drawn = generator(run.seed, "augment", self.stage, epoch, step, run.group.rank)
                seen = clean if self.augment is None else self.augment(clean, drawn)
                samples = usual if step + 1 < batches.per_epoch else n - step * usual
                yield Batch(rows, clean, seen, samples)
        # Running statistics, which everyone but the first process has of its own batches.
        send_module(run.group, [self.network, self.encoding])
        self.epochs_done = epoch + 1

    def step(self, batch: Batch, loss: Tensor, **parts: Tensor) -> None:
        """Lower a loss, of which the processes have a share each; its `parts` are recorded."""
        self.optimizer.zero_grad(set_to_none=True)
        # Losses are shares that add up over processes; gradients become their mean.
        (self.run.group.size * loss).backward()
        self.optimizer.step()
        self.scheduler.step()
        if self.averaged is not None:
            self.averaged.update_parameters(self.network)
        self._samples += batch.samples
        for name, value in parts.items():
            self._totals[name] += value.detach() * batch.samples

    def losses(self) -> dict[str, float]:
        """Means of the parts of the loss over the samples of the epoch; refused if not finite."""
        totals = self.run.group.sum(torch.stack(list(self._totals.values()))).tolist()
        if not math.isfinite(sum(totals)):
            raise TrainingError(
                f"the loss is no number in epoch {self.epochs_done} of {self.stage}; lower "
                "learning_rate (or weight) and fit again."
            )
        names = list(self._totals)
        return {name: total / self._samples for name, total in zip(names, totals, strict=True)}

    # States -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that further epochs depend on, beside the weights of the network."""
        found = {"epochs": torch.tensor(self.epochs_done)}
        for number, entries in self.optimizer.state_dict()["state"].items():
            found |= {f"adam.{number}.{name}": value for name, value in entries.items()}
        if self.averaged is not None:
            found |= {f"averaged.{name}": v for name, v in self.averaged.state_dict().items()}
        return found

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state`."""
        self.epochs_done = int(state["epochs"])
        for number, parameter in enumerate(self.network.parameters()):
            for name, value in part(state, f"adam.{number}").items():
                # In the layout of the weights, which the fused kernel takes for granted.
                held = torch.empty_like(parameter).copy_(value) if value.ndim else value
                self.optimizer.state[parameter][name] = held.to(parameter.device)
        # The rate is a function of the steps taken, of which an epoch has other numbers where
        # another number of processes goes on.
        self.scheduler.last_epoch = self.epochs_done * self.batches.per_epoch - 1
        self.optimizer._opt_called = True  # type: ignore[attr-defined]
        self.scheduler.step()
        if self.averaged is not None:
            self.averaged.load_state_dict(part(state, "averaged"))


def averaged(network: DeepNetwork, share: float) -> AveragedModel:
    """A moving average of weights that forgets the first steps sooner: they were far away."""

    def move(mean: Any, now: Any, passed: Any) -> None:
        if mean[0].is_floating_point():  # counters among the buffers have no average
            steps = float(found.n_averaged)  # not `passed`, which is on the device
            get_ema_multi_avg_fn(min(share, (1 + steps) / (10 + steps)))(mean, now, passed)

    found = AveragedModel(network, multi_avg_fn=move, use_buffers=True)
    return found
