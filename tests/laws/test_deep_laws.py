"""Laws of `KSCN` that hold for any samples, any shape and any setting."""

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn import KSCN, load_model

few = settings(max_examples=6)


@st.composite
def samples(draw):
    """Images or vectors of any size and type, some of them equal."""
    n = draw(st.integers(12, 50))
    shape = draw(st.sampled_from([(4, 4), (5, 9), (1, 6, 4), (3, 5, 5), (2, 4, 7), (6,), (13,)]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    X = rng.random((n, *shape)) * 10.0 ** draw(st.integers(-3, 3))
    X[1] = X[0]
    dtype = draw(st.sampled_from([np.uint8, np.float32, np.float64]))
    return (X / X.max() * 255).astype(dtype) if dtype == np.uint8 else X.astype(dtype)


@st.composite
def models(draw):
    whitened = draw(st.booleans())
    return {
        "n_clusters": draw(st.integers(1, 4)),
        "subspace_dim": 1,
        "update": draw(st.sampled_from(["svd", "grassmann"])),
        "loss": draw(st.sampled_from(["residual", "separation"])),
        "latent": "whitened" if whitened else "identity",
        "latent_dim": 4,
        "init": draw(st.sampled_from(["k-subspaces", "k-means"])),
        "trim": draw(st.sampled_from([0.0, 0.1])),
        "batch_size": draw(st.sampled_from([1, 7, 64])),
        "random_state": draw(st.integers(0, 10**6)),
        "pretrain_epochs": 1,
        "epochs": 1,
        "n_init": 1,
    }


def fitted(X, params):
    network = {"hidden": [8], "latent_dim": 4}
    if X.ndim > 2:
        # Signed latents: with so few ReLUs and no training some would be zero for everyone.
        network = {"channels": [6, 3], "kernels": [3, 3], "batch_norm": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KSCN(autoencoder_params=network, **params).fit(X)


@few
@given(samples(), models(), st.data())
def test_labels_are_predictions_and_answers_are_a_samples_own(X, params, data):
    model = fitted(X, params)
    k = params["n_clusters"]
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert 0 <= model.labels_.min() <= model.labels_.max() < k
    gram = model.subspaces_.transpose(0, 2, 1) @ model.subspaces_
    np.testing.assert_allclose(gram, np.ones((k, 1, 1)), atol=1e-5)
    rows = data.draw(st.lists(st.integers(0, len(X) - 1), min_size=1, max_size=60))
    for method in ("predict", "transform", "residuals", "reconstruct"):
        call = getattr(model, method)
        np.testing.assert_array_equal(call(X[rows]), call(X)[rows])
    np.testing.assert_array_equal(model.labels_[0], model.labels_[1])  # equal samples


@few
@given(samples(), models())
def test_the_same_seed_gives_the_same_model(X, params):
    one, other = fitted(X, params), fitted(X, params)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.subspaces_, other.subspaces_)
    np.testing.assert_array_equal(one.transform(X), other.transform(X))


@few
@given(samples(), models())
def test_a_saved_model_is_the_same_model(X, params):
    import tempfile

    model = fitted(X, params)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        loaded = load_model(f"{folder}/model")
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)


@few
@given(samples(), models())
def test_images_in_any_layout_of_memory_are_the_same_images(X, params):
    model = fitted(X, params)
    turned = np.asfortranarray(X)
    turned.flags.writeable = False
    np.testing.assert_array_equal(fitted(turned, params).labels_, model.labels_)
    np.testing.assert_array_equal(model.transform(turned), model.transform(X))


@few
@given(samples(), models())
def test_distances_and_posteriors_agree(X, params):
    model = fitted(X, params)
    z, residual = model.transform(X).astype(np.float64), model.residuals(X)
    energy = (z**2).sum(axis=1)
    assert (residual >= 0).all()
    assert (residual <= energy[:, None] * (1 + 1e-4) + 1e-12).all()
    posterior = model.predict_proba(X)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    chosen = np.take_along_axis(posterior, model.predict(X)[:, None], axis=1)[:, 0]
    np.testing.assert_array_equal(chosen, posterior.max(axis=1))
    np.testing.assert_array_equal(model.score_samples(X), -residual.min(axis=1))
