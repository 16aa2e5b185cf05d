"""Searches and choices made short, for tests of what happens before and after them.

`KSCNPlus` weighs some sixty candidates in up to eight spaces, which takes seconds even for a hundred
samples. Every kind of space, candidate and judgement stays, once and in few dimensions. What the
choice itself finds is tested in `estimators/test_plus.py`, at full length. The search for a start of
`KSubspaces` keeps its every step too; at full length it is tested in `subspaces/test_search.py`.
"""

from importlib import import_module

CHOICE = {
    "kscn.stages.candidates": {"NEIGHBOURS": (0.5,), "DIMS": (5,), "KMEANS_STARTS": 1},
    "kscn.stages.spaces": {"PLAIN": 20, "WHITENED": (15,)},
}
SEARCH = {"kscn.subspaces.search": {"RACE_SWEEPS": 8, "ROUNDS": 1, "FINAL_SWEEPS": 4}}


def choices(change=setattr, what=CHOICE):
    """Shorten every choice from now on; `change` may be that of a monkeypatch, which ends it."""
    for place, constants in what.items():
        module = import_module(place)
        for name, value in constants.items():
            assert hasattr(module, name), f"{place} has no {name} any more"
            change(module, name, value)
