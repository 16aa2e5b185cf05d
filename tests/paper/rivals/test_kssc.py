"""KSSC: features against the kernel itself, codes against the conditions of optimality."""

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.kssc import KSSC, kernel_features
from kscn_paper.rivals.ssc import SSC


def union(n=80, k=3, d=10, p=2, noise=0.05):
    return make_union_of_subspaces(n, k, d, p, noise=noise, random_state=0, dtype=np.float64)[:2]


def unit_kernel(kernel):
    size = np.sqrt(np.diag(kernel))
    return kernel / (size * size[:, None])


KERNELS = {
    "degree 2": (
        {"gamma": 0.5, "degree": 2, "coef0": 1.0},
        lambda X: polynomial_kernel(X, gamma=0.5, degree=2, coef0=1.0),
    ),
    "degree 3": (
        {"gamma": 0.3, "degree": 3, "coef0": 2.0},
        lambda X: polynomial_kernel(X, gamma=0.3, degree=3, coef0=2.0),
    ),
}


def features_of(kernel, tol, max_rank=1000):
    full = torch.from_numpy(kernel)
    own = full.diagonal().clone()
    return kernel_features(lambda i: full[i].clone(), own, min(max_rank, len(full)), tol)


@pytest.mark.parametrize("name", KERNELS)
def test_features_reproduce_the_kernel(name):
    X, _ = union()
    kernel = unit_kernel(KERNELS[name][1](X))
    features, missed = features_of(kernel, 1e-10)
    assert missed <= 1e-10
    np.testing.assert_allclose(features @ features.T, kernel, atol=1e-8)


def test_what_features_miss_is_what_they_say():
    X, _ = union()
    kernel = rbf_kernel(X, gamma=0.1)
    features, missed = features_of(kernel, 0.05)
    assert 0 < missed <= 0.05
    left = np.trace(kernel - (features @ features.T).numpy())
    assert left / np.trace(kernel) == pytest.approx(missed)
    assert features_of(kernel, 0, max_rank=7)[0].shape == (80, 7)


def test_a_polynomial_of_few_features_has_few():
    X, _ = union(d=4)
    kernel = unit_kernel(KERNELS["degree 2"][1](X))
    assert features_of(kernel, 0)[0].shape[1] == 15  # monomials up to degree 2 in 4 variables


@pytest.mark.parametrize("name", KERNELS)
def test_codes_are_optimal_for_the_kernel(name):
    X, _ = union()
    params, made = KERNELS[name]
    model = KSSC(
        3, **params, kernel_tol=1e-10, tol=1e-8, max_iter=20_000, alpha=20, random_state=0
    ).fit(X)
    kernel, codes = unit_kernel(made(X)), model.codes_.toarray()
    products = np.abs(kernel - np.diag(np.diag(kernel)))
    weight = 20 / products.max(axis=1).min()
    gradient = weight * (kernel - codes @ kernel)
    np.fill_diagonal(gradient, 0)
    assert np.abs(gradient).max() <= 1 + 1e-4
    used = codes != 0
    np.testing.assert_allclose(gradient[used], np.sign(codes[used]), atol=1e-4)


def test_the_linear_kernel_gives_ssc():
    X, _ = union()
    linear = KSSC(3, degree=1, coef0=0, kernel_tol=1e-12, random_state=0)
    expected = SSC(3, random_state=0).fit(X)
    np.testing.assert_allclose(linear.fit(X).codes_.toarray(), expected.codes_.toarray(), atol=1e-2)
    np.testing.assert_array_equal(linear.labels_, expected.labels_)


@pytest.mark.parametrize("name", KERNELS)
def test_independent_subspaces_are_recovered(name):
    X, y = union(n=150, k=3, d=20, p=2, noise=0)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    model = KSSC(3, **KERNELS[name][0], random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.95


def test_gamma_is_chosen_by_the_scale_of_the_samples():
    X, _ = union()
    fitted = KSSC(3, random_state=0).fit(X)
    larger = KSSC(3, random_state=0).fit(10 * X)
    assert larger.gamma_ == pytest.approx(fitted.gamma_ / 100)
    np.testing.assert_array_equal(larger.labels_, fitted.labels_)
