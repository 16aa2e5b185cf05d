"""Members that stand for a direction: the ends, the middle, and how the ends differ."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscn.report.clusters import along


def test_the_ends_and_the_middle_in_order():
    places = np.array([0.1, 3.0, -2.0, 1.0, -1.0, 2.0, -3.0])
    members, change = along(places, places[:, None])
    assert members.tolist() == [6, 2, 0, 5, 1]
    assert change.tolist() == [6.0]  # one of seven is a tenth, at least one


def test_a_tenth_of_the_members_at_either_end_is_compared():
    places = np.linspace(-1, 1, 40)
    samples = np.zeros((40, 2, 3), dtype=np.uint8)
    samples[:4, 0, 0] = [8, 0, 0, 0]
    samples[-4:, 1, 2] = 255  # whose difference would not fit into a byte
    _, change = along(places, samples)
    assert change[0, 0] == -2 and change[1, 2] == 255
    assert np.count_nonzero(change) == 2


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_few_or_equal_members_are_no_obstacle(places):
    places = np.array(places)
    members, _ = along(places, places[:, None])
    assert 1 <= len(members) <= 5 and len(set(members)) == len(members)
    assert (np.diff(places[members]) >= 0).all()
    assert {places.min(), places.max()} <= set(places[members])
