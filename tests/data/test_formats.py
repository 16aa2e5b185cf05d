"""Every format gives the samples, labels and names that were written, or one sentence."""

import gc
import gzip
import io
import os
import struct
import zipfile

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from kscn.data import as_source, load
from kscn.errors import DataError

X = np.array([[1.0, 2.5], [3.0, -4e-3], [5.0, 6.0], [7.0, 8.0]], dtype=np.float32)
IMAGES = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
WORDS, NUMBERS = ["cat", "ant", "cat", "bee"], [7, 3, 7, 9]


def idx_bytes(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def npy_bytes(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def npz_bytes(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def h5_bytes(**arrays):
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for name, array in arrays.items():
            options = {"chunks": (2, 2), "compression": "gzip"} if name == "X" else {}
            file.create_dataset(name, data=array, **options)
    return stream.getvalue()


def table_bytes(columns, **options):
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream, **{"row_group_size": 3} | options)
    return stream.getvalue()


def frame_bytes(**columns):
    stream = io.BytesIO()
    pd.DataFrame(columns, index=[5, 7, 9, 11]).to_parquet(stream)
    return stream.getvalue()


def csv_bytes(names="a,b,{}", labels=WORDS, separator=",", end="\n"):
    cells = [[f"{v:.9g}" for v in row] + [str(label)] * bool(labels)
             for row, label in zip(X, labels or X, strict=True)]  # fmt: skip
    lines = [names] * bool(names) + [",".join(row) for row in cells]
    return (end.join(lines) + end).replace(",", separator).encode()


def lists(kind):
    return pa.FixedSizeListArray.from_arrays(X.ravel(), 2) if kind == "fixed" else X.tolist()


AB = {"a": X[:, 0], "b": X[:, 1]}
# Name: content, samples, labels as they were written, names of the features.
FILES = {
    "x.npy": (npy_bytes(X), X, None, None),
    "fortran.npy": (npy_bytes(np.asfortranarray(X)), X, None, None),
    "big-endian.npy": (npy_bytes(X.astype(">f8")), X, None, None),
    "alone.npz": (npz_bytes(embedding=X), X, None, None),
    "y.npz": (npz_bytes(other=X[:, 0], y=np.array(NUMBERS), X=X), X, NUMBERS, None),
    "targets.npz": (npz_bytes(data=X, targets=np.array(WORDS)), X, WORDS, None),
    "column.npz": (npz_bytes(x_train=X, y_train=np.array([NUMBERS]).T), X, NUMBERS, None),
    "x-images-idx3-ubyte": (idx_bytes(IMAGES), IMAGES, None, None),
    "x.idx.gz": (gzip.compress(idx_bytes(IMAGES)), IMAGES, None, None),
    "x.h5": (h5_bytes(X=X, y=NUMBERS), X, NUMBERS, None),
    "words.h5": (h5_bytes(X=X, labels=WORDS), X, WORDS, None),
    "bytes.hdf5": (h5_bytes(X=X, labels=[w.encode() for w in WORDS]), X, WORDS, None),
    "bare.csv": (csv_bytes("", None), X, None, None),
    "names.csv": (csv_bytes("a,b", None), X, None, "ab"),
    "semicolons.csv": (csv_bytes("a,b", None, ";"), X, None, "ab"),
    "tabs.csv": (b"\xef\xbb\xbf" + csv_bytes("a,b", None, "\t", "\r\n\r\n"), X, None, "ab"),
    "returns.csv": (csv_bytes("a,b,kind", end="\r"), X, WORDS, "ab"),
    "blanks.csv": (csv_bytes("", None, " "), X, None, None),
    "spaces.csv": (csv_bytes("a,b,y", NUMBERS, ", "), X, NUMBERS, "ab"),
    "words.csv": (csv_bytes(""), X, WORDS, None),
    "answers.csv": (csv_bytes("", list("ynyy")), X, list("ynyy"), None),
    "kind.csv": (csv_bytes("a,b,kind"), X, WORDS, "ab"),
    "numbers.csv": (csv_bytes("Na,K,label", NUMBERS), X, NUMBERS, ["Na", "K"]),
    "floats.csv": (csv_bytes("a,b,label", ["7.0", "3", "7", "9.0"]), X, NUMBERS, "ab"),
    "mixed.csv": (csv_bytes("a,b,label", [7, "b", 7, 3]), X, ["7", "b", "7", "3"], "ab"),
    "digits.csv": (csv_bytes("0,1,label", NUMBERS), X, NUMBERS, ["0", "1"]),
    "large.csv": (csv_bytes("a,b,y", [2**53 + 1, -(2**63), 2**63 - 1, 0]), X,
                  [2**53 + 1, -(2**63), 2**63 - 1, 0], "ab"),
    "index.csv": (b",0,1\n0,1,2.5\n1,3,-4e-3\n2,5,6\n3,7,8\n", X, None, None),
    "target.csv": (b",Target,a,b\n0,7,1,2.5\n1,3,3,-4e-3\n2,7,5,6\n3,9,7,8\n", X, NUMBERS, "ab"),
    "x.parquet": (table_bytes(AB), X, None, "ab"),
    "kind.parquet": (table_bytes({**AB, "kind": WORDS}), X, WORDS, "ab"),
    "label.parquet": (table_bytes({"label": NUMBERS, **AB}), X, NUMBERS, "ab"),
    "frame.parquet": (frame_bytes(**AB, kind=pd.Categorical(WORDS)), X, WORDS, "ab"),
    "fixed.parquet": (table_bytes({"embedding": lists("fixed")}), X, None, None),
    "lists.parquet": (table_bytes({"a": lists("variable"), "y": NUMBERS}), X, NUMBERS, None),
    "frames.parquet": (frame_bytes(vector=list(X), y=WORDS), X, WORDS, None),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_what_was_written(tmp_path, name):
    content, samples, labels, names = FILES[name]
    (tmp_path / name).write_bytes(content)
    dataset = load(tmp_path / name)
    source = dataset.samples
    same_as_array(source, samples)
    assert (None if labels is None else dataset.classes.tolist()) == labels
    if names is not None and not all(name.isdigit() for name in names):
        assert source.feature_names == list(names)
    else:
        width = np.prod(samples.shape[1:])
        assert source.feature_names == [f"feature {i}" for i in range(width)]


def same_as_array(source, array):
    """Whether a source reads like an array, in whatever way it is asked."""
    assert (len(source), source.shape) == (len(array), array.shape[1:])
    np.testing.assert_allclose(source, array, rtol=1e-7)
    array = np.asarray(source)
    n = len(array)
    for size in (1, 3, 7, 100):
        found = list(source.batches(size, 1, n - 1))
        assert [first for first, _ in found] == list(range(1, n - 1, size))
        np.testing.assert_array_equal(np.concatenate([b for _, b in found]), array[1:-1])
    np.testing.assert_array_equal(source.take([n - 1, 0, 2, 2, -2]), array[[n - 1, 0, 2, 2, -2]])
    np.testing.assert_array_equal(source[1:3], array[1:3])
    np.testing.assert_array_equal(source[n:], array[n:])
    np.testing.assert_array_equal(source[2], array[2])


def test_words_are_numbered_in_alphabetical_order_and_as_source_opens_paths(tmp_path):
    np.savez(tmp_path / "x.npz", X=X, y=np.array(WORDS))
    dataset = load(tmp_path / "x.npz")
    assert dataset.labels.tolist() == [2, 0, 2, 1]
    assert dataset.label_names == ("ant", "bee", "cat")
    np.testing.assert_array_equal(as_source(tmp_path / "x.npz"), X)
    assert as_source(str(tmp_path / "x.npz"), name="mine").name == "mine"


def test_quoted_cells_and_missing_floats_are_read(tmp_path):
    (tmp_path / "x.csv").write_text('"a","b"\n"1","2.5"\n')
    assert load(tmp_path / "x.csv").samples[0].tolist() == [1, 2.5]
    (tmp_path / "x.parquet").write_bytes(table_bytes({"a": [1, 2], "b": [0.5, None]}))
    np.testing.assert_array_equal(load(tmp_path / "x.parquet").samples, [[1, 0.5], [2, np.nan]])


def test_a_csv_of_many_blocks_is_read_and_kept_whole(tmp_path):
    table = np.random.default_rng(0).normal(size=(20_000, 3))
    frame = pd.DataFrame(table, columns=list("abc")).assign(kind=np.array(WORDS * 5000))
    frame.to_csv(tmp_path / "x.csv", index=False)
    from kscn.data.tables import open_csv

    dataset = open_csv(tmp_path / "x.csv", longest=10_000)
    np.testing.assert_array_equal(dataset.samples, table)
    assert dataset.classes.tolist() == WORDS * 5000


# What is refused ---------------------------------------------------------------------------------


def npy_header(shape, dtype="<f4"):
    stream = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def lying_npz():
    """An archive whose array header promises a terabyte."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("X.npy", npy_header((2**38, 1)) + bytes(64))
    return stream.getvalue()


def lying_h5(name):
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        if name == "y":
            file["X"] = X
        file.create_dataset(name, (2**40, 2)[: 2 if name == "X" else 1], "f4", chunks=True)
    return stream.getvalue()


def lying_idx(*lengths):
    return struct.pack(f">BBBB{len(lengths)}I", 0, 0, 8, len(lengths), *lengths) + bytes(100)


BAD_FILES = {
    "text.npy": (b"these are not the samples\n", "not a readable .npy file"),
    "empty.npy": (b"", "not a readable .npy file"),
    "cut.npy": (npy_bytes(X)[:-1], "truncated"),
    "huge.npy": (npy_header((2**50, 2**50)), "truncated"),
    "no-samples.npy": (npy_bytes(X[:0]), r"0 sample\(s\)"),
    "one-dimension.npy": (npy_bytes(X[0]), "Expected 2D array, got 1D"),
    "pickle.npy": (npy_bytes(np.array([[{}]]), allow_pickle=True), "not numbers"),
    "records.npy": (npy_bytes(np.zeros((2, 2), "i4,f4")), "not numbers"),
    "text.npz": (b"no archive", "not a readable .npz file"),
    "cut.npz": (npz_bytes(X=X)[:-30], "not a readable .npz file"),
    "huge.npz": (lying_npz(), "not a readable .npz file"),
    "pickle.npz": (npz_bytes(X=np.array([[{}]])), "npz"),
    "two-arrays.npz": (npz_bytes(first=X, second=X), "first, second"),
    "few-labels.npz": (npz_bytes(X=X, y=np.arange(3)), "one label per sample"),
    "beyond.npz": (npz_bytes(X=X, y=np.array([0, 1, 2, 2**63], np.uint64)), "64 bits"),
    "text-idx3-ubyte": (b"these are not the samples\n", "not an idx file"),
    "floats-idx3-ubyte": (b"\0\0\x0d\x02" + bytes(100), "not an idx file of images as bytes"),
    "cut-header-idx3-ubyte": (idx_bytes(IMAGES)[:9], "not a readable idx file"),
    "cut-idx3-ubyte": (idx_bytes(IMAGES)[:-1], "less than the 60 bytes"),
    "long-idx3-ubyte.gz": (gzip.compress(idx_bytes(IMAGES) + b"x"), "more than the 60 bytes"),
    "cut-stream-idx3-ubyte.gz": (gzip.compress(idx_bytes(IMAGES))[:-9], "not a readable idx file"),
    "huge-idx3-ubyte.gz": (gzip.compress(lying_idx(2**32 - 1, 2**32 - 1)), "unpacks to"),
    "labels-idx1-ubyte": (idx_bytes(np.arange(4, dtype="u1")), "Expected 2D array, got 1D"),
    "text.h5": (b"no hdf5 at all", "not a readable .h5 file"),
    "cut.h5": (h5_bytes(X=X)[:-50], "cut.h5"),
    "nothing.h5": (h5_bytes(), "does not say which array"),
    "two-arrays.h5": (h5_bytes(a=X, b=X), "found: a, b"),
    "huge.h5": (lying_h5("X"), "more than 0 packed bytes can hold"),
    "huge-labels.h5": (lying_h5("y"), "array /y .* more than 0 packed bytes can hold"),
    "word.parquet": (table_bytes({"a": ["x", "y"], "b": [1, 2]}), "column 'a' of string"),
    "list.parquet": (table_bytes({"a": [1, 2], "b": [[1], [2]]}), "column 'b' of list"),
    "dates.parquet": (table_bytes({"a": pa.array([1, 2], pa.date32())}), "column 'a' of date"),
    "label.parquet": (table_bytes({"y": [1, 2]}), "no columns of numbers"),
    "rows.parquet": (table_bytes({"a": pa.array([], pa.float32())}), r"0 sample\(s\)"),
    "twice.parquet": (table_bytes(pa.table([[1.0], [2.0]], names=["a", "a"])), "of one name"),
    "cut.parquet": (table_bytes(AB)[:-9], "not a readable .parquet file"),
    "x.csv": (b"1,2\n3,x\n5,6\n", "has 'x' in row 2, column 2, where a number is expected"),
    "empty-cell.csv": (b"a,b\n1,2\n,6\n", "an empty cell in row 3, column 'a', where a number"),
    "late.csv": (b"\n\na,b\n1,2\n3,x\n", "has 'x' in row 5, column 'b'"),
    "first-row.csv": (b"a,b\n1,\n3,4\n", "an empty cell in row 2, column 'b'"),
    "na.csv": (b"NA,2\n3,4\n", "has 'NA' in row 1, column 1"),
    "last-na.csv": (b"1,2,NA\n3,4,5\n", "has 'NA' in row 1, column 3"),
    "nas.csv": (b"NA,NA,cat\n1,2,ant\n", "has 'NA' in row 1, column 1"),
    "mark.csv": (b"?\n1\n2\n", r"has '\?' in row 1, column 1"),
    "notation.csv": (b"2,1_000\n3,4\n", "has '1_000' in row 1, column 2"),
    "script.csv": ("1,2\n3,٣\n".encode(), "has '٣' in row 2, column 2"),
    "comma.csv": (b"x;y2\n1,5;2,5\n", "has '1,5' in row 2, column 'x'"),
    "class.csv": (b"1,9,cat\n3,4,7\n", "has '7' in row 2, column 3, where a label"),
    "no-class.csv": (b"1,2,cat\n3,4,\n", "an empty cell in row 2, column 3"),
    "label.csv": (b"a,label\n1,7\n2,\n", "an empty cell in row 3, column 'label', where a label"),
    "first-word.csv": (b"cat,1,2\nant,3,4\n", "has 'cat' in row 1, column 1.* call the column"),
    "short.csv": (b"1,2\n3\n", "Row #2: Expected 2 columns, got 1"),
    "long.csv": (b"1 2 3\n4 5 6 7\n", "Row #2: Expected 3 columns, got 4"),
    "only-names.csv": (b"a,b\n", r"0 sample\(s\)"),
    "blank.csv": (b"\n\n", r"0 sample\(s\)"),
    "binary.csv": (b"\x89PNG\x00\xff\xfe", "not a readable text table"),
    "beyond.csv": (b"a,label\n1,0\n2,9223372036854775808\n", "64 bits"),
    "far-beyond.csv": (b"a,label\n1,0\n2," + b"9" * 5000, "64 bits"),
    "samples": (b"123", "suffix that is not understood"),
}  # fmt: skip


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
    ("column", "row"),
    [([1, 2, 3, 4, None], 5), ([[1], [2], [3], [4, 5]], 4), ([[1], None], 2), ([[1], [None]], 2)],
    ids=str,
)
def test_what_is_missing_in_a_row_group_is_named_when_it_is_read(tmp_path, column, row):
    (tmp_path / "x.parquet").write_bytes(table_bytes({"a": column}))
    with pytest.raises(DataError, match=rf"x\.parquet has a missing value.* in row {row};"):
        np.asarray(load(tmp_path / "x.parquet").samples)


def test_a_file_that_is_cut_off_while_it_is_read_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1000, 10)))
    samples = load(tmp_path / "x.npy").samples
    os.truncate(tmp_path / "x.npy", 1000)
    with pytest.raises(DataError, match=r"x\.npy became shorter"):
        samples[500:]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["x.npy", "y.npz", "x-images-idx3-ubyte", "x.idx.gz"]), st.data())
def test_damaged_files_never_raise_anything_but_data_errors(tmp_path_factory, name, data):
    content = bytearray(FILES[name][0])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        np.asarray(load(path).samples)
    except DataError as error:
        assert name in str(error)


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    monkeypatch.chdir(tmp_path)
    assert len(load(".").samples) == len(X)
    for opening in (load, as_source):
        with pytest.raises(DataError, match="path is empty"):
            opening("")


def test_a_missing_path_and_an_unreadable_file_are_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"nowhere/x\.npy does not exist"):
        load("nowhere/x.npy")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(DataError, match=r"x\.npy cannot be read \(Permission denied\)"):
        load(tmp_path / "x.npy")


# Folders -----------------------------------------------------------------------------------------

MANY = np.arange(120, dtype=np.float32).reshape(20, 6)


def write_folder(folder, suffix, cuts=(7, 8, 15), labels=None):
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(np.split(np.arange(20), cuts)):
        path = folder / f"part-{number:03}{suffix}"
        columns = {f"c{i}": MANY[rows, i] for i in range(6)}
        if labels is not None:
            columns["label"] = [labels[row] for row in rows]
        path.write_bytes(npy_bytes(MANY[rows]) if suffix == ".npy" else table_bytes(columns))
    return folder


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([".npy", ".parquet"]), st.sets(st.integers(1, 19), max_size=6))
def test_a_folder_reads_like_the_concatenation_of_its_files(tmp_path_factory, suffix, cuts):
    folder = write_folder(tmp_path_factory.mktemp("set"), suffix, sorted(cuts))
    dataset = load(folder)
    same_as_array(dataset.samples, MANY)
    assert (dataset.name, dataset.labels, dataset.samples.dtype) == (folder.name, None, np.float32)


def test_labels_of_a_folder_are_a_column_or_a_file(tmp_path):
    words = [f"class {i * i % 5}" for i in range(20)]
    dataset = load(write_folder(tmp_path / "words", ".parquet", labels=words))
    assert dataset.classes.tolist() == words
    folder = write_folder(tmp_path / "set", ".npy")
    np.save(folder / "labels.npy", np.arange(20) % 3)
    dataset = load(folder)
    same_as_array(dataset.samples, MANY)
    assert dataset.labels.tolist() == [i % 3 for i in range(20)]
    np.save(folder / "labels.npy", np.arange(19))
    with pytest.raises(DataError, match="one label per sample"):
        load(folder)
    (tmp_path / "words" / "part-001.parquet").write_bytes(
        table_bytes({f"c{i}": MANY[:2, i] for i in range(6)})
    )
    with pytest.raises(DataError, match="Only 3 of the 4 files"):
        load(tmp_path / "words")


@pytest.mark.skipif("not __import__('pathlib').Path('/proc/self/fd').exists()")
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_few_files_are_open_at_a_time(tmp_path, suffix):
    folder = write_folder(tmp_path / "set", suffix, cuts=range(1, 20))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    samples = load(folder).samples
    np.asarray(samples)
    for _ in range(3):
        samples.take(np.random.default_rng(0).permutation(20))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) - before <= 10  # of 20


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "part-001.npy",
            npy_bytes(MANY.astype(float)),
            r"part-001\.npy has .* float64, but .*-000",
        ),
        ("part-001.npy", npy_bytes(MANY[:, :2]), r"part-001\.npy has samples of shape \(2,\)"),
        ("part-002.npy", npy_bytes(MANY)[:-1], r"part-002\.npy is truncated"),
        ("part-002.npy", b"", r"part-002\.npy is not a readable \.npy file"),
        ("picture.png", b"x", r"both picture\.png and part-000"),
        ("x.parquet", b"x", r"both x\.parquet and part-000"),
    ],
)
def test_folders_of_unlike_or_damaged_files_are_refused(tmp_path, name, content, words):
    folder = write_folder(tmp_path / "set", ".npy")
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        load(folder)


def test_other_and_hidden_files_are_passed_over_and_pipes_refused(tmp_path):
    folder = write_folder(tmp_path / "set", ".npy")
    (folder / "README.txt").write_text("about these samples")
    (folder / ".hidden.npy").write_bytes(b"")
    same_as_array(load(folder).samples, MANY)
    os.mkfifo(folder / "part-004.npy")
    with pytest.raises(DataError, match=r"part-004\.npy is not a regular file"):
        load(folder)


def test_a_file_that_changed_after_opening_is_noticed(tmp_path):
    folder = write_folder(tmp_path / "set", ".npy", cuts=range(1, 20))
    samples = load(folder).samples
    np.save(folder / "part-005.npy", MANY[:3])
    with pytest.raises(DataError, match=r"part-005\.npy changed since it was opened"):
        np.asarray(samples)
