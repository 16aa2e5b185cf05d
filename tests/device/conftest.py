"""The simulated device, and each fit made once on the CPU."""

from functools import lru_cache

import pytest
import simulated


@lru_cache
def on_cpu(fit):
    """What a fit ends with on the CPU."""
    return fit("cpu")


@pytest.fixture(scope="session")
def simgpu():
    """The name of the simulated device."""
    if reason := simulated.unsupported():
        pytest.skip(reason)
    return simulated.NAME


@pytest.fixture(scope="session")
def cpu():
    """cpu(fit): what the fit ends with on the CPU."""
    return on_cpu


@pytest.fixture(scope="session")
def fitted(simgpu):
    """fitted(fit): what the fit ends with on the simulated device."""
    return lru_cache(lambda fit: fit(simgpu))
