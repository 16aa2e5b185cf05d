"""From an estimator's arguments to a network for the samples at hand, or from a model file."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kscn.data import Source
from kscn.errors import InputError, ModelFileError
from kscn.nn.augment import RandomAffine, RandomNoise
from kscn.nn.convolutional import ConvAutoencoder
from kscn.nn.sae import DenseAutoencoder

AUTOENCODERS = {"cae": ConvAutoencoder, "sae": DenseAutoencoder}
AUGMENTATIONS: dict[str, Callable[..., Any]] = {
    "affine": RandomAffine,
    "elastic": partial(RandomAffine, bend=0.03),  # strokes vary as they do between writers
    "noise": RandomNoise,
}
_COLOURS = (1, 3, 4)


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(channels, height, width) of samples that are images, None of samples that are vectors."""
    if len(shape) == 2:
        return (1, shape[0], shape[1])
    if len(shape) != 3:
        return None
    if shape[2] in _COLOURS and shape[0] not in _COLOURS:
        raise InputError(
            f"samples of shape {shape} look like images with colours last; pass them as "
            "(n, channels, height, width), for example X.transpose(0, 3, 1, 2)."
        )
    return (shape[0], shape[1], shape[2])


def build(kind: Any, params: Mapping[str, Any] | None, shape: tuple[int, ...]) -> nn.Module:
    """The autoencoder that the argument names, for samples of a shape; a module is copied.

    The copy leaves the user's module as it was, which is what scikit-learn's clone and a second
    fit rely on.
    """
    if isinstance(kind, nn.Module):
        for method in ("encode", "decode"):
            if not callable(getattr(kind, method, None)):
                raise InputError(
                    f"autoencoder={type(kind).__name__} has no method {method}; a module needs "
                    "encode(samples) -> (n, d) and decode(latents) -> samples."
                )
        if not any(parameter.requires_grad for parameter in kind.parameters()):
            raise InputError(
                f"autoencoder={type(kind).__name__} has no parameters that can be trained; use "
                "KSubspaces for a fixed map."
            )
        return copy.deepcopy(kind)
    image = image_shape(shape)
    if kind == "auto":
        kind = "sae" if image is None else "cae"
    if not isinstance(kind, str) or kind not in AUTOENCODERS:
        raise InputError(
            f"autoencoder={kind!r} is not known; use 'auto', 'cae', 'sae' or a torch module with "
            "encode and decode."
        )
    if kind == "cae" and image is None:
        raise InputError(
            f"autoencoder='cae' needs images, (n, h, w) or (n, c, h, w), but the samples have "
            f"shape {shape}; use 'sae' for vectors."
        )
    size = image if kind == "cae" else int(np.prod(shape))
    try:
        return AUTOENCODERS[kind](size, **dict(params or {}))
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"autoencoder_params={params!r} do not fit {kind!r}: {error}.") from None


def code_dim(kind: Any, params: Mapping[str, Any] | None, shape: tuple[int, ...]) -> int:
    """Length of the code of the autoencoder that `build` would make for samples of a shape."""
    if isinstance(kind, nn.Module):
        made = build(kind, params, shape).cpu()
        return checked_run(made, torch.zeros(2, *input_shape(made, shape)))
    with torch.device("meta"):  # its weights are not needed
        return int(build(kind, params, shape).latent_dim)  # type: ignore[arg-type]


def input_shape(autoencoder: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one sample as the network takes it."""
    image = image_shape(shape)
    if isinstance(autoencoder, DenseAutoencoder) or image is None:
        return (int(np.prod(shape)),)
    return image


def checked_run(autoencoder: nn.Module, sample: Tensor) -> int:
    """Try the network on one sample; return the length of its latent."""
    name, size = type(autoencoder).__name__, tuple(sample.shape)
    autoencoder.eval()
    try:
        with torch.no_grad():
            latent = autoencoder.encode(sample)  # type: ignore[operator]
            restored = autoencoder.decode(latent)  # type: ignore[operator]
    except RuntimeError as error:
        raise InputError(f"{name} cannot take samples of {size[1:]}: {error}") from error
    if not isinstance(latent, Tensor) or latent.ndim != 2 or len(latent) != len(sample):
        raise InputError(
            f"encode of {name} must return (n, d), but gave {_told(latent)} for {size}."
        )
    if not isinstance(restored, Tensor) or restored.shape != sample.shape:
        raise InputError(
            f"decode of {name} returns {_told(restored)} for samples of {size}; it must restore "
            "their shape."
        )
    return int(latent.shape[1])


def _told(result: Any) -> str:
    return str(tuple(result.shape)) if isinstance(result, Tensor) else f"a {type(result).__name__}"


def augmentation(
    wanted: Any, shape: tuple[int, ...]
) -> Callable[[Tensor, torch.Generator], Tensor] | None:
    """The augmentation that the argument names: a name, a table with settings, or a function."""
    if wanted is None or callable(wanted):
        return wanted
    settings = dict(wanted) if isinstance(wanted, Mapping) else {"kind": wanted}
    kind = settings.pop("kind", "affine")
    if not isinstance(kind, str) or kind not in AUGMENTATIONS:
        raise InputError(
            f"augment={wanted!r} is not known; use None, {', '.join(map(repr, AUGMENTATIONS))}, a "
            "table with one of them as 'kind' and its settings, or a function (batch, generator) "
            "-> batch."
        )
    if kind in ("affine", "elastic") and len(shape) != 3:
        raise InputError(f"augment={kind!r} needs images; use 'noise' for vectors.")
    try:
        return AUGMENTATIONS[kind](**settings)
    except TypeError as error:
        raise InputError(f"augment={wanted!r} does not fit: {error}.") from None


def misfit(module: nn.Module, tensors: Mapping[str, Any]) -> str | None:
    """Say in words which tensors are not those of a module, or return None when all are."""
    wanted = module.state_dict()
    for name in {**wanted, **tensors}:
        if name not in wanted or name not in tensors:
            return f"{name[:80]!r} is missing or unknown"
        found, like = torch.as_tensor(tensors[name]), wanted[name]
        if (found.shape, found.dtype) != (like.shape, like.dtype):
            there, here = f"{found.dtype} {tuple(found.shape)}", f"{like.dtype} {tuple(like.shape)}"
            return f"{name[:80]!r} is {there} and should be {here}"
        if not found.isfinite().all():
            return f"{name[:80]!r} contains NaN or infinity"
    return None


def part(tensors: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The tensors under `name.`, without that prefix."""
    start = f"{name}."
    return {key.removeprefix(start): v for key, v in tensors.items() if key.startswith(start)}


def load_weights(module: nn.Module, tensors: Mapping[str, Any], what: str) -> None:
    """Put saved weights into a network, or say which of them are not its own."""
    fault = misfit(module, tensors)
    if fault is not None:
        raise ModelFileError(
            f"{what} is from another architecture than this {type(module).__name__}, or from "
            f"other image sizes: {fault}; give the one it was saved from."
        )
    module.load_state_dict({name: torch.as_tensor(value) for name, value in tensors.items()})


def check_images(source: Source, expected: tuple[int, ...], name: str) -> None:
    """Refuse images of another shape than the network takes; vectors may come in any shape."""
    if len(expected) == 3 and image_shape(source.shape) != expected:
        raise InputError(
            f"X has samples of shape {source.shape}, but {name} is expecting images of {expected} "
            "(channels, height, width)."
        )
