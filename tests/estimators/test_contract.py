"""What all estimators keep to: repeatable fits, answers that go together, refusals in words."""

import functools

import numpy as np
import pandas
import pytest
import scipy.sparse
import short
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from kscn import KSCNPlus, KSubspaces
from kscn.data import as_source, make_union_of_subspaces
from kscn.errors import InputError, KscnError

pytestmark = pytest.mark.filterwarnings("ignore:.*clusters ended up empty")
N = 120
PLANES = make_union_of_subspaces(N, 3, 12, 2, noise=0.1, random_state=0)[0]
DIGITS = load_digits().images[:N].astype(np.float32)
DENSE = {"autoencoder_params": {"hidden": [9], "latent_dim": 4}}
# An estimator of each kind, and the samples that it is fitted to.
MAKERS = {
    "linear": (functools.partial(KSubspaces, subspace_dim=2, n_init=2), PLANES),
    "affine": (functools.partial(KSubspaces, subspace_dim=2, n_init=1, affine=True), PLANES),
    "deep": (functools.partial(short.kscn, epochs=2), DIGITS),
    "deep of vectors": (functools.partial(short.kscn, **DENSE), PLANES),
    "plus": (functools.partial(KSCNPlus, starts=1), PLANES),
}


def make(kind, **params):
    return MAKERS[kind][0](**{"n_clusters": 3, "random_state": 0} | params)


@functools.cache
def fitted(kind):
    """A model that nobody changes."""
    return make(kind).fit(MAKERS[kind][1])


@pytest.fixture(params=MAKERS)
def kind(request):
    return request.param


# Results ------------------------------------------------------------------------------------------


def test_labels_are_the_predictions_numbered_by_falling_size(kind):
    model, X = fitted(kind), MAKERS[kind][1]
    assert model.labels_.dtype == np.int32
    assert (np.diff(np.bincount(model.labels_, minlength=3)) <= 0).all()
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(make(kind).fit_predict(X), model.labels_)


def test_the_same_seed_gives_the_same_bits_whatever_other_generators_do(kind):
    model, X = fitted(kind), MAKERS[kind][1]
    torch.manual_seed(7)
    np.random.seed(7)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    again = make(kind).fit(X)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    np.testing.assert_array_equal(again.subspaces_, model.subspaces_)
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3), np.int64(4)])
def test_the_seed_that_was_used_is_recorded_and_repeats_the_fit(kind, random_state):
    # Any seed has to do, and without BatchNorm one in many leaves a network this small dead.
    own = {"channels": [6, 4], "kernels": [3, 3], "batch_norm": True}
    own = {"autoencoder_params": own} if kind == "deep" else {}
    X = MAKERS[kind][1]
    model = make(kind, random_state=random_state, **own).fit(X)
    again = make(kind, random_state=model.random_state_, **own).fit(X)
    np.testing.assert_array_equal(model.labels_, again.labels_)


def test_answers_agree_with_each_other_and_with_the_subspaces(kind):
    model, X = fitted(kind), MAKERS[kind][1]
    residuals = model.residuals(X).astype(np.float64)
    assert residuals.shape == (N, 3)
    np.testing.assert_array_equal(residuals.argmin(axis=1), model.labels_)
    np.testing.assert_allclose(model.score_samples(X), -residuals.min(axis=1), rtol=1e-6)
    assert model.score(X) == pytest.approx(-model.inertia_, rel=1e-5)
    posterior = model.predict_proba(X)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    np.testing.assert_array_equal(posterior.argmax(axis=1), model.labels_)
    assert len(model.get_feature_names_out()) == model.transform(X).shape[1]
    if isinstance(model, KSubspaces):
        np.testing.assert_allclose(model.transform(X) ** 2, residuals, rtol=1e-5, atol=1e-9)
        return
    z = model.transform(X).astype(np.float64)
    for i, basis in enumerate(model.subspaces_.astype(np.float64)):
        away = z - z @ basis @ basis.T
        np.testing.assert_allclose(residuals[:, i], (away**2).sum(axis=1), rtol=1e-3, atol=1e-6)


METHODS = ("predict", "transform", "residuals", "predict_proba", "score_samples")


