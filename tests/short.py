"""Searches and choices made short, for tests of what happens before and after them.

`KSCNPlus` weighs some sixty candidates in up to eight spaces, which takes seconds even for a
hundred samples. Every kind of space, candidate and judgement stays, once and in few dimensions.
What the choice itself finds is tested in `estimators/test_plus.py`, and the search for a start in
`subspaces/test_search.py`, at full length.
"""

from dataclasses import replace

SHORT = {"neighbours": (0.5,), "dims": (5,), "kmeans_starts": 1, "plain": 20, "whitened": (15,)}


def choices(change=setattr):
    """Shorten every choice from now on; `change` may be that of a monkeypatch, which ends it."""
    from kscn.stages import candidates  # and torch with it, which not all tests need

    change(candidates, "RULES", replace(candidates.RULES, **SHORT))


def searches():
    """One round of swaps in every search for a start from now on, instead of up to twelve."""
    from kscn.subspaces import search

    assert search.ROUNDS
    search.ROUNDS = 1
