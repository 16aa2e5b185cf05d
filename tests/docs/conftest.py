"""What the pages take for granted, made small: few digits, few epochs, and no downloads."""

import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kscn.data
from kscn.data import as_source
from kscn.estimators import presets

sys.path.insert(0, str(Path(__file__).parent))  # for `import blocks`
sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import warm

FEW, FEW_EPOCHS = 200, 3


@pytest.fixture
def few_digits(monkeypatch):
    """In Python and on the command line, `digits` are the first 200, and fits are short."""
    opened, parameters = kscn.data._open, presets.parameters

    def open_few(name, *rest):
        loaded = opened(name, *rest)
        if name != "digits":
            return loaded
        few = as_source(np.asarray(loaded.samples)[:FEW], name="digits")
        return replace(loaded, samples=few, labels=loaded.labels[:FEW])

    def few_epochs(*args):
        found = parameters(*args)
        few = dict.fromkeys(("pretrain_epochs", "epochs"), FEW_EPOCHS)
        return found | few | {"n_init": 1}

    monkeypatch.setattr(kscn.data, "_open", open_few)
    monkeypatch.setattr(presets, "parameters", few_epochs)


@pytest.fixture
def server():
    """server(args) -> host:port of a `kscn explore` or `kscn serve` on a free port, ended later."""
    running = []

    def start(args):
        process = warm.Started(warm.COMMAND, [*args, "--port", "0"])
        running.append(process)
        line = process.first_line()
        assert "http://" in line, f"kscn {args}: {line}"
        return line.split("http://")[1].split("/")[0].split()[0]

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
