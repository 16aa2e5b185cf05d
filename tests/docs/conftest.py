"""What the pages take for granted, made small: the digits are 300, and nothing is downloaded."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kscn.data
from kscn.data import as_source

sys.path.insert(0, str(Path(__file__).parent))  # for `import blocks`

FEW = 300


@pytest.fixture
def few_digits(monkeypatch):
    """`data.load("digits")`, in Python and on the command line, gives the first 300."""
    load = kscn.data.load

    def load_few(name, *rest):
        loaded = load(name, *rest)
        if name != "digits":
            return loaded
        few = as_source(np.asarray(loaded.samples)[:FEW], name="digits")
        return replace(loaded, samples=few, labels=loaded.labels[:FEW])

    monkeypatch.setattr(kscn.data, "load", load_few)
