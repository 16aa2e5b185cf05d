"""Array files: .npy, .npz, idx and .h5, good ones and bad ones."""

import gzip
import io
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn.data import as_source, load
from kscn.errors import DataError

X = np.arange(24, dtype=np.float32).reshape(4, 6)
IMAGES = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
LABELS = np.array([1, 0, 1, 2])


def idx_bytes(array):
    code = {"u1": 0x08, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}[array.dtype.str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def npy_bytes(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def npy_header(shape, dtype="<f4"):
    stream = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_mapped_and_read(tmp_path, order):
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    dataset = load(tmp_path / "x.npy")
    np.testing.assert_array_equal(dataset.samples, X)
    np.testing.assert_array_equal(dataset.samples.take([3, 0]), X[[3, 0]])
    assert (dataset.name, dataset.labels, dataset.scale) == ("x", None, 1.0)


def test_eight_bit_images_are_scaled_by_255(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    assert load(tmp_path / "x.npy").scale == 255.0


def test_as_source_opens_paths(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.testing.assert_array_equal(as_source(tmp_path / "x.npy"), X)
    assert as_source(str(tmp_path / "x.npy"), name="mine").name == "mine"


@pytest.mark.parametrize("samples", ["X", "samples", "data", "images", "x_train"])
@pytest.mark.parametrize("labels", ["y", "labels", "targets"])
def test_npz_finds_samples_and_labels_by_name(tmp_path, samples, labels):
    np.savez_compressed(tmp_path / "x.npz", **{"other": LABELS, labels: LABELS, samples: X})
    dataset = load(tmp_path / "x.npz")
    np.testing.assert_array_equal(dataset.samples, X)
    np.testing.assert_array_equal(dataset.labels, LABELS)


def test_the_only_array_of_an_npz_needs_no_name(tmp_path):
    np.savez(tmp_path / "x.npz", X)
    np.testing.assert_array_equal(load(tmp_path / "x.npz").samples, X)
    np.savez(tmp_path / "z.npz", embedding=X, labels=LABELS)
    np.testing.assert_array_equal(load(tmp_path / "z.npz").samples, X)


def test_several_nameless_arrays_are_listed(tmp_path):
    np.savez(tmp_path / "x.npz", first=X, second=X)
    with pytest.raises(DataError, match="first, second"):
        load(tmp_path / "x.npz")


def test_words_as_labels_become_numbers_with_names(tmp_path):
    np.savez(tmp_path / "x.npz", X=X, y=np.array(["cat", "ant", "cat", "bee"]))
    dataset = load(tmp_path / "x.npz")
    assert dataset.labels.tolist() == [2, 0, 2, 1]
    assert dataset.label_names == ("ant", "bee", "cat")


@pytest.mark.parametrize("labels", [LABELS[:3], np.zeros((4, 2))])
def test_labels_that_do_not_fit_the_samples_are_refused(tmp_path, labels):
    np.savez(tmp_path / "x.npz", X=X, y=labels)
    with pytest.raises(DataError, match="one label per sample"):
        load(tmp_path / "x.npz")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("labels_packed", [False, True])
def test_idx_finds_the_labels_beside_it(tmp_path, packed, labels_packed):
    pack = {False: lambda data: data, True: gzip.compress}
    end = {False: "", True: ".gz"}
    images = tmp_path / f"t10k-images-idx3-ubyte{end[packed]}"
    labels = tmp_path / f"t10k-labels-idx1-ubyte{end[labels_packed]}"
    images.write_bytes(pack[packed](idx_bytes(IMAGES)))
    labels.write_bytes(pack[labels_packed](idx_bytes(LABELS.astype(np.uint8))))
    dataset = load(images)
    np.testing.assert_array_equal(dataset.samples, IMAGES)
    np.testing.assert_array_equal(dataset.labels, LABELS)
    assert (dataset.name, dataset.scale) == ("t10k-images", 255.0)


@pytest.mark.parametrize("dtype", ["i2", "i4", "f4", "f8"])
@pytest.mark.parametrize("name", ["x.idx", "x.idx2-float.gz", "x-idx2-int"])
def test_idx_of_other_types_and_names(tmp_path, dtype, name):
    array = (X - 7).astype(dtype)
    data = idx_bytes(array)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    dataset = load(tmp_path / name)
    np.testing.assert_array_equal(dataset.samples, array)
    assert dataset.labels is None


@pytest.mark.parametrize("suffix", [".h5", ".hdf5"])
def test_h5_is_read_lazily(tmp_path, suffix):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / f"x{suffix}"
    with h5py.File(path, "w") as file:
        file.create_dataset("group/X", data=X, chunks=(2, 6), compression="gzip")
        file["y"] = [b"b", b"a", b"b", b"a"]
    dataset = load(path)
    np.testing.assert_array_equal(dataset.samples, X)
    np.testing.assert_array_equal(dataset.samples.take([3, 1, 3]), X[[3, 1, 3]])
    assert dataset.labels.tolist() == [1, 0, 1, 0]
    assert dataset.label_names == ("a", "b")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(as_source(file["group/X"]), X)


def h5_bytes(**arrays):
    h5py = pytest.importorskip("h5py")
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return stream.getvalue()


def npz_bytes(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def lying_npz():
    """An archive whose array header promises a terabyte."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("X.npy", npy_header((2**38, 1)) + bytes(64))
    return stream.getvalue()


def lying_idx(*lengths):
    return struct.pack(f">BBBB{len(lengths)}I", 0, 0, 8, len(lengths), *lengths) + bytes(100)


H5_NOTHING = "does not say which array"
BAD_FILES = {
    "text.npy": (b"these are not the samples\n", "not a NumPy array file"),
    "empty.npy": (b"", "empty file"),
    "cut-header.npy": (npy_bytes(X)[:20], "not a NumPy array file"),
    "cut.npy": (npy_bytes(X)[:-1], "truncated"),
    "huge.npy": (npy_header((2**50, 2**50)), "truncated"),
    "negative.npy": (npy_header((-1, 5)) + bytes(100), "damaged header"),
    "no-samples.npy": (npy_bytes(X[:0]), r"0 sample\(s\)"),
    "one-dimension.npy": (npy_bytes(X[0]), "Expected 2D array, got 1D"),
    "pickle.npy": (npy_bytes(np.array([[{}]]), allow_pickle=True), "not numbers"),
    "words.npy": (npy_bytes(np.array([["a"]])), "not numbers"),
    "complex.npy": (npy_bytes(X + 1j), "Complex data not supported"),
    "records.npy": (npy_bytes(np.zeros((2, 2), "i4,f4")), "not numbers"),
    "text.npz": (b"no archive", "not a readable .npz file"),
    "cut.npz": (npz_bytes(X=X)[:-30], "not a readable .npz file"),
    "huge.npz": (lying_npz(), "not what the file holds"),
    "pickle.npz": (npz_bytes(X=np.array([[{}]])), "npz"),
    "no-arrays.npz": (npz_bytes(), "does not say which array"),
    "text-idx3-ubyte": (b"these are not the samples\n", "not an idx file"),
    "cut-header-idx3-ubyte": (idx_bytes(IMAGES)[:9], "truncated"),
    "cut-idx3-ubyte": (idx_bytes(IMAGES)[:-1], "truncated"),
    "long-idx3-ubyte": (idx_bytes(IMAGES) + b"x", "longer than its header says"),
    "cut-idx3-ubyte.gz": (gzip.compress(idx_bytes(IMAGES)[:-1]), "truncated"),
    "long-idx3-ubyte.gz": (gzip.compress(idx_bytes(IMAGES) + b"x"), "longer than its header"),
    "cut-stream-idx3-ubyte.gz": (gzip.compress(idx_bytes(IMAGES))[:-9], "not a readable gzip file"),
    "text-idx3-ubyte.gz": (b"no gzip at all", "not a readable gzip file"),
    "huge-idx3-ubyte": (lying_idx(2**32 - 1, 2**32 - 1), "truncated"),
    "huge-idx3-ubyte.gz": (gzip.compress(lying_idx(2**32 - 1, 2**32 - 1)), "more than"),
    "labels-idx1-ubyte": (idx_bytes(LABELS.astype("u1")), "Expected 2D array, got 1D"),
    "text.h5": (b"no hdf5 at all", "not a readable .h5 file"),
    "samples.unknown": (b"123", "suffix that is not understood"),
    "samples": (b"123", "suffix that is not understood"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_get_one_sentence_that_names_them(tmp_path, name):
    content, words = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "does not say which array"),
        ({"a": X, "b": X}, "found: a, b"),
        ({"X": X[0]}, "Expected 2D array, got 1D"),
        ({"X": [[b"a"]]}, "not numbers"),
        ({"X": X, "y": LABELS[:2]}, "one label per sample"),
    ],
    ids=str,
)
def test_h5_with_unusable_content_is_refused(tmp_path, arrays, words):
    (tmp_path / "x.h5").write_bytes(h5_bytes(**arrays))
    with pytest.raises(DataError, match=words):
        load(tmp_path / "x.h5")


def test_a_truncated_h5_is_refused(tmp_path):
    (tmp_path / "x.h5").write_bytes(h5_bytes(X=X)[:-50])
    with pytest.raises(DataError, match=r"x\.h5"):
        load(tmp_path / "x.h5")


def test_h5_that_promises_more_labels_than_it_can_hold_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("X", shape=(2**40, 2), dtype="f4", chunks=(1024, 2))
        file.create_dataset("y", shape=(2**40,), dtype="i8", chunks=(1024,))
    with pytest.raises(DataError, match=r"array /y .* more than 0 packed bytes can hold"):
        load(tmp_path / "x.h5")


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["x.npy", "x.npz", "x-idx3-ubyte", "x-idx3-ubyte.gz"]), st.data())
def test_damaged_files_never_raise_anything_but_data_errors(tmp_path_factory, name, data):
    whole = {
        "x.npy": npy_bytes(X),
        "x.npz": npz_bytes(X=X, y=LABELS),
        "x-idx3-ubyte": idx_bytes(IMAGES),
        "x-idx3-ubyte.gz": gzip.compress(idx_bytes(IMAGES)),
    }[name]
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        np.asarray(load(path).samples)
    except DataError as error:
        assert name in str(error)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1, 2, 2**63], dtype=np.uint64),
        np.array([0, 1, 2, 2.0**63]),
        np.array([0, 1, 2, -1e300]),
        np.array([0, 1, 2, np.inf]),
    ],
    ids=str,
)
def test_labels_beyond_64_bits_are_refused(tmp_path, labels):
    np.savez(tmp_path / "x.npz", X=X, y=labels)
    with pytest.raises(DataError, match=r"x\.npz has the label .* 64 bits"):
        load(tmp_path / "x.npz")


def test_the_largest_labels_are_kept(tmp_path):
    for labels in (np.array([0, 1, 2, 2**63 - 1], np.uint64), np.array([0, 1, 2, -(2**63)])):
        np.savez(tmp_path / "x.npz", X=X, y=labels)
        assert load(tmp_path / "x.npz").labels.tolist() == labels.tolist()


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    monkeypatch.chdir(tmp_path)
    assert len(load(".").samples) == len(X)
    for opening in (load, as_source):
        with pytest.raises(DataError, match="path is empty; give a file or folder"):
            opening("")


def test_a_missing_path_is_named():
    with pytest.raises(DataError, match=r"nowhere/x\.npy does not exist"):
        load("nowhere/x.npy")


def test_an_unreadable_file_is_named(tmp_path, monkeypatch):
    path = tmp_path / "x.npy"
    np.save(path, X)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(DataError, match=r"x\.npy cannot be read \(Permission denied\)"):
        load(path)
