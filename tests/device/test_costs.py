"""What a fit costs in waits and copies, counted on the simulated device."""

import fits
import numpy as np
import pytest
from simulated import COSTS

from kscn import KSCN, KSCNPlus

# The bar is 0.1 waits per step. 60,000 samples in batches of 256 make 234 steps per epoch. Here are
# far fewer: an epoch of few steps may have the waits of a whole one, and more steps no more.
WAITS_PER_EPOCH = 0.1 * 234
BATCH = 8
PLAIN = {"latent": "identity", "loss": "residual", "augment": None, "weight": 0.08}


def costs(steps, device, **settings):
    """Waits of the last epoch of each stage, and numbers that it copied to the host."""
    found = {}

    def count(_, record):
        found[record["stage"]] = COSTS.synchronisations, sum(map(np.prod, COSTS.to_host))
        COSTS.clear()

    KSCN(
        3,
        subspace_dim=2,
        n_init=1,
        pretrain_epochs=2,
        epochs=2,
        tol=0,
        batch_size=BATCH,
        autoencoder_params={"hidden": [8], "latent_dim": 6},
        device=device,
        random_state=0,
        callbacks=[count],
        **settings,
    ).fit(fits.planes()[: steps * BATCH])
    return found["pretrain"], found["fit"]


@pytest.mark.parametrize(
    "settings",
    [
        {"update": "svd", **PLAIN},
        {"update": "grassmann", **PLAIN},
        {"loss": "separation", "latent": "whitened", "latent_dim": 6, "augment": "noise"},
    ],
    ids=lambda settings: next(iter(settings.values())),
)
def test_a_device_seldom_waits_and_keeps_its_latents(settings, simgpu):
    few, more = (costs(steps, simgpu, **settings) for steps in (10, 20))
    for (waits, _), (more_waits, numbers) in zip(few, more, strict=True):
        assert more_waits <= WAITS_PER_EPOCH
        assert more_waits - waits <= 3  # where residuals are computed anew, there is another wait
        assert numbers <= 20 * BATCH * 6  # all latents, once


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_refinement_seldom_waits(simgpu):
    """On average: every second epoch looks at the other view."""
    waits = []

    def count(_, record):
        if record["stage"] == "fit":
            waits.append(COSTS.synchronisations)
        COSTS.clear()

    noise = np.random.default_rng(0).normal(0, 90, fits.many_images().shape)
    samples = (fits.many_images() + noise).astype(np.float32)
    settings = {"starts": 1, "refine": True, "epochs": 4, "batch_size": 96, "random_state": 0}
    KSCNPlus(4, device=simgpu, callbacks=[count], **settings).fit(samples)
    assert len(waits) == 4
    assert np.mean(waits[-2:]) <= WAITS_PER_EPOCH
