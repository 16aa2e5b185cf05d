"""Fits made short, for tests of what happens before and after them, and samples for them."""


def moons(n):
    """Two arcs that reach into each other: neighbours tell them apart, and no subspaces do."""
    from sklearn.datasets import make_moons

    # Of this draw the choice is clear; of others rounding decides it.
    x, y = make_moons(n, noise=0.05, random_state=6)
    return x.astype("f4"), y


def kscn(**params):
    """A `KSCN` for three clusters of images of 8 x 8, with the settings that presets leave open."""
    from kscn import KSCN
    from kscn.estimators.defaults import OPEN

    quick = {
        "n_clusters": 3,
        "subspace_dim": 2,
        "autoencoder_params": {"channels": [6, 4], "kernels": [3, 3]},
        "pretrain_epochs": 1,
        "epochs": 1,
        "n_init": 1,
        "batch_size": 32,
        "random_state": 0,
    }
    return KSCN(**OPEN | quick | params)
