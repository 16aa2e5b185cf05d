"""What all affinity methods promise: scikit-learn's manners, clear refusals, a price first."""

import re

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from kscn import baselines
from kscn.baselines import ssc_omp
from kscn.baselines.affinity import Cost
from kscn.data import make_union_of_subspaces
from kscn.errors import InputError

X, Y, _ = make_union_of_subspaces(60, 3, 12, 2, noise=0.02, random_state=0)
METHODS = ("ssc", "lrr", "kssc", "ssc-omp", "dsc-net")
# What makes a test of manners quick.
QUICK = {"dsc-net": {"pretrain_epochs": 1, "epochs": 1}}
# Checks of scikit-learn that a method does not pass, each with its reason.
EXPLAINED = {
    "SSCOMP": {"check_clustering": "Three blobs in a plane are no union of subspaces."},
}
every_method = pytest.mark.parametrize("name", METHODS)


def method(name, k=3, **params):
    return baselines.make(name, k, **{"random_state": 0} | QUICK.get(name, {}) | params)


# What these check is in the shared base class, so those that fit fastest are enough.
@parametrize_with_checks(
    [method("lrr"), method("ssc-omp"), method("dsc-net")],
    expected_failed_checks=lambda estimator: EXPLAINED.get(type(estimator).__name__, {}),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_method
def test_the_same_seed_gives_the_same_labels(name):
    one, two = method(name).fit(X), method(name).fit(X)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.random_state_ == 0


@every_method
def test_a_fit_leaves_its_results(name):
    model = method(name, random_state=None)
    labels = model.fit_predict(X)
    np.testing.assert_array_equal(labels, model.labels_)
    assert labels.shape == (60,) and set(labels) <= {0, 1, 2}
    assert model.n_features_in_ == 12
    assert model.n_iter_ >= 1
    assert model.affinity_.shape == (60, 60)
    # The seed that was drawn repeats the result.
    again = method(name, random_state=model.random_state_).fit_predict(X)
    np.testing.assert_array_equal(again, labels)


@every_method
def test_a_clone_has_the_parameters_and_no_results(name):
    model = method(name).fit(X)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "dsc-net"])
def test_the_container_does_not_matter(name):
    expected = method(name).fit_predict(X)
    for same in (torch.from_numpy(X), X.reshape(60, 3, 4), X[::-1].copy()[::-1], X.tolist()):
        labels = method(name).fit_predict(same)
        assert (labels == expected).mean() > 0.95  # a list is float64


@every_method
def test_the_price_comes_first_and_callbacks_see_everything(name):
    records = []
    model = method(name, callbacks=[lambda estimator, record: records.append(record)]).fit(X)
    assert records == model.history_
    assert records[0]["stage"] == "cost"
    assert records[0]["memory"] > 0 and records[0]["expected_seconds"] > 0
    assert records[-1]["stage"] == "spectral"


BAD = {
    "NaN": (np.where(np.arange(60)[:, None] == 7, np.nan, X), "contains NaN"),
    "infinity": (np.where(np.arange(60)[:, None] == 7, np.inf, X), "contains infinity"),
    "sparse": (scipy.sparse.csr_array(X), "sparse matrix"),
    "too few": (X[:2], r"n_samples=2 should be >= n_clusters=3"),
    "one axis": (X[0], "Expected 2D array"),
    "words": (np.array([["a", "b"]] * 5), "not numbers"),
    "equal": (np.ones((10, 4)), "All 10 samples of X are equal"),
}


@every_method
@pytest.mark.parametrize("kind", BAD)
def test_bad_samples_are_refused_in_words(name, kind):
    samples, words = BAD[kind]
    with pytest.raises(InputError, match=words):
        method(name).fit(samples)


@every_method
@pytest.mark.parametrize(
    "params, words",
    [
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"max_samples": 0}, "max_samples=0"),
        ({"random_state": -1}, "random_state=-1"),
        ({"callbacks": "print"}, "callbacks"),
        ({"device": "abacus"}, "device='abacus'"),
    ],
)
def test_bad_arguments_are_refused_by_name(name, params, words):
    with pytest.raises(InputError, match=words):
        method(name).set_params(**params).fit(X)


@every_method
def test_too_many_samples_are_refused_before_any_work(name, monkeypatch):
    model = method(name, max_samples=59)
    monkeypatch.setattr(type(model), "_make_affinity", lambda *_: pytest.fail("it began"))
    with pytest.raises(InputError) as refusal:
        model.fit(X)
    told = str(refusal.value)
    assert re.search(r"60 samples would need about [\d.]+ GB of memory and roughly \d+ s", told)
    assert "max_samples=59" in told and "KSubspaces or KSCN" in told
    assert "max_samples" in told.rsplit("raise", 1)[1]


def test_the_price_is_told_in_units_for_people():
    assert str(Cost(8 * 70_000.0**2, 1e12)).startswith("about 39.2 GB of memory and roughly ")
    assert str(Cost(1e9, 1e18)).endswith("hours")
    assert str(Cost(10.0, 10.0)) == "about 0.1 GB of memory and roughly 1 s"


@every_method
def test_the_price_grows_with_the_square_of_the_samples(name):
    model = method(name)
    small, large = (model._cost(n, 50, 4) for n in (20_000, 40_000))
    assert 3 < large.seconds / small.seconds < 5


def test_empty_clusters_are_told(monkeypatch):
    monkeypatch.setattr("kscn.baselines.affinity.spectral_labels", lambda *_: np.arange(60) % 2)
    with pytest.warns(ConvergenceWarning, match="1 of the 3 clusters ended up empty"):
        method("ssc-omp").fit(X)


@pytest.mark.parametrize(
    "name, params",
    [
        ("lrr", {"max_iter": 1}),
        ("ssc", {"max_iter": 1}),
        ("ssc-omp", {"callbacks": [lambda model, record: record["stage"] == "codes"]}),
    ],
)
def test_warnings_point_to_the_line_that_called_fit(name, params, monkeypatch):
    monkeypatch.setattr(ssc_omp, "CONSTANTS", ssc_omp.Constants(entries=60 * 20))
    with pytest.warns(ConvergenceWarning) as found:
        method(name, **params).fit(X)
    assert {one.filename for one in found} == {__file__}
