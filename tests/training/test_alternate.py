"""The alternation: subspaces follow by SVD or by gradient, and a broken network is noticed."""

import numpy as np
import pytest
import torch
import trainers
from torch import nn

from kscn.data import make_union_of_subspaces
from kscn.errors import TrainingError
from kscn.metrics import clustering_accuracy
from kscn.runtime.blocks import Blocks
from kscn.runtime.minibatches import encode
from kscn.subspaces import ScatterSums, Subspaces, principal_angles
from kscn.subspaces.grassmann import descend
from kscn.training.alternate import (
    NONE,
    Options,
    alternate,
    assign_latents,
    svd_update,
    without_farthest,
)
from kscn.training.losses import LOSSES

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
    return trainers.dense(D, 12, 6)


def start(d=D, p=P, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Subspaces(torch.linalg.qr(torch.randn(K, d, p, generator=generator)).Q)


class Fit:
    """An alternation, with all that it is made of and what it found."""

    def __init__(self, module, X, begin=None, *, epochs=1, found=NONE, on_record=None, **settings):
        self.run = trainers.new_run(on_record=on_record or (lambda _: None))
        rate, size = settings.pop("learning_rate", 0.0), settings.pop("batch_size", 32)
        self.trainer = trainers.trainer(
            module, X, self.run, batch_size=size, learning_rate=rate, stage="the alternation"
        )
        usual = {"update": "svd", "weight": 0.1, "loss": "residual", "tol": -1.0}
        self.options = Options(epochs=epochs, **usual | settings)
        self.begin = begin or start()
        self.before = self.nearest(self.begin)
        self.subspaces, _ = alternate(self.trainer, self.begin, self.options, self.run, found)
        self.records = self.run.history

    def nearest(self, subspaces):
        return assign_latents(self.trainer.latents(), subspaces, self.trainer, self.run)

    @property
    def latents(self):
        return encode(self.trainer.batches, self.trainer.encoding)[:]


def projectors(bases):
    bases = torch.as_tensor(np.asarray(bases)).double()
    return bases @ bases.mT


def same_spans(found, expected, atol=1e-4):
    torch.testing.assert_close(projectors(found), projectors(expected), rtol=0, atol=atol)


# SVD ----------------------------------------------------------------------------------------------


def svd_of_kept(z, before, trim):
    """numpy's SVD of each cluster's nearest members."""
    z = z.astype(np.float64)
    distance = np.stack([((z - z @ S @ S.T) ** 2).sum(axis=1) for S in before], axis=1)
    labels, found = distance.argmin(axis=1), []
    for i in range(K):
        members = np.flatnonzero(labels == i)
        dropped = int(trim * len(members))
        assert len(members) - dropped > P
        nearest = members[np.argsort(distance[members, i])[: len(members) - dropped]]
        found.append(np.linalg.svd(z[nearest].T)[0][:, :P])
    return np.stack(found)


@pytest.mark.parametrize("trim", [0.0, 0.1, 0.3])
def test_one_update_is_numpys_svd_of_the_kept_members(trim):
    X, _ = union(noise=0.5)
    fit = Fit(network(), X, start(6), trim=trim, learning_rate=1e-2, batch_size=16)
    # The latents are those of the network after the epoch.
    expected = svd_of_kept(fit.latents, fit.begin.bases.double().numpy(), trim)
    same_spans(fit.subspaces.bases, expected)


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_one_epoch_is_that_of_the_paper(update):
    """Adam on |x - g(f(x))|^2 + weight min |z - S S^T z|^2 by hand, then the update of S."""
    X, _ = union(noise=0.5)
    fit = Fit(network(), X, start(6), update=update, learning_rate=1e-2, batch_size=16)
    net, twin = fit.trainer.network.autoencoder, network()
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-2)
    S, scatter, losses = fit.begin.bases, np.zeros((K, 6, 6)), np.zeros(2)
    again = trainers.trainer(network(), X, stage="the alternation", batch_size=16)
    for batch in again.epoch(0):
        x = torch.from_numpy(X)[batch.rows]
        assert torch.equal(batch.clean, x)
        z = twin.encode(x)
        away = z[:, None] - torch.einsum("kdp,kep,ne->nkd", S, S, z)
        distance, nearest = away.square().sum(dim=2).min(dim=1)
        l_ae = (twin.decode(z) - x).square().sum(dim=1).mean()
        optimizer.zero_grad()
        (l_ae + 0.1 * distance.mean()).backward()
        optimizer.step()
        losses += len(x) * np.array([l_ae.item(), distance.mean().item()]) / N
        for i in range(K):
            members = z.detach()[nearest == i].double().numpy()
            scatter[i] += members.T @ members
    for mine, hand in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, hand, rtol=1e-4, atol=1e-6)
    record = fit.records[0]
    assert [record["reconstruction"], record["subspace"]] == pytest.approx(losses, rel=1e-4)
    expected = descend(torch.from_numpy(scatter), S.double())
    if update == "svd":
        expected = svd_of_kept(fit.latents, S.double().numpy(), 0.0)
    same_spans(fit.subspaces.bases, expected, atol=1e-3)


