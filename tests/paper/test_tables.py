"""The paper's tables as data."""

import pytest

from kscn.data.catalog import NAMES
from kscn.errors import InputError
from kscn_paper import methods, tables


def test_every_table_is_sound():
    found = tables.find("all")
    assert [table.name for table in found] == ["mnist", "fashion", "subspace", "dcn-cae"]
    for table in found:
        assert table.clusters == 10
        for dataset, rows in table.rows.items():
            assert dataset in NAMES
            for scores in rows.values():
                figures = {name: value for name, value in scores.items() if name in tables.SCORES}
                assert set(scores) - set(figures) <= {"approximate"}
                assert {"acc", "nmi"} <= set(figures)
                assert all(0 < value < 100 for value in figures.values())


@pytest.mark.parametrize(
    ("table", "dataset", "scores"),
    [
        ("mnist", "mnist", {"acc": 87.14, "nmi": 78.15, "ari": 75.81}),
        ("fashion", "fashion-mnist", {"acc": 63.78, "nmi": 62.04, "ari": 48.04}),
        ("subspace", "mnist-test", {"acc": 83.30, "nmi": 77.38}),
        ("subspace", "fashion-mnist-test", {"acc": 60.02, "nmi": 62.30}),
    ],
)
def test_the_figures_of_kscn_s(table, dataset, scores):
    (found,) = tables.find(table)
    assert found.rows[dataset]["kscn-s"] == scores


def test_the_number_of_methods_is_that_of_the_paper():
    counts = {table.name: len(table.methods) for table in tables.find("all")}
    assert counts == {"mnist": 8, "fashion": 7, "subspace": 10, "dcn-cae": 2}


def test_aliases_name_a_table_or_a_part_of_one():
    assert tables.find("fashion-mnist") == tables.find("fashion")
    (part,) = tables.find("mnist-test")
    assert (part.name, list(part.rows)) == ("mnist-test", ["mnist-test"])


def test_an_unknown_table_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"'cifar' is no table .* mnist, fashion, subspace"):
        tables.find("cifar")


def test_every_remark_is_on_a_figure_of_ours_that_there_can_be():
    for table in tables.find("all"):
        for dataset, remarks in table.remarks.items():
            assert dataset in table.rows
            for method, text in remarks.items():
                assert method.split(" ")[0] in methods.names()
                assert text.endswith(".")


# --- tables of one's own ------------------------------------------------------------------------

OWN = """
[photos]
title = "Our photos"
clusters = 4
[photos.holidays]
source = "holidays.npz"
settings = { k-means = { n_init = 5 } }
kscn-s = {}
k-means = { acc = 53.0, nmi = 50, approximate = true }
[photos.digits]
kscn-s = { acc = 80.5 }
[more]
clusters = 2
[more.digits]
k-means = {}
"""


def test_a_file_may_hold_tables_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    photos, more = tables.find(str(path))
    assert (photos.name, photos.title, photos.clusters) == ("photos", "Our photos", 4)
    assert photos.methods == ["kscn-s", "k-means"]
    assert photos.rows["digits"] == {"kscn-s": {"acc": 80.5}}
    assert photos.rows["holidays"]["kscn-s"] == {}
    assert photos.sources == {"holidays": str(tmp_path.resolve() / "holidays.npz")}
    assert photos.settings == {"holidays": {"k-means": {"n_init": 5}}, "digits": {}}
    assert (more.title, more.sources) == ("more", {})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is empty"),
        ("[photos", "cannot read the table"),
        ("photos = 1", "photos is 1, not a table"),
        ("[photos]\nclusters = 3", r"\[photos\] has no data set"),
        ("[photos.digits]\nk-means = {}", "photos.clusters is missing, not an integer from 1"),
        (
            "[photos]\nclusters = 0\n[photos.digits]\nk-means = {}",
            "photos.clusters is 0, not an integer",
        ),
        ("[photos]\nclusters = 3\nname = 'x'", "photos.name is 'x', not a table"),
        (
            "[photos]\nclusters = 3\n[photos.digits]\nk-means = 5",
            "photos.digits.k-means is 5, not a table",
        ),
        ("[photos]\nclusters = 3\n[photos.digits]\nk-means = {f1 = 5}", "has f1, which is none"),
        (
            "[photos]\nclusters = 3\n[photos.digits]\nk-means = {acc = '5'}",
            "k-means.acc is '5', not a number",
        ),
        (
            "[photos]\nclusters = 3\n[photos.digits]\nk-means = {acc = 500}",
            "acc is 500, not a number from -100 to 100",
        ),
        (
            "[photos]\nclusters = 3\n[photos.digits]\nsource = 5",
            "photos.digits.source is 5, not a text",
        ),
        (
            "[photos]\nclusters = 3\n[photos.digits]\nsettings = { k-means = 5 }",
            "photos.digits.settings.k-means is 5, not a table",
        ),
        ("[photos]\nclusters = 3\n[photos.'a/b']\nk-means = {}", "name 'a/b' is not letters"),
        (
            "['../photos']\nclusters = 3\n[photos.a]\nk-means = {}",
            "name '../photos' is not letters",
        ),
        ("[mnist]\nclusters = 3\n[mnist.digits]\nk-means = {}", "a table mnist, which is one of"),
    ],
)
def test_a_faulty_file_is_refused_with_what_is_wrong(tmp_path, text, fault):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=fault) as caught:
        tables.find(str(path))
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"cannot read the table nowhere\.toml \(No such file"):
        tables.find("nowhere.toml")
