"""EDESC (Cai et al., 2022): an autoencoder and k bases, trained together by soft assignment.

`soft_subspaces` has the assignment and the loss, which is a mean over samples, so that mini-batches
do; here they are put behind scikit-learn's estimator interface.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from kscn.baselines.soft_subspaces import Bases, ShareLoss, sharpened
from kscn.data import Source
from kscn.errors import InputError, TrainingError
from kscn.estimators import validation as check
from kscn.estimators.labels import canonical_order
from kscn.estimators.sums import check_size
from kscn.estimators.telling import Telling, warn_of_empty
from kscn.nn import DenseAutoencoder, IdentityLatent, InputScaling, NoAugmentation
from kscn.subspaces import ScatterSums
from kscn.training.blocks import Blocks
from kscn.training.device import seeded
from kscn.training.latents import Encoder, encode, moments
from kscn.training.minibatches import Minibatches
from kscn.training.pretrain import EpochLosses, Trainer, pretrain

if TYPE_CHECKING:
    from typing_extensions import Self

# Latents that k-means sees at the start.
POOL = 10_000


class EDESC(Telling, ClusterMixin, BaseEstimator):
    """Efficient deep embedded subspace clustering.

    A dense autoencoder is pretrained; its latents are clustered by k-means, and the leading
    directions of the clusters become k bases. Then network and bases minimise together

        mean squared error + beta KL(sharpened shares | shares) + orthogonality of the bases

    in mini-batches. Shares are sharpened anew after every epoch. Time is linear in the number of
    samples. Images are flattened.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of subspaces.
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
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything random. The one used is recorded in `random_state_`.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        ends the stage that it comes from.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of every sample, equal to `predict(X)`. Clusters are numbered by falling size.
    bases_ : ndarray of shape (k, latent_dim, p)
        The bases, near orthonormal.
    autoencoder_ : nn.DenseAutoencoder
        With `encode` and `decode`, for samples scaled by `scaling_`.
    scaling_ : nn.InputScaling
        From samples to what the autoencoder takes.
    n_iter_ : int
        Epochs of the second stage.
    history_ : list of dict
        One record per epoch of both stages.
    random_state_, n_features_in_ : int
        The seed used, the number of features.

    Examples
    --------
    >>> from kscn import data
    >>> from kscn.baselines.edesc import EDESC
    >>> digits = data.load("digits")
    >>> model = EDESC(10, pretrain_epochs=2, epochs=1, random_state=0)
    >>> model.fit_predict(digits.samples).shape
    (1797,)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        subspace_dim: int = 5,
        hidden: Sequence[int] = (500, 500, 1000),
        latent_dim: int | None = None,
        beta: float = 0.1,
        eta: float = 5.0,
        orthogonality: float = 1e-3,
        n_init: int = 20,
        pretrain_epochs: int = 50,
        epochs: int = 50,
        tol: float = 1e-3,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        joint_learning_rate: float = 1e-4,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Iterable[Callable[[Any, dict[str, Any]], object]] = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.subspace_dim = subspace_dim
        self.hidden = hidden
        self.latent_dim = latent_dim
        self.beta = beta
        self.eta = eta
        self.orthogonality = orthogonality
        self.n_init = n_init
        self.pretrain_epochs = pretrain_epochs
        self.epochs = epochs
        self.tol = tol
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.joint_learning_rate = joint_learning_rate
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    # Fitting ------------------------------------------------------------------------------------

    def fit(self, X: Any, y: object = None) -> Self:
        """Train network and bases on X.

        Parameters
        ----------
        X : array-like, memmap, torch.Tensor, torch Dataset, data.Source or path
            Samples of shape (n, d), or images, which are flattened.
        y : ignored
        """
        source = check.open_samples(self, X, reset=True)
        for name in ("bases_", "labels_"):  # a fit that fails leaves no mixture of old and new
            if hasattr(self, name):
                delattr(self, name)
        self._check_settings(len(source))
        self.random_state_ = check.seed(self.random_state)
        self.history_: list[dict[str, Any]] = []
        self._began = time.perf_counter()
        generator = torch.Generator().manual_seed(self.random_state_)

        batches = self._build(source)
        alone = self._trainer(batches, IdentityLatent(), self.learning_rate, generator)
        pretrain(alone, self.pretrain_epochs, self._on_pretraining)
        bases = self._start(batches)
        joint = self._trainer(batches, bases, self.joint_learning_rate, generator)
        labels = self._train(joint, bases)
        self._finish(batches, bases, labels)
        return self

    def fit_predict(self, X: Any, y: object = None) -> NDArray:
        """Fit and return `labels_`."""
        return self.fit(X).labels_

    def _check_settings(self, n_samples: int) -> None:
        for name, least in {
            "n_clusters": 1,
            "subspace_dim": 1,
            "n_init": 1,
            "batch_size": 1,
            "pretrain_epochs": 0,
            "epochs": 0,
        }.items():
            check._integer(name, getattr(self, name), least)
        if self.latent_dim is not None:
            check._integer("latent_dim", self.latent_dim, self.subspace_dim)
        for name in ("beta", "orthogonality", "tol"):
            check._number(name, getattr(self, name), 0, np.inf)
        for name in ("eta", "learning_rate", "joint_learning_rate"):
            check._number(name, getattr(self, name), 0, np.inf)
            if getattr(self, name) == 0:
                raise InputError(f"{name}=0 must be above 0.")
        check._callbacks(self.callbacks)
        check.device(self.device)
        if n_samples < 2:
            raise InputError(
                f"n_samples={n_samples}: a network needs at least 2 samples to learn from."
            )
        if n_samples < self.n_clusters:
            raise InputError(
                f"n_samples={n_samples} should be >= n_clusters={self.n_clusters}; give more "
                "samples or ask for fewer clusters."
            )
        check_size(self.n_clusters, self._latent_dim())

    def _latent_dim(self) -> int:
        if self.latent_dim is None:
            return int(self.n_clusters * self.subspace_dim)
        return int(self.latent_dim)

    def _build(self, source: Source) -> Minibatches:
        """A fresh network for these samples, and the samples as its mini-batches."""
        self._eta = self.eta  # shares go by that of the fit, whatever is set later
        # Not torch's global generator: the user's own random numbers stay as they were.
        with seeded(self.random_state_):
            try:
                built = DenseAutoencoder(self.n_features_in_, self.hidden, self._latent_dim())
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"hidden={self.hidden!r} must be a sequence of positive integers ({error})."
                ) from None
        device = check.device(self.device)
        self.autoencoder_ = built.to(device)
        self.scaling_ = InputScaling.of(source, image=len(source.shape) > 1).to(device)
        return self._batches(source)

    def _batches(self, source: Source) -> Minibatches:
        device = check.device(self.device)
        return Minibatches(source, self.scaling_, (self.n_features_in_,), self.batch_size, device)

    def _trainer(
        self, batches: Minibatches, latent: nn.Module, rate: float, generator: torch.Generator
    ) -> Trainer:
        return Trainer(
            self.autoencoder_,
            latent,
            batches,
            epochs=self.epochs,
            learning_rate=rate,
            schedule="constant",
            augment=NoAugmentation(),
            generator=generator,
            stage="training" if isinstance(latent, Bases) else "pretraining",
        )

    def _latents(self, batches: Minibatches) -> Blocks:
        latents = encode(batches, Encoder(self.autoencoder_, IdentityLatent()))
        return Blocks(latents, torch.float32, batches.device)

    def _start(self, batches: Minibatches) -> Bases:
        """Bases from the leading directions of the clusters that k-means finds."""
        blocks = self._latents(batches)
        moments(
            blocks.source, device=batches.device
        )  # refuses latents that are no numbers, or all the same
        n, k = len(blocks), self.n_clusters
        rows = np.arange(n)
        if n > POOL:
            rows = np.sort(np.random.default_rng(self.random_state_).choice(n, POOL, replace=False))
        means = KMeans(k, n_init=self.n_init, random_state=self.random_state_ % 2**31)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than k
            means.fit(blocks.source.take(rows))
        sums = ScatterSums(k, blocks.dim, affine=False, device=batches.device)
        for _, z in blocks:
            sums.add(z.double(), torch.from_numpy(means.predict(z.cpu().numpy())).long())
        found = sums.subspaces(torch.full((k,), self.subspace_dim))
        return Bases(found.bases.float()).to(batches.device)

    def _train(self, trainer: Trainer, bases: Bases) -> Tensor:
        """The second stage; return the labels at its end."""
        # The trainer sums errors over features where the loss here takes their mean.
        weight = float(self.n_features_in_)
        shares = self._shares(trainer.batches, bases)
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
            shares = self._shares(trainer.batches, bases)
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
        return labels

    @torch.no_grad()
    def _shares(self, batches: Minibatches, bases: Bases) -> Tensor:
        """Shares of all samples, shape (n, k)."""
        pieces = [bases.shares(z, self._eta) for _, z in self._latents(batches)]
        shares = torch.cat(pieces)
        if not shares.isfinite().all():
            raise TrainingError(
                "the latent is no longer finite; lower learning_rate (or beta) and fit again."
            )
        return shares

    def _finish(self, batches: Minibatches, bases: Bases, labels: Tensor) -> None:
        """Canonical numbers, and labels that are exactly what `predict` will say."""
        for _ in range(2):  # renumbering can tip a tie and with it a size; see KSubspaces
            order = canonical_order(labels.cpu().numpy(), self.n_clusters)
            if (order == np.arange(self.n_clusters)).all():
                break
            index = torch.from_numpy(order).to(batches.device)
            bases = Bases(bases.bases.detach()[index])
            labels = self._shares(batches, bases).argmax(dim=1)
        self.autoencoder_.eval()
        self.bases_ = bases.bases.detach().cpu().numpy()
        self.labels_ = labels.cpu().numpy().astype(np.int32)
        warn_of_empty(self.labels_, self.n_clusters, stacklevel=3)

    # Callbacks ----------------------------------------------------------------------------------

    def _on_pretraining(self, epoch: int, losses: EpochLosses) -> bool:
        return self._record(
            {
                "stage": "pretrain",
                "epoch": epoch,
                "epochs": self.pretrain_epochs,
                "reconstruction": losses.reconstruction,
            }
        )

    # Using the fitted model ---------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray:
        """The subspace with the largest share of every sample, shape (n,)."""
        return self.predict_proba(X).argmax(axis=1).astype(np.int32)

    def predict_proba(self, X: Any) -> NDArray:
        """The shares of every sample in the subspaces, shape (n, k)."""
        check_is_fitted(self, "bases_")
        source = check.open_samples(self, X, reset=False)
        device = check.device(self.device)
        for part in (self.autoencoder_, self.scaling_):
            part.to(device)
        bases = Bases(torch.from_numpy(self.bases_)).to(device)
        return self._shares(self._batches(source), bases).cpu().numpy()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
