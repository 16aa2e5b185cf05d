"""Random order in windows: every sample once, by the seed alone, in long reads, read ahead."""

import io
import threading
from itertools import pairwise

import h5py
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from kscn.data import as_source, load
from kscn.data.base import Source
from kscn.data.shuffle import read_ahead, shuffled_exactly, shuffled_in_windows
from kscn.data.source import ArraySource, FileSource


class Reads(Source):
    """Samples 0, 1, 2, ... that remember what was read of them."""

    on_disk = True

    def __init__(self, length, cuts):
        super().__init__("X", (length, 1), np.dtype(np.int64))
        self.cuts, self.reads = np.asarray(cuts), []

    def stretches(self):
        return self.cuts

    def _read(self, start, stop):
        self.reads.append((start, stop))
        return np.arange(start, stop)[:, None]

    def _gather(self, rows):
        pytest.fail("scattered samples were read")


def reader_threads():
    return [t for t in threading.enumerate() if t.name.startswith("kscn-read")]


@st.composite
def cut_sources(draw):
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=30))
    return Reads(sum(lengths), np.cumsum([0, *lengths]))


@settings(max_examples=60)
@given(cut_sources(), st.integers(0, 2**63 - 1), st.integers(1, 40), st.integers(1, 100))
def test_every_sample_comes_once_in_batches_of_the_sizes_asked_for(source, seed, size, window):
    sizes = [size] * (len(source) // size) + [len(source) % size] * (len(source) % size > 0)
    source.window_bytes = 8 * window
    batches = list(shuffled_in_windows(source, seed, sizes))
    again = list(shuffled_in_windows(source, seed, sizes))
    assert [len(indices) for indices, _ in batches] == sizes
    order = np.concatenate([indices for indices, _ in batches])
    np.testing.assert_array_equal(np.sort(order), np.arange(len(source)))
    np.testing.assert_array_equal(np.concatenate([rows[:, 0] for _, rows in batches]), order)
    np.testing.assert_array_equal(np.concatenate([indices for indices, _ in again]), order)


def test_whole_stretches_are_read_forwards_within_a_window():
    cuts = np.arange(0, 1001, 10)
    source = Reads(1000, cuts)
    source.window_bytes = 8 * 100
    list(shuffled_in_windows(source, 0, [1000]))
    assert sorted(source.reads) == list(pairwise(cuts))
    steps_back = sum(b < a for a, b in pairwise(source.reads))
    assert steps_back <= 11  # once per window


def test_the_order_mixes_the_whole_source():
    source = Reads(10_000, np.arange(0, 10_001, 20))
    source.window_bytes = 8 * 1000
    order = np.concatenate([i for i, _ in shuffled_in_windows(source, 1, [100] * 100)])
    # Within a window of 50 stretches from everywhere, place and number have nothing in common.
    assert abs(np.corrcoef(order, np.arange(10_000))[0, 1]) < 0.1
    tenths = np.stack(
        [np.bincount(window // 1000, minlength=10) for window in order.reshape(10, -1)]
    )
    assert tenths.min() >= 20  # of 100 expected
    neighbours = np.abs(np.diff(order)) == 1
    assert neighbours.mean() < 0.02
    other = np.concatenate([i for i, _ in shuffled_in_windows(source, 2, [10_000])])
    assert (order != other).mean() > 0.99


@pytest.mark.parametrize("stretch", [20, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_a_file_sorted_by_class_comes_as_if_it_were_shuffled(stretch, seed):
    """Also where a stretch (a row group, a chunk) is longer than a window."""
    n = 20_000
    source = Reads(n, np.append(np.arange(0, n, stretch), n))
    source.window_bytes = 8 * 1000
    order = np.concatenate([i for i, _ in shuffled_in_windows(source, seed, [100] * (n // 100))])
    table = np.stack([np.bincount(some // (n // 4), minlength=4) for some in order.reshape(20, -1)])
    # Four classes, 250 of each in every window; batches are then drawn from one.
    assert np.abs(table - 250).max() <= (50 if stretch == 20 else 125)
    reads = [stop - start for start, stop in source.reads]
    assert max(reads) <= 1000  # memory is bounded, whatever the stretches


@settings(max_examples=30)
@given(st.integers(1, 50), st.integers(1, 60))
def test_exact_order_is_kept_whatever_the_source(n, size):
    order = np.random.default_rng(n).permutation(n)
    sizes = [size] * (n // size) + [n % size] * (n % size > 0)
    for source in (Reads(n, [0, n]), ArraySource(np.arange(n)[:, None], "X")):
        batches = list(shuffled_exactly(source, order, sizes))
        assert [len(rows) for _, rows in batches] == sizes
        for column in (0, 1):
            found = np.concatenate([batch[column].reshape(-1) for batch in batches])
            np.testing.assert_array_equal(found, order)


def test_items_are_made_ahead_by_one_in_another_thread():
    made = []

    def items():
        for number in range(4):
            made.append(threading.current_thread().name)
            yield number

    seen = []
    for item in read_ahead(items()):
        seen.append(item)
        assert len(made) <= item + 2
    assert seen == [0, 1, 2, 3]
    assert all(name.startswith("kscn-read") for name in made)
    assert not reader_threads()


def test_an_error_comes_out_in_its_place_and_ends_the_thread():
    def items():
        yield 1
        raise OSError("the disk is gone")

    found = []
    with pytest.raises(OSError, match="the disk is gone"):
        for item in read_ahead(items()):
            found.append(item)
    assert found == [1]
    assert not reader_threads()


@pytest.mark.parametrize("how", ["break", "error", "close"])
def test_leaving_early_ends_the_thread(how):
    items = read_ahead(iter(range(100)))
    if how == "break":
        for _ in items:
            break
    elif how == "error":
        with pytest.raises(RuntimeError):
            for _ in items:
                raise RuntimeError
    assert len(reader_threads()) == (0 if how == "close" else 1)
    items.close()
    assert not reader_threads()


def test_memory_and_single_files_have_no_stretches(tmp_path):
    X = np.zeros((10, 4), np.float32)
    assert as_source(X).stretches() is None
    assert not as_source(X).on_disk


def test_stretches_of_files_cover_them_and_respect_their_units(tmp_path):
    X = np.zeros((6000, 64), np.float64)  # 3 MB
    np.save(tmp_path / "x.npy", X)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(700, 64))
    parquet.write_table(pa.table({"a": X[:, 0]}), tmp_path / "x.parquet", row_group_size=999)
    (tmp_path / "set").mkdir()
    for name in "ab":
        np.save(tmp_path / "set" / f"{name}.npy", X[:1000])
    found = {name: load(tmp_path / name).samples for name in ("x.npy", "x.h5", "x.parquet", "set")}
    cuts = {name: source.stretches() for name, source in found.items()}
    assert all(source.on_disk for source in found.values())
    assert cuts["x.npy"].tolist() == [0, 2048, 4096, 6000]
    assert cuts["x.h5"].tolist() == [0, 1400, 2800, 4200, 5600, 6000]
    assert cuts["x.parquet"].tolist() == [0, 6000]  # groups of 8 KB stay together
    assert cuts["set"].tolist() == [0, 1000, 2000]


def test_row_groups_are_cut_where_they_end(tmp_path):
    table = pa.table({f"c{i}": np.zeros(5000) for i in range(40)})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=700)
    cuts = load(tmp_path / "x.parquet").samples.stretches()
    assert len(cuts) == 3
    assert (cuts[:-1] % 700 == 0).all()


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 1000))
def test_even_cuts_are_even(length, width, unit):
    source = FileSource(io.BytesIO(), 0, (length, width), np.dtype(np.int64), "X")
    source.chunk_rows = unit
    cuts = source.stretches()
    assert (cuts[0], cuts[-1]) == (0, length)
    assert (np.diff(cuts) > 0).all()
    assert (cuts[:-1] % unit == 0).all()
    assert np.diff(cuts).max() * 8 * width <= max(2**20, unit * 8 * width)