@pytest.mark.parametrize("method", METHODS)
def test_answers_do_not_depend_on_the_company_of_a_sample(kind, method):
    X, call = MAKERS[kind][1], getattr(fitted(kind), method)
    whole, samples = call(X), X.copy()
    order = np.random.default_rng(0).permutation(N)
    for rows in ([7], [N - 1], [3, 50, 4], order, np.repeat(order, 9)):
        np.testing.assert_array_equal(call(X[rows]), whole[rows])
    np.testing.assert_array_equal(X, samples)


# Samples ------------------------------------------------------------------------------------------


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


class Items(torch.utils.data.Dataset):
    def __init__(self, X):
        self.X = X

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        return torch.from_numpy(self.X[index]), 0


CONTAINERS = {
    "non-contiguous": lambda X: np.repeat(X, 2, axis=0)[::2],
    "reversed": lambda X: X[::-1].copy()[::-1],
    "Fortran order": np.asfortranarray,
    "read-only": read_only,
    "big-endian": lambda X: X.astype(">f4"),
    "tensor": torch.from_numpy,
    "tensor with gradient": lambda X: torch.from_numpy(X.copy()).requires_grad_(),
    "torch data set": Items,
    "source": as_source,
    "data frame": lambda X: pandas.DataFrame(X) if X.ndim == 2 else X[:, None],
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", ["affine", "deep"])
def test_the_container_does_not_matter(kind, container):
    expected, given = fitted(kind), CONTAINERS[container](MAKERS[kind][1])
    model = make(kind).fit(given)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.subspaces_, expected.subspaces_)
    np.testing.assert_array_equal(model.predict(given), expected.labels_)


def test_files_do_not_matter_and_stay_as_they_are(kind, tmp_path):
    expected, X = fitted(kind), MAKERS[kind][1]
    np.save(tmp_path / "X.npy", X)
    for given in (tmp_path / "X.npy", np.load(tmp_path / "X.npy", mmap_mode="r+")):
        model = make(kind).fit(given)
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        np.testing.assert_array_equal(model.predict(given), expected.labels_)
    np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), X)


def spoilt(value):
    bad = PLANES.copy()
    bad[70, 5] = value
    return bad


