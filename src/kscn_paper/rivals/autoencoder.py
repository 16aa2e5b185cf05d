"""Methods that begin with a pretrained autoencoder, trained once and kept on disk.

Methods that are compared with one another should differ in what they do, not in the network they
were lucky to begin with. So the recipe is one, and the network it gives for the same samples,
settings and seed is kept: a directory in the cache of the data sets, named by a checksum of all of
these. One that is damaged is made again.

Dense networks are first trained layer by layer, from the outside in: each layer learns to restore
what the trained layers before it make of the samples, from a version of that with some entries
dropped (Vincent et al., 2010). The network as a whole then starts its own training from weights
that already keep most of the input.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.constraints import FLAG, PATH, Integer, parameter
from kscn.data import Source
from kscn.data.named import cache_dir
from kscn.errors import ModelFileError
from kscn.estimators import checks as check
from kscn.modelfile import read_model, write_model
from kscn.nn import DeepNetwork, DenseAutoencoder, IdentityLatent, InputScaling
from kscn.nn import network as networks
from kscn.runtime.device import seeded
from kscn.runtime.minibatches import Minibatches, encode
from kscn.runtime.moments import code_moments, scaling_of
from kscn.training.driver import Run
from kscn.training.pretrain import pretrain as train_epochs
from kscn.training.trainer import Trainer
from kscn_paper.rivals.base import Rival
from kscn_paper.rivals.kmeans import CentreRival

LEARNING_RATE, SCHEDULE = 1e-3, "one-cycle"
# Share of the entries of a layer's input that are dropped in layer-wise pretraining.
DROPOUT = 0.2
# Steps that "auto" aims at, per layer and for the whole network, within most epochs.
LAYER_STEPS, MOST_LAYER_EPOCHS = 3_000, 50
STEPS, MOST_EPOCHS = 12_000, 200
# Brightest pixel of images as the dense network takes them. Vectors have a mean square of one.
BRIGHTEST = 5.2

Record = Callable[..., None]


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkRival(Rival):
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
        scaling = scaling_of(source, image)
        if image:
            scaling = InputScaling.by(scaling.shift, brightest * float(scaling.factor))
        self._set_network(network, scaling, shape)

    def _set_network(
        self, network: nn.Module, scaling: InputScaling, shape: tuple[int, ...]
    ) -> None:
        """Use a network that takes samples of a shape, scaled."""
        device = check.device(self.device)
        self.autoencoder_: Any = network.to(device)
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
        return encode(self._batches(source), DeepNetwork(self.autoencoder_, IdentityLatent()))

    def _usable_latents(self, source: Source) -> Source:
        """Latents that can be clustered: those not finite or all the same are refused."""
        latents = self._latents(source)
        code_moments(latents, device=check.device(self.device))
        return latents


@dataclass(eq=False, repr=False, kw_only=True)
class AutoencoderRival(NetworkRival):
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
        True, FLAG, PATH
    )

    def _pretrain(self, source: Source) -> None:
        """Make `autoencoder_` and `scaling_`: trained on the samples, or from the cache."""
        dense = self.autoencoder == "sae"
        brightest = BRIGHTEST if dense else 1.0
        self._build_network(self.autoencoder, self.autoencoder_params, source, brightest)
        pretrain(
            self.autoencoder_,
            self._batches(source),
            layer_epochs=self.layer_epochs if dense else 0,
            epochs=self.pretrain_epochs,
            seed=self.random_state_,
            cache=self.cache,
            record=self._record,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class AutoencoderKMeans(AutoencoderRival, CentreRival):
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


# Pretraining ------------------------------------------------------------------------------------


def pretrain(
    network: Any,
    batches: Minibatches,
    *,
    layer_epochs: int | str,
    epochs: int | str,
    seed: int,
    cache: bool | str | os.PathLike[str],
    record: Record,
) -> None:
    """Train an autoencoder by the recipe, or put in the weights that the cache has for it.

    `record` is called with the record of every epoch, or with one that names the network kept.
    """
    if isinstance(layer_epochs, str):
        layer_epochs = min(MOST_LAYER_EPOCHS, -(-LAYER_STEPS // batches.per_epoch))
    if isinstance(epochs, str):
        epochs = min(MOST_EPOCHS, -(-STEPS // batches.per_epoch))
    recipe = {
        "config": network.config(),
        "layer_epochs": int(layer_epochs),
        "epochs": int(epochs),
        "batch_size": batches.batch_size,
        "seed": seed,
        "constants": [LEARNING_RATE, SCHEDULE, DROPOUT, BRIGHTEST],
    }
    path = None
    if cache:
        folder = cache_dir() / "pretrained"
        if isinstance(cache, (str, os.PathLike)):
            folder = Path(cache).expanduser()
        path = folder / fingerprint(batches.source, recipe)
    if path is not None and path.exists() and _restore(network, path):
        record("pretrained", network=path.name)
    else:
        settings: dict[str, Any] = {
            "learning_rate": LEARNING_RATE,
            "schedule": SCHEDULE,
            "seed": seed,
        }
        for layer in range(len(layer_pairs(network)) if layer_epochs else 0):
            pair = LayerPair(network, layer, DROPOUT)
            inputs = LayerInputs(batches, network.encoder[: 2 * layer])
            part = f" layer {layer + 1}"
            train_alone(pair, inputs, int(layer_epochs), record, part=part, **settings)
        train_alone(network, batches, int(epochs), record, **settings)
        network.zero_grad()  # as a network from the cache has it
        if path is not None:
            _keep(network, path, recipe)
    network.eval()


def fingerprint(source: Source, recipe: dict[str, Any]) -> str:
    """A checksum of the samples and the recipe."""
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    digest.update(f"{len(source)} {source.shape} {source.dtype.str}".encode())
    for _, rows in source.batches(4096):
        digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.hexdigest()[:32]


def _keep(network: nn.Module, path: Path, recipe: dict[str, Any]) -> None:
    """Write the weights of a network; a disk that refuses costs a warning only."""
    try:
        write_model(path, "PretrainedAutoencoder", recipe, network.state_dict())
    except ModelFileError as error:
        warnings.warn(f"The pretrained network is not kept because {error}", stacklevel=3)


def _restore(network: nn.Module, path: Path) -> bool:
    """Put kept weights into the network, if they can be used."""
    try:
        model = read_model(path)
        networks.load_weights(network, model.tensors)
    except (ModelFileError, ValueError) as error:
        warnings.warn(f"{path.name} is made again because {error}", stacklevel=3)
        return False
    return True


def train_alone(
    network: nn.Module,
    batches: Minibatches,
    epochs: int,
    record: Record,
    *,
    learning_rate: float,
    seed: int,
    schedule: str = "constant",
    part: str = "",
) -> None:
    """Train an autoencoder, or a `part` of one, by its reconstruction; one record per epoch."""

    def report(done: dict[str, Any]) -> None:
        told = {name: done[name] for name in ("epoch", "reconstruction")}
        record(f"pretrain{part}", **told)

    run = Run(seed, batches.device, on_record=report)
    trainer = Trainer(
        DeepNetwork(network, IdentityLatent()),
        batches,
        run,
        f"pretraining{part}",
        epochs=epochs,
        learning_rate=learning_rate,
        schedule=schedule,
        augment=None,
    )
    train_epochs(trainer, epochs, run)


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