@pytest.mark.parametrize("update", ["svd", "grassmann"])
@pytest.mark.parametrize("seed", range(3))
def test_with_the_network_held_the_objective_never_rises(update, seed):
    X, _ = union(noise=0.3, seed=seed)
    fit = Fit(Same(), X, start(seed=seed), update=update, epochs=10)
    objective = [fit.before.objective] + [record["objective"] for record in fit.records]
    assert (np.diff(objective) <= 1e-5 * objective[0]).all()
    assert objective[-1] < 0.8 * objective[0]


@pytest.mark.parametrize("trim", [0.0, 0.2])
def test_blocks_of_any_size_give_the_same_update(trim):
    X, _ = union(noise=0.5)
    fit = Fit(Same(), X, epochs=0)
    latents = fit.trainer.latents()
    found = [
        svd_update(
            Blocks(latents.source, torch.float32, trainers.CPU, batch_size=size),
            fit.begin, trim, fit.trainer, fit.run,
        )
        for size in (1, 7, 64, None)
    ]  # fmt: skip
    for one in found[1:]:
        same_spans(one.bases, found[0].bases, atol=1e-6)


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_well_separated_subspaces_are_found(update):
    X, y = union(noise=0.01)
    rough = y.copy()
    rough[::5] = (rough[::5] + 1) % K
    sums = ScatterSums(K, D, affine=False)
    sums.add(torch.from_numpy(X).double(), torch.from_numpy(rough))
    begin = sums.subspaces(torch.full((K,), P)).to(torch.float32)
    fit = Fit(Same(), X, begin, update=update, epochs=30, tol=0.0)
    assert clustering_accuracy(y, fit.nearest(fit.subspaces).labels.numpy()) == 1
    assert fit.records[-1]["changed"] == 0
    assert len(fit.records) < 30


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_an_empty_cluster_gets_a_new_subspace_and_members(update):
    X, _ = union(noise=0.05)
    X = np.pad(X, ((0, 0), (0, 3)))[:, 3:]  # the last three features are zero for everyone
    bases = start().bases.clone()
    bases[2] = torch.eye(D)[:, -P:]
    fit = Fit(Same(), X, Subspaces(bases), update=update, epochs=2)
    assert fit.before.sizes[2] == 0
    assert min(fit.records[-1]["sizes"]) > 0


# Grassmann ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 0.1])
@pytest.mark.parametrize("batch_size", [1, 32, 4096])
def test_an_epoch_gathers_the_gradient_of_all_samples_and_takes_one_step(weight, batch_size):
    X, _ = union(noise=0.5)
    fit = Fit(Same(), X, update="grassmann", weight=weight, batch_size=batch_size)
    sums, z = ScatterSums(K, D, affine=False), torch.from_numpy(X)
    sums.add(z.double(), fit.begin.assign(z)[0])
    expected = descend(sums.second, fit.begin.bases.double())
    same_spans(fit.subspaces.bases, expected, atol=1e-5)
    assert fit.records[0]["angle"] > 0.1


