"""Edits of clusters: each does what it says, undo takes it back, a replay gives the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn.errors import InputError, ModelFileError
from kscn.runs.edits import Editor, Grouping, letters, open_editor, parts_of, read_grouping
from kscn.runs.journal import Journal

LABELS = np.array([0, 0, 1, 1, 2, 2, 2, -1])


class Memory:
    """A journal that is not on disk."""

    path = "memory"

    def __init__(self, entries=()):
        self.entries = list(entries)
        self.written = list(entries)

    def append(self, entry):
        self.written.append(entry)


def snapshot(grouping):
    return (
        grouping.labels.tolist(),
        list(grouping.clusters),
        dict(grouping.names),
        set(grouping.flagged),
        set(grouping.moved),
        grouping.home.tolist(),
        grouping.next_cluster,
    )


def test_merging_moves_all_members_and_ends_the_cluster():
    grouping = Grouping(LABELS, 3)
    grouping.apply({"edit": "name", "cluster": 1, "name": "ones"})
    said = grouping.apply({"edit": "merge", "clusters": [1], "into": 2})
    assert "2 samples moved" in said and "“ones”" in said
    assert grouping.labels.tolist() == [0, 0, 2, 2, 2, 2, 2, -1]
    assert grouping.clusters == [0, 2] and grouping.names == {}
    assert grouping.home.tolist() == [0, 2, 2]
    assert grouping.sizes() == {0: 2, 2: 5, -1: 1}
    grouping.apply({"edit": "merge", "clusters": [2], "into": 0})
    assert grouping.home.tolist() == [0, 0, 0]


def test_splitting_gives_new_numbers_that_are_never_used_again():
    grouping = Grouping(LABELS, 3)
    split = {"edit": "split", "cluster": 2, "parts": letters(np.array([0, 1, 0])), "count": 2}
    grouping.apply(split)
    assert grouping.labels.tolist() == [0, 0, 1, 1, 2, 3, 2, -1]
    grouping.apply({"edit": "merge", "clusters": [3], "into": 2})
    grouping.apply({**split, "parts": letters(np.array([1, 0, 0]))})
    assert grouping.clusters == [0, 1, 2, 4]
    assert grouping.labels.tolist() == [0, 0, 1, 1, 4, 2, 2, -1]


def test_samples_are_moved_and_flagged():
    grouping = Grouping(LABELS, 3)
    assert grouping.apply({"edit": "move", "samples": [7, 0, 7], "cluster": 1}) == (
        "moved 2 samples to cluster 1"
    )
    assert grouping.labels.tolist() == [1, 0, 1, 1, 2, 2, 2, 1]
    assert grouping.moved == {0, 7}
    grouping.apply({"edit": "flag", "samples": [4, 5], "flagged": True})
    grouping.apply({"edit": "flag", "samples": [5], "flagged": False})
    assert grouping.flagged == {4}


def test_names_are_tidied_and_unique():
    grouping = Grouping(LABELS, 3)
    grouping.apply({"edit": "name", "cluster": 0, "name": "  round \n things "})
    assert grouping.names == {0: "round things"}
    with pytest.raises(InputError, match="already"):
        grouping.apply({"edit": "name", "cluster": 1, "name": "round things"})
    grouping.apply({"edit": "name", "cluster": 0, "name": ""})
    assert grouping.names == {}


BAD = [
    {},
    {"edit": "explode"},
    {"edit": ["name"]},
    {"edit": "name", "cluster": 0},
    {"edit": "name", "cluster": 9, "name": "x"},
    {"edit": "name", "cluster": -1, "name": "x"},
    {"edit": "name", "cluster": True, "name": "x"},
    {"edit": "name", "cluster": 0, "name": 5},
    {"edit": "name", "cluster": 0, "name": "x" * 101},
    {"edit": "name", "cluster": 0, "name": "a\x07b"},
    {"edit": "merge", "clusters": [0], "into": 0},
    {"edit": "merge", "clusters": [], "into": 0},
    {"edit": "merge", "clusters": [{}], "into": 0},
    {"edit": "merge", "clusters": [0, 9], "into": 1},
    {"edit": "split", "cluster": 2, "parts": "???", "count": 2},
    {"edit": "split", "cluster": 2, "parts": letters(np.array([0, 1])), "count": 2},
    {"edit": "split", "cluster": 2, "parts": letters(np.array([0, 0, 0])), "count": 2},
    {"edit": "split", "cluster": 2, "parts": letters(np.array([0, 0, 2])), "count": 2},
    {"edit": "move", "samples": [], "cluster": 0},
    {"edit": "move", "samples": [8], "cluster": 0},
    {"edit": "move", "samples": [-1], "cluster": 0},
    {"edit": "move", "samples": ["a"], "cluster": 0},
    {"edit": "move", "samples": [1], "cluster": -1},
    {"edit": "flag", "samples": [1], "flagged": 1},
]


@pytest.mark.parametrize("edit", BAD, ids=str)
def test_what_cannot_be_done_changes_nothing(edit):
    grouping = Grouping(LABELS, 3)
    before = snapshot(grouping)
    with pytest.raises(InputError):
        grouping.apply(edit)
    assert snapshot(grouping) == before


@st.composite
def edits(draw):
    """Edits of all kinds, some of which cannot be made."""
    cluster, sample = st.integers(0, 6), st.integers(0, len(LABELS) - 1)
    samples = st.lists(sample, min_size=1, max_size=4)
    return draw(
        st.one_of(
            st.fixed_dictionaries(
                {"edit": st.just("name"), "cluster": cluster, "name": st.sampled_from("ab ")}
            ),
            st.fixed_dictionaries(
                {"edit": st.just("merge"), "clusters": st.lists(cluster, min_size=1, max_size=2),
                 "into": cluster}
            ),
            st.fixed_dictionaries(
                {"edit": st.just("split"), "cluster": cluster, "count": st.just(2),
                 "parts": st.integers(2, 8).map(lambda n: letters(np.arange(n) % 2))}
            ),
            st.fixed_dictionaries(
                {"edit": st.just("move"), "samples": samples, "cluster": cluster}
            ),
            st.fixed_dictionaries(
                {"edit": st.just("flag"), "samples": samples, "flagged": st.booleans()}
            ),
            st.sampled_from([{"edit": "undo"}, {"edit": "redo"}]),
        )
    )  # fmt: skip


@settings(max_examples=60)
@given(st.lists(edits(), max_size=20))
def test_undo_and_replay_agree_with_a_plain_history(steps):
    journal = Memory()
    editor = Editor(LABELS, 3, journal)
    history, at = [snapshot(editor.grouping)], 0  # oracle: a list of states and a place in it
    for step in steps:
        try:
            editor.make(step)
        except InputError:
            assert snapshot(editor.grouping) == history[at]
            assert step["edit"] != "undo" or at == 0
            assert step["edit"] != "redo" or at == len(history) - 1
            continue
        if step["edit"] in ("undo", "redo"):
            at += -1 if step["edit"] == "undo" else 1
        else:
            history[at + 1 :] = [snapshot(editor.grouping)]
            at += 1
        assert snapshot(editor.grouping) == history[at]
        assert (len(editor.done) > 0, len(editor.undone) > 0) == (at > 0, at < len(history) - 1)
    again = Editor(LABELS, 3, Memory(journal.written))
    assert snapshot(again.grouping) == history[at]
    assert again.revision == editor.revision == len(journal.written)


def test_an_edit_that_does_not_reach_the_disk_did_not_happen(monkeypatch):
    journal = Memory()
    editor = Editor(LABELS, 3, journal)
    editor.make({"edit": "move", "samples": [0], "cluster": 1})
    before = snapshot(editor.grouping)

    def fail(entry):
        raise ModelFileError("no space.")

    monkeypatch.setattr(journal, "append", fail)
    for step in ({"edit": "merge", "clusters": [0], "into": 1}, {"edit": "undo"}):
        with pytest.raises(ModelFileError):
            editor.make(step)
        assert snapshot(editor.grouping) == before
        assert editor.done and not editor.undone and editor.revision == 1


def test_a_second_editor_is_kept_out_and_readers_are_not(tmp_path):
    editor = open_editor(tmp_path, LABELS, 3)
    editor.make({"edit": "merge", "clusters": [2], "into": 1})
    with pytest.raises(ModelFileError, match="another process"):
        open_editor(tmp_path, LABELS, 3)
    assert read_grouping(tmp_path, LABELS, 3).clusters == [0, 1]
    editor.close()
    again = open_editor(tmp_path, LABELS, 3)
    assert again.grouping.clusters == [0, 1]
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == ["explore"]


def test_a_journal_that_does_not_fit_is_refused(tmp_path):
    journal = Journal(tmp_path / "explore" / "edits.jsonl", {})
    journal.append({"edit": "name", "cluster": 0, "name": "x"})
    journal.append({"edit": "merge", "clusters": [0], "into": 77})
    with pytest.raises(ModelFileError, match=r"does not fit .* cluster 77"):
        Editor(LABELS, 3, Journal(tmp_path / "explore" / "edits.jsonl", {}))


def test_parts_are_letters_of_which_there_is_one_for_each_member():
    part = np.random.default_rng(0).integers(0, 20, 10_000)
    np.testing.assert_array_equal(parts_of(letters(part), 10_000), part)
    assert letters(np.array([0, 1, 0])) == "aba"
    for parts in ("ab", "abab", "", "éab"):
        with pytest.raises(InputError):
            parts_of(parts, 3)
