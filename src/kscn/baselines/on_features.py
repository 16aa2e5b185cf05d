"""Affinity methods on the latent of a pretrained autoencoder: SSC-SAE, LRR-CAE and their like."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kscn.baselines import make
from kscn.baselines.autoencoder import AutoencoderClusterer
from kscn.baselines.base import AffinityClusterer
from kscn.baselines.clusterer import Callbacks
from kscn.baselines.cost import check_affordable
from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn.estimators import network as networks

METHODS = ("ssc", "lrr", "kssc", "ssc-omp")
# What the method inside shares with the whole, and is therefore not among `method_params`.
SHARED = ("n_clusters", "device", "random_state", "callbacks")


class OnFeatures(AutoencoderClusterer):
    """Cluster by an affinity between the latents of a pretrained autoencoder.

    The network is the one that `AutoencoderKMeans`, `DEC` and `DCN` begin with. There is no
    `predict`: an affinity says nothing about samples that it was not made of.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    method : {"ssc", "lrr", "kssc", "ssc-omp"}, default="ssc"
        The method that clusters the latents.
    method_params : mapping or None, default=None
        Its parameters, such as {"alpha": 50}, except those that are also parameters here.
    pretrain_on : samples or None, default=None
        What the network learns from, when it is more than the samples to be clustered (an affinity
        cannot take as many as a network can). None for the samples themselves.
    autoencoder, autoencoder_params, layer_epochs, pretrain_epochs, batch_size, cache
        The pretrained network, as for `AutoencoderKMeans`.
    device, random_state, callbacks
        As for `AutoencoderKMeans`.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of every sample. Clusters are numbered by falling size.
    clusterer_ : AffinityClusterer
        The method, fitted to the latents.
    affinity_ : ndarray or scipy.sparse array of shape (n, n)
    n_iter_ : int
        Iterations of the method.
    autoencoder_, scaling_, history_, random_state_, n_features_in_
        As for `AutoencoderKMeans`; the history goes on with that of the method.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        method: str = "ssc",
        method_params: Mapping[str, Any] | None = None,
        pretrain_on: Any = None,
        autoencoder: str = "sae",
        autoencoder_params: Mapping[str, Any] | None = None,
        layer_epochs: int | str = "auto",
        pretrain_epochs: int | str = "auto",
        batch_size: int = 256,
        cache: bool | str | os.PathLike[str] = True,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Callbacks = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.method_params = method_params
        self.pretrain_on = pretrain_on
        self.autoencoder = autoencoder
        self.autoencoder_params = autoencoder_params
        self.layer_epochs = layer_epochs
        self.pretrain_epochs = pretrain_epochs
        self.batch_size = batch_size
        self.cache = cache
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    def _check_settings(self, source: Source) -> None:
        """Refuse what the method would refuse, before the network is trained."""
        super()._check_settings(source)
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise InputError(f"method={self.method!r} is not known; use {', '.join(METHODS)}.")
        for name in {*SHARED} & {*(self.method_params or {})}:
            raise InputError(f"method_params holds {name!r}; give it as a parameter of its own.")
        more = self._teaching(source)
        if more.shape != source.shape:
            raise InputError(
                f"pretrain_on has samples of shape {more.shape}, those to be clustered have "
                f"{source.shape}; give samples of the same kind."
            )
        inside = self._inside()
        n = len(source)
        inside._check_settings(n)
        with torch.random.fork_rng(devices=[]):  # the user's own random numbers stay as they were
            network: Any = networks.build(self.autoencoder, self.autoencoder_params, source.shape)
        cost = inside._cost(n, network.latent_dim, torch.float32.itemsize)
        check_affordable(type(inside).__name__, n, inside.max_samples, cost)

    def _teaching(self, source: Source) -> Source:
        """What the network learns from."""
        return source if self.pretrain_on is None else as_source(self.pretrain_on)

    def _inside(self) -> AffinityClusterer:
        return make(
            self.method,
            self.n_clusters,
            **dict(self.method_params or {}),
            device=self.device,
            random_state=getattr(self, "random_state_", None),
            callbacks=[lambda _, record: self._record(dict(record))],
        )

    def _fit(self, source: Source) -> None:
        self._pretrain(self._teaching(source))
        with warnings.catch_warnings():
            # Told by `fit`, once for the whole.
            warnings.filterwarnings("ignore", message=".*clusters ended up empty")
            self.clusterer_ = self._inside().fit(self._latents(source))
        self.labels_ = self.clusterer_.labels_
        self.affinity_ = self.clusterer_.affinity_
        self.n_iter_ = self.clusterer_.n_iter_
