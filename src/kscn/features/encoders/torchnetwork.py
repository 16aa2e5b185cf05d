"""Networks of torch as encoders: modules of the caller's, never from a file, or timm's by name."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.errors import InputError, reason
from kscn.extras import require

TIMM = "timm:"
# No addresses and no paths: weights come from where timm itself says.
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*", re.ASCII)


class TorchNetwork:
    """A module from images to features; its checksum is that of its structure and weights."""

    def __init__(self, module: nn.Module, name: str | None = None) -> None:
        self.module, self.findable = module, name is not None
        self.name = name or type(module).__name__
        self.device = torch.device("cpu")
        digest = hashlib.sha256(str(module).encode())
        for key, tensor in module.state_dict().items():
            digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
            flat = tensor.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy() if flat.numel() else b"")
        self.sha256 = digest.hexdigest()

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the network makes of prepared images (b, ...), (b, ...)."""
        self.module.eval()
        like = next(self.module.parameters(), torch.empty(0))
        try:
            with torch.no_grad():
                made = self.module(torch.from_numpy(images).to(self.device, like.dtype))
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


def from_timm(name: str) -> tuple[TorchNetwork, dict[str, Any]]:
    """The network of that name without its classifier, and timm's settings for images."""
    own = name.removeprefix(TIMM)
    if not _NAME.fullmatch(own):
        raise InputError(
            f"encoder={reason(name)!r} is not the name of a network; give one such as "
            "timm:vit_small_patch14_dinov2.lvd142m."
        )
    try:
        timm = require("timm", "encoders", f"encoder={name}")
        module = timm.create_model(own, pretrained=True, num_classes=0)
    except InputError:
        raise
    except Exception as error:  # an import that does not fit this torch, names, weights: any kind
        raise InputError(
            f"timm cannot make {own} ({reason(error)}); check the name, that its weights can be "
            f"fetched, and that timm and torchvision fit torch {torch.__version__}."
        ) from error
    config = timm.data.resolve_model_data_config(module)
    settings = {key: config[key] for key in ("interpolation", "mean", "std")}
    settings["size"] = config["input_size"][-2:]
    if config.get("crop_mode") == "squash":
        settings["fit"] = "stretch"
    else:
        settings["resize"] = int(max(settings["size"]) / config["crop_pct"])
    return TorchNetwork(module, name), settings
