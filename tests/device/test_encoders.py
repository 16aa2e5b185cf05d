"""An encoder on a device that refuses whatever CUDA refuses: embeddings are those of the CPU."""

import numpy as np
import tinyencoder
import torch

from kscn import KSCNPlus
from kscn.features.encoders import load_encoder

IMAGES, _ = tinyencoder.photographs(40)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 6, 8, stride=8), torch.nn.ReLU())


def test_embeddings_and_labels_are_those_of_the_cpu(simgpu, tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path))
    expected = load_encoder(network(), size=16).embed(IMAGES, cache=False)
    encoder = load_encoder(network(), size=16).to(torch.device(simgpu))
    np.testing.assert_allclose(encoder.embed(IMAGES, cache=False), expected, rtol=2e-3, atol=1e-3)
    settings = {"starts": 1, "random_state": 0}
    model = KSCNPlus(3, encoder=encoder, device=simgpu, **settings).fit(IMAGES)
    own = load_encoder(network(), size=16)
    assert (model.labels_ == KSCNPlus(3, encoder=own, **settings).fit(IMAGES).labels_).all()
    assert (model.predict(IMAGES) == model.labels_).all()
