"""EDESC (Cai et al., 2022): an autoencoder and k bases, trained together by soft assignment.

A latent z belongs to subspace j with the share

    s_j = (|D_j^T z|^2 + eta p) / sum_l (|D_l^T z|^2 + eta p),

and these shares are drawn to a sharper version of themselves, as in DEC: t_j in proportion to
s_j^2 / sum over samples of s_j. The bases D are parameters like any other, kept near orthonormal by
two terms of the loss.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor, nn

from kscn.constraints import POSITIVE, Integer, Number, check_value, parameter
from kscn.data import Source
from kscn.errors import TrainingError
from kscn.estimators import checks as check
from kscn.nn import DeepNetwork, IdentityLatent
from kscn.runtime.blocks import Blocks
from kscn.subspaces import ScatterSums
from kscn.subspaces.bases import rows_times
from kscn.training.driver import Run
from kscn.training.losses import squared_error
from kscn.training.trainer import Trainer
from kscn_paper.rivals.autoencoder import NetworkRival, train_alone
from kscn_paper.rivals.base import largest_first, sharpened, subsample


class Bases(IdentityLatent):
    """k bases D_j (k, d, p) beside the latent, so that they are trained with the network."""

    def __init__(self, bases: Tensor) -> None:
        super().__init__()
        self.bases = nn.Parameter(bases.clone())

    @property
    def flat(self) -> Tensor:
        """All bases side by side, (d, k p)."""
        k, d, p = self.bases.shape
        return self.bases.permute(1, 0, 2).reshape(d, k * p)

    def shares(self, z: Tensor, eta: float) -> Tensor:
        """The soft assignment of latents z (n, d), shape (n, k)."""
        k, _, p = self.bases.shape
        energies = rows_times(z, self.flat).unflatten(1, (k, p)).square().sum(dim=2)  # |D_j^T z|^2
        raised = energies + eta * p
        return raised / raised.sum(dim=1, keepdim=True)

    def norm_error(self) -> Tensor:
        """Root of the summed squares by which the columns' squared lengths differ from 1."""
        return torch.linalg.vector_norm(self.bases.square().sum(dim=1) - 1)

    def overlap(self) -> Tensor:
        """Root of the summed squares of inner products between columns of different bases."""
        inner = self.flat.mT @ self.flat
        k, _, p = self.bases.shape
        between = 1 - torch.block_diag(*torch.ones(k, p, p)).to(inner)
        return torch.linalg.vector_norm(inner * between)


def share_loss(
    bases: Bases, target: Tensor, *, beta: float, eta: float, orthogonality: float
) -> Callable[[Tensor, Tensor], Tensor]:
    """beta KL(target | shares) / k, plus `orthogonality` times what keeps the bases orthonormal.

    The target (n, k) is that of all samples; the loss is of latents (b, d) and their numbers (b,).
    """

    def loss(z: Tensor, indices: Tensor) -> Tensor:
        wanted, log_shares = target[indices], bases.shares(z, eta).log()
        # A mean over clusters too, as the authors have it.
        divergence = nn.functional.kl_div(log_shares, wanted, reduction="sum") / wanted.numel()
        # Norms and not their squares: bases begin with a common direction, so that squares would
        # outweigh all else and turn the bases faster than latents can follow.
        return beta * divergence + orthogonality * (bases.norm_error() + bases.overlap())

    return loss


