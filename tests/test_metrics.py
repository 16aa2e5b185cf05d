"""Scores against cases worked out by hand, and the laws they must obey."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from kscn import metrics
from kscn.errors import InputError


@st.composite
def label_pairs(draw, low=0):
    n = draw(st.integers(1, 60))
    labels = st.lists(st.integers(low, 5), min_size=n, max_size=n)
    return np.array(draw(labels)), np.array(draw(labels))


# --- accuracy ---------------------------------------------------------------------------------


def test_accuracy_of_a_renamed_partition_is_one():
    assert metrics.clustering_accuracy([0, 0, 1, 1, 2], [7, 7, 3, 3, 9]) == 1.0


def test_accuracy_counts_the_best_matching():
    # Greedy would match cluster 0 to class 0 (3 samples) and then cluster 1 to class 1 (0 of 2):
    # 3 / 7. The best matching crosses over: 2 + 2 = 4 / 7.
    y_true = [0, 0, 0, 0, 0, 1, 1]
    y_pred = [0, 0, 0, 1, 1, 0, 0]
    assert metrics.clustering_accuracy(y_true, y_pred) == pytest.approx(4 / 7)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "expected"),
    [
        ([0, 0, 0, 0], [0, 0, 1, 2], 1 / 2),  # more clusters than classes: left-overs are wrong
        ([0, 0, 1, 2], [5, 5, 5, 5], 1 / 2),  # more classes than clusters
        ([0, 0, 1, 1], [0, -1, 1, 1], 3 / 4),  # noise is wrong
        ([0, 0, 1, 1], [-1, -1, -1, -1], 0.0),  # also when everything is noise
        ([0, -1, 1, 1], [0, 3, 1, 1], 1.0),  # unlabelled samples are left out
        (["cat", "cat", "dog"], [1, 1, 0], 1.0),
        (["cat", "-1", "dog"], ["b", "c", "a"], 1.0),
        ([True, True, False], [0, 0, 1], 1.0),
        (np.array([0, 0, 255], dtype=np.uint8), [1, 1, 0], 1.0),
        ([3.0, 3.0, 4.0], [1, 1, 0], 1.0),
    ],
)
def test_accuracy_by_hand(y_true, y_pred, expected):
    assert metrics.clustering_accuracy(y_true, y_pred) == pytest.approx(expected)


@given(label_pairs(), st.permutations(range(6)), st.randoms())
def test_scores_ignore_names_of_clusters_and_order_of_samples(pair, names, random):
    y_true, y_pred = pair
    renamed = np.array(names)[y_pred]
    order = random.sample(range(len(y_true)), len(y_true))
    before, after = metrics.scores(y_true, y_pred), metrics.scores(y_true[order], renamed[order])
    assert after == pytest.approx(before, abs=1e-12)


# --- NMI and ARI ------------------------------------------------------------------------------


def test_nmi_and_ari_of_a_case_worked_out_by_hand():
    # Entropies ln 2 and 1.5 ln 2, information ln 2; of 6 pairs 2 share a class, 1 shares both.
    assert metrics.normalized_mutual_info([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(0.8)
    assert metrics.adjusted_rand([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(4 / 7)


def test_nmi_and_ari_treat_noise_as_a_group_and_leave_unlabelled_samples_out():
    y_true, y_pred = np.array([0, 0, 1, 1, -1]), np.array([0, -1, 1, -1, 1])
    kept = y_true >= 0
    assert metrics.normalized_mutual_info(y_true, y_pred) == pytest.approx(
        normalized_mutual_info_score(y_true[kept], y_pred[kept])
    )
    assert metrics.adjusted_rand(y_true, y_pred) == pytest.approx(
        adjusted_rand_score(y_true[kept], y_pred[kept])
    )


def test_scores_are_plain_floats_by_name():
    assert metrics.scores([0, 0, 1], [1, 1, 0]) == {"acc": 1.0, "nmi": 1.0, "ari": 1.0}


# --- alignment and confusion ------------------------------------------------------------------


def test_align_labels_renames_matched_clusters_and_numbers_the_rest_beyond():
    y_true = [4, 4, 4, 9, 9, -1]
    y_pred = [0, 0, 7, 3, -1, 8]
    # 0 -> 4, 3 -> 9; clusters 7 and 8 have no class left and become 10 and 11; noise stays.
    assert metrics.align_labels(y_true, y_pred).tolist() == [4, 4, 10, 9, -1, 11]


def test_align_labels_in_words_when_classes_are_words():
    aligned = metrics.align_labels(["cat", "cat", "dog", "dog", "dog"], [1, 1, 0, 5, -1])
    assert aligned.tolist() == ["cat", "cat", "dog", "cluster 5", "-1"]


def test_a_cluster_is_not_matched_to_a_class_that_it_shares_no_sample_with():
    # Both clusters hold class 0 only; the second must not be called class 1.
    assert metrics.align_labels([0, 0, 0, 1], [0, 0, 1, -1]).tolist() == [0, 0, 2, -1]


@given(label_pairs(low=-1))
def test_accuracy_is_the_agreement_after_alignment(pair):
    y_true, y_pred = pair
    if (y_true == -1).all():
        return
    labelled = y_true != -1
    agreement = np.mean(metrics.align_labels(y_true, y_pred)[labelled] == y_true[labelled])
    assert metrics.clustering_accuracy(y_true, y_pred) == pytest.approx(agreement)


def test_confusion_matrix_puts_matched_clusters_on_the_diagonal():
    y_true = ["a", "a", "a", "b", "b", "b", "b"]
    y_pred = [5, 5, 2, 2, 2, 8, -1]
    confusion = metrics.confusion_matrix(y_true, y_pred)
    assert confusion.classes.tolist() == ["a", "b"]
    assert confusion.clusters.tolist() == [5, 2, 8, -1]
    assert confusion.matches == (0, 1, -1, -1)
    assert confusion.counts.tolist() == [[2, 1, 0, 0], [0, 2, 1, 1]]


@given(label_pairs(low=-1))
def test_confusion_matrix_counts_every_labelled_sample_once(pair):
    y_true, y_pred = pair
    if (y_true == -1).all():
        return
    confusion = metrics.confusion_matrix(y_true, y_pred)
    assert confusion.counts.sum() == (y_true != -1).sum()
    on_matches = sum(
        confusion.counts[row, column] for column, row in enumerate(confusion.matches) if row >= 0
    )
    expected = metrics.clustering_accuracy(y_true, y_pred) * confusion.counts.sum()
    assert on_matches == pytest.approx(expected)


# --- bad labels -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y_true", "y_pred", "words"),
    [
        ([0, 1], [0, 1, 1], "y_true has 2 labels and y_pred has 3"),
        ([], [], "y_true is empty"),
        ([[0, 1]], [[0, 1]], "one-dimensional"),
        ([0, [1, 2]], [0, 1], "y_true must"),
        ([0.0, np.nan], [0, 1], "y_true has NaN"),
        ([0, 1], [0, np.inf], "y_pred has NaN or infinite"),
        (["a", None], [0, 1], "missing labels"),
        (np.array(["a", np.nan], dtype=object), [0, 1], "missing labels"),
        ([-1, -1], [0, 1], "nothing to score"),
        ([1j, 2j], [0, 1], "integers or strings"),
        (np.arange(10_000), np.arange(10_000), "not measurements"),
    ],
)
def test_bad_labels_get_one_sentence(y_true, y_pred, words):
    with pytest.raises(InputError, match=words) as caught:
        metrics.clustering_accuracy(y_true, y_pred)
    assert "\n" not in str(caught.value)
