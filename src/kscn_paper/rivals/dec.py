"""Deep embedded clustering (DEC; Xie et al., 2016) and IDEC (Guo et al., 2017), with its decoder.

Latents are softly assigned to centres by a Student t kernel; network and centres follow a sharper
version of these assignments, refreshed every few batches.
"""

import itertools
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kscn.constraints import Integer, Number, parameter
from kscn.data import Source
from kscn.errors import TrainingError
from kscn.nn import DeepNetwork, IdentityLatent
from kscn.runtime.blocks import Blocks
from kscn.runtime.device import keep_memory, seeded
from kscn.runtime.minibatches import Minibatches, encode
from kscn_paper.rivals.autoencoder import AutoencoderKMeans
from kscn_paper.rivals.base import sharpened


@dataclass(eq=False, repr=False, kw_only=True)
class TargetRival(AutoencoderKMeans):
    """What DEC and IDEC share: training towards a target that is refreshed every few batches.

    Parameters
    ----------
    update_every : int, default=140
        Mini-batches between two refreshes of the target.
    max_iter : int, default=140
        Most refreshes: 19,600 steps in all. The history has a record of each, with the share of
        labels `changed` since the one before.
    tol : float, default=1e-3
        Stop when a smaller share of the labels changed between two refreshes.
    learning_rate : float, default=1e-3
        Of Adam.

    Attributes
    ----------
    n_iter_ : int
        Refreshes of the target.
    """

    update_every: int = parameter(140, Integer(1))
    max_iter: int = parameter(140, Integer(0))
    tol: float = parameter(1e-3, Number(0, 1))
    learning_rate: float = parameter(1e-3, Number(0))

    @abstractmethod
    def _optimizer(self, network: Any, centres: nn.Parameter) -> torch.optim.Optimizer:
        """For what is trained."""

    @abstractmethod
    def _loss(self, network: Any, centres: Tensor, x: Tensor, target: Tensor) -> Tensor:
        """Of a mini-batch x with target (b, k)."""

    def _train(self, batches: Minibatches, centres: Tensor) -> Tensor:
        # Dropout and the like draw from torch's global generator: seeded, and then as it was.
        keep_memory()
        with seeded(self.random_state_, batches.device):
            return self._follow_targets(batches, centres)

    def _follow_targets(self, batches: Minibatches, centres: Tensor) -> Tensor:
        network = self.autoencoder_
        moving = nn.Parameter(centres.to(batches.device, torch.float32, copy=True))
        optimizer = self._optimizer(network, moving)
        generator = torch.Generator().manual_seed(self.random_state_)
        stream = (batch for _ in itertools.count() for batch in batches.shuffled(generator))
        labels: Tensor | None = None
        loss = torch.zeros((), dtype=torch.float64, device=batches.device)
        self.n_iter_ = 0
        for turn in range(self.max_iter + 1):
            q = soft_assignments(encode(batches, DeepNetwork(network, IdentityLatent())), moving)
            before, labels = labels, q.argmax(dim=1)
            if before is not None:
                changed = float((labels != before).double().mean())
                self.n_iter_ = turn
                self._record("fit", iteration=turn, objective=float(loss), changed=changed)
                if changed < self.tol:
                    break
            if turn == self.max_iter:
                break
            target = sharpened(q.double()).to(q.dtype)
            network.train()
            loss = torch.zeros_like(loss)
            for _ in range(self.update_every):
                indices, x = next(stream)
                step_loss = self._loss(network, moving, x, target[indices])
                optimizer.zero_grad(set_to_none=True)
                step_loss.backward()
                optimizer.step()
                loss += step_loss.detach() / self.update_every
            if not loss.isfinite():
                raise TrainingError(
                    f"the loss became {float(loss)} before refresh {turn + 1} of the target; lower "
                    "learning_rate and fit again."
                )
        network.eval()
        return moving.detach()


@dataclass(eq=False, repr=False, kw_only=True)
class DEC(TargetRival):
    """Deep embedded clustering: encoder and centres follow their own sharpened assignments.

    With q_ij, the Student t similarity of latent i and centre j normalised over centres, and the
    target p_ij proportional to q_ij^2 / sum_i q_ij, each step lowers KL(p || q), the mean over a
    mini-batch. The decoder is used in pretraining only. Centres start at those of k-means on the
    pretrained latent.

    Parameters
    ----------
    learning_rate : float, default=0.01
        Of stochastic gradient descent.
    momentum : float, default=0.9
        Of stochastic gradient descent.
    """

    learning_rate: float = parameter(0.01, Number(0))
    momentum: float = parameter(0.9, Number(0, 1))

    def _optimizer(self, network: Any, centres: nn.Parameter) -> torch.optim.Optimizer:
        trained = [*network.encoder.parameters(), centres]
        return torch.optim.SGD(trained, self.learning_rate, self.momentum)

    def _loss(self, network: Any, centres: Tensor, x: Tensor, target: Tensor) -> Tensor:
        return divergence(target, log_assignments(network.encode(x), centres))


@dataclass(eq=False, repr=False, kw_only=True)
class IDEC(TargetRival):
    """Improved deep embedded clustering: DEC that goes on restoring its samples.

    A step lowers gamma KL(p || q) plus the squared error of reconstruction, the mean over a
    mini-batch and over the numbers of a sample, with Adam.

    Parameters
    ----------
    gamma : float, default=0.1
        Weight of the divergence.
    """

    gamma: float = parameter(0.1, Number(0))

    def _optimizer(self, network: Any, centres: nn.Parameter) -> torch.optim.Optimizer:
        trained = [*network.parameters(), centres]
        return torch.optim.Adam(trained, self.learning_rate, fused=True)

    def _loss(self, network: Any, centres: Tensor, x: Tensor, target: Tensor) -> Tensor:
        z = network.encode(x)
        error = nn.functional.mse_loss(network.decode(z), x)
        return error + self.gamma * divergence(target, log_assignments(z, centres))


def log_assignments(z: Tensor, centres: Tensor) -> Tensor:
    """log q (n, k): latents z (n, m) belong to centres (k, m) by 1 / (1 + distance^2)."""
    apart = (z[:, None] - centres).square().sum(dim=2)
    return torch.log_softmax(-torch.log1p(apart), dim=1)


def divergence(target: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q), the mean over samples."""
    return nn.functional.kl_div(log_q, target, reduction="batchmean")


@torch.no_grad()
def soft_assignments(latents: Source, centres: Tensor) -> Tensor:
    """q (n, k) of all latents, on the device of the centres."""
    centres = centres.detach()
    blocks = Blocks(latents, centres.dtype, centres.device, batch_size=4096)
    return torch.cat([log_assignments(z, centres).exp() for _, z in blocks])
