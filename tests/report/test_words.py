"""What a run tells of how sure its clusters are."""

import pytest

from kscn.report import words


def test_the_confidence_is_told_and_a_low_one_is_a_reason_for_caution():
    result = {"chosen": {"consistency": 0.5}}
    assert words.confidence(result) == "members find back to their cluster: 0.50 of 1"
    assert words.caution(result) == ""
    assert "0.31 of 1" in words.caution({"chosen": {"consistency": 0.31}})


@pytest.mark.parametrize("result", [{}, {"chosen": None}])
def test_of_methods_that_do_not_choose_nothing_is_told(result):
    assert words.confidence(result) == words.caution(result) == ""
