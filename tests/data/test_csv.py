"""Tables as text: names, labels and strict types, by pyarrow and without it."""

import sys

import numpy as np
import pytest

from kscn.data import load, tables
from kscn.errors import DataError

X = np.array([[1.0, 2.5], [3.0, -4e-3], [5.0, 6.0]])


@pytest.fixture(params=["pyarrow", "python"])
def way(request, monkeypatch):
    """Which of the two readers is used: they must not differ in anything."""
    monkeypatch.setattr(tables, "_SMALL_BYTES", 0)
    if request.param == "python":
        monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    else:
        pytest.importorskip("pyarrow.csv")
    return request.param


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1,2.5\n3,-4e-3\n5,6\n", None),
        ("a,b\n1,2.5\n3,-4e-3\n5,6\n", None),
        ("a;b\n1;2.5\n3;-4e-3\n5;6", None),
        ("\ufeffa\tb\r\n1\t2.5\r\n\r\n3\t-4e-3\r\n5\t6\r\n", None),
        ('"a","b"\n"1","2.5"\n"3","-4e-3"\n"5","6"\n', None),
        ("1,2.5,cat\n3,-4e-3,ant\n5,6,cat\n", [1, 0, 1]),
        ("a,b,kind\n1,2.5,cat\n3,-4e-3,ant\n5,6,cat\n", [1, 0, 1]),
        ("a,b,label\n1,2.5,7\n3,-4e-3,3\n5,6,7\n", [7, 3, 7]),
        ("0,1,label\n1,2.5,7\n3,-4e-3,3\n5,6,7\n", [7, 3, 7]),
        ("0,1,label\n1,2.5,cat\n3,-4e-3,ant\n5,6,cat\n", [1, 0, 1]),
        ("Target,b,c\n7,1,2.5\n3,3,-4e-3\n7,5,6\n", [7, 3, 7]),
        (",a,b,y\n0,1,2.5,7\n1,3,-4e-3,3\n2,5,6,7\n", [7, 3, 7]),
        (",0,1\n0,1,2.5\n1,3,-4e-3\n2,5,6\n", None),
        ("Na,K\n1,2.5\n3,-4e-3\n5,6\n", None),
        ("a,\n1,2.5\n3,-4e-3\n5,6\n", None),
        ("1x1,1x2\n1,2.5\n3,-4e-3\n5,6\n", None),
        ("1 2.5\n3 -4e-3\n5 6\n", None),
        ("  1   2.5 \n  3  -4e-3\n\n \n  5       6\n", None),
        ("a b kind\n1 2.5 cat\n3 -4e-3 ant\n5 6 cat\n", [1, 0, 1]),
        ("1, 2.5, 7\n3, -4e-3, 3\n5, 6, 7\n".replace("1,", "a, b, y\n1,", 1), [7, 3, 7]),
        ('a,b,kind\n1,2.5,"cat"\n3,-4e-3,"ant"\n5,"6",cat\n', [1, 0, 1]),
        ("a,b,kind\r1,2.5,cat\r3,-4e-3,ant\r5,6,cat\r", [1, 0, 1]),
    ],
    ids=repr,
)
def test_csv_recognises_names_and_labels(tmp_path, way, text, labels):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8", newline="")
    dataset = load(tmp_path / "x.csv")
    np.testing.assert_array_equal(dataset.samples, X)
    assert dataset.scale == 1.0
    if labels is None:
        assert dataset.labels is None
    else:
        assert dataset.labels.tolist() == labels
        assert dataset.label_names == (("ant", "cat") if labels == [1, 0, 1] else None)


