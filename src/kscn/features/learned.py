"""A small dense network as the last step of features: clusters become coordinate subspaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.features.base import FeatureMap, tensor_of, wrong_state
from kscn.modelparts import integer
from kscn.nn.dense import DenseEncoder

if TYPE_CHECKING:
    from typing_extensions import Self

# Rows in a product; always as many, so that the features of a sample do not depend on the others.
ROWS = 256
# Beyond this a layer would take more than half a gigabyte.
MOST_WIDTH = 2**13


class LearnedFeatures(FeatureMap):
    """Vectors through a fitted `DenseEncoder`, then at unit length.

    It is made by `kscn.training.learn`, which has labels to learn from; `fit` is not its way.

    Attributes
    ----------
    encoder_ : DenseEncoder
    """

    encoder_: DenseEncoder

    def fit(self, X: Any, y: Any = None) -> Self:
        """Refuse: there is nothing to learn from X alone."""
        raise NotImplementedError("LearnedFeatures are made by kscn.training.learn.")

    @classmethod
    def of_fitted(cls, encoder: DenseEncoder) -> Self:
        """The map of an encoder that has learnt."""
        features = cls()
        features.sample_shape_, features.n_features_in_ = (encoder.n_features,), encoder.n_features
        features.encoder_ = encoder.eval().requires_grad_(False)
        features._n_features_out = encoder.latent_dim
        return features

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on."""
        self.encoder_.to(device)
        return super().to(device)

    def _given(self, rows: NDArray) -> Tensor:
        return tensor_of(rows, np.dtype(np.float32)).to(self.device)

    def _apply(self, samples: Tensor) -> Tensor:
        z = samples.reshape(len(samples), -1).float()
        return torch.cat([self._block(block) for block in z.split(ROWS)])

    def _block(self, z: Tensor) -> Tensor:
        whole = nn.functional.pad(z, (0, 0, 0, ROWS - len(z)))
        return nn.functional.normalize(self.encoder_(whole)[: len(z)], dim=1)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Sizes of the network; its weights."""
        arrays = {
            name: tensor.detach().cpu().contiguous().numpy()
            for name, tensor in self.encoder_.state_dict().items()
        }
        return {"encoder": self.encoder_.config(), "shape": list(self.sample_shape_)}, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        """The fitted map that `state` described."""
        try:
            sizes = {
                name: integer(config["encoder"], name, 1, MOST_WIDTH)
                for name in ("n_features", "latent_dim", "hidden")
            }
            with torch.device("meta"):
                expected = DenseEncoder(**sizes).state_dict()
            if expected.keys() != arrays.keys():
                raise ValueError("its weights have other names")
            for name, like in expected.items():
                if tuple(like.shape) != arrays[name].shape:
                    raise ValueError(f"{name} has shape {arrays[name].shape}")
                if arrays[name].dtype.kind == "f" and not np.isfinite(arrays[name]).all():
                    raise ValueError(f"{name} contains NaN or infinity")
            encoder = DenseEncoder(**sizes)
            encoder.load_state_dict({k: torch.from_numpy(np.array(a)) for k, a in arrays.items()})
            return cls.of_fitted(encoder)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise wrong_state(cls, error) from error
