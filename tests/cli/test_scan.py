"""`kscn scan`: table, JSON, picture, and what it refuses."""

import json

import numpy as np
import pytest

SMALL = ("-k", "2:4", "-p", "1:3", "--seconds", 1000)


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    """Three planes with 60 samples each."""
    from kscn.data import make_union_of_subspaces

    path = tmp_path_factory.mktemp("scan") / "planes.npy"
    np.save(path, make_union_of_subspaces(180, 3, 8, 2, noise=0.02, random_state=0)[0])
    return path


def test_table_picture_and_the_caveat(kscn, even, tmp_path):
    picture = tmp_path / "scan.png"
    result = kscn("scan", even, *SMALL, "-o", picture)
    assert result.exit_code == 0, result.output
    assert "recommended: k = 3, p = 2; confidence high" in result.output
    assert "No promise of truth" in result.output
    assert result.output.count(" <-") == 2  # in the curve over k and in that over p
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_json_holds_the_curves(kscn, even):
    result = kscn("scan", even, *SMALL, "--json")
    found = json.loads(result.stdout)
    assert (found["data"], found["k"], found["p"]) == ("planes", 3, 2)
    assert [cell["k"] for cell in found["cells"] if cell["p"] == 2] == [2, 3, 4]
    assert "No promise of truth" in found["note"]


@pytest.mark.parametrize("span", ["a", "5:", "4:2", "2;3", ""])
def test_a_span_that_is_none_is_a_usage_error(kscn, even, span):
    result = kscn("scan", even, "-k", span)
    assert result.exit_code == 2
    assert "range 2:20" in result.stderr


def test_single_numbers_and_lists_are_spans(kscn, even):
    found = json.loads(kscn("scan", even, "-k", "2,3", "-p", "2", "--json").stdout)
    assert {(cell["k"], cell["p"]) for cell in found["cells"]} == {(2, 2), (3, 2)}


def test_refusals_are_one_sentence_and_come_before_the_work(one_sentence, kscn, even, tmp_path):
    assert "does not end in .png" in one_sentence(kscn("scan", even, "-o", tmp_path / "a.txt"))
    assert "cannot write" in one_sentence(kscn("scan", even, "-o", tmp_path / "no" / "a.png"))
    assert "between 2 and 9" in one_sentence(kscn("scan", even, "-k", "2:10"))
    assert "does not exist" in one_sentence(kscn("scan", tmp_path / "no.npy"))
    assert list(tmp_path.iterdir()) == []
