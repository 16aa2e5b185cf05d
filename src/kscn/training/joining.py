"""Joining the processes that torchrun has started, and telling which one died.

A process that ends closes its connections, which wakes the others from whatever they wait for; one
that hangs, or whose machine is gone, does not. So every process also leaves a sign of life in the
store of torch.distributed every few seconds and watches that of its neighbour.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from kscn.errors import KscnError
from kscn.training.distributed import ALONE, Group, current_group

# Seconds between signs of life, and without one until a process counts as dead.
BEAT, SILENCE = 1.0, 20.0
# A slow process is not a dead one: for dead ones there is the above.
PATIENCE = timedelta(minutes=30)


class LostProcessError(KscnError):
    """Another process of the run has died."""


@contextmanager
def joined(advice: str) -> Iterator[Group]:
    """All processes of the run while the context is open; this one alone if there are no others.

    An error ends all processes, and the first one to fail tells why.

    Parameters
    ----------
    advice : str
        What to do when another process died: the end of the sentence.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield ALONE
        return
    life = Life(advice)
    try:
        yield current_group()
        dist.barrier()
    except Exception as error:
        if threading.current_thread() is threading.main_thread():
            # torchrun ends the processes that are left; first they tell which one is not.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if life.told_by_another():
            raise SystemExit(2) from error
        if isinstance(error, RuntimeError) and not isinstance(error, KscnError):
            lost = life.lost()
            if lost:
                raise LostProcessError(life.obituary(lost)) from error
        raise
    finally:
        life.end()
        dist.destroy_process_group()


class Life:
    """The signs of life of this process and of the others."""

    def __init__(self, advice: str) -> None:
        self.advice = advice
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        try:
            store, self.rank, self.size = next(rendezvous("env://", timeout=PATIENCE))
        except (RuntimeError, ValueError, OSError) as error:
            raise LostProcessError(
                f"cannot reach the first process at {where}; start this with torchrun, and check "
                "that the address can be reached from here."
            ) from error
        backend = "gloo"
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            backend = "cpu:gloo,cuda:nccl"
        dist.init_process_group(
            backend, store=store, rank=self.rank, world_size=self.size, timeout=PATIENCE
        )
        # A connection of its own: the other one may be waiting for something.
        self.store = store.clone()
        self.store.set(f"kscn/name/{self.rank}", f"{socket.gethostname()}, pid {os.getpid()}")
        self.store.add(f"kscn/beat/{self.rank}", 1)
        self.over = threading.Event()
        dist.barrier()  # everybody has a name
        self.watch = threading.Thread(target=self._watch, daemon=True)
        self.watch.start()

    def end(self) -> None:
        """No more signs, and no more watching."""
        self.over.set()
        # A thread that is still asking the store when the interpreter ends aborts the process.
        self.watch.join(5 * BEAT)

    def told_by_another(self) -> bool:
        """Whether another process has told of its failure already, and so ended the run."""
        try:
            return self.store.add("kscn/failed", 1) > 1
        except RuntimeError:  # the store went with the first process
            return False

    def lost(self) -> list[int]:
        """The processes that give no sign of life any more."""
        before = self._beats()
        time.sleep(2.5 * BEAT)
        after = self._beats()
        return [
            rank
            for rank in range(self.size)
            if rank != self.rank and before.get(rank) == after.get(rank)
        ]

    def obituary(self, lost: list[int]) -> str:
        """One sentence on who is missing."""
        names = []
        for rank in lost:
            try:
                where = self.store.get(f"kscn/name/{rank}").decode()
            except RuntimeError:
                where = "unknown"
            names.append(f"{rank} ({where})")
        what = "process" if len(names) == 1 else "processes"
        return f"lost {what} {', '.join(names)} of {self.size}; {self.advice}"

    def _beats(self) -> dict[int, int]:
        try:
            return {rank: self.store.add(f"kscn/beat/{rank}", 0) for rank in range(self.size)}
        except RuntimeError:
            return {}

    def _watch(self) -> None:
        neighbour = (self.rank + 1) % self.size
        last, since = -1, time.monotonic()
        while not self.over.wait(BEAT):
            try:
                self.store.add(f"kscn/beat/{self.rank}", 1)
                beat = self.store.add(f"kscn/beat/{neighbour}", 0)
            except RuntimeError:
                beat = last  # the store is silent, and with it the first process
            if beat != last:
                last, since = beat, time.monotonic()
            elif time.monotonic() - since > SILENCE and not self.over.is_set():
                self._leave(neighbour)

    def _leave(self, lost: int) -> None:
        """End this process from a thread: the main one waits for somebody who will not come."""
        if not self.told_by_another():
            sys.stderr.write(f"kscn: {self.obituary([lost])}\n")
            sys.stderr.flush()
        os._exit(2)
