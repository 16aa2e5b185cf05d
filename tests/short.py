"""Fits made short, for tests of what happens before and after them.

`kscn` makes a `KSCN` that is fitted in a moment. `choices` shortens the choice of `KSCNPlus`, which
weighs some thirty candidates in up to eight spaces: that takes seconds even for a hundred samples.
Every kind of space, candidate and judgement stays, once and in few dimensions. What the choice
itself finds is tested in `estimators/test_plus.py`.
"""

from dataclasses import replace

SHORT = {"dim": 5, "kmeans_starts": 1, "plain": 20, "whitened": (15,)}


def choices(change=setattr):
    """Shorten every choice from now on; `change` may be that of a monkeypatch, which ends it."""
    from kscn.stages import candidates  # and torch with it, which not all tests need

    change(candidates, "RULES", replace(candidates.RULES, **SHORT))


def moons(n):
    """Two arcs that reach into each other: neighbours tell them apart, and no subspaces do."""
    from sklearn.datasets import make_moons

    # Of this draw the choice is clear; of others rounding decides it.
    x, y = make_moons(n, noise=0.05, random_state=6)
    return x.astype("f4"), y


def samples(change=setattr, sample=100, most=300):
    """Make candidates from few samples, and layouts of so few more, in every choice from now on."""
    from kscn.stages import choose, select

    change(choose, "CHOICE", replace(choose.CHOICE, sample=sample, most=most))
    change(select, "RULES", replace(select.RULES, laid_out=sample))


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
    return KSCN.from_settings(**OPEN | quick | params)
