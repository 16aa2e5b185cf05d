"""An encoder: a network with its preprocessing, and images through it in batches."""

import os
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from kscn.errors import InputError, reason
from kscn.features.encoders.cache import Cache
from kscn.features.encoders.networks import TIMM, OnnxNetwork, TorchNetwork, from_timm
from kscn.features.encoders.pictures import Pictures, Preprocessing
from kscn.parallel import side_by_side

# Images that go through the network and then are kept together; of fewer images none is kept, as
# they are computed sooner than looked for.
BATCH = 32
CPU = torch.device("cpu")


class Encoder:
    """A pretrained network and the preprocessing that it was trained with.

    `load_encoder` makes one from a file, a name or a module.

    Parameters
    ----------
    network : torch.nn.Module, OnnxNetwork or TorchNetwork
        From prepared images to features.
    preprocessing : Preprocessing, optional
        How images are prepared; by default for networks of ImageNet, at 224 pixels a side.

    Attributes
    ----------
    name : str
        The path of a file, the name in a library, or the class of a module.
    sha256 : str
        Checksum of the network.
    preprocessing : Preprocessing
    dim : int
        Numbers in an embedding.
    """

    def __init__(
        self,
        network: nn.Module | OnnxNetwork | TorchNetwork,
        preprocessing: Preprocessing | None = None,
    ) -> None:
        self.network = TorchNetwork(network) if isinstance(network, nn.Module) else network
        self.preprocessing = preprocessing or Preprocessing()
        self.name, self.sha256 = self.network.name, self.network.sha256
        # What it makes of one black image tells its output's shape.
        self.raw_shape = self.network(np.zeros((1, *self.preprocessing.shape), np.float32)).shape
        features = pooled(np.zeros(self.raw_shape))
        if self.raw_shape[0] != 1 or features.ndim != 2 or features.shape[1] < 2:
            raise InputError(
                f"encoder={self.name} gives an output of shape {self.raw_shape} for one image; "
                "vectors (n, d), maps (n, d, h, w) or sequences (n, t, d) of at least 2 numbers d "
                "are needed, and the first axis must count images."
            )
        self.dim = int(features.shape[1])

    def __deepcopy__(self, memo: object) -> Self:
        return self  # nothing of it changes, and a session cannot be copied

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on; an ONNX file stays on the CPU."""
        if isinstance(self.network, TorchNetwork):
            self.network.device = device
            self.network.module.to(device)
        return self

    @property
    def about(self) -> dict[str, Any]:
        """Name, checksum and preprocessing as plain values, as a run or a model file holds them."""
        settings = self.preprocessing.table()
        return {"name": self.name, "sha256": self.sha256, "preprocessing": settings}

    def prepare(self, images: Any) -> NDArray[np.float32]:
        """Images as the network takes them, of the shape ``(n, *preprocessing.shape)``.

        Parameters
        ----------
        images : array-like, torch.Tensor, Source or path
            Images (n, h, w), (n, c, h, w) or (n, h, w, c), or a folder of any images.
        """
        pictures = Pictures(images)
        every = (pictures.prepared(row, self.preprocessing) for row in range(len(pictures.source)))
        return np.stack(list(every))

    def embed(
        self,
        images: Any,
        rows: Sequence[int] | None = None,
        *,
        cache: bool = True,
        progress: Callable[[int, int], object] | None = None,
    ) -> NDArray[np.float32]:
        """Embeddings of images, (n, dim), rounded to float16 as the cache holds them.

        Parameters
        ----------
        images : array-like, torch.Tensor, Source or path
            Images (n, h, w), (n, c, h, w) or (n, h, w, c), or a folder of any images.
        rows : sequence of int, optional
            Which of them; by default all.
        cache : bool
            Whether to look into the cache on disk first, and to keep there what was computed; of
            fewer than 32 images nothing is kept.
        progress : callable, optional
            Called as ``progress(done, total)`` after every batch.
        """
        pictures = Pictures(images)
        rows = range(len(pictures.source)) if rows is None else rows
        kept = Cache(f"{self.sha256} {self.preprocessing}")
        cache = cache and len(rows) >= BATCH
        digests = list(side_by_side(pictures.digest, rows, CPU))
        row_of = dict(zip(digests, rows, strict=True))  # equal images are computed once
        known = kept.read(row_of) if cache else {}
        todo = [digest for digest in row_of if digest not in known]
        size = max(BATCH, 4 * torch.get_num_threads())
        for lot in (todo[low : low + size] for low in range(0, len(todo), size)):
            ready = side_by_side(
                lambda own: pictures.prepared(row_of[own], self.preprocessing), lot, CPU
            )
            made = dict(zip(lot, self.run(np.stack(list(ready))), strict=True))
            if cache:
                kept.write(made)
            known |= made
            if progress is not None:
                progress(len(known), len(row_of))
        return np.array([known[own] for own in digests], np.float32).reshape(-1, self.dim)

    def run(self, prepared: NDArray[np.float32]) -> NDArray[np.float16]:
        """Embeddings (n, dim) of prepared images (n, ...), in float16.

        On the CPU every image goes alone, side by side with others: that is faster than batches,
        and what becomes of an image does not depend on those beside it.
        """
        device = self.network.device
        pieces = np.split(prepared, len(prepared)) if device.type == "cpu" else [prepared]
        each = side_by_side(lambda piece: pooled(self.network(piece)), pieces, device)
        with np.errstate(over="ignore"):
            halves = np.concatenate(list(each)).astype(np.float16)
        if not np.isfinite(halves).all():
            raise InputError(
                f"encoder={self.name} gives values that are not finite or beyond 65,504, the range "
                "of float16; check its preprocessing, or let its last layer normalise."
            )
        return halves


def pooled(raw: Any) -> Any:
    """Features (n, d) from vectors, maps (their mean) or sequences (their first)."""
    if raw.ndim == 3:
        return raw[:, 0]
    return raw.mean((2, 3)) if raw.ndim == 4 else raw


def load_encoder(encoder: Any, **settings: Any) -> Encoder:
    """An encoder from whatever names or is one.

    Parameters
    ----------
    encoder : str, Path, torch.nn.Module or Encoder
        An .onnx file, whose preprocessing stands in a .toml file of the same name beside it;
        "timm:NAME" where timm is installed; or a module.
    **settings
        Of `Preprocessing`; they count more than what the file or the library says.

    Raises
    ------
    InputError
        If it cannot be used, and why.
    """
    if isinstance(encoder, Encoder):
        return encoder
    if isinstance(encoder, nn.Module):
        return Encoder(encoder, Preprocessing.of_table(settings, "the encoder"))
    if isinstance(encoder, str) and encoder.startswith(TIMM):
        module, usual = from_timm(encoder)
        return Encoder(module, Preprocessing.of_table(usual | settings, encoder))
    if not isinstance(encoder, (str, os.PathLike)) or Path(encoder).suffix.lower() != ".onnx":
        raise InputError(
            f"encoder={reason(str(encoder))!r} cannot be used; give an .onnx file, a name such as "
            "timm:resnet50, or in Python a torch module."
        )
    return _of_file(Path(encoder).expanduser(), settings)


def _of_file(path: Path, settings: dict[str, Any]) -> Encoder:
    """A network in an ONNX file; the graph says what its settings leave open."""
    network, beside = OnnxNetwork(path), path.with_suffix(".toml")
    given = {"size": network.size} | (_read_toml(beside) if beside.exists() else {}) | settings
    if given["size"] is None:
        raise InputError(
            f"{path} does not say how large images should be; write size = 224, or what it was "
            f"trained with, into {beside}."
        )
    preprocessing = Preprocessing.of_table(given, str(beside if beside.exists() else path))
    network.output = preprocessing.output or network.output
    return Encoder(network, preprocessing)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} cannot be read ({reason(error)}); write settings such as size = 224 into it."
        ) from None
