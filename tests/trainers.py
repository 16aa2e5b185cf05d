"""Small networks, samples and trainers for the tests of training."""

import torch

from kscn.data import as_source
from kscn.nn import DeepNetwork, DenseAutoencoder, IdentityLatent, InputScaling
from kscn.runtime.minibatches import Minibatches
from kscn.training.driver import Run
from kscn.training.trainer import Trainer

CPU = torch.device("cpu")
UNSCALED = InputScaling()


def new_run(seed=7, **others):
    """A fit without a directory."""
    return Run(seed, CPU, **others)


def dense(d=6, hidden=8, code=3, seed=0):
    """A small autoencoder, the same for the same seed."""
    torch.manual_seed(seed)
    return DenseAutoencoder(d, [hidden], code)


def minibatches(X, batch_size=16):
    """Vectors as a network takes them."""
    return Minibatches(as_source(X), UNSCALED, tuple(X.shape[1:]), batch_size, CPU)


def trainer(network, X, run=None, latent=None, batch_size=16, stage="pretraining", **settings):
    """A trainer of a network on vectors X."""
    usual = {"epochs": 3, "learning_rate": 1e-2, "schedule": "constant", "augment": None}
    found = DeepNetwork(network, latent or IdentityLatent())
    batches = minibatches(X, batch_size)
    return Trainer(found, batches, run or new_run(), stage, **usual | settings)
