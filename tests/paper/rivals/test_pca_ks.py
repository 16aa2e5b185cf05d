"""PCA-KS: the components and dimensions it chooses, and the best trial by objective."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.errors import InputError
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.pca_ks import PCAKS

X, Y, _ = make_union_of_subspaces(240, 3, 30, 2, noise=0.01, random_state=0)


def test_a_union_of_subspaces_is_found():
    model = PCAKS(3, subspace_dim=2, random_state=0).fit(X)
    assert clustering_accuracy(Y, model.labels_) > 0.98


def test_components_hold_nine_tenths_of_the_variance_and_dimensions_are_their_root():
    model = PCAKS(3, random_state=0).fit(X)
    ratio = PCA().fit(X).explained_variance_ratio_.cumsum()
    kept = len(model.pca_.components_)
    assert ratio[kept - 1] >= 0.9 > ratio[kept - 2]
    assert model.subspace_dim_ == round(kept**0.5)
    assert model.k_subspaces_.subspaces_.shape == (3, kept, model.subspace_dim_)


def test_components_are_those_of_scikit_learn():
    model = PCAKS(3, random_state=0).fit(X)
    direct = PCA(len(model.pca_.components_), svd_solver="full").fit(X)
    np.testing.assert_allclose(
        np.abs(model.pca_.transform(X)), np.abs(direct.transform(X)), atol=1e-6
    )


def test_samples_along_one_direction_still_get_two_components():
    rng = np.random.default_rng(0)
    line = rng.standard_normal((50, 1)) * 10 * np.ones((1, 5)) + rng.standard_normal((50, 5)) * 0.01
    model = PCAKS(2, random_state=0).fit(line)
    assert (len(model.pca_.components_), model.subspace_dim_) == (2, 1)


def test_the_lowest_objective_of_all_trials_wins():
    model = PCAKS(3, subspace_dim=2, random_state=0).fit(X)
    components = model.pca_.transform(X)
    seeds = np.random.RandomState(0).randint(2**31 - 1, size=10)
    trials = [
        KSubspaces(3, subspace_dim=2, n_init=1, random_state=int(seed)).fit(components).inertia_
        for seed in seeds
    ]
    assert model.inertia_ == pytest.approx(min(trials))


@pytest.mark.parametrize(
    "params, words",
    [
        ({"pca_dim": 31}, "no 31 principal components"),
        ({"pca_dim": 4, "subspace_dim": 4}, "subspace_dim=4 must be below the 4"),
    ],
)
def test_impossible_settings_are_refused_by_name(params, words):
    with pytest.raises(InputError, match=words):
        PCAKS(3, **params).fit(X)
