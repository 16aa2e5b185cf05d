"""How far a `KSCN` fit is: its stages, and the networks that are part of its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from kscn.estimators import network
from kscn.estimators.progress import Progress
from kscn.nn import IdentityLatent, WhitenedLatent
from kscn.training.checkpoint import State, prefixed


class DeepProgress(Progress):
    """The stages of a `KSCN` fit; its networks are part of every state."""

    stages = ("pretrain", "start", "fit", "finish")

    def held(self) -> State:
        """The weights of both networks."""
        networks = {"autoencoder": self.estimator.autoencoder_, "latent": self.estimator.latent_}
        tensors: dict[str, Tensor] = {}
        for name, module in networks.items():
            tensors |= prefixed(name, module.state_dict())
        return State({}, tensors)

    def restore_networks(self) -> None:
        """Give the estimator the weights of the saved state; its autoencoder is there already."""
        if self.saved is None:
            return
        what = "the checkpoint"
        network.load_weights(self.estimator.autoencoder_, self.saved.part("autoencoder"), what)
        latent = latent_of(self.saved.part("latent"))
        network.load_weights(latent, self.saved.part("latent"), what)
        device = next(self.estimator.autoencoder_.parameters()).device
        self.estimator.model_.latent = latent.to(device)


def latent_of(weights: Mapping[str, Tensor]) -> nn.Module:
    """The map from codes to latents that has weights of these shapes."""
    if not weights:
        return IdentityLatent()
    kept, width = weights["linear.weight"].shape
    with torch.random.fork_rng(devices=[]):  # its own first weights are drawn and thrown away
        return WhitenedLatent(width, kept)
