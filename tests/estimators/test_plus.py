"""`KSCNPlus`: features, start, refinement, and what it refuses."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from kscn import KSCNPlus, load_model
from kscn.choice import choose
from kscn.data import as_source, make_union_of_subspaces
from kscn.errors import InputError
from kscn.metrics import clustering_accuracy
from kscn.metrics import normalized_mutual_info as nmi
from kscn.nn.rows import through
from kscn.runtime.blocks import Blocks
from kscn.subspaces import Subspaces

K, N = 4, 400


def digits():
    """Images of the digits 0 to 3."""
    data = load_digits()
    few = np.flatnonzero(data.target < K)[:N]
    return data.images[few].astype(np.float32), data.target[few]


def quick(**params):
    return KSCNPlus(**{"n_clusters": K, "starts": 1, "epochs": 2, "random_state": 0} | params)


@pytest.fixture(scope="module")
def fitted():
    X, y = digits()
    return quick(epochs=8, batch_size=32, refine=True).fit(X), X, y


def test_four_digits_are_told_apart_without_labels(fitted):
    model, _, y = fitted
    assert clustering_accuracy(y, model.start_labels_) > 0.75
    assert clustering_accuracy(y, model.labels_) > 0.75


def test_what_is_fitted_has_the_shapes_it_says(fitted):
    model, X, _ = fitted
    assert model.labels_.shape == model.start_labels_.shape == (N,)
    assert (np.diff(np.bincount(model.labels_, minlength=K)) <= 0).all()  # largest first
    k, d, p = model.subspaces_.shape
    assert (k, d) == (K, model.encoder_.latent_dim)
    np.testing.assert_allclose(
        model.subspaces_.transpose(0, 2, 1) @ model.subspaces_, np.eye(p)[None].repeat(k, 0),
        atol=1e-5,
    )  # fmt: skip
    assert model.transform(X).shape == (N, d)
    assert 0 < model.confidence_ <= 1
    tried, selection = model.tried_, model.selection_
    assert tried["candidates"] == len(selection.tried) > len(tried["tried"]) == 10
    assert tried["consistency"] == pytest.approx(model.confidence_, abs=1e-4)
    assert f"{tried['method']} ({tried['space']})" == model.chosen_
    assert tried["rival"]["method"].split(",")[0] != tried["method"].split(",")[0]
    values = [row["consistency"] for row in tried["tried"]]
    assert values == sorted(values, reverse=True)
    assert 1 <= model.n_iter_ <= 8
    stages = [record["stage"] for record in model.history_]
    assert stages[0] == "search" and stages[-1] == "fit"


@pytest.mark.parametrize("colours", [False, True])
def test_without_refinement_the_features_decide(colours, tmp_path):
    X, y = digits()
    X = np.stack([X, 16 - X, X], axis=1) if colours else X
    model = quick(refine=False).fit(X)
    assert model.encoder_ is None
    np.testing.assert_array_equal(model.labels_, model.start_labels_)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert clustering_accuracy(y, model.labels_) > 0.75
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.labels_)


def test_vectors_get_what_applies_to_them(tmp_path):
    X, y, _ = make_union_of_subspaces(500, 3, 30, 3, noise=0.02, random_state=0)
    model = quick(n_clusters=3).fit(X)
    assert model.encoder_ is None
    assert clustering_accuracy(y, model.labels_) > 0.95
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.labels_)


@pytest.mark.parametrize(("load", "k"), [(load_iris, 3), (load_wine, 3), (load_breast_cancer, 2)])
def test_groups_around_points_are_found_as_by_k_means(load, k, tmp_path):
    X, y = load(return_X_y=True)
    plain = nmi(y, KMeans(k, n_init=10, random_state=0).fit(X).labels_)
    model = KSCNPlus(k, random_state=0).fit(X)
    assert nmi(y, model.labels_) > plain - 0.01
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.labels_)


def test_numbers_on_a_line_are_grouped():
    X = np.concatenate([np.linspace(0, 1, 30), np.linspace(5, 6, 30), np.linspace(9, 10, 30)])
    labels = KSCNPlus(3, random_state=0).fit_predict(X[:, None])
    assert clustering_accuracy(np.repeat([0, 1, 2], 30), labels) == 1


def test_vectors_of_double_precision_are_taken_too():
    X, y, _ = make_union_of_subspaces(400, K, 20, 3, noise=0.05, random_state=0)
    X = X.astype(np.float64)
    model = quick().fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.9
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_samples_between_two_subspaces_are_the_most_doubtful():
    lines = Subspaces(torch.eye(3)[:2, :, None])
    samples = as_source(np.array([[1, 0, 0], [1, 0.9, 0], [0.5, 1, 0], [1, 1, 0]], np.float32))
    # The nearer squared distance over the farther one.
    doubt = choose._doubt(Blocks(samples, torch.float32, torch.device("cpu")), lines)
    np.testing.assert_allclose(doubt.numpy(), [0, 0.81, 0.25, 1], atol=1e-6)


def test_clusters_that_are_no_subspaces_are_carried_on_by_an_encoder():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 200)
    centres = np.array([[3.0, 0, 0, 0], [6, 0, 0, 0], [6, 3, 0, 0]])  # two on one line
    X = centres[y] + 0.4 * rng.standard_normal((600, 4))
    model = KSCNPlus(3, random_state=0).fit(X[::2])
    assert clustering_accuracy(y[::2], model.labels_) > 0.97
    assert clustering_accuracy(y[1::2], model.predict(X[1::2])) > 0.97


def test_a_refinement_that_makes_clusters_worse_is_not_kept(monkeypatch):
    X, _ = digits()
    monkeypatch.setattr("kscn.estimators.plus.better", lambda *_: False)
    model = quick(epochs=1).fit(X)
    assert model.encoder_ is None and model.n_iter_ == 0
    assert not hasattr(model, "scaling_")
    assert torch.equal(
        through(model.features_, torch.from_numpy(X)), torch.tensor(model.transform(X))
    )
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    few = quick(epochs=1).fit(X[:90])  # less than a hundred of each
    assert "fit" not in {record["stage"] for record in few.history_}


def test_the_order_of_rows_changes_only_what_chance_does():
    X, y = digits()
    order = np.argsort(y, kind="stable")
    for rows in (order, order.reshape(K, -1).T.ravel() if N % K == 0 else order):
        assert clustering_accuracy(y[rows], quick(refine=False).fit_predict(X[rows])) > 0.9


def test_a_callback_ends_the_refinement():
    X, _ = digits()
    model = quick(refine=True, callbacks=[lambda _, record: record["stage"] == "fit"]).fit(X)
    assert model.n_iter_ == 1
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"starts": 0}, "starts=0 must be an integer of at least 1"),
        ({"refine": "yes"}, "refine='yes' must be True or False or 'auto'"),
        ({"augment": "noise-free"}, "augment='noise-free' must be"),
    ],
)
def test_impossible_settings_are_refused_in_words(params, words):
    model = quick(**params)
    with pytest.raises(InputError, match=words):
        model.fit(digits()[0])
    assert not hasattr(model, "labels_")


def test_vectors_cannot_be_refined():
    with pytest.raises(InputError, match="refine=True needs images"):
        quick(refine=True).fit(np.random.default_rng(0).random((50, 6)))


@pytest.mark.parametrize(("k", "d"), [(2, 6), (3, 9)])
def test_lines_through_the_origin_are_told_from_their_halves(k, d):
    X, y, _ = make_union_of_subspaces(100 * k, k, d, 1, noise=0.02, random_state=0)
    model = KSCNPlus(k, random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.95
    assert "shortest code" in model.chosen_


def test_the_start_has_the_numbers_of_the_result(fitted):
    model, _, _ = fitted
    shared = np.zeros((K, K), dtype=int)
    np.add.at(shared, (model.start_labels_, model.labels_), 1)
    assert (shared.argmax(axis=1) == np.arange(K)).all()


def test_numpys_answers_are_answers():
    vectors = digits()[0].reshape(-1, 64)
    with pytest.raises(InputError, match="refine=True needs images"):
        quick(refine=np.True_).fit(vectors)
    assert quick(refine=np.False_).fit(vectors[:100]).encoder_ is None


def test_more_clusters_than_can_be_chosen_are_refused_at_once():
    with pytest.raises(InputError, match="n_clusters=6000 is too many"):
        KSCNPlus(6000).fit(np.zeros((7000, 2), dtype=np.float32))


def test_filters_of_warnings_are_what_they_were():
    before = list(warnings.filters)
    quick(refine=False).fit(np.random.default_rng(0).random((1200, 5)).round(1))
    assert warnings.filters == before
