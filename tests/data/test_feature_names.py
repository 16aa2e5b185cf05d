"""Names of features from the header of a table."""

import pytest

from kscn import data


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("height,width\n1,2\n", ["height", "width"]),
        ("height;width;label\n1;2;0\n", ["height", "width"]),
        (",height,width\n0,1,2\n", ["height", "width"]),
        ("height,width,species\n1,2,cat\n", ["height", "width"]),
        ("\ufeffheight,\n1,2\n", ["height", "feature 1"]),
        ("1,2\n3,4\n", ["feature 0", "feature 1"]),
        (",0,1\n0,1,2\n", ["feature 0", "feature 1"]),
    ],
)
def test_a_header_names_the_features(tmp_path, text, names):
    file = tmp_path / "table.csv"
    file.write_text(text, encoding="utf-8")
    assert data.load(file).samples.feature_names == names


def test_parquet_names_its_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"height": [1.0], "width": [2.0], "label": [0]})
    frame.to_parquet(tmp_path / "table.parquet")
    assert data.load(tmp_path / "table.parquet").samples.feature_names == ["height", "width"]


def test_what_is_no_table_gets_numbers():
    assert data.as_source([[1.0, 2.0]]).feature_names == ["feature 0", "feature 1"]
