"""The pretrained autoencoders that several methods begin with, trained once and kept on disk.

Methods that are compared with one another should differ in what they do, not in the network they
were lucky to begin with. So the recipe is one, and the network it gives for the same samples,
settings and seed is kept: a directory in the cache of the data sets, named by a checksum of all of
these. One that is damaged is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from kscn.baselines.layerwise import pretrain_layers
from kscn.data import Source
from kscn.data.catalog import cache_dir
from kscn.errors import ModelFileError
from kscn.modelfile import read_model, write_model
from kscn.nn import DenseAutoencoder, IdentityLatent, NoAugmentation
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


@dataclass(frozen=True)
class Recipe:
    """What a pretrained network depends on, besides the samples."""

    kind: str
    config: dict[str, Any]
    layer_epochs: int
    epochs: int
    batch_size: int
    seed: int
    version: int = CONSTANTS.version

    @classmethod
    def of(
        cls,
        network: Any,
        kind: str,
        layer_epochs: int | str,
        epochs: int | str,
        batches: Minibatches,
        seed: int,
    ) -> Recipe:
        """The recipe with numbers of epochs instead of "auto"; only "sae" has layers to train."""
        use, per_epoch = CONSTANTS, batches.per_epoch
        if isinstance(layer_epochs, str):
            layer_epochs = min(use.most_layer_epochs, -(-use.layer_steps // per_epoch))
        if isinstance(epochs, str):
            epochs = min(use.most_epochs, -(-use.steps // per_epoch))
        layer_epochs = int(layer_epochs) if kind == "sae" else 0
        return cls(kind, network.config(), layer_epochs, int(epochs), batches.batch_size, seed)


def train_or_restore(
    network: Any,
    batches: Minibatches,
    recipe: Recipe,
    cache: bool | str | os.PathLike[str],
    on_record: OnRecord,
) -> None:
    """Train an autoencoder by the recipe, or put in the weights that the cache has for it.

    Parameters
    ----------
    network : nn.Module
        With the weights to begin with.
    batches : Minibatches
        The samples.
    recipe : Recipe
        What to do.
    cache : bool or path-like
        Whether, or in which directory, to keep networks.
    on_record : callable
        Called with the record of every epoch; returning True ends the stage it is called in. A
        network that was ended early is not kept.
    """
    folder = _folder(cache)
    kept = None
    if folder is not None:
        kept = folder / f"{recipe.kind}-{fingerprint(batches.source, recipe)}"
    if kept is not None and _restore(network, recipe, kept):
        on_record({"stage": "pretrained", "network": kept.name})
    elif _train(network, batches, recipe, on_record) and kept is not None:
        _keep(network, recipe, kept)
    network.eval()


def fingerprint(source: Source, recipe: Recipe) -> str:
    """A checksum of the samples and the recipe."""
    digest = hashlib.sha256(json.dumps(asdict(recipe), sort_keys=True).encode())
    digest.update(f"{len(source)} {source.shape} {source.dtype.str}".encode())
    for _, rows in source.batches(4096):
        digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.hexdigest()[:32]


def train_alone(
    network: nn.Module,
    batches: Minibatches,
    *,
    epochs: int,
    learning_rate: float,
    generator: torch.Generator,
    on_record: OnRecord,
    schedule: str = "constant",
) -> None:
    """Train an autoencoder by its reconstruction alone, one record per epoch."""
    trainer = Trainer(
        network,
        IdentityLatent(),
        batches,
        epochs=epochs,
        learning_rate=learning_rate,
        schedule=schedule,
        augment=NoAugmentation(),
        generator=generator,
        stage="pretraining",
    )
    pretrain(trainer, epochs, lambda e, losses: on_record(_record("pretrain", e, epochs, losses)))


def _record(stage: str, epoch: int, epochs: int, losses: EpochLosses) -> dict[str, Any]:
    error = losses.reconstruction
    return {"stage": stage, "epoch": epoch, "epochs": epochs, "reconstruction": error}


def _train(network: nn.Module, batches: Minibatches, recipe: Recipe, on_record: OnRecord) -> bool:
    """Follow the recipe; whether it was followed to its end."""
    generator = torch.Generator().manual_seed(recipe.seed)
    rate, schedule = CONSTANTS.learning_rate, CONSTANTS.schedule
    complete = True

    def watched(record: dict[str, Any]) -> bool:
        nonlocal complete
        stop = on_record(record)
        complete &= not (stop and record["epoch"] < record["epochs"])
        return stop

    if recipe.layer_epochs:
        assert isinstance(network, DenseAutoencoder)
        pretrain_layers(
            network,
            batches,
            epochs=recipe.layer_epochs,
            learning_rate=rate,
            schedule=schedule,
            dropout=CONSTANTS.dropout,
            generator=generator,
            on_epoch=lambda layer, epoch, losses: watched(
                _record(f"pretrain layer {layer + 1}", epoch, recipe.layer_epochs, losses)
            ),
        )
    train_alone(
        network,
        batches,
        epochs=recipe.epochs,
        learning_rate=rate,
        schedule=schedule,
        generator=generator,
        on_record=watched,
    )
    network.zero_grad()  # as a network from the cache has it
    return complete


def _folder(cache: bool | str | os.PathLike[str]) -> Path | None:
    if isinstance(cache, (bool, np.bool_)):
        return cache_dir() / "pretrained" if cache else None
    return Path(cache).expanduser()


def _restore(network: nn.Module, recipe: Recipe, path: Path) -> bool:
    """Put kept weights into the network; whether there were any that can be used."""
    if not path.exists():
        return False
    try:
        model = read_model(path)
        if model.kind != KIND or model.params != json.loads(json.dumps(asdict(recipe))):
            raise ModelFileError(f"{path} holds another network than its name says.")
        networks.load_weights(network, model.tensors, str(path))
    except ModelFileError as error:
        warnings.warn(f"A pretrained network is made again because {error}", stacklevel=2)
        return False
    return True


def _keep(network: nn.Module, recipe: Recipe, path: Path) -> None:
    """Write the network to the cache; one that cannot be written is no reason to stop."""
    try:
        write_model(path, KIND, asdict(recipe), network.state_dict())
    except ModelFileError as error:
        warnings.warn(f"The pretrained network is not kept because {error}", stacklevel=2)
