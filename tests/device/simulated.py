"""A second device without hardware: CPU tensors that say they are elsewhere, and a count of costs.

Tensors of device "simgpu" hold their numbers in CPU memory, so results are those of the CPU to the
bit. Everything else is as on CUDA: tensors of two devices do not meet, except that a CPU tensor of
no dimensions may meet a device's and that CPU indices may select from a device's tensor; a CPU
generator draws nothing on the device, which has one of its own; numpy cannot see a device's tensor;
only CPU memory can be pinned. What makes a real device wait for the host is counted in `COSTS`
(not what its linear algebra waits for by itself, such as eigenvectors).

It stands on torch's experimental Python backend, so `unsupported()` says where it does not work.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial

import torch

NAME = "simgpu"
# Operators whose result has a size, or is a Python value, that the host has to wait for.
WAITING = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "bincount",
    "_unique2",
    "unique_consecutive",
    "unique_dim",
}
# Copies go from one device to another by themselves; indices may stay on the CPU.
COPIES = {"copy_", "_copy_from", "_copy_from_and_resize", "_to_copy"}
SELECTING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class MixedDevicesError(RuntimeError):
    """What torch raises in C++ when tensors of two devices meet."""


@dataclass
class Costs:
    """What made the device and the host wait for each other since `clear`."""

    synchronisations: int = 0
    to_device: int = 0
    to_host: list[tuple[int, ...]] = field(default_factory=list)  # shapes

    def clear(self) -> None:
        """Count from zero."""
        self.synchronisations, self.to_device = 0, 0
        self.to_host.clear()


COSTS = Costs()


class _Backend:
    """What torch asks a device module."""

    is_available = staticmethod(lambda: True)
    is_initialized = staticmethod(lambda: True)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    _is_in_bad_fork = staticmethod(lambda: False)
    # For what draws on the device without a generator: of the CPU's kind, with its own state.
    _drawing = torch.Generator()

    def manual_seed_all(self, seed):
        self._drawing.manual_seed(seed)

    def get_rng_state(self, device=0):
        return self._drawing.get_state()

    def set_rng_state(self, state, device=0):
        self._drawing.set_state(state)

    get_amp_supported_dtype = staticmethod(lambda: [torch.float16])


class SimTensor(torch.Tensor):
    """A tensor on the simulated device; `raw` holds its numbers."""

    @staticmethod
    def __new__(cls, raw):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=f"{NAME}:0",
        )

    def __init__(self, raw):
        self.raw = raw

    def __repr__(self):
        return f"{NAME}({self.raw})"

    def tolist(self):
        COSTS.synchronisations += 1
        COSTS.to_host.append(tuple(self.shape))
        return self.raw.tolist()

    def numpy(self, *, force=False):
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(f"can't convert {NAME} tensor to numpy; use Tensor.cpu() first.")

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return _run(op, *args, **(kwargs or {}))


def _run(op, *args, **kwargs):
    """Any operator, on the numbers in CPU memory."""
    tensors = []
    _each(tensors.append, (args, tuple(kwargs.values())))
    name = op._schema.name.removeprefix("aten::")
    _refuse_mixtures(name, tensors, args)
    device = kwargs.get("device")
    on_device = any(isinstance(x, SimTensor) for x in tensors)
    if device is not None:
        on_device = torch.device(device).type == NAME
        kwargs["device"] = "cpu"
    if on_device and kwargs.get("pin_memory"):
        raise RuntimeError("Only dense CPU tensors can be pinned")
    generator = kwargs.get("generator")
    if generator is not None and on_device and generator.device.type != NAME:
        raise RuntimeError(
            f"Expected a '{NAME}' device type for generator but found '{generator.device.type}'"
        )
    _count(name, args, tensors, on_device)
    plain = {key: _each(_raw, value) for key, value in kwargs.items()}
    with _drawing_there() if _draws(op) else nullcontext():
        result = op(*_each(_raw, args), **plain)
    known = {id(x.raw): x for x in tensors if isinstance(x, SimTensor)}

    def wrapped(out):
        if id(out) in known:
            found = known[id(out)]
            # squeeze_ comes from within a product with a vector, where its shape does no harm.
            fits = found.shape == out.shape or name == "squeeze_"
            assert fits, f"{name} resized a tensor, which is not simulated"
            return found
        return SimTensor(out) if on_device else out

    if name in {"copy_", "_copy_from"}:  # the target, which may be on the CPU
        return args[0] if name == "copy_" else args[1]
    return _each(wrapped, result)


@lru_cache
def _draws(op):
    named = {argument.name for argument in op._schema.arguments}
    return "generator" in named or "dropout" in op._schema.name


@contextmanager
def _drawing_there():
    """The device's random numbers in place of the CPU's."""
    before = torch.get_rng_state()
    torch.set_rng_state(_BACKEND.get_rng_state())
    try:
        yield
    finally:
        _BACKEND.set_rng_state(torch.get_rng_state())
        torch.set_rng_state(before)


def _each(change, value):
    """`value` with every tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)([_each(change, item) for item in value])
    return value


