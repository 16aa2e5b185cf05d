"""A network in an ONNX file, run by onnxruntime on the CPU.

The file may come from anywhere. onnxruntime knows no operators but its own here, so a graph can do
nothing but compute; its weights may lie in files beside it and nowhere else, and both they and what
it allocates on its way are limited to 4 GiB, or KSCN_MAX_BYTES.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.data.limits import check_bytes, check_regular, max_bytes
from kscn.errors import InputError, reason
from kscn.extras import require
from kscn.features.encoders.preprocessing import Preprocessing
from kscn.modelfile import sha256_of

_WHAT = "an encoder in an .onnx file"
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


class OnnxNetwork:
    """An ONNX graph from images to features.

    Its checksum is that of the file, followed by the files that hold its weights, if there are any;
    `files` are all of these.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.absolute())
        if not path.exists():
            raise InputError(f"encoder={path} does not exist; give an .onnx file.")
        check_regular(path)
        check_bytes(str(path), path.stat().st_size)
        content = path.read_bytes()
        parts = _weight_files(path, content)
        self.files = [path, *parts]
        self.sha256 = sha256_of(*parts, start=content).hexdigest()
        # By its name only where weights lie beside it, so that what runs is what was hashed.
        self._session = _session(path, str(path) if parts else content)
        inputs = self._session.get_inputs()
        self.input, self.output = inputs[0], ""
        self._shape = [side if isinstance(side, int) else None for side in self.input.shape]
        if (
            len(inputs) != 1
            or self.input.type not in _TYPES
            or len(self._shape) != 4
            or self._shape[0] not in (None, 1)
        ):
            told = reason(", ".join(f"{one.name}: {one.type} {one.shape}" for one in inputs))
            raise InputError(
                f"{path} takes {told}; an encoder takes one input, images (n, channels, height, "
                "width) of float32 with n = 1 or any."
            )

    def preprocessing(self, settings: dict[str, Any], where: str) -> Preprocessing:
        """The settings, which stand in the file `where`; the graph says what they leave open."""
        _, channels, *sides = self._shape
        usual: dict[str, Any] = {"channels": "L" if channels == 1 else "RGB"}
        if None not in sides:
            usual["size"] = sides
        elif "size" not in settings:
            raise InputError(
                f"{self.path} does not say how large images should be; write size = 224, or what "
                f"it was trained with, into {self.path.with_suffix('.toml')}."
            )
        found = Preprocessing.of_table(usual | settings, where)
        taken = (channels, *sides)
        if any(own not in (None, side) for side, own in zip(found.shape, taken, strict=True)):
            told = ", ".join("any" if side is None else str(side) for side in taken)
            raise InputError(
                f"{where} describes images of {found.shape}, but {self.path} takes ({told}); "
                "correct its size or channels, or export it with channels first."
            )
        names = [one.name for one in self._session.get_outputs()]
        if found.output not in (None, *names):
            raise InputError(
                f"{where} asks for the output {reason(found.output or '')!r}, which {self.path} "
                f"does not have; it has {reason(', '.join(names))}."
            )
        self.output = found.output or names[0]
        return found

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the network makes of prepared images (b, ...), (b, ...)."""
        batch = images.astype(_TYPES[self.input.type], copy=False)
        try:
            (made,) = self._session.run([self.output], {self.input.name: batch})
        except Exception as error:  # whatever the code of an operator met
            raise InputError(
                f"{self.path} cannot take images of {images.shape[1:]} ({reason(error)}); correct "
                f"the size in {self.path.with_suffix('.toml')}, or export it again."
            ) from None
        if not isinstance(made, np.ndarray) or made.dtype.kind != "f":
            raise InputError(
                f"the output {self.output} of {self.path} holds no fractions; name another one as "
                f"output in {self.path.with_suffix('.toml')}."
            )
        return np.asarray(made, dtype=np.float32)


def _session(path: Path, model: str | bytes) -> Any:
    runtime = require("onnxruntime", "onnx", _WHAT)
    _limit_memory(runtime)
    options = runtime.SessionOptions()
    # Images go through it side by side: each by one thread is the fastest way, and what an image
    # becomes depends neither on those beside it nor on the number of threads.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # faults come as exceptions
    options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the parser has many
        raise InputError(
            f"{path} cannot be run by onnxruntime ({reason(error)}); export it again, with the "
            "standard operators only."
        ) from None


@cache
def _limit_memory(runtime: Any) -> None:
    """Let all sessions of this process allocate from one place that has an end."""
    kinds = runtime.OrtAllocatorType, runtime.OrtMemType
    place = runtime.OrtMemoryInfo("Cpu", kinds[0].ORT_ARENA_ALLOCATOR, 0, kinds[1].DEFAULT)
    limits = runtime.OrtArenaCfg({"max_mem": max_bytes(), "arena_extend_strategy": 1})
    with suppress(Exception):  # the caller's own code has set a limit before
        runtime.create_and_register_allocator(place, limits)


def _weight_files(path: Path, content: bytes) -> list[Path]:
    """The files beside the graph that hold weights too large for it."""
    onnx = require("onnx", "onnx", _WHAT)
    try:
        graph = onnx.load_from_string(content).graph
    except Exception as error:  # protobuf's own, which differ by version
        raise InputError(f"{path} is not an ONNX file ({reason(error)}); give one.") from None
    names = {
        entry.value
        for tensor in graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    parts = []
    for name in sorted(names):
        place = path.parent / name
        if len(PurePosixPath(name).parts) != 1 or name in ("..", ".") or place.is_symlink():
            raise InputError(
                f"{path} has weights in {reason(name)!r}, which is not a file beside it; keep both "
                "in one folder."
            )
        if not place.exists():
            raise InputError(f"{place} is missing, which holds weights of {path}; put it there.")
        check_regular(place)
        parts.append(place)
    check_bytes(str(path), len(content) + sum(part.stat().st_size for part in parts))
    return parts
