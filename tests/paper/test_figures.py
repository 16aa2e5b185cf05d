"""Both figures of a fit: what they show of a model, and that they are what they claim to be."""

import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from kscn import KSCN
from kscn.data import as_source
from kscn.data.dataset import make_dataset
from kscn.errors import InputError
from kscn_paper import figures
from kscn_paper.__main__ import cli

pytest.importorskip("matplotlib")
pytest.importorskip("openTSNE")


@pytest.fixture(scope="module")
def images():
    """Ninety images of 8 x 8 in three groups: a bright half that differs, with a little noise."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], 30)
    made = np.zeros((90, 8, 8), dtype=np.float32)
    made[groups == 0, :, :3] = 1
    made[groups == 1, :3, :] = 1
    made[groups == 2, 5:, 5:] = 1
    made *= rng.uniform(0.5, 1.0, (90, 1, 1))
    return made + rng.uniform(0, 0.05, made.shape).astype(np.float32)


@pytest.fixture(scope="module", params=["whitened", "identity"])
def deep(images, request):
    model = KSCN(
        3,
        subspace_dim=2,
        latent=request.param,
        latent_dim=6,
        autoencoder_params={"channels": [4, 4], "kernels": [3, 3], "batch_norm": True},
        n_init=1,
        pretrain_epochs=3,
        epochs=1,
        random_state=0,
    )
    return model.fit(images)


def test_portraits_resemble_the_members(deep, images):
    found = figures.portraits(deep, images)
    assert list(found) == [
        "mean", "direction 1: −, +", "direction 2: −, +", "nearest members", "farthest"
    ]  # fmt: skip
    residuals = deep.residuals(images)
    energy = np.square(deep.transform(images)).sum(axis=1)
    labels = residuals.argmin(axis=1)
    for cluster in range(3):
        members = np.flatnonzero(labels == cluster)
        mean = found["mean"][cluster, 0]
        restored = deep.reconstruct(images[members]).mean(axis=0)
        assert np.abs(mean - restored).mean() < 0.1
        ends = found["direction 1: −, +"][cluster]
        assert np.abs(ends.mean(axis=0) - mean).mean() < 0.1
        assert np.abs(ends[1] - ends[0]).max() > 1e-3
        order = members[np.argsort(residuals[members, cluster] / energy[members], kind="stable")]
        np.testing.assert_array_equal(found["nearest members"][cluster], images[order[:5]])
        np.testing.assert_array_equal(found["farthest"][cluster], images[order[::-1][:3]])


def test_a_subspace_of_few_members_is_drawn_and_of_none_refused(deep, images):
    labels = deep.predict(images)
    found = figures.portraits(deep, np.delete(images, np.flatnonzero(labels == 0)[4:], axis=0))
    near = found["nearest members"][0]
    np.testing.assert_array_equal(near[4], near[0])  # there is no fifth one
    with pytest.raises(InputError, match="subspace 0 has no members"):
        figures.portraits(deep, images[labels != 0])


def test_the_command_draws_both_and_says_what_it_measured(tmp_path, monkeypatch, images):
    opened = make_dataset(as_source(images), np.repeat([0, 1, 2], 30), "digits")
    monkeypatch.setattr(figures.data, "load", lambda name: opened)
    docs = tmp_path / "docs" / "the-paper"
    arguments = ["figures", "digits", "--results", str(tmp_path), "--docs", str(docs)]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "figures.json").read_text())["digits"]
    assert 30 < found["acc"] <= 100 and 30 < found["least"] <= found["most"] <= 100
    from matplotlib.image import imread

    for kind in ("latent", "subspaces"):
        pixels = imread(tmp_path / "docs" / "_static" / f"{kind}-digits.png")[..., :3]
        assert 0.005 < (pixels.mean(axis=2) < 0.7).mean() < 0.9  # not empty, not all black
    assert not (docs / "figures.md").exists()  # which has both sets of the paper


@pytest.mark.parametrize("package", ["matplotlib.figure", "openTSNE"])
def test_a_missing_package_is_named_before_the_fit(monkeypatch, tmp_path, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(figures.data, "load", lambda name: pytest.fail("the work began"))
    with pytest.raises(InputError, match=r"pip install 'kscn\[paper"):
        figures.draw("digits", tmp_path)
