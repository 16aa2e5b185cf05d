"""A cache of its own for every test."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Where this test keeps pretrained networks, and finds none of another."""
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pretrained"
