"""Kill fits, saves and predictions at random moments; what is on disk must stay whole.

    OMP_NUM_THREADS=1 python benchmarks/robustness/crash.py --kills 200

A fit is killed several times and resumed each time, or begun again where nothing was there to
resume. After every kill the run directory is looked through: a file under its final name must be
complete, and `kscn info` must read the run or refuse it in one sentence. The labels at the end must
be those of a fit that nobody killed. Processes are forked from one that has imported everything, so
that kills fall into the work and not into the imports.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from kscn import load_model
from kscn.cli import cli
from kscn.errors import KscnError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `record`
import record

KILLS_PER_RUN = 4
DEEP = "--pretrain-epochs 4 --epochs 6 --n-init 1 --batch-size 256"
FITS = {
    "kscn-s": DEEP,
    "kscn-g": DEEP,
    "k-subspaces": "--subspace-dim 3 --n-init 1 --trim 0.05",
    "best": "--epochs 3 --batch-size 256",
}


class Crash:
    """One series of kills in a directory of its own."""

    def __init__(
        self, place: Path, data: str, clusters: int, methods: list[str], seed: int
    ) -> None:
        self.place, self.data, self.clusters, self.methods = place, data, clusters, methods
        self.rng = np.random.default_rng(seed)
        self.seen: Counter[str] = Counter()
        self.reference: dict[str, bytes] = {}
        self.seconds: dict[str, float] = {}
        # Without autograd, whose threads do not survive a fork, this imports what fits need.
        cli.main(self.fit("k-subspaces", place / "first"), prog_name="kscn", standalone_mode=False)
        for method in methods:
            began = time.monotonic()
            assert self.run(self.fit(method, place / f"whole-{method}")) == 0
            self.seconds[method] = time.monotonic() - began
            self.reference[method] = (place / f"whole-{method}" / "labels.csv").read_bytes()

    def fit(self, method: str, run: Path) -> list[str]:
        words = ["fit", self.data, "-k", str(self.clusters), "-o", str(run), "--method", method]
        return [*words, "--seed", "1", *FITS[method].split()]

    def run(self, words: list[str], kill_after: float | None = None) -> int:
        """The command in a process of its own: its exit code, or -9 if it was killed."""
        return self.child(lambda: cli.main(words, prog_name="kscn"), kill_after)

    def child(self, work: Callable[[], object], kill_after: float | None) -> int:
        pid = os.fork()
        if pid == 0:
            silent, code = os.open(os.devnull, os.O_WRONLY), 1
            for stream in (1, 2):
                os.dup2(silent, stream)
            try:
                work()
                code = 0
            except SystemExit as leave:
                code = int(leave.code or 0)
            finally:
                os._exit(code)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def kill_fit(self, method: str) -> int:
        """Kill a fit a few times and go on each time; how many kills hit it."""
        run = self.place / "run"
        shutil.rmtree(run, ignore_errors=True)
        if self.rng.integers(2):  # another run is there, which the fit replaces
            shutil.copytree(self.place / "first", run)
        kills = 0
        for number in range(KILLS_PER_RUN + 1):
            last = number == KILLS_PER_RUN
            wait = None if last else self.rng.uniform(0, 0.6 * self.seconds[method])
            resumable = number and self.method_of(run) == method
            code = self.run(["fit", "--resume", str(run)], wait) if resumable else 2
            if code == 2:  # nothing to resume: from the beginning
                code = self.run([*self.fit(method, run), "--overwrite"], wait)
            else:
                self.seen["resumed"] += 1
            kills += code == -signal.SIGKILL
            self.look_through(run, method)
            if code == 0:
                break
            assert not last, f"{method} cannot go on: exit code {code}"
        labels = (run / "labels.csv").read_bytes()
        assert labels == self.reference[method], f"{method}: other labels after {kills} kills"
        self.seen["same labels"] += 1
        return kills

    def method_of(self, run: Path) -> str | None:
        """What the configuration says, which is there from the beginning of a run."""
        if not (run / "config.toml").exists():
            return None
        return str(tomllib.loads((run / "config.toml").read_text())["run"]["method"])

    def look_through(self, run: Path, method: str) -> None:
        """Nothing half under a final name; `info` reads the run or refuses it in one sentence."""
        whole = (self.reference[method], (self.place / "first" / "labels.csv").read_bytes())
        if (run / "labels.csv").exists():
            assert (run / "labels.csv").read_bytes() in whole, "half a file of labels"
        if (run / "model").exists():
            load_model(run / "model")
            self.seen["model whole"] += 1
        info = CliRunner().invoke(cli, ["info", str(run)])
        refused = info.exit_code == 2 and "Traceback" not in info.output
        assert info.exit_code == 0 or refused, info.output
        self.seen["readable run" if info.exit_code == 0 else "run refused"] += 1

    def kill_predict(self) -> int:
        out, old = self.place / "predicted.csv", b"index,label\n"
        out.write_bytes(old)
        method = self.methods[0]
        words = ["predict", str(self.place / f"whole-{method}"), self.data, "-o", str(out)]
        code = self.run(words, self.rng.uniform(0, 0.15))
        left = out.read_bytes()
        whole = left.count(b"\n") == self.reference[method].count(b"\n") and left.endswith(b"\n")
        assert left == old or whole, "half a file of labels"
        self.seen["labels whole"] += 1
        return int(code == -signal.SIGKILL)

    def kill_save(self) -> int:
        path = self.place / "saves" / "model"
        model = load_model(self.place / f"whole-{self.methods[0]}" / "model")
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            model.save(path)

        def save_again_and_again() -> None:
            while True:
                model.save(path)

        code = self.child(save_again_and_again, self.rng.uniform(0, 0.1))
        try:
            load_model(path)
        except KscnError as error:  # between two renames: the sentence names the one that is whole
            assert any(str(other) in str(error) for other in path.parent.iterdir()), error
            shutil.rmtree(path.parent)
        self.seen["save whole"] += 1
        return int(code == -signal.SIGKILL)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default="digits")
    parser.add_argument("-k", "--clusters", type=int, default=10)
    parser.add_argument("--methods", nargs="+", choices=FITS, default=list(FITS))
    parser.add_argument("--dry", action="store_true", help="write nothing to results/")
    options = parser.parse_args(arguments)
    began, kills = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        crash = Crash(Path(place), options.data, options.clusters, options.methods, options.seed)
        turns = {f"fit {method}": partial(crash.kill_fit, method) for method in options.methods}
        turns |= {"predict": crash.kill_predict, "save": crash.kill_save}
        while kills.total() < options.kills:
            for name, kill in turns.items():
                kills[name] += kill()
                minutes = round((time.monotonic() - began) / 60, 1)
                print(f"{kills.total()} kills, {dict(crash.seen)}, {minutes} minutes", flush=True)
    if not options.dry:
        figures = {"kills": dict(kills), "seen": dict(crash.seen), "minutes": minutes}
        figures["failures"] = 0  # the first one ends this script
        config = {"data": options.data, "fits": FITS, "seed": options.seed}
        record.write("robustness", config, figures, entry="crash")


if __name__ == "__main__":
    main()
