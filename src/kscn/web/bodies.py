"""Samples from the body of a request: JSON, a .npy file, or PNG and JPEG images.

Nothing here trusts the sender: no pickle, no array larger than the body, no object for what is not
of the shape that the model takes, no image of another size.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartParser

from kscn.data.numpyfiles import npy_header
from kscn.errors import DataError
from kscn.web.requests import RefusalError

IMAGES = ("image/png", "image/jpeg")
KINDS = ("application/json", "application/octet-stream", *IMAGES, "multipart/form-data")
# What Pillow may open, and the modes that become greyscale or RGB without loss of depth.
_FORMATS, _MODES = ("PNG", "JPEG"), ("1", "L", "LA", "P", "RGB", "RGBA")
_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_MOST_FILES = 1000
# In one request: the answer has a line for each. And pixels of all its images, unpacked.
MOST_SAMPLES, _MOST_PIXELS = 100_000, 2**26
# Axes that lists may be nested to, and bytes of JSON that are read in one go.
_MOST_AXES, _PIECE = 32, 64 * 1024
_SPACE = b" \t\r\n"
# The object that samples may be wrapped in, and what stands in the place of a number but is none.
_WRAPPED = re.compile(rb'\s*\{\s*"samples"\s*:(.*)\}\s*', re.DOTALL)
_NO_NUMBER = re.compile(
    rb"(?:\A|,)(?!\s*-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\s*(?:,|\Z))"
)


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
    """Samples (n, *shape) from the parts of a body; `white` is what a white pixel becomes."""
    if kind in IMAGES:
        _check_pixels(parts, shape)
        return np.stack([_image(part, shape, white) for part in parts])
    array = _json(parts[0], shape) if kind == "application/json" else _npy(parts[0], shape)
    return array[None] if array.shape == shape else array


def decode_images(
    parts: list[bytes], read: Callable[[Path, BinaryIO], NDArray], shape: tuple[int, ...]
) -> NDArray:
    """PNG and JPEG images of any size, of each of which `read` makes an array of that shape."""
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
    """Refuse too many images, before any is unpacked."""
    if len(parts) * math.prod(shape) > _MOST_PIXELS:
        raise _too_many(len(parts), _MOST_PIXELS // math.prod(shape))


def _check_shape(found: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Refuse what is neither one sample nor one or more of them, or too many."""
    if found == shape:
        return
    if not found or found[1:] != shape or not found[0]:
        wanted = f"(n, {', '.join(map(str, shape))}), or one sample of {shape}"
        raise RefusalError(422, f"the samples have shape {str(found)[:80]}; send {wanted}.")
    if found[0] > MOST_SAMPLES:
        raise _too_many(found[0], MOST_SAMPLES)


def _too_many(found: int, most: int) -> RefusalError:
    return RefusalError(413, f"the body holds {found:,} samples; send at most {most:,} at a time.")


def _json(body: bytes, shape: tuple[int, ...]) -> NDArray:
    """Nested lists of numbers, alone or as {"samples": [...]}.

    Lists of Python take sixty times the memory of their text. So the brackets and commas alone say
    which shape it is, and the numbers are read straight into an array of that.
    """
    if body.count(b"[") != body.count(b"]") or body.count(b"{") != body.count(b"}"):
        raise RefusalError(400, 'the body is not JSON; send {"samples": [...]}.')
    wrapped = _WRAPPED.fullmatch(body)
    text = wrapped[1] if wrapped else body
    found = _nesting(text.translate(None, b"0123456789.eE+-" + _SPACE))
    array = np.concatenate(list(_numbers(text.translate(bytes.maketrans(b"[]", b"  ")))))
    _check_shape(found, shape)
    array = array.reshape(found)
    if not np.isfinite(array).all():
        raise RefusalError(422, "the samples hold a number too large; send finite ones.")
    # What was float32 comes back as float32, so that it is computed as it was when fitting.
    with np.errstate(over="ignore"):
        small = array.astype(np.float32)
    return small if np.array_equal(small, array) else array


def _nesting(marks: bytes) -> tuple[int, ...]:
    """The shape of nested lists by their brackets and commas alone, which must be all there is."""
    axes = len(marks) - len(marks.lstrip(b"["))
    if axes > _MOST_AXES:
        raise _no_lists()
    lengths: list[int] = []
    one = b""  # marks of what the first list of this depth is made of
    for depth in range(1, axes + 1):
        inside = marks.find(b"]" * depth) + depth - 1 - (axes - depth + 1)
        lengths.append((inside + 1) // (len(one) + 1))
        one = (b"[" + (one + b",") * lengths[-1])[:-1] + b"]"
    if one != marks:
        raise _no_lists()
    return tuple(reversed(lengths))


def _numbers(text: bytes) -> Iterator[NDArray]:
    """Numbers between commas, piece by piece: other threads wait while one is read."""
    start = 0
    while start >= 0:
        comma = text.find(b",", start + _PIECE)
        piece = text[start : comma if comma >= 0 else len(text)]
        if _NO_NUMBER.search(piece):
            raise _no_lists()
        yield np.fromstring(piece.translate(None, _SPACE), sep=",")
        start = comma + 1 if comma >= 0 else -1


def _no_lists() -> RefusalError:
    return RefusalError(
        422, 'the samples must be nested lists of numbers, all of one shape: {"samples": [...]}.'
    )


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
    _check_shape(found, shape)
    array = np.frombuffer(body, dtype, offset=offset)
    array = array.reshape(found, order="F" if fortran else "C")
    return np.ascontiguousarray(array, dtype=dtype.newbyteorder("="))


def _image(content: bytes, shape: tuple[int, ...], white: float) -> NDArray:
    """A greyscale (h, w) or (1, h, w) or RGB image (3, h, w) or (h, w, 3) of just that size."""
    colours_last = len(shape) == 3 and shape[2] == 3 and shape[0] != 3
    if len(shape) == 2:
        height, width = shape
    elif len(shape) == 3 and (colours_last or shape[0] in (1, 3)):
        height, width = shape[:2] if colours_last else shape[1:]
    else:
        raise RefusalError(415, f"the model takes samples of shape {shape}, not images; send JSON.")
    from PIL import Image

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
            coloured = len(shape) == 3 and 3 in (shape[0], shape[2])
            pixels = np.asarray(image.convert("RGB" if coloured else "L"))
    except RefusalError:
        raise
    except Exception:  # Pillow passes faults of a file on as whatever its decoder met
        raise RefusalError(
            400, "the image cannot be read; send a whole PNG or JPEG file."
        ) from None
    if pixels.ndim == 3 and not colours_last:
        pixels = np.moveaxis(pixels, -1, 0)
    pixels = np.ascontiguousarray(pixels).reshape(shape)
    return pixels if white == 255 else (pixels * (white / 255)).astype(np.float32)
