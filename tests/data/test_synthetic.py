"""Generated samples have the geometry that was asked for."""

import numpy as np
import pytest

from kscn.data import make_union_of_subspaces
from kscn.errors import InputError


def residuals(samples, bases):
    """Squared distance to the span of each basis (n, k)."""
    coordinates = np.einsum("nd,kdp->nkp", samples, bases)
    return (samples**2).sum(1)[:, None] - (coordinates**2).sum(2)


def test_samples_lie_in_their_subspace_and_clusters_are_even():
    X, y, S = make_union_of_subspaces(1003, 4, 12, 3, random_state=0, dtype=np.float64)
    assert X.shape == (1003, 12) and S.shape == (4, 12, 3)
    np.testing.assert_allclose(S.transpose(0, 2, 1) @ S, np.tile(np.eye(3), (4, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(residuals(X, S)[np.arange(1003), y], 0, atol=1e-12)
    assert sorted(np.bincount(y)) == [250, 251, 251, 251]
    assert (np.diff(y) != 0).mean() > 0.5  # shuffled


def test_noise_is_the_standard_deviation_per_coordinate():
    X, y, S = make_union_of_subspaces(20_000, 3, 30, 5, noise=0.05, random_state=2)
    off = residuals(X.astype(np.float64), S.astype(np.float64))[np.arange(len(X)), y]
    assert np.sqrt(off.mean() / 25) == pytest.approx(0.05, rel=0.02)


def test_outliers_are_labelled_and_uniform_in_the_cube():
    X, y, _ = make_union_of_subspaces(5000, 5, 20, 4, outliers=0.1, random_state=3)
    assert (y == -1).sum() == 500
    radius = np.sqrt((X[y >= 0] ** 2).sum(1).mean())
    out = X[y == -1]
    assert np.abs(out).max() <= radius * (1 + 1e-6)
    assert out.std() == pytest.approx(radius / np.sqrt(3), rel=0.03)


def test_affine_offsets_are_orthogonal_and_of_the_stated_norm():
    X, y, S = make_union_of_subspaces(
        30_000, 3, 8, 2, affine=True, random_state=4, dtype=np.float64
    )
    for cluster in range(3):
        members = X[y == cluster]
        offset = members - members @ S[cluster] @ S[cluster].T
        np.testing.assert_allclose(offset, np.tile(offset[0], (len(offset), 1)), atol=1e-12)
        assert np.linalg.norm(offset[0]) == pytest.approx(np.sqrt(2))


def test_dimensions_per_cluster_are_padded_with_zeros():
    X, y, S = make_union_of_subspaces(300, 3, 9, [1, 4, 2], random_state=5, dtype=np.float64)
    assert S.shape == (3, 9, 4)
    assert [np.linalg.matrix_rank(X[y == c]) for c in range(3)] == [1, 4, 2]
    assert not S[0, :, 1:].any() and not S[2, :, 2:].any()


def test_the_seed_decides():
    first = make_union_of_subspaces(50, 2, 5, 2, noise=0.1, random_state=7)
    again = make_union_of_subspaces(50, 2, 5, 2, noise=0.1, random_state=7)
    other = make_union_of_subspaces(50, 2, 5, 2, noise=0.1, random_state=8)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[0] != other[0]).any()
    assert first[0].dtype == np.float32


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_samples": 1}, "n_samples"),
        ({"subspace_dim": 6}, "subspace_dim"),
        ({"subspace_dim": 5, "affine": True}, "subspace_dim"),
        ({"subspace_dim": 0}, "subspace_dim"),
        ({"subspace_dim": [1, 2, 3]}, "subspace_dim"),
        ({"subspace_dim": 1.5}, "subspace_dim"),
        ({"noise": -1}, "noise"),
        ({"noise": float("nan")}, "noise"),
        ({"outliers": 1.0}, "outliers"),
        ({"dtype": np.int32}, "dtype"),
    ],
    ids=str,
)
def test_impossible_requests_are_refused(change, words):
    arguments = {"n_samples": 20, "n_clusters": 2, "ambient_dim": 5, "subspace_dim": 2} | change
    with pytest.raises(InputError, match=words):
        make_union_of_subspaces(**arguments)