def test_csv_with_many_rows_grows(tmp_path, way):
    table = np.random.default_rng(0).normal(size=(50_000, 3))
    np.savetxt(tmp_path / "x.csv", table, delimiter=",", fmt="%.17g")
    np.testing.assert_array_equal(load(tmp_path / "x.csv").samples, table)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"1,2\n3,x\n5,6\n", "has 'x' in line 2, column 2, where a number is expected"),
        (b"a,b\n1,2\n,6\n", "has an empty cell in line 3, column 'a', where a number is expected"),
        (b"\n\na,b\n1,2\n\n3,x\n", "has 'x' in line 6, column 'b'"),
        (b"a,b\n1,\n3,4\n", "has an empty cell in line 2, column 'b'"),
        (b"1,\n3,4\n", "has an empty cell in line 1, column 2"),
        (b"NA,2\n3,4\n", "has 'NA' in line 1, column 1"),
        (b"1,NA\n3,4\n", "has 'NA' in line 1, column 2"),
        (b"1,2,NA\n3,4,5\n", "has 'NA' in line 1, column 3"),
        (b"NA,NA,cat\n1,2,ant\n", "has 'NA' in line 1, column 1"),
        (b"?\n1\n2\n", r"has '\?' in line 1, column 1"),
        (b"2,1_000\n3,4\n", "has '1_000' in line 1, column 2"),
        (b"1_000,2_000\n3,4\n", "has '1_000' in line 1, column 1"),
        (b"1,2\n3,1_000\n", "has '1_000' in line 2, column 2"),
        ("1,2\n3,٣\n".encode(), "has '٣' in line 2, column 2"),
        (b"1,2\n3,nan(1)\n", r"has 'nan\(1\)' in line 2, column 2"),
        (b"x;y2\n1,5;2,5\n", "has '1,5' in line 2, column 'x'"),
        (b"1,9,cat\n3,4,7\n", "has '7' in line 2, column 3, where there are words before"),
        (b"1,2,cat\n3,4,\n", "has an empty cell in line 2, column 3"),
        (b"1,2,cat\n3,4,ant\n5,6,NA\n", "has 'NA' in line 3, column 3"),
        (b"1,2,1.2.3\n3,4,5\n", "has '1.2.3' in line 1, column 3"),
        (b"a,label\n1,7\n2,\n", "has an empty cell in line 3, column 'label', where a label is"),
        (b"a,label\n1,cat\n2,\n", "has an empty cell in line 3, column 'label'"),
        (b"a,label\n1,7\n2,NA\n", "has 'NA' in line 3, column 'label', where a label is"),
        (b"a,label\n1,7\n2,nan\n", "has 'nan' in line 3, column 'label'"),
        (b"cat,1,2\nant,3,4\n", "has 'cat' in line 1, column 1.* call the column label"),
        (b"1,2\n3\n", "has 1 columns in line 2"),
        (b"1,2\n3,4,5\n", "has 3 columns in line 2"),
        (b"1 2 3\n4 5\n", "has 2 columns in line 2, but 3 before"),
        (b"a,b\n", r"0 sample\(s\)"),
        (b"\n\n", "no rows"),
        (b"one line\nword\n", "no columns of numbers"),
        (b"\x89PNG\x00\xff\xfe", "not a text table"),
        (b"", "empty file"),
    ],
    ids=repr,
)
def test_bad_csv_is_refused_with_the_place(tmp_path, way, content, words):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load(tmp_path / "x.csv")
    assert "x.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_cell_in_the_first_row_does_not_turn_its_column_into_labels(tmp_path, way):
    rows = [[f"{r}.{c}" for c in range(20)] for r in range(5)]
    rows[0][-1] = ""
    (tmp_path / "x.csv").write_text("\n".join(",".join(row) for row in rows))
    with pytest.raises(DataError, match="empty cell in line 1, column 20"):
        load(tmp_path / "x.csv")


def test_yes_and_no_in_a_first_row_of_numbers_are_labels(tmp_path, way):
    (tmp_path / "x.csv").write_text("1,2.5,y\n3,-4e-3,n\n5,6,y\n")
    dataset = load(tmp_path / "x.csv")
    np.testing.assert_array_equal(dataset.samples, X)
    assert dataset.labels.tolist() == [1, 0, 1]


def test_classes_may_be_called_by_digits_and_letters_where_the_name_says_label(tmp_path, way):
    (tmp_path / "x.csv").write_text("a,label\n1,7\n2,NA\n3,b\n4,7\n")
    dataset = load(tmp_path / "x.csv")
    assert dataset.label_names == ("7", "NA", "b")
    assert dataset.labels.tolist() == [0, 1, 2, 0]


def test_large_whole_labels_keep_their_digits(tmp_path, way):
    labels = [2**53 + 1, 2**53, -(2**63), 2**63 - 1]
    rows = "".join(f"1,{label}\n" for label in labels)
    (tmp_path / "x.csv").write_text(f"a,label\n{rows}")
    assert load(tmp_path / "x.csv").labels.tolist() == labels


@pytest.mark.parametrize("label", [2**63, -(2**63) - 1, 10**25, "9" * 5000])
def test_labels_beyond_64_bits_are_refused(tmp_path, way, label):
    (tmp_path / "x.csv").write_text(f"a,label\n1,0\n2,{label}\n")
    with pytest.raises(DataError, match=r"x\.csv has the label .* 64 bits"):
        load(tmp_path / "x.csv")


def test_words_beyond_the_names_are_refused(tmp_path, way):
    (tmp_path / "x.csv").write_text("a,b\n1,2,word\n3,4,word\n")
    with pytest.raises(DataError, match="3 columns in line 2, but 2 before"):
        load(tmp_path / "x.csv")


def test_large_clean_files_are_read_by_pyarrow(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow.csv")
    monkeypatch.setattr(tables, "_SMALL_BYTES", 0)
    monkeypatch.setattr(tables, "_read", lambda *args: pytest.fail("read by Python"))
    for text in ("a,b,c\n1,2,x\n", "a b c\n1 2 x\n", "1;2\n3;4\n", "\ufeff\n\n1\t2\n\n3\t4"):
        (tmp_path / "x.csv").write_text(text, encoding="utf-8")
        assert load(tmp_path / "x.csv").samples.shape == (2,)
