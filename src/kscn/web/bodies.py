"""Samples from the body of a request: JSON, a .npy file, or PNG and JPEG images.

Nothing here trusts the sender: no pickle, no text, no image that is unpacked before its size is
known. Lists of Python take up to fifty times the memory of their JSON, and nobody else is answered
while that is read; so JSON has a lower bound than files, and no more lists than samples need.
"""

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from fastapi import Request
from numpy.typing import NDArray
from starlette.datastructures import UploadFile
from starlette.types import Message

from kscn.data.images import read_image
from kscn.errors import DataError
from kscn.web.requests import RefusalError, read_body

JSON, NPY, FORM = "application/json", "application/octet-stream", "multipart/form-data"
IMAGES = ("image/png", "image/jpeg")
KINDS = (JSON, NPY, FORM, *IMAGES)
MOST_JSON = 2 * 2**20  # bytes
# In one request: the answer has a line for each. And pixels of all its images, unpacked.
MOST_SAMPLES, MOST_PIXELS, _MOST_FILES = 100_000, 2**26, 1000


async def read_parts(request: Request, most_bytes: int, seconds: float) -> tuple[str, list[bytes]]:
    """The kind of a body and its parts: the files of a form, or the body itself."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in KINDS:
        raise RefusalError(
            415, f"the content type is {kind[:80] or 'missing'!r}; send one of {', '.join(KINDS)}."
        )
    most = min(most_bytes, MOST_JSON) if kind == JSON else most_bytes
    body = await read_body(request, most, seconds)
    if kind != FORM:
        return kind, [body]

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    try:
        form = await Request(request.scope, receive).form(max_files=_MOST_FILES, max_fields=10)
    except Exception as error:  # a form can be broken in more ways than the parser names
        raise RefusalError(400, "the form cannot be read; send image files in it.") from error
    parts = [await part.read() for _, part in form.multi_items() if isinstance(part, UploadFile)]
    await form.close()
    if not parts:
        raise RefusalError(400, "the form holds no file; send one or more PNG or JPEG images.")
    return IMAGES[0], parts


def decode_array(kind: str, body: bytes, shape: tuple[int, ...]) -> NDArray:
    """Samples (n, *shape) from JSON or a .npy file, which may also hold one sample alone."""
    array = _from_json(body, shape) if kind == JSON else _from_npy(body)
    samples = array[None] if array.shape == shape else array
    if samples.shape[1:] != shape or not len(samples):
        wanted = f"(n, {', '.join(map(str, shape))}), or one sample of {shape}"
        raise RefusalError(422, f"the samples have shape {str(array.shape)[:80]}; send {wanted}.")
    if len(samples) > MOST_SAMPLES:
        raise RefusalError(
            413, f"the body holds {len(samples):,} samples; send at most {MOST_SAMPLES:,}."
        )
    return samples


def _from_json(body: bytes, shape: tuple[int, ...]) -> NDArray:
    """Nested lists of numbers, alone or as {"samples": [...]}."""
    samples = body.count(b",") // math.prod(shape) + 1  # at most
    lists = 1 + samples * sum(math.prod(shape[:axis]) for axis in range(len(shape)))
    # The key is the only word: numpy would make all entries as wide as the widest one.
    quotes = body.count(b'"')
    try:
        found = json.loads(body) if quotes <= 2 and body.count(b"[") <= lists else None
        if isinstance(found, dict) and list(found) == ["samples"]:
            found = found["samples"]
        elif quotes:
            found = None
        array = np.asarray(found)
    except (ValueError, RecursionError):  # no JSON, endless digits or depth, or of many shapes
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise RefusalError(
            422, 'the body must be nested lists of numbers, all of one shape: {"samples": [...]}.'
        )
    return array


def _from_npy(body: bytes) -> NDArray:
    try:
        array: NDArray = np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
    except Exception:  # numpy reads the header as text of Python, which fails in many ways
        raise RefusalError(
            400, "the body is not a whole .npy file; send what numpy.save writes."
        ) from None
    if array.dtype.kind not in "biuf":
        raise RefusalError(422, f"the .npy file holds {array.dtype}; send integers or floats.")
    return array


def decode_images(
    parts: list[bytes], shape: tuple[int, ...], read: Callable[[Path, BinaryIO], NDArray]
) -> NDArray:
    """PNG and JPEG images, of each of which `read` makes an array of that shape."""
    from PIL import Image

    pixels = len(parts) * math.prod(shape)
    for number, part in enumerate(parts):
        try:
            pixels += math.prod(Image.open(io.BytesIO(part), formats=("PNG", "JPEG")).size)
        except Exception:  # Pillow passes faults of a file on as whatever its decoder met
            raise RefusalError(400, f"image {number} is no PNG or JPEG file; send those.") from None
    if pixels > MOST_PIXELS:
        raise RefusalError(413, f"the images have more than {MOST_PIXELS:,} pixels; send fewer.")
    try:
        made = [read(Path(f"image {i}"), io.BytesIO(part)) for i, part in enumerate(parts)]
    except DataError as error:
        raise RefusalError(400, str(error).replace("repair or remove", "send")) from None
    return np.stack(made)


def read_exact(file: Path, content: BinaryIO, shape: tuple[int, ...], white: float) -> NDArray:
    """An image of just that shape, (h, w), (1, h, w), (3, h, w) or (h, w, 3), from 0 to `white`."""
    image = read_image(file, content=content)
    colour, grey = np.asarray(image), np.asarray(image.convert("L"))
    for pixels in (grey, grey[None], np.moveaxis(colour, -1, 0), colour):
        if pixels.shape == shape:
            return pixels * (white / 255)
    raise RefusalError(
        422, f"{file} is {image.width} x {image.height} pixels; send samples of shape {shape}."
    )
