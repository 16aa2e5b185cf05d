"""What is said of files that hold something else than they should."""

import math

import pytest

from kscn.checked import FLAG, NUMBER, TEXT, check, integer, number

RULE = {
    "name": TEXT,
    "yes?": FLAG,
    "counts": [integer(1)],
    "part?": {"share": number(0, 1), "any?": NUMBER},
}
SOUND = {"name": "a", "counts": [1, 2], "part": {"share": 0.5, "any": math.nan}, "more": object()}


def test_what_is_asked_for_passes_and_more_may_be_there():
    check(SOUND, RULE, "")
    check({"name": "a", "counts": [], "part": None}, RULE, "")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": None}, "name is missing, not a text"),
        ({"name": 1}, "name is 1, not a text"),
        ({"yes": 1}, "yes is 1, not true or false"),
        ({"counts": 3}, "counts is 3, not a list"),
        ({"counts": [1, 0]}, "counts is 0, not an integer from 1"),
        ({"counts": [True]}, "counts is True, not an integer from 1"),
        ({"counts": [2**63]}, "not an integer from 1"),
        ({"part": 1}, "part is 1, not a table"),
        ({"part": {}}, "part.share is missing, not a number from 0 to 1"),
        ({"part": {"share": 1.5}}, "part.share is 1.5, not a number from 0 to 1"),
        ({"part": {"share": math.nan}}, "part.share is nan"),
        ({"part": {"share": 1, "any": "1"}}, "part.any is '1', not a number"),
    ],
)
def test_the_first_fault_is_named_by_its_place(change, fault):
    with pytest.raises(ValueError, match=fault):
        check(SOUND | change, RULE, "")


def test_long_values_are_cut_short():
    with pytest.raises(ValueError, match="not a text") as caught:
        check({"name": list(range(100_000))}, RULE, "")
    assert len(str(caught.value)) < 100
