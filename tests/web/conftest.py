"""Small fitted models and ways to ask them over HTTP, without a network."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kscn import KSubspaces, data


@pytest.fixture(autouse=True)
def loops_of_their_own(monkeypatch):
    """asyncio.run in another thread: a browser test may have left a running loop in this one."""
    run = asyncio.run

    def elsewhere(coroutine, **options):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(run, coroutine, **options).result()

    monkeypatch.setattr(asyncio, "run", elsewhere)


@pytest.fixture(scope="session")
def images():
    """120 handwritten digits, (120, 8, 8)."""
    return np.asarray(data.load("digits").samples)[:120].astype(np.uint8)


@pytest.fixture(scope="session")
def model(images):
    """k-subspaces fitted on the images."""
    return KSubspaces(4, subspace_dim=3, n_init=1, random_state=0).fit(images)
