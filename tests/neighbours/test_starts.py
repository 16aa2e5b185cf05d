"""Graphs of local subspaces and of ensembles, and the starts of k-subspaces that come from them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn.neighbours import (
    co_association,
    ensemble_clusters,
    local,
    local_subspace_clusters,
    nearest_by_local_subspace,
    starts,
)
from kscn.neighbours.local import local_bases, whitened
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


# Ensembles ----------------------------------------------------------------------------------------


def test_co_association_is_the_share_of_runs_that_agree():
    labels = torch.from_numpy(np.random.default_rng(0).integers(4, size=(15, 60)))
    share = (labels[:, :, None] == labels[:, None, :]).float().mean(dim=0)
    share.fill_diagonal_(-1)
    near = co_association(labels, 7)
    torch.testing.assert_close(near.closeness, share.topk(7, dim=1).values)
    torch.testing.assert_close(share.gather(1, near.index), near.closeness)


@pytest.mark.parametrize("affine", [False, True])
def test_an_ensemble_finds_a_union_and_repeats_with_the_seed(affine):
    z, y = union(affine=affine)
    z = z - z.mean(dim=0) if affine else z
    one, again = (ensemble_clusters(z, 3, 2, affine=affine, seed=3) for _ in range(2))
    assert clustering_accuracy(y, one) > 0.97
    np.testing.assert_array_equal(one, again)


# Starts -------------------------------------------------------------------------------------------


def problem(z, k, dims=2, **more):
    dims = torch.as_tensor([dims] * k if isinstance(dims, int) else dims)
    settings = {"affine": False, "trim": 0.0} | more
    return Problem(z, None, dims, generator=torch.Generator().manual_seed(0), **settings)


def test_a_large_sample_is_thinned_out_and_not_by_row_number(monkeypatch):
    monkeypatch.setattr(starts, "RULES", replace(starts.RULES, rows=90, rows_per_cluster=10))
    z, y = union()
    z = z[np.argsort(y, kind="stable")]  # the first 90 rows are of two clusters
    part = starts._thinned(problem(z, 3))
    assert part.z.shape == (90, 9)
    assert set(map(tuple, part.z.tolist())) != set(map(tuple, z[:90].tolist()))
    assert starts.graph_starts(problem(z, 3), "neighbours").bases.shape == (1, 3, 9, 2)


def test_the_nearest_do_where_local_subspaces_cost_too_much(monkeypatch):
    z, y = union()
    by_local = starts.neighbour_clusters(z, 3, 2)
    monkeypatch.setattr(local, "RULES", replace(local.RULES, cost=1e5))
    monkeypatch.setattr(starts, "local_subspace_clusters", None)
    by_nearest = starts.neighbour_clusters(z, 3, 2)
    for found in (by_local, by_nearest):
        assert clustering_accuracy(y, found) > 0.95


@pytest.mark.parametrize("kind", ["neighbours", "ensemble"])
def test_dimensions_that_differ_are_all_dealt_out(kind):
    z, y = union(p=[1, 2, 3], noise=0.0)
    made = starts.graph_starts(problem(z, 3, [3, 1, 2]), kind)
    assert sorted(made[0].dims.tolist()) == [1, 2, 3]
    sums = ScatterSums(3, 9, affine=False)
    sums.add(z.double(), torch.from_numpy(y).long())
    assert starts._fitting_dims(problem(z, 3, [3, 1, 2]), sums).tolist() == [1, 2, 3]


@pytest.mark.parametrize("init", ["neighbours", "ensemble", "auto"])
@pytest.mark.parametrize("affine", [False, True])
def test_tiny_and_repeated_samples_are_clustered_without_complaint(init, affine, recwarn):
    z, _ = union(n=6, noise=0.1)
    for samples in (z, z.repeat(20, 1)):
        model = KSubspaces(6, subspace_dim=1, affine=affine, init=init, random_state=0)
        found = model.fit(samples.numpy())
        np.testing.assert_array_equal(found.labels_, found.predict(samples.numpy()))
    told = [str(w.message) for w in recwarn if "ended up empty" not in str(w.message)]
    assert told == []


@pytest.mark.parametrize("init", ["neighbours", "ensemble"])
def test_a_start_from_a_graph_needs_no_search(init):
    z, y = union(k=5, d=20, n=500)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(z))
    model = KSubspaces(5, subspace_dim=2, init=init, n_init=1, random_state=0)
    model.fit(z.numpy(), sample_weight=weights)
    assert clustering_accuracy(y, model.labels_) > 0.97
    assert [record["stage"] for record in model.history_].count("search") == 1
