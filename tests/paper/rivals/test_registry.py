"""Rivals are found by their names, and looking does not load them."""

import re
import subprocess
import sys

import pytest

from kscn.errors import InputError
from kscn_paper import rivals


def test_the_names_are_those_of_the_tables():
    assert rivals.NAMES == (
        "k-means", "pca-ks", "sae-km", "cae-km", "dec", "idec", "dcn", "dcn-cae",
        "ssc", "lrr", "kssc", "ssc-omp", "dsc-net", "edesc", "k-fsc",
    )  # fmt: skip
    assert rivals.COMPOSITES == (
        "ssc-sae", "ssc-cae", "lrr-sae", "lrr-cae",
        "kssc-sae", "kssc-cae", "ssc-omp-sae", "ssc-omp-cae",
    )  # fmt: skip


def test_a_name_that_says_convolutional_makes_it_so():
    for name in ("cae-km", "dcn-cae", "ssc-cae"):
        assert rivals.make(name, 3).get_params()["autoencoder"] == "cae"
    for name in ("sae-km", "dec", "idec", "dcn", "ssc-sae"):
        assert rivals.make(name, 3).get_params()["autoencoder"] == "sae"


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"'scc' is not a known rival.*ssc-omp"):
        rivals.make("scc", 3)


def test_an_unknown_parameter_is_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"'lambda_' is not a parameter of ssc.*alpha"):
        rivals.make("ssc", 3, lambda_=1)


def test_looking_loads_nothing_heavy():
    code = "import sys; from kscn_paper import rivals; rivals.NAMES; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [
        name for name in done.stdout.split() if re.match("torch|numpy|scipy|sklearn", name)
    ] == []
