"""Residuals and assignment against brute force, and their accuracy in float32."""

import re

import numpy as np
import pytest
import torch

from kscn.subspaces import Subspaces
from kscn.subspaces.bases import rows_times


def random_subspaces(k, d, dims, *, affine=False, seed=0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    dims = np.broadcast_to(dims, (k,))
    bases = np.zeros((k, d, dims.max()))
    offsets = np.zeros((k, d))
    for i, p in enumerate(dims):
        frame, _ = np.linalg.qr(rng.standard_normal((d, p + 1)))
        bases[i, :, :p] = frame[:, :p]
        offsets[i] = 1.5 * frame[:, p]
    return Subspaces(torch.tensor(bases), torch.tensor(offsets) if affine else None).to(dtype)


def brute_force(subspaces, z):
    """|z - c - S S^T (z - c)|^2, one sample and one subspace at a time, in float64."""
    bases, z = subspaces.bases.double().numpy(), z.double().numpy()
    offsets = np.zeros(bases.shape[:2])
    if subspaces.offsets is not None:
        offsets = subspaces.offsets.double().numpy()
    out = np.empty((len(z), len(bases)))
    for j, sample in enumerate(z):
        for i, (basis, offset) in enumerate(zip(bases, offsets, strict=True)):
            away = sample - offset
            out[j, i] = np.sum((away - basis @ (basis.T @ away)) ** 2)
    return out


def samples(n, d, seed=1, dtype=torch.float64):
    return torch.tensor(np.random.default_rng(seed).standard_normal((n, d))).to(dtype)


def near(subspaces, n, noise, seed=1):
    """Samples of norm about 1 at a relative distance `noise` from the subspace j % k."""
    rng = np.random.default_rng(seed)
    bases = subspaces.bases.double().numpy()
    k, d, p = bases.shape
    inside = rng.standard_normal((n, p))
    outside = rng.standard_normal((n, d))
    z = np.einsum("ndp,np->nd", bases[np.arange(n) % k], inside)
    if subspaces.offsets is not None:
        z += subspaces.offsets.double().numpy()[np.arange(n) % k]
    z += noise * outside * np.linalg.norm(z, axis=1, keepdims=True) / d**0.5
    return torch.tensor(z).to(subspaces.bases.dtype)


CASES = {
    "linear": {"dims": 3},
    "affine": {"dims": 3, "affine": True},
    "mixed dimensions": {"dims": [3, 1, 2, 3]},
    "affine, mixed dimensions": {"dims": [1, 3, 2, 1], "affine": True},
}


@pytest.mark.parametrize("case", CASES)
def test_residuals_equal_brute_force(case):
    subspaces = random_subspaces(4, 9, **CASES[case])
    z = samples(50, 9)
    expected = brute_force(subspaces, z)
    np.testing.assert_allclose(subspaces.residuals(z), expected, rtol=1e-12)
    labels, distance = subspaces.assign(z)
    np.testing.assert_array_equal(labels, expected.argmin(axis=1))
    np.testing.assert_allclose(distance, expected.min(axis=1), rtol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_float32_residuals_of_generic_samples_are_accurate(case):
    subspaces = random_subspaces(4, 9, **CASES[case], dtype=torch.float32)
    z = samples(200, 9, dtype=torch.float32)
    np.testing.assert_allclose(subspaces.residuals(z), brute_force(subspaces, z), rtol=1e-3)


@pytest.mark.parametrize("noise", [1e-4, 3e-4, 1e-3])
@pytest.mark.parametrize("affine", [False, True])
def test_tiny_residuals_keep_their_digits_in_float32(noise, affine):
    subspaces = random_subspaces(3, 30, 5, affine=affine, dtype=torch.float32)
    z = near(subspaces, 300, noise)
    own = np.arange(300) % 3
    expected = brute_force(subspaces, z)[np.arange(300), own]
    share = expected / z.double().square().sum(dim=1).numpy()
    assert share.max() < 4 * noise**2  # the residuals are indeed tiny

    def error(residual):
        return np.abs(residual.numpy()[np.arange(300), own] / expected - 1).max()

    assert error(subspaces.residuals(z)) < 1e-3

    # The plain evaluation of the same formula in the same precision fails that bound.
    energy = torch.einsum("nd,kdp->nkp", z, subspaces.bases).square().sum(dim=2)
    plain = z.square().sum(dim=1)[:, None] - energy
    if subspaces.offsets is not None:
        plain = plain - 2 * z @ subspaces.offsets.mT + subspaces.offsets.square().sum(dim=1)
    assert error(plain) > 1e-3


def test_residuals_are_accurate_on_both_sides_of_the_switch_of_formula():
    subspaces = random_subspaces(2, 20, 4, dtype=torch.float32)
    for noise in np.geomspace(0.01, 0.2, 9):
        z = near(subspaces, 100, noise)
        np.testing.assert_allclose(
            subspaces.residuals(z), brute_force(subspaces, z), rtol=1e-3, err_msg=f"{noise=}"
        )


def test_samples_on_a_subspace_have_residual_zero_and_never_below():
    subspaces = random_subspaces(3, 12, 2, affine=True)
    exact = subspaces.residuals(near(subspaces, 90, 0.0))
    assert (exact >= 0).all()
    assert exact.min(dim=1).values.max() < 1e-13
    low = subspaces.to(torch.float32)
    rounded = low.residuals(near(low, 90, 0.0))
    assert (rounded >= 0).all()
    assert rounded.min(dim=1).values.max() < 1e-11


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(("k", "d", "p"), [(3, 17, 2), (4, 16, 3), (10, 30, 5), (3, 100, 7)])
def test_a_sample_gets_the_same_bits_whoever_it_is_evaluated_with(k, d, p, affine, dtype):
    subspaces = random_subspaces(k, d, p, affine=affine, dtype=dtype)
    z = samples(500, d, dtype=dtype)
    z[::2] = near(subspaces, 250, 1e-3)  # every second one takes the repaired path
    together = subspaces.residuals(z)
    for rows in (1, 5, 31, 32, 33, 100):
        for begin in (0, 1, 7, 300):
            part = subspaces.residuals(z[begin : begin + rows])
            assert torch.equal(part, together[begin : begin + rows]), (rows, begin)
    scattered = torch.arange(3, 500, 7)
    assert torch.equal(subspaces.residuals(z[scattered]), together[scattered])


def single(n, d, seed=1):
    return samples(n, d, seed, torch.float32)


@pytest.mark.parametrize("inner", [1, 3, 5, 8, 13, 21, 64, 80])
@pytest.mark.parametrize("width", [1, 5, 8, 10, 16, 80])
def test_equal_rows_have_equal_products_wherever_they_are(inner, width):
    # Rows of 5 or 21 numbers begin at any alignment, which some kernels make a difference of.
    z = single(1, inner).expand(70, -1).contiguous()
    for matrix in (single(inner, width), single(width, inner).mT):
        product = rows_times(z, matrix)
        torch.testing.assert_close(product, z @ matrix, rtol=1e-4, atol=1e-5)
        assert torch.equal(product, product[:1].expand(70, -1))
        assert torch.equal(rows_times(z[:1], matrix), product[:1])


@pytest.mark.parametrize(("d", "p"), [(8, 5), (8, 7), (16, 3), (9, 5)])
def test_distances_close_to_a_subspace_do_not_depend_on_the_place_either(d, p):
    found = random_subspaces(2, d, p, dtype=torch.float32)
    on_it = single(1, d, seed=2) @ found.bases[0] @ found.bases[0].mT
    z = on_it.expand(70, -1) + 1e-3 * single(1, d, seed=3)
    residual = found.residuals(z.contiguous())
    assert torch.equal(residual, residual[:1].expand(70, -1))


def test_equally_near_subspaces_give_the_first():
    twice = random_subspaces(1, 6, 2).bases.repeat(3, 1, 1)
    assert Subspaces(twice).assign(samples(20, 6))[0].tolist() == [0] * 20


def test_dims_count_the_columns_that_are_not_zero():
    assert random_subspaces(3, 6, [2, 4, 1]).dims.tolist() == [2, 4, 1]


def test_reordering_renames_the_subspaces():
    subspaces = random_subspaces(3, 6, 2, affine=True)
    z = samples(10, 6)
    order = torch.tensor([2, 0, 1])
    moved = subspaces[order].residuals(z)
    torch.testing.assert_close(moved, subspaces.residuals(z)[:, order])


def skewed():
    bases = random_subspaces(3, 6, 2).bases.clone()
    bases[1, :, 0] += 1e-3
    return Subspaces(bases)


def with_entry(value, of="bases"):
    good = random_subspaces(3, 6, 2, affine=True)
    parts = {"bases": good.bases.clone(), "offsets": good.offsets.clone()}
    parts[of].view(-1)[3] = value
    return Subspaces(**parts)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Subspaces(torch.zeros(4, 2)), r"shape \(k, d, p\), not \(4, 2\)"),
        (lambda: Subspaces(torch.eye(3)[None]), "dimension 3 must be between 1 and 2"),
        (lambda: Subspaces(torch.zeros(2, 3, 0)), "dimension 0 must be between 1 and 2"),
        (skewed, "basis 1 is off orthonormality by"),
        (lambda: with_entry(torch.nan), "bases contain NaN or infinity"),
        (lambda: with_entry(torch.inf), "bases contain NaN or infinity"),
        (lambda: with_entry(torch.nan, "offsets"), "offsets contain NaN or infinity"),
        (
            lambda: Subspaces(random_subspaces(3, 6, 2).bases, torch.zeros(3, 5)),
            r"offsets must have shape \(3, 6\), not \(3, 5\)",
        ),
    ],
)
def test_a_fault_is_said_in_words(make, words):
    fault = make().fault()
    assert fault is not None
    assert re.search(words, fault)
