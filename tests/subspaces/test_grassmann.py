"""The Grassmann manifold against pymanopt, scipy and automatic differentiation."""

import numpy as np
import pymanopt.manifolds
import pytest
import scipy.linalg
import torch

from kscn.subspaces import Subspaces, largest_turn, principal_angles, retract, tangent

K, D, P = 3, 9, 2
ORACLE = pymanopt.manifolds.Grassmann(D, P, k=K)


def randn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def point(seed=0, k=K, d=D, p=P):
    return torch.linalg.qr(randn(k, d, p, seed=seed)).Q


def direction(base, seed=1):
    return tangent(base, randn(*base.shape, seed=seed).to(base.dtype))


def projectors(bases):
    bases = torch.as_tensor(bases)
    return bases @ bases.mT


def pair_at(angles, d=12, seed=0):
    """Two bases whose principal angles are exactly `angles`."""
    p = len(angles)
    frame = point(seed, 1, d, 2 * p)[0]
    angles = torch.tensor(angles, dtype=torch.float64)
    turned = frame[:, :p] * angles.cos() + frame[:, p:] * angles.sin()
    mix = point(seed + 1, 1, p, p)[0]  # another basis of the same span
    return frame[:, :p], turned @ mix


# Against pymanopt ---------------------------------------------------------------------------------


def test_tangent_projection_agrees_with_pymanopt():
    base, vector = point(), randn(K, D, P, seed=5)
    expected = ORACLE.projection(base.numpy(), vector.numpy())
    np.testing.assert_allclose(tangent(base, vector), expected, atol=1e-14)


def test_retraction_reaches_the_span_that_pymanopt_reaches():
    base = point()
    step = direction(base)
    expected = ORACLE.retraction(base.numpy(), step.numpy())
    torch.testing.assert_close(projectors(retract(base, step)), projectors(expected))


# Angles -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "q"), [(3, 3), (4, 2), (2, 4), (1, 1)])
def test_principal_angles_agree_with_scipy(p, q):
    a, b = point(0, 5, 10, p), point(1, 5, 10, q)
    for one, other, angles in zip(a, b, principal_angles(a, b), strict=True):
        expected = scipy.linalg.subspace_angles(one.numpy(), other.numpy())[::-1]
        np.testing.assert_allclose(angles, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "angles",
    [
        [1e-7],
        [1e-7, 2e-7, 5e-6],
        [np.pi / 2 - 1e-7],
        [1e-7, 0.3, np.pi / 4, np.pi / 2 - 1e-7],
        [0.0, np.pi / 2],
    ],
)
def test_tiny_and_nearly_right_angles_keep_their_digits(angles):
    a, b = pair_at(angles)
    found = principal_angles(a, b)
    np.testing.assert_allclose(found, angles, rtol=1e-7, atol=3e-15)
    if max(angles) < np.pi / 4 or min(angles) > np.pi / 4:  # scipy loses mixtures of both kinds
        expected = scipy.linalg.subspace_angles(a.numpy(), b.numpy())[::-1]
        np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_angles_depend_on_the_spans_alone():
    a, b = point(0), point(1)
    mix = point(2, K, P, P)
    torch.testing.assert_close(principal_angles(a @ mix, b), principal_angles(a, b))


def test_largest_turn_is_the_norm_of_the_difference_of_projectors():
    a, b = point(0), point(1)
    expected = torch.linalg.matrix_norm(projectors(a) - projectors(b), ord=2)
    torch.testing.assert_close(largest_turn(a, b), expected)
    torch.testing.assert_close(largest_turn(a, b), principal_angles(a, b)[..., -1].sin())


def test_largest_turn_bounds_the_change_of_every_residual():
    a = point(0, 20, D, P)
    b = retract(a, 0.1 * direction(a))
    z = randn(50, D, seed=3)
    change = (Subspaces(a).residuals(z) - Subspaces(b).residuals(z)).abs()
    assert (change <= largest_turn(a, b) * z.square().sum(dim=1, keepdim=True) + 1e-13).all()


def test_largest_turn_sees_turns_as_small_as_1e_minus_7():
    a, b = pair_at([1e-9, 1e-7])
    assert float(largest_turn(a, b)) == pytest.approx(1e-7, rel=1e-6)


# Moving -------------------------------------------------------------------------------------------


def test_retraction_stays_orthonormal():
    base = point(0, 4, 30, 5)
    step = direction(base)
    for time in (1e-6, 0.3, 2.0, 50.0):
        assert Subspaces(retract(base, time * step)).fault(1e-13) is None


def test_float32_bases_stay_orthonormal_over_a_thousand_steps():
    bases = point(0, 4, 30, 5).float()
    for seed in range(1000):
        step = 0.1 * direction(bases, seed % 7)
        bases = retract(bases, step)
    assert Subspaces(bases).fault(1e-5) is None


def test_a_step_of_zero_stays():
    base = point()
    still = torch.zeros_like(base)
    torch.testing.assert_close(projectors(retract(base, still)), projectors(base))


# The gradient -------------------------------------------------------------------------------------


def labelled(n=60):
    z = randn(n, D, seed=7)
    return z, torch.arange(n) % K


def objective(bases, z, labels):
    """Sum of squared distances to the own subspace, written out."""
    own = bases[labels]
    inside = torch.einsum("ndp,nd->np", own, z)
    return (z - torch.einsum("ndp,np->nd", own, inside)).square().sum()


def gradient(bases, z, labels):
    """That of the objective, by automatic differentiation."""
    bases = bases.clone().requires_grad_()
    return torch.autograd.grad(objective(bases, z, labels), bases)[0]


def slope(errors, times):
    return np.polyfit(np.log(times), np.log(errors), 1)[0]


def test_taylor_error_falls_with_the_expected_slopes():
    z, labels = labelled()
    base = point()
    step = direction(base, seed=4)
    first = float((tangent(base, gradient(base, z, labels)) * step).sum())
    # The Riemannian Hessian of -tr(S^T A S) along v is 2 <v, v S^T A S - A v>. span(S + t v) is a
    # second-order retraction, so the second-order model holds for it.
    second = 0.0
    for i in range(K):
        scatter = z[labels == i].mT @ z[labels == i]
        core = base[i].mT @ scatter @ base[i]
        second += 2 * float((step[i] * (step[i] @ core - scatter @ step[i])).sum())
    here = float(objective(base, z, labels))
    times = np.geomspace(1e-3, 3e-2, 8)
    there = np.array([float(objective(retract(base, t * step), z, labels)) for t in times])
    linear = np.abs(there - here - first * times)
    quadratic = np.abs(there - here - first * times - second * times**2 / 2)
    assert slope(np.abs(there - here), times) == pytest.approx(1, abs=0.1)
    assert slope(linear, times) == pytest.approx(2, abs=0.1)
    assert slope(quadratic, times) == pytest.approx(3, abs=0.2)


def test_gradient_steps_reach_the_closed_form():
    z, labels = labelled()
    bases = point()
    before = objective(bases, z, labels)
    for _ in range(400):
        step = -tangent(bases, gradient(bases, z, labels))
        bases = retract(bases, 0.01 * step)
    assert objective(bases, z, labels) < before
    for i in range(K):
        u = torch.linalg.svd(z[labels == i].mT, full_matrices=False).U[:, :P]
        assert principal_angles(bases[i], u).max() < 1e-3
