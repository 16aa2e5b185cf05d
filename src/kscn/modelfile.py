"""Models on disk: a directory with `model.safetensors` and `manifest.json`, never a pickle.

Opening a model file can therefore never run code. The manifest says what the model is (`kind`,
`params`), which versions wrote it, and the size and checksum of the safetensors file, so that a
truncated, damaged or foreign file is found before anything is computed with it. A hostile file is
refused before it costs much: neither part may be larger than any honest one, and the names of both
are fixed here, not read from the file. The header of the arrays is checked by safetensors itself.

Writing is safe against a kill at any moment. The new directory is written in full beside the old
one under a hidden name and flushed to disk; then the old one is renamed aside, the new one renamed
in, and the old one deleted. A kill before the renames leaves the old model untouched. In the
instant between the two renames nothing is at the final path, but both directories are complete
under their hidden names, and `read_model` says where.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from kscn.atomicfile import hidden_sibling, replace_directory, sync_directory
from kscn.constraints import TEXT, Integer, Test, check_table
from kscn.errors import InputError, ModelFileError, reason

FORMAT = "kscn-model"
FORMAT_VERSION = 1
# A manifest has some kilobytes; names of features may take more.
_MANIFEST_BYTES = 16 * 2**20
_MANIFEST = {
    "format": Test(repr(FORMAT), lambda value: value == FORMAT),
    "format_version": Integer(1),
    "kind": Test(
        "the name of a class",
        lambda kind: isinstance(kind, str) and kind.isidentifier() and len(kind) < 100,
    ),
    "params": {},
    "tensors_bytes": Integer(0),
    "tensors_sha256": TEXT,
}
TENSORS_NAME = "model.safetensors"
MANIFEST_NAME = "manifest.json"


def max_bytes(variable: str = "KSCN_MAX_BYTES", usual: int = 4 * 2**30) -> int:
    """The most bytes that a file may take in memory, or what else a variable sets."""
    given = os.environ.get(variable)
    if not given:
        return usual
    if not given.isascii() or not given.isdecimal():
        raise InputError(
            f"{variable} is {given!r}; set it to a number of bytes, such as 8000000000."
        )
    return int(given)


@dataclass(frozen=True)
class ModelFile:
    """A model as read from disk: where it was, what it is, its parameters and its arrays."""

    path: Path
    kind: str
    params: dict[str, Any]
    tensors: dict[str, NDArray]


def write_model(
    path: str | os.PathLike[str], kind: str, params: Mapping[str, Any], tensors: Mapping[str, Any]
) -> None:
    """Write a model directory in one step, replacing an older model at the same path.

    Missing parents are made too. A directory that is already there is replaced only if it holds
    nothing but a model. `kind` is the name of the estimator class, `params` is anything that JSON
    can hold, and `tensors` are numeric arrays or torch tensors.
    """
    path = Path(path)
    inside = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    if path.is_file() or inside - {TENSORS_NAME, MANIFEST_NAME}:
        raise ModelFileError(
            f"{path} is or holds other files than a kscn model, which is a directory; choose "
            "another path so that they are not lost."
        )
    # Not save_file: the bytes are needed for the checksum, and a model is small beside its data.
    content = save({name: _as_array(name, tensor) for name, tensor in tensors.items()})
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "params": dict(params),
        "versions": {name: version(name) for name in ("kscn", "torch", "numpy")},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "tensors_bytes": len(content),
        "tensors_sha256": hashlib.sha256(content).hexdigest(),
    }
    try:
        text = json.dumps(
            manifest, indent=2, allow_nan=False, default=lambda of_numpy: of_numpy.tolist()
        )
    except (TypeError, ValueError, RecursionError, AttributeError) as error:
        raise InputError(f"the parameters of a model must fit into JSON: {error}.") from None
    described = text.encode()
    if len(described) > _MANIFEST_BYTES:
        raise InputError("a model must have fewer parameters, or it could not be read.")
    final = Path(os.path.realpath(path))  # a link stays a link
    new = hidden_sibling(final, "new")
    try:
        new.mkdir(parents=True)
        _write_synced(new / TENSORS_NAME, content)
        _write_synced(new / MANIFEST_NAME, described)
        sync_directory(new)
        replace_directory(new, final)
    except OSError as error:
        raise ModelFileError(
            f"cannot write the model to {path}: {reason(error)}; choose a place that can be "
            "written."
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _as_array(name: str, tensor: Any) -> NDArray:
    if hasattr(tensor, "detach"):  # a torch tensor, without importing torch to find out
        tensor = tensor.detach().cpu()
    # Not np.ascontiguousarray, which makes a scalar one-dimensional.
    array = np.asarray(tensor, order="C")
    if array.dtype.kind not in "biuf":
        raise InputError(f"the array {name!r} of a model must be numeric, got {array.dtype}.")
    return array


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model directory after checking everything that the manifest says about it.

    What is wrong is told by a ModelFileError that names the file at fault and what to do.
    """
    path = Path(path)
    try:
        manifest = _read_manifest(path)
        tensors = _read_tensors(path / TENSORS_NAME, manifest)
    except OSError as error:
        raise ModelFileError(f"cannot read the model {path}: {reason(error)}; check it.") from error
    return ModelFile(path, manifest["kind"], manifest["params"], tensors)