@dataclass(eq=False, repr=False, kw_only=True)
class EDESC(NetworkRival):
    """Efficient deep embedded subspace clustering.

    A dense autoencoder is pretrained; its latents are clustered by k-means, and the leading
    directions of the clusters become k bases. Then network and bases minimise together

        mean squared error + beta KL(sharpened shares | shares) + orthogonality of the bases

    in mini-batches. Shares are sharpened anew after every epoch. Time is linear in the number of
    samples. Images are flattened.

    Parameters
    ----------
    subspace_dim : int, default=5
        Columns in a basis.
    hidden : sequence of int, default=(500, 500, 1000)
        Widths of the encoder's hidden layers; the decoder mirrors them.
    latent_dim : int or None, default=None
        Width of the latent; None takes `n_clusters * subspace_dim`.
    beta : float, default=0.1
        Weight of the divergence between shares and their target (a mean over all entries) against
        the reconstruction error (a mean over all features).
    eta : float, default=5.0
        Smooths the shares: larger is softer.
    orthogonality : float, default=1e-3
        Weight of the terms that keep columns at unit length and bases orthogonal to one another.
    n_init : int, default=20
        Starts of k-means.
    pool : int, default=10000
        Latents that k-means sees.
    pretrain_epochs : int, default=50
        Epochs of the autoencoder alone, each with a record in the history.
    epochs : int, default=50
        Epochs of network and bases together at most, likewise.
    tol : float, default=0.001
        Stop when no more than this share of samples changed cluster in an epoch.
    learning_rate : float, default=1e-3
        Of Adam while the autoencoder is pretrained.
    joint_learning_rate : float, default=1e-4
        Of Adam afterwards. With 1e-3, which the authors keep, its first steps turn the bases faster
        than latents follow: reconstruction gets worse, and many labels change at once.

    Attributes
    ----------
    bases_ : ndarray of shape (k, latent_dim, p)
        The bases, near orthonormal.
    n_iter_ : int
        Epochs of the second stage.

    Examples
    --------
    >>> from kscn import data
    >>> from kscn_paper.rivals.edesc import EDESC
    >>> digits = data.load("digits")
    >>> model = EDESC(10, pretrain_epochs=2, epochs=1, random_state=0)
    >>> model.fit_predict(digits.samples).shape
    (1797,)
    """

    subspace_dim: int = parameter(5, Integer(1))
    hidden: Sequence[int] = (500, 500, 1000)
    latent_dim: int | None = None
    beta: float = parameter(0.1, Number(0))
    eta: float = parameter(5.0, POSITIVE)
    orthogonality: float = parameter(1e-3, Number(0))
    n_init: int = parameter(20, Integer(1))
    pool: int = parameter(10_000, Integer(1))
    pretrain_epochs: int = parameter(50, Integer(0))
    epochs: int = parameter(50, Integer(0))
    tol: float = parameter(1e-3, Number(0))
    learning_rate: float = parameter(1e-3, POSITIVE)
    joint_learning_rate: float = parameter(1e-4, POSITIVE)

    def _check(self, n_samples: int) -> None:
        super()._check(n_samples)
        check_value("latent_dim", self.latent_dim, [None, Integer(self.subspace_dim)])

    def _latent_dim(self) -> int:
        return int(self.latent_dim or self.n_clusters * self.subspace_dim)

    def _fit(self, source: Source) -> None:
        self._eta = self.eta  # shares go by that of the fit, whatever is set later
        params = {"hidden": self.hidden, "latent_dim": self._latent_dim()}
        self._build_network("sae", params, source)
        train_alone(
            self.autoencoder_,
            self._batches(source),
            self.pretrain_epochs,
            self._record,
            learning_rate=self.learning_rate,
            seed=self.random_state_,
        )
        bases = self._start(source)
        self._train(source, bases)
        self.autoencoder_.eval()

        found = bases.bases.detach().cpu().numpy()
        self.bases_, self.labels_, _ = largest_first(
            found, lambda ordered: (self._labels_in(source, ordered), None)
        )

    def _start(self, source: Source) -> Bases:
        """Bases from the leading directions of the clusters that k-means finds."""
        latents, k = self._usable_latents(source), self.n_clusters
        device = check.device(self.device)
        rows = subsample(len(latents), self.pool, self.random_state_)
        means = KMeans(k, n_init=self.n_init, random_state=self.random_state_ % 2**31)
        means.fit(latents.take(rows))
        sums = ScatterSums(k, self._latent_dim(), affine=False, device=device)
        for _, z in Blocks(latents, torch.float32, device):
            sums.add(z.double(), torch.from_numpy(means.predict(z.cpu().numpy())).long())
        found = sums.subspaces(torch.full((k,), self.subspace_dim))
        return Bases(found.bases.float()).to(device)

    def _train(self, source: Source, bases: Bases) -> None:
        """The second stage: network and bases together."""
        batches = self._batches(source)
        trainer = Trainer(
            DeepNetwork(self.autoencoder_, bases),
            batches,
            Run(self.random_state_, batches.device),
            "training",
            epochs=self.epochs,
            learning_rate=self.joint_learning_rate,
            schedule="constant",
            augment=None,
        )
        # The trainer sums errors over features where the loss here takes their mean.
        weight = float(self.n_features_in_)
        weights = {"beta": self.beta, "eta": self.eta, "orthogonality": self.orthogonality}
        shares = self._shares(source, bases)
        labels = shares.argmax(dim=1)
        self.n_iter_ = 0
        for epoch in range(1, self.epochs + 1):
            loss = share_loss(bases, sharpened(shares), **weights)
            for batch in trainer.epoch(epoch):
                restored, z = trainer.wrapped(batch.seen)
                error = squared_error(restored, batch.clean, batch.samples)
                about = loss(z, batch.rows)
                total = error + weight * about
                trainer.step(batch, total, reconstruction=error, subspace=about)
            losses = trainer.losses()
            shares = self._shares(source, bases)
            changed = float((shares.argmax(dim=1) != labels).double().mean())
            labels = shares.argmax(dim=1)
            self.n_iter_ = epoch
            self._record(
                "fit",
                epoch=epoch,
                **losses,
                overlap=bases.overlap().item(),
                changed=changed,
            )
            if changed <= self.tol:
                break

    @torch.no_grad()
    def _shares(self, source: Source, bases: Bases) -> Tensor:
        """Shares of all samples, shape (n, k)."""
        latents = Blocks(self._latents(source), torch.float32, check.device(self.device))
        shares = torch.cat([bases.shares(z, self._eta) for _, z in latents])
        if not shares.isfinite().all():
            raise TrainingError(
                "the latent is no longer finite; lower learning_rate (or beta) and fit again."
            )
        return shares

    def _labels_in(self, source: Source, bases: NDArray) -> NDArray:
        """The subspace, of bases (k, d, p), with the largest share of every sample."""
        device = check.device(self.device)
        shares = self._shares(source, Bases(torch.from_numpy(bases)).to(device))
        return shares.cpu().numpy().argmax(axis=1).astype(np.int32)

    def predict(self, X: Any) -> NDArray:
        """The subspace with the largest share of every sample, shape (n,)."""
        return self._labels_in(self._opened(X), self.bases_)
