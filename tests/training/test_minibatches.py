"""Samples as a network's input: every sample once per epoch, scaled and shaped."""

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn.data.arrays import MappedSource
from kscn.errors import InputError
from kscn.nn import InputScaling
from kscn.training.minibatches import Minibatches

CPU = torch.device("cpu")


def randn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def batches(X, batch_size=4, shape=None, scaling=None):
    source = as_source(X)
    scaling = scaling or InputScaling(torch.zeros(()), 1.0)
    return Minibatches(source, scaling, shape or source.shape, batch_size, CPU)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("n", "batch_size", "sizes"),
    [
        (10, 4, [4, 4, 2]),
        (8, 4, [4, 4]),
        (9, 4, [4, 5]),  # one sample alone joins the batch before
        (5, 4, [5]),
        (4, 4, [4]),
        (3, 4, [3]),
        (1, 4, [1]),
        (3, 1, [1, 1, 1]),
        (3, 2, [3]),
        (2, 1, [1, 1]),
    ],
)
def test_an_epoch_has_every_sample_once_in_batches_of_the_size_asked_for(n, batch_size, sizes):
    X = randn(n, 3)
    given = batches(X, batch_size)
    seen, found = [], []
    for indices, batch in given.shuffled(seeded()):
        np.testing.assert_array_equal(batch, X[indices.numpy()].astype(np.float32))
        seen += indices.tolist()
        found.append(len(batch))
    assert sorted(seen) == list(range(n))
    assert found == sizes
    assert given.per_epoch == len(sizes)


def test_the_order_is_the_generators():
    given = batches(randn(10, 3))
    order = torch.cat([indices for indices, _ in given.shuffled(seeded(5))])
    assert torch.equal(order, torch.randperm(10, generator=seeded(5)))
    generator = seeded(5)
    first, second = (
        torch.cat([indices for indices, _ in given.shuffled(generator)]) for _ in range(2)
    )
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", "g", ">f4", ">f8", "u1", "i1", "u2", ">i2", "i4", "u8", "?"]
)
def test_every_number_type_arrives_as_float32(dtype):
    X = np.arange(24).reshape(6, 2, 2).astype(dtype)
    given = batches(X, shape=(1, 2, 2))
    expected = X.astype(np.float32).reshape(6, 1, 2, 2)
    for found in (given.read(0, 6), given.take(np.arange(6)), *(b for _, b in given.blocks(6))):
        assert found.dtype == torch.float32
        np.testing.assert_array_equal(found, expected)


def test_scaling_is_applied_before_the_network_sees_anything():
    X = randn(30, 2, 3) * 3 + 5
    scaling = InputScaling.of(as_source(X), image=False)
    given = batches(X, shape=(6,), scaling=scaling)
    expected = (X - X.mean(axis=0)).reshape(30, 6)
    expected /= np.sqrt((expected**2).mean())
    np.testing.assert_allclose(given.read(0, 30), expected, atol=1e-5)
    np.testing.assert_array_equal(given.take(np.array([7, 3])), given.read(0, 30)[[7, 3]])


def test_blocks_come_in_order_and_may_begin_anywhere():
    X = randn(10, 3)
    found = list(batches(X).blocks(4, 1, 8))
    assert [first for first, _ in found] == [1, 5]
    np.testing.assert_array_equal(torch.cat([b for _, b in found]), X[1:8].astype(np.float32))


def test_read_only_and_strided_samples_are_neither_copied_nor_written_to():
    X = randn(12, 5)
    X.flags.writeable = False
    given = batches(X[::2, ::-1])
    np.testing.assert_array_equal(given.read(0, 6), X[::2, ::-1].astype(np.float32))
    given.read(0, 6).zero_()
    np.testing.assert_array_equal(X, randn(12, 5))


@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_samples_that_are_no_numbers_are_refused_when_read(value, words):
    X = randn(8, 3)
    X[5, 1] = value
    given = batches(X)
    for read in (
        lambda: given.read(4, 8),
        lambda: given.take(np.array([5])),
        lambda: list(given.blocks(2)),
    ):
        with pytest.raises(InputError, match=f"Input X contains {words}"):
            read()
    given.read(0, 5)


def test_pages_of_a_mapped_file_are_given_back_while_reading_in_order(tmp_path, monkeypatch):
    X = randn(64, 16).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    released = np.zeros(64, dtype=bool)

    def release(self, start, stop):
        released[start:stop] = True

    monkeypatch.setattr(MappedSource, "_release", release)
    given = batches(np.load(tmp_path / "x.npy", mmap_mode="r"))
    np.testing.assert_array_equal(torch.cat([b for _, b in given.blocks(8)]), X)
    assert released.all()