def test_the_gradient_step_leaves_nobody_out():
    X, _ = union(noise=0.5)
    ends = [Fit(Same(), X, update="grassmann", trim=trim).records[0] for trim in (0.0, 0.3)]
    assert ends[0]["objective"] == ends[1]["objective"]


# Both ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", ["svd", "grassmann"])
@pytest.mark.parametrize("loss", LOSSES)
def test_records_tell_what_happened(update, loss):
    X, _ = union(noise=0.5)
    settings = {"update": update, "loss": loss, "learning_rate": 1e-2, "trim": 0.1}
    fit = Fit(network(), X, start(6), epochs=3, **settings)
    for number, record in enumerate(fit.records, start=1):
        assert (record["stage"], record["epoch"], record["epochs"]) == ("fit", number, 3)
        assert sum(record["sizes"]) == N
        assert 0 <= record["changed"] <= 1
        assert 0 <= record["angle"] <= 90
        assert 0 <= record["relative"] <= 1
        assert min(record["objective"], record["reconstruction"], record["subspace"]) > 0
    fit = Fit(network(), X, start(6), **settings)
    (record,), now = fit.records, fit.nearest(fit.subspaces)
    assert record["changed"] == float((now.labels != fit.before.labels).double().mean())
    assert record["sizes"] == now.sizes.tolist()
    assert record["objective"] == pytest.approx(float(now.distance.sum()), rel=1e-5)
    energy = float(np.square(fit.latents, dtype=np.float64).sum())
    assert record["relative"] == pytest.approx(record["objective"] / energy, rel=1e-4)
    turned = principal_angles(fit.begin.bases, fit.subspaces.bases).max().rad2deg()
    assert record["angle"] == pytest.approx(float(turned), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("update, kept", [("svd", 3), ("grassmann", 0)])
def test_clusters_found_elsewhere_are_kept_for_most_epochs(update, kept):
    """The network learns them in four of five; the gradient of kSCN-G is that of the nearest."""
    X, _ = union()
    labels = torch.arange(len(X)) % K  # which no subspace describes
    expected = np.stack([np.linalg.svd(X[labels == i].T)[0][:, :P] for i in range(K)])

    def turned_after(epoch):
        fit = Fit(
            Same(), X, loss="separation", found=labels, epochs=5, update=update,
            on_record=lambda record: record["epoch"] == epoch,
        )  # fmt: skip
        return projectors(fit.subspaces.bases).sub(projectors(expected)).abs().max() > 0.01

    assert not kept or not turned_after(kept)
    assert turned_after(kept + 1)


def test_trimmed_samples_teach_the_separation_loss_nothing():
    X, _ = union(noise=0.5)
    fit = Fit(network(), X, start(6), epochs=0)
    now = fit.nearest(fit.begin)
    labels = without_farthest(now, 0.2, fit.run)
    for i in range(K):
        members = (now.labels == i).nonzero().flatten()
        out = members[labels[members] == -1]
        kept = members[labels[members] == i]
        assert len(out) == int(0.2 * len(members))
        assert len(out) + len(kept) == len(members)
        if len(out):
            assert now.distance[out].min() >= now.distance[kept].max()


def test_a_latent_that_collapses_or_is_no_number_is_said_with_the_epoch():
    X, _ = union()
    given = Same()
    given.scale.data.zero_()
    with pytest.raises(TrainingError, match="collapsed by epoch 0"):
        Fit(given, X, weight=0.0)
    given.scale.data.fill_(float("nan"))
    with pytest.raises(TrainingError, match="no longer finite after epoch 0"):
        Fit(given, X)
