"""Examples in the docstrings of public names run as they are printed."""

import doctest

import pytest

import kscn
from kscn import data, metrics
from kscn_paper import rivals

NAMES = {
    kscn: ["KSubspaces", "KSCN", "KSCNPlus", "load_model"],
    data: ["load", "as_source", "make_union_of_subspaces"],
    metrics: [
        *("clustering_accuracy", "normalized_mutual_info", "adjusted_rand", "scores"),
        *("align_labels", "confusion_matrix"),
    ],
    rivals: ["make"],
}


@pytest.mark.parametrize(
    "thing",
    [getattr(module, name) for module, names in NAMES.items() for name in names],
    ids=lambda thing: thing.__name__,
)
def test_examples_of_public_names_run(thing):
    (example,) = doctest.DocTestFinder(recurse=False).find(thing, thing.__name__, globs={})
    assert example.examples
    said = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert not failed, "".join(said)
