"""A folder of .npy or .parquet files is one source, opened a few files at a time."""

import gc
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn.data import load
from kscn.data.arrays import ArraySource
from kscn.data.chain import ChainedSource
from kscn.errors import DataError, InputError

X = np.arange(120, dtype=np.float32).reshape(20, 3, 2)


def write_npy(folder, cuts=(7, 8, 15)):
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.split(X, cuts)):
        np.save(folder / f"part-{number:03}.npy", part)
    return folder


def write_parquet(folder, labels=None, cuts=(7, 8, 15)):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(np.split(np.arange(20), cuts)):
        table = {f"c{i}": X.reshape(20, 6)[rows, i] for i in range(6)}
        if labels is not None:
            table["label"] = [labels[row] for row in rows]
        path = folder / f"part-{number}.parquet"
        parquet.write_table(pa.table(table), path, row_group_size=3)
    return folder


def same_as_array(source, array):
    assert (len(source), source.shape, source.dtype) == (len(array), array.shape[1:], array.dtype)
    np.testing.assert_array_equal(source, array)
    for size in (1, 4, 7, 100):
        found = list(source.batches(size, 2, 19))
        assert [first for first, _ in found] == list(range(2, 19, size))
        np.testing.assert_array_equal(np.concatenate([b for _, b in found]), array[2:19])
    np.testing.assert_array_equal(source.take([19, 0, 7, 7, -2]), array[[19, 0, 7, 7, -2]])
    np.testing.assert_array_equal(source[6:9], array[6:9])
    np.testing.assert_array_equal(source[16:], array[16:])
    np.testing.assert_array_equal(source[7], array[7])


def test_npy_files_are_chained_in_the_order_of_their_names(tmp_path):
    dataset = load(write_npy(tmp_path / "set"))
    same_as_array(dataset.samples, X)
    assert (dataset.name, dataset.labels, dataset.scale) == ("set", None, 1.0)


def test_parquet_files_are_chained_with_their_labels(tmp_path):
    words = [f"class {i * i % 5}" for i in range(20)]
    dataset = load(write_parquet(tmp_path / "set", words))
    same_as_array(dataset.samples, X.reshape(20, 6))
    assert [dataset.label_names[label] for label in dataset.labels] == words
    dataset = load(write_parquet(tmp_path / "numbers", [i * i for i in range(20)]))
    assert dataset.labels.tolist() == [i * i for i in range(20)]
    assert load(write_parquet(tmp_path / "none")).labels is None


def test_labels_npy_holds_the_labels_of_all_files(tmp_path):
    folder = write_npy(tmp_path / "set")
    np.save(folder / "labels.npy", np.arange(20) % 3)
    dataset = load(folder)
    same_as_array(dataset.samples, X)
    assert dataset.labels.tolist() == [i % 3 for i in range(20)]
    np.save(folder / "labels.npy", np.arange(19))
    with pytest.raises(DataError, match="one label per sample"):
        load(folder)


def test_eight_bit_images_in_shards_are_scaled_by_255(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 4, 4), np.uint8))
    assert load(tmp_path).scale == 255.0


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif("not __import__('pathlib').Path('/proc/self/fd').exists()")
@pytest.mark.parametrize("write", [write_npy, write_parquet])
def test_few_files_are_open_at_a_time(tmp_path, write):
    folder = write(tmp_path / "set", cuts=range(1, 20))
    gc.collect()
    before = open_files()
    samples = load(folder).samples
    np.asarray(samples)
    for _ in range(3):
        samples.take(np.random.default_rng(0).permutation(20))
    gc.collect()
    assert open_files() - before <= 10  # of 20


def resident_mb():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


@pytest.mark.skipif("not __import__('pathlib').Path('/proc/self/status').exists()")
def test_streaming_shards_gives_memory_back(tmp_path):
    # Sparse files: 2 x 128 MB that cost no disk, but would all become resident when read.
    for name in "ab":
        np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", np.float32, (500_000, 64))
    samples = load(tmp_path).samples
    before, peak = resident_mb(), 0.0
    for _, block in samples.batches(30_000):
        assert block.sum() == 0
        peak = max(peak, resident_mb() - before)
    assert peak < 100


