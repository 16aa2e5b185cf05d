"""The measurement of the paper's claims: what is counted for whom."""

import importlib
import json
from pathlib import Path

import pytest

from kscn_paper.claims import section

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def claims(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("claims")


def test_pretraining_counts_for_every_method_on_the_latents(claims, tmp_path, monkeypatch):
    asked = []

    def in_process(name, cache, samples, script):
        asked.append(name)
        seconds = 100.0 if name == claims.NETWORK else 10.0
        return {"seconds": seconds, "peak_mb": 500.0, "busy_elsewhere": 0.0, "acc": 0.5}

    monkeypatch.setattr(claims, "in_process", in_process)
    claims.main(["--out", str(tmp_path)])
    assert asked == [claims.NETWORK, *claims.NAMES]
    figures = json.loads((tmp_path / "claims.json").read_text())["figures"]
    found = figures["end_to_end"]["methods"]
    assert found["kscn-s"]["seconds"] == found["dsc-net"]["seconds"] == 10.0
    assert found["ssc-cae"]["seconds"] == 110.0
    assert found["ssc-cae"]["own_seconds"] == 10.0
    assert figures["parameters"]["cae"] == 5566
    assert figures["affinity"]["gb"] == pytest.approx(39.2)
    assert len(section(tmp_path)) > 4  # what `kscn reproduce all` makes of it

    asked.clear()
    claims.main(["dsc-net", "--out", str(tmp_path)])
    assert asked == ["dsc-net"]
    again = json.loads((tmp_path / "claims.json").read_text())["figures"]
    assert set(again["end_to_end"]["methods"]) == set(claims.NAMES)
