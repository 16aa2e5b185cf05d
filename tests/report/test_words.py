"""What a run tells about a choice among clusterings."""

import pytest

from kscn.report import words


def result(consistency=0.9, rival=0.8, refined=False):
    row = {"space": "vectors, whole", "method": "k-means, settled", "consistency": rival}
    return {
        "chosen": {
            "space": "all",
            "method": "consensus",
            "consistency": consistency,
            "rival": None if rival is None else row,
            "candidates": 31,
            "spaces": 4,
            "tried": [],
            "refined": refined,
        }
    }


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (1.0, "clearly"), (0.75, "clearly"), (0.7499, "moderate"),
        (0.5, "moderate"), (0.4999, "not clearly separated in any"), (0.0, "with care"),
    ],
)  # fmt: skip
def test_the_confidence_is_put_into_words(value, meaning):
    said = words.confidence(result(value))
    assert said.startswith(f"members find back to their cluster: {value:.2f}; ")
    assert meaning in said
    assert words.choice(result(value))["confidence"] == said


def test_only_a_low_value_is_a_reason_for_caution():
    assert "0.31 of 1" in words.caution(result(0.31))
    assert words.caution(result(0.5)) == words.caution({}) == ""


def test_what_was_tried_and_why_one_was_taken():
    told = words.choice(result())
    assert told["tried"] == "31 clusterings in 4 representations"
    assert told["chosen"] == "what all candidates have in common"
    assert told["because"] == (
        "self-consistency 0.900; best of another kind 0.800, k-means, assigned anew by subspaces "
        "(vectors, whole)"
    )
    assert words.choice(result(refined=True))["chosen"].endswith(", then refined by a network")


def test_a_choice_that_is_not_the_highest_says_so():
    assert "up to chance they are equal" in words.choice(result(rival=0.91))["because"]
    assert words.choice(result(rival=None))["because"] == "self-consistency 0.900"


@pytest.mark.parametrize("result", [{}, {"chosen": None}])
def test_of_methods_that_do_not_choose_nothing_is_told(result):
    assert words.choice(result) == {}
    assert words.confidence(result) == ""
