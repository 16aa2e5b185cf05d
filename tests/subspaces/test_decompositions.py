"""Decompositions by one thread per matrix: what torch finds, and what threads are left with."""

import pytest
import torch

from kscn.subspaces.decompositions import LARGE, eigh, eigvalsh, orthonormal


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def symmetric(*shape):
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return found @ found.mT


@pytest.mark.parametrize("shape", [(5, 5), (3, 7, 7), (LARGE, LARGE), (2, 2, LARGE, LARGE)])
def test_vectors_and_values_make_the_matrix(threads, shape):
    matrices = symmetric(*shape)
    values, vectors = eigh(matrices)
    torch.testing.assert_close((vectors * values[..., None, :]) @ vectors.mT, matrices)
    torch.testing.assert_close(values, torch.linalg.eigvalsh(matrices))
    torch.testing.assert_close(eigvalsh(matrices), values)
    assert torch.get_num_threads() == threads


def test_the_number_of_threads_changes_no_bit(threads):
    matrices = symmetric(3, LARGE, LARGE)
    found = eigh(matrices), orthonormal(matrices[..., :9])
    torch.set_num_threads(1)
    again = eigh(matrices), orthonormal(matrices[..., :9])
    assert all(torch.equal(a, b) for a, b in zip(found[0], again[0], strict=True))
    assert torch.equal(found[1], again[1])


def test_a_failure_leaves_the_threads_as_they_were(threads):
    with pytest.raises(RuntimeError, match="square"):
        eigh(torch.zeros(2, LARGE, LARGE + 1))
    assert torch.get_num_threads() == threads
