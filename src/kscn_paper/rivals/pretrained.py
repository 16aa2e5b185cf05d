"""The pretrained autoencoders that several methods begin with, trained once and kept on disk.

Methods that are compared with one another should differ in what they do, not in the network they
were lucky to begin with. So the recipe is one, and the network it gives for the same samples,
settings and seed is kept: a directory in the cache of the data sets, named by a checksum of all of
these. One that is damaged is made again.

Dense networks are first trained layer by layer, from the outside in: each layer learns to restore
what the trained layers before it make of the samples, from a version of that with some entries
dropped (Vincent et al., 2010). The network as a whole then starts its own training from weights
that already keep most of the input.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kscn.data import Source
from kscn.data.catalog import cache_dir
from kscn.errors import ModelFileError
from kscn.modelfile import read_model, write_model
from kscn.nn import DenseAutoencoder, IdentityLatent
from kscn.nn import network as networks
from kscn.runtime.minibatches import Minibatches
from kscn.stages.pretrain import EpochLosses, Trainer, pretrain

KIND = "PretrainedAutoencoder"


@dataclass(frozen=True)
class Constants:
    """Numbers of the recipe."""

    # Raised whenever the recipe changes, so that the cache has no networks of an older one.
    version: int = 1
    # Brightest pixel of images as the dense network takes them. Vectors have a mean square of one.
    brightest: float = 5.2
    # Share of the entries of a layer's input that are dropped in layer-wise pretraining.
    dropout: float = 0.2
    learning_rate: float = 1e-3
    schedule: str = "one-cycle"
    # Steps that "auto" aims at, per layer and for the whole network, within most epochs.
    layer_steps: int = 3_000
    most_layer_epochs: int = 50
    steps: int = 12_000
    most_epochs: int = 200


CONSTANTS = Constants()
OnRecord = Callable[[dict[str, Any]], bool]


def recipe_for(
    network: Any,
    kind: str,
    layer_epochs: int | str,
    epochs: int | str,
    batches: Minibatches,
    seed: int,
) -> dict[str, Any]:
    """What a pretrained network depends on, besides the samples, with numbers for "auto"."""
    use = CONSTANTS
    if layer_epochs == "auto":
        layer_epochs = min(use.most_layer_epochs, -(-use.layer_steps // batches.per_epoch))
    if epochs == "auto":
        epochs = min(use.most_epochs, -(-use.steps // batches.per_epoch))
    return {
        "kind": kind,
        "config": network.config(),
        "layer_epochs": int(layer_epochs) if kind == "sae" else 0,  # only "sae" trains by layers
        "epochs": int(epochs),
        "batch_size": batches.batch_size,
        "seed": seed,
        "version": use.version,
    }


def train_or_restore(
    network: Any,
    batches: Minibatches,
    recipe: dict[str, Any],
    cache: bool | str | os.PathLike[str],
    on_record: OnRecord,
) -> None:
    """Train an autoencoder by the recipe, or put in the weights that the cache has for it.

    `on_record` is called with the record of every epoch; returning True ends the stage it is called
    in. A network that was ended early is not kept.
    """
    if isinstance(cache, (bool, np.bool_)):
        folder = place() if cache else None
    else:
        folder = Path(cache).expanduser()
    kept = folder and folder / f"{recipe['kind']}-{fingerprint(batches.source, recipe)}"
    found = kept and restore(network, kept, KIND, recipe)
    if kept is not None and found is not None:
        on_record({"stage": "pretrained", "network": kept.name})
    elif _train(network, batches, recipe, on_record) and kept is not None:
        keep(network, kept, KIND, recipe)
    network.eval()


def place() -> Path:
    """The directory where networks are kept."""
    return cache_dir() / "pretrained"


def fingerprint(source: Source, recipe: dict[str, Any]) -> str:
    """A checksum of the samples and the recipe."""
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    digest.update(f"{len(source)} {source.shape} {source.dtype.str}".encode())
    for _, rows in source.batches(4096):
        digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.hexdigest()[:32]


def keep(network: nn.Module, path: Path, kind: str, recipe: dict[str, Any], **more: Tensor) -> None:
    """Write the weights of a network, and `more`; a disk that refuses costs a warning only."""
    try:
        write_model(path, kind, recipe, {**network.state_dict(), **more})
    except ModelFileError as error:
        warnings.warn(f"The pretrained network is not kept because {error}", stacklevel=3)


def restore(
    network: nn.Module, path: Path, kind: str, recipe: dict[str, Any], more: Collection[str] = ()
) -> dict[str, Tensor] | None:
    """Put kept weights into the network, and return what else was kept under the names `more`.

    None if there is nothing at `path`, or nothing that can be used, which is told in a warning.
    """
    if not path.exists():
        return None
    try:
        model = read_model(path)
        if model.kind != kind or model.params != json.loads(json.dumps(recipe)):
            raise ModelFileError(f"{path} holds another network than its name says.")
        weights = dict(model.tensors)
        found = {name: torch.from_numpy(weights.pop(name)) for name in more}
        networks.load_weights(network, weights, str(path))
    except (ModelFileError, KeyError) as error:
        warnings.warn(f"A pretrained network is made again because {error}", stacklevel=3)
        return None
    return found


def _train(network: Any, batches: Minibatches, recipe: dict[str, Any], on_record: OnRecord) -> bool:
    """Follow the recipe; whether it was followed to its end."""
    complete = True

    def watched(record: dict[str, Any]) -> bool:
        nonlocal complete
        stop = on_record(record)
        complete &= not (stop and record["epoch"] < record["epochs"])
        return stop

    settings: dict[str, Any] = {
        "learning_rate": CONSTANTS.learning_rate,
        "schedule": CONSTANTS.schedule,
        "generator": torch.Generator().manual_seed(recipe["seed"]),
        "on_record": watched,
    }
    if recipe["layer_epochs"]:
        train_layers(network, batches, CONSTANTS.dropout, recipe["layer_epochs"], **settings)
    train_alone(network, batches, recipe["epochs"], **settings)
    network.zero_grad()  # as a network from the cache has it
    return complete


def train_alone(
    network: nn.Module,
    batches: Minibatches,
    epochs: int,
    *,
    learning_rate: float,
    generator: torch.Generator,
    on_record: OnRecord,
    schedule: str = "constant",
    part: str = "",
) -> None:
    """Train an autoencoder, or a `part` of one, by its reconstruction; one record per epoch."""
    trainer = Trainer(
        network,
        IdentityLatent(),
        batches,
        epochs=epochs,
        learning_rate=learning_rate,
        schedule=schedule,
        generator=generator,
        stage=f"pretraining{part}",
    )

    def report(epoch: int, losses: EpochLosses) -> bool:
        record = {"stage": f"pretrain{part}", "epoch": epoch, "epochs": epochs}
        return on_record({**record, "reconstruction": losses.reconstruction})

    pretrain(trainer, epochs, report)


def train_layers(
    network: DenseAutoencoder, batches: Minibatches, dropout: float, epochs: int, **settings: Any
) -> None:
    """Train the layers of a network one after the other; settings as for `train_alone`."""
    for layer in range(len(layer_pairs(network))):
        pair = LayerPair(network, layer, dropout)
        inputs = LayerInputs(batches, network.encoder[: 2 * layer])
        train_alone(pair, inputs, epochs, part=f" layer {layer + 1}", **settings)


def layer_pairs(network: DenseAutoencoder) -> list[tuple[nn.Module, nn.Module]]:
    """Each layer of the encoder with its mirror image in the decoder, outermost first."""
    down, up = (
        [layer for layer in half if isinstance(layer, nn.Linear)]
        for half in (network.encoder, network.decoder)
    )
    return list(zip(down, reversed(up), strict=True))


class LayerPair(nn.Module):
    """Layer `layer` (0 is outermost) and its mirror image as a denoising autoencoder of their own.

    Their weights are those of the network. Both have the ReLU that follows them there; the
    outermost output and the innermost code are linear. Entries of the input are dropped, and
    entries of the code too, except of the innermost, which is too short to spare any.
    """

    def __init__(self, network: DenseAutoencoder, layer: int, dropout: float) -> None:
        super().__init__()
        pairs = layer_pairs(network)
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
