"""The alternation: subspaces follow by SVD or by gradient, and a broken network is noticed."""

import numpy as np
import pytest
import torch
from torch import nn

from kscn.data import as_source, make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn.nn import DenseAutoencoder, IdentityLatent, InputScaling
from kscn.runtime.latents import LatentSource
from kscn.runtime.minibatches import Minibatches
from kscn.stages import alternation as module
from kscn.stages.alternation import Alternation
from kscn.stages.losses import ResidualLoss
from kscn.stages.pretrain import Trainer
from kscn.subspaces import ScatterSums, Subspaces, principal_angles
from kscn.subspaces.grassmann import descend

CPU = torch.device("cpu")
K, D, P, N = 3, 8, 2, 100


class Same(nn.Module):
    """An autoencoder whose latent is the sample itself, as long as it is not trained."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def encode(self, x):
        return x * self.scale

    def decode(self, z):
        return z / self.scale


def union(noise=0.1, seed=0):
    return make_union_of_subspaces(N, K, D, P, noise=noise, random_state=seed)[:2]


def network():
    torch.manual_seed(0)
    return DenseAutoencoder(D, [12], 6)


def start(d=D, p=P, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Subspaces(torch.linalg.qr(torch.randn(K, d, p, generator=generator)).Q)


def alternation(module, X, subspaces=None, **settings):
    batches = Minibatches(
        as_source(X),
        InputScaling(),
        (D,),
        settings.pop("batch_size", 32),
        CPU,
    )
    trainer = Trainer(
        module,
        settings.pop("latent", IdentityLatent()),
        batches,
        epochs=5,
        learning_rate=settings.pop("learning_rate", 0.0),
        schedule="constant",
        generator=torch.Generator().manual_seed(0),
        stage="the alternation",
    )
    settings = {
        "update": "svd",
        "loss": "residual",
        "weight": 0.1,
        "trim": 0.0,
        "temperature": 0.1,
        "balance": 0.0,
    } | settings
    made = Alternation(trainer, subspaces or start(), **settings)
    made.begin()
    return made


def run(given, epochs=1, tol=-1.0):
    records = []
    given.run(epochs, tol, records.append)
    return records


def projectors(bases):
    bases = torch.as_tensor(bases).double()
    return bases @ bases.mT


# SVD ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trim", [0.0, 0.1, 0.3])
def test_one_update_is_numpys_svd_of_the_kept_members(trim):
    X, _ = union(noise=0.5)
    given = alternation(network(), X, start(6), trim=trim, learning_rate=1e-2, batch_size=16)
    before = given.subspaces.bases.double().numpy()
    run(given)
    z = np.asarray(given.latents, dtype=np.float64)  # those that the trained network gives
    distance = np.stack([((z - z @ basis @ basis.T) ** 2).sum(axis=1) for basis in before], axis=1)
    labels = distance.argmin(axis=1)
    expected = []
    for i in range(K):
        members = np.flatnonzero(labels == i)
        dropped = int(trim * len(members))
        assert len(members) - dropped > P
        nearest = members[np.argsort(distance[members, i])[: len(members) - dropped]]
        expected.append(np.linalg.svd(z[nearest].T)[0][:, :P])
    torch.testing.assert_close(
        projectors(given.subspaces.bases), projectors(np.stack(expected)), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_with_the_network_held_the_objective_never_rises(update):
    X, _ = union(noise=0.3)
    given = alternation(Same(), X, update=update)
    objective = [float(given.distance.sum())]
    objective += [record.objective for record in run(given, 10)]
    assert (np.diff(objective) <= 1e-5 * objective[0]).all()
    assert objective[-1] < 0.8 * objective[0]


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_well_separated_subspaces_are_found(update):
    X, y = union(noise=0.01)
    rough = y.copy()
    rough[::5] = (rough[::5] + 1) % K
    sums = ScatterSums(K, D, affine=False)
    sums.add(torch.from_numpy(X).double(), torch.from_numpy(rough))
    begin = sums.subspaces(torch.full((K,), P)).to(torch.float32)
    given = alternation(Same(), X, begin, update=update)
    records = run(given, 30, tol=0.0)
    assert clustering_accuracy(y, given.labels.numpy()) == 1
    assert records[-1].changed == 0
    assert len(records) < 30


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_an_empty_cluster_gets_a_new_subspace_and_members(update):
    X, _ = union(noise=0.05)
    X = np.pad(X, ((0, 0), (0, 3)))[:, 3:]  # the last three features are zero for everyone
    bases = start().bases.clone()
    bases[2] = torch.eye(D)[:, -P:]
    given = alternation(Same(), X, Subspaces(bases), update=update)
    assert torch.bincount(given.labels, minlength=K)[2] == 0
    records = run(given, 2)
    assert min(records[-1].sizes) > 0


# Grassmann ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 0.1])
@pytest.mark.parametrize("together", [1, 40, 4096])
def test_an_epoch_gathers_the_gradient_of_all_samples_and_takes_one_step(weight, together):
    X, _ = union(noise=0.5)
    given = alternation(Same(), X, update="grassmann", weight=weight)
    given.together = together
    before = given.subspaces
    sums = ScatterSums(K, D, affine=False)
    z = torch.from_numpy(X)
    sums.add(z.double(), before.assign(z)[0])
    expected = descend(sums.second, before.bases.double())
    record = run(given)[0]
    torch.testing.assert_close(
        projectors(given.subspaces.bases), projectors(expected), rtol=0, atol=1e-5
    )
    assert record.angle > 0.1
    assert given.gather_seconds < record.update_seconds < record.seconds
    assert float(given.sums.second.abs().sum()) == 0  # the next epoch begins anew


def test_the_gradient_step_leaves_nobody_out():
    X, _ = union(noise=0.5)
    ends = [
        run(alternation(Same(), X, update="grassmann", trim=trim))[0].objective
        for trim in (0.0, 0.3)
    ]
    assert ends[0] == ends[1]


# Both ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", ["svd", "grassmann"])
@pytest.mark.parametrize("loss", ["residual", "separation"])
def test_records_tell_what_happened(update, loss):
    X, _ = union(noise=0.5)
    given = alternation(
        network(), X, start(6), update=update, loss=loss, learning_rate=1e-2, trim=0.1
    )
    labels, bases = given.labels, given.subspaces.bases
    for number, record in enumerate(run(given, 3), start=1):
        assert record.number == number
        assert sum(record.sizes) == N
        assert 0 <= record.changed <= 1
        assert 0 <= record.angle <= 90
        assert 0 <= record.relative <= 1
        assert 0 <= record.update_seconds <= record.seconds
        assert min(record.objective, record.reconstruction, record.subspace) > 0
    given = alternation(
        network(), X, start(6), update=update, loss=loss, learning_rate=1e-2, trim=0.1
    )
    record = run(given)[0]
    assert record.changed == float((given.labels != labels).double().mean())
    assert record.sizes == torch.bincount(given.labels, minlength=K).tolist()
    assert record.objective == pytest.approx(float(given.distance.sum()), rel=1e-5)
    z = torch.from_numpy(given.latents[:]).double()
    assert record.relative == pytest.approx(record.objective / float(z.square().sum()), rel=1e-4)
    turned = principal_angles(bases, given.subspaces.bases).max().rad2deg()
    assert record.angle == pytest.approx(float(turned), rel=1e-3, abs=1e-3)


def test_clusters_found_elsewhere_are_kept_for_most_epochs():
    X, _ = union()
    labels = torch.arange(len(X)) % K  # which no subspace describes
    given = alternation(Same(), X, loss="separation", found=labels)
    expected = np.stack([np.linalg.svd(X[labels == i].T)[0][:, :P] for i in range(K)])
    targets = []

    def look(epoch):
        targets.append(given.targets)
        if epoch.number < 4:  # each cluster has its own subspace, not only any of them
            torch.testing.assert_close(
                projectors(given.subspaces.bases), projectors(expected), rtol=0, atol=1e-4
            )

    given.run(5, -1.0, look)
    assert [torch.equal(learned, labels) for learned in targets] == [True] * 4 + [False]


def test_a_fit_that_goes_on_does_not_return_to_clusters_found_elsewhere():
    X, _ = union()
    labels = torch.arange(len(X)) % K
    first = alternation(Same(), X, loss="separation", found=labels)
    run(first, 4)
    second = alternation(Same(), X, loss="separation", found=labels)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.subspaces.bases, first.subspaces.bases)
    assert torch.equal(second.labels, first.labels)


def test_trimmed_samples_teach_the_separation_loss_nothing():
    X, _ = union(noise=0.5)
    given = alternation(network(), X, start(6), loss="separation", trim=0.2)
    labels = given._targets()
    for i in range(K):
        members = (given.labels == i).nonzero().flatten()
        out = members[labels[members] == -1]
        kept = members[labels[members] == i]
        assert len(out) == int(0.2 * len(members))
        assert len(out) + len(kept) == len(members)
        if len(out):
            assert given.distance[out].min() >= given.distance[kept].max()
    assert isinstance(alternation(network(), X, start(6))._make_loss(), ResidualLoss)


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_latents_that_are_not_kept_give_the_same_result(update, monkeypatch):
    X, _ = union(noise=0.5)
    ends = []
    for keep in (module.encode, LatentSource):
        monkeypatch.setattr(module, "encode", keep)
        given = alternation(network(), X, start(6), update=update, learning_rate=1e-2, trim=0.1)
        run(given, 2)
        ends.append((given.subspaces.bases, given.labels))
    assert torch.equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])
