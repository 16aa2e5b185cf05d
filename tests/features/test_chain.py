"""Feature maps one after the other: the same as by hand, read lazily, saved as one."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline

from kscn.errors import InputError, ModelFileError
from kscn.features import FeatureChain, PCAFeatures, ScatteringFeatures
from kscn.modelfile import read_model, write_model

X = load_digits().images[:120].astype(np.float32)


@pytest.fixture(scope="module")
def fitted():
    scattering = ScatteringFeatures(J=1, L=4).fit(X)
    return FeatureChain.of_fitted([scattering, PCAFeatures(10).fit(scattering.transform(X))])


def test_a_chain_does_what_its_steps_do(fitted):
    pipeline = make_pipeline(ScatteringFeatures(J=1, L=4), PCAFeatures(10))
    np.testing.assert_array_equal(pipeline.fit_transform(X), fitted.transform(X))
    maps = fitted.steps[0].transform(X)
    np.testing.assert_array_equal(fitted.rest().transform(maps), fitted.transform(X))


def test_a_model_file_holds_a_chain(tmp_path, fitted):
    config, arrays = fitted.state()
    write_model(tmp_path / "model", "FeatureChain", json.loads(json.dumps(config)), arrays)
    stored = read_model(tmp_path / "model")
    again = FeatureChain.from_state(stored.params, stored.tensors)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    with pytest.raises(InputError, match="shape"):
        again.transform(X[:, :7])


@pytest.mark.parametrize(
    "steps", [[], None, ["pca"], [{"kind": "pca"}], [{"kind": "pickle"}], [{"kind": "x" * 10_000}]]
)
def test_a_damaged_state_is_refused(steps):
    with pytest.raises(ModelFileError, match="does not describe a") as refusal:
        FeatureChain.from_state({"steps": steps}, {})
    assert len(str(refusal.value)) < 500


def test_steps_that_do_not_fit_together_are_refused(fitted):
    config, arrays = fitted.state()
    config["steps"].insert(1, config["steps"][0])  # images are scattered once and first
    with pytest.raises(ModelFileError, match="step 1 takes"):
        FeatureChain.from_state(config, arrays)
    config, arrays = fitted.state()
    config["steps"][0]["shape"] = [16, 16]
    with pytest.raises(ModelFileError, match=r"step 1 takes \(80,\), but gets 320 numbers"):
        FeatureChain.from_state(config, arrays)