def test_differing_files_are_named(tmp_path):
    folder = write_npy(tmp_path / "set")
    np.save(folder / "part-001.npy", X.astype(np.float64))
    with pytest.raises(DataError, match=r"part-001\.npy has samples of .* float64, but .*part-000"):
        load(folder)
    np.save(folder / "part-001.npy", X[:, :2])
    with pytest.raises(DataError, match=r"part-001\.npy has samples of shape \(2, 2\)"):
        load(folder)


def test_a_damaged_file_is_named(tmp_path):
    folder = write_npy(tmp_path / "set")
    whole = (folder / "part-002.npy").read_bytes()
    (folder / "part-002.npy").write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"part-002\.npy is truncated"):
        load(folder)
    (folder / "part-002.npy").write_bytes(b"")
    with pytest.raises(DataError, match=r"part-002\.npy is not a NumPy array file"):
        load(folder)


def test_mixed_folders_are_refused(tmp_path):
    folder = write_npy(tmp_path / "set")
    (folder / "picture.png").write_bytes(b"x")
    with pytest.raises(DataError, match=r"both picture\.png and part-"):
        load(folder)
    (folder / "picture.png").unlink()
    (folder / "x.parquet").write_bytes(b"x")
    with pytest.raises(DataError, match=r"both \.npy and \.parquet"):
        load(folder)


def test_labels_in_some_parquet_files_only_are_refused(tmp_path):
    write_parquet(tmp_path, labels=None)
    pq = pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(tmp_path / "part-1.parquet")
    pq.write_table(table.append_column("label", [["a"]]), tmp_path / "part-1.parquet")
    with pytest.raises(DataError, match="Only 1 of the 4 files"):
        load(tmp_path)


def test_other_and_hidden_files_are_passed_over_and_pipes_refused(tmp_path):
    folder = write_npy(tmp_path / "set")
    (folder / "README.txt").write_text("about these samples")
    (folder / ".part-000.npy.tmp").write_bytes(b"")
    (folder / ".hidden.npy").write_bytes(b"")
    same_as_array(load(folder).samples, X)
    os.mkfifo(folder / "part-004.npy")
    with pytest.raises(DataError, match=r"part-004\.npy is not a regular file"):
        load(folder)


def test_a_file_that_changed_after_opening_is_noticed(tmp_path):
    folder = write_npy(tmp_path / "set", cuts=range(1, 20))
    samples = load(folder).samples
    np.save(folder / "part-005.npy", X[:3])
    with pytest.raises(DataError, match=r"part-005\.npy changed since it was opened"):
        np.asarray(samples)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 12), st.data())
def test_a_chain_reads_like_the_concatenation(lengths, batch_size, data):
    n = sum(lengths)
    array = np.arange(2 * n).reshape(n, 2)
    parts = [ArraySource(part, "X") for part in np.split(array, np.cumsum(lengths)[:-1])]
    chain = ChainedSource(parts, "X")
    start, stop = data.draw(st.integers(-n, n)), data.draw(st.none() | st.integers(-n, n))
    blocks = [block for _, block in chain.batches(batch_size, start, stop)]
    np.testing.assert_array_equal(np.concatenate([*blocks, array[:0]]), array[start:stop])
    np.testing.assert_array_equal(chain[start:stop], array[start:stop])
    rows = data.draw(st.lists(st.integers(-n, n - 1), max_size=15))
    np.testing.assert_array_equal(chain.take(rows), array[np.array(rows, dtype=int)])


def test_a_chain_refuses_batches_of_nothing():
    with pytest.raises(InputError, match="batch_size"):
        next(ChainedSource([ArraySource(X, "X")], "X").batches(0))
