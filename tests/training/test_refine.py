"""Self-labelled refinement on images whose clusters are known."""

import numpy as np
import torch
import trainers

from kscn.choice.view import FeatureView
from kscn.data import as_source
from kscn.metrics import clustering_accuracy
from kscn.nn import ConvEncoder, DeepNetwork, UnitLatent
from kscn.runtime.labels import assign
from kscn.runtime.minibatches import Minibatches
from kscn.runtime.moments import scaling_of
from kscn.subspaces import Subspaces
from kscn.training.refine import refine
from kscn.training.trainer import Trainer

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


class Fit:
    """A refinement, with what it learned in every epoch."""

    def __init__(self, labels, doubt=None, epochs=8, ended=None, seen=None):
        X, _ = images()
        source, self.run = as_source(X), trainers.new_run(0, on_record=self.look)
        scaling = scaling_of(source, True)
        batches = Minibatches(source, scaling, (1, 8, 8), 32, trainers.CPU)
        torch.manual_seed(0)
        network = DeepNetwork(ConvEncoder((1, 8, 8), K * P), UnitLatent(), decodes=False)
        settings = {"learning_rate": 1e-2, "schedule": "one-cycle", "augment": None}
        self.trainer = Trainer(
            network, batches, self.run, "the refinement", epochs=epochs, average=0.9, **settings
        )
        self.axes, self.view = Subspaces.along_axes(K, P).to(torch.float32), seen or view()
        self.ended, self.learned, self.now = ended, [], None
        doubt = torch.zeros(N) if doubt is None else doubt
        run_epochs = self.run.epochs

        def epochs_of(stage, count, **parts):
            self.now = parts["now"]
            return run_epochs(stage, count, **parts)

        self.run.epochs = epochs_of
        labels = torch.as_tensor(labels)
        refine(self.trainer, self.axes, labels, doubt, self.agreed, epochs, self.run)

    def agreed(self, latents):
        return self.view.combined(torch.cat([self.axes.residuals(z) for _, z in latents]))

    def look(self, record):
        self.learned.append(self.now["learnt"])
        return record["epoch"] == self.ended

    @property
    def labels(self):
        return assign(self.trainer.latents(), self.axes).labels.numpy()


def test_clusters_that_are_wrong_in_places_are_corrected():
    _, y = images()
    rng = np.random.default_rng(1)
    wrong = rng.permutation(N)[: N // 8]
    given = y.copy()
    given[wrong] = (y[wrong] + 1) % K
    doubt = torch.zeros(N)
    doubt[torch.from_numpy(wrong)] = 1.0  # the start was not sure of them
    made = Fit(given, doubt, epochs=24)
    before, after = clustering_accuracy(y, given), clustering_accuracy(y, made.labels)
    assert before < 0.9 < after


def test_doubtful_samples_do_not_teach_while_the_start_is_held():
    _, y = images()
    doubt = torch.arange(N).float()
    targets = Fit(y, doubt, ended=1).learned[0]
    for cluster in range(K):
        members = torch.from_numpy(np.flatnonzero(y == cluster))
        taught = members[targets[members] >= 0]
        torch.testing.assert_close(taught, members[: len(members) - len(members) // 10])


def test_the_start_is_held_for_a_part_of_the_epochs_and_then_what_was_settled_for_two():
    given = torch.from_numpy(np.random.default_rng(0).integers(K, size=N))  # nothing to learn
    asked, seen = [], view()
    settle = seen.combined

    def listening(distance):
        asked.append(settle(distance))
        return asked[-1]

    seen.combined = listening
    made = Fit(given, epochs=10, seen=seen)
    held = [bool((labels[labels >= 0] == given[labels >= 0]).all()) for labels in made.learned]
    assert held == [True] * 3 + [False] * 7
    assert len(asked) == 4
    settled = asked[-1]
    last = made.learned[-1]
    taught = last >= 0
    torch.testing.assert_close(last[taught], settled.labels[taught])
    assert settled.doubt[taught].mean() < settled.doubt[~taught].mean()
    assert torch.equal(made.learned[3], made.learned[4])
