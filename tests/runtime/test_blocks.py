"""Samples as tensor blocks: in order, by index, converted and checked."""

import warnings

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn.errors import InputError
from kscn.runtime.blocks import Blocks, check_finite, working_dtype

CPU = torch.device("cpu")


def samples(n=100, d=3, dtype=np.float32):
    return np.arange(n * d, dtype=dtype).reshape(n, d)


def blocks_of(X, **kwargs):
    return Blocks(as_source(X), kwargs.pop("dtype", torch.float32), CPU, **kwargs)


def joined(blocks):
    starts, parts = zip(*blocks, strict=True)
    assert list(starts) == list(np.cumsum([0] + [len(part) for part in parts[:-1]]))
    return torch.cat(parts)


@pytest.mark.parametrize("batch_size", [1, 7, 999, 1000, 10**6])
def test_all_samples_come_once_and_in_order(batch_size):
    X = samples(1000)
    pieces = blocks_of(X, batch_size=batch_size)
    assert len(pieces) == 1000
    assert max(len(z) for _, z in pieces) == min(batch_size, 1000)
    np.testing.assert_array_equal(joined(pieces), X)


def test_images_are_flattened():
    X = samples(20, 12).reshape(20, 2, 3, 2)
    pieces = blocks_of(X)
    assert pieces.dim == 12
    np.testing.assert_array_equal(joined(pieces), X.reshape(20, 12))
    np.testing.assert_array_equal(pieces.take(np.array([3, 1])), X.reshape(20, 12)[[3, 1]])


def test_the_shift_is_taken_off():
    X = samples()
    shift = torch.tensor([1.0, 2.0, 3.0])
    expected = X - shift.numpy()
    pieces = blocks_of(X, shift=shift)
    np.testing.assert_array_equal(joined(pieces), expected)
    np.testing.assert_array_equal(pieces.take(np.array([5])), expected[[5]])
    np.testing.assert_array_equal(X, samples())  # the input is left alone


def test_read_only_input_is_used_without_a_warning():
    X = samples()
    X.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ((_, z),) = blocks_of(X)
    np.testing.assert_array_equal(z, X)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("bool uint8 int16 float16 float32 >f4", torch.float32),
        ("int32 uint32 int64 float64 >f8 longdouble", torch.float64),
    ],
)
def test_the_working_precision_holds_the_stored_values(stored, expected):
    assert {working_dtype(np.dtype(name)) for name in stored.split()} == {expected}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.nan, "Input faces.npy contains NaN in row 2; remove"),
        (
            torch.inf,
            "Input faces.npy contains infinity or values too large for their squares in row 2",
        ),
        (
            -torch.inf,
            "Input faces.npy contains infinity or values too large for their squares in row 2",
        ),
        (1e30, "Input faces.npy contains infinity or values too large for their squares"),
    ],
)
def test_values_that_are_not_numbers_are_refused_in_words(value, words):
    z = torch.ones(4, 3)
    z[2, 1] = value
    with pytest.raises(InputError, match=words):
        check_finite(z.square().sum(dim=1), "faces.npy")
