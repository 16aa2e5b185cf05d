"""Samples from bodies: read to the last digit, or refused before they take much memory."""

import io
import json
import struct
import tracemalloc

import numpy as np
import pytest

pytest.importorskip("fastapi")

from kscn.web.bodies import JSON, MOST_SAMPLES, NPY, decode_array, decode_images
from kscn.web.requests import RefusalError

SIZE = 300_000


def refused(body, kind=JSON, shape=(2, 3)):
    with pytest.raises(RefusalError) as error:
        decode_array(kind, body, shape)
    return error.value.status


def filled(piece, around=b"[%s]"):
    return around % b",".join([piece] * (SIZE // (len(piece) + 1)))


BOMBS = {
    "empty lists": filled(b"[]"),
    "deep lists": filled(b"[[[]]]"),
    "objects": filled(b"{}"),
    "words": filled(b'"ab"'),
    "one wide word": b'["' + b"a" * (SIZE // 2) + b'",' + b"1," * (SIZE // 4) + b"1]",
    "keys": filled(b'"%d":0', b"{%s}"),
    "named": filled(b"[]", b'{"samples":[%s]}'),
    "depth": b"[" * SIZE,
    "digits": b"[" + b"9" * SIZE + b"]",
    "short samples": filled(b"[9]"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_json_bombs_are_refused_in_bounded_memory(bomb):
    tracemalloc.start()
    try:
        assert refused(BOMBS[bomb]) == 422
        assert tracemalloc.get_traced_memory()[1] < 30 * SIZE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("wrap", ['{"samples": %s}', "%s", '\n { "samples"\t:\r\n%s\n} '])
@pytest.mark.parametrize("shape", [(7,), (2, 3), (3, 1, 2)])
def test_json_is_read_to_the_last_digit(shape, wrap):
    samples = np.random.default_rng(0).standard_normal((50, *shape))
    samples *= 10.0 ** np.arange(-25, 25).reshape(-1, *[1] * len(shape))
    for sent in (samples, samples[:1], samples[0]):
        found = decode_array(JSON, (wrap % json.dumps(sent.tolist(), indent=1)).encode(), shape)
        np.testing.assert_array_equal(found, sent.reshape(-1, *shape))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"\xff\xfe", b"null", b"3", b"[]", b"{}", b"[NaN", b"[[1,2,3],[4,,6]]",
        b"[[1,2,3],[4,5]]", b"[[1,2,3],[4,5,6]]7", b"[[1,2,3],[4,null,6]]", b"[[1,2,3],[4,05,6]]",
        b'[["1","2","3"]]', b'{"samples": [[1,2,3]], "more": 1}', b'{"samples": "abc"}',
        b'{"other": [[1,2,3]]}', b"[[[1,2,3]]]", b"[[1,2]]",
    ],
)  # fmt: skip
def test_what_is_no_json_of_samples_is_refused(body):
    assert refused(body, shape=(3,)) == 422


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(shape, descr="'<f4'"):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def test_npy_files_are_read_as_they_were_written():
    samples = np.arange(12.0).reshape(2, 2, 3)
    for stored in (samples, samples.astype(">f4"), np.asfortranarray(samples), samples > 5):
        np.testing.assert_array_equal(decode_array(NPY, npy(stored), (2, 3)), stored)


@pytest.mark.parametrize(
    "body",
    [
        b"", npy(np.zeros((1, 2, 3)))[:-1], b"PK\x03\x04" + b"x" * 100,
        npy(np.array([["a"]])), npy(np.zeros((1, 2, 3), complex)), npy(np.float64(3)),
        npy(np.zeros((0, 2, 3))),
        *(header(shape) for shape in (f"({2**62}, 0)", "(True, 8)", "(-1, 0)", "(9**9, 8)", "8")),
        header(f"({10**8}, 2, 3)"), header("(1, 2, 3)", "'|O'"), header("(1, 2, 3)", "__import__"),
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 2**16,
    ],
    ids=range(16),
)  # fmt: skip
def test_npy_files_of_something_else_are_refused(body):
    assert refused(body, NPY) in (400, 422)


def test_a_request_holds_a_bounded_number_of_samples():
    samples = np.ones((MOST_SAMPLES + 1, 1), np.uint8)
    assert len(decode_array(NPY, npy(samples[1:]), (1,))) == MOST_SAMPLES
    for kind, body in ((NPY, npy(samples)), (JSON, json.dumps(samples.tolist()).encode())):
        assert refused(body, kind, (1,)) == 413


def test_images_are_counted_before_they_are_unpacked():
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.new("1", (10_000, 10_000)).save(file, "PNG")  # 100 million pixels in 15 KB
    for parts in ([file.getvalue()], [file.getvalue()] * 50):
        with pytest.raises(RefusalError) as error:
            decode_images(parts, (8, 8), lambda *_: pytest.fail("it was unpacked"))
        assert error.value.status == 413
