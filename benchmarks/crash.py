"""Kill fits, saves and predictions at random moments; what is on disk must stay whole.

    OMP_NUM_THREADS=1 python benchmarks/crash.py --kills 200

A fit is killed several times and resumed each time. After every kill the run directory is looked
through: whatever has a final name must be complete, and what `kscn info` says of the directory must
be right. The labels at the end must be those of a fit that nobody killed. Processes are forked from
one that has imported everything, so that kills fall into the work and not into the imports.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kscn import load_model
from kscn.cli import cli
from kscn.errors import ModelFileError
from kscn.estimators import methods
from kscn.modelfile import read_model
from kscn.runs.directory import CHECKPOINTS, is_unfinished, read_run, read_unfinished
from kscn.runtime import checkpoint

DATA, SAMPLES, CLUSTERS = "digits", 1797, 10
KILLS_PER_RUN = 4
FITS = {
    "kscn-s": "--pretrain-epochs 2 --epochs 3 --n-init 1 --batch-size 256",
    "kscn-g": "--pretrain-epochs 2 --epochs 3 --n-init 1 --batch-size 256",
    "k-subspaces": "--subspace-dim 3 --n-init 1 --trim 0.05",
    "best": "--epochs 3 --batch-size 256",
}


class Crash:
    """One series of kills in a directory of its own."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place = place
        self.rng = np.random.default_rng(seed)
        self.seen: Counter[str] = Counter()
        # Without autograd, whose threads do not survive a fork, this imports what fits need.
        methods.make("kscn-s", CLUSTERS)
        args = [*self.fit("k-subspaces", place / "first")]
        cli.main(args, prog_name="kscn", standalone_mode=False)
        self.reference: dict[str, bytes] = {}
        self.seconds: dict[str, float] = {}
        for method in FITS:
            began = time.monotonic()
            assert self.run(self.fit(method, place / f"whole-{method}")) == 0
            self.seconds[method] = time.monotonic() - began
            self.reference[method] = (place / f"whole-{method}" / "labels.csv").read_bytes()

    def fit(self, method: str, run: Path) -> list[str]:
        return [
            *("fit", DATA, "-k", str(CLUSTERS), "-o", str(run)),
            *("--method", method, "--seed", "1", *FITS[method].split()),
        ]

    def run(self, args: list[str], kill_after: float | None = None) -> int:
        """The command in a process of its own: its exit code, or -9 if it was killed."""
        return self.child(lambda: cli.main(args, prog_name="kscn"), kill_after)

    def child(self, work: Callable[[], object], kill_after: float | None) -> int:
        pid = os.fork()
        if pid == 0:
            silent = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2) if kill_after is not None else (1,):
                os.dup2(silent, stream)
            checkpoint.SHARE = np.inf  # a state after every epoch, however short
            code = 1
            try:
                work()
                code = 0
            except SystemExit as leave:
                code = int(leave.code or 0)
            finally:
                sys.stderr.flush()
                os._exit(code)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    # What is killed ---------------------------------------------------------------------------

    def kill_fit(self, method: str) -> int:
        """Kill a fit a few times, resume it each time; return how many kills hit it."""
        run = self.place / "run"
        shutil.rmtree(run, ignore_errors=True)
        args, replaces = self.fit(method, run), bool(self.rng.integers(2))
        if replaces:  # an older run is there
            shutil.copytree(self.place / "whole-k-subspaces", run)
            args.append("--overwrite")
        kills = 0
        for _ in range(KILLS_PER_RUN):
            code = self.run(args, self.rng.uniform(0, 0.6 * self.seconds[method]))
            kills += code == -signal.SIGKILL
            self.look_through(run)
            if code == 0:
                break
            if is_unfinished(run) and read_unfinished(run).config["run"]["method"] == method:
                args = ["fit", "--resume", str(run)]
            elif args[1] == "--resume" or (not replaces and (run / "config.toml").is_file()):
                break  # the kill came after everything was in place
        else:
            assert self.run(args) == 0, f"{method}: cannot go on"
            self.seen["resumed"] += args[1] == "--resume"
        labels = (run / "labels.csv").read_bytes()
        assert labels == self.reference[method], f"{method}: other labels after {kills} kills"
        self.seen["same labels"] += 1
        return kills

    def look_through(self, run: Path) -> None:
        """Nothing half under a final name; the directory says what it is."""
        if not run.exists():
            self.seen["nothing yet"] += 1
            return
        for state in (run / CHECKPOINTS).glob("**/state-*"):
            if not any(part.startswith(".") for part in state.relative_to(run).parts):
                read_model(state)
                self.seen["states read"] += 1
        try:
            found = read_run(run)
        except ModelFileError as error:
            words = ("did not finish", "has no config.toml")
            assert any(word in str(error) for word in words), error
            self.seen["unfinished"] += 1
        else:
            assert len(found.labels()) == SAMPLES
            load_model(found.model)
            self.seen["readable run"] += 1

    def kill_predict(self) -> int:
        out, old = self.place / "predicted.csv", b"index,label\n"
        out.write_bytes(old)
        run = self.place / "whole-kscn-s"
        args = ["predict", str(run), DATA, "-o", str(out)]
        code = self.run(args, self.rng.uniform(0, 0.15))
        whole = out.read_bytes() in (old, self.reference["kscn-s"])
        assert whole, "half a file of labels"
        self.seen["labels whole"] += 1
        return int(code == -signal.SIGKILL)

    def kill_save(self) -> int:
        path = self.place / "saved"
        model = load_model(self.place / "whole-kscn-s" / "model")

        def save_again_and_again() -> None:
            while True:
                model.save(path)

        if not path.exists():
            model.save(path)
        code = self.child(save_again_and_again, self.rng.uniform(0, 0.1))
        try:
            load_model(path)
            self.seen["model whole"] += 1
        except ModelFileError as error:  # between two renames: whole, and it says where
            assert "is complete; rename that to use it" in str(error), error
            self.seen["model beside its name"] += 1
            shutil.rmtree(path, ignore_errors=True)
            model.save(path)
        return int(code == -signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="do not write results/crash.json")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        crash = Crash(Path(place), options.seed)
        kills: Counter[str] = Counter()
        turns: list[tuple[str, Callable[[], int]]] = [
            *((f"fit {m}", lambda m=m: crash.kill_fit(m)) for m in FITS),  # type: ignore[misc]
            ("predict", crash.kill_predict),
            ("save", crash.kill_save),
        ]
        turn = 0
        while sum(kills.values()) < options.kills:
            name, kill = turns[turn % len(turns)]
            kills[name] += kill()
            turn += 1
            print(f"{sum(kills.values())} kills, {dict(crash.seen)}", flush=True)
    figures = {
        "kills": dict(kills),
        "seen": dict(crash.seen),
        "failures": 0,  # the first one ends this script
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    if not options.dry:
        import record

        record.write("crash", {"data": DATA, "fits": FITS, "seed": options.seed}, figures)


if __name__ == "__main__":
    main()
