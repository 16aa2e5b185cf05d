"""Networks from prepared images to features: a file of ONNX, a module of torch, or timm's by name.

An ONNX file may come from anywhere. onnxruntime knows no operators but its own here, so that a
graph can do nothing but compute, and onnx reads weights from files beside it and from nowhere else.
Modules of torch are the caller's or timm's and never come from a file.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from kscn.data.limits import check_bytes, check_regular
from kscn.errors import InputError, reason
from kscn.extras import require

TIMM = "timm:"
# No addresses and no paths: weights come from where timm itself says.
_TIMM_NAME = re.compile(r"timm:[A-Za-z0-9][\w.\-]*", re.ASCII)
_TYPES = {"tensor(float16)": np.float16, "tensor(double)": np.float64}


class OnnxNetwork:
    """An ONNX graph, run by onnxruntime on the CPU; its checksum is that of the graph with weights.

    `size` is that of its images, if the graph says so, and `output` the name of the one that it
    computes, the first if none is named.
    """

    device = torch.device("cpu")
    findable = True  # by its name

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path.absolute())
        onnx = require("onnx", "onnx", "an encoder in an .onnx file")
        runtime = require("onnxruntime", "onnx", "an encoder in an .onnx file")
        if not path.exists():
            raise InputError(f"encoder={path} does not exist; give an .onnx file.")
        check_regular(path)
        check_bytes(str(path), path.stat().st_size)
        options = runtime.SessionOptions()
        # Images go through it side by side: each by one thread is the fastest way, and what an
        # image becomes depends neither on those beside it nor on the number of threads.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # faults come as exceptions
        try:
            content = onnx.load(path, format="protobuf").SerializeToString()
            self._session = runtime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
            self.input, self.output = (
                self._session.get_inputs()[0],
                self._session.get_outputs()[0].name,
            )
        except Exception as error:  # of onnx, protobuf and onnxruntime: any kind
            raise InputError(
                f"{path} cannot be run by onnxruntime ({reason(error)}); export it again, with the "
                "standard operators only, at most 2 GiB and weights in it or beside it."
            ) from None
        self.sha256 = hashlib.sha256(content).hexdigest()
        sides = self.input.shape[2:]
        self.size = sides if sides and all(isinstance(side, int) for side in sides) else None

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the network makes of prepared images (b, ...), (b, ...)."""
        batch = images.astype(_TYPES.get(self.input.type, np.float32), copy=False)
        try:
            (made,) = self._session.run([self.output], {self.input.name: batch})
            return np.asarray(made, dtype=np.float32)
        except Exception as error:  # whatever the code of an operator met
            raise InputError(
                f"{self.path} cannot make {self.output} of images of {images.shape[1:]} "
                f"({reason(error)}); correct {self.path.with_suffix('.toml')}, or export it for "
                "images (n, 3, height, width) with n = 1 or any."
            ) from None


class TorchNetwork:
    """A module of torch; its checksum is that of its structure and weights."""

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
            return np.asarray(made.float().cpu())
        except (AttributeError, RuntimeError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"encoder={self.name} cannot make one tensor of images of {images.shape[1:]} "
                f"({reason(error)}); give it with the Preprocessing that it was trained with, and "
                "let its forward return one tensor."
            ) from error


def from_timm(name: str) -> tuple[TorchNetwork, dict[str, Any]]:
    """The network of that name without its classifier, and timm's settings for images."""
    if not _TIMM_NAME.fullmatch(name):
        raise InputError(
            f"encoder={reason(name)!r} is not the name of a network; give one such as "
            "timm:vit_small_patch14_dinov2.lvd142m."
        )
    own = name.removeprefix(TIMM)
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
