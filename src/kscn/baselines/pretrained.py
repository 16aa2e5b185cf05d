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
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from kscn.data import Source
from kscn.data.catalog import cache_dir
from kscn.errors import InputError, ModelFileError
from kscn.estimators import network as networks
from kscn.modelfile import read_model, write_model
from kscn.nn import DenseAutoencoder, IdentityLatent, InputScaling, NoAugmentation
from kscn.training.device import placed, seeded
from kscn.training.layerwise import pretrain_layers
from kscn.training.minibatches import Minibatches
from kscn.training.pretrain import EpochLosses, Trainer, pretrain

# Raised whenever the recipe changes, so that networks of an older one are not taken for its own.
RECIPE = 1
KIND = "PretrainedAutoencoder"
# Brightest pixel of images as the dense network takes them. Vectors have a mean square of one.
BRIGHTEST = 5.2
# Share of the entries of a layer's input that are dropped in layer-wise pretraining.
DROPOUT = 0.2
LEARNING_RATE = 1e-3
SCHEDULE = "one-cycle"
# Steps that "auto" aims at, per layer and for the whole network, within most epochs.
LAYER_STEPS, MOST_LAYER_EPOCHS = 3_000, 50
STEPS, MOST_EPOCHS = 12_000, 200

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
    version: int = field(default=RECIPE)


@dataclass(frozen=True)
class Pretrained:
    """A trained autoencoder, and from stored samples to what it takes."""

    network: Any
    scaling: InputScaling
    shape: tuple[int, ...]

    def batches(self, source: Source, batch_size: int, device: torch.device) -> Minibatches:
        """Samples as mini-batches for the network."""
        return Minibatches(source, self.scaling, self.shape, batch_size, device)


def pretrained_autoencoder(
    source: Source,
    *,
    kind: str,
    params: Mapping[str, Any] | None,
    layer_epochs: int | str,
    epochs: int | str,
    batch_size: int,
    seed: int,
    device: torch.device,
    cache: bool | str | os.PathLike[str],
    on_record: OnRecord,
) -> Pretrained:
    """Train an autoencoder on the samples, or take it from the cache.

    Parameters
    ----------
    source : Source
        The samples.
    kind : {"sae", "cae"}
        "sae" is dense, 500-500-2000-10 wide, trained layer by layer and then as a whole, on pixels
        from 0 to 5.2 or on vectors of mean square one. "cae" is convolutional, for images, trained
        as a whole on pixels from 0 to 1.
    params : mapping or None
        Arguments of the network instead of its defaults.
    layer_epochs, epochs : int or "auto"
        Epochs for each layer of "sae" and for the whole network. "auto" aims at 3,000 and 12,000
        steps, in at most 50 and 200 epochs.
    batch_size, seed, device
        Samples per step, seed of everything, where to train.
    cache : bool or path-like
        Whether, or in which directory, to keep networks.
    on_record : callable
        Hears of every epoch; returning True ends the stage it is called in. A network that was
        ended early is not kept.
    """
    # Layers draw their weights from torch's global generator: seeded, and then as it was.
    with seeded(seed):
        network: Any = networks.build(kind, params, source.shape)
    shape = networks.input_shape(network, source.shape)
    made = Pretrained(network, _scaling(source, kind).to(device), shape)
    networks.checked_run(network, torch.zeros(1, *shape))
    placed(network, device)
    batches = made.batches(source, batch_size, device)
    per_epoch = batches.per_epoch
    recipe = Recipe(
        kind,
        network.config(),
        _epochs(layer_epochs, LAYER_STEPS, MOST_LAYER_EPOCHS, per_epoch) if kind == "sae" else 0,
        _epochs(epochs, STEPS, MOST_EPOCHS, per_epoch),
        batch_size,
        seed,
    )
    folder = _folder(cache)
    kept = None if folder is None else folder / f"{kind}-{fingerprint(source, recipe)}"
    if kept is not None and _restore(network, recipe, kept):
        on_record({"stage": "pretrained", "network": kept.name})
    elif _train(network, batches, recipe, on_record) and kept is not None:
        _keep(network, recipe, kept)
    network.eval()
    return made


def fingerprint(source: Source, recipe: Recipe) -> str:
    """A checksum of the samples and the recipe."""
    digest = hashlib.sha256(json.dumps(asdict(recipe), sort_keys=True).encode())
    digest.update(f"{len(source)} {source.shape} {source.dtype.str}".encode())
    for _, rows in source.batches(4096):
        digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.hexdigest()[:32]


def check_cache(cache: Any) -> None:
    """Refuse what is neither a switch nor a path."""
    if not isinstance(cache, (bool, np.bool_, str, os.PathLike)):
        raise InputError(f"cache={cache!r} must be True, False or a directory.")


def check_epochs(name: str, epochs: Any) -> None:
    """Refuse what is neither "auto" nor a number of epochs."""
    whole = isinstance(epochs, (int, np.integer)) and not isinstance(epochs, bool) and epochs >= 0
    if not whole and not (isinstance(epochs, str) and epochs == "auto"):
        raise InputError(f"{name}={epochs!r} must be 'auto' or an integer of at least 0.")


def _epochs(wanted: int | str, steps: int, most: int, per_epoch: int) -> int:
    return min(most, -(-steps // per_epoch)) if isinstance(wanted, str) else int(wanted)


def _scaling(source: Source, kind: str) -> InputScaling:
    image = networks.image_shape(source.shape) is not None
    scaling = InputScaling.of(source, image)
    if image and kind == "sae":
        return InputScaling(scaling.shift, BRIGHTEST * float(scaling.factor))
    return scaling


def _train(network: nn.Module, batches: Minibatches, recipe: Recipe, on_record: OnRecord) -> bool:
    """Follow the recipe; whether it was followed to its end."""
    generator = torch.Generator().manual_seed(recipe.seed)
    complete = True

    def report(stage: str, epoch: int, epochs: int, losses: EpochLosses) -> bool:
        nonlocal complete
        record = {
            "stage": stage,
            "epoch": epoch,
            "epochs": epochs,
            "reconstruction": losses.reconstruction,
        }
        stop = on_record(record)
        complete &= not (stop and epoch < epochs)
        return stop

    if recipe.layer_epochs:
        assert isinstance(network, DenseAutoencoder)
        pretrain_layers(
            network,
            batches,
            epochs=recipe.layer_epochs,
            learning_rate=LEARNING_RATE,
            schedule=SCHEDULE,
            dropout=DROPOUT,
            generator=generator,
            on_epoch=lambda layer, epoch, losses: report(
                f"pretrain layer {layer + 1}", epoch, recipe.layer_epochs, losses
            ),
        )
    trainer = Trainer(
        network,
        IdentityLatent(),
        batches,
        epochs=recipe.epochs,
        learning_rate=LEARNING_RATE,
        schedule=SCHEDULE,
        augment=NoAugmentation(),
        generator=generator,
        stage="pretraining",
    )
    pretrain(trainer, recipe.epochs, lambda e, losses: report("pretrain", e, recipe.epochs, losses))
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
