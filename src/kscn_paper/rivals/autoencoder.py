"""What methods on an autoencoder share; k-means on a pretrained latent, the simplest of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from torch import Tensor, nn

from kscn.constraints import Integer, parameter
from kscn.data import Source
from kscn.errors import InputError
from kscn.nn import IdentityLatent, InputScaling
from kscn.nn import network as networks
from kscn.runtime.device import placed, seeded
from kscn.runtime.latents import Encoder, encode, moments
from kscn.runtime.minibatches import Minibatches
from kscn.stages import validation as check
from kscn_paper.rivals.base import Baseline
from kscn_paper.rivals.kmeans import CentreBaseline
from kscn_paper.rivals.pretrained import CONSTANTS, recipe_for, train_or_restore


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkBaseline(Baseline):
    """A method with an autoencoder.

    Parameters
    ----------
    batch_size : int, default=256
        Samples per step.

    Attributes
    ----------
    autoencoder_ : torch.nn.Module
        With `encode` and `decode`, for samples scaled by `scaling_`.
    scaling_ : torch.nn.Module
        From samples to what the autoencoder takes.
    """

    batch_size: int = parameter(256, Integer(1))

    def _check(self, n_samples: int) -> None:
        super()._check(n_samples)
        if n_samples < 2:
            raise InputError("n_samples=1: a network needs at least 2 samples to learn from.")

    def _build_network(
        self,
        kind: str | nn.Module,
        params: Mapping[str, Any] | None,
        source: Source,
        brightest: float = 1.0,
    ) -> None:
        """Use a new autoencoder for these samples; pixels go from 0 to `brightest`."""
        # Layers draw their weights from torch's global generator: seeded, and then as it was.
        with seeded(self.random_state_):
            network = networks.build(kind, params, source.shape)
        shape = networks.input_shape(network, source.shape)
        networks.checked_run(network, torch.zeros(1, *shape))
        image = networks.image_shape(source.shape) is not None
        scaling = InputScaling.of(source, image)
        if image:
            scaling = InputScaling(scaling.shift, brightest * float(scaling.factor))
        self._set_network(network, scaling, shape)

    def _set_network(
        self, network: nn.Module, scaling: InputScaling, shape: tuple[int, ...]
    ) -> None:
        """Use a network that takes samples of a shape, scaled."""
        device = check.device(self.device)
        self.autoencoder_: Any = placed(network, device)
        self.scaling_ = scaling.to(device)
        self._sample_shape = shape

    def _batches(self, source: Source) -> Minibatches:
        """Samples as mini-batches for the network."""
        device = check.device(self.device)
        return Minibatches(source, self.scaling_, self._sample_shape, self.batch_size, device)

    def _latents(self, source: Source) -> Source:
        """Samples as the network encodes them."""
        networks.check_images(source, self._sample_shape, type(self).__name__)
        # The device may be another than it was.
        self._set_network(self.autoencoder_, self.scaling_, self._sample_shape)
        return encode(self._batches(source), Encoder(self.autoencoder_, IdentityLatent()))

    def _usable_latents(self, source: Source) -> Source:
        """Latents that can be clustered: those not finite or all the same are refused."""
        latents = self._latents(source)
        moments(latents, device=check.device(self.device))
        return latents


@dataclass(eq=False, repr=False, kw_only=True)
class AutoencoderBaseline(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NetworkBaseline):
    """A method that begins with a pretrained autoencoder.

    Parameters
    ----------
    autoencoder : {"sae", "cae"}, default="sae"
        "sae": dense, d-500-500-2000-10, pretrained layer by layer with 20 % of each layer's input
        dropped, then trained as a whole; takes vectors or flattened images. "cae": stride-2
        convolutions with 20-10-5 channels, trained as a whole; takes images.
    autoencoder_params : mapping or None, default=None
        Arguments of it, such as {"hidden": (200,), "latent_dim": 5}.
    layer_epochs : int or "auto", default="auto"
        Epochs of each layer of "sae". "auto" gives 3,000 steps, in at most 50 epochs.
    pretrain_epochs : int or "auto", default="auto"
        Epochs of the whole network. "auto" gives 12,000 steps, in at most 200 epochs. The history
        has a record of each epoch, or one that names the network kept.
    cache : bool or path-like, default=True
        Keep the pretrained network for the same samples, settings and seed: in `pretrained/` of
        the directory where data sets are cached, or in a directory of your own.
    """

    autoencoder: str = parameter("sae", "cae")
    autoencoder_params: Mapping[str, Any] | None = None
    layer_epochs: int | str = parameter("auto", Integer(0))
    pretrain_epochs: int | str = parameter("auto", Integer(0))
    cache: bool | str | os.PathLike[str] = parameter(  # noqa: RUF009 - a field
        True, bool, str, os.PathLike
    )

    def _pretrain(self, source: Source) -> None:
        """Make `autoencoder_` and `scaling_`: trained on the samples, or from the cache."""
        brightest = CONSTANTS.brightest if self.autoencoder == "sae" else 1.0
        self._build_network(self.autoencoder, self.autoencoder_params, source, brightest)
        network, batches, seed = self.autoencoder_, self._batches(source), self.random_state_
        epochs = self.layer_epochs, self.pretrain_epochs
        recipe = recipe_for(network, self.autoencoder, *epochs, batches, seed)
        train_or_restore(network, batches, recipe, self.cache, self._record)
        self._n_features_out = self.autoencoder_.latent_dim

    def transform(self, X: Any) -> NDArray:
        """Latents of the trained network, shape (n, m)."""
        return np.asarray(self._latents(self._opened(X)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class AutoencoderKMeans(AutoencoderBaseline, CentreBaseline):
    """k-means on the latent of a pretrained autoencoder: SAE-KM and CAE-KM.

    Methods that train network and centres further are subclasses.
    """

    def _find_centres(self, source: Source) -> NDArray:
        self._pretrain(source)
        centres = torch.from_numpy(self._k_means(np.asarray(self._usable_latents(source))))
        return self._train(self._batches(source), centres).cpu().numpy()

    def _train(self, batches: Minibatches, centres: Tensor) -> Tensor:
        """Network and centres (k, m) trained on; the centres at the end."""
        return centres

    def _features(self, source: Source) -> Source:
        return self._latents(source)
