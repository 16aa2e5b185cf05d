"""The paper's tables as data."""

import pytest

from kscn.data.catalog import NAMES
from kscn.errors import InputError
from kscn.experiments import tables


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
