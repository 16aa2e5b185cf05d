"""Joining the processes that torchrun has started, and saying once why a run ended.

torchrun ends the processes that are left when one has died, and reports the exit code of each. A
process that hangs, or whose machine is gone, is noticed when a collective of torch.distributed has
waited for it too long.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from kscn.errors import KscnError
from kscn.runtime.group import ALONE, Group, current_group

# A slow process is not a dead one: it may have a slower disk, or data to fetch first.
PATIENCE = timedelta(minutes=30)
# Seconds that processes which are left wait for each other, to see who is missing.
ANSWER = 3.0


class LostProcessError(KscnError):
    """Another process of the run has died or does not answer."""


@contextmanager
def joined(advice: str) -> Iterator[Group]:
    """All processes of the run while the context is open; this one alone if there are no others.

    An error ends all processes, and the first one to fail says why.

    Parameters
    ----------
    advice : str
        What to do when another process died: the end of the sentence.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield ALONE
        return
    store = _join()
    try:
        yield current_group()
        dist.barrier()
    except Exception as error:
        if threading.current_thread() is threading.main_thread():
            # torchrun ends the processes that are left; first they say which one is not.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        others = isinstance(error, RuntimeError) and not isinstance(error, KscnError)
        if lost := _lost(store, others):
            raise LostProcessError(f"lost {lost}; {advice}") from error
        raise
    finally:
        dist.destroy_process_group()


def _join() -> Any:
    """Initialise torch.distributed; its store of keys and values."""
    try:
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    except (RuntimeError, ValueError, OSError) as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise LostProcessError(
            f"cannot reach the first process at {where}; start this with torchrun, and check "
            "that the address can be reached from here."
        ) from error
    store.set(f"kscn/name/{rank}", f"{socket.gethostname()}, pid {os.getpid()}")
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    return store


def _lost(store: Any, others: bool) -> str:
    """Who is missing, where an error may come from `others`; ends a process that need not say.

    monitored_barrier cannot tell: it fails at the first connection that is closed.
    """
    size = dist.get_world_size()
    try:
        store.set(f"kscn/answer/{dist.get_rank()}", "")
        before = store.add("kscn/failed", 1) - 1
        # All that are left wait: when the first of them ends, torchrun ends those that hang.
        time.sleep(ANSWER if others else 0)
        if before:  # another process says why
            raise SystemExit(2)
        names = [store.get(f"kscn/name/{rank}").decode() for rank in range(size)]
        answers = [store.check([f"kscn/answer/{rank}"]) for rank in range(size)]
    except RuntimeError:  # the store went with the machine of the first process
        return f"process 0 of {size}" if others else ""
    missing = [f"{rank} ({names[rank]})" for rank in range(size) if others and not answers[rank]]
    what = "process" if len(missing) == 1 else "processes"
    return f"{what} {', '.join(missing)} of {size}" if missing else ""
