"""Graphs of local subspaces, and the starts of k-subspaces that come from them."""

import numpy as np
import pytest
import torch

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn.neighbours import local_subspace_clusters, nearest_by_local_subspace, starts
from kscn.neighbours.local import affordable, local_bases, whitened
from kscn.subspaces import ScatterSums, principal_angles
from kscn.subspaces.search import Problem


def union(n=240, k=3, d=9, p=2, seed=0, **more):
    settings = {"noise": 0.01, "random_state": seed} | more
    X, y, _ = make_union_of_subspaces(n, k, d, p, **settings)
    return torch.from_numpy(X), y


# Local subspaces ----------------------------------------------------------------------------------


def test_closeness_is_that_of_the_principal_angles():
    z, _ = union(n=40)
    near = nearest_by_local_subspace(z, 2, 6)
    bases = local_bases(z, 2, 4)
    sine = principal_angles(bases[:, None], bases[near.index]).sin().square().float()
    torch.testing.assert_close(
        near.closeness, torch.exp(-8 * sine.mean(dim=2)), rtol=1e-3, atol=1e-4
    )


def test_whitening_makes_independent_subspaces_orthogonal():
    z, y = union(noise=0.0, dtype=np.float64)
    rows = whitened(z, 6)
    assert rows.shape == (240, 6)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(240, dtype=z.dtype))
    labels = torch.from_numpy(y)
    across = (rows @ rows.mT).abs()[labels[:, None] != labels[None, :]]
    assert across.max() < 1e-6


def test_whitening_keeps_no_direction_that_is_only_rounding():
    z, _ = union(k=2, noise=0.0, dtype=np.float64)
    assert whitened(z, 8).shape == (240, 4)
    assert whitened(torch.zeros(5, 3), 2).isfinite().all()


@pytest.mark.parametrize("affine", [False, True])
def test_local_subspaces_tell_planes_apart_that_meet(affine):
    z, y = union(affine=affine)
    found = local_subspace_clusters(z, 3, 2, affine=affine)
    assert clustering_accuracy(y, found) > 0.97


# Starts -------------------------------------------------------------------------------------------


def problem(z, k, dims=2, **more):
    dims = torch.as_tensor([dims] * k if isinstance(dims, int) else dims)
    settings = {"affine": False, "trim": 0.0} | more
    return Problem(z, None, dims, generator=torch.Generator().manual_seed(0), **settings)


def test_a_large_sample_is_thinned_out_and_not_by_row_number():
    z, y = union()
    z = z[np.argsort(y, kind="stable")]  # the first 90 rows are of two clusters
    part = starts._thinned(problem(z, 3), 90)
    assert part.z.shape == (90, 9)
    assert set(map(tuple, part.z.tolist())) != set(map(tuple, z[:90].tolist()))
    assert starts.graph_start(problem(z, 3), rows=90).bases.shape == (3, 9, 2)


def test_the_nearest_do_where_the_dimension_is_not_known():
    z, y = union()
    for dim in (2, None):
        assert clustering_accuracy(y, starts.neighbour_clusters(z, 3, dim)) > 0.95


def test_local_subspaces_are_compared_where_that_takes_seconds():
    assert affordable(2048, 192, 10, 4, affine=False)  # (2048 * 40)^2 = 6.7e9
    assert not affordable(2048, 192, 10, 5, affine=False)  # (2048 * 50)^2 = 1.05e10
    assert not affordable(2048, 192, 10, 4, affine=True)


def test_dimensions_that_differ_are_all_dealt_out():
    z, y = union(p=[1, 2, 3], noise=0.0)
    made = starts.graph_start(problem(z, 3, [3, 1, 2]))
    assert sorted(made.dims.tolist()) == [1, 2, 3]
    sums = ScatterSums(3, 9, affine=False)
    sums.add(z.double(), torch.from_numpy(y).long())
    assert starts._fitting_dims(problem(z, 3, [3, 1, 2]), sums).tolist() == [1, 2, 3]


@pytest.mark.parametrize("init", ["neighbours", "auto"])
@pytest.mark.parametrize("affine", [False, True])
def test_tiny_and_repeated_samples_are_clustered_without_complaint(init, affine, recwarn):
    z, _ = union(n=6, noise=0.1)
    for samples in (z, z.repeat(20, 1)):
        model = KSubspaces(6, subspace_dim=1, affine=affine, init=init, random_state=0)
        found = model.fit(samples.numpy())
        np.testing.assert_array_equal(found.labels_, found.predict(samples.numpy()))
    told = [str(w.message) for w in recwarn if "ended up empty" not in str(w.message)]
    assert told == []


def test_a_start_from_a_graph_needs_no_search():
    z, y = union(k=5, d=20, n=500)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(z))
    model = KSubspaces(5, subspace_dim=2, init="neighbours", n_init=1, random_state=0)
    model.fit(z.numpy(), sample_weight=weights)
    assert clustering_accuracy(y, model.labels_) > 0.97
    assert [record["stage"] for record in model.history_].count("search") == 1
