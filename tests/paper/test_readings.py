"""What the paper leaves open: the design, its effects, the page, and the script that measures."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from kscn import data
from kscn.data import as_source
from kscn.data.dataset import make_dataset
from kscn.errors import DataError
from kscn_paper import readings, runs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "paper"


def script(name):
    """A script of benchmarks/paper."""
    spec = importlib.util.spec_from_file_location(f"paper_{name}", BENCHMARKS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_design_is_balanced_and_begins_with_the_preset():
    design = readings.design()
    assert design[0] == {name: next(iter(f.levels)) for name, f in readings.FACTORS.items()}
    assert readings.honest(design[0])
    assert readings.departures(design[0]) == "as the preset"
    names = list(readings.FACTORS)
    for i, one in enumerate(names):
        for other in names[:i]:
            pairs = {}
            for run in design:
                pair = run[one], run[other]
                pairs[pair] = pairs.get(pair, 0) + 1
            levels = len(readings.FACTORS[one].levels) * len(readings.FACTORS[other].levels)
            assert len(pairs) == levels, (one, other)
            assert len(set(pairs.values())) == 1, (one, other)


def test_effects_are_found_again():
    true = {"start": {"dsc": 2.0, "spectral": -2.0}, "trim": {0.1: 3.0, 0.0: -3.0}}
    design = readings.design()
    scores = [70 + sum(of.get(run[name], 0.0) for name, of in true.items()) for run in design]
    found = readings.effects(design, scores)
    assert found.mean == pytest.approx(70)
    assert found.difference("trim") == pytest.approx(-6)
    assert found.difference("batch") == pytest.approx(0, abs=1e-9)
    assert found.of["start"]["dsc"] == pytest.approx(2)
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.predicted(design[0]) == pytest.approx(75)


def test_candidates_hold_the_preset_and_an_honest_one():
    design = readings.design()
    found = script("readings").candidates([(run, float(i)) for i, run in enumerate(design)], 2)
    assert readings.honest(found[0])
    assert design[15] in found and design[14] in found
    assert found[-1] == design[0]


def cells_of(scored):
    """Cells of readings with scores: [(reading, seed, acc)] on both sets."""
    return {
        readings.key(name, reading, seed): {
            "set": name, "seed": seed, "reading": reading,
            "acc": acc, "nmi": 50.0, "start": {"acc": 60.0, "nmi": 50.0},
        }
        for reading, seed, acc in scored
        for name in readings.PAPER
    }  # fmt: skip


def test_the_page_has_effects_starts_and_the_best_honest_reading():
    design = readings.design()
    scored = [(reading, 0, 60.0 + i) for i, reading in enumerate(design)]
    scored += [(design[0] | {"batch": 64}, seed, 80.0 + seed) for seed in range(3)]
    scored += [(design[3], seed, 63.0) for seed in range(3)]
    page = readings.page(cells_of(scored))
    assert "| pixels: from 0 to 255 instead of from 0 to 1 | +8.0 | +0.0 | +8.0 | +0.0 |" in page
    assert "| k-means: k-means on all latents | 68.0 (from 60.0) |" in page
    assert "| batch size 64 | yes | 81.0 ± 0.8 / 50.0 ± 0.0 (3) |" in page
    assert "It differs in: batch size 64." in page
    assert "| as the preset | 60.0 / 50.0 from 60.0 / 50.0 |" in page


def test_the_page_waits_for_the_whole_design():
    with pytest.raises(DataError, match=r"2 of 32 runs .* are missing"):
        readings.page(cells_of([(reading, 0, 60.0) for reading in readings.design()[1:]]))


# The scripts -------------------------------------------------------------------------------------


def test_a_code_before_the_relu_is_that_after_it():
    study = script("readings")
    torch.manual_seed(0)
    after = study.Network((1, 28, 28), 255, before=False)
    before = study.Network((1, 28, 28), 255, before=True)
    before.load_state_dict(after.state_dict())
    images = torch.rand(3, 1, 28, 28)
    code = before.encode(images)
    assert bool((code < 0).any())
    assert torch.allclose(code.relu(), after.encode(images))
    assert torch.allclose(before.decode(code), after.decode(after.encode(images)))


def images(side):
    """A few images of three kinds as a data set."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 40)
    made = rng.uniform(0, 0.1, (120, side, side)).astype(np.float32)
    made[labels == 0, :, : side // 3] += 0.8
    made[labels == 1, : side // 3, :] += 0.8
    made[labels == 2, -side // 3 :, -side // 3 :] += 0.8
    return make_dataset(as_source(made), labels, "mnist-test")


@pytest.mark.filterwarnings("ignore")
def test_a_cell_has_scores_of_its_start_and_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "load", lambda name: images(28))
    study = script("readings").Study("mnist-test", None, tmp_path)
    first = readings.design()[0] | {"pretraining": 1, "epochs": 2}
    other = first | {"pixels": 255, "latent": "before", "losses": "mean", "batch": 64}
    for reading in (first, first | {"epochs": 1}, other | {"start": "spectral"}):
        cell = study.run(reading, 0)
        assert {"acc", "nmi", "start", "seconds", "commit", "relative residual"} <= {*cell}, cell
        assert cell["epochs"] <= reading["epochs"] and cell["reading"] == reading
    assert len(list(tmp_path.iterdir())) == 2  # the first two cells share their network


def test_rows_on_features_are_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "load", lambda name: images(16))
    means = script("feature_means")
    arguments = ["mnist-test", "--seeds", "1", "--components", "40", "--out", str(tmp_path)]
    for _ in range(2):  # the second time nothing is left to do
        means.main(arguments)
    found = runs.read(tmp_path / runs.FILE)
    assert [run["config"]["method"] for run in found] == list(means.ROWS)
    assert max(run["scores"]["acc"] for run in found) == 1.0


def test_pretraining_counts_for_every_method_on_the_latents(tmp_path, monkeypatch):
    claims, asked = script("claims"), []

    def in_process(name, *_):
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
    assert figures["parameters"]["cae"] == 5566
    assert figures["affinity"]["gb"] == pytest.approx(39.2)


def test_an_attempt_is_scored_and_its_empty_clusters_are_counted(monkeypatch):
    monkeypatch.setattr(data, "load", lambda name: images(16))
    cell = script("attempts").attempt("mnist-test", "k-means", {"n_init": 1}, 0)
    assert cell["acc"] > 90 and cell["empty"] == 0 and sum(cell["sizes"]) == 120
    assert (cell["settings"], cell["seed"]) == ({"n_init": 1}, 0)
