"""An ONNX encoder and the assignment of a model as one graph, from prepared images to clusters."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.export.graph import WholeModel
from kscn.export.onnxfile import OPSET, OUTPUTS, exported, require, signed
from kscn.features.encoders import Encoder
from kscn.features.encoders.encoder import pooled
from kscn.features.encoders.networks import OnnxNetwork

_FEATURES = "features"
_PREFIX = "encoder/"  # so that no name of one graph is one of the other
# The newest operators that torch writes; a newer encoder gets its assignment converted.
_NEWEST = 20


class _Assignment(nn.Module):
    """From the output of an encoder to clusters: pooling, float16 as in the cache, the model."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.whole = WholeModel(model)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Label (n,), residuals (n, k) and probabilities (n, k)."""
        return self.whole(pooled(features).half().float())


def joined_bytes(model: Any, encoder: Encoder) -> bytes:
    """The ONNX file of an encoder, itself one, and of a model of its embeddings.

    That is `KSCNPlus.on_embeddings`. The input of the file is that of the encoder, images after
    `encoder.preprocessing`; its outputs are `label` (n,), `residuals` and `probabilities` (n, k).
    """
    onnx = require("onnx")
    network = encoder.network
    if not isinstance(network, OnnxNetwork):
        raise InputError(
            f"the encoder {encoder.name} is a network of torch; only one in an .onnx file can be "
            "joined with the assignment, so export it to one and fit with that."
        )
    first = onnx.load(network.path)
    opset = next(
        (own.version for own in first.opset_import if own.domain in ("", "ai.onnx")), OPSET
    )
    example = torch.zeros(2, *encoder.raw_shape[1:])
    head = exported(_Assignment(model), example, _FEATURES, min(opset, _NEWEST))
    if opset > _NEWEST:
        head = onnx.version_converter.convert_version(head, opset)
    head.ir_version = first.ir_version
    head = onnx.compose.add_prefix(head, "assignment/", rename_inputs=False, rename_outputs=False)
    # Another output may be called like one of ours; all but the one that is used are left out.
    first = onnx.compose.add_prefix(first, _PREFIX, rename_inputs=False, rename_outputs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = onnx.compose.merge_models(
            first,
            head,
            io_map=[(_PREFIX + network.output, _FEATURES)],
            outputs=list(OUTPUTS),
        )
    return signed(made, f"{encoder.name} and {type(model).__name__}, {model.n_clusters} clusters")
