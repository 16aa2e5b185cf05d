"""A network in an ONNX file, run by onnxruntime on the CPU.

The file may come from anywhere. onnxruntime knows no operators but its own here, so a graph can do
nothing but compute; onnx reads weights from files beside it and from nowhere else; and both the
file and what it allocates on its way are limited to 4 GiB, or KSCN_MAX_BYTES.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kscn.data.limits import check_bytes, check_regular, max_bytes
from kscn.errors import InputError, reason
from kscn.extras import require

_WHAT = "an encoder in an .onnx file"
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


class OnnxNetwork:
    """An ONNX graph from images to features.

    `size` is that of its images, if the graph says so, and `output` the name of the one that it
    computes. Its checksum is that of the file; of one whose weights lie beside it, that of the
    whole.
    """

    device = torch.device("cpu")
    findable = True

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path.absolute())
        content = _read(path)
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._session = _session(path, content)
        inputs = self._session.get_inputs()
        told = reason(", ".join(f"{one.name}: {one.type} {one.shape}" for one in inputs))
        if len(inputs) != 1 or inputs[0].type not in _TYPES or len(inputs[0].shape) != 4:
            raise InputError(
                f"{path} takes {told}; an encoder takes one input, images (n, 3, height, width) of "
                "float32 with n = 1 or any."
            )
        self.input = inputs[0]
        self.output = self._session.get_outputs()[0].name
        sides = self.input.shape[2:]
        self.size = sides if all(isinstance(side, int) for side in sides) else None

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the network makes of prepared images (b, ...), (b, ...)."""
        batch = images.astype(_TYPES[self.input.type], copy=False)
        advice = f"correct {self.path.with_suffix('.toml')}"
        try:
            (made,) = self._session.run([self.output], {self.input.name: batch})
        except Exception as error:  # whatever the code of an operator met
            raise InputError(
                f"{self.path} cannot make {self.output} of images of {images.shape[1:]} "
                f"({reason(error)}); {advice}, or export it for images (n, 3, height, width) with "
                "n = 1 or any."
            ) from None
        if not isinstance(made, np.ndarray) or made.dtype.kind != "f":
            raise InputError(
                f"the output {self.output} of {self.path} holds no fractions; {advice} to name "
                "another one as output."
            )
        return np.asarray(made, dtype=np.float32)


def _read(path: Path) -> bytes:
    """The graph with all of its weights."""
    onnx = require("onnx", "onnx", _WHAT)
    if not path.exists():
        raise InputError(f"encoder={path} does not exist; give an .onnx file.")
    check_regular(path)
    check_bytes(str(path), path.stat().st_size)
    try:
        content: bytes = onnx.load(path, format="protobuf").SerializeToString()
    except Exception as error:  # of onnx and of protobuf, which differ by version
        raise InputError(
            f"{path} is not an ONNX file of at most 2 GiB whose weights lie in it or beside it "
            f"({reason(error)}); export it again."
        ) from None
    check_bytes(str(path), len(content))
    return content


def _session(path: Path, content: bytes) -> Any:
    runtime = require("onnxruntime", "onnx", _WHAT)
    _limit_memory(runtime)
    options = runtime.SessionOptions()
    # Images go through it side by side: each by one thread is the fastest way, and what an image
    # becomes depends neither on those beside it nor on the number of threads.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # faults come as exceptions
    options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
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
