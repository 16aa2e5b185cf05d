"""Networks of torch as encoders: modules of the caller's, never from a file, or by name.

Libraries of pretrained networks are imported when one of theirs is asked for.
"""

from __future__ import annotations

import hashlib
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.errors import InputError, reason

# No addresses and no paths: weights come from where the library itself says.
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?", re.ASCII)
_PACKAGES = {"timm": "timm", "open_clip": "open_clip_torch", "torchvision": "torchvision"}


class TorchNetwork:
    """A module from images to features; its checksum is that of its structure and weights."""

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


def is_library_name(name: str) -> bool:
    """Whether a name is that of a network in a library, such as timm:resnet50."""
    return name.partition(":")[0] in _PACKAGES and ":" in name


def pretrained(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """The network of that name without its classifier, and the library's settings for images."""
    library, _, own = name.partition(":")
    if not _NAME.fullmatch(own):
        raise InputError(
            f"encoder={reason(name)!r} is not the name of a network; give one such as "
            "timm:vit_small_patch14_dinov2, open_clip:ViT-B-32/openai or torchvision:resnet50."
        )
    package = _PACKAGES[library]
    if find_spec(library) is None:
        raise InputError(f"encoder={name} needs the package {package}; run pip install {package}.")
    try:
        module = import_module(library)
    except Exception as error:  # builds that do not fit this torch fail in ways of their own
        raise InputError(
            f"the package {package} cannot be imported ({reason(error)}); install one that fits "
            f"torch {torch.__version__}."
        ) from None
    try:
        return _MAKERS[library](module, own)
    except InputError:
        raise
    except Exception as error:  # unknown names, no network, no such weights: each has its own
        raise InputError(
            f"{library} cannot make {own} ({reason(error)}); check the name, and that its weights "
            "can be fetched."
        ) from error


def _timm(timm: Any, name: str) -> tuple[nn.Module, dict[str, Any]]:
    module = timm.create_model(name, pretrained=True, num_classes=0)
    config = timm.data.resolve_model_data_config(module)
    height, width = config["input_size"][-2:]
    fit = {"squash": "stretch", "border": "letterbox"}.get(config.get("crop_mode", ""), "crop")
    resize = int(max(height, width) / config["crop_pct"]) if fit == "crop" else None
    settings = {key: config[key] for key in ("interpolation", "mean", "std")}
    return module, settings | {"size": (height, width), "fit": fit, "resize": resize}


class _ImagePart(nn.Module):
    """Of a network for images and text, what it makes of images."""

    def __init__(self, both: nn.Module) -> None:
        super().__init__()
        self.both = both

    def forward(self, images: Tensor) -> Tensor:
        return self.both.encode_image(images)  # type: ignore[operator]


def _open_clip(open_clip: Any, name: str) -> tuple[nn.Module, dict[str, Any]]:
    own, _, weights = name.partition("/")
    if not weights:
        known = reason(", ".join(open_clip.list_pretrained_tags_by_model(own)))
        raise InputError(
            f"encoder=open_clip:{own} does not say which weights; add one of {known or 'its tags'} "
            f"after a slash, as in open_clip:{own}/openai."
        )
    both, *_ = open_clip.create_model_and_transforms(own, pretrained=weights)
    config = both.visual.preprocess_cfg
    fits = {"shortest": "crop", "longest": "letterbox", "squash": "stretch"}
    settings = {key: config[key] for key in ("size", "interpolation", "mean", "std")}
    return _ImagePart(both), settings | {"fit": fits[config.get("resize_mode", "shortest")]}


def _torchvision(torchvision: Any, name: str) -> tuple[nn.Module, dict[str, Any]]:
    weights = torchvision.models.get_model_weights(name).DEFAULT
    module = torchvision.models.get_model(name, weights=weights)
    for last in ("fc", "classifier", "heads", "head"):
        if isinstance(getattr(module, last, None), nn.Module):
            setattr(module, last, nn.Identity())
    config = weights.transforms()
    return module, {
        "size": config.crop_size[0],
        "resize": max(config.crop_size[0], config.resize_size[0]),
        "interpolation": config.interpolation.value,
        "mean": config.mean,
        "std": config.std,
    }


_MAKERS = {"timm": _timm, "open_clip": _open_clip, "torchvision": _torchvision}