def _made(function, *args, device, **kwargs):
    """A new tensor of an operator that would else begin with an empty one and resize it."""
    return SimTensor(function(*args, **kwargs, device="cpu"))


def _raw(x):
    return x.raw if isinstance(x, SimTensor) else x


def _refuse_mixtures(name, tensors, args):
    if name in COPIES:
        return
    if name in {"_pin_memory", "pin_memory"}:
        raise RuntimeError("cannot pin: only dense CPU tensors can be pinned")
    if name in SELECTING:
        if not isinstance(args[0], SimTensor):
            raise MixedDevicesError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        tensors = [x for x in args[2:3] if isinstance(x, torch.Tensor)]
    elif not any(isinstance(x, SimTensor) for x in tensors):
        return
    for x in tensors:
        if not isinstance(x, SimTensor) and x.dim() > 0:
            raise MixedDevicesError(
                f"Expected all tensors to be on the same device, but found at least two devices, "
                f"{NAME}:0 and cpu! ({name}, a CPU tensor of shape {tuple(x.shape)})"
            )


def _count(name, args, tensors, on_device):
    if name in WAITING:
        COSTS.synchronisations += 1
    elif name in SELECTING:
        # A mask is turned into row numbers first, however many they are.
        masks = {torch.bool, torch.uint8}
        COSTS.synchronisations += any(
            isinstance(x, SimTensor) and x.dtype in masks for x in args[1] if x is not None
        )
    elif name == "repeat_interleave":
        COSTS.synchronisations += 1
    elif name in COPIES:
        source, target = args[0], on_device
        if name != "_to_copy":
            target, source = args[:2] if name == "copy_" else args[1::-1]
            target = isinstance(target, SimTensor)
        if isinstance(source, SimTensor) and not target:
            COSTS.synchronisations += 1
            COSTS.to_host.append(tuple(source.shape))
        elif target and not isinstance(source, SimTensor) and source.dim():
            COSTS.to_device += 1


_BACKEND = _Backend()
_LIBRARY = []


def unsupported() -> str | None:
    """Why the simulated device cannot be had here, or None where it can; it is made once."""
    if _LIBRARY:
        return None
    if not torch.__version__.startswith("2.13."):
        return (
            f"the simulated device stands on private parts of torch 2.13, not {torch.__version__}"
        )
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, backend_module=_BACKEND)
    library = torch.library.Library("_", "IMPL")
    library.fallback(_run, "PrivateUse1")
    factories = torch.library.Library("aten", "IMPL")
    for name in ("arange", "arange.start", "arange.start_step", "eye", "eye.m"):
        factories.impl(name, partial(_made, getattr(torch, name.split(".")[0])), "PrivateUse1")
    _LIBRARY.extend([library, factories])
    return None
