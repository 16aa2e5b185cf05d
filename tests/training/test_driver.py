"""The driver: which epochs of which stage are left, and what they go on from."""

import shutil
from time import sleep

import pytest
import torch
import trainers
from torch import nn

from kscn.training.driver import Result, Run, States

WHO = {"n_clusters": 3}


@pytest.fixture(autouse=True)
def every_state_is_written(monkeypatch):
    """Also where a real fit would find it too early for the next one."""
    save = Run._save
    monkeypatch.setattr(Run, "_save", lambda run, *args, **_: save(run, *args[:3], always=True))


class Counter:
    """A part of a stage that counts its epochs."""

    def __init__(self):
        self.count = 0

    def state_dict(self):
        return {"count": torch.tensor(self.count)}

    def load_state_dict(self, state):
        self.count = int(state["count"])


class KilledError(Exception):
    """What ends a fit in place of a kill."""


class Fit:
    """Three epochs, something that is found once, two epochs more."""

    def __init__(self, path=None, kill=None, seed=5, end=None):
        self.kill, self.done = kill, []
        self.run = Run(
            seed,
            trainers.CPU,
            states=None if path is None else States(path, WHO),
            on_record=lambda record: record["name"] == end,
        )
        self.net, self.late = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.net.weight)
        nn.init.zeros_(self.late.weight)
        self.run.keep(net=self.net)
        self.first, self.last = Counter(), Counter()
        self.stage("one", 3, self.first)
        self.found = self.run.once("look", self.look)
        nn.init.constant_(self.late.weight, self.found.facts["number"])
        self.run.keep(late=self.late)
        self.stage("two", 2, self.last)

    def happens(self, name):
        if name == self.kill:
            raise KilledError
        self.done.append(name)
        return self.run.record(name=name)

    def stage(self, name, count, counter):
        for epoch in self.run.epochs(name, count, counter=counter):
            counter.count += 1
            with torch.no_grad():
                for module in (self.net, self.late):
                    module.weight += epoch + 1
            if self.happens(f"{name} {epoch}"):
                break

    def look(self):
        self.happens("look")
        weights = {"twice": 2 * self.net.weight.detach()}
        return Result({"number": self.net.weight.item()}, {"a.b": torch.ones(2), **weights})

    @property
    def outcome(self):
        names = [record["name"] for record in self.run.history]
        weights = [module.weight.item() for module in (self.net, self.late)]
        tensors = {name: t.tolist() for name, t in self.found.tensors.items()}
        return names, weights, self.found.facts, tensors, self.last.count, self.run.seed


EVENTS = ["one 0", "one 1", "one 2", "look", "two 0", "two 1"]


def test_a_fit_without_a_directory_does_all_in_order():
    fit = Fit()
    assert fit.done == EVENTS
    assert fit.outcome[:3] == (EVENTS, [9.0, 9.0], {"number": 6.0})
    assert fit.found.part("a").keys() == {"b"}


@pytest.mark.parametrize("kill", EVENTS)
def test_a_fit_goes_on_after_the_last_epoch_that_was_over(tmp_path, kill):
    whole = Fit().outcome
    with pytest.raises(KilledError):
        Fit(tmp_path, kill)
    again = Fit(tmp_path, seed=6)  # the seed is that of the state, if there is one
    assert again.done == EVENTS[EVENTS.index(kill) :]
    assert again.outcome[:-1] == whole[:-1]
    assert again.run.seed == (6 if kill == "one 0" else 5)


def test_a_fit_is_killed_many_times(tmp_path):
    for kill in EVENTS:
        with pytest.raises(KilledError):
            Fit(tmp_path, kill)
    assert Fit(tmp_path).outcome == Fit().outcome


def test_a_finished_fit_does_nothing_again(tmp_path):
    whole = Fit(tmp_path)
    again = Fit(tmp_path)
    assert again.done == []
    assert again.outcome == whole.outcome


def test_a_stage_that_was_ended_goes_on_to_the_next_one(tmp_path):
    whole = Fit(end="one 1")
    assert whole.done == ["one 0", "one 1", *EVENTS[3:]]
    with pytest.raises(KilledError):
        Fit(tmp_path, "two 1", end="one 1")
    again = Fit(tmp_path, end="one 1")
    assert again.done == ["two 1"]
    assert again.outcome == whole.outcome
    shutil.rmtree(tmp_path)
    with pytest.raises(KilledError):
        Fit(tmp_path, "look", end="one 1")
    assert Fit(tmp_path, end="one 1").outcome == whole.outcome


def test_seconds_go_on_where_they_were(tmp_path):
    with pytest.raises(KilledError):
        Fit(tmp_path, "two 0")
    states = States(tmp_path, WHO)
    state = states.newest()
    state.facts["history"][-1]["seconds"] = 1e6
    states.write(state)
    assert Fit(tmp_path).run.history[-1]["seconds"] > 1e6


def test_writing_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    monkeypatch.undo()
    slow, run = [], Run(0, trainers.CPU, states=States(tmp_path, WHO))
    write = run._states.write

    def slowly(state):
        slow.append(state.facts["epoch"])
        write(state)
        sleep(0.02)

    monkeypatch.setattr(run._states, "write", slowly)
    for _ in run.epochs("one", 50):
        pass
    # The second has to wait for twenty times as long; the end of a stage is always kept.
    assert slow == [1, 50]
