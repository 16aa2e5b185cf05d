"""Searches and choices made short, for tests of what happens before and after them.

`KSCNPlus` weighs some sixty candidates in up to eight spaces, which takes seconds even for a
hundred samples. Every kind of space, candidate and judgement stays, once and in few dimensions.
What the choice itself finds is tested in `estimators/test_plus.py`, and the search for a start in
`subspaces/test_search.py`, at full length.
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


def searches():
    """One round of swaps in every search for a start from now on, instead of up to twelve."""
    search = import_module("kscn.subspaces.search")
    assert search.ROUNDS
    search.ROUNDS = 1
