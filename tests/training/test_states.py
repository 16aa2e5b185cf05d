"""States of a fit on disk: which are kept, which one is read, what is refused."""

import os
import shutil

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn.errors import ModelFileError
from kscn.modelfile import read_model
from kscn.training.driver import CheckpointWarning, Result, States, identity

WHO = {"n_clusters": 3}


def opened(path, who=WHO):
    states = States(path, who)
    states.newest()
    return states


def written(path, *values):
    states = opened(path)
    for value in values:
        states.write(Result({"value": value}, {"a": torch.tensor([value])}))
    return states


def test_a_state_comes_back_as_it_was(tmp_path):
    state = Result({"history": [{"loss": 0.1 + 0.2}]})
    tensors = {"x": torch.rand(3, 2), "bytes": torch.arange(9, dtype=torch.uint8)}
    state.put("some", tensors)
    state.put("none", {})
    opened(tmp_path / "new" / "place").write(state)
    found = States(tmp_path / "new" / "place", WHO).newest()
    assert found.facts == {"history": [{"loss": 0.1 + 0.2}]}
    assert found.part("some").keys() == tensors.keys()
    assert found.part("none") == {}
    for name, tensor in tensors.items():
        assert torch.equal(found.part("some")[name], tensor)


def test_the_last_two_are_kept(tmp_path):
    written(tmp_path, *range(5))
    assert sorted(os.listdir(tmp_path)) == ["state-000004", "state-000005"]
    assert opened(tmp_path).newest().facts == {"value": 4}


def test_damaged_states_are_passed_over_with_a_warning(tmp_path):
    written(tmp_path, 1, 2)
    (tmp_path / "state-000002" / "manifest.json").write_text("{")
    with pytest.warns(CheckpointWarning, match="is damaged"):
        found = States(tmp_path, WHO).newest()
    assert found.facts == {"value": 1}
    shutil.rmtree(tmp_path / "state-000002")
    (tmp_path / "state-000001" / "model.safetensors").write_bytes(b"")
    with pytest.warns(CheckpointWarning, match="cut off"):
        assert States(tmp_path, WHO).newest() is None


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    half = tmp_path / ".state-000001.new-12345678"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    assert States(tmp_path, WHO).newest() is None
    assert os.listdir(tmp_path) == []


def test_a_kill_while_old_states_are_deleted_leaves_whole_ones_only(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def half_done(path, ignore_errors=False):
        if path.exists():
            (path / "manifest.json").unlink()
            raise Killed

    states = written(tmp_path, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr("kscn.modelfile.shutil.rmtree", half_done)
        with pytest.raises(Killed):
            states.write(Result({}))
    visible = [name for name in os.listdir(tmp_path) if not name.startswith(".")]
    assert sorted(visible) == ["state-000002", "state-000003"]
    for name in visible:
        read_model(tmp_path / name)
    opened(tmp_path)
    assert all(not name.startswith(".") for name in os.listdir(tmp_path))


def test_another_fit_is_refused_and_named(tmp_path):
    written(tmp_path, 1)
    with pytest.raises(ModelFileError, match="n_clusters was 3 there and is 4 now"):
        States(tmp_path, {"n_clusters": 4}).newest()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="cannot be used"):
        States(tmp_path / "file" / "below", WHO).newest()


def test_a_state_that_cannot_be_written_is_a_warning(tmp_path):
    states = written(tmp_path, 1)
    (tmp_path / "file").write_text("")
    states.directory = tmp_path / "file" / "below"
    with pytest.warns(CheckpointWarning, match="no checkpoint"):
        states.write(Result({"value": 2}))
    assert opened(tmp_path).newest().facts == {"value": 1}


def test_what_a_fit_is_told_apart_by():
    source = as_source(np.arange(12.0).reshape(6, 2))

    def who(params, source=source):
        return identity(params, source, len(source))

    same = who({"n_clusters": 3, "callbacks": (), "device": "cpu", "init": np.arange(6)})
    assert same == who({"n_clusters": 3, "device": "cuda", "init": np.arange(6)})
    assert same != who({"n_clusters": 3, "init": np.arange(6)[::-1].copy()})
    assert who({}) != who({}, as_source(np.arange(12.0).reshape(6, 2) + 1))
