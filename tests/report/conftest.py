"""Small fitted models and what a run directory says about them."""

import numpy as np
import pytest

from kscn import KSCNPlus, KSubspaces
from kscn.data import Dataset, as_source
from kscn.report.contents import RunFacts


@pytest.fixture(scope="session")
def planes():
    """Three planes in eight dimensions, 120 samples: (samples, labels)."""
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.standard_normal((3, 8, 2)))[0]
    labels = np.repeat([0, 1, 2], [60, 40, 20])
    samples = np.einsum("nij,nj->ni", bases[labels], rng.standard_normal((120, 2)))
    return (samples + 0.01 * rng.standard_normal(samples.shape)).astype(np.float32), labels


@pytest.fixture(scope="session")
def linear(planes):
    """k-subspaces fitted on the planes."""
    return KSubspaces(3, subspace_dim=2, random_state=0).fit(planes[0])


@pytest.fixture(scope="session")
def bars():
    """120 images of 12 x 12: a bar that stands or lies, at some place and of some brightness."""
    rng = np.random.default_rng(0)
    images = np.zeros((120, 12, 12), dtype=np.float32)
    for i, (place, bright) in enumerate(zip(rng.integers(2, 9, 120), rng.random(120), strict=True)):
        lying = np.zeros((12, 12))
        lying[place : place + 2] = 0.5 + 0.5 * bright
        images[i] = lying if i % 3 else lying.T
    return images + 0.02 * rng.random(images.shape, dtype=np.float32)


@pytest.fixture(scope="session")
def refined(bars):
    """A KSCNPlus with an encoder, fitted on the bars."""
    return KSCNPlus(2, starts=1, epochs=3, refine=True, random_state=0).fit(bars)


@pytest.fixture
def run_of():
    """run_of(model, samples) -> (facts of a run, data set), as `kscn fit` would leave them."""

    def make(model, samples, labels=None, *, name="data", method="k-subspaces"):
        found = np.asarray(model.labels_)
        k = model.n_clusters
        config = {
            "run": {"method": method, "preset": None, "kscn": "0", "created": "today"},
            "data": {
                "source": name,
                "name": name,
                "samples": len(samples),
                "shape": list(samples.shape[1:]),
            },
            "parameters": {"n_clusters": k},
        }
        result = {
            "stage": "done",
            "objective": 1.0,
            "iterations": 3,
            "seconds": 1.5,
            "seed": 0,
            "sizes": np.bincount(found, minlength=k).tolist(),
            "dims": np.asarray(getattr(model, "subspace_dims_", ())).tolist(),
            "scores": None,
        }
        if hasattr(model, "tried_"):
            result["chosen"] = {**model.tried_, "refined": model.encoder_ is not None}
        history = [*getattr(model, "history_", []), result]
        facts = RunFacts(config, history, found, model)
        return facts, Dataset(as_source(samples, name), labels, name)

    return make


@pytest.fixture
def quick_map(monkeypatch):
    """PCA in place of t-SNE, as where openTSNE is not installed."""
    monkeypatch.setattr("kscn.report.map._tsne", lambda: None)
