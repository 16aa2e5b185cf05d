"""A process that does not come to a collective: torchrun --nproc-per-node=3 hanging.py."""

import sys
import time
from datetime import timedelta

import torch.distributed as dist

from kscn.cli.processes import joined
from kscn.errors import KscnError

try:
    with joined("go on.", patience=timedelta(seconds=4)) as group:
        dist.barrier()
        if group.rank == 1:
            time.sleep(600)
        dist.barrier()
except KscnError as error:
    sys.exit(f"kscn: {error}")
