"""A network of torch as an encoder; always one that the caller made, never one from a file."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.errors import InputError, reason


class TorchNetwork:
    """A module from images to features.

    Parameters
    ----------
    module : torch.nn.Module
        Put into evaluation mode whenever it is asked.
    name : str, optional
        What to call it; by default the name of its class.

    Attributes
    ----------
    sha256 : str
        Of its structure and its weights.
    """

    def __init__(self, module: nn.Module, name: str | None = None) -> None:
        self.module = module
        self.name = name or type(module).__name__
        self.device = torch.device("cpu")
        digest = hashlib.sha256(str(module).encode())
        for key, tensor in module.state_dict().items():
            digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
            flat = tensor.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy() if flat.numel() else b"")
        self.sha256 = digest.hexdigest()

    def to(self, device: torch.device) -> None:
        """Compute there from now on."""
        self.device = device
        self.module.to(device)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the network makes of prepared images (b, ...), (b, ...)."""
        self.module.eval()
        like = next(self.module.parameters(), torch.empty(0))
        batch = torch.from_numpy(images).to(self.device, like.dtype)
        try:
            with torch.no_grad():
                made = self.module(batch)
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
            raise InputError(
                f"encoder={self.name} cannot take images of {images.shape[1:]} ({reason(error)}); "
                "give it with the Preprocessing that it was trained with."
            ) from error
        if not isinstance(made, Tensor):
            raise InputError(
                f"encoder={self.name} returns a {type(made).__name__}; let its forward return one "
                "tensor."
            )
        return made.float().cpu().numpy()
