"""Neighbours are those of scikit-learn, and graphs of them have the coordinates they should."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from kscn.metrics import clustering_accuracy
from kscn.neighbours import nearest, nearest_distinct, similarity_graph
from kscn.neighbours.spectral import spectral_clusters, spectral_embedding


def cloud(n=300, d=7, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d))).float()


@pytest.mark.parametrize("columns", [16384, 500, 50])
@pytest.mark.parametrize("metric", ["distance", "absolute cosine"])
def test_neighbours_are_those_of_scikit_learn(metric, columns):
    z = cloud(700)
    unit = z / z.norm(dim=1, keepdim=True)
    apart = torch.cdist(z, z) if metric == "distance" else 1 - (unit @ unit.mT).abs()
    oracle = NearestNeighbors(metric="precomputed").fit(apart.double().clamp(min=0).numpy())
    expected = oracle.kneighbors(n_neighbors=6, return_distance=False)
    found = nearest(z, 6, metric, columns=columns)
    np.testing.assert_array_equal(found.index.numpy(), expected)


def test_lines_have_no_direction():
    z = cloud()
    flipped = z * torch.where(torch.arange(len(z)) % 2 == 0, 1.0, -1.0)[:, None]
    one, other = (nearest(x, 5, "absolute cosine") for x in (z, flipped))
    torch.testing.assert_close(one.index, other.index)


def test_nobody_is_his_own_neighbour_even_among_equals():
    near = nearest(torch.zeros(5, 2), 10)
    assert near.index.shape == (5, 4)
    assert (near.index != torch.arange(5)[:, None]).all()


def test_a_metric_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="metric='taxi' must be one of"):
        nearest(cloud(), 3, "taxi")


def test_the_graph_is_symmetric_and_parts_of_it_become_clusters():
    z = torch.cat([cloud(80) + 20 * part for part in range(3)])
    made = similarity_graph(nearest(z, 6), 6)
    assert abs(made - made.T).max() == 0 and made.nnz <= 2 * 6 * len(z)
    values, vectors = spectral_embedding(made, 3)
    assert values[:3] == pytest.approx(1, abs=0.05)
    found = spectral_clusters(vectors, 3)
    assert clustering_accuracy(np.repeat([0, 1, 2], 80), found) == 1


def test_coordinates_are_eigenvectors_and_repeat():
    made = similarity_graph(nearest(cloud(), 8), 8)
    (values, vectors), (_, again) = (spectral_embedding(made, 4, seed=1) for _ in range(2))
    np.testing.assert_array_equal(vectors, again)
    assert (np.diff(values) <= 1e-9).all()
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-6)
    assert (vectors[np.abs(vectors).argmax(axis=0), range(4)] > 0).all()


def test_copies_of_a_sample_are_not_its_neighbours():
    places = torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [7.0, 0.0], [15.0, 0.0]])
    which = torch.tensor([0, 0, 0, 1, 1, 2, 3, 4, 4, 4])
    near = nearest_distinct(places[which], 2)
    found = places[which][near.index][..., 0]
    expected = torch.tensor([[1, 3], [0, 3], [1, 0], [3, 1], [7, 3]], dtype=torch.float32)[which]
    assert torch.equal(found, expected)
    assert torch.allclose(near.closeness, -(found - places[which][:, :1]).square())


def test_too_few_distinct_samples_have_their_copies_as_neighbours():
    z = torch.tensor([[0.0], [1.0]]).repeat(10, 1)
    assert nearest_distinct(z, 5).index.shape == (20, 5)