def _read_manifest(path: Path) -> dict[str, Any]:
    place = path / MANIFEST_NAME
    if not place.is_file():
        raise ModelFileError(_why_no_model(path))
    with place.open("rb") as file:
        content = file.read(_MANIFEST_BYTES + 1)
    if len(content) > _MANIFEST_BYTES:
        raise ModelFileError(
            f"{place} has more than {_MANIFEST_BYTES} bytes, so kscn did not write it; give a kscn "
            "model."
        )
    try:
        manifest = json.loads(content)
        json.dumps(manifest, allow_nan=False)  # NaN, and 1e999, which is infinite to Python
        check_table(manifest, _MANIFEST)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{place} is damaged or not of kscn ({reason(error)}); copy it again or save the model "
            "again."
        ) from None
    if manifest["format_version"] != FORMAT_VERSION:
        raise ModelFileError(
            f"{place} has format version {manifest['format_version']} and this kscn reads version "
            f"{FORMAT_VERSION}; install the kscn that wrote it."
        )
    return manifest


def _why_no_model(path: Path) -> str:
    if path.exists():
        return (
            f"{path} is not a kscn model: it has no {MANIFEST_NAME}; give a directory that "
            "`save` or `kscn fit` wrote."
        )
    final = Path(os.path.realpath(path))
    whole = sorted(final.parent.glob(f".{final.name}.*-*/{MANIFEST_NAME}"))
    if whole:
        return (
            f"{path} does not exist, but writing it was interrupted and {whole[0].parent} is "
            "complete; rename that to use it."
        )
    return f"{path} does not exist; give the directory of a kscn model."


def _read_tensors(path: Path, manifest: Mapping[str, Any]) -> dict[str, NDArray]:
    """The arrays of a model, after checking their file against the manifest."""
    if not path.is_file():
        raise ModelFileError(f"{path} is missing; save the model again or copy it whole.")
    size, expected = path.stat().st_size, manifest["tensors_bytes"]
    if size != expected:
        raise ModelFileError(
            f"{path} is cut off or another file: it has {size} bytes and should have {expected}; "
            "copy it again or save the model again."
        )
    if size > max_bytes():
        raise ModelFileError(
            f"{path} has {size} bytes, above the limit of {max_bytes()}; if you trust it, "
            "set the environment variable KSCN_MAX_BYTES to a larger number."
        )
    if sha256_of(path) != manifest["tensors_sha256"]:
        raise ModelFileError(
            f"{path} is damaged: its checksum differs from the one in {MANIFEST_NAME}; "
            "copy it again or save the model again."
        )
    try:
        tensors = load_file(path)
        for name, array in tensors.items():
            # An empty array of a large shape costs nothing in the file, but something is made of
            # that size later.
            if array.dtype.kind not in "biuf" or max(array.shape, default=0) > size:
                raise ValueError(f"{name[:80]!r} is of {array.dtype} and of shape {array.shape}")
    except (SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{path} is not a readable safetensors file ({reason(error)}); save the model again."
        ) from None
    return tensors


def sha256_of(path: Path) -> str:
    """The digest of what a file holds."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
