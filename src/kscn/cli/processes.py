"""One process of `torchrun -m kscn`: it joins the others, and says in words why they end.

torchrun starts the processes, ends those that are left when one has died, and says which it was. A
process that hangs, or whose machine is gone, is noticed when a collective has waited too long.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from kscn.errors import KscnError
from kscn.runtime.group import ALONE, Group, current_group

# A slow process is not a dead one: it may have a slower disk, or data to fetch first.
PATIENCE = timedelta(minutes=30)


@contextmanager
def joined(advice: str, patience: timedelta = PATIENCE) -> Iterator[Group]:
    """All processes that torchrun started while the context is open; without it this one alone.

    The first process to fail says why. `advice` ends the sentence that says that another is lost;
    `patience` is how long a collective waits for the others.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield ALONE
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, size = next(rendezvous("env://", timeout=patience))
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)
    except (RuntimeError, ValueError, OSError) as error:
        raise KscnError(f"cannot reach the other processes ({error}); use torchrun.") from error
    try:
        yield current_group()
        dist.barrier()
    except Exception as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's: the reason is said first
        with suppress(RuntimeError):  # the store is gone if the first process is
            if store.add("kscn/failed", 1) > 1:
                raise SystemExit(2) from error
        if isinstance(error, dist.DistError) or "gloo" in str(error):  # which has no type for it
            raise KscnError(f"lost another process, torchrun says which; {advice}") from error
        raise
    finally:
        dist.destroy_process_group()
