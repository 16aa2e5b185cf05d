"""Requests that arrive together are computed together.

A model takes hardly longer for a hundred samples than for one. The first request waits a few
milliseconds for others; while one batch is computed, in a thread so that the loop stays free, the
next one gathers by itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kscn.errors import KscnError

Answers = tuple[NDArray, ...]


class MicroBatcher:
    """Answers of `run`, computed for many requests at once.

    `run` goes from samples (n, ...) to arrays of length n, each row independent of the others.
    `most_rows` are computed at once, though a single request may hold more; the first request waits
    `wait` seconds for others.
    """

    def __init__(
        self, run: Callable[[NDArray], Answers], *, most_rows: int = 512, wait: float = 0.003
    ) -> None:
        self._run, self._most_rows, self._wait = run, most_rows, wait
        self._waiting: deque[tuple[NDArray, asyncio.Future[Answers]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, samples: NDArray) -> Answers:
        """The answers to one request's samples."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answers] = loop.create_future()
        self._waiting.append((samples, answer))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._drain())
        return await answer

    async def _drain(self) -> None:
        """Compute batch after batch; there is one such task, so the model is never used twice."""
        await asyncio.sleep(self._wait)
        while batch := self._next_batch():
            results = await asyncio.to_thread(self._compute, [samples for samples, _ in batch])
            for (_, answer), result in zip(batch, results, strict=True):
                if answer.done():  # the client has gone meanwhile
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _next_batch(self) -> list[tuple[NDArray, asyncio.Future[Answers]]]:
        """Requests from the front whose clients still wait, as many as are computed at once."""
        batch: list[tuple[NDArray, asyncio.Future[Answers]]] = []
        rows = 0
        while self._waiting and (not batch or rows + len(self._waiting[0][0]) <= self._most_rows):
            samples, answer = self._waiting.popleft()
            if not answer.done():
                batch.append((samples, answer))
                rows += len(samples)
        return batch

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
