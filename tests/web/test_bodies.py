"""Bodies of requests cost memory in proportion to their size, whatever is in them."""

import io
import json
import struct
import tracemalloc

import numpy as np
import pytest

pytest.importorskip("fastapi")

from kscn.web import bodies
from kscn.web.bodies import decode
from kscn.web.requests import RefusalError

SIZE = 1_000_000


def decoded(body, shape=(2, 3), kind="application/json"):
    return decode(kind, [body], shape)


def refused(body, **options):
    with pytest.raises(RefusalError) as error:
        decoded(body, **options)
    return error.value.status


def filled(piece, around=b"[%s]"):
    return around % b",".join([piece] * (SIZE // (len(piece) + 1)))


BOMBS = {
    "empty lists": filled(b"[]"),
    "deep lists": filled(b"[[[]]]"),
    "objects": filled(b"{}"),
    "words": filled(b'"ab"'),
    "keys": filled(b'"%d":0', b"{%s}"),
    "all in one sample": filled(b"[]", b"[[[0,0,0],[0,0,0]],%s]"),
    "named": filled(b"[]", b'{"samples":[%s]}'),
    "nothing but commas": b"[" + b"," * SIZE + b"]",
    "short samples": filled(b"[9]"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_objects_are_made_of_what_has_another_shape(bomb):
    tracemalloc.start()
    try:
        assert refused(BOMBS[bomb]) in (400, 422)
        assert tracemalloc.get_traced_memory()[1] < 6 * SIZE  # the lists would take sixty
    finally:
        tracemalloc.stop()


def test_many_lists_of_the_right_shape_are_not_kept():
    samples = np.random.default_rng(0).integers(0, 9, (60, 400, 1))
    body = json.dumps(samples.tolist(), separators=(",", ":")).encode()
    tracemalloc.start()
    try:
        array = decoded(body, shape=(400, 1))
        assert tracemalloc.get_traced_memory()[1] < 8 * len(body)  # the lists alone take 20 times
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(array, samples)


@pytest.mark.parametrize("wrap", ['{"samples": %s}', "%s", '\n { "samples"\t:\r\n%s\n} '])
@pytest.mark.parametrize("shape", [(7,), (2, 3), (3, 1, 2)])
@pytest.mark.parametrize("piece", [1, 100, 2**16])
def test_json_is_read_to_the_last_digit(shape, wrap, piece, monkeypatch):
    monkeypatch.setattr(bodies, "_PIECE", piece)
    samples = (
        np.random.default_rng(0).standard_normal((50, *shape))
        * 10.0 ** np.arange(-25, 25)[(slice(None), *(None for _ in shape))]
    )
    for sent in (samples, samples.astype(np.float32), samples[:1], samples[0]):
        found = decoded((wrap % json.dumps(sent.tolist(), indent=1)).encode(), shape)
        np.testing.assert_array_equal(found, sent.reshape(-1, *shape))
        assert found.dtype == sent.dtype


# Brackets and commas are as they should be in most of these; the numbers are not.
@pytest.mark.parametrize(
    ("body", "status"),
    {
        b"[[1,2,3],[4,5,6]]": None,
        b"[[1,2,3]7,[4,5,6]]": 422,
        b"[[1,2,3],7[4,5,6]]": 422,
        b"[[1,2,3],[4,5,6]7]": 422,
        b"[[1,2,3],[4,5,6]]7": 422,
        b"7[[1,2,3],[4,5,6]]": 422,
        b"[7[1,2,3],[4,5,6]]": 422,
        b"[[1,2,3],[4,,6]]": 422,
        b"[[1,2,3],[4,5 6,7]]": 422,
        b"[[1,2,3],[4,.5,6]]": 422,
        b"[[1,2,3],[4,5.,6]]": 422,
        b"[[1,2,3],[4,+5,6]]": 422,
        b"[[1,2,3],[4,05,6]]": 422,
        b"[[1,2,3],[4,1e,6]]": 422,
        b"[[1,2,3],[4,5-6,7]]": 422,
        b"[[1,2,3],[4,5,\x0b6]]": 422,
        b"[[1,2,3],[4,5]]": 422,
        b"[[1,2,3],[4,5,6],[]]": 422,
        b"[[1,2,3],[4,5,6],]": 422,
        b"[[]]": 422,
        b"[[1,2,3],[4,1e999,6]]": 422,
        b"[[1,2,3],[4," + b"9" * 400 + b",6]]": 422,
        b"[[1,2,3],[4,NaN,6]]": 422,
        b"[[1,2,3],[4,null,6]]": 422,
        b"[[1,2,3],[4,\xff,6]]": 422,
        b'{"samples":[[1,2,3],[4,5,6]]': 400,
        b'{"samples":[[1,2,3],[4,5,6]],"more":[]}': 422,
        b"[[1,2,3],[4,5,6]]}": 400,
        b'{"samples":[[1,2,3],[4,5,6]]}}{': 422,
    }.items(),
    ids=range(29),
)
def test_what_is_no_json_of_samples_is_refused(body, status):
    if status is None:
        assert decoded(body, (3,)).tolist() == [[1, 2, 3], [4, 5, 6]]
    else:
        assert refused(body, shape=(3,)) == status


def test_a_request_holds_a_bounded_number_of_samples(monkeypatch):
    monkeypatch.setattr(bodies, "MOST_SAMPLES", 100)
    for count, kept in ((100, True), (101, False)):
        samples = np.ones((count, 2, 3), np.uint8)
        file = io.BytesIO()
        np.save(file, samples)
        for kind, body in (
            ("application/octet-stream", file.getvalue()),
            ("application/json", json.dumps(samples.tolist()).encode()),
            ("application/json", json.dumps(samples.tolist()).encode() + b" " * 40_000),
        ):
            if kept:
                assert len(decoded(body, kind=kind)) == count
            else:
                assert refused(body, kind=kind) == 413


def npy(header):
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    "shape",
    ["(2**62, 0)", f"({2**62}, 0)", "(0, 8)", "(True, 8)", "(-1, 0)", "(0,)*9", f"({10**4200},)"],
)
def test_npy_headers_of_impossible_shapes_are_refused(shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    assert refused(npy(header), kind="application/octet-stream") == 400


def test_images_are_counted_before_they_are_unpacked():
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.new("L", (2000, 2000)).save(file, "PNG")  # 4 MB from 12 KB
    tracemalloc.start()
    try:
        with pytest.raises(RefusalError) as error:
            decode("image/png", [file.getvalue()] * 100, (2000, 2000))
        assert error.value.status == 413
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
