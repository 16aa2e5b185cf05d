"""Requests that arrive together are computed together.

A model takes hardly longer for a hundred samples than for one. The first request waits a few
milliseconds for others; while one batch is computed, in a thread so that the loop stays free, the
next one gathers by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from kscn.errors import KscnError
from kscn.web.requests import busy

# Numbers waiting to be computed; above this, clients are asked to come back.
_MOST_BYTES = 256 * 2**20

Answers = tuple[NDArray, ...]


class MicroBatcher:
    """Answers of `run`, computed for many requests at once.

    `run` goes from samples (n, ...) to arrays of length n, each row independent of the others.
    `most_rows` are computed at once, though a single request may hold more; the first request waits
    `wait` seconds for others; `on_batch` is told the requests and the samples of every batch.
    """

    def __init__(
        self,
        run: Callable[[NDArray], Answers],
        *,
        most_rows: int = 512,
        wait: float = 0.003,
        on_batch: Callable[[int, int], None] = lambda requests, samples: None,
    ) -> None:
        self._run = run
        self._most_rows = most_rows
        self._wait = wait
        self._on_batch = on_batch
        self._waiting: deque[tuple[NDArray, asyncio.Future[Answers]]] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        # One thread: a model is not made for two at once, and torch spreads over cores by itself.
        self._thread = ThreadPoolExecutor(1, "kscn-model")

    async def submit(self, samples: NDArray) -> Answers:
        """The answers to one request's samples."""
        if self._waiting and self._bytes + samples.nbytes > _MOST_BYTES:
            raise busy()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answers] = loop.create_future()
        self._waiting.append((samples, answer))
        self._bytes += samples.nbytes
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._drain())
        return await answer

    async def _drain(self) -> None:
        await asyncio.sleep(self._wait)
        loop = asyncio.get_running_loop()
        while self._waiting:
            samples, answers = self._next_batch()
            if not samples:  # all of these clients have gone
                continue
            self._on_batch(len(samples), sum(map(len, samples)))
            results = await loop.run_in_executor(self._thread, self._compute, samples)
            for answer, result in zip(answers, results, strict=True):
                if answer.done():  # the client has gone meanwhile
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _next_batch(self) -> tuple[list[NDArray], list[asyncio.Future[Answers]]]:
        """Requests of one type from the front: another type's rounding must not leak into them."""
        batch: list[NDArray] = []
        answers = []
        rows = 0
        while self._waiting:
            samples, answer = self._waiting[0]
            rows += len(samples)
            if batch and (rows > self._most_rows or samples.dtype != batch[0].dtype):
                break
            self._waiting.popleft()
            self._bytes -= samples.nbytes
            if answer.done():
                rows -= len(samples)
            else:
                batch.append(samples)
                answers.append(answer)
        return batch, answers

    def _compute(self, batch: Sequence[NDArray]) -> Sequence[Answers | Exception]:
        """One result per request; a request at fault does not spoil the others."""
        try:
            joined = self._run(np.concatenate(batch))
        except Exception as error:
            if isinstance(error, KscnError) and len(batch) > 1:
                return [result for samples in batch for result in self._compute([samples])]
            return [error] * len(batch)
        cuts = np.cumsum([len(samples) for samples in batch])[:-1]
        return list(zip(*(np.split(column, cuts) for column in joined), strict=True))
