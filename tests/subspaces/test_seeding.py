"""Starts: neighbourhoods, draws in proportion, and new places for empty clusters."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from kscn.data import make_union_of_subspaces
from kscn.subspaces import Subspaces, principal_angles
from kscn.subspaces.seeding import (
    draw_rows,
    local_subspaces,
    neighbourhood_members,
    rescue_empty,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def union(n=300, k=3, d=8, p=2, *, noise=0.05, affine=False, seed=0):
    z, labels, _ = make_union_of_subspaces(
        n, k, d, p, noise=noise, affine=affine, random_state=seed, dtype=np.float64
    )
    return torch.tensor(z), labels


def columns(*shape):
    """All columns in use."""
    return torch.ones(*shape, dtype=torch.bool)


def rotation(d, seed=9):
    return torch.linalg.qr(torch.randn(d, d, generator=seeded(seed), dtype=torch.float64)).Q


# Neighbourhoods -----------------------------------------------------------------------------------


def test_linear_neighbours_are_the_nearest_by_angle_on_either_side_of_the_origin():
    z, _ = union(80)
    seeds = torch.tensor([3, 11])
    unit = z / z.norm(dim=1, keepdim=True)
    cosines = (unit[seeds] @ unit.mT).abs()
    found = neighbourhood_members(z, seeds, 10, affine=False)
    expected = cosines.argsort(dim=1, descending=True)[:, :10]
    assert [set(row.tolist()) for row in found] == [set(row.tolist()) for row in expected]
    mirrored = neighbourhood_members(torch.cat([z, -z[:1]]), torch.tensor([0]), 2, affine=False)
    assert set(mirrored[0].tolist()) == {0, 80}


def test_affine_neighbours_are_the_nearest_by_distance():
    z, _ = union(80, affine=True)
    seeds = torch.tensor([3, 11])
    found = neighbourhood_members(z, seeds, 10, affine=True)
    expected = torch.cdist(z[seeds], z).argsort(dim=1)[:, :10]
    assert [set(row.tolist()) for row in found] == [set(row.tolist()) for row in expected]


@pytest.mark.parametrize("affine", [False, True])
def test_the_local_subspace_of_a_clean_group_is_its_span(affine):
    z, labels = union(300, noise=0.0, affine=affine)
    groups = torch.stack([torch.tensor(np.flatnonzero(labels == i)[:40]) for i in range(3)])
    found = local_subspaces(z, groups, columns(3, 2), affine)
    assert found.fault() is None
    for i, group in enumerate(groups):
        assert found.residuals(z[group])[:, i].max() < 1e-9


def test_local_subspaces_of_too_few_or_equal_rows_are_valid():
    z, _ = union(50)
    few = local_subspaces(z, torch.tensor([[0], [1]]), columns(2, 3), affine=False)
    same = local_subspaces(z, torch.zeros(2, 6, dtype=torch.long), columns(2, 3), affine=True)
    constant = torch.full_like(z, 1e-3)
    zero = local_subspaces(constant, torch.arange(6)[None], columns(1, 3), affine=True)
    assert [s.fault() for s in (few, same, zero)] == [None] * 3
    assert few.residuals(z[:2]).diagonal().max() < 1e-9


@pytest.mark.parametrize("affine", [False, True])
def test_what_a_group_does_not_span_is_completed_by_directions_that_see_the_data(affine):
    z, _ = union(50)
    z[:, :3] = 0  # dead axes, like the corner of an image
    same = torch.tensor([[0] * 6, [1] * 6])
    found = local_subspaces(z, same, columns(2, 3), affine)
    assert found.fault() is None
    for basis in found.bases:
        assert (z @ basis).square().sum(dim=0).min() > 0.01 * z.square().sum() / 8
    assert principal_angles(found.bases[:1], found.bases[1:]).max() > 0.1  # not one for all


def test_a_group_that_spans_too_little_changes_nothing_for_the_others():
    z, _ = union(50)
    groups = torch.stack([torch.arange(10), torch.zeros(10, dtype=torch.long)])
    both = local_subspaces(z, groups, columns(2, 3), affine=False)
    alone = local_subspaces(z, groups[:1], columns(1, 3), affine=False)
    torch.testing.assert_close(both.bases[0], alone.bases[0], rtol=0, atol=1e-3)
    few = local_subspaces(z, groups, torch.arange(3) < torch.tensor([[3], [1]]), affine=False)
    assert few.dims.tolist() == [3, 1]


# Draws --------------------------------------------------------------------------------------------


def test_draws_are_in_proportion_to_the_mass():
    drawn = draw_rows(torch.tensor([1.0, 0.0, 3.0]), 4000, seeded())
    shares = torch.bincount(drawn, minlength=3) / 4000
    assert shares[1] == 0
    assert float(shares[2]) == pytest.approx(0.75, abs=0.03)
    assert set(draw_rows(torch.zeros(3), 100, seeded()).tolist()) == {0, 1, 2}


# Rescue -------------------------------------------------------------------------------------------


def with_an_empty_one(z, labels, dims, affine):
    """Good subspaces for all clusters but the last, which sits where no sample is nearest."""
    k, d, p = len(dims), z.shape[1], max(dims)
    groups = [torch.tensor(np.flatnonzero(labels == i)[:40]) for i in range(k - 1)]
    used = torch.arange(p) < torch.tensor(dims)[:, None]
    good = local_subspaces(z, torch.stack(groups), used[:-1], affine)
    bases = torch.cat([good.bases, rotation(d)[None, :, :p] * used[-1:, None]])
    if not affine:
        # Twice the same subspace: ties go to the first, so the second has no members.
        bases[-1] = bases[0] * used[-1:]
        return Subspaces(bases)
    far = 100 * rotation(d)[-1:]
    far = far - (bases[-1:] @ (bases[-1:].mT @ far[:, :, None])).squeeze(-1)
    return Subspaces(bases, torch.cat([good.offsets, far]))


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dims", [[2, 2, 2], [2, 2, 1]])
def test_rescue_moves_the_empty_subspace_only_and_never_raises_the_objective(dims, affine):
    z, labels = union(affine=affine)
    before = with_an_empty_one(z, labels, dims, affine)
    members, distance = before.assign(z)
    assert not (members == 2).any()
    for seed in range(10):
        after = rescue_empty(before, torch.tensor([2]), z, seeded(seed))
        assert after.fault() is None
        assert after.dims.tolist() == dims
        assert torch.equal(after.bases[:2], before.bases[:2])
        if affine:
            assert torch.equal(after.offsets[:2], before.offsets[:2])
        members, now = after.assign(z)
        assert (now <= distance).all()
        assert (members == 2).any()


def test_rescue_finds_the_cluster_that_nobody_serves():
    z, labels = union()
    before = with_an_empty_one(z, labels, [2, 2, 2], False)
    after = rescue_empty(before, torch.tensor([2]), z, seeded())
    assert adjusted_rand_score(labels, after.assign(z)[0]) > 0.9


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e9])
def test_rescue_does_not_depend_on_the_scale(scale):
    z, labels = union()
    before = with_an_empty_one(z, labels, [2, 2, 2], False)
    after = rescue_empty(before, torch.tensor([2]), scale * z, seeded())
    assert adjusted_rand_score(labels, after.assign(z)[0]) > 0.9
