"""Affinities become labels; each step against a plain computation."""

import numpy as np
import pytest
import torch
from scipy import sparse

from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.self_expression import (
    angular_affinity,
    keep_largest,
    keep_largest_dense,
    leading_eigenvectors,
    spectral_labels,
    symmetric_affinity,
    symmetric_factors,
)


def blocks(sizes, within=0.3, between=0.0, seed=0):
    """A random symmetric affinity with denser diagonal blocks, and the block of every row."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    same = y[:, None] == y
    share = np.where(same, within, between)
    upper = np.triu((rng.random(same.shape) < share) * rng.random(same.shape), 1)
    # A ring through every block keeps it in one piece.
    for block in range(len(sizes)):
        rows = np.flatnonzero(y == block)
        upper[rows[:-1], rows[1:]] = 1.0
    order = rng.permutation(len(y))
    return (upper + upper.T)[np.ix_(order, order)], y[order]


def normalised(affinity):
    half = np.diag(1 / np.sqrt(affinity.sum(axis=1)))
    return half @ affinity @ half


def span_distance(a, b):
    """Sine of the largest angle between the spans of orthonormal columns."""
    return np.sqrt(max(0.0, 1 - np.linalg.svd(a.T @ b, compute_uv=False).min() ** 2))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, np.float32])
@pytest.mark.parametrize("small", [10, 1000])
def test_the_leading_eigenvectors_are_found(form, small):  # by iterations, and all of them
    affinity, _ = blocks([40, 30, 50], between=0.02)
    found = leading_eigenvectors(form(affinity), 3, seed=0, small=small)
    expected = np.linalg.eigh(normalised(affinity))[1][:, -3:]
    assert span_distance(expected, np.asarray(found, dtype=np.float64)) < 1e-3


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_dense_blocks_are_found_and_numbered_by_size(form):
    affinity, y = blocks([30, 80, 50], between=0.01)
    labels = spectral_labels(form(affinity), 3, seed=0)
    assert clustering_accuracy(y, labels) == 1
    assert np.bincount(labels).tolist() == [80, 50, 30]
    np.testing.assert_array_equal(labels, spectral_labels(form(affinity), 3, seed=0))


def test_an_affinity_that_says_nothing_gives_the_same_labels_every_time():
    # Of rank one, so that the eigensolver has to draw further directions at random.
    affinity = np.ones((700, 700), dtype=np.float32)
    expected = spectral_labels(affinity, 5, seed=0)
    np.testing.assert_array_equal(spectral_labels(affinity, 5, seed=0), expected)


def test_pieces_of_a_graph_are_its_clusters():
    affinity, y = blocks([300, 200, 400])
    assert clustering_accuracy(y, spectral_labels(sparse.csr_array(affinity), 3, seed=0)) == 1


def test_a_piece_is_split_where_there_are_fewer_pieces_than_clusters():
    weak, _ = blocks([60, 60], between=0.005, seed=1)
    other, _ = blocks([50], seed=2)
    affinity = sparse.csr_array(sparse.block_diag([weak, other]))
    embedding = leading_eigenvectors(affinity, 3, seed=0)
    expected = np.linalg.eigh(normalised(affinity.toarray()))[1][:, -3:]
    assert span_distance(expected, embedding) < 1e-6


def test_of_more_pieces_than_clusters_the_largest_count():
    affinity, y = blocks([40, 50, 3, 4, 2])
    labels = spectral_labels(sparse.csr_array(affinity), 2, seed=0)
    large = y < 2
    assert clustering_accuracy(y[large], labels[large]) == 1


def test_samples_without_neighbours_still_get_a_label():
    affinity, y = blocks([40, 50])
    affinity[:3] = 0
    affinity[:, :3] = 0
    for form in (np.asarray, sparse.csr_array):
        labels = spectral_labels(form(affinity), 2, seed=0)
        assert labels.shape == (90,)
        assert clustering_accuracy(y[3:], labels[3:]) > 0.95


def kept_by_hand(row, share):
    """The largest entries in turn, until their sum reaches the share."""
    out, held = np.zeros_like(row), 0.0
    for place in np.argsort(-np.abs(row)):
        if held >= share * np.abs(row).sum():
            break
        out[place] = row[place]
        held += abs(row[place])
    return out


@pytest.mark.parametrize("share", [0.1, 0.6, 1.0])
def test_the_largest_codes_are_kept(share):
    rng = np.random.default_rng(0)
    codes = rng.standard_normal((30, 30)) * (rng.random((30, 30)) < 0.4)
    codes[[0, 7, 29]] = 0  # empty rows, also first and last
    expected = np.array([kept_by_hand(row, share) for row in codes])
    np.testing.assert_array_equal(keep_largest(sparse.csr_array(codes), share).toarray(), expected)
    dense = keep_largest_dense(torch.from_numpy(codes.copy()), share).numpy()
    np.testing.assert_array_equal(dense, expected)


def test_the_affinity_of_codes_is_symmetric_and_counts_rows_alike():
    codes = np.array([[0, 2, -4], [0.1, 0, 0], [0, 0, 0]])
    expected = np.array([[0, 0.5 + 1, 1], [0.5 + 1, 0, 0], [1, 0, 0]])
    np.testing.assert_allclose(symmetric_affinity(sparse.csr_array(codes)).toarray(), expected)


def test_angular_affinity_is_a_power_of_cosines():
    rows = torch.tensor([[2.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [0.0, 0.0]])
    half = 0.5  # cosine of 45 degrees, squared
    expected = [[1, half, 0, 0], [half, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(angular_affinity(rows, 2), expected, atol=1e-6)


@pytest.mark.parametrize("small", [10, 1000])
def test_symmetric_factors_are_those_of_the_svd(small):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((60, 60))
    matrix = matrix + matrix.T
    found = symmetric_factors(torch.from_numpy(matrix), 7, seed=0, small=small).numpy()
    left, s, _ = np.linalg.svd(matrix)
    expected = left[:, :7] * np.sqrt(s[:7])
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4)
