"""Models on disk: a directory with `model.safetensors` and `manifest.json`, never a pickle.

Opening a model file can therefore never run code. The manifest says what the model is (`kind`,
`params`), which versions wrote it, and the size, checksum and tensor table of the safetensors
file, so that a truncated, damaged or foreign file is found before anything is computed with it.

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
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.errors import InputError, ModelFileError

FORMAT = "kscn-model"
FORMAT_VERSION = 1
TENSORS_NAME = "model.safetensors"
MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True)
class ModelFile:
    """A model as read from disk: what it is, its parameters and its arrays."""

    kind: str
    params: dict[str, Any]
    tensors: dict[str, NDArray]


def write_model(
    path: str | os.PathLike[str], kind: str, params: Mapping[str, Any], tensors: Mapping[str, Any]
) -> None:
    """Write a model directory in one step, replacing an older model at the same path.

    Parameters
    ----------
    path : path-like
        The directory to make. Missing parents are made too. A directory that is
        already there is replaced only if it holds nothing but a model.
    kind : str
        Name of the estimator class.
    params : mapping
        Anything that JSON can hold.
    tensors : mapping of str to ndarray or torch.Tensor
        The arrays of the model, of any shape and numeric type.

    Raises
    ------
    ModelFileError
        When the path is taken by something else, or cannot be written.
    """
    path = Path(path)
    _refuse_to_replace_other_things(path)
    arrays = {name: _as_array(name, tensor) for name, tensor in tensors.items()}
    try:
        params_json = json.loads(json.dumps(dict(params), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"the parameters of a model must fit into JSON: {error}.") from None
    new = _hidden_sibling(path, "new")
    try:
        new.mkdir(parents=True)
        _write_files(new, kind, params_json, arrays)
        replace_directory(new, path)
    except OSError as error:
        reason = error.strerror or error
        raise ModelFileError(
            f"cannot write the model to {path}: {reason}; choose a place that can be written."
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model directory after checking everything that the manifest says about it.

    Parameters
    ----------
    path : path-like
        A directory written by `write_model`.

    Returns
    -------
    ModelFile

    Raises
    ------
    ModelFileError
        One sentence that names the file at fault and what to do.
    """
    path = Path(path)
    manifest = _read_manifest(path)
    tensors_path = path / TENSORS_NAME
    if not tensors_path.is_file():
        raise ModelFileError(f"{tensors_path} is missing; save the model again or copy it whole.")
    size, expected = tensors_path.stat().st_size, manifest["tensors_bytes"]
    if size != expected:
        fault = "cut off" if size < expected else "not the file that was saved"
        raise ModelFileError(
            f"{tensors_path} is {fault}: it has {size} bytes and should have {expected}; "
            "copy it again or save the model again."
        )
    if _sha256(tensors_path) != manifest["tensors_sha256"]:
        raise ModelFileError(
            f"{tensors_path} is damaged: its checksum differs from the one in {MANIFEST_NAME}; "
            "copy it again or save the model again."
        )
    tensors = _load_tensors(tensors_path)
    if _tensor_table(tensors) != manifest["tensors"]:
        raise ModelFileError(
            f"{tensors_path} holds other arrays than {MANIFEST_NAME} lists; save the model again."
        )
    return ModelFile(manifest["kind"], manifest["params"], tensors)


def replace_directory(new: Path, final: Path) -> None:
    """Put the finished directory `new` at `final`; what was there survives until it is in place."""
    old = _hidden_sibling(final, "old")
    if final.exists():
        os.rename(final, old)
    try:
        os.rename(new, final)
    except OSError:
        if old.exists():
            os.rename(old, final)
        raise
    sync_directory(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """Flush the names in a directory to disk, so that a rename survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_files(
    directory: Path, kind: str, params: dict[str, Any], arrays: dict[str, NDArray]
) -> None:
    from safetensors.numpy import save

    # Not save_file: the bytes are needed for the checksum, and a model is small beside its data.
    content = save(arrays)
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "params": params,
        "versions": {name: version(name) for name in ("kscn", "torch", "numpy")},
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "tensors_bytes": len(content),
        "tensors_sha256": hashlib.sha256(content).hexdigest(),
        "tensors": _tensor_table(arrays),
    }
    _write_synced(directory / TENSORS_NAME, content)
    _write_synced(directory / MANIFEST_NAME, json.dumps(manifest, indent=2).encode() + b"\n")
    sync_directory(directory)


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _refuse_to_replace_other_things(path: Path) -> None:
    if path.is_dir():
        if {entry.name for entry in path.iterdir()} - {TENSORS_NAME, MANIFEST_NAME}:
            raise ModelFileError(
                f"{path} holds other files than a kscn model; choose another path so that they "
                "are not lost."
            )
    elif path.exists():
        raise ModelFileError(f"{path} is a file; a model is a directory, so choose another path.")


def _as_array(name: str, tensor: Any) -> NDArray:
    if hasattr(tensor, "detach"):  # a torch tensor, without importing torch to find out
        tensor = tensor.detach().cpu().numpy()
    # Not np.ascontiguousarray, which makes a scalar one-dimensional.
    array = np.asarray(tensor, order="C")
    if array.dtype.kind not in "biuf":
        raise InputError(f"the array {name!r} of a model must be numeric, got {array.dtype}.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _hidden_sibling(path: Path, role: str) -> Path:
    return path.absolute().parent / f".{path.name}.{role}-{uuid.uuid4().hex[:8]}"


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise ModelFileError(_why_no_directory(path))
    manifest_path = path / MANIFEST_NAME
    if not manifest_path.is_file():
        raise ModelFileError(
            f"{path} is not a kscn model: it has no {MANIFEST_NAME}; give a directory that "
            "`save` or `kscn fit` wrote."
        )
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ModelFileError(
            f"{manifest_path} is damaged: it is not JSON; copy it again or save the model again."
        ) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"{manifest_path} was not written by kscn; give a kscn model.")
    if manifest.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{manifest_path} has format version {manifest.get('format_version')!r} and this kscn "
            f"reads version {FORMAT_VERSION}; install the kscn that wrote it."
        )
    fields = {
        "kind": str,
        "params": dict,
        "tensors_bytes": int,
        "tensors_sha256": str,
        "tensors": dict,
    }
    for field, kind in fields.items():
        if not isinstance(manifest.get(field), kind):
            raise ModelFileError(
                f"{manifest_path} is damaged: {field!r} is missing or wrong; save the model again."
            )
    return manifest


def _why_no_directory(path: Path) -> str:
    if path.exists():
        return f"{path} is a file; give the directory of a kscn model."
    whole = sorted(path.absolute().parent.glob(f".{path.name}.*-*/{MANIFEST_NAME}"))
    if whole:
        return (
            f"{path} does not exist, but writing it was interrupted and {whole[0].parent} is "
            "complete; rename that to use it."
        )
    return f"{path} does not exist; give the directory of a kscn model."


def _load_tensors(path: Path) -> dict[str, NDArray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelFileError(
            f"{path} is not a readable safetensors file ({error}); save the model again."
        ) from None


def _tensor_table(tensors: Mapping[str, NDArray]) -> dict[str, dict[str, Any]]:
    return {
        name: {"shape": list(array.shape), "dtype": array.dtype.name}
        for name, array in sorted(tensors.items())
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
