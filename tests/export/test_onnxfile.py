"""The ONNX file gives what the model gives: run by onnxruntime, sample by sample."""

from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_iris

from kscn import KSCN, KSCNPlus, KSubspaces, data
from kscn.errors import InputError, ModelFileError

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from kscn.export.onnxfile import compare, onnx_bytes  # noqa: E402
from kscn.features import scattering_steps  # noqa: E402

SMALL = {"pretrain_epochs": 6, "epochs": 1, "n_init": 1, "batch_size": 128, "random_state": 0}
# Normalised between layers, so that no unit dies and no two subspaces coincide.
CAE = {"autoencoder_params": {"channels": [8, 4], "kernels": [3, 3], "batch_norm": True}}
SAE = {"autoencoder": "sae", "autoencoder_params": {"hidden": [32], "latent_dim": 12}}
PLUS = {"starts": 1, "random_state": 0}
MODELS = {
    "cae": lambda: KSCN(10, subspace_dim=3, **CAE, **SMALL),
    "cae whitened": lambda: KSCN(
        10, subspace_dim=3, latent="whitened", latent_dim=9, loss="separation", **CAE, **SMALL
    ),
    "sae": lambda: KSCN(10, subspace_dim=3, **SAE, **SMALL),
    "linear": lambda: KSubspaces(10, subspace_dim=3, n_init=1, random_state=0),
    "affine": lambda: KSubspaces(
        10, subspace_dim=[1, 2, 3, 3, 3, 3, 3, 3, 4, 4], affine=True, n_init=1, random_state=0
    ),
    "plus, refined": lambda: KSCNPlus(10, epochs=4, batch_size=64, refine=True, **PLUS),
}


@pytest.fixture(scope="session")
def images():
    return np.asarray(data.load("digits").samples)


@pytest.fixture(scope="session")
def fitted(images):
    """fitted(name) -> that model; a third of the digits is enough."""
    return cache(lambda name: MODELS[name]().fit(images[::3]))


def run(content, samples):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {"samples": samples})


@pytest.mark.parametrize("name", MODELS)
def test_all_digits_get_the_labels_residuals_and_posteriors_of_the_model(images, fitted, name):
    model = fitted(name)
    content = onnx_bytes(model, images.shape[1:])
    label, residuals, probabilities = run(content, images.astype(np.float32))
    np.testing.assert_array_equal(label, model.predict(images))
    expected = model.residuals(images)
    np.testing.assert_allclose(residuals, expected, rtol=1e-3, atol=2e-5 * expected.max())
    np.testing.assert_allclose(probabilities, model.predict_proba(images), atol=2e-3)
    agreement = compare(content, model, images[:50])
    assert (agreement.samples, agreement.ties) == (50, 0)
    assert agreement.error < 1e-4


def test_principal_components_of_vectors_are_in_the_graph(images):
    vectors = images.reshape(len(images), -1).astype(np.float32)
    model = KSCNPlus(10, starts=2, random_state=0).fit(vectors[::3])
    content = onnx_bytes(model, (64,))
    label, residuals, probabilities = run(content, vectors)
    np.testing.assert_array_equal(label, model.predict(vectors))
    # Two neighbours that are as far as each other may change places as the last one that votes.
    assert (np.abs(residuals - model.residuals(vectors)) > 1e-5).mean() < 1e-3
    np.testing.assert_allclose(residuals, model.residuals(vectors), atol=1e-2)
    np.testing.assert_allclose(probabilities, model.predict_proba(vectors), atol=1e-2)


def test_points_are_in_the_graph_too():
    vectors = load_iris().data.astype(np.float32)
    model = KSCNPlus(3, random_state=0).fit(vectors)
    label, residuals, _ = run(onnx_bytes(model, (4,)), vectors)
    np.testing.assert_array_equal(label, model.predict(vectors))
    np.testing.assert_allclose(residuals, model.residuals(vectors), atol=1e-6)


def test_scattering_without_a_network_is_refused(images):
    model = KSCNPlus(10, refine=False, **PLUS).fit(images[:300])
    model.model_.steps = scattering_steps(images.shape[1:])
    with pytest.raises(InputError, match="refine=True"):
        onnx_bytes(model, (8, 8))


def test_any_number_of_samples_goes_through_at_once(images, fitted):
    model = fitted("linear")
    content = onnx_bytes(model, (8, 8))
    label = model.predict(images)
    for count in (1, 3, 500):
        np.testing.assert_array_equal(run(content, images[:count].astype("f"))[0], label[:count])


def test_vectors_in_double_precision_keep_what_float32_would_lose():
    rng = np.random.default_rng(0)
    samples = 1e6 + np.concatenate([rng.normal(size=(60, 1)) * [1, 0, 0, 0],
                                    rng.normal(size=(60, 1)) * [0, 1, 1, 0]])  # fmt: skip
    samples += 1e-3 * rng.normal(size=samples.shape)
    model = KSubspaces(2, subspace_dim=1, affine=True, random_state=0).fit(samples)
    label, residuals, _ = run(onnx_bytes(model, (4,), "float64"), samples)
    np.testing.assert_array_equal(label, model.labels_)
    assert residuals.dtype == np.float64
    np.testing.assert_allclose(residuals, model.residuals(samples), rtol=1e-4, atol=1e-8)


def test_another_model_is_told_apart(images):
    some = images[:200]
    one, other = (
        KSubspaces(10, subspace_dim=2, init="k-means", n_init=1, random_state=s) for s in (0, 1)
    )
    content = onnx_bytes(one.fit(some), (8, 8))
    with pytest.raises(ModelFileError, match="another cluster"):
        compare(content, other.fit(some), some)
