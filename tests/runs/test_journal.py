"""The journal of edits: every acknowledged entry survives, nothing else does."""

import os

import pytest

from kscn.errors import ModelFileError
from kscn.runs.journal import Journal

ABOUT = {"samples": 3}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "explore" / "edits.jsonl"


def written(path, *entries, about=ABOUT):
    journal = Journal(path, about)
    for entry in entries:
        journal.append(entry)


def read(path):
    journal = Journal(path, ABOUT)
    return journal.entries


def test_entries_come_back_in_order_and_go_on(path):
    written(path, {"a": 1}, {"b": "é\n"})
    assert read(path) == [{"a": 1}, {"b": "é\n"}]
    written(path, {"c": [1, 2]})
    assert read(path) == [{"a": 1}, {"b": "é\n"}, {"c": [1, 2]}]


def test_nothing_is_written_before_the_first_entry(path):
    Journal(path, ABOUT)
    assert not path.parent.exists()


def test_a_kill_at_any_byte_costs_at_most_the_last_entry(path):
    written(path, {"a": 1}, {"b": 2})
    whole = path.read_bytes()
    lengths = []
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        entries = read(path)
        assert entries == [{"a": 1}, {"b": 2}][: len(entries)]
        lengths.append(len(entries))
        written(path, {"c": 3})  # and it goes on as if nothing had happened
        assert read(path) == [*entries, {"c": 3}]
    assert lengths == sorted(lengths) and lengths[-1] == 2


def test_an_entry_that_cannot_be_written_leaves_no_trace(path, monkeypatch):
    journal = Journal(path, ABOUT)
    journal.append({"a": 1})

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelFileError, match="No space left"):
        journal.append({"b": 2})
    monkeypatch.undo()
    journal.append({"c": 3})
    assert read(path) == [{"a": 1}, {"c": 3}]


def test_damage_and_foreign_files_are_refused_and_kept(path):
    written(path, {"a": 1}, {"b": 2})
    lines = path.read_bytes().splitlines(keepends=True)
    for content, words in (
        (lines[0] + b"{oops\n" + lines[2], "line 2"),
        (lines[0] + b"[1]\n", "line 2"),
        (b"[" * 100_000 + b"\n", "line 1"),
        (lines[0] + b'{"a":[' + b"[]," * 1000 + b"[]]}\n", "line 2"),
        (b"index,label\n", "line 1"),
        (b'{"format":"other"}\n', "another run"),
        (lines[0].replace(b"3", b"4"), "another run"),
    ):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=words):
            Journal(path, ABOUT)
        assert path.read_bytes() == content


def test_a_file_is_never_larger_than_can_be_read_again(path):
    written(path, {"a": 1})
    size = path.stat().st_size
    os.truncate(path, 2**30)  # takes no room on disk
    with pytest.raises(ModelFileError, match="is larger than"):
        Journal(path, ABOUT)
    assert path.stat().st_size == 2**30
    os.truncate(path, size)
    journal = Journal(path, ABOUT, most_bytes=size + 20)
    journal.append({"b": 2})
    with pytest.raises(ModelFileError, match="is full"):
        journal.append({"c": "long" * 5})
    assert read(path) == [{"a": 1}, {"b": 2}]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "explore").write_text("a file where the folder should be")
    with pytest.raises(ModelFileError, match="cannot"):
        Journal(tmp_path / "explore" / "edits.jsonl", ABOUT).append({"a": 1})
