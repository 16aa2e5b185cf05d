"""What values may be: intervals with their ends, words, None, tables; and sentences about them."""

import inspect
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kscn.constraints import (
    FLAG,
    NUMBER,
    PATH,
    POSITIVE,
    TEXT,
    Integer,
    Number,
    array_of,
    check_parameters,
    check_table,
    check_value,
    parameter,
)
from kscn.errors import InputError
from kscn_paper import rivals


@pytest.mark.parametrize(
    "alternatives, good, bad",
    [
        ([Integer(2)], [2, np.int64(3)], [1, 2.0, True, "2", None, 2**63]),
        ([Number(0)], [0, 0.5, np.float32(3)], [-1, np.nan, np.inf, False, "1", None]),
        ([Number(0, 1)], [0, 0.99], [1, -0.01]),
        ([Number(0, 1, closed="right")], [1, 1e-9], [0, 1.01]),
        ([Number(0, 1, closed="both")], [0, 1], [-0.01, 1.01]),
        ([POSITIVE], [1e-9], [0]),
        ([None, POSITIVE], [None, 2], [0, "None"]),
        (["auto", Integer(0)], ["auto", 0], ["Auto", -1, None, np.array(["auto", "auto"])]),
        ([FLAG], [True, np.bool_(False)], [1, 0, "True", None]),
        ([FLAG, PATH], [False, "here", Path("here")], [3, None]),
        (["auto", array_of("labels")], ["auto", [0, 1], np.zeros(2)], ["Auto", None]),
    ],
)
def test_a_value_has_to_meet_one_alternative(alternatives, good, bad):
    for value in good:
        check_value("x", value, alternatives)
    for value in bad:
        with pytest.raises(InputError, match=r"^x=.* must be .*\.$"):
            check_value("x", value, alternatives)


@pytest.mark.parametrize(
    "alternatives, sentence",
    [
        ([Integer(1)], "x=-1 must be an integer of at least 1."),
        ([Number(0)], "x=-1 must be a number of at least 0."),
        ([Number(0, 1)], "x=-1 must be a number of at least 0 and below 1."),
        ([Number(0, 1, closed="right")], "x=-1 must be a number above 0 and at most 1."),
        ([None, POSITIVE], "x=-1 must be None or a number above 0."),
        (["auto", Integer(0)], "x=-1 must be 'auto' or an integer of at least 0."),
        ([None, FLAG, PATH], "x=-1 must be None, True or False or a path."),
        (["a", "b", "c"], "x=-1 must be 'a', 'b' or 'c'."),
    ],
)
def test_a_refusal_names_all_alternatives(alternatives, sentence):
    with pytest.raises(InputError) as refusal:
        check_value("x", -1, alternatives)
    assert str(refusal.value) == sentence


def test_parameters_of_a_dataclass_are_checked_with_those_of_its_base():
    @dataclass
    class Base:
        size: int = parameter(3, Integer(1))
        anything: object = None

    @dataclass
    class Derived(Base):
        kind: str = parameter("a", "b")  # the default is an alternative by itself

    check_parameters(Derived(anything="x", kind="b"))
    with pytest.raises(InputError, match="size=0"):
        check_parameters(Derived(size=0))
    with pytest.raises(InputError, match="kind='c' must be 'a' or 'b'"):
        check_parameters(Derived(kind="c"))


@pytest.mark.parametrize("name", [*rivals.NAMES, *rivals.COMPOSITES])
def test_defaults_are_allowed_and_all_but_the_number_of_clusters_are_given_by_name(name):
    model = rivals.make(name, 3)
    check_parameters(model)
    first, *others = inspect.signature(type(model)).parameters.values()
    assert first.name == "n_clusters" and first.kind is first.POSITIONAL_OR_KEYWORD
    assert all(one.kind is one.KEYWORD_ONLY for one in others)


@pytest.mark.parametrize("name", [*rivals.NAMES, *rivals.COMPOSITES])
def test_every_parameter_is_described(name):
    model = rivals.make(name, 3)
    described = "".join(
        (base.__doc__ or "").partition("Attributes")[0] for base in type(model).__mro__
    )
    for parameter_name in model.get_params():
        assert parameter_name in described


RULE = {
    "name": TEXT,
    "yes?": FLAG,
    "counts": [Integer(1)],
    "part?": {"share": Number(0, 1, "both"), "any?": NUMBER},
}
SOUND = {"name": "a", "counts": [1, 2], "part": {"share": 0.5, "any": math.nan}, "more": object()}


def test_what_is_asked_for_passes_and_more_may_be_there():
    check_table(SOUND, RULE)
    check_table({"name": "a", "counts": [], "part": None}, RULE)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": None}, "name is missing, not a text"),
        ({"name": 1}, "name is 1, not a text"),
        ({"yes": 1}, "yes is 1, not True or False"),
        ({"counts": 3}, "counts is 3, not a list"),
        ({"counts": [1, 0]}, "counts is 0, not an integer of at least 1"),
        ({"counts": [True]}, "counts is True, not an integer of at least 1"),
        ({"counts": [2**63]}, "not an integer of at least 1"),
        ({"part": 1}, "part is 1, not a table"),
        ({"part": {}}, "part.share is missing, not a number of at least 0 and at most 1"),
        ({"part": {"share": math.nan}}, "part.share is nan"),
        ({"part": {"share": 1, "any": "1"}}, "part.any is '1', not a number"),
        ({"name": list(range(100_000))}, r"name is \[0, 1, 2, 3, 4, 5, \.\.\.\], not a text"),
    ],
)
def test_the_first_fault_is_named_by_its_place(change, fault):
    with pytest.raises(ValueError, match=fault):
        check_table(SOUND | change, RULE)
