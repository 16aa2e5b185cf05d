"""A fitted model as an ONNX file, and the proof that it gives the same clusters."""

import io
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kscn import __version__, extras
from kscn.data import as_source
from kscn.errors import ModelFileError
from kscn.export.graph import WholeModel

OPSET = 17
INPUT, OUTPUTS = "samples", ("label", "residuals", "probabilities")
# Relative to |z|^2, what rounding acts on: distances that differ by less are a tie that it decides,
# and an error above the second cannot be rounding.
_TIE, _ERROR = 1e-5, 1e-3
_AT_ONCE = 32
_TYPES = {"tensor(double)": np.float64, "tensor(float16)": np.float16}


@dataclass(frozen=True)
class Agreement:
    """How the file compares with the model."""

    samples: int  # compared
    ties: int  # labels that differ because two subspaces are equally near
    error: float  # largest difference of a residual, relative to |z|^2 of its sample


def onnx_bytes(model: Any, shape: tuple[int, ...], dtype: str = "float32") -> bytes:
    """The ONNX file of a fitted `KSCN`, `KSCNPlus` or `KSubspaces`.

    Its input `samples` (n, *shape) takes values as the data stores them, any number at a time, in
    float32, or float64 for values that float32 cannot tell apart; its outputs are `label` (n,),
    `residuals` and `probabilities` (n, k).
    """
    onnx = require("onnx")
    example = torch.zeros(2, *shape, dtype=getattr(torch, dtype))
    made = exported(WholeModel(model), example, INPUT, OPSET)
    onnx.checker.check_model(made, full_check=True)
    return signed(made, f"{type(model).__name__}, {model.n_clusters} clusters")


def exported(module: torch.nn.Module, example: torch.Tensor, name: str, opset: int) -> Any:
    """The graph of a module with the outputs of all our graphs and an input of that name."""
    onnx, file = require("onnx"), io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        # The newer exporter needs one more package and gives the same graph.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            file,  # type: ignore[arg-type]  # open files are taken too
            dynamo=False,
            opset_version=opset,
            input_names=[name],
            output_names=list(OUTPUTS),
            dynamic_axes={called: {0: "n"} for called in (name, *OUTPUTS)},
        )
    return onnx.load_from_string(file.getvalue())


def signed(made: Any, about: str) -> bytes:
    """The file of a graph, which says what it is and who made it."""
    made.producer_name, made.producer_version, made.doc_string = "kscn", __version__, about
    return bytes(made.SerializeToString())


def compare(
    content: bytes, model: Any, samples: NDArray, given: NDArray | None = None
) -> Agreement:
    """Run the file and the model on the same samples; other labels than a tie's are refused.

    `given` is what the graph takes where that is not the samples but what they were made from.
    """
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    takes = session.get_inputs()[0]
    kind = _TYPES.get(takes.type, np.float32)
    given = (samples if given is None else given).astype(kind)
    # What a large network makes of all of them at once may not fit into memory.
    few = 1 if takes.shape[0] == 1 else _AT_ONCE
    pieces = [given[low : low + few] for low in range(0, len(given), few)]
    parts = [session.run(None, {takes.name: piece}) for piece in pieces]
    label, residuals, _ = (np.concatenate(column) for column in zip(*parts, strict=True))
    expected, found = model.residuals(samples), model.predict(samples)
    size = _energy(model, samples)
    error = float((np.abs(residuals - expected).max(axis=1) / size).max())
    rows = np.flatnonzero(label != found)
    gap = np.abs(expected[rows, label[rows]] - expected[rows, found[rows]]) / size[rows]
    wrong = int((gap > _TIE).sum())
    if wrong or not error <= _ERROR:
        raise ModelFileError(
            f"the graph gives {wrong} of {len(samples)} samples another cluster than the model, "
            f"and residuals that differ by {error:.0e}, so it was not written; this is a fault in "
            "kscn."
        )
    return Agreement(len(samples), len(rows), error)


def _energy(model: Any, samples: NDArray) -> NDArray:
    """Squared norms of the points whose distances to subspaces are taken."""
    blocks = model.model_.blocks(as_source(samples))
    energy = torch.cat([z.double().square().sum(dim=1).cpu() for _, z in blocks])
    return energy.clamp(min=torch.finfo(torch.float32).tiny).numpy()


def require(module: str) -> Any:
    """Import a package of the extra `onnx`, or say how to install it."""
    return extras.require(module, "onnx", "exporting")
