"""Models and fits that go from one device to another, and fits that are gone on with there."""

import fits
import numpy as np
import pytest
from torch import nn

from kscn import KSCN, KSCNPlus, KSubspaces, load_model
from kscn.runtime.device import seeded


@pytest.mark.parametrize(
    "fit",
    [fits.affine, fits.svd_on_images, fits.plus_on_images, fits.plus_on_vectors],
    ids=lambda fit: fit.__name__,
)
def test_a_model_predicts_on_another_device(fit, simgpu, cpu, fitted, tmp_path):
    for model, samples in (fitted(fit), cpu(fit)):
        model.save(tmp_path / "model")
        assert simgpu not in (tmp_path / "model" / "manifest.json").read_text()
        loaded = load_model(tmp_path / "model")
        assert loaded.device == "auto"
        for device in ("cpu", simgpu):
            labels = loaded.set_params(device=device).predict(samples)
            np.testing.assert_array_equal(labels, model.labels_)
            np.testing.assert_array_equal(loaded.residuals(samples).argmin(axis=1), labels)


class HaltedError(Exception):
    """What ends a fit in place of a kill."""


def halt_after(stage, count):
    """A callback that ends the fit for good at the nth record of a stage."""
    left = [count]

    def callback(_, record):
        left[0] -= record["stage"] == stage
        if left[0] == 0:
            raise HaltedError

    return callback


class Dropping(nn.Module):
    """An autoencoder whose dropout draws from the device's own generator."""

    def __init__(self):
        super().__init__()
        self.down, self.up, self.drop = nn.Linear(8, 5), nn.Linear(5, 8), nn.Dropout(0.2)

    def encode(self, x):
        return self.down(self.drop(x))

    def decode(self, z):
        return self.up(z)


SHORT = {"n_init": 1, "pretrain_epochs": 2, "epochs": 2, "tol": 0.0, "batch_size": 60}
with seeded(0):  # weights that do not depend on the tests before
    DROPPING = {
        "autoencoder": Dropping(),
        "latent": "identity",
        "loss": "residual",
        "augment": None,
    }


@pytest.mark.parametrize(
    ("make", "samples", "stage"),
    [
        (lambda: KSubspaces(3, subspace_dim=2, n_init=1, tol=0, trim=0.1), fits.planes, "fit"),
        (lambda: KSCN(3, subspace_dim=2, **SHORT, **DROPPING), fits.planes, "fit"),
        (
            lambda: KSCNPlus(4, starts=2, refine=True, epochs=2, batch_size=32),
            fits.many_images,
            "fit",
        ),
    ],
    ids=["linear", "deep", "plus"],
)
def test_a_fit_goes_on_where_it_was(make, samples, stage, simgpu, tmp_path):
    shared = {"random_state": 0, "device": simgpu}
    whole = make().set_params(**shared).fit(samples())
    cut = make().set_params(**shared, checkpoint_dir=tmp_path, callbacks=[halt_after(stage, 2)])
    with pytest.raises(HaltedError):
        cut.fit(samples())
    resumed = make().set_params(**shared, checkpoint_dir=tmp_path).fit(samples())
    np.testing.assert_array_equal(resumed.labels_, whole.labels_)
    np.testing.assert_allclose(resumed.subspaces_, whole.subspaces_, atol=1e-5)
    # And on the other device: only the random numbers of layers are its own.
    elsewhere = make().set_params(random_state=0, device="cpu", checkpoint_dir=tmp_path)
    np.testing.assert_array_equal(elsewhere.fit(samples()).labels_, whole.labels_)
