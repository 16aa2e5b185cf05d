"""The study of what the paper leaves open: the design, its effects, two small cells, the page."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn.data.dataset import make_dataset

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("paper_readings")


@pytest.fixture
def readings(study):
    return study.readings


def test_the_design_is_balanced_and_begins_with_the_preset(readings):
    runs = readings.design()
    assert runs[0] == {name: next(iter(f.levels)) for name, f in readings.FACTORS.items()}
    assert readings.honest(runs[0])
    names = list(readings.FACTORS)
    for i, one in enumerate(names):
        for other in names[:i]:
            pairs = {}
            for run in runs:
                pair = run[one], run[other]
                pairs[pair] = pairs.get(pair, 0) + 1
            levels = len(readings.FACTORS[one].levels) * len(readings.FACTORS[other].levels)
            assert len(pairs) == levels, (one, other)
            assert len(set(pairs.values())) == 1, (one, other)


def test_effects_are_found_again(readings):
    true = {"start": {"dsc": 2.0, "spectral": -2.0}, "trim": {0.1: 3.0, 0.0: -3.0}}

    def score(reading):
        return 70 + sum(of.get(reading[name], 0.0) for name, of in true.items())

    runs = readings.design()
    found = readings.effects(runs, [score(run) for run in runs])
    assert found.mean == pytest.approx(70)
    assert found.difference("trim") == pytest.approx(-6)
    assert found.difference("batch") == pytest.approx(0, abs=1e-9)
    assert found.of["start"]["dsc"] == pytest.approx(2)
    assert found.error == pytest.approx(0, abs=1e-9)
    best = max(readings.everything(), key=found.predicted)
    assert (best["start"], best["trim"]) == ("dsc", 0.1)
    assert found.complete
    some = readings.effects(runs[:3], [score(run) for run in runs[:3]])  # whatever there is
    assert some.error is None
    assert not some.complete
    assert some.mean == pytest.approx(70, abs=5)


def test_candidates_hold_the_preset_and_an_honest_one(readings):
    runs = readings.design()
    found = readings.candidates([(run, float(i)) for i, run in enumerate(runs)], 2)
    assert readings.honest(found[0])
    assert runs[15] in found and runs[14] in found
    assert found[-1] == runs[0]
    assert readings.departures(runs[0]) == "as the preset"


def test_a_code_before_the_relu_is_that_after_it(study):
    torch.manual_seed(0)
    after = study.Network((1, 28, 28), 255, before=False)
    before = study.Network((1, 28, 28), 255, before=True)
    before.load_state_dict(after.state_dict())
    images = torch.rand(3, 1, 28, 28)
    code = before.encode(images)
    assert bool((code < 0).any())
    assert torch.allclose(code.relu(), after.encode(images))
    assert torch.allclose(before.decode(code), after.decode(after.encode(images)))


@pytest.fixture
def tiny(study, readings, monkeypatch):
    """A few images in place of the test sets, and one short epoch of everything."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (120, 28, 28)).astype(np.uint8)
    images[:60, :14] = 0  # two kinds of them
    labels = np.repeat(np.arange(2), 60)
    opened = make_dataset(as_source(images), labels, "mnist-test")
    monkeypatch.setattr(study.data, "load", lambda name: opened)
    monkeypatch.setattr(study, "SUBSET", 80)
    monkeypatch.setitem(study.PUBLISHED, "epochs", 1)
    monkeypatch.setitem(study.PUBLISHED, "pretrain_epochs", 1)
    for name in ("pretraining", "epochs"):
        short = replace(readings.FACTORS[name], levels={1: "1 epoch", 2: "2 epochs"})
        monkeypatch.setitem(readings.FACTORS, name, short)
    first = readings.design()[0]
    other = first | {"pixels": 255, "latent": "before", "losses": "mean", "batch": 64}
    chosen = [first, other | {"start": "dsc-net"}, other | {"start": "spectral"}]
    monkeypatch.setattr(readings, "design", lambda: chosen)
    return chosen


@pytest.mark.filterwarnings("ignore")
def test_cells_are_written_as_they_come_and_not_again(study, readings, tiny, tmp_path, monkeypatch):
    run = ["--stage", "design", "--sets", "mnist-test", "--out", str(tmp_path), "--page"]
    run += ["--work", str(tmp_path / "work")]
    study.main(run)
    written = json.loads((tmp_path / "paper_readings.json").read_text())
    assert {"command", "time", "commit", "versions", "cores", "config"} <= set(written)
    cells = written["figures"]["cells"]
    assert len(cells) == 3
    for cell in cells.values():
        assert {"set", "seed", "reading", "seconds", "commit", "time"} <= set(cell)
        assert {"acc", "nmi", "start", "relative residual"} <= set(cell), cell
    kept = {path.name for path in (tmp_path / "work").iterdir()}
    assert len(kept) == 3  # two networks, which the last cell shares, and DSC-Net's clusters
    page = (tmp_path / "paper_readings.md").read_text(encoding="utf-8")
    assert "too few cells to tell the factors" in page
    assert "1 of 16" not in page and "3 of 16 on MNIST, 0 of 16 on Fashion-MNIST" in page
    monkeypatch.setattr(
        study.Study, "run", lambda *_: pytest.fail("what is there is not run again")
    )
    study.main(run)


def test_the_page_of_nothing_says_so(study, tmp_path):
    study.main(["--stage", "none", "--out", str(tmp_path), "--page", "--work", str(tmp_path)])
    page = (tmp_path / "paper_readings.md").read_text(encoding="utf-8")
    assert "No cell has been measured yet." in page
    assert "Not measured yet." in page


def test_the_best_honest_reading_is_named(study, readings, tmp_path):
    preset, *rest = readings.design()
    other = preset | {"batch": 64}
    cells = {}
    for reading, acc in ((preset, 70.0), (other, 80.0), (rest[3], 90.0)):
        for name in readings.PAPER:
            for seed in range(3):
                scores = {"acc": acc + seed, "nmi": acc, "start": {"acc": 60.0, "nmi": 50.0}}
                facts = {"set": name, "samples": 10_000, "seed": seed, "reading": reading}
                cells[readings.key(name, reading, seed)] = facts | scores
    study.write_page(cells, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| as the preset | yes | 71.0 ± 0.8 / 70.0 ± 0.0 (3) |" in page
    assert "**The best honest reading**" in page
    assert "It differs in: batch size 64." in page

    for i, reading in enumerate(readings.design()):  # the rest of the design
        for name in readings.PAPER:
            scores = {"acc": 60.0 + i, "nmi": 50.0, "start": {"acc": 60.0, "nmi": 50.0}}
            facts = {"set": name, "samples": 10_000, "seed": 0, "reading": reading}
            cells[readings.key(name, reading, 0)] = facts | scores
    study.write_page(cells, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| pixels: from 0 to 255 instead of from 0 to 1 | +8.0 | +0.0 | +8.0 | +0.0 |" in page
    assert "| k-means: k-means on all latents | 68.0 (from 60.0) |" in page
