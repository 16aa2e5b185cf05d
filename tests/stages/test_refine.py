"""Self-labelled refinement on images whose clusters are known."""

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn.metrics import clustering_accuracy
from kscn.nn import ConvEncoder, InputScaling, UnitLatent
from kscn.runtime.minibatches import Minibatches
from kscn.stages.pretrain import Trainer
from kscn.stages.refine import FeatureView, Refinement
from kscn.subspaces import Subspaces

K, P, N = 3, 2, 240


def images():
    """Bars that lie, stand or cross, at random places, in noise."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % K
    X = 0.1 * rng.random((N, 8, 8))
    for image, kind in zip(X, y, strict=True):
        row, column = rng.integers(1, 7, 2)
        if kind != 1:
            image[row] += 1
        if kind != 0:
            image[:, column] += 1
    return X.astype(np.float32), y


def view():
    """Features in which every kind of bar has a line of its own, in noise."""
    _, y = images()
    rng = np.random.default_rng(2)
    z = np.eye(5)[y] * rng.normal(size=(N, 1)) + 0.3 * rng.normal(size=(N, 5))
    z = z.astype(np.float32)
    return FeatureView(as_source(z), torch.from_numpy(z), torch.arange(N), 1, seed=0)


def refinement(labels, doubt=None, hold=4, epochs=8, trim=0.2, average=0.9, every=1):
    X, _ = images()
    source = as_source(X)
    batches = Minibatches(source, InputScaling.of(source, True), (1, 8, 8), 32, torch.device("cpu"))
    torch.manual_seed(0)
    trainer = Trainer(
        ConvEncoder((1, 8, 8), K * P, (8, 16)),
        UnitLatent(),
        batches,
        epochs=epochs,
        learning_rate=1e-2,
        schedule="one-cycle",
        generator=torch.Generator().manual_seed(0),
        stage="the refinement",
        reconstruct=False,
        average=average,
    )
    bases = torch.eye(K * P).view(K * P, K, P).permute(1, 0, 2).contiguous()
    doubt = torch.zeros(N) if doubt is None else doubt
    made = Refinement(
        trainer,
        Subspaces(bases),
        torch.as_tensor(labels),
        doubt,
        view,
        hold=hold,
        every=every,
        trim=trim,
        temperature=0.1,
        balance=0.0,
        shares=torch.full((K,), 1 / K),
    )
    made.begin()
    return made


def test_clusters_that_are_wrong_in_places_are_corrected():
    _, y = images()
    rng = np.random.default_rng(1)
    wrong = rng.permutation(N)[: N // 8]
    given = y.copy()
    given[wrong] = (y[wrong] + 1) % K
    doubt = torch.zeros(N)
    doubt[torch.from_numpy(wrong)] = 1.0  # the start was not sure of them
    made = refinement(given, doubt, hold=12, epochs=24)
    made.run(24, 0.0, lambda _: None)
    before, after = clustering_accuracy(y, given), clustering_accuracy(y, made.labels.numpy())
    assert before < 0.9 < after


def test_doubtful_samples_do_not_teach_while_the_start_is_held():
    _, y = images()
    doubt = torch.arange(N).float()
    made = refinement(y, doubt, trim=0.25)
    targets = made._targets()
    for cluster in range(K):
        members = torch.from_numpy(np.flatnonzero(y == cluster))
        taught = members[targets[members] >= 0]
        torch.testing.assert_close(taught, members[: len(members) - len(members) // 4])


@pytest.mark.parametrize("hold", [1, 3])
def test_the_start_is_held_for_so_many_epochs(hold):
    rng = np.random.default_rng(0)
    given = torch.from_numpy(rng.integers(K, size=N))  # nothing that a network could learn
    made = refinement(given, hold=hold, trim=0.0)
    same = []

    def look(epoch):
        same.append(bool((made._targets() == given).all()))

    made.run(hold + 1, 0.0, look)
    assert same[:-2] == [True] * (hold - 1)
    assert same[hold - 1 :] == [False, False]


def test_afterwards_it_learns_what_two_views_settle_on():
    _, y = images()
    made = refinement(y, hold=1, epochs=3, trim=0.25)
    made.run(2, 0.0, lambda _: None)
    settled = made.view.combined(made._distances())
    targets = made._targets()
    taught = targets >= 0
    torch.testing.assert_close(targets[taught], settled.labels[taught])
    assert settled.doubt[taught].mean() < settled.doubt[~taught].mean()


def test_what_was_settled_is_kept_until_the_next_question():
    _, y = images()
    made = refinement(y, hold=2, epochs=6, every=2)
    asked, settle = [], made.view.combined

    def listening(distance):
        asked.append(made.trainer.epochs_done)
        return settle(distance)

    made.view.combined = listening
    learnt = []
    made.run(6, 0.0, lambda _: learnt.append(made.targets))
    assert asked == [2, 4]
    assert learnt[2] is learnt[3] and learnt[4] is learnt[5]
    torch.testing.assert_close(made.state_dict().tensors["targets"], learnt[5])
