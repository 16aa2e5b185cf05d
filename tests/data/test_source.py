"""Every kind of input gives the same samples through one interface."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kscn.data import Source, as_source
from kscn.errors import InputError, KscnError

X = np.arange(60, dtype=np.float32).reshape(10, 6)

arrays = hnp.arrays(
    dtype=st.sampled_from([np.float32, np.float64, np.uint8, np.int16, np.bool_]),
    shape=hnp.array_shapes(min_dims=2, max_dims=4, min_side=1, max_side=9),
    elements={"min_value": 0, "max_value": 1},
)


class PairDataset(torch.utils.data.Dataset):
    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def __getitem__(self, index):
        return torch.from_numpy(self.array[index]), index % 3


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def as_dataframe():
    return pytest.importorskip("pandas").DataFrame(X)


INPUTS = {
    "array": lambda: X,
    "read-only": lambda: frozen(X),
    "non-contiguous": lambda: np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": lambda: X[::-1].copy()[::-1],
    "fortran": lambda: np.asfortranarray(X),
    "big-endian": lambda: X.astype(">f4"),
    "float64": lambda: X.astype(np.float64),
    "objects": lambda: X.astype(object),
    "lists": lambda: X.tolist(),
    "data frame": as_dataframe,
    "tensor": lambda: torch.from_numpy(X),
    "tensor with gradient": lambda: torch.from_numpy(X).requires_grad_(),
    "bfloat16 tensor": lambda: torch.from_numpy(X).to(torch.bfloat16),
    "torch data set": lambda: PairDataset(X),
    "tensor data set": lambda: torch.utils.data.TensorDataset(torch.from_numpy(X)),
    "source": lambda: as_source(X),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_every_input_gives_the_same_samples(kind):
    source = as_source(INPUTS[kind]())
    assert isinstance(source, Source)
    assert (len(source), source.shape) == (10, (6,))
    np.testing.assert_array_equal(np.asarray(source), X)
    np.testing.assert_array_equal(np.concatenate([b for _, b in source.batches(4)]), X)
    np.testing.assert_array_equal(source.take([7, 0, 7, -1]), X[[7, 0, 7, -1]])
    np.testing.assert_array_equal(source[3], X[3])
    np.testing.assert_array_equal(source[2:5], X[2:5])
    np.testing.assert_array_equal(source[::-3], X[::-3])
    assert all(block.dtype == source.dtype for _, block in source.batches(4))


@given(arrays, st.integers(1, 12), st.data())
def test_batches_concatenate_to_the_array(array, batch_size, data):
    start = data.draw(st.integers(-len(array), len(array)))
    stop = data.draw(st.none() | st.integers(-len(array), len(array)))
    blocks = list(as_source(array).batches(batch_size, start, stop))
    expected = array[start:stop]
    joined = np.concatenate([block for _, block in blocks]) if blocks else array[:0]
    np.testing.assert_array_equal(joined, expected)
    for first, block in blocks:
        np.testing.assert_array_equal(block, array[first : first + len(block)])


@given(arrays, st.data())
def test_take_equals_fancy_indexing(array, data):
    rows = data.draw(st.lists(st.integers(-len(array), len(array) - 1), max_size=20))
    expected = array[np.asarray(rows, dtype=int)]
    np.testing.assert_array_equal(as_source(array).take(rows), expected)
    np.testing.assert_array_equal(as_source(PairDataset(array)).take(rows), expected)


def test_blocks_of_an_array_are_views_of_it():
    array = X.copy()
    for _, block in as_source(array).batches(3):
        assert np.shares_memory(block, array)
    assert np.shares_memory(as_source(torch.from_numpy(array))[0:2], array)
    assert np.asarray(as_source(array)) is array


def test_iterating_and_converting_behave_like_an_array():
    source = as_source(X)
    np.testing.assert_array_equal(np.stack(list(source)), X)
    assert np.asarray(source, dtype=np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(source), X)
    assert "10 x (6,) float32" in repr(source)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.float64(3), "Expected 2D array, got scalar array instead"),
        (X[0], "Expected 2D array, got 1D array instead.*Reshape your data"),
        ([1.0, 2.0], "Expected 2D array, got 1D array instead.*Reshape your data"),
        (torch.ones(3), "Expected 2D array, got 1D array instead.*Reshape your data"),
        (X[:0], r"0 sample\(s\)"),
        (X[:, :0], r"0 feature\(s\) \(shape=\(10, 0\)\) while a minimum of 1 is required."),
        ([], "Expected 2D array"),
        (X + 1j, "Complex data not supported"),
        (torch.ones(2, 2, dtype=torch.complex64), "Complex data not supported"),
        ([["a", "b"]], "not numbers"),
        (np.array([["a", 1]], dtype=object), "not numbers"),
        (np.zeros((2, 2), dtype="datetime64[s]"), "not numbers"),
        (np.zeros((2, 2), dtype="i4,f4"), "not numbers"),
        ([[1, 2], [3]], "differing shape"),
        (scipy.sparse.csr_matrix(X), "sparse"),
        (scipy.sparse.coo_array(X), "sparse"),
        (torch.from_numpy(X).to_sparse(), "sparse"),
        (None, "X"),
        ({"a": 1}, "X"),
        (PairDataset(X[:0]), "no samples"),
        (PairDataset(X + 1j), "Complex data not supported: Item 0 of X"),
        (np.ma.masked_less(X, X[1, 2]), "X is a masked array .* values are missing; .*filled"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_bad_input_is_refused_in_words(bad, words):
    with pytest.raises(InputError, match=words) as caught:
        as_source(bad, "X")
    assert isinstance(caught.value, KscnError)
    assert isinstance(caught.value, ValueError)


def test_objects_that_are_no_numbers_are_a_type_error_too():
    bad = X.astype(object)
    bad[0, 0] = {"foo": "bar"}
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        as_source(bad)


def test_a_data_set_without_length_is_refused():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(X)

    with pytest.raises(InputError, match="map-style"):
        as_source(Stream())


def test_items_of_differing_shape_are_refused_with_their_index():
    ragged = PairDataset([X[0], X[1], X[2, :3]])
    with pytest.raises(InputError, match="Item 2"):
        as_source(ragged).take([0, 2])


@pytest.mark.parametrize("indices", [[10], [-11], [0.5], [[1, 2]], "ab"])
def test_bad_indices_are_refused(indices):
    with pytest.raises(InputError, match="indices"):
        as_source(X).take(indices)
    with pytest.raises(InputError, match="batch_size"):
        next(as_source(X).batches(0))


def write_map(path, array):
    np.save(path, array)
    return np.load(path, mmap_mode="r")


@settings(max_examples=30)
@given(st.data())
def test_views_of_a_memory_map_read_like_the_array(tmp_path_factory, data):
    array = np.random.default_rng(0).normal(size=(500, 40)).astype(np.float32)
    path = tmp_path_factory.getbasetemp() / "views.npy"
    mapped = np.load(path, mmap_mode="r") if path.exists() else write_map(path, array)
    step = data.draw(st.sampled_from([1, 2, -1, -3]))
    view, expected = np.asarray(mapped)[::step, ::2], array[::step, ::2]
    rows = data.draw(st.lists(st.integers(0, len(view) - 1), max_size=30))
    source = as_source(view)
    np.testing.assert_array_equal(source.take(rows), expected[np.asarray(rows, dtype=int)])
    blocks = [block for _, block in source.batches(data.draw(st.integers(1, 600)))]
    np.testing.assert_array_equal(np.concatenate(blocks), expected)


def resident_mb():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


@pytest.mark.skipif("not __import__('pathlib').Path('/proc/self/status').exists()")
@pytest.mark.parametrize("access", ["batches", "take"])
def test_streaming_a_file_keeps_memory_flat(tmp_path, access):
    # A sparse file: 256 MB that cost no disk, but would all become resident when read.
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (1_000_000, 64))
    del mapped
    source = as_source(tmp_path / "x.npy")
    before, peak = resident_mb(), 0.0
    if access == "batches":
        for _, block in source.batches(10_000):
            assert block.sum() == 0
            peak = max(peak, resident_mb() - before)
    else:
        rng = np.random.default_rng(0)
        for _ in range(200):
            assert source.take(rng.integers(len(source), size=256)).sum() == 0
            peak = max(peak, resident_mb() - before)
    assert peak < 100


def test_a_map_of_a_file_is_read_and_not_mapped_unless_it_is_a_view(tmp_path):
    """Pages of a map count as memory of the process for as long as it lasts."""
    x = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    whole = np.load(tmp_path / "x.npy", mmap_mode="r")
    source = as_source(whole)
    assert type(source).__name__ == "FileSource" and np.array_equal(source[:], x)
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed[0] = 7.0
    for view in (whole[3:], whole[:, ::2], changed):
        assert np.array_equal(as_source(view)[:], view)
