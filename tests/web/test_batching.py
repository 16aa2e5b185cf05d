"""Micro-batching: together where that is faster, apart where it matters."""

import asyncio
import threading

import numpy as np
import pytest

pytest.importorskip("fastapi")

from kscn.errors import InputError
from kscn.web.batching import MicroBatcher


def doubled(samples):
    return (2 * samples[:, 0],)


def answers(batcher, *requests):
    async def ask():
        tasks = [asyncio.create_task(batcher.submit(np.array(r))) for r in requests]
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(ask())


def test_requests_that_come_together_are_computed_together_and_told_apart():
    seen = []
    batcher = MicroBatcher(lambda x: seen.append(len(x)) or doubled(x), wait=0.05)
    found = answers(batcher, [[1.0]], [[2.0], [3.0]], [[4.0]])
    assert [result[0].tolist() for result in found] == [[2], [4, 6], [8]]
    assert seen == [4]


def test_batches_stop_at_the_most_rows():
    seen = []
    batcher = MicroBatcher(lambda x: seen.append(len(x)) or doubled(x), most_rows=3, wait=0.05)
    answers(batcher, [[1.0]] * 2, [[1.0]] * 2, [[1]], [[1.0]] * 9, [[1.0]])
    assert seen == [2, 3, 9, 1]


def test_the_batcher_can_be_used_again_in_another_loop():
    batcher = MicroBatcher(doubled, wait=0)
    for _ in range(3):
        assert answers(batcher, [[5.0]])[0][0].tolist() == [10]


def test_a_request_at_fault_is_told_alone():
    def picky(samples):
        if (samples < 0).any():
            raise InputError("negative.")
        return doubled(samples)

    found = answers(MicroBatcher(picky, wait=0.05), [[1.0]], [[-1.0]], [[3.0]])
    assert found[0][0].tolist() == [2] and found[2][0].tolist() == [6]
    assert isinstance(found[1], InputError)


def test_a_bug_reaches_every_request_and_the_batcher_goes_on():
    def broken(samples):
        if samples[0, 0] == 0:
            raise ZeroDivisionError
        return doubled(samples)

    batcher = MicroBatcher(broken, wait=0.01)
    assert all(isinstance(r, ZeroDivisionError) for r in answers(batcher, [[0.0]], [[1.0]]))
    assert answers(batcher, [[1.0]])[0][0].tolist() == [2]


def test_the_loop_stays_free_while_the_model_works():
    free = threading.Event()

    def slow(samples):
        assert free.wait(60), "the loop did not run meanwhile"
        return doubled(samples)

    async def ask():
        request = asyncio.create_task(MicroBatcher(slow, wait=0).submit(np.array([[1.0]])))
        await asyncio.sleep(0.05)
        free.set()
        return await request

    assert asyncio.run(ask())[0].tolist() == [2]


def test_a_client_that_goes_away_costs_nothing():
    ran = []

    async def ask():
        batcher = MicroBatcher(lambda x: ran.append(len(x)) or doubled(x), wait=0.05)
        gone = asyncio.create_task(batcher.submit(np.array([[1.0]] * 5)))
        stays = asyncio.create_task(batcher.submit(np.array([[2.0]])))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert asyncio.run(ask())[0].tolist() == [4]
    assert ran == [1]
