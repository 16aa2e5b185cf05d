"""The closed-form update from scatter sums against the SVD of the members, and the sums."""

import numpy as np
import pytest
import torch

from kscn import KSubspaces
from kscn.errors import InputError
from kscn.subspaces import (
    ScatterSums,
    Subspaces,
    check_size,
    keep_nearest,
    principal_angles,
)
from kscn.subspaces.update import SMALL_DIM

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
    repeated = sums_of(
        z.repeat_interleave(times, dim=0), labels.repeat_interleave(times), affine=affine
    )
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


def test_a_cluster_without_members_keeps_its_subspace():
    z, labels = clustered()
    sums = sums_of(z, torch.where(labels == 2, 0, labels))
    current = Subspaces(random_bases(K, D, P))
    after = sums.subspaces(dims(), current)
    assert torch.equal(after.bases[2], current.bases[2])
    assert after.fault() is None


def test_a_cluster_of_one_member_keeps_the_directions_that_it_says_nothing_about():
    current = random_bases(1, D, P)
    member = torch.randn(1, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sums = sums_of(member, torch.zeros(1, dtype=torch.long), k=1)
    (found,) = sums.subspaces(dims(k=1), Subspaces(current)).bases
    torch.testing.assert_close(found.mT @ found, torch.eye(P, dtype=torch.float64))
    # Its own direction, and those of the current subspace that are orthogonal to it.
    line = member[0] / member[0].norm()
    assert abs(float(found[:, 0] @ line)) == pytest.approx(1, abs=1e-6)
    kept = torch.linalg.svdvals(current[0].mT @ found[:, 1:])
    torch.testing.assert_close(kept, torch.ones(P - 1, dtype=torch.float64), atol=1e-6, rtol=0)


def test_reordered_sums_give_reordered_subspaces():
    z, labels = clustered(offset=1.0)
    order = torch.tensor([1, 2, 0])
    sums = sums_of(z, labels, affine=True)
    expected = sums.subspaces(dims())[order]
    found = sums[order].subspaces(dims())
    torch.testing.assert_close(found.offsets, expected.offsets)
    assert principal_angles(found.bases, expected.bases).max() < 1e-6


# High dimensions: steps from the last answer ------------------------------------------------------

HIGH = SMALL_DIM + 72


def test_steps_hold_ever_more_and_end_in_the_exact_update():
    z, labels = clustered(400, d=HIGH, seed=3)
    sums, scatter = sums_of(z, labels), sums_of(z, labels).centred()
    current = Subspaces(random_bases(K, HIGH, P))
    for _ in range(20):
        held = energy(scatter, current.bases)
        current = sums.subspaces(dims(), current, exact=False)
        assert current.fault(1e-10) is None
        assert (energy(scatter, current.bases) >= held * (1 - 1e-12)).all()
    exact = sums.subspaces(dims())
    assert principal_angles(current.bases, exact.bases).max() < 1e-6


@pytest.mark.parametrize("affine", [False, True])
def test_moves_between_clusters_end_in_the_svd_of_the_members(affine):
    z, labels = clustered(400, d=HIGH, seed=3, offset=0.5)
    sums = sums_of(z, labels, affine=affine)
    current = sums.subspaces(dims())
    rng = np.random.default_rng(0)
    for _ in range(8):
        moving = torch.tensor(rng.choice(400, 40, replace=False))
        target = torch.tensor(rng.integers(K, size=40))
        sums.add(z[moving], target)
        sums.add(z[moving], labels[moving], sign=-1.0)
        labels[moving] = target
        scatter = sums.centred()
        held = energy(scatter, current.bases)
        current = sums.subspaces(dims(), current)
        assert current.fault(1e-10) is None
        assert (energy(scatter, current.bases) >= held * (1 - 1e-12)).all()
    for i in range(K):
        members = z[labels == i].numpy()
        exact = left_singular(members - affine * members.mean(axis=0), P)
        assert principal_angles(current.bases[i], exact).max() < 1e-6


def energy(scatter, bases):
    return (bases * (scatter @ bases)).sum(dim=(1, 2))


@pytest.mark.parametrize("p", [1, 6])
def test_directions_that_the_last_answer_knows_nothing_of_are_found(p):
    # Sparse samples, such as counts of words: every new direction is orthogonal, to the bit, to
    # all that was known before.
    def on_axes(axes, length):
        return length * torch.eye(HIGH, dtype=torch.float64)[axes].repeat(20, 1)

    sums = ScatterSums(1, HIGH, affine=False)
    known = on_axes(torch.arange(p), 1.0)
    sums.add(known, torch.zeros(len(known), dtype=torch.long))
    current = sums.subspaces(torch.tensor([p]))
    for axes in torch.arange(p, HIGH - p).split(p)[::7]:
        fresh = on_axes(axes, 1.0 + float(axes[0]))
        sums.add(fresh, torch.zeros(len(fresh), dtype=torch.long))
        current = sums.subspaces(torch.tensor([p]), current)
        best = float(sums.spectra()[0, p:].sum())
        assert sums.objective(current.bases) == pytest.approx(best, rel=1e-6)


# Trimming -----------------------------------------------------------------------------------------


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


# Sizes --------------------------------------------------------------------------------------------


def test_sums_that_would_not_fit_are_refused_before_any_work():
    X = np.random.default_rng(0).standard_normal((6, 40000)).astype(np.float32)
    model = KSubspaces(np.int32(2), subspace_dim=1, callbacks=[pytest.fail])
    with pytest.raises(InputError, match=r"needs 23\.8 GiB .* 8 GiB; reduce .* PCA") as caught:
        model.fit(X)
    assert "n_clusters=2 in 40000 features" in str(caught.value)


def test_sums_of_the_largest_size_are_allowed():
    check_size(1, 2**15)  # 8 GiB
    with pytest.raises(InputError):
        check_size(1, 2**15 + 1)
