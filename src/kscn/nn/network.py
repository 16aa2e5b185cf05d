"""From an estimator's arguments to a network for the samples at hand, or from a model file."""

import copy
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from kscn.constraints import Test, check_value, require
from kscn.data import Source
from kscn.errors import InputError
from kscn.nn.augment import RandomAffine, RandomNoise
from kscn.nn.convolutional import ConvAutoencoder
from kscn.nn.sae import DenseAutoencoder

AUTOENCODERS = {"cae": ConvAutoencoder, "sae": DenseAutoencoder}
AUGMENTATIONS: dict[str, Callable[..., Any]] = {
    "affine": RandomAffine,
    "elastic": partial(RandomAffine, bend=0.03),  # strokes vary as they do between writers
    "noise": RandomNoise,
}
# What else arguments may be, for messages: both are looked at before words are.
MODULE = Test("a torch module with encode and decode", lambda value: isinstance(value, nn.Module))
OWN_AUGMENTATION = Test("a function (batch, generator) -> batch", callable)
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
        if not any(parameter.requires_grad for parameter in kind.parameters()):
            raise InputError(
                f"autoencoder={type(kind).__name__} has no parameters that can be trained; use "
                "KSubspaces for a fixed map."
            )
        return copy.deepcopy(kind)
    image = image_shape(shape)
    check_value("autoencoder", kind, ["auto", *AUTOENCODERS, MODULE])
    if kind == "cae" and image is None:
        raise InputError(
            f"autoencoder='cae' needs images, (n, h, w) or (n, c, h, w), but the samples have "
            f"shape {shape}; use 'sae' for vectors."
        )
    size = image if kind == "cae" else math.prod(shape)
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
    image = None if isinstance(autoencoder, DenseAutoencoder) else image_shape(shape)
    return image or (math.prod(shape),)


def checked_run(autoencoder: nn.Module, samples: Tensor) -> int:
    """Try the network on a few samples; return the length of its code."""
    autoencoder.eval()
    try:
        with torch.no_grad():
            code = autoencoder.encode(samples)  # type: ignore[operator]
            restored = autoencoder.decode(code)  # type: ignore[operator]
        fits = code.ndim == 2 and len(code) == len(samples) and restored.shape == samples.shape
        told = f"encode gives {tuple(code.shape)} and decode {tuple(restored.shape)}"
    except (AttributeError, RuntimeError, TypeError) as error:
        fits, told = False, str(error)
    if not fits:
        raise InputError(
            f"autoencoder={type(autoencoder).__name__} needs encode(samples) -> (n, d) and "
            f"decode(codes) -> samples, but for samples of {tuple(samples.shape)}: {told}."
        )
    return int(code.shape[1])


def augmentation(
    wanted: Any, shape: tuple[int, ...]
) -> Callable[[Tensor, torch.Generator], Tensor] | None:
    """The augmentation that the argument names: a name, a table with settings, or a function."""
    if wanted is None or callable(wanted):
        return wanted
    settings = dict(wanted) if isinstance(wanted, Mapping) else {"kind": wanted}
    kind = settings.pop("kind", "affine")
    check_value("augment", kind, [None, *AUGMENTATIONS, OWN_AUGMENTATION])
    if kind in ("affine", "elastic") and len(shape) != 3:
        raise InputError(f"augment={kind!r} needs images; use 'noise' for vectors.")
    try:
        return AUGMENTATIONS[kind](**settings)
    except TypeError as error:
        raise InputError(f"augment={wanted!r} does not fit: {error}.") from None


def check_weights(module: nn.Module, tensors: Mapping[str, Any]) -> None:
    """Refuse tensors that are not those of a module, by a ValueError."""
    wanted, own = module.state_dict(), f"of another architecture than this {type(module).__name__}"
    for name in sorted(wanted.keys() | tensors.keys()):
        told = f"{name[:80]!r} is {own}"
        require(name in wanted and name in tensors, f"{told}: missing or unknown")
        found, like = torch.as_tensor(tensors[name]), wanted[name]
        there, here = f"{found.dtype} {tuple(found.shape)}", f"{like.dtype} {tuple(like.shape)}"
        require(there == here, f"{told}: {there} and not {here}")
        require(bool(found.isfinite().all()), f"{name[:80]!r} contains NaN or infinity")


def part(tensors: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The tensors under `name.`, without that prefix."""
    start = f"{name}."
    return {key.removeprefix(start): v for key, v in tensors.items() if key.startswith(start)}


def load_weights(module: nn.Module, tensors: Mapping[str, Any]) -> None:
    """Put saved weights into a network, or say by a ValueError why they are not its own."""
    check_weights(module, tensors)
    module.load_state_dict({name: torch.as_tensor(value) for name, value in tensors.items()})


def check_images(source: Source, expected: tuple[int, ...], name: str) -> None:
    """Refuse images of another shape than the network takes; vectors may come in any shape."""
    if len(expected) == 3 and image_shape(source.shape) != expected:
        raise InputError(
            f"X has samples of shape {source.shape}, but {name} is expecting images of {expected} "
            "(channels, height, width)."
        )
