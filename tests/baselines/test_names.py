"""The methods of the paper's tables and their names, in the order that tables have."""

from kscn import baselines


def test_the_names_are_those_of_the_tables():
    assert baselines.NAMES == (
        "k-means", "pca-ks", "sae-km", "cae-km", "dec", "idec", "dcn", "dcn-cae",
        "ssc", "lrr", "kssc", "ssc-omp", "dsc-net", "edesc", "k-fsc",
    )  # fmt: skip


def test_a_name_that_says_convolutional_makes_it_so():
    for name in ("cae-km", "dcn-cae", "ssc-cae"):
        assert baselines.make(name, 3).get_params()["autoencoder"] == "cae"
    for name in ("sae-km", "dec", "idec", "dcn", "ssc-sae"):
        assert baselines.make(name, 3).get_params()["autoencoder"] == "sae"
