"""Pretrained autoencoders: the recipe, and a cache that is used, exact, and no danger."""

import shutil

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn_paper.rivals.autoencoder import AutoencoderKMeans, fingerprint

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 200, (60, 4, 4), dtype=np.uint8)
VECTORS = rng.standard_normal((60, 6)) * 7 + 3
SMALL = {"sae": {"hidden": (8,), "latent_dim": 3}, "cae": {"channels": (3,), "kernels": (3,)}}


def made(X=IMAGES, kind="sae", cache=False, **settings):
    """An estimator whose network is pretrained, and nothing more."""
    settings = {
        "autoencoder_params": SMALL[kind],
        "layer_epochs": 1,
        "pretrain_epochs": 2,
        "batch_size": 16,
    } | settings
    model = AutoencoderKMeans(autoencoder=kind, cache=cache, **settings)
    model.random_state_ = 0 if model.random_state is None else model.random_state
    model.history_, model._began = [], 0.0
    model._pretrain(as_source(X))
    return model


def weights(found):
    parameters = found.autoencoder_.parameters()
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def stages(cache, **settings):
    found = made(cache=cache, **settings)
    return [record["stage"] for record in found.history_], weights(found)


TRAINED = ["pretrain layer 1", "pretrain layer 2", "pretrain", "pretrain"]


@pytest.mark.parametrize("kind", ["sae", "cae"])
def test_a_second_time_takes_the_kept_network_bit_for_bit(tmp_path, kind):
    trained, first = stages(tmp_path, kind=kind)
    assert trained == (TRAINED if kind == "sae" else ["pretrain", "pretrain"])
    again, second = stages(tmp_path, kind=kind)
    assert again == ["pretrained"]
    assert torch.equal(first, second)


def test_training_without_a_cache_gives_the_same_network_and_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "root"))
    _, kept = stages(tmp_path / "own")
    trained, alone = stages(False)
    assert trained == TRAINED
    assert torch.equal(kept, alone)
    assert not (tmp_path / "root").exists()


def test_the_cache_is_beside_the_data_sets_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path))
    stages(True)
    (kept,) = (tmp_path / "pretrained").iterdir()
    assert kept.is_dir()
    assert stages(True)[0] == ["pretrained"]


@pytest.mark.parametrize(
    "other",
    [
        {"random_state": 1},
        {"pretrain_epochs": 3},
        {"layer_epochs": 2},
        {"batch_size": 15},
        {"autoencoder_params": {"hidden": (9,), "latent_dim": 3}},
        {"X": 255 - IMAGES},
        {"X": IMAGES[::-1]},
        {"X": IMAGES.reshape(60, 16)},
        {"kind": "cae"},
    ],
    ids=str,
)
def test_other_samples_settings_or_seeds_have_networks_of_their_own(tmp_path, other):
    _, first = stages(tmp_path)
    kind = {"autoencoder_params": SMALL["cae"]} if "kind" in other else {}
    heard, second = stages(tmp_path, **other, **kind)
    assert "pretrain" in heard
    assert first.shape != second.shape or not torch.equal(first, second)


def test_the_checksum_is_of_values_and_not_of_containers(tmp_path):
    recipe = {"kind": "sae", "seed": 0}
    np.save(tmp_path / "x.npy", IMAGES)
    expected = fingerprint(as_source(IMAGES), recipe)
    for same in (IMAGES[::-1].copy()[::-1], torch.from_numpy(IMAGES), tmp_path / "x.npy"):
        assert fingerprint(as_source(same), recipe) == expected


def cut(path):
    content = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(content[:-40])


def flip(path):
    content = bytearray((path / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "model.safetensors").write_bytes(content)


def half_written(path):
    (path / "manifest.json").write_text('{"format":')


def without_tensors(path):
    (path / "model.safetensors").unlink()


@pytest.mark.parametrize("damage", [cut, flip, half_written, without_tensors])
def test_a_damaged_network_is_told_and_made_again(tmp_path, damage):
    _, first = stages(tmp_path)
    (kept,) = tmp_path.iterdir()
    damage(kept)
    with pytest.warns(UserWarning, match=f"made again because.*{kept.name}"):
        heard, second = stages(tmp_path)
    assert heard == TRAINED
    assert torch.equal(first, second)
    assert stages(tmp_path)[0] == ["pretrained"]  # the good one took its place


def test_a_cache_that_cannot_be_written_costs_a_warning_only(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="not kept because"):
        heard, _ = stages(tmp_path / "file")
    assert heard == TRAINED


def test_nothing_half_written_is_left_in_the_cache(tmp_path):
    made(cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    assert {file.name for file in kept.iterdir()} == {"manifest.json", "model.safetensors"}
    shutil.rmtree(kept)


def test_pixels_go_to_5_2_for_the_dense_network_and_to_1_for_the_convolutional():
    bright = IMAGES.copy()
    bright[0, 0, 0] = 255
    for X in (bright, bright / 255.0, bright[:, None]):
        for kind, brightest in {"sae": 5.2, "cae": 1.0}.items():
            found = made(X, kind, pretrain_epochs=0, layer_epochs=0)
            batch = found._batches(as_source(X)).take(np.arange(60))
            assert batch.max().item() == pytest.approx(brightest)
            assert batch.min().item() == pytest.approx(X.min() / X.max() * brightest)


def test_vectors_are_centred_with_a_mean_square_of_one():
    found = made(VECTORS, pretrain_epochs=0, layer_epochs=0)
    batch = found._batches(as_source(VECTORS)).take(np.arange(60))
    assert batch.square().mean().item() == pytest.approx(1)
    assert batch.mean(dim=0).abs().max().item() < 1e-5


def test_no_gradients_of_pretraining_are_left_behind():
    assert all(parameter.grad is None for parameter in made().autoencoder_.parameters())
