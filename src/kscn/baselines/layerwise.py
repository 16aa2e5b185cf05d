"""Greedy layer-wise pretraining of a dense autoencoder: one denoising autoencoder per layer.

Layer after layer, from the outside in, learns to restore what the trained layers before it make of
the samples, from a version of that with some entries dropped (Vincent et al., 2010). The network
as a whole then starts its own training from weights that already keep most of the input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from kscn.nn import DenseAutoencoder, IdentityLatent, NoAugmentation
from kscn.runtime.minibatches import Minibatches
from kscn.stages.pretrain import EpochLosses, Trainer, pretrain


class LayerPair(nn.Module):
    """One layer of the encoder and its mirror image as a denoising autoencoder of their own.

    Their weights are those of the network. Both have the ReLU that follows them there; the
    outermost output and the innermost code are linear. Entries of the input are dropped, and
    entries of the code too, except of the innermost, which is too short to spare any.

    Parameters
    ----------
    network : DenseAutoencoder
        The network.
    layer : int
        Which layer, 0 being the outermost.
    dropout : float
        Share of entries dropped.
    """

    def __init__(self, network: DenseAutoencoder, layer: int, dropout: float) -> None:
        super().__init__()
        pairs = network.layer_pairs()
        self.down, self.up = pairs[layer]
        innermost, outermost = layer == len(pairs) - 1, layer == 0
        self.corrupt = nn.Dropout(dropout)
        self.corrupt_code = nn.Identity() if innermost else nn.Dropout(dropout)
        self.code_activation = nn.Identity() if innermost else nn.ReLU()
        self.activation = nn.Identity() if outermost else nn.ReLU()

    def encode(self, inputs: Tensor) -> Tensor:
        """Codes of the layer's inputs."""
        return self.code_activation(self.down(self.corrupt(inputs)))

    def decode(self, codes: Tensor) -> Tensor:
        """The layer's inputs from their codes."""
        return self.activation(self.up(self.corrupt_code(codes)))


class LayerInputs(Minibatches):
    """Mini-batches as the layers before make them, anew each time: they are never all in memory."""

    def __init__(self, batches: Minibatches, before: nn.Module) -> None:
        super().__init__(
            batches.source, batches.scaling, batches.shape, batches.batch_size, batches.device
        )
        self.before = before

    def _tensor(self, rows: np.ndarray) -> Tensor:
        with torch.no_grad():
            return self.before(super()._tensor(rows))


def pretrain_layers(
    network: DenseAutoencoder,
    batches: Minibatches,
    *,
    epochs: int,
    learning_rate: float,
    schedule: str,
    dropout: float,
    generator: torch.Generator,
    on_epoch: Callable[[int, int, EpochLosses], object],
) -> None:
    """Train the layers of a network one after the other.

    Parameters
    ----------
    network : DenseAutoencoder
        Its weights are changed.
    batches : Minibatches
        The samples.
    epochs : int
        Passes over the samples for each layer.
    learning_rate, schedule, generator
        As for `Trainer`.
    dropout : float
        Share of the entries of a layer's input that are dropped.
    on_epoch : callable
        Called with the layer (from 0), the epoch (from 1) and the losses; returning True ends the
        training of that layer.
    """
    for layer in range(len(network.layer_pairs())):
        trainer = Trainer(
            LayerPair(network, layer, dropout),
            IdentityLatent(),
            LayerInputs(batches, network.encoder[: 2 * layer]),
            epochs=epochs,
            learning_rate=learning_rate,
            schedule=schedule,
            augment=NoAugmentation(),
            generator=generator,
            stage=f"pretraining layer {layer + 1}",
        )
        pretrain(trainer, epochs, lambda epoch, losses, i=layer: on_epoch(i, epoch, losses))  # type: ignore[misc]