REFUSED = {
    "NaN": (spoilt(np.nan), "Input X contains NaN in row 70; remove or replace"),
    "infinity": (
        spoilt(np.inf),
        "Input X contains infinity or values too large for their squares in row 70",
    ),
    "one-dimensional": (PLANES[0], "Expected 2D array, got 1D array instead"),
    "five axes": (np.zeros((60, 2, 3, 4, 5)), r"samples of shape \(2, 3, 4, 5\); give vectors"),
    "no samples": (PLANES[:0], r"found array with 0 sample\(s\)"),
    "no features": (PLANES[:, :0], r"found array with 0 feature\(s\)"),
    "too few": (PLANES[:2], "n_samples=2 should be >= n_clusters=3; give more samples"),
    "sparse matrix": (scipy.sparse.csr_matrix(PLANES), "X is sparse"),
    "sparse tensor": (torch.from_numpy(PLANES).to_sparse(), "X is sparse"),
    "complex": (PLANES.astype(complex), "Complex data not supported"),
    "strings": (np.full((50, 4), "a"), "not numbers; convert it to floats"),
    "ragged": ([[1.0, 2.0], [1.0]], "differing shape"),
    "nothing": (None, "."),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("kind", ["linear", "deep of vectors", "plus"])
def test_what_cannot_be_clustered_is_refused_in_one_sentence(kind, what):
    X, words = REFUSED[what]
    model = make(kind)
    with pytest.raises(InputError, match=words) as caught:
        model.fit(X)
    assert "\n" not in str(caught.value)
    with pytest.raises(NotFittedError):
        model.predict(PLANES)


@pytest.mark.parametrize("method", [*METHODS, "score"])
def test_a_fitted_model_refuses_what_it_cannot_answer_about(kind, method):
    X, call = MAKERS[kind][1], getattr(fitted(kind), method)
    for value, words in ((np.nan, "NaN"), (-np.inf, "infinity .*")):
        bad = X[:6].astype(np.float64)
        bad.reshape(6, -1)[4, 3] = value
        with pytest.raises(InputError, match=f"contains {words} in row 4; remove"):
            call(bad)
    with pytest.raises(InputError, match=r"features, but KS\w+ is expecting"):
        call(X.reshape(N // 2, 2, *X.shape[1:]))
    with pytest.raises(InputError, match="Expected 2D array, got 1D"):
        call(X.reshape(-1))


@pytest.mark.parametrize("method", [*METHODS, "score"])
def test_an_unfitted_model_says_so(kind, method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(make(kind), method)(MAKERS[kind][1])


# Parameters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be an integer of at least 1"),
        ({"n_clusters": True}, "n_clusters=True must be an integer"),
        ({"n_clusters": N + 1}, f"n_samples={N} should be >= n_clusters={N + 1}"),
        ({"batch_size": 0}, "batch_size=0 must be .*an integer of at least 1"),
        ({"device": "abacus"}, "device='abacus' cannot be used here"),
        ({"random_state": -1}, "random_state=-1 must be an integer of at least 0"),
        ({"checkpoint_dir": 3}, "checkpoint_dir=3 must be"),
        ({"callbacks": "print"}, "callbacks=.* must be a sequence of functions"),
        ({"callbacks": [None]}, "callbacks=.* must be a sequence of functions"),
    ],
)
def test_impossible_parameters_are_refused_and_named(kind, params, words):
    with pytest.raises(InputError, match=words):
        make(kind, **params).fit(MAKERS[kind][1])


# Callbacks and failures ---------------------------------------------------------------------------


def test_callbacks_hear_every_record_in_order(kind):
    heard = []
    model = make(kind, callbacks=[lambda model, record: heard.append((model, record))])
    model.fit(MAKERS[kind][1])
    assert all(estimator is model for estimator, _ in heard)
    assert [record for _, record in heard] == model.history_
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)
    assert model.n_iter_ == sum(record["stage"] == "fit" for record in model.history_)


@pytest.mark.parametrize("kind", ["linear", "affine", "deep"])
def test_only_true_ends_a_fit_and_all_callbacks_are_called(kind):
    heard = []

    def stop(_, record):
        return record["stage"] == "fit"

    def count(_, record):
        heard.append(record)
        return len(heard)  # truthy, but not True

    model = make(kind, tol=0.0, callbacks=(stop, count)).fit(MAKERS[kind][1])
    assert model.n_iter_ == 1
    assert len(heard) == len(model.history_)
    np.testing.assert_array_equal(model.labels_, model.predict(MAKERS[kind][1]))


@pytest.mark.parametrize("stage", ["search", "fit"])
@pytest.mark.parametrize("kind", ["linear", "affine", "deep"])
def test_a_fit_that_was_interrupted_leaves_no_model_and_can_be_repeated(kind, stage):
    armed = True

    def interrupt(_, record):
        if armed and record["stage"] == stage:
            raise KeyboardInterrupt

    model, X = make(kind, callbacks=[interrupt]), MAKERS[kind][1]
    for samples in (X, X + 1, X[:, :6]):
        with pytest.raises(KeyboardInterrupt):
            model.fit(samples)
        with pytest.raises(NotFittedError):
            model.predict(X)
    armed = False
    np.testing.assert_array_equal(model.fit(X).labels_, fitted(kind).labels_)


def test_a_second_fit_has_nothing_of_the_first(kind, tmp_path):
    X = MAKERS[kind][1]
    model = make(kind).fit(X[:60])
    first = model.predict(X)
    with pytest.raises(KscnError):
        model.fit(tmp_path / "nothing")  # samples that cannot be opened
    np.testing.assert_array_equal(model.predict(X), first)
    with pytest.raises(InputError):
        model.fit(np.full_like(X, np.nan))
    np.testing.assert_array_equal(model.predict(X), first)  # a fit that fails has set nothing
    np.testing.assert_array_equal(model.fit(X).labels_, fitted(kind).labels_)
    assert len(model.history_) == len(fitted(kind).history_)


@pytest.mark.filterwarnings("default:.*clusters ended up empty")
def test_more_clusters_than_distinct_samples_are_warned_of(kind):
    X = np.repeat(MAKERS[kind][1][:3], 20, axis=0)
    with pytest.warns(ConvergenceWarning, match="of the 5 clusters ended up empty"):
        model = make(kind, n_clusters=5, **{} if kind == "plus" else {"subspace_dim": 1}).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
