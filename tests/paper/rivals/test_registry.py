"""Baselines are found by their names and described in full, and looking does not load them."""

import ast
import importlib
import inspect
import re
import subprocess
import sys

import pytest

from kscn.errors import InputError
from kscn_paper import rivals as baselines


def test_the_names_are_those_of_the_tables():
    assert baselines.NAMES == (
        "k-means", "pca-ks", "sae-km", "cae-km", "dec", "idec", "dcn", "dcn-cae",
        "ssc", "lrr", "kssc", "ssc-omp", "dsc-net", "edesc", "k-fsc",
    )  # fmt: skip
    assert baselines.COMPOSITES == (
        "ssc-sae", "ssc-cae", "lrr-sae", "lrr-cae",
        "kssc-sae", "kssc-cae", "ssc-omp-sae", "ssc-omp-cae",
    )  # fmt: skip


def test_a_name_that_says_convolutional_makes_it_so():
    for name in ("cae-km", "dcn-cae", "ssc-cae"):
        assert baselines.make(name, 3).get_params()["autoencoder"] == "cae"
    for name in ("sae-km", "dec", "idec", "dcn", "ssc-sae"):
        assert baselines.make(name, 3).get_params()["autoencoder"] == "sae"


@pytest.mark.parametrize("name", baselines.NAMES)
def test_every_name_makes_an_estimator_with_the_interface(name):
    model = baselines.make(name, 4, random_state=7)
    assert model.n_clusters == 4
    assert model.get_params()["random_state"] == 7
    assert callable(model.fit) and callable(model.fit_predict)


def test_parameters_reach_the_estimator():
    assert baselines.make("ssc", 3, alpha=50, affine=True).get_params()["alpha"] == 50


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"'scc' is not a known baseline.*ssc-omp"):
        baselines.make("scc", 3)


def test_an_unknown_parameter_is_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"'lambda_' is not a parameter of ssc.*alpha"):
        baselines.make("ssc", 3, lambda_=1)


@pytest.mark.parametrize("name", [*baselines.NAMES, "ssc-sae"])
def test_every_parameter_is_described_once_with_its_default(name):
    estimator = type(baselines.make(name, 3))
    described = inspect.getdoc(estimator).split("\nParameters\n----------\n")[1]
    described, _, rest = described.partition("\n\nAttributes\n----------\n")
    found = re.findall(r"^(\w+) : .*, default=(.*)$", described, re.MULTILINE)
    defaults = {one.name: one.default for one in inspect.signature(estimator).parameters.values()}
    assert {name: ast.literal_eval(default) for name, default in found} == defaults
    assert len(found) == len(defaults)
    for attribute in ("labels_", "history_", "random_state_, n_features_in_", "n_iter_"):
        assert len(re.findall(rf"^{attribute} : ", rest, re.MULTILINE)) == 1


def test_looking_loads_nothing_heavy():
    code = "import sys; from kscn_paper import rivals; rivals.NAMES; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [
        name for name in done.stdout.split() if re.match("torch|numpy|scipy|sklearn", name)
    ] == []


def test_self_expression_loads_no_estimator():
    """Which may start from its clusters. The libraries stay loaded, kscn is imported anew."""

    def ours():
        return {name: sys.modules.pop(name) for name in [*sys.modules] if name.startswith("kscn")}

    before = ours()
    try:
        importlib.import_module("kscn_paper.rivals.self_expression")
        loaded = ours()
    finally:
        ours()
        sys.modules.update(before)
    assert "kscn_paper.rivals.self_expression" in loaded
    assert [name for name in loaded if name.startswith("kscn.estimators")] == []
