"""What a measured figure depends on besides its settings: versions, commit, machine, load."""

import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kscn


def describe() -> dict[str, Any]:
    """Time, versions, commit and machine, to be called when a run begins."""
    import torch

    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": {
            package: version(package) for package in ("kscn", "torch", "numpy", "scikit-learn")
        },
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def commit() -> str | None:
    """The commit of the code that runs, marked if code was changed; None outside of a checkout."""
    source = Path(kscn.__file__)
    # An installed package may lie inside of somebody's repository without being part of it.
    if not _git(source.parent, "ls-files", source.name):
        return None
    # Results and pages that an earlier run has written do not change what is measured.
    top = Path(_git(source.parent, "rev-parse", "--show-toplevel") or source.parent)
    code = (str(source.parents[1]), str(top / "benchmarks"))
    dirty = "-dirty" if _git(top, "status", "--porcelain", "--", *code) else ""
    return f"{_git(source.parent, 'describe', '--always')}{dirty}"


def _git(directory: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *args], cwd=directory, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


class Elsewhere:
    """How many cores other processes keep busy, from when this is made (Linux)."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.before = self._seconds()

    def busy(self) -> float | None:
        """The mean number of cores since then; None where the system does not tell."""
        now = self._seconds()
        if now is None or self.before is None:
            return None
        passed = max(time.perf_counter() - self.began, 1e-9)
        return round(max(0.0, (now - self.before) / passed), 3)

    @staticmethod
    def _seconds() -> float | None:
        """Processor time of the whole machine without that of this process and its children."""
        try:
            line = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0]
            user, nice, system, _, _, irq, soft, steal = map(int, line.split()[1:9])
        except (OSError, ValueError):
            return None
        whole = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
        return whole - sum(os.times()[:4])


def reset_peak_memory() -> None:
    """Forget the peak so far where the system can (Linux), so that each run has its own."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process in MB, None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6  # macOS counts bytes, not KiB
