"""Whole fits on a device that refuses whatever CUDA refuses: labels are those of the CPU."""

import fits
import numpy as np
import pytest
import torch


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("fit", fits.LINEAR + fits.DEEP + fits.PLUS, ids=lambda fit: fit.__name__)
def test_fits_end_as_on_the_cpu(fit, fitted, cpu):
    model, samples = fitted(fit)
    expected, _ = cpu(fit)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    for call in fits.CALLS:
        found, wanted = (getattr(each, call)(samples) for each in (model, expected))
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4, err_msg=call)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", fits.BASELINES)
def test_baselines_end_as_on_the_cpu(name, simgpu):
    model, samples = fits.baseline(name, simgpu)
    expected, _ = fits.baseline(name, "cpu")
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    if hasattr(model, "predict"):
        np.testing.assert_array_equal(model.predict(samples), model.labels_)


def test_images_grow_and_are_refined(fitted):
    model, _ = fitted(fits.plus_on_images)
    assert {"search", "fit"} <= {record["stage"] for record in model.history_}


def test_a_fit_on_the_cpu_leaves_the_generators_of_other_devices_alone(simgpu):
    device = torch.get_device_module(simgpu)
    before = device.get_rng_state()
    fits.svd_on_vectors("cpu")
    assert torch.equal(device.get_rng_state(), before)
