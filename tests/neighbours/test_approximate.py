"""Neighbours by an index: nearly those of the exact search, the same every time."""

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from kscn.errors import InputError
from kscn.neighbours import nearest


@pytest.fixture
def faiss():
    return pytest.importorskip("faiss", reason="the extra `index` is not installed")


def samples(kind):
    if kind == "digits":
        return torch.tensor(load_digits().data, dtype=torch.float32)
    return torch.randn(6000, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("metric", ["distance", "cosine"])
@pytest.mark.parametrize("kind", ["digits", "noise"])
def test_nearly_all_neighbours_are_found(faiss, kind, metric):
    z = samples(kind)
    exact, found = (nearest(z, 15, metric, index) for index in ("exact", "approximate"))
    alike = (found.index[:, :, None] == exact.index[:, None, :]).any(dim=2)
    assert alike.float().mean() >= 0.95
    own = torch.arange(len(z))[:, None]
    assert (found.index != own).all() and (found.index >= 0).all()
    assert (found.closeness.diff(dim=1) <= 1e-5).all()  # nearest first
    same = found.index == exact.index
    torch.testing.assert_close(
        found.closeness[same], exact.closeness[same], rtol=1e-4, atol=1e-2 if kind == "digits" and
        metric == "distance" else 1e-4,
    )  # fmt: skip


def test_a_seed_repeats_the_result(faiss):
    z = samples("noise")
    one, two = (nearest(z, 10, index="approximate", seed=3) for _ in range(2))
    assert torch.equal(one.index, two.index)
    assert torch.equal(one.closeness, two.closeness)


@pytest.mark.parametrize("z", [torch.ones(40, 3), torch.eye(5), torch.zeros(2, 4)])
def test_few_samples_and_equal_ones_have_all_their_neighbours(faiss, z):
    found = nearest(z, 10, index="approximate")
    assert found.index.shape == (len(z), min(10, len(z) - 1))
    for number, row in enumerate(found.index.tolist()):
        assert number not in row
        assert len(set(row)) == len(row)
        assert min(row) >= 0


def test_a_far_cell_with_few_members_is_filled_up(faiss):
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=(4000, 4)), 1000 + rng.normal(size=(3, 4))])
    found = nearest(torch.tensor(z, dtype=torch.float32), 200, index="approximate")
    assert (found.index >= 0).all()
    assert set(found.index[4000, :2].tolist()) == {4001, 4002}


def test_what_an_index_cannot_do_is_said(monkeypatch):
    z = torch.eye(4)
    with pytest.raises(InputError, match="knows the metrics distance and cosine"):
        nearest(z, 2, "absolute cosine", index="approximate")
    with pytest.raises(ValueError, match="index='fast' must be 'exact' or 'approximate'"):
        nearest(z, 2, index="fast")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"pip install 'kscn\[index\]'"):
        nearest(z, 2, index="approximate")
