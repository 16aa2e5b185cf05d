"""Samples as a network's input: every sample once per epoch, scaled and shaped."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from kscn.data import Source, as_source, load
from kscn.errors import DataError, InputError
from kscn.nn import InputScaling
from kscn.runtime.lazy import Lazy, read_blocks
from kscn.runtime.minibatches import Minibatches

CPU = torch.device("cpu")


def randn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def batches(X, batch_size=4, shape=None):
    source = as_source(X)
    return Minibatches(source, InputScaling(), shape or source.shape, batch_size, CPU)


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
    found = given.take(np.arange(6))
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found, expected)
    lazy = Lazy(as_source(X), [InputScaling()], CPU, shape=(4,))
    np.testing.assert_array_equal(lazy[:], expected.reshape(6, 4))


def test_read_only_and_strided_samples_are_neither_copied_nor_written_to():
    X = randn(12, 5)
    X.flags.writeable = False
    given = batches(X[::2, ::-1])
    np.testing.assert_array_equal(given.take(np.arange(6)), X[::2, ::-1].astype(np.float32))
    given.take(np.arange(6)).zero_()
    np.testing.assert_array_equal(X, randn(12, 5))


@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_samples_that_are_no_numbers_are_refused_when_read(value, words):
    X = randn(8, 3)
    X[5, 1] = value
    given = batches(X)
    lazy = Lazy(as_source(X), [nn.ReLU()], CPU)  # which makes zero of minus infinity
    for read in (given.take, lazy.take, lambda rows: lazy[:]):
        with pytest.raises(InputError, match=f"Input X contains {words}"):
            read(np.array([5]))
    given.take(np.arange(5))


@pytest.fixture
def files(tmp_path):
    """The same samples in every kind of file that is read in batches."""
    h5py, pa = pytest.importorskip("h5py"), pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    X = randn(1000, 16)
    np.save(tmp_path / "x.npy", X)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(30, 16))
    table = pa.table({f"c{i:02}": X[:, i] for i in range(16)})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=70)
    (tmp_path / "set").mkdir()
    for number, part in enumerate(np.split(X, [100, 450, 451])):
        np.save(tmp_path / "set" / f"{number}.npy", part)
    return X, [load(tmp_path / name).samples for name in ("x.npy", "x.h5", "x.parquet", "set")]


def reader_threads():
    return [t for t in threading.enumerate() if t.name.startswith("kscn-read")]


def test_large_files_are_shuffled_in_windows_and_memory_never_is(files):
    X, sources = files
    for source in sources:
        source.window_bytes, source.stretch_bytes = 200 * 128, 20 * 128
        given = batches(source, 64)
        seen = []
        for indices, batch in given.shuffled(seeded(4)):
            np.testing.assert_array_equal(batch, X[indices.numpy()].astype(np.float32))
            seen.append(indices)
        assert [len(indices) for indices in seen] == [64] * 15 + [40]
        order = torch.cat(seen)
        assert torch.equal(order.sort().values, torch.arange(1000))
        again = torch.cat([indices for indices, _ in given.shuffled(seeded(4))])
        assert torch.equal(again, order)
        assert not torch.equal(order, torch.randperm(1000, generator=seeded(4)))
    order = torch.cat([indices for indices, _ in batches(X, 64).shuffled(seeded(4))])
    assert torch.equal(order, torch.randperm(1000, generator=seeded(4)))


class Failing(Source):
    """A file of 1000 samples whose second half cannot be read."""

    on_disk = True

    def __init__(self):
        super().__init__("bad.npy", (1000, 16), np.dtype(np.float64))

    def stretches(self):
        return np.arange(0, 1001, 10)

    def _read(self, start, stop):
        if stop > 500:
            raise DataError("bad.npy is damaged")
        return np.zeros((stop - start, 16))

    def _gather(self, rows):
        return self._read(rows.min(), rows.max() + 1)


def test_errors_of_the_background_reach_the_loop():
    failing = Failing()
    failing.window_bytes = 20 * 128
    with pytest.raises(DataError, match="damaged"):
        list(batches(failing).shuffled(seeded()))
    firsts = []
    with pytest.raises(DataError, match="damaged"):
        for first, _ in read_blocks(Failing(), 50, 0, 1000, read_bytes=100 * 128):
            firsts.append(first)
    assert firsts == list(range(0, 500, 50))
    assert not reader_threads()


@pytest.mark.parametrize("read", ["shuffled", "blocks"])
def test_leaving_an_epoch_early_leaves_no_thread(files, read):
    for source in files[1]:
        source.window_bytes = 100 * 128
        for _ in (
            batches(source).shuffled(seeded())
            if read == "shuffled"
            else read_blocks(source, 4, 0, 1000, read_bytes=100 * 128)
        ):
            assert len(reader_threads()) == 1
            break
        assert not reader_threads()


@pytest.mark.parametrize("rows", [7, 64, 300, 2000])
def test_blocks_that_are_read_ahead_are_the_blocks_asked_for(files, rows):
    X, sources = files
    for source in sources:
        for start, stop in ((0, 1000), (3, 997), (5, 5)):
            found = list(read_blocks(source, rows, start, stop, read_bytes=150 * 128))
            assert [first for first, _ in found] == list(range(start, stop, rows))
            joined = np.concatenate([np.empty((0, 16)), *(block for _, block in found)])
            np.testing.assert_array_equal(joined, X[start:stop])


def resident_mb():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


@pytest.mark.skipif("not __import__('pathlib').Path('/proc/self/status').exists()")
def test_an_epoch_of_a_large_file_keeps_memory_flat(tmp_path):
    # Sparse: 256 MB that cost no disk, but would all become resident when read.
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint8, (250_000, 1024))
    source = load(tmp_path / "x.npy").samples
    source.window_bytes = 8 * 2**20
    given = batches(source, 500)
    before, peak = resident_mb(), 0.0
    for _, batch in given.shuffled(seeded()):
        assert not batch.any()
        peak = max(peak, resident_mb() - before)
    assert peak < 100
