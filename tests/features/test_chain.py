"""Feature maps one after the other: the same as by hand, in bounded memory, saved as one."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline

from kscn.errors import InputError, ModelFileError
from kscn.features import FeatureChain, PCAFeatures, ScatteringFeatures, chain
from kscn.modelfile import read_model, write_model

X = load_digits().images[:120].astype(np.float32)


def make(n_components=10, **params):
    return FeatureChain([ScatteringFeatures(J=1, L=4), PCAFeatures(n_components, **params)])


@pytest.fixture(scope="module")
def fitted():
    return make().fit(X)


def test_a_chain_does_what_its_steps_do(fitted):
    maps = ScatteringFeatures(J=1, L=4).fit_transform(X)
    expected = PCAFeatures(10).fit_transform(maps)
    np.testing.assert_array_equal(fitted.transform(X), expected)
    np.testing.assert_array_equal(make().fit_transform(X), expected)
    pipeline = make_pipeline(ScatteringFeatures(J=1, L=4), PCAFeatures(10))
    np.testing.assert_array_equal(pipeline.fit_transform(X), expected)


def test_features_too_large_to_keep_are_computed_again(fitted, monkeypatch):
    monkeypatch.setattr(chain, "KEEP_BYTES", 0)
    np.testing.assert_array_equal(make().fit_transform(X), fitted.transform(X))


def test_features_are_computed_once_where_they_can_be_kept(monkeypatch):
    calls = []
    compute = ScatteringFeatures._apply
    monkeypatch.setattr(
        ScatteringFeatures, "_apply", lambda *a: calls.append(len(a[1])) or compute(*a)
    )
    make().fit_transform(X)
    assert sum(calls) == len(X)


def test_features_can_be_read_lazily(fitted):
    source = fitted.source(X)
    assert (len(source), source.shape) == (120, (10,))
    np.testing.assert_array_equal(source.take([9, 2]), fitted.transform(X)[[9, 2]])


def test_a_model_file_holds_a_chain(tmp_path, fitted):
    config, arrays = fitted.state()
    write_model(tmp_path / "model", "FeatureChain", json.loads(json.dumps(config)), arrays)
    stored = read_model(tmp_path / "model")
    again = FeatureChain.from_state(stored.params, stored.tensors)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    with pytest.raises(InputError, match="shape"):
        again.transform(X[:, :7])


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"steps": []},
        {"steps": [{"kind": "pickle"}]},
        {"steps": [{"kind": "pca"}]},
        {"steps": ["pca"]},
        {"steps": None},
    ],
)
def test_a_damaged_state_is_refused(config):
    with pytest.raises(ModelFileError, match="does not describe a"):
        FeatureChain.from_state(config, {})


def test_steps_that_do_not_fit_together_are_refused(fitted):
    config, arrays = fitted.state()
    config["steps"][0]["shape"] = [16, 16]
    with pytest.raises(ModelFileError, match=r"step 1 takes \(80,\), but gets 320 numbers"):
        FeatureChain.from_state(config, arrays)


def test_images_are_scattered_once_and_first(fitted):
    config, arrays = fitted.state()
    config["steps"].insert(1, config["steps"][0])
    with pytest.raises(ModelFileError, match="step 1 takes"):
        FeatureChain.from_state(config, arrays)


def test_steps_that_are_set_after_the_fit_change_nothing(fitted):
    chain = FeatureChain.of_fitted(fitted.steps)
    before, state = chain.transform(X), chain.state()[0]
    chain.set_params(steps=[PCAFeatures(2)])
    np.testing.assert_array_equal(chain.transform(X), before)
    assert chain.state()[0] == state


@pytest.mark.parametrize("steps", [[], [PCAFeatures], ["pca"], [PCAFeatures(), None]])
def test_other_steps_are_refused(steps):
    with pytest.raises(InputError, match="steps must be"):
        FeatureChain(steps).fit(X)


def test_a_clone_is_independent(fitted):
    before = fitted.transform(X)
    copy = clone(fitted)
    copy.fit(X[:50])
    np.testing.assert_array_equal(fitted.transform(X), before)


def test_labels_change_nothing(fitted):
    y = load_digits().target[:120]
    np.testing.assert_array_equal(make().fit(X, y).transform(X), fitted.transform(X))


def test_a_long_name_in_a_damaged_state_does_not_fill_the_message():
    config = {"steps": [{"kind": "x" * 10_000}]}
    with pytest.raises(ModelFileError) as refusal:
        FeatureChain.from_state(config, {})
    assert len(str(refusal.value)) < 500
