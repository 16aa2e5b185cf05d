"""Pieces of work side by side."""

import os

import pytest
import torch

from kscn.parallel import one_thread, side_by_side, threads_for

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_and_threads_are_as_before():
    seen = []

    def work(number):
        seen.append(torch.get_num_threads())
        return number**2

    assert list(side_by_side(work, range(5), CPU)) == [0, 1, 4, 9, 16]
    assert seen == [1] * 5
    assert torch.get_num_threads() == 2
    assert list(side_by_side(work, [], CPU)) == []


def test_gradients_are_wanted_or_not_as_by_the_caller():
    with torch.no_grad():
        assert list(side_by_side(lambda _: torch.is_grad_enabled(), [0, 1], CPU)) == [False] * 2
    assert list(side_by_side(lambda _: torch.is_grad_enabled(), [0, 1], CPU)) == [True] * 2


def test_a_failure_is_raised_and_threads_are_as_before():
    def work(number):
        raise ValueError(f"no {number}")

    with pytest.raises(ValueError, match="no 0"):
        list(side_by_side(work, [0, 1], CPU))
    assert torch.get_num_threads() == 2


def test_little_work_is_done_by_one_thread():
    with pytest.raises(ValueError, match="stop"), one_thread():
        assert torch.get_num_threads() == 1
        assert list(side_by_side(abs, [-1, -2], CPU)) == [1, 2]
        raise ValueError("stop")
    assert torch.get_num_threads() == 2


def test_little_work_has_one_thread():
    for work, threads in ((1e3, 1), (1e12, 2)):
        with threads_for(work):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
def test_a_forked_child_has_one_thread_since_the_others_are_gone():
    pid = os.fork()
    if pid == 0:
        os._exit(torch.get_num_threads())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert torch.get_num_threads() == 2
