"""Real processes that need not import anything first.

torch and its company take seconds to import, and some tests start a dozen processes. A server that
has imported everything (multiprocessing's forkserver, one per session) forks them instead.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import time
from pathlib import Path

import kscn

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "kscn.cli.fit",
        "kscn.estimators.deep",
        "kscn.estimators.linear",
        "kscn.estimators.plus",
        "kscn.runtime.group",
        "kscn.web.exploring",
        "kscn.web.server",
        "kscn.web.serving",
        "scipy.optimize",
        "sklearn.cluster",
        "torch._dynamo",  # which the first optimiser of a process imports, for two seconds
        "torch.distributed.run",
        "torch.optim.swa_utils",
    ]
)
COMMAND = Path(kscn.__file__).with_name("__main__.py")  # `python -m kscn`


class Started:
    """A script in a process of its own, with the interface of `subprocess.Popen`.

    Parameters
    ----------
    script : path
        What to run.
    args : iterable
        Its arguments.
    before : str
        Code to run first, in the same process.
    cwd : path, optional
        Where.
    """

    def __init__(self, script, args=(), before="", cwd=None):
        self.place = tempfile.TemporaryDirectory()
        self.streams = [Path(self.place.name) / name for name in ("out", "err")]
        argv = [str(script), *map(str, args)]
        place = os.getcwd() if cwd is None else str(cwd)
        self.process = FORKS.Process(
            target=_run, args=(argv, before, place, dict(os.environ), self.streams)
        )
        self.process.start()
        self.pid = self.process.pid

    def poll(self):
        return self.process.exitcode

    @property
    def returncode(self):
        return self.process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout=None):
        """The exit code, when it has ended."""
        self.process.join(timeout)
        assert self.returncode is not None, "it did not end"
        return self.returncode

    def first_line(self):
        """The first line of its output, as soon as there is one."""
        output = self.streams[0]
        while not (output.exists() and "\n" in output.read_text()):
            assert self.poll() is None, self.communicate()
            time.sleep(0.02)
        return output.read_text().splitlines()[0]

    def communicate(self, timeout=None):
        """What it has written, when it has ended: (output, errors)."""
        self.wait(timeout)
        return tuple(stream.read_text() if stream.exists() else "" for stream in self.streams)


def _run(argv, before, place, environment, streams):
    for number, stream in enumerate(streams, start=1):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT), number)
    # Of the server's, whose time and environment may have been others.
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(place)
    sys.argv = argv
    exec(before, {})
    runpy.run_path(argv[0], run_name="__main__")
