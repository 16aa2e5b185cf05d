"""States of a fit on disk: when they are written, which one is read, what is refused."""

import os
import shutil

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn.errors import InputError, ModelFileError
from kscn.modelfile import read_model
from kscn.runtime import checkpoint
from kscn.runtime.checkpoint import Checkpoints, CheckpointWarning, SafePoints, State, StoppedError

WHO = {"n_clusters": 3}


@pytest.fixture(autouse=True)
def no_stop():
    yield
    checkpoint.STOP.withdraw()


def opened(path, value=0, minutes=10.0):
    states = Checkpoints(path, minutes)
    states.load(WHO)
    states.snapshot = lambda: State({"value": value}, {"a": torch.tensor([value])})
    return states


def test_a_state_comes_back_as_it_was(tmp_path):
    states = opened(tmp_path / "new" / "place")
    tensors = {"x": torch.rand(3, 2), "bytes": torch.arange(9, dtype=torch.uint8)}
    states.snapshot = lambda: State({"history": [{"loss": 0.1 + 0.2}]}, tensors)
    states.reached(always=True)
    found = Checkpoints(tmp_path / "new" / "place", 10.0).load(WHO)
    assert found.facts == {"history": [{"loss": 0.1 + 0.2}]}
    for name, tensor in tensors.items():
        assert torch.equal(found.tensors[name], tensor)


def test_the_last_two_are_kept(tmp_path):
    states = opened(tmp_path)
    for value in range(5):
        states.snapshot = lambda value=value: State({"value": value})
        states.reached(always=True)
    assert sorted(os.listdir(tmp_path)) == ["state-000004", "state-000005"]
    assert opened(tmp_path).load(WHO).facts == {"value": 4}


def test_writing_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    states = opened(tmp_path)
    written = []
    states._write = lambda state, must: written.append(clock[0])
    for clock[0] in (0.5, 0.9, 1.1):
        states.reached()
    assert written == [1.1]  # a first guess of 0.05 s is 5 % of a second
    states.last, states.cost = 1.1, 3.0
    for clock[0] in (30.0, 62.0):
        states.reached()
    assert written == [1.1, 62.0]


def test_a_wish_to_stop_is_met_after_the_state_is_written(tmp_path):
    states = opened(tmp_path, 7)
    checkpoint.STOP.make()
    assert states.due()
    with pytest.raises(StoppedError, match="its state is in"):
        states.reached()
    assert opened(tmp_path).load(WHO).facts == {"value": 7}


def test_a_stop_whose_state_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    def full(*args):
        raise ModelFileError("No space left on device.")

    states = opened(tmp_path)
    monkeypatch.setattr(checkpoint, "write_model", full)
    checkpoint.STOP.make()
    with pytest.raises(ModelFileError, match="No space left"):
        states.reached()


def test_damaged_states_are_passed_over_with_a_warning(tmp_path):
    states = opened(tmp_path, 1)
    states.reached(always=True)
    states.snapshot = lambda: State({"value": 2})
    states.reached(always=True)
    (tmp_path / "state-000002" / "manifest.json").write_text("{")
    with pytest.warns(CheckpointWarning, match="is damaged"):
        found = Checkpoints(tmp_path, 10.0).load(WHO)
    assert found.facts == {"value": 1}
    shutil.rmtree(tmp_path / "state-000002")
    (tmp_path / "state-000001" / "model.safetensors").write_bytes(b"")
    with pytest.warns(CheckpointWarning, match="cut off"):
        assert Checkpoints(tmp_path, 10.0).load(WHO) is None


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    half = tmp_path / ".state-000001.new-12345678"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    assert Checkpoints(tmp_path, 10.0).load(WHO) is None
    assert os.listdir(tmp_path) == []


def test_a_kill_while_old_states_are_deleted_leaves_whole_ones_only(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def half_done(path, ignore_errors=False):
        if path.exists():
            (path / "manifest.json").unlink()
            raise Killed

    states = opened(tmp_path)
    states.reached(always=True)
    states.reached(always=True)
    with monkeypatch.context() as patch:
        patch.setattr("kscn.modelfile.shutil.rmtree", half_done)
        with pytest.raises(Killed):
            states.reached(always=True)
    visible = [name for name in os.listdir(tmp_path) if not name.startswith(".")]
    assert sorted(visible) == ["state-000002", "state-000003"]
    for name in visible:
        read_model(tmp_path / name)
    opened(tmp_path)
    assert all(not name.startswith(".") for name in os.listdir(tmp_path))


def test_another_fit_is_refused_and_named(tmp_path):
    opened(tmp_path).reached(always=True)
    with pytest.raises(ModelFileError, match="n_clusters was 3 there and is 4 now"):
        Checkpoints(tmp_path, 10.0).load({"n_clusters": 4})


def test_what_a_fit_is_told_apart_by():
    source = as_source(np.arange(12.0).reshape(6, 2))

    def who(params, source=source):
        return checkpoint.identity(params, source, len(source))

    same = who({"n_clusters": 3, "callbacks": (), "device": "cpu", "init": np.arange(6)})
    assert same == who({"n_clusters": 3, "device": "cuda", "init": np.arange(6)})
    assert same != who({"n_clusters": 3, "init": np.arange(6)[::-1].copy()})
    assert who({}) != who({}, as_source(np.arange(12.0).reshape(6, 2) + 1))


def test_without_a_directory_nothing_happens():
    nothing = checkpoint.safe_points(None, checkpoint.ALONE)
    checkpoint.STOP.make()
    assert type(nothing) is SafePoints
    assert nothing.load(WHO) is None
    assert not nothing.due()
    nothing.reached(always=True)


def test_a_directory_may_say_how_long_may_pass_between_states(tmp_path):
    directory = checkpoint.CheckpointDirectory(tmp_path / "states", minutes=2)
    states = checkpoint.safe_points(directory, checkpoint.ALONE)
    assert (states.directory, states.minutes) == (tmp_path / "states", 2)
    assert checkpoint.safe_points(tmp_path, checkpoint.ALONE).minutes == 10
    with pytest.raises(InputError, match="minutes=-1 must be a number of at least 0"):
        checkpoint.CheckpointDirectory(tmp_path, minutes=-1)
