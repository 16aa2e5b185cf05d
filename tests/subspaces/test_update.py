"""The closed-form update from scatter sums against the SVD of the members."""

import numpy as np
import pytest
import torch

from kscn.subspaces import ScatterSums, Subspaces, keep_nearest, leading_eigenvectors
from kscn.subspaces.grassmann import principal_angles
from kscn.subspaces.update import EXACT_DIM

K, D, P = 3, 10, 3


def clustered(n=120, *, d=D, p=P, k=K, seed=0, offset=0.0):
    """Samples near k random p-dimensional subspaces, in float64, with labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    frames = np.linalg.qr(rng.standard_normal((k, d, p)))[0]
    scales = np.geomspace(3, 1, p)
    z = np.einsum("ndp,np->nd", frames[labels], scales * rng.standard_normal((n, p)))
    z += 0.1 * rng.standard_normal((n, d)) + offset * rng.standard_normal((k, d))[labels]
    return torch.tensor(z), torch.tensor(labels)


def sums_of(z, labels, weights=None, *, affine=False, k=K):
    sums = ScatterSums(k, z.shape[1], affine)
    sums.add(z, labels, weights)
    return sums


def dims(p=P, k=K):
    return torch.full((k,), p)


def random_bases(k, d, p, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(k, d, p, generator=generator, dtype=torch.float64)).Q


def left_singular(members, p):
    return torch.tensor(np.linalg.svd(members.T, full_matrices=False)[0][:, :p].copy())


def test_update_is_the_svd_of_the_members():
    z, labels = clustered()
    found = sums_of(z, labels).subspaces(dims())
    assert found.fault() is None
    for i in range(K):
        exact = left_singular(z[labels == i].numpy(), P)
        assert principal_angles(found.bases[i], exact).max() < 1e-6


def test_trimmed_update_is_the_svd_of_the_kept_members():
    z, labels = clustered()
    residual = torch.rand(len(z), generator=torch.Generator().manual_seed(0))
    keep = keep_nearest(residual, labels, 0.25, K)
    found = sums_of(z, torch.where(keep, labels, -1)).subspaces(dims())
    for i in range(K):
        exact = left_singular(z[keep & (labels == i)].numpy(), P)
        assert principal_angles(found.bases[i], exact).max() < 1e-6


def test_affine_update_is_the_centred_svd_through_the_mean():
    z, labels = clustered(offset=2.0)
    found = sums_of(z, labels, affine=True).subspaces(dims())
    assert found.fault() is None
    for i in range(K):
        members = z[labels == i].numpy()
        mean = members.mean(axis=0)
        assert principal_angles(found.bases[i], left_singular(members - mean, P)).max() < 1e-6
        assert found.residuals(torch.tensor(mean)[None])[0, i] < 1e-13  # it passes through
        assert (found.bases[i].mT @ found.offsets[i]).abs().max() < 1e-13  # nearest the origin


def test_the_first_column_is_the_leading_direction():
    z, labels = clustered()
    found = sums_of(z, labels).subspaces(dims())
    energy = torch.einsum("kdp,kde,kep->kp", found.bases, sums_of(z, labels).second, found.bases)
    assert (energy.diff(dim=1) < 0).all()


def test_dimensions_may_differ_between_clusters():
    z, labels = clustered()
    found = sums_of(z, labels).subspaces(torch.tensor([1, 3, 2]))
    assert found.dims.tolist() == [1, 3, 2]
    assert found.fault() is None
    for i, p in enumerate([1, 3, 2]):
        exact = left_singular(z[labels == i].numpy(), p)
        assert principal_angles(found.bases[i, :, :p], exact).max() < 1e-6


@pytest.mark.parametrize("affine", [False, True])
def test_what_is_added_and_taken_away_leaves_no_trace(affine):
    z, labels = clustered()
    extra, extra_labels = clustered(seed=1)
    extra = 10 * extra
    sums = sums_of(z, labels, affine=affine)
    before = sums.subspaces(dims())
    for _ in range(100):
        sums.add(extra, extra_labels)
        sums.add(extra, extra_labels, sign=-1.0)
    expected = sums_of(z, labels, affine=affine)
    torch.testing.assert_close(sums.weight, expected.weight, rtol=0, atol=0)
    torch.testing.assert_close(sums.second, expected.second, rtol=0, atol=1e-8)
    after = sums.subspaces(dims())
    assert principal_angles(after.bases, before.bases).max() < 1e-6


@pytest.mark.parametrize("affine", [False, True])
def test_weights_are_repetitions(affine):
    z, labels = clustered(offset=1.0)
    times = torch.randint(0, 4, (len(z),), generator=torch.Generator().manual_seed(0))
    weighted = sums_of(z, labels, times.double(), affine=affine)
    repeated = sums_of(z.repeat_interleave(times, dim=0), labels.repeat_interleave(times), affine=affine)
    torch.testing.assert_close(weighted.weight, repeated.weight)
    torch.testing.assert_close(weighted.centred(), repeated.centred())
    a, b = weighted.subspaces(dims()), repeated.subspaces(dims())
    assert principal_angles(a.bases, b.bases).max() < 1e-6
    assert weighted.objective(a.bases) == pytest.approx(repeated.objective(b.bases))


def test_the_order_and_the_blocks_of_the_samples_do_not_matter():
    z, labels = clustered(offset=1.0)
    whole = sums_of(z, labels, affine=True)
    parts = ScatterSums(K, D, affine=True)
    shuffled = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))
    for rows in shuffled.split(17):
        parts.add(z[rows], labels[rows])
    torch.testing.assert_close(parts.centred(), whole.centred())


def test_label_minus_one_belongs_to_no_cluster():
    z, labels = clustered()
    sums = sums_of(z, torch.full_like(labels, -1))
    assert sums.weight.sum() == 0
    assert sums.second.abs().sum() == 0


@pytest.mark.parametrize("affine", [False, True])
def test_objective_and_spectra_describe_the_residuals(affine):
    z, labels = clustered(offset=1.0)
    sums = sums_of(z, labels, affine=affine)
    found = sums.subspaces(dims())
    own = found.residuals(z)[torch.arange(len(z)), labels]
    assert sums.objective(found.bases) == pytest.approx(float(own.sum()))
    assert sums.objective(found.bases) == pytest.approx(float(sums.spectra()[:, P:].sum()))


def test_objective_counts_differing_dimensions():
    z, labels = clustered()
    sums = sums_of(z, labels)
    found = sums.subspaces(torch.tensor([1, 3, 2]))
    own = found.residuals(z)[torch.arange(len(z)), labels]
    assert sums.objective(found.bases) == pytest.approx(float(own.sum()))


@pytest.mark.parametrize("affine", [False, True])
def test_clusters_that_did_not_change_keep_their_basis(affine):
    z, labels = clustered(offset=1.0)
    sums = sums_of(z, labels, affine=affine)
    before = sums.subspaces(dims())
    sums.add(z[labels == 1][:5], torch.full((5,), 1))
    after = sums.subspaces(dims(), before)
    for i in (0, 2):
        assert torch.equal(after.bases[i], before.bases[i])
    assert not torch.equal(after.bases[1], before.bases[1])
    if affine:
        assert torch.equal(after.offsets[[0, 2]], before.offsets[[0, 2]])


def test_a_cluster_without_members_keeps_its_subspace():
    z, labels = clustered()
    sums = sums_of(z, torch.where(labels == 2, 0, labels))
    current = Subspaces(random_bases(K, D, P))
    after = sums.subspaces(dims(), current)
    assert torch.equal(after.bases[2], current.bases[2])
    assert after.fault() is None


def test_the_precision_of_the_current_subspaces_is_kept():
    z, labels = clustered(offset=1.0)
    sums = sums_of(z, labels, affine=True)
    current = sums.subspaces(dims()).to(torch.float32)
    sums.add(z, labels)
    after = sums.subspaces(dims(), current)
    assert after.bases.dtype == after.offsets.dtype == torch.float32


def test_reordered_sums_give_reordered_subspaces():
    z, labels = clustered(offset=1.0)
    order = torch.tensor([1, 2, 0])
    sums = sums_of(z, labels, affine=True)
    expected = sums.subspaces(dims()).reordered(order)
    found = sums.reordered(order).subspaces(dims())
    torch.testing.assert_close(found.offsets, expected.offsets)
    assert principal_angles(found.bases, expected.bases).max() < 1e-6


# High dimensions: the Krylov step ------------------------------------------------------------------


def high_dimensional(seed=0, k=2, p=4):
    """Scatter matrices beyond EXACT_DIM with a soft spectrum, and random starts."""
    d = EXACT_DIM + 24
    frame = random_bases(k, d, d, seed)
    spectrum = torch.cat([torch.linspace(10, 5, p), torch.linspace(3, 0.01, d - p)]).double()
    scatter = (frame * spectrum) @ frame.mT
    start = random_bases(k, d, p, seed + 1)
    return (scatter + scatter.mT) / 2, start, frame[..., :p]


def energy(scatter, bases):
    return (bases * (scatter @ bases)).sum(dim=(1, 2))


def test_krylov_steps_never_lower_the_energy_and_reach_the_exact_subspace():
    scatter, bases, exact = high_dimensional()
    held = energy(scatter, bases)
    for _ in range(25):
        bases = leading_eigenvectors(scatter, 4, bases)
        now = energy(scatter, bases)
        assert (now >= held * (1 - 1e-13)).all()
        held = now
    assert Subspaces(bases).fault(1e-12) is None
    assert principal_angles(bases, exact).max() < 1e-6


def test_krylov_steps_of_differing_dimensions_never_lower_the_energy():
    d = EXACT_DIM + 40
    z, labels = clustered(300, d=d, p=3, seed=3)
    sums = sums_of(z, labels)
    mixed = torch.tensor([1, 3, 2])
    bases = random_bases(K, d, P) * (torch.arange(P) < mixed[:, None])[:, None]
    current = Subspaces(bases)
    held = energy(sums.second, bases)
    for _ in range(10):
        sums.changed.fill_(True)
        current = sums.subspaces(mixed, current)
        assert current.dims.tolist() == mixed.tolist()
        assert current.fault(1e-12) is None
        now = energy(sums.second, current.bases)
        assert (now >= held * (1 - 1e-13)).all()
        held = now
    torch.testing.assert_close(held[0], sums.spectra()[0, 0])


def test_without_a_start_the_answer_is_exact_at_once():
    scatter, _, exact = high_dimensional()
    assert principal_angles(leading_eigenvectors(scatter, 4), exact).max() < 1e-6


def test_krylov_steps_stay_put_at_the_answer():
    scatter, _, exact = high_dimensional()
    assert principal_angles(leading_eigenvectors(scatter, 4, exact), exact).max() < 1e-6


def test_krylov_steps_survive_scatter_of_low_rank():
    _, start, _ = high_dimensional()
    z = random_bases(2, start.shape[1], 3).mT  # rank 3, below p = 4
    scatter = z.mT @ z
    for _ in range(5):
        start = leading_eigenvectors(scatter, 4, start)
    assert Subspaces(start).fault(1e-10) is None
    total = scatter.diagonal(dim1=1, dim2=2).sum(dim=1)
    torch.testing.assert_close(energy(scatter, start), total)


def test_alternating_in_high_dimensions_gives_the_svd_subspace():
    d = EXACT_DIM + 40
    z, labels = clustered(300, d=d, p=3, seed=3)
    sums = sums_of(z, labels)
    current = Subspaces(random_bases(K, d, P))
    for _ in range(12):
        sums.changed.fill_(True)
        current = sums.subspaces(dims(), current)
    for i in range(K):
        exact = left_singular(z[labels == i].numpy(), P)
        assert principal_angles(current.bases[i], exact).max() < 1e-6


# Trimming ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trim", "kept"), [(0.0, [7, 10, 1]), (0.1, [7, 9, 1]), (0.3, [5, 7, 1])])
def test_each_cluster_drops_its_farthest_share_rounded_down(trim, kept):
    labels = torch.tensor([0] * 7 + [1] * 10 + [2])
    residual = torch.randperm(18, generator=torch.Generator().manual_seed(0)).double()
    keep = keep_nearest(residual, labels, trim, 3)
    for i, count in enumerate(kept):
        mine = labels == i
        assert int(keep[mine].sum()) == count
        if count < int(mine.sum()):
            assert residual[mine & keep].max() < residual[mine & ~keep].min()


def test_ties_at_the_cut_keep_the_first():
    keep = keep_nearest(torch.ones(10), torch.zeros(10, dtype=torch.long), 0.3, 1)
    assert keep.tolist() == [True] * 7 + [False] * 3
