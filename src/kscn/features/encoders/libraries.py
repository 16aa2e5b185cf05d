"""Pretrained networks by name, from libraries that are imported when they are asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from kscn.errors import InputError, reason
from kscn.features.encoders.preprocessing import Preprocessing

# No addresses and no paths: weights come from where the library itself says.
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?", re.ASCII)
_PACKAGES = {"timm": "timm", "open_clip": "open_clip_torch", "torchvision": "torchvision"}


def is_library_name(name: str) -> bool:
    """Whether a name is that of a network in a library, such as timm:resnet50."""
    return name.partition(":")[0] in _PACKAGES and ":" in name


def pretrained(name: str) -> tuple[nn.Module, Preprocessing]:
    """The network of that name without its classifier, and how the library prepares images."""
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


def _timm(timm: Any, name: str) -> tuple[nn.Module, Preprocessing]:
    module = timm.create_model(name, pretrained=True, num_classes=0)
    config = timm.data.resolve_model_data_config(module)
    height, width = config["input_size"][-2:]
    fit = {"squash": "stretch", "border": "letterbox"}.get(config.get("crop_mode", ""), "crop")
    resize = int(max(height, width) / config["crop_pct"]) if fit == "crop" else None
    return module, Preprocessing(
        size=(height, width),
        fit=fit,
        resize=resize,
        interpolation=config["interpolation"],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )


class _ImagePart(nn.Module):
    """Of a network for images and text, what it makes of images."""

    def __init__(self, both: nn.Module) -> None:
        super().__init__()
        self.both = both

    def forward(self, images: Tensor) -> Tensor:
        return self.both.encode_image(images)  # type: ignore[operator]


def _open_clip(open_clip: Any, name: str) -> tuple[nn.Module, Preprocessing]:
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
    size = config["size"]
    return _ImagePart(both), Preprocessing(
        size=tuple(size) if isinstance(size, (tuple, list)) else size,
        fit=fits[config.get("resize_mode", "shortest")],
        interpolation=config["interpolation"],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )


def _torchvision(torchvision: Any, name: str) -> tuple[nn.Module, Preprocessing]:
    weights = torchvision.models.get_model_weights(name).DEFAULT
    module = torchvision.models.get_model(name, weights=weights)
    for last in ("fc", "classifier", "heads", "head"):
        if isinstance(getattr(module, last, None), nn.Module):
            setattr(module, last, nn.Identity())
    config = weights.transforms()
    size, resize = config.crop_size, config.resize_size
    return module, Preprocessing(
        size=size[0],
        resize=max(size[0], resize[0]),
        interpolation=config.interpolation.value,
        mean=tuple(config.mean),
        std=tuple(config.std),
    )


_MAKERS: dict[str, Callable[[Any, str], tuple[nn.Module, Preprocessing]]] = {
    "timm": _timm,
    "open_clip": _open_clip,
    "torchvision": _torchvision,
}
