"""`KSubspaces` behaves as scikit-learn asks of its estimators."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy

# Checks of random data that no setting can make pass, each with its reason.
EXPLAINED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "The search draws rows at random, so repeating a row shifts the draws, and from another "
        "start random data ends in another local minimum. From a given start, weights equal "
        "repetitions: test_weights_equal_repetitions_from_a_given_start."
    ),
}


# Three lines fit the blobs of check_clustering best across them, which is what a better start
# finds; from k-means they end in the local minimum of one line per blob.
LINES = KSubspaces(3, subspace_dim=1, affine=True, init="k-means", n_init=1)


@pytest.mark.filterwarnings("ignore:.*clusters ended up empty")
@parametrize_with_checks(
    [KSubspaces(), LINES],
    expected_failed_checks=lambda estimator: EXPLAINED,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def union(n=300, k=3, d=8, p=2, **kwargs):
    X, y, _ = make_union_of_subspaces(n, k, d, p, noise=0.02, random_state=0, **kwargs)
    return X, y


def quick(**params):
    return KSubspaces(
        **{"n_clusters": 3, "subspace_dim": 2, "n_init": 2, "random_state": 0} | params
    )


def test_weights_equal_repetitions_from_a_given_start():
    X, y = union(dtype=np.float64)
    X = X + 0.3 * np.random.default_rng(0).standard_normal(X.shape)
    times = np.random.default_rng(1).integers(1, 4, len(X))
    for affine in (False, True):
        weighted = quick(init=y, affine=affine, max_iter=500, tol=0).fit(X, sample_weight=times)
        repeated = quick(init=np.repeat(y, times), affine=affine, max_iter=500, tol=0)
        repeated.fit(np.repeat(X, times, axis=0))
        np.testing.assert_array_equal(np.repeat(weighted.labels_, times), repeated.labels_)
        assert weighted.inertia_ == pytest.approx(repeated.inertia_)


def test_pipelines_scale_and_reduce_before_clustering():
    X, y = union(d=12)
    model = make_pipeline(StandardScaler(), PCA(6), quick(affine=True))
    labels = model.fit_predict(X)
    assert clustering_accuracy(y, labels) > 0.95
    np.testing.assert_array_equal(model.predict(X), labels)
    assert model.transform(X).shape == (300, 3)
    assert model.score(X) < 0


def test_output_features_have_names():
    X, _ = union()
    model = quick().fit(X)
    assert model.get_feature_names_out().tolist() == ["ksubspaces0", "ksubspaces1", "ksubspaces2"]
    frame = model.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == ["ksubspaces0", "ksubspaces1", "ksubspaces2"]


def test_fitting_leaves_the_parameters_alone():
    X, _ = union()
    start = np.arange(300) % 3
    dims = [2, 1, 2]
    model = quick(init=start, subspace_dim=dims, random_state=None).fit(X)
    assert model.init is start
    assert model.subspace_dim is dims
    assert model.random_state is None
