"""The cache of embeddings: what is found again, what a kill costs, and its limit."""

import os

import numpy as np
import pytest
import tinyencoder
import warm

from kscn.errors import InputError
from kscn.features.encoders import cache, load_encoder
from kscn.features.encoders import encoder as encoder_module

pytest.importorskip("onnxruntime")
IMAGES, _ = tinyencoder.photographs(40)


@pytest.fixture(autouse=True)
def small_shards(tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoder_module, "BATCH", 8)
    monkeypatch.setattr(encoder_module, "SHARD", 16)
    monkeypatch.setattr(encoder_module, "FEWEST", 4)


@pytest.fixture
def encoder(tmp_path):
    return load_encoder(tinyencoder.write(tmp_path / "tiny.onnx"))


@pytest.fixture
def counted(encoder, monkeypatch):
    """How many images went through the network."""
    run, counts = encoder._made, []
    monkeypatch.setattr(
        encoder, "_made", lambda batch, apply: counts.append(len(batch)) or run(batch, apply)
    )
    return counts


def shards():
    return sorted(cache.place().rglob("*.safetensors"))


def test_images_are_found_by_what_they_contain(encoder, counted, tmp_path):
    folder = tinyencoder.write_folder(tmp_path / "photos", IMAGES)
    first = encoder.embed(folder)
    assert sum(counted) == 40
    (folder / "photo003.png").rename(folder / "zzz.png")
    second = encoder.embed(folder)
    assert sum(counted) == 40
    assert (second[-1] == first[3]).all() and (second[3] == first[4]).all()
    (folder / "photo005.png").write_bytes((folder / "photo006.png").read_bytes())
    assert (encoder.embed(folder)[4] == first[6]).all()
    assert sum(counted) == 40


def test_few_images_are_not_kept(encoder, monkeypatch):
    monkeypatch.setattr(encoder_module, "FEWEST", 32)
    encoder.embed(IMAGES[:31])
    assert not shards()


def test_equal_images_are_computed_once(encoder, counted):
    twice = np.concatenate([IMAGES[:5], IMAGES[:5]])
    found = encoder.embed(twice)
    assert sum(counted) == 5 and (found[:5] == found[5:]).all()


def test_another_preprocessing_or_network_is_another_key(encoder, tmp_path):
    encoder.embed(IMAGES)
    other = load_encoder(encoder.name, interpolation="nearest")
    assert not (other.embed(IMAGES) == encoder.embed(IMAGES)).all()
    load_encoder(tinyencoder.write(tmp_path / "other.onnx", seed=1)).embed(IMAGES[:4])
    assert [entry.images for entry in cache.entries()] == [40, 40, 4]


def test_first_and_second_time_give_the_same_numbers(encoder):
    without = encoder.embed(IMAGES, cache=False)
    assert not shards()
    assert (encoder.embed(IMAGES) == without).all()
    assert (encoder.embed(IMAGES) == without).all()


def test_an_interruption_keeps_what_was_computed(encoder, counted):
    def stop(done, total):
        if done >= 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encoder.embed(IMAGES, progress=stop)
    del counted[:]
    encoder.embed(IMAGES)
    assert sum(counted) == 16


def test_a_kill_costs_no_more_than_a_shard(encoder, counted, tmp_path):
    np.save(tmp_path / "images.npy", IMAGES)
    code = (
        "import os, numpy as np\n"
        "from kscn.features.encoders import encoder as module\n"
        "module.BATCH, module.SHARD = 8, 16\n"
        f"images = np.load({str(tmp_path / 'images.npy')!r})\n"
        f"found = module.load_encoder({encoder.name!r})\n"
        "found.embed(images, progress=lambda done, n: done >= 24 and os.kill(os.getpid(), 9))\n"
    )
    (tmp_path / "killed.py").write_text(code)
    assert warm.Started(tmp_path / "killed.py").wait() == -9
    expected = encoder.embed(IMAGES, cache=False)
    del counted[:]
    assert (encoder.embed(IMAGES) == expected).all()
    assert sum(counted) == 24  # of 40, 16 were kept


def test_damaged_shards_are_computed_again(encoder, counted):
    expected = encoder.embed(IMAGES)
    first, second, third = shards()
    first.write_bytes(first.read_bytes()[:50])
    second.write_bytes(b"")
    content = bytearray(third.read_bytes())
    content[0] ^= 0xFF
    third.write_bytes(content)
    del counted[:]
    assert (encoder.embed(IMAGES) == expected).all()
    assert sum(counted) == 40


def test_the_cache_has_a_limit_and_drops_what_was_not_used_for_longest(
    encoder, counted, monkeypatch
):
    encoder.embed(IMAGES[:16])
    encoder.embed(IMAGES[16:32])
    sizes = {path: path.stat().st_size for path in shards()}
    monkeypatch.setenv("KSCN_EMBEDDING_BYTES", str(sum(sizes.values())))
    for path in sizes:
        os.utime(path, (1, 1))
    encoder.embed(IMAGES[:16])  # which is the newer one now
    encoder.embed(IMAGES[32:])
    assert sum(path.stat().st_size for path in shards()) <= sum(sizes.values())
    del counted[:]
    encoder.embed(IMAGES[:16])
    assert not counted
    monkeypatch.setenv("KSCN_EMBEDDING_BYTES", "much")
    with pytest.raises(InputError, match="KSCN_EMBEDDING_BYTES is 'much'"):
        cache.limit()


def test_a_cache_that_cannot_be_written_costs_a_warning_only(encoder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="embeddings are not kept"):
        found = encoder.embed(IMAGES)
    assert (found == encoder.embed(IMAGES, cache=False)).all()


def test_it_can_be_listed_and_cleared(encoder):
    assert cache.entries() == [] and cache.clear() == 0
    encoder.embed(IMAGES)
    (entry,) = cache.entries()
    assert (entry.name, entry.sha256, entry.images) == (encoder.name, encoder.sha256, 40)
    assert cache.clear() == entry.bytes > 40 * 12 * 2
    assert cache.entries() == []
