"""The lowest scores of every cluster, in blocks as in one go."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscn.report.survey import Extremes


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 9)), max_size=40),
    st.integers(1, 7),
    st.integers(1, 5),
)
def test_blocks_find_what_sorting_everything_finds(samples, block, count):
    labels = np.array([label for label, _ in samples], dtype=np.int64)
    scores = np.array([score for _, score in samples], dtype=float)
    kept = Extremes(count)
    for first in range(0, len(labels), block):
        some = slice(first, first + block)
        kept.add(first, labels[some], scores[some], -scores[some])
    for cluster in range(4):
        members = [i for i in range(len(labels)) if labels[i] == cluster]
        expected = sorted(members, key=lambda i: (scores[i], i))[:count]
        indices, found, notes = kept.of(cluster)
        assert indices.tolist() == expected
        assert found.tolist() == scores[expected].tolist()
        assert notes.tolist() == (-scores[expected]).tolist()
