"""`descend`: the gradient step of kSCN-G, with its step size found by trying."""

import numpy as np
import pymanopt.manifolds
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn.subspaces import (
    ScatterSums,
    Subspaces,
    largest_turn,
    principal_angles,
    retract,
    tangent,
)
from kscn.subspaces.grassmann import descend


def randn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def bases_at(k=3, d=9, p=2, seed=0):
    return torch.linalg.qr(randn(k, d, p, seed=seed)).Q


def scatter_of(k=3, d=9, n=40, seed=1):
    z = randn(k, n, d, seed=seed) @ randn(k, d, d, seed=seed + 1)
    return z.mT @ z


def lost(scatter, bases):
    """Sum of squared distances to each subspace: trace(A) - trace(S^T A S), shape (k,)."""
    return scatter.diagonal(dim1=1, dim2=2).sum(1) - (bases * (scatter @ bases)).sum(dim=(1, 2))


def leading(scatter, p):
    return torch.linalg.eigh(scatter).eigenvectors[..., -p:]


@st.composite
def problems(draw):
    k, d = draw(st.integers(1, 3)), draw(st.integers(2, 8))
    p, n = draw(st.integers(1, d - 1)), draw(st.integers(0, 12))
    seed = draw(st.integers(0, 10**6))
    scale = 10.0 ** draw(st.integers(-8, 8))
    z = scale * randn(k, n, d, seed=seed)
    return z.mT @ z, bases_at(k, d, p, seed + 1)


@settings(max_examples=60)
@given(problems())
def test_the_objective_never_rises_and_bases_stay_orthonormal(problem):
    scatter, bases = problem
    moved = descend(scatter, bases)
    total = scatter.diagonal(dim1=1, dim2=2).sum(1)
    assert (lost(scatter, moved) <= lost(scatter, bases) + 1e-12 * total).all()
    identity = torch.eye(bases.shape[2], dtype=torch.float64).expand(len(bases), -1, -1)
    torch.testing.assert_close(moved.mT @ moved, identity)


def test_the_objective_falls_away_from_the_optimum_and_steps_reach_it():
    scatter, bases = scatter_of(), bases_at()
    best = lost(scatter, leading(scatter, 2))
    before = lost(scatter, bases)
    for _ in range(200):
        bases = descend(scatter, bases)
        now = lost(scatter, bases)
        far = before > best * (1 + 1e-6)
        assert (now[far] < before[far]).all()
        before = now
    torch.testing.assert_close(before, best, rtol=1e-6, atol=0)
    assert principal_angles(bases, leading(scatter, 2)).max() < 1e-3


def test_the_optimum_is_left_where_it_is():
    scatter = scatter_of()
    best = leading(scatter, 2)
    assert largest_turn(best, descend(scatter, best)).max() < 1e-6


def test_the_step_is_along_pymanopts_gradient():
    scatter, bases = scatter_of(k=1), bases_at(k=1)
    manifold = pymanopt.manifolds.Grassmann(9, 2)
    euclidean = (-2 * scatter @ bases)[0].numpy()
    gradient = manifold.euclidean_to_riemannian_gradient(bases[0].numpy(), euclidean)
    moved = descend(scatter, bases)[0]
    # The QR retraction of S - t G spans the same as S - t G: the span says what t was.
    away = moved - bases[0] @ (bases[0].T @ moved)
    step = away @ torch.linalg.inv(bases[0].T @ moved)
    cosine = -(step.numpy() * gradient).sum() / np.linalg.norm(step) / np.linalg.norm(gradient)
    assert cosine == pytest.approx(1, abs=1e-10)
    norm = np.linalg.norm(step) / np.linalg.norm(gradient)
    expected = manifold.retraction(bases[0].numpy(), -norm * gradient)
    torch.testing.assert_close(moved @ moved.T, torch.from_numpy(expected @ expected.T))


def test_the_step_is_nearly_as_good_as_an_exact_line_search():
    scatter, bases = scatter_of(k=1), bases_at(k=1)
    downhill = -tangent(bases, -2 * scatter @ bases)
    unit = 1 / float(torch.linalg.matrix_norm(scatter, ord=2))
    tried = [retract(bases, t * unit * downhill) for t in np.geomspace(1e-3, 1e3, 400)]
    exact = min(float(lost(scatter, one)) for one in tried)
    start, found = float(lost(scatter, bases)), float(lost(scatter, descend(scatter, bases)))
    assert start - found > 0.9 * (start - exact)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e12])
def test_the_scale_of_the_latents_does_not_matter(scale):
    scatter, bases = scatter_of(), bases_at()
    one, other = descend(scatter, bases), descend(scale * scatter, bases)
    torch.testing.assert_close(one @ one.mT, other @ other.mT)


def test_a_cluster_without_members_stays_and_the_others_do_not_notice():
    scatter, bases = scatter_of(), bases_at()
    together = descend(scatter, bases)
    scatter[1] = 0
    without = descend(scatter, bases)
    assert torch.equal(without[1], bases[1])
    assert torch.equal(without[[0, 2]], together[[0, 2]])


def test_members_orthogonal_to_the_subspace_have_no_gradient():
    bases = torch.eye(6, dtype=torch.float64)[None, :, :2]
    z = torch.zeros(5, 6, dtype=torch.float64)
    z[:, 4] = 1
    assert torch.equal(descend((z.T @ z)[None], bases), bases)


def test_subspaces_of_several_dimensions_keep_theirs():
    bases = bases_at(p=3)
    bases[0, :, 2:] = 0
    bases[1, :, 1:] = 0
    scatter = scatter_of()
    moved = descend(scatter, bases)
    assert Subspaces(moved).dims.tolist() == [2, 1, 3]
    assert Subspaces(moved).fault() is None
    assert (lost(scatter, moved) < lost(scatter, bases)).all()
    alone = descend(scatter[:1], bases[:1, :, :2])
    torch.testing.assert_close(moved[0] @ moved[0].T, alone[0] @ alone[0].T)


def test_gathered_sums_hold_the_gradient_of_the_residuals():
    z, bases = randn(60, 9, seed=4), bases_at()
    labels, _ = Subspaces(bases).assign(z)
    sums = ScatterSums(3, 9, affine=False)
    for begin in range(0, 60, 25):  # mini-batches
        sums.add(z[begin : begin + 25], labels[begin : begin + 25])
    bases.requires_grad_()
    held = torch.einsum("ndp,nd->np", bases[labels], z).square().sum()  # |z|^2 - |z - S S^T z|^2
    torch.testing.assert_close(2 * sums.second @ bases, torch.autograd.grad(held, bases)[0])
