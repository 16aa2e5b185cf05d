"""The steps of fitted models by name: described as plain values, and made again of them.

A description may come from anywhere. So a step is made without memory first, and compared with the
tensors that a file holds for it: one that a file only pretends to hold is never allocated.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from kscn.constraints import require
from kscn.errors import ModelFileError
from kscn.features.components import Components
from kscn.features.images import BlockMeans, ScatteringMaps
from kscn.features.votes import Votes
from kscn.nn import (
    ConvAutoencoder,
    ConvEncoder,
    DenseAutoencoder,
    InputScaling,
    UnitLatent,
    WhitenedLatent,
    network,
)
from kscn.nn.rows import applied

STEPS: dict[str, type[nn.Module]] = {
    "scaling": InputScaling,
    "means": BlockMeans,
    "scattering": ScatteringMaps,
    "components": Components,
    "votes": Votes,
    "cae": ConvAutoencoder,
    "sae": DenseAutoencoder,
    "encoder": ConvEncoder,
    "whitened": WhitenedLatent,
    "unit": UnitLatent,
}
CUSTOM = "custom"  # a network of the user's own, of which a file has the weights only
KINDS = {cls: kind for kind, cls in STEPS.items()}
# Entries of a list in a config, besides one for every tensor of the step.
FREE_ENTRIES = 3


def described(steps: Iterable[nn.Module]) -> list[dict[str, Any]]:
    """What steps are, as plain values."""
    return [
        {"kind": KINDS[type(step)], "config": step.config()}  # type: ignore[operator]
        if type(step) in KINDS
        else {"kind": CUSTOM, "name": type(step).__name__}
        for step in steps
    ]


def built(
    described: Any,
    tensors: Mapping[str, Any],
    shape: tuple[int, ...],
    given: nn.Module | None = None,
) -> tuple[nn.ModuleList, tuple[int, ...]]:
    """The steps that were described, with their tensors, and the shape that they make of `shape`.

    `given` is a copy of the user's own network, if there is one. What is wrong is a ValueError or
    one that torch raises where shapes do not fit.
    """
    steps = nn.ModuleList()
    for number, entry in enumerate(described):
        weights = network.part(tensors, str(number))
        if entry["kind"] == CUSTOM:
            step = _given(given, str(entry["name"])[:80], weights)
            shape = (network.checked_run(step, torch.zeros(2, *shape)),)
        else:
            step = made(STEPS[entry["kind"]], entry["config"], weights)
            shape = _made_of(shape, step.eval())
        steps.append(step)
    if given is not None and given not in steps:
        names = [type(step).__name__ for step in steps if hasattr(step, "decode")]
        has = f"brings its own {names[0]}" if names else "has no network of yours"
        raise ModelFileError(f"this model {has}; open it without autoencoder=.")
    return steps.eval(), shape


def _given(given: nn.Module | None, name: str, weights: Mapping[str, Any]) -> nn.Module:
    if given is None:
        raise ModelFileError(
            f"this model was trained with a network of your own, {name}; open it "
            f"with load_model(path, autoencoder={name}(...))."
        )
    network.load_weights(given, weights)
    return given


def _made_of(shape: tuple[int, ...], step: nn.Module) -> tuple[int, ...]:
    """The shape of what a step makes of a sample; tried, unless its arguments say it."""
    if isinstance(step, (ConvAutoencoder, ConvEncoder)):
        require(step.shape == shape, f"its network does not take samples of {shape}")
        return (step.latent_dim,)
    if isinstance(step, ScatteringMaps):
        require(math.prod(step.shape) == math.prod(shape), f"it scatters no samples of {shape}")
        return (step.width,)
    with torch.no_grad():
        return tuple(applied(step, torch.zeros(1, *shape)).shape[1:])


def made(cls: type[nn.Module], config: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
    """A module made by a config, with these weights, if they are its own.

    It is first made without memory: what a file only pretends to hold is never allocated.
    """
    entries = max((len(value) for value in config.values() if isinstance(value, list)), default=0)
    require(entries <= len(weights) + FREE_ENTRIES, "it has weights for fewer layers than it names")
    with torch.device("meta"):
        module = cls(**config)
    network.check_weights(module, weights)
    # Not module.to_empty, which imports a part of torch's compiler. Strides stay the module's own.
    filled = {
        name: torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        for name, like in module.state_dict().items()
    }
    module.load_state_dict(filled, assign=True)
    network.load_weights(module, weights)
    fault: Any = getattr(module, "fault", lambda: None)()
    require(fault is None, fault)
    return module
