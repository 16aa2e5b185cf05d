"""Samples as tensor blocks: in order, by mask, by index, converted and checked."""

import warnings
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kscn.data import as_source
from kscn.errors import InputError
from kscn.runtime import blocks as module
from kscn.runtime.blocks import READ, Blocks, check_finite, working_dtype

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
    ((_, z),) = pieces.where(torch.arange(100) == 5)
    np.testing.assert_array_equal(z, expected[[5]])
    np.testing.assert_array_equal(X, samples())  # the input is left alone


@given(
    n=st.integers(1, 70),
    stretch=st.sampled_from([1, 4, 16, 64]),
    batch_size=st.sampled_from([1, 10, 100]),
    density=st.sampled_from([0.0, 0.05, 0.3, 0.7, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_rows_by_mask_are_mask_indexing(n, stretch, batch_size, density, seed):
    X = samples(n)
    wanted = torch.tensor(np.random.default_rng(seed).random(n) < density)
    with patch.object(module, "READ", stretch):
        found = list(blocks_of(X, batch_size=batch_size).where(wanted))
    assert all(len(index) == len(z) for index, z in found)
    index = torch.cat([index for index, _ in found]) if found else torch.empty(0).long()
    rows = torch.cat([z for _, z in found]) if found else torch.empty(0, 3)
    assert torch.equal(index, wanted.nonzero().flatten())
    np.testing.assert_array_equal(rows, X[wanted.numpy()])


def test_stretches_without_a_wanted_row_are_not_read():
    source = as_source(samples(5 * READ, 1))
    read = []
    original = source.batches

    def batches(size, start=0, stop=None):
        read.append((start, stop))
        return original(size, start, stop)

    source.batches = batches
    wanted = torch.zeros(5 * READ, dtype=torch.bool)
    wanted[[READ, 2 * READ + 5, 4 * READ]] = True
    list(Blocks(source, torch.float32, CPU).where(wanted))
    assert read == [(READ, 3 * READ), (4 * READ, 5 * READ)]


def test_read_only_input_is_used_without_a_warning_or_a_copy():
    X = samples()
    X.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ((_, z),) = blocks_of(X)
    assert z.data_ptr() == X.ctypes.data


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("bool", torch.float32),
        ("uint8", torch.float32),
        ("int16", torch.float32),
        ("float16", torch.float32),
        ("float32", torch.float32),
        (">f4", torch.float32),
        ("int32", torch.float64),
        ("uint32", torch.float64),
        ("int64", torch.float64),
        ("float64", torch.float64),
        (">f8", torch.float64),
        ("longdouble", torch.float64),
    ],
)
def test_the_working_precision_holds_the_stored_values(stored, expected):
    assert working_dtype(np.dtype(stored)) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.nan, "Input faces.npy contains NaN; remove or replace"),
        (torch.inf, "Input faces.npy contains infinity; remove or replace"),
        (-torch.inf, "Input faces.npy contains infinity; remove or replace"),
        (1e30, "Input faces.npy contains values too large for their squares"),
    ],
)
def test_values_that_are_not_numbers_are_refused_in_words(value, words):
    z = torch.ones(4, 3)
    z[2, 1] = value
    with pytest.raises(InputError, match=words):
        check_finite(z.square().sum(dim=1), z, "faces.npy")


def test_finite_values_pass():
    z = torch.full((4, 3), 1e18)
    check_finite(z.square().sum(dim=1), z, "X")
