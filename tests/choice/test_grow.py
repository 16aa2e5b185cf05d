"""Growing subspaces: what folds have to do with each other, and that it mends labels."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn import metrics
from kscn.choice.grow import GROWTH, dimensions, fold_of, grow, residuals_across
from kscn.data import as_source
from kscn.runtime.blocks import Blocks
from kscn.runtime.group import ALONE
from kscn.subspaces import Subspaces

SEED = 0


@given(st.integers(1, 50), st.integers(1, 5000), st.integers(2, 400))
@settings(max_examples=50, deadline=None)
def test_dimensions_rise_and_leave_room(first, members, ambient):
    found = dimensions(first, members, ambient)
    last = min(ambient // 3, members // 10)
    assert found == sorted(set(found))
    assert all(first < dim <= last for dim in found)
    assert all(after <= 2 * before for before, after in zip([first, *found], found, strict=False))
    assert (found[-1] == last) if first < last else not found


def clusters(n=1200, k=3, d=24, p=6, seed=0):
    """Clusters whose directions have falling spread: small subspaces see only the first of them."""
    rng = np.random.default_rng(seed)
    bases = np.linalg.qr(rng.standard_normal((k, d, p)))[0]
    labels = rng.integers(k, size=n)
    spread = 0.8 ** np.arange(p)
    x = np.einsum("ndp,np->nd", bases[labels], spread * rng.standard_normal((n, p)))
    x += 0.02 * rng.standard_normal(x.shape)
    z = torch.from_numpy(x / np.linalg.norm(x, axis=1, keepdims=True)).float()
    return z, torch.from_numpy(labels)


def folds(z):
    return fold_of(torch.arange(len(z)), SEED)


def everywhere(z, grown, group=ALONE):
    rows = Blocks(group.part(as_source(z.numpy())), torch.float32, z.device, batch_size=7)
    return torch.cat(list(residuals_across(rows, grown.without, SEED)))


def test_wrong_labels_are_mended():
    z, true = clusters()
    noisy = true.clone()
    noisy[::5] = (noisy[::5] + 1) % 3
    grown = grow(z, folds(z), noisy, 3, [4, 6])
    mended = everywhere(z, grown).argmin(dim=1)
    assert metrics.clustering_accuracy(noisy.numpy(), true.numpy()) < 0.85
    assert metrics.clustering_accuracy(mended.numpy(), true.numpy()) > 0.98
    assert grown.whole.bases.shape == (3, 24, 6)


def test_a_sample_is_judged_by_others_than_itself():
    z, labels = clusters()
    moved = z.clone()
    moved[0] = torch.nn.functional.normalize(torch.randn(24), dim=0)
    before, after = (grow(x, folds(z), labels, 3, [6]) for x in (z, moved))
    changed = [
        not torch.allclose(a.bases @ a.bases.mT, b.bases @ b.bases.mT, atol=1e-6)
        for a, b in zip(before.without, after.without, strict=True)
    ]
    assert changed == [number != int(folds(z)[0]) for number in range(GROWTH.folds)]
    every = torch.stack([others.residuals(z) for others in before.without])
    expected = every[folds(z), torch.arange(len(z))]
    torch.testing.assert_close(everywhere(z, before), expected)


def test_a_cluster_without_members_and_a_single_one():
    z, labels = clusters(n=300)
    grown = grow(z, folds(z), labels, 4, [3, 6])
    assert all(part.bases.isfinite().all() for part in [grown.whole, *grown.without])
    alone = grow(z, folds(z), torch.zeros_like(labels), 1, [3])
    assert everywhere(z, alone).shape == (len(z), 1)


def test_samples_leave_clusters_that_they_shaped():
    """Near a large subspace that it had a part in, a sample stays; the other folds judge."""
    z, true = clusters(n=240, d=40, p=6)
    wrong = true.clone()
    wrong[:24] = (wrong[:24] + 1) % 3
    own = wrong
    for _ in range(6):
        found = Subspaces(
            torch.stack([torch.linalg.svd(z[own == c].T).U[:, :30] for c in range(3)])
        )
        own = found.assign(z)[0]
    grown = grow(z, folds(z), wrong, 3, [30])
    across = everywhere(z, grown).argmin(dim=1)
    right = [(labels[:24] == true[:24]).float().mean() for labels in (own, across)]
    assert right[1] > right[0] + 0.2
