"""LRR: closed forms, a generic optimiser, no move that lowers the objective; perfect recovery."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from kscn.data import make_union_of_subspaces
from kscn.errors import InputError
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.lrr import LRR, _pull_to_samples, _shrink_spectrum, low_rank_codes


def union(n=60, k=3, d=15, p=2, noise=0.05, **kwargs):
    X, y, _ = make_union_of_subspaces(
        n, k, d, p, noise=noise, random_state=0, dtype=np.float64, **kwargs
    )
    return X, y


def solve(X, weight, **kwargs):
    """The solution, and C (n, n) such that X^T = X^T C + E."""
    found = low_rank_codes(torch.from_numpy(X), weight, **kwargs)
    return found, (found.basis @ found.reduced).numpy()


def objective(X, C, weight):
    errors = np.linalg.norm(X.T - X.T @ C, axis=0)
    return np.linalg.norm(C, "nuc") + weight * errors.sum()


def test_without_noise_codes_are_the_projection_on_the_row_space():
    X, _ = union(noise=0)
    _, C = solve(X, 100.0)
    left, s, _ = np.linalg.svd(X, full_matrices=False)
    V = left[:, s > 1e-10]
    assert V.shape == (60, 6)
    np.testing.assert_allclose(C, V @ V.T, atol=1e-6)


def test_a_small_weight_gives_up_on_all_samples():
    # 0 is optimal as long as Y, with columns weight x_j / |x_j|, has a norm |X^T Y| below 1.
    X, _ = union()
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    limit = 1 / np.linalg.norm(X @ unit.T, 2)
    assert np.abs(solve(X, 0.99 * limit, tol=1e-9)[1]).max() < 1e-6
    assert np.abs(solve(X, 1.05 * limit, tol=1e-9)[1]).max() > 1e-4


@pytest.mark.parametrize("weight", [0.15, 0.6])
def test_a_generic_optimiser_finds_nothing_better(weight):
    X, _ = union(n=8, k=2, d=4, p=1, noise=0.2)
    _, C = solve(X, weight, tol=1e-8, max_iter=5000)
    data = torch.from_numpy(X.T)

    def smooth(flat, softness):
        c = torch.from_numpy(flat.reshape(8, 8)).requires_grad_()
        gram = torch.linalg.eigvalsh(c.mT @ c).clamp(min=0)
        errors = (data - data @ c).square().sum(dim=0)
        value = (gram + softness).sqrt().sum() + weight * (errors + softness).sqrt().sum()
        value.backward()
        return value.item(), c.grad.numpy().reshape(-1)

    point = np.zeros(64)
    for softness in (1e-2, 1e-4, 1e-6, 1e-8):
        point = minimize(
            smooth, point, (softness,), jac=True, method="L-BFGS-B", options={"maxiter": 150}
        ).x
    generic = objective(X, point.reshape(8, 8), weight)
    reached = objective(X, C, weight)
    assert reached <= generic * (1 + 1e-6)
    assert reached >= generic * (1 - 5e-3)  # and the generic one comes close


def test_no_move_lowers_the_objective():
    X, _ = union()
    _, C = solve(X, 0.2, tol=1e-8, max_iter=3000)
    reached = objective(X, C, 0.2)
    rng = np.random.default_rng(0)
    others = [np.zeros_like(C), np.linalg.pinv(X.T) @ X.T, np.eye(len(C))]
    others += [C + rng.standard_normal(C.shape) for _ in range(5)]
    for other in others:
        for step in (1e-1, 1e-3):
            moved = objective(X, C + step * (other - C), 0.2)
            assert moved > reached * (1 - 1e-7)


def test_the_error_step_is_the_minimum_of_its_function():
    rng = np.random.default_rng(0)
    s, v, q = rng.random((3, 1)) + 0.1, rng.standard_normal((3, 8)), rng.standard_normal((3, 8))
    v[:, 0] = q[:, 0] + 1e-3  # so close that no error is left
    for amount in (0.05, 0.5, 5.0):
        tensors = (torch.from_numpy(part) for part in (q, s, v))
        found, size = _pull_to_samples(*tensors, amount, torch.rand(8, dtype=torch.float64))
        found = found.numpy()

        def value(r, j, amount=amount):
            return amount * np.linalg.norm(s[:, 0] * (v[:, j] - r)) + ((r - q[:, j]) ** 2).sum() / 2

        np.testing.assert_allclose(size, np.linalg.norm(s * (v - found), axis=0), atol=1e-9)
        for j, column in enumerate(found.T):
            for direction in (*np.eye(3), *rng.standard_normal((4, 3))):
                line = minimize_scalar(lambda t, j=j, c=column, x=direction: value(c + t * x, j))
                assert line.fun > value(column, j) - 1e-9
    assert size[0] == 0


def test_singular_values_shrink():
    matrix = torch.from_numpy(np.random.default_rng(0).standard_normal((4, 30)))
    left, s, right = np.linalg.svd(matrix.numpy(), full_matrices=False)
    amount = (s[1] + s[2]) / 2
    expected = (left * np.maximum(s - amount, 0)) @ right
    np.testing.assert_allclose(_shrink_spectrum(matrix, amount), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_independent_subspaces_are_recovered(dtype):
    X, y = union(n=160, k=4, d=20, p=3, noise=0.01)
    model = LRR(4, random_state=0).fit(X.astype(dtype))
    assert clustering_accuracy(y, model.labels_) == 1
    assert model.affinity_.dtype == dtype


def test_the_weight_is_chosen_by_the_samples():
    X, _ = union(noise=0)
    model = LRR(3, random_state=0).fit(X)
    assert model.weight_ == pytest.approx(3 * 6 / 60)  # unit norm, 60 samples in 6 dimensions
    with pytest.raises(InputError, match="weight=0 must be None or a number above 0"):
        LRR(3, weight=0).fit(X)


def test_too_few_iterations_are_told():
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations") as told:
        LRR(3, max_iter=2, tol=0, random_state=0).fit(union()[0])
    assert {one.filename for one in told} == {__file__}
