"""Samples from the body of a request: JSON, a .npy file, or PNG and JPEG images.

Nothing here trusts the sender: no pickle, no array larger than the body, no image other than of
the size that the model takes.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartParser

from kscn.web.refusals import RefusalError

IMAGES = ("image/png", "image/jpeg")
KINDS = ("application/json", "application/octet-stream", *IMAGES, "multipart/form-data")
# What Pillow may open, and the modes that become greyscale or RGB without loss of depth.
_FORMATS, _MODES = ("PNG", "JPEG"), ("1", "L", "LA", "P", "RGB", "RGBA")
_MOST_FILES = 1000


async def parts_of(body: bytes, content_type: str) -> tuple[str, list[bytes]]:
    """The kind of a body and its parts: the files of a form, or the body itself."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in KINDS:
        raise RefusalError(
            415, f"the content type is {kind[:80] or 'missing'!r}; send one of {', '.join(KINDS)}."
        )
    if kind != "multipart/form-data":
        return kind, [body]

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(
        Headers({"content-type": content_type}), stream(), max_files=_MOST_FILES, max_fields=10
    )
    try:
        form = await parser.parse()
    except Exception as error:  # a form can be broken in more ways than the parser names
        raise RefusalError(
            400, "the form cannot be read; send multipart/form-data with image files in it."
        ) from error
    files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
    content = [await file.read() for file in files]
    await form.close()
    if not content:
        raise RefusalError(400, "the form holds no file; send one or more PNG or JPEG images.")
    return IMAGES[0], content


def decode(kind: str, parts: list[bytes], shape: tuple[int, ...], white: float = 255.0) -> NDArray:
    """Samples (n, *shape) from the parts of a body.

    Parameters
    ----------
    kind : str
        The content type.
    parts : list of bytes
        The body, or its files.
    shape : tuple of int
        Of one sample.
    white : float
        The value of a white pixel in the data that the model was fitted on.
    """
    if kind in IMAGES:
        return np.stack([_image(part, shape, white) for part in parts])
    read = _json if kind == "application/json" else _npy
    return _samples(read(parts[0]), shape)


def _samples(array: NDArray, shape: tuple[int, ...]) -> NDArray:
    if array.shape == shape:
        array = array[None]
    if array.shape[1:] != shape or not len(array):
        expected = ", ".join(map(str, shape))
        raise RefusalError(
            422,
            f"the samples have shape {array.shape}; send (n, {expected}), or one sample of "
            f"({expected}{',' if len(shape) == 1 else ''}).",
        )
    return array


def _json(body: bytes) -> NDArray:
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise RefusalError(400, 'the body is not JSON; send {"samples": [...]}.') from None
    quotes = 0
    if isinstance(value, dict):
        quotes = 2
        if set(value) != {"samples"}:
            raise RefusalError(422, 'the JSON object must be {"samples": [...]}, no more, no less.')
        value = value["samples"]
    # A word anywhere would be read as a number where it looks like one.
    if not isinstance(value, list) or body.count(b'"') != quotes:
        raise RefusalError(422, "the samples must be nested lists of numbers.")
    try:
        array = np.array(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise RefusalError(
            422, "the samples must be nested lists of numbers, all of one shape."
        ) from None
    if not np.isfinite(array).all():
        raise RefusalError(422, "the samples hold a null or a number too large; send finite ones.")
    # What was float32 comes back as float32, so that it is computed as it was when fitting.
    with np.errstate(over="ignore"):
        small = array.astype(np.float32)
    return small if np.array_equal(small, array) else array


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _npy(body: bytes) -> NDArray:
    stream = io.BytesIO(body)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        shape, fortran, dtype = readers[np.lib.format.read_magic(stream)](stream)
    except Exception:  # numpy parses the header as Python text, which can fail in every way
        raise RefusalError(
            400, "the body is not a .npy file; send what numpy.save writes."
        ) from None
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise RefusalError(422, f"the .npy file holds {dtype}; send integers or floats.")
    promised, found = math.prod(shape) * dtype.itemsize, len(body) - stream.tell()
    if min(shape, default=0) < 0 or promised != found or len(shape) > 8:
        raise RefusalError(
            400,
            f"the .npy file says shape {shape} of {dtype} and holds {found} bytes; send it whole.",
        )
    array = np.frombuffer(body, dtype, offset=stream.tell())
    array = array.reshape(shape, order="F" if fortran else "C")
    return np.ascontiguousarray(array, dtype=dtype.newbyteorder("="))


def _image(content: bytes, shape: tuple[int, ...], white: float) -> NDArray:
    last = len(shape) == 3 and shape[2] == 3 and shape[0] != 3
    plain = shape[1:] if len(shape) == 3 and shape[0] in (1, 3) else shape[:2]
    if len(shape) < 2 or (len(shape) == 3 and 3 not in (shape[0], shape[2]) and shape[0] != 1):
        raise RefusalError(415, f"the model takes samples of shape {shape}, not images; send JSON.")
    from PIL import Image

    height, width = plain
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.size != (width, height):
                raise RefusalError(
                    422,
                    f"the image is {image.width} x {image.height} pixels; send {width} x {height}.",
                )
            if image.mode not in _MODES:
                raise RefusalError(
                    422, f"the image is in mode {image.mode}; send greyscale or RGB of 8 bits."
                )
            pixels = np.asarray(image.convert("RGB" if 3 in (shape[0], shape[-1]) else "L"))
    except RefusalError:
        raise
    except Exception:  # Pillow passes faults of a file on as whatever its decoder met
        raise RefusalError(
            400, "the image cannot be read; send a whole PNG or JPEG file."
        ) from None
    if pixels.ndim == 3 and not last:
        pixels = np.moveaxis(pixels, -1, 0)
    pixels = np.ascontiguousarray(pixels).reshape(shape)
    return pixels if white == 255 else (pixels * (white / 255)).astype(np.float32)
