"""A process that does not come to a collective: torchrun --nproc-per-node=3 hanging.py."""

import sys
import time
from datetime import timedelta

import torch.distributed as dist

from kscn.runtime import group as joining

joining.PATIENCE = timedelta(seconds=4)

try:
    with joining.joined("go on.") as group:
        dist.barrier()
        if group.rank == 1:
            time.sleep(600)
        dist.barrier()
except joining.LostProcessError as error:
    sys.exit(f"kscn: {error}")
