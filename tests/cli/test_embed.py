"""`kscn embed` and `kscn data cache`."""

import numpy as np
import pytest
import tinyencoder

from kscn.features.encoders import load_encoder

pytest.importorskip("onnxruntime")
IMAGES, _ = tinyencoder.photographs(40)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    return tinyencoder.write_folder(tmp_path / "photos", IMAGES)


@pytest.fixture
def encoder(tmp_path):
    return tinyencoder.write(tmp_path / "tiny.onnx")


def test_embeddings_of_a_folder_and_of_an_array_are_written(kscn, folder, encoder, tmp_path):
    result = kscn("embed", folder, "--encoder", encoder, "-o", tmp_path / "e.npy")
    assert result.exit_code == 0, result.output
    assert f"wrote 40 embeddings of {tinyencoder.DIM} numbers" in result.output
    found = np.load(tmp_path / "e.npy")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, load_encoder(encoder).embed(folder, cache=False))
    np.save(tmp_path / "images.npy", IMAGES)
    args = ("embed", tmp_path / "images.npy", "--encoder", encoder, "-o", tmp_path / "a.npy")
    assert kscn(*args, "--no-cache").exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy")[0], found[0])


def test_broken_files_are_named_or_left_out(kscn, folder, encoder, tmp_path, one_sentence):
    (folder / "photo003.png").write_bytes((folder / "photo003.png").read_bytes()[:99])
    args = ("embed", folder, "--encoder", encoder, "-o", tmp_path / "e.npy")
    words = one_sentence(kscn(*args))
    assert "photo003.png is not a readable image" in words and "--skip-broken" in words
    assert not (tmp_path / "e.npy").exists()
    assert kscn(*args, "--skip-broken").exit_code == 0
    assert len(np.load(tmp_path / "e.npy")) == 39


def test_the_cache_is_shown_and_cleared(kscn, folder, encoder, tmp_path):
    assert "no embeddings in" in kscn("data", "cache").output
    assert kscn("embed", folder, "--encoder", encoder, "-o", tmp_path / "e.npy").exit_code == 0
    listed = kscn("data", "cache").output
    assert " MB of embeddings in" in listed and "kscn data cache --clear" in listed
    assert "removed" in kscn("data", "cache", "--clear").output
    assert "no embeddings in" in kscn("data", "cache").output
