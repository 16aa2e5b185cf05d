"""The cache of embeddings: what is found again, what a kill costs, and its limit."""

import sqlite3
import threading
from contextlib import closing

import numpy as np
import pytest
import tinyencoder
import warm

from kscn.errors import InputError
from kscn.features.encoders import cache, load_encoder
from kscn.features.encoders.cache import Cache

pytest.importorskip("onnxruntime")
IMAGES, _ = tinyencoder.photographs(40)
NET = "a network and its preprocessing"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def encoder(tmp_path):
    return load_encoder(tinyencoder.write(tmp_path / "tiny.onnx"))


@pytest.fixture
def counted(encoder, monkeypatch):
    """How many images went through the network."""
    run, counts = encoder.run, []
    monkeypatch.setattr(encoder, "run", lambda batch: counts.append(len(batch)) or run(batch))
    return counts


def kept():
    """How many embeddings are on disk."""
    if not cache.place().exists():
        return 0
    with closing(sqlite3.connect(cache.place())) as database:
        return database.execute("SELECT count(*) FROM embeddings").fetchone()[0]


def vectors(names, dim=8):
    """An embedding for each name, the same one every time."""
    return {name.encode(): np.full(dim, number, np.float16) for number, name in enumerate(names)}


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


def test_few_images_are_not_kept_and_equal_ones_computed_once(encoder, counted):
    twice = np.concatenate([IMAGES[:5], IMAGES[:5]])
    found = encoder.embed(twice)
    assert sum(counted) == 5 and (found[:5] == found[5:]).all()
    assert kept() == 0


def test_another_preprocessing_or_network_is_another_key(encoder, tmp_path):
    encoder.embed(IMAGES)
    other = load_encoder(encoder.name, interpolation="nearest")
    assert not (other.embed(IMAGES) == encoder.embed(IMAGES)).all()
    load_encoder(tinyencoder.write(tmp_path / "other.onnx", seed=1)).embed(IMAGES[:35])
    assert kept() == 40 + 40 + 35


def test_first_and_second_time_give_the_same_numbers(encoder):
    without = encoder.embed(IMAGES, cache=False)
    assert kept() == 0
    assert (encoder.embed(IMAGES) == without).all()
    assert (encoder.embed(IMAGES) == without).all()


def test_a_kill_costs_no_more_than_a_batch(encoder, counted, tmp_path):
    images, _ = tinyencoder.photographs(100)
    np.save(tmp_path / "images.npy", images)
    code = (
        "import os, numpy as np, torch\n"
        "from kscn.features.encoders import load_encoder\n"
        "torch.set_num_threads(1)\n"
        f"images = np.load({str(tmp_path / 'images.npy')!r})\n"
        "def kill(done, n):\n"
        "    if done >= 64:\n"
        "        os.kill(os.getpid(), 9)\n"
        f"load_encoder({encoder.name!r}).embed(images, progress=kill)\n"
    )
    (tmp_path / "killed.py").write_text(code)
    assert warm.Started(tmp_path / "killed.py").wait() == -9
    expected = encoder.embed(images, cache=False)
    del counted[:]
    assert (encoder.embed(images) == expected).all()
    assert sum(counted) == 36


def test_several_threads_and_connections_write_at_once():
    def write(part):
        for number in range(5):
            Cache(NET).write(vectors([f"{part} {number} {i}" for i in range(10)]))

    threads = [threading.Thread(target=write, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept() == 200


@pytest.mark.parametrize("damage", ["cut", "header", "middle", "text"])
def test_a_damaged_database_costs_a_warning_and_computing_again(encoder, damage):
    expected = encoder.embed(IMAGES)
    content = bytearray(cache.place().read_bytes())
    if damage == "header":
        content[0] ^= 0xFF
    elif damage == "middle":
        content[16_384:] = bytes(len(content) - 16_384)
    content = {"cut": content[:20_000], "text": b"notes " * 100}.get(damage, content)
    cache.place().write_bytes(content)
    with pytest.warns(UserWarning, match=r"are not kept, because .* cannot be used .*: remove it"):
        assert (encoder.embed(IMAGES) == expected).all()
    cache.place().unlink()
    assert (encoder.embed(IMAGES) == expected).all() and kept() == 40


def test_the_cache_has_a_limit_and_drops_the_oldest(monkeypatch):
    monkeypatch.setenv("KSCN_EMBEDDING_BYTES", "1000000")
    own, dim = Cache(NET), 4000
    first, second = (vectors([f"{part} {i}" for i in range(50)], dim) for part in "ab")
    own.write(first)
    own.write(second)
    for number in range(50):
        own.write(vectors([f"new {number} {i}" for i in range(10)], dim))
        assert cache.place().stat().st_size < 1_200_000
        if number == 4:
            assert len(own.read(second)) == 50 > len(own.read(first))
    monkeypatch.setenv("KSCN_EMBEDDING_BYTES", "much")
    with pytest.raises(InputError, match="KSCN_EMBEDDING_BYTES is 'much'"):
        own.write(first)


@pytest.mark.parametrize("obstacle", ["file", "database"])
def test_a_cache_that_cannot_be_written_costs_a_warning_only(encoder, tmp_path, obstacle):
    if obstacle == "file":
        (tmp_path / "cache").write_text("")
    else:
        cache.place().mkdir(parents=True)
    with pytest.warns(UserWarning, match="embeddings are not kept"):
        found = encoder.embed(IMAGES)
    assert (found == encoder.embed(IMAGES, cache=False)).all()
