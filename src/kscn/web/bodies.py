"""Samples from the body of a request: JSON, a .npy file, or PNG and JPEG images.

Nothing here trusts the sender: no pickle, no array larger than the body, no object for what is not
of the shape that the model takes, no image of another size.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartParser

from kscn.data.numpyfiles import npy_header
from kscn.errors import DataError
from kscn.web.refusals import RefusalError

IMAGES = ("image/png", "image/jpeg")
KINDS = ("application/json", "application/octet-stream", *IMAGES, "multipart/form-data")
# What Pillow may open, and the modes that become greyscale or RGB without loss of depth.
_FORMATS, _MODES = ("PNG", "JPEG"), ("1", "L", "LA", "P", "RGB", "RGBA")
_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_MOST_FILES = 1000
# In one request: the answer has a line for each. And pixels of all its images, unpacked.
MOST_SAMPLES, _MOST_PIXELS = 100_000, 2**26
# Bytes of JSON up to which all its objects are made at once, at most a few megabytes.
AT_ONCE = 32 * 1024
# What may stand before, between and after the samples in a large body of JSON.
_SPACE = b" \t\r\n"
_HEAD = re.compile(rb'[ \t\r\n]*(\{[ \t\r\n]*"samples"[ \t\r\n]*:[ \t\r\n]*)?')
_FIRST, _NEXT, _LAST = (re.compile(rf"[ \t\r\n]*\{mark}[ \t\r\n]*") for mark in "[,]")


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
        _check_pixels(parts, shape)
        return np.stack([_image(part, shape, white) for part in parts])
    read = _json if kind == "application/json" else _npy
    array = read(parts[0], shape)
    return array[None] if array.shape == shape else array


def decode_images(
    parts: list[bytes], read: Callable[[Path, BinaryIO], NDArray], shape: tuple[int, ...]
) -> NDArray:
    """PNG and JPEG images of any size, each made into an array of a shape.

    Parameters
    ----------
    parts : list of bytes
        The files.
    read : callable
        From the name of a file and what it holds to an array of the shape.
    shape : tuple of int
        Of one array.
    """
    _check_pixels(parts, shape)
    made = []
    for number, part in enumerate(parts):
        if not part.startswith(_STARTS):
            raise RefusalError(400, f"image {number} is no PNG or JPEG file; send those.")
        try:
            made.append(read(Path(f"image {number}"), io.BytesIO(part)))
        except DataError as error:
            raise RefusalError(400, str(error).replace("repair or remove", "send")) from None
    return np.stack(made)


def _check_pixels(parts: list[bytes], shape: tuple[int, ...]) -> None:
    """That images are not too many, before any is unpacked."""
    if len(parts) * math.prod(shape) > _MOST_PIXELS:
        raise _too_many(len(parts), _MOST_PIXELS // math.prod(shape))


def _check(found: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """That an array is one sample, or one or more of them, and not too many."""
    if found == shape:
        return
    if not found or found[1:] != shape or not found[0]:
        raise RefusalError(422, f"the samples have shape {found}; send {_expected(shape)}.")
    if found[0] > MOST_SAMPLES:
        raise _too_many(found[0], MOST_SAMPLES)


def _expected(shape: tuple[int, ...]) -> str:
    return f"(n, {', '.join(map(str, shape))}), or one sample of {shape}"


def _too_many(found: int, most: int) -> RefusalError:
    return RefusalError(413, f"the body holds {found:,} samples; send at most {most:,} at a time.")


def _json(body: bytes, shape: tuple[int, ...]) -> NDArray:
    array = _json_at_once(body) if len(body) <= AT_ONCE else _json_by_sample(body, shape)
    if not np.isfinite(array).all():
        raise RefusalError(422, "the samples hold a null or a number too large; send finite ones.")
    _check(array.shape, shape)
    # What was float32 comes back as float32, so that it is computed as it was when fitting.
    with np.errstate(over="ignore"):
        small = array.astype(np.float32)
    return small if np.array_equal(small, array) else array


def _json_at_once(body: bytes) -> NDArray:
    """The array that a small body says, of any shape."""
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _no_json() from None
    quotes = 0
    if isinstance(value, dict):
        quotes = 2
        if set(value) != {"samples"}:
            raise RefusalError(422, 'the JSON object must be {"samples": [...]}, no more, no less.')
        value = value["samples"]
    # A word anywhere would be read as a number where it looks like one.
    if not isinstance(value, list) or body.count(b'"') != quotes:
        raise RefusalError(422, "the samples must be nested lists of numbers.")
    return _array(value)


def _json_by_sample(body: bytes, shape: tuple[int, ...]) -> NDArray:
    """Samples of a large body.

    Lists take sixty times the memory of their text. So brackets and commas are compared with those
    of samples before anything is made of them, and then only one sample is a list at a time.
    """
    head, end = _HEAD.match(body), len(body.rstrip(_SPACE))
    assert head is not None  # it may be empty
    if head[1]:
        end -= 1
    if body.count(b"[") != body.count(b"]") or (head[1] and body[end : end + 1] != b"}"):
        raise _no_json()
    content = body[head.end() : end]
    marks = content.translate(None, b"0123456789.eE+-" + _SPACE)
    one = b""
    for length in reversed(shape):
        one = b"[" + b",".join([one] * length) + b"]"
    if marks == one:  # a sample without batch axis
        marks, content = b"[" + marks + b"]", b"[" + content + b"]"
    count = len(marks) // (len(one) + 1)  # a mark after each, and one before the first
    if not count or marks[-1:] != b"]" or marks[:-1] + b"," != b"[" + (one + b",") * count:
        raise RefusalError(422, f"the samples must be lists of numbers; send {_expected(shape)}.")
    _check((count, *shape), shape)
    text, decoder = content.decode("ascii"), json.JSONDecoder(parse_constant=_no_constant)
    samples = np.empty((count, *shape))
    at = 0
    for row in range(count):
        at = _after(_NEXT if row else _FIRST, text, at)
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise _no_json() from None
        array = _array(value)
        _check(array.shape, shape)
        samples[row] = array
    if _after(_LAST, text, at) != len(text):
        raise _no_json()
    return samples


def _after(mark: re.Pattern[str], text: str, at: int) -> int:
    found = mark.match(text, at)
    if found is None:
        raise _no_json()
    return found.end()


def _array(value: Any) -> NDArray:
    try:
        return np.array(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise RefusalError(
            422, "the samples must be nested lists of numbers, all of one shape."
        ) from None


def _no_json() -> RefusalError:
    return RefusalError(400, 'the body is not JSON; send {"samples": [...]}.')


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _npy(body: bytes, shape: tuple[int, ...]) -> NDArray:
    try:
        found, fortran, dtype, offset = npy_header(io.BytesIO(body), "the body")
    except DataError:
        raise RefusalError(
            400, "the body is not a .npy file; send what numpy.save writes."
        ) from None
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise RefusalError(422, f"the .npy file holds {dtype}; send integers or floats.")
    held = len(body) - offset
    if 0 in found or math.prod(found) * dtype.itemsize != held:
        raise RefusalError(
            400,
            f"the .npy file says shape {str(found)[:80]} of {dtype} and holds {held} bytes; send "
            "it whole.",
        )
    _check(found, shape)
    array = np.frombuffer(body, dtype, offset=offset)
    array = array.reshape(found, order="F" if fortran else "C")
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
