"""Mini-batch steps on a network: Adam, its schedule, an average of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from kscn.errors import TrainingError
from kscn.nn import DeepNetwork
from kscn.nn.network import part
from kscn.runtime.device import kept_memory, seeded
from kscn.runtime.group import send_module
from kscn.runtime.minibatches import Minibatches
from kscn.runtime.rows import generator
from kscn.training.driver import Run

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


class Batch(NamedTuple):
    """A process's part of a mini-batch."""

    rows: Tensor  # (b,), numbers among all samples
    clean: Tensor  # (b, ...), the samples
    seen: Tensor  # and as the network sees them: augmented
    samples: float  # in the whole mini-batch, of all processes


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
        self.augment, self.average = augment, average
        self.wrapped = run.group.wrap(network)
        # One fused kernel for all parameters instead of a dozen small ones for each.
        self.optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, fused=True)
        self.scheduler: torch.optim.lr_scheduler.OneCycleLR | None = None
        if schedule == "one-cycle":
            steps = max(1, epochs * batches.per_epoch)
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, learning_rate, total_steps=steps
            )
        self.averaged: AveragedModel | None = None
        if average is not None:
            self.averaged = AveragedModel(network, multi_avg_fn=self._move, use_buffers=True)
        self.epochs_done = 0
        self.totals = torch.zeros(3, dtype=torch.float64)

    @property
    def encoding(self) -> DeepNetwork:
        """The network to encode samples by: the averaged one, if an average is kept."""
        found = self.network if self.averaged is None else self.averaged.module
        assert isinstance(found, DeepNetwork)
        return found

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The mini-batches of an epoch; every one of them is to be followed by a `step`."""
        run, batches = self.run, self.batches
        self.totals = torch.zeros(3, dtype=torch.float64, device=run.device)
        self.wrapped.train()
        order = generator(run.seed, "order", self.stage, epoch)
        layers = generator(run.seed, "layers", self.stage, epoch).initial_seed()
        last = batches.per_epoch - 1
        with kept_memory(run.device), seeded(layers % 2**63, run.device):
            for step, (rows, clean) in enumerate(batches.shuffled(order)):
                drawn = generator(run.seed, "augment", self.stage, epoch, step, run.group.rank)
                samples = float(len(clean) * run.group.size)
                if step == last:  # the only one of which processes may have unlike parts
                    (samples,) = run.group.add(len(clean))
                seen = clean if self.augment is None else self.augment(clean, drawn)
                yield Batch(rows, clean, seen, samples)
        # Running statistics, which everyone but the first process has of its own batches.
        send_module(run.group, filter(None, [self.network, self.averaged]))
        self.epochs_done = epoch + 1

    def step(self, batch: Batch, reconstruction: Tensor, subspace: Tensor, weight: float) -> None:
        """Lower `reconstruction + weight * subspace`, of which the processes have a share each."""
        self.optimizer.zero_grad(set_to_none=True)
        total = reconstruction + weight * subspace
        # Losses are shares that add up over processes; gradients become their mean.
        (self.run.group.size * total).backward()
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        if self.averaged is not None:
            self.averaged.update_parameters(self.network)
        samples = reconstruction.new_full((), batch.samples)
        self.totals += torch.stack(
            [
                reconstruction.detach() * samples,
                subspace.detach() * samples,
                samples / self.run.group.size,
            ]
        )

    def losses(self) -> tuple[float, float]:
        """Means of the two losses over the samples of the epoch; refused if they are no numbers."""
        reconstruction, subspace, samples = self.run.group.sum(self.totals).tolist()
        if not math.isfinite(reconstruction + subspace):
            raise TrainingError(
                f"the loss is no number in epoch {self.epochs_done} of {self.stage}; lower "
                "learning_rate (or weight) and fit again."
            )
        return reconstruction / samples, subspace / samples

    def _move(self, averaged: Any, current: Any, _: Any) -> None:
        """Step of a moving average that forgets the first steps sooner: they were far away."""
        assert self.averaged is not None and self.average is not None
        if averaged[0].is_floating_point():  # counters among the buffers have no average
            # Not the argument, which is on the device.
            passed = float(self.averaged.n_averaged)
            kept = min(self.average, (1 + passed) / (10 + passed))
            get_ema_multi_avg_fn(kept)(averaged, current, _)

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
                like = value if value.ndim == 0 else parameter
                held = torch.empty_like(like, dtype=value.dtype, device=parameter.device)
                self.optimizer.state[parameter][name] = held.copy_(value)
        if self.scheduler is not None and self.epochs_done:
            # The rate is a function of the steps taken, of which an epoch has other numbers where
            # another number of processes goes on.
            self.scheduler.last_epoch = self.epochs_done * self.batches.per_epoch - 1
            self.optimizer._opt_called = True  # type: ignore[attr-defined]
            if self.scheduler.last_epoch + 1 < self.scheduler.total_steps:
                self.scheduler.step()
        if self.averaged is not None:
            self.averaged.load_state_dict(part(state, "averaged"))
