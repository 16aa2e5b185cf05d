"""What methods on a pretrained autoencoder share; k-means on its latent, the simplest of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from kscn.baselines.clusterer import Callbacks, CentreClusterer, Clusterer
from kscn.baselines.kmeans import best_k_means
from kscn.baselines.pretrained import (
    Pretrained,
    check_cache,
    check_epochs,
    pretrained_autoencoder,
)
from kscn.data import Source
from kscn.errors import InputError
from kscn.estimators import network as networks
from kscn.estimators import validation as check
from kscn.nn import IdentityLatent
from kscn.training.device import placed
from kscn.training.latents import Encoder, encode, moments
from kscn.training.minibatches import Minibatches


class AutoencoderClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Clusterer):
    """A method that begins with a pretrained autoencoder.

    Besides those of `Clusterer`, its constructor has `autoencoder`, `autoencoder_params`,
    `layer_epochs`, `pretrain_epochs`, `batch_size` and `cache`.
    """

    def _check_settings(self, source: Source) -> None:
        super()._check_settings(source)
        if not isinstance(self.autoencoder, str) or self.autoencoder not in networks.AUTOENCODERS:
            raise InputError(f"autoencoder={self.autoencoder!r} is not known; use 'sae' or 'cae'.")
        for name in ("layer_epochs", "pretrain_epochs"):
            check_epochs(name, getattr(self, name))
        check._integer("batch_size", self.batch_size, 1)
        check_cache(self.cache)
        if len(source) < 2:
            raise InputError("n_samples=1: a network needs at least 2 samples to learn from.")

    def _pretrain(self, source: Source) -> Minibatches:
        """Make `autoencoder_` and `scaling_`; the samples as mini-batches for it."""
        device = check.device(self.device)
        self._pretrained: Pretrained = pretrained_autoencoder(
            source,
            kind=self.autoencoder,
            params=self.autoencoder_params,
            layer_epochs=self.layer_epochs,
            epochs=self.pretrain_epochs,
            batch_size=self.batch_size,
            seed=self.random_state_,
            device=device,
            cache=self.cache,
            on_record=self._record,
        )
        self.autoencoder_ = self._pretrained.network
        self.scaling_ = self._pretrained.scaling
        self._n_features_out = self.autoencoder_.latent_dim
        return self._pretrained.batches(source, self.batch_size, device)

    def _latents(self, source: Source) -> Source:
        """Samples as the network encodes them."""
        expected = self._pretrained.shape
        if len(expected) == 3 and networks.image_shape(source.shape) != expected:
            raise InputError(
                f"X has samples of shape {source.shape}, but {type(self).__name__} is expecting "
                f"images of {expected} (channels, height, width)."
            )
        device = check.device(self.device)
        for part in (self.autoencoder_, self.scaling_):
            placed(part, device)
        batches = self._pretrained.batches(source, self.batch_size, device)
        return encode(batches, Encoder(self.autoencoder_, IdentityLatent()))

    def transform(self, X: Any) -> NDArray:
        """Latents of the trained network, shape (n, m)."""
        check_is_fitted(self, "labels_")
        return np.asarray(self._latents(check.open_samples(self, X, reset=False)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class LatentCentreClusterer(AutoencoderClusterer, CentreClusterer):
    """A method whose clusters are the samples with latents nearest to centres.

    k-means on the pretrained latent gives the centres to begin with (`n_init` starts); a subclass
    trains on in `_train`.
    """

    def _check_settings(self, source: Source) -> None:
        super()._check_settings(source)
        check._integer("n_init", self.n_init, 1)

    def _find_centres(self, source: Source) -> NDArray:
        batches = self._pretrain(source)
        latents = self._latents(source)
        moments(
            latents, device=batches.device
        )  # refuses latents that are not finite or all the same
        best = best_k_means(
            np.asarray(latents), self.n_clusters, self.n_init, self.random_state_, self._record
        )
        self.n_iter_ = int(best.n_iter_)
        return self._train(batches, torch.from_numpy(best.cluster_centers_)).cpu().numpy()

    def _train(self, batches: Minibatches, centres: torch.Tensor) -> torch.Tensor:
        """Network and centres (k, m) trained on; the centres at the end."""
        return centres

    def _features(self, source: Source) -> Source:
        return self._latents(source)


class AutoencoderKMeans(LatentCentreClusterer):
    """k-means on the latent of a pretrained autoencoder: SAE-KM and CAE-KM.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    autoencoder : {"sae", "cae"}, default="sae"
        "sae": dense, d-500-500-2000-10, pretrained layer by layer with 20 % of each layer's input
        dropped, then trained as a whole; takes vectors or flattened images. "cae": stride-2
        convolutions with 20-10-5 channels, trained as a whole; takes images.
    autoencoder_params : mapping or None, default=None
        Arguments of it, such as {"hidden": (200,), "latent_dim": 5}.
    layer_epochs : int or "auto", default="auto"
        Epochs of each layer of "sae". "auto" gives 3,000 steps, in at most 50 epochs.
    pretrain_epochs : int or "auto", default="auto"
        Epochs of the whole network. "auto" gives 12,000 steps, in at most 200 epochs.
    batch_size : int, default=256
        Samples per step.
    n_init : int, default=20
        Starts of k-means; the lowest sum of squared distances wins.
    cache : bool or path-like, default=True
        Keep the pretrained network for the same samples, settings and seed: in `pretrained/` of
        the directory where data sets are cached, or in a directory of your own.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything. The one used is recorded in `random_state_`.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        ends the stage that it is called in.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of every sample, equal to `predict(X)`. Clusters are numbered by falling size.
    cluster_centers_ : ndarray of shape (k, m)
        Centres in the latent.
    inertia_ : float
        Sum of squared distances of latents to the nearest centre.
    autoencoder_ : torch.nn.Module
        With `encode` and `decode`, for samples scaled by `scaling_`.
    scaling_ : torch.nn.Module
        From samples to what the autoencoder takes.
    n_iter_ : int
        Iterations of the best start of k-means.
    history_ : list of dict
        One record per epoch of pretraining (or one that names the network kept) and per
        start of k-means.
    random_state_, n_features_in_ : int
        The seed used, the number of features.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        autoencoder: str = "sae",
        autoencoder_params: Mapping[str, Any] | None = None,
        layer_epochs: int | str = "auto",
        pretrain_epochs: int | str = "auto",
        batch_size: int = 256,
        n_init: int = 20,
        cache: bool | str | os.PathLike[str] = True,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Callbacks = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.autoencoder = autoencoder
        self.autoencoder_params = autoencoder_params
        self.layer_epochs = layer_epochs
        self.pretrain_epochs = pretrain_epochs
        self.batch_size = batch_size
        self.n_init = n_init
        self.cache = cache
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks
