"""Fits made short, for tests of what happens before and after them.

`kscn` makes a `KSCN` that is fitted in a moment. `choices` shortens the choice of `KSCNPlus`, which
weighs some sixty candidates in up to eight spaces: that takes seconds even for a hundred samples.
Every kind of space, candidate and judgement stays, once and in few dimensions. What the choice
itself finds is tested in `estimators/test_plus.py`, at full length.
"""

from importlib import import_module

CONSTANTS = {
    "kscn.stages.candidates": {"NEIGHBOURS": (0.5,), "DIMS": (5,), "KMEANS_STARTS": 1},
    "kscn.stages.spaces": {"PLAIN": 20, "WHITENED": (15,)},
}


def choices(change=setattr):
    """Shorten every choice from now on; `change` may be that of a monkeypatch, which ends it."""
    for place, constants in CONSTANTS.items():
        module = import_module(place)
        for name, value in constants.items():
            assert hasattr(module, name), f"{place} has no {name} any more"
            change(module, name, value)


def kscn(**params):
    """A `KSCN` for three clusters of images of 8 x 8, with the settings that presets leave open."""
    from kscn import KSCN
    from kscn.estimators.presets.derive import OPEN

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
