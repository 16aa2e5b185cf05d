"""Columns of a table that have different units, and those that must be left as they are."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA

from kscn import KSCNPlus, load_model, metrics
from kscn.choice.candidates import RULES, different_units, image_spaces


def table(rng, n=90):
    """Three groups in four columns, and a fifth, in other units, that says nothing of them."""
    classes = np.repeat(range(3), n // 3)
    centres = 4 * rng.standard_normal((3, 4))
    return np.column_stack(
        [centres[classes] + rng.standard_normal((n, 4)), 2e3 + 500 * rng.random(n)]
    ), classes


def test_a_column_in_other_units_does_not_decide(tmp_path):
    x, classes = table(np.random.default_rng(0))
    model = KSCNPlus(3, random_state=0).fit(x)
    assert metrics.clustering_accuracy(classes, model.labels_) > 0.95
    assert "standardised columns" in {entry.space.name.split(",")[0] for entry in tried(model)}
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(x), model.labels_)


def test_clusters_do_not_depend_on_units():
    x, _ = table(np.random.default_rng(1))
    metres, grams = x.copy(), x.copy()
    grams[:, 4] *= 1000
    metres[:, :4] /= 1000
    found = [KSCNPlus(3, random_state=0).fit(one).labels_ for one in (x, grams, metres)]
    assert metrics.adjusted_rand(found[0], found[1]) > 0.99
    assert metrics.adjusted_rand(found[0], found[2]) > 0.99


def tried(model):
    return model.selection_.tried


def many_columns():
    """Thousands of correlated columns, and one in other units."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 1)) + rng.standard_normal((40, 4000))
    x[:, 7] *= 1e4
    return x


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (load_wine().data, True),
        (load_iris().data, False),  # all of them centimetres
        (PCA(10).fit_transform(load_wine().data), False),  # rotated: no column has a unit
        (np.random.default_rng(0).standard_normal((50, 6)), False),
        (many_columns(), True),
        (np.ones((20, 5)), False),
        (np.zeros((4, 1)), False),
    ],
    ids=["wine", "iris", "components", "noise", "many", "constant", "one column"],
)
def test_columns_of_one_unit_are_left_as_they_are(x, expected):
    assert different_units(x) is expected


@pytest.mark.parametrize("shape", [(28, 28), (96, 96), (3, 96, 96), (112, 92), (3, 40, 300)])
def test_pixels_of_large_images_are_few_enough_for_components(shape):
    images = np.random.default_rng(0).integers(0, 255, (12, *shape), dtype=np.uint8)
    spaces, _ = image_spaces(images, torch.device("cpu"))
    pixels = next(space for space in spaces if space.name.startswith("pixels"))
    described = pixels.features[-1].mean  # of what the components are taken
    assert len(described) <= RULES.most_pixels
    assert (len(described) == np.prod(shape)) == (np.prod(shape) <= RULES.most_pixels)
