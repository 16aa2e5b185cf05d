"""Shared by all tests."""

import os
import signal
import sys
from pathlib import Path

from hypothesis import settings

# Tests run side by side, one per core: threads within a test would only wait for one another.
# Set before torch is imported, and inherited by the commands that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadline: a busy machine is not a fault. The same examples every time: a failure repeats.
settings.register_profile("kscn", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("kscn")

# A shell without job control starts what it puts in the background deaf to Ctrl-C, and so would be
# every command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# torch counts its devices at the first backward pass, so the simulated one is there from the start.
sys.path[:0] = [str(Path(__file__).parent / "device"), str(Path(__file__).parent)]
import simulated  # noqa: E402

simulated.unsupported()
