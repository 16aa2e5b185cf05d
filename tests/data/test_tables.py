"""Tables in .parquet files, with and without labels."""

import numpy as np
import pytest

from kscn.data import load
from kscn.errors import DataError


@pytest.fixture
def write(tmp_path):
    """Writes columns to a .parquet file with small row groups."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def write(columns, **options):
        parquet.write_table(pa.table(columns), tmp_path / "x.parquet", **options)
        return tmp_path / "x.parquet"

    return write


def test_parquet_columns_are_read_by_row_group(write):
    table = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    words = [f"class {i % 3}" for i in range(10)]
    path = write({"a": table[:, 0], "b": table[:, 1], "c": table[:, 2], "kind": words},
                 row_group_size=4)  # fmt: skip
    dataset = load(path)
    assert dataset.samples.dtype == np.float32
    np.testing.assert_array_equal(dataset.samples, table)
    np.testing.assert_array_equal(
        np.concatenate([block for _, block in dataset.samples.batches(3)]), table
    )
    np.testing.assert_array_equal(dataset.samples.take([9, 0, 5, 9]), table[[9, 0, 5, 9]])
    assert dataset.labels.tolist() == [i % 3 for i in range(10)]
    assert dataset.label_names == ("class 0", "class 1", "class 2")


def test_parquet_lists_of_fixed_size_are_vectors(write):
    pa = pytest.importorskip("pyarrow")
    table = np.arange(24, dtype=np.uint8).reshape(6, 4)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(table.reshape(-1)), 4)
    dataset = load(write({"label": list("babcab"), "embedding": vectors}, row_group_size=4))
    assert dataset.samples.shape == (4,)
    np.testing.assert_array_equal(dataset.samples, table)
    assert dataset.labels.tolist() == [1, 0, 1, 2, 0, 1]


def test_parquet_written_by_pandas(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"a": [1, 2, 3], "b": [0.5, None, 2.5], "kind": list("xyx")}, index=[5, 7, 9]
    )
    frame["kind"] = frame["kind"].astype("category")
    frame.to_parquet(tmp_path / "x.parquet")
    dataset = load(tmp_path / "x.parquet")
    np.testing.assert_array_equal(dataset.samples, [[1, 0.5], [2, np.nan], [3, 2.5]])
    assert dataset.labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": ["x", "y"], "b": [1, 2]}, "column 'a' of string"),
        ({"a": ["x", "y"]}, "column 'a' of string"),
        ({"a": [[1], [1, 2]]}, "column 'a' of list"),
        ({"a": [1, 2], "b": [[1], [1, 2]]}, "column 'b' of list"),
        ({"y": [1, 2]}, "no columns of numbers"),
        ({"a": []}, "x.parquet"),
    ],
    ids=repr,
)
def test_unusable_parquet_columns_are_named(write, columns, words):
    with pytest.raises(DataError, match=words):
        load(write(columns))


def test_two_parquet_columns_of_one_name_are_refused(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for names in (["a", "b", "a"], ["a", "label", "label"]):
        table = pa.table([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], names=names)
        parquet.write_table(table, tmp_path / "x.parquet")
        with pytest.raises(DataError, match=rf"x\.parquet has two columns called '{names[2]}'; re"):
            load(tmp_path / "x.parquet")


def test_many_parquet_columns_are_looked_up_once(write, monkeypatch):
    # The arrow schema is made anew, of all columns, whenever it is asked for.
    pyarrow_file = pytest.importorskip("pyarrow.parquet").ParquetFile
    made = []

    class Counting(pyarrow_file):
        @property
        def schema_arrow(self):
            made.append(1)
            return super().schema_arrow

    path = write({f"c{i}": [float(i), 0.5] for i in range(300)})
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", Counting)
    np.testing.assert_array_equal(load(path).samples[0], np.arange(300.0))
    assert len(made) <= 3


def test_missing_integers_in_parquet_are_refused(write):
    with pytest.raises(DataError, match="missing values"):
        np.asarray(load(write({"a": [1, None, 3]})).samples)


@pytest.mark.parametrize("keep", [0.0, 0.4, 0.95])
def test_truncated_or_foreign_parquet_is_refused(write, keep):
    path = write({"a": np.arange(1000.0)})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))] or b"text")
    with pytest.raises(DataError, match=r"x\.parquet is not a readable") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_parquet_damaged_in_the_middle_is_refused_when_read(write):
    path = write({"a": np.random.default_rng(0).normal(size=1000)}, compression="gzip")
    content = bytearray(path.read_bytes())
    content[200:2000] = bytes(1800)
    path.write_bytes(content)
    samples = load(path).samples
    with pytest.raises(DataError, match=r"Row group 0 of .*x\.parquet is not a readable"):
        np.asarray(samples)
