"""EDESC (Cai et al., 2022): an autoencoder and k bases, trained together by soft assignment.

`soft_subspaces` has the assignment and the loss, which is a mean over samples, so that mini-batches
do; here is the method around them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from kscn.baselines.autoencoder import NetworkBaseline
from kscn.baselines.base import largest_first, subsample
from kscn.baselines.constraints import Constraints, Integer, Number, check_value
from kscn.baselines.pretrained import train_alone
from kscn.baselines.soft_subspaces import Bases, ShareLoss, sharpened
from kscn.data import Source
from kscn.errors import InputError, TrainingError
from kscn.estimators import validation as check
from kscn.estimators.sums import check_size
from kscn.nn import DenseAutoencoder, InputScaling, NoAugmentation
from kscn.subspaces import ScatterSums
from kscn.training.blocks import Blocks
from kscn.training.device import seeded
from kscn.training.pretrain import Trainer

# Latents that k-means sees at the start.
POOL = 10_000


@dataclass(eq=False, repr=False)
class EDESC(NetworkBaseline):
    """Efficient deep embedded subspace clustering.

    A dense autoencoder is pretrained; its latents are clustered by k-means, and the leading
    directions of the clusters become k bases. Then network and bases minimise together

        mean squared error + beta KL(sharpened shares | shares) + orthogonality of the bases

    in mini-batches. Shares are sharpened anew after every epoch. Time is linear in the number of
    samples. Images are flattened.

    Parameters
    ----------
    n_clusters, device, random_state, callbacks
        As for all methods, see `kscn.baselines`.
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
    pretrain_epochs : int, default=50
        Epochs of the autoencoder alone.
    epochs : int, default=50
        Epochs of network and bases together at most.
    tol : float, default=0.001
        Stop when no more than this share of samples changed cluster in an epoch.
    batch_size : int, default=256
        Samples per step.
    learning_rate : float, default=1e-3
        Of Adam while the autoencoder is pretrained.
    joint_learning_rate : float, default=1e-4
        Of Adam afterwards. With 1e-3, which the authors keep, its first steps turn the bases faster
        than latents follow: reconstruction gets worse, and many labels change at once.

    Attributes
    ----------
    labels_, history_, random_state_, n_features_in_
        As for all methods; `labels_` equals `predict(X)`, the history has one record per epoch of
        both stages.
    bases_ : ndarray of shape (k, latent_dim, p)
        The bases, near orthonormal.
    autoencoder_ : nn.DenseAutoencoder
        With `encode` and `decode`, for samples scaled by `scaling_`.
    scaling_ : nn.InputScaling
        From samples to what the autoencoder takes.
    n_iter_ : int
        Epochs of the second stage.

    Examples
    --------
    >>> from kscn import data
    >>> from kscn.baselines.edesc import EDESC
    >>> digits = data.load("digits")
    >>> model = EDESC(10, pretrain_epochs=2, epochs=1, random_state=0)
    >>> model.fit_predict(digits.samples).shape
    (1797,)
    """

    subspace_dim: int = 5
    hidden: Sequence[int] = (500, 500, 1000)
    latent_dim: int | None = None
    beta: float = 0.1
    eta: float = 5.0
    orthogonality: float = 1e-3
    n_init: int = 20
    pretrain_epochs: int = 50
    epochs: int = 50
    tol: float = 1e-3
    learning_rate: float = 1e-3
    joint_learning_rate: float = 1e-4

    _constraints: ClassVar[Constraints] = {
        "subspace_dim": [Integer(1)],
        "beta": [Number(0)],
        "eta": [Number(0, closed="neither")],
        "orthogonality": [Number(0)],
        "n_init": [Integer(1)],
        "pretrain_epochs": [Integer(0)],
        "epochs": [Integer(0)],
        "tol": [Number(0)],
        "learning_rate": [Number(0, closed="neither")],
        "joint_learning_rate": [Number(0, closed="neither")],
    }

    def _check(self, n_samples: int) -> None:
        super()._check(n_samples)
        check_value("latent_dim", self.latent_dim, [None, Integer(self.subspace_dim)])
        check_size(self.n_clusters, self._latent_dim())

    def _latent_dim(self) -> int:
        if self.latent_dim is None:
            return int(self.n_clusters * self.subspace_dim)
        return int(self.latent_dim)

    def _fit(self, source: Source) -> None:
        generator = torch.Generator().manual_seed(self.random_state_)
        self._eta = self.eta  # shares go by that of the fit, whatever is set later
        scaling = InputScaling.of(source, image=len(source.shape) > 1)
        self._set_network(self._build(), scaling, (self.n_features_in_,))
        train_alone(
            self.autoencoder_,
            self._batches(source),
            epochs=self.pretrain_epochs,
            learning_rate=self.learning_rate,
            generator=generator,
            on_record=self._record,
        )
        bases = self._start(source)
        self._train(source, bases, generator)
        self.autoencoder_.eval()

        def assign(ordered: NDArray) -> tuple[NDArray, None]:
            return self._shares_of(source, ordered).argmax(axis=1).astype(np.int32), None

        found = bases.bases.detach().cpu().numpy()
        self.bases_, self.labels_, _ = largest_first(found, assign)

    def _build(self) -> DenseAutoencoder:
        # Not torch's global generator: the user's own random numbers stay as they were.
        with seeded(self.random_state_):
            try:
                return DenseAutoencoder(self.n_features_in_, self.hidden, self._latent_dim())
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"hidden={self.hidden!r} must be a sequence of positive integers ({error})."
                ) from None

    def _start(self, source: Source) -> Bases:
        """Bases from the leading directions of the clusters that k-means finds."""
        latents, k = self._usable_latents(source), self.n_clusters
        device = check.device(self.device)
        rows = subsample(len(latents), POOL, self.random_state_)
        means = KMeans(k, n_init=self.n_init, random_state=self.random_state_ % 2**31)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than k
            means.fit(latents.take(rows))
        sums = ScatterSums(k, self._latent_dim(), affine=False, device=device)
        for _, z in Blocks(latents, torch.float32, device):
            sums.add(z.double(), torch.from_numpy(means.predict(z.cpu().numpy())).long())
        found = sums.subspaces(torch.full((k,), self.subspace_dim))
        return Bases(found.bases.float()).to(device)

    def _train(self, source: Source, bases: Bases, generator: torch.Generator) -> None:
        """The second stage: network and bases together."""
        trainer = Trainer(
            self.autoencoder_,
            bases,
            self._batches(source),
            epochs=self.epochs,
            learning_rate=self.joint_learning_rate,
            schedule="constant",
            augment=NoAugmentation(),
            generator=generator,
            stage="training",
        )
        # The trainer sums errors over features where the loss here takes their mean.
        weight = float(self.n_features_in_)
        shares = self._shares(source, bases)
        labels = shares.argmax(dim=1)
        self.n_iter_ = 0
        for epoch in range(1, self.epochs + 1):
            loss = ShareLoss(
                bases,
                sharpened(shares),
                beta=self.beta,
                eta=self.eta,
                orthogonality=self.orthogonality,
            )
            losses = trainer.epoch(loss, weight)
            shares = self._shares(source, bases)
            changed = float((shares.argmax(dim=1) != labels).double().mean())
            labels = shares.argmax(dim=1)
            self.n_iter_ = epoch
            stop = self._record(
                {
                    "stage": "fit",
                    "epoch": epoch,
                    "epochs": self.epochs,
                    "objective": losses.reconstruction / weight + losses.subspace,
                    "reconstruction": losses.reconstruction,
                    "subspace": losses.subspace,
                    "norm_error": bases.norm_error().item(),
                    "overlap": bases.overlap().item(),
                    "changed": changed,
                    "sizes": torch.bincount(labels, minlength=self.n_clusters).tolist(),
                }
            )
            if stop or changed <= self.tol:
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

    def _shares_of(self, source: Source, bases: NDArray) -> NDArray:
        """Shares of all samples in given bases (k, d, p)."""
        device = check.device(self.device)
        return self._shares(source, Bases(torch.from_numpy(bases)).to(device)).cpu().numpy()

    def predict(self, X: Any) -> NDArray:
        """The subspace with the largest share of every sample, shape (n,)."""
        return self.predict_proba(X).argmax(axis=1).astype(np.int32)

    def predict_proba(self, X: Any) -> NDArray:
        """The shares of every sample in the subspaces, shape (n, k)."""
        return self._shares_of(self._opened(X), self.bases_)
