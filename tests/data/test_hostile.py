"""Files made to hang, to fill the memory or to reach elsewhere are refused, cheaply."""

import gzip
import io
import os
import socket
import struct
import tracemalloc
import zipfile
import zlib

import h5py
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from kscn.data import load
from kscn.data.tables import open_csv
from kscn.errors import DataError, InputError

X = np.arange(24, dtype=np.float32).reshape(4, 6)
ZEROS = np.zeros((500, 2000))  # 8 MB that pack to nearly nothing


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setenv("KSCN_MAX_BYTES", "1000000")


def refuse(path, words, most_mb=4.0):
    """Loading raises one sentence that names the path, without allocating much on the way."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=words) as caught:
            load(path)
        assert tracemalloc.get_traced_memory()[1] < most_mb * 2**20
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 1000
    return message


def npy_bytes(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_pipes_sockets_and_devices_are_refused_without_opening_them(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    refuse(tmp_path / "x.npy", "is not a regular file but a .*pipe")
    (tmp_path / "x.csv").symlink_to("/dev/zero")
    refuse(tmp_path / "x.csv", "not a regular file")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(tmp_path)  # the path of a socket must be short
        try:
            server.bind("x.h5")
        finally:
            os.chdir(here)
        refuse(tmp_path / "x.h5", "not a regular file")


@pytest.mark.parametrize("value", ["many", "1e9", "4 GB"])
def test_a_limit_that_is_no_number_is_named(tmp_path, monkeypatch, value):
    monkeypatch.setenv("KSCN_MAX_BYTES", value)
    np.savez(tmp_path / "x.npz", X)
    with pytest.raises((DataError, InputError), match="KSCN_MAX_BYTES is"):
        load(tmp_path / "x.npz")


def test_the_limit_is_on_what_is_unpacked_and_can_be_raised(tmp_path, monkeypatch):
    np.savez(tmp_path / "x.npz", X)
    monkeypatch.setenv("KSCN_MAX_BYTES", "223")
    message = refuse(tmp_path / "x.npz", "unpacks to 224 bytes, above the limit of 223")
    assert "KSCN_MAX_BYTES" in message
    monkeypatch.setenv("KSCN_MAX_BYTES", "224")
    np.testing.assert_array_equal(load(tmp_path / "x.npz").samples, X)
    np.save(tmp_path / "x.npy", np.repeat(X, 10, axis=0))
    assert len(load(tmp_path / "x.npy").samples) == 40  # mapped, so it takes no memory


# .npy and .npz


def test_a_npy_header_is_not_read_to_its_claimed_end(tmp_path):
    path = tmp_path / "x.npy"
    with path.open("wb") as stream:
        stream.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31))
        stream.truncate(2**31 + 100)  # sparse
    refuse(path, "not a readable .npy file")


@pytest.mark.parametrize(
    "shape",
    ["(1,) * 40", "(((" * 500, "(2**9, 2)", "(-1, 4)", "(-1, -1)", "(1, 'a')", "(2.0, 2)"],
)
def test_npy_headers_are_data_not_programs(tmp_path, shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".ljust(6000).encode()
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(4)
    (tmp_path / "x.npy").write_bytes(content)
    refuse(tmp_path / "x.npy", "not a readable .npy file")


def test_a_zip_bomb_is_refused_by_its_size(tmp_path, small_limit):
    np.savez_compressed(tmp_path / "x.npz", ZEROS)
    assert (tmp_path / "x.npz").stat().st_size < 20_000
    refuse(tmp_path / "x.npz", "above the limit of 1000000")


def test_a_member_that_says_less_than_it_holds_is_not_unpacked_further(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", npy_bytes(ZEROS))
    content = (tmp_path / "x.npz").read_bytes()
    small = npy_bytes(X)
    true_size, claimed = struct.pack("<I", ZEROS.nbytes + 128), struct.pack("<I", len(small))
    (tmp_path / "x.npz").write_bytes(content.replace(true_size, claimed))
    refuse(tmp_path / "x.npz", "not a readable .npz file")


def test_names_in_an_archive_reach_nowhere(tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    with zipfile.ZipFile(folder / "x.npz", "w") as archive:
        archive.writestr("../../X.npy", npy_bytes(X))
        archive.writestr("/tmp/\x1b[31m\nred.npy", npy_bytes(X))
    message = refuse(folder / "x.npz", "does not say which array")
    assert message.isprintable()
    assert os.listdir(tmp_path) == ["inside"]
    assert os.listdir(folder) == ["x.npz"]


# idx


def test_a_gzip_bomb_is_refused_by_its_size(tmp_path, small_limit):
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(struct.pack(">BBBBII", 0, 0, 8, 2, 10_000, 1_000))
    for _ in range(10):
        packed += packer.compress(bytes(10**6))
    (tmp_path / "x-idx2-ubyte.gz").write_bytes(packed + packer.flush())
    refuse(tmp_path / "x-idx2-ubyte.gz", "unpacks to 10000000 bytes, above the limit")


def test_a_gzip_bomb_behind_an_honest_header_is_not_unpacked(tmp_path):
    content = struct.pack(">BBBBII", 0, 0, 8, 2, 2, 2) + bytes(10**7)
    (tmp_path / "x-idx2-ubyte.gz").write_bytes(gzip.compress(content, 1))
    del content
    refuse(tmp_path / "x-idx2-ubyte.gz", "more than the 4 bytes")


@pytest.mark.parametrize("dimensions", [0, 5, 255])
def test_idx_files_of_too_many_dimensions_are_refused(tmp_path, dimensions):
    content = bytes([0, 0, 8, dimensions]) + struct.pack(">I", 1) * dimensions + b"x"
    (tmp_path / "x-idx3-ubyte").write_bytes(content)
    refuse(tmp_path / "x-idx3-ubyte", "not an idx file")


# .csv


@pytest.mark.parametrize("cell", ["1,", '"1\n",', "1", '"', "1,\n"])
def test_a_csv_row_without_end_is_refused(tmp_path, cell):
    (tmp_path / "x.csv").write_text("1,2\n" * (cell == '"') + cell * (2**22 // len(cell)))
    with pytest.raises(DataError, match=r"x\.csv .*(columns|too long|empty cell)"):
        open_csv(tmp_path / "x.csv", longest=2**16)


def test_a_csv_of_too_many_columns_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text(",".join("1" * 100_000))
    refuse(tmp_path / "x.csv", "100000 columns .* convert", most_mb=32)


def test_one_long_word_does_not_widen_all_labels(tmp_path):
    rows = ["1,2," + "long" * 25_000] + ["3,4,short"] * 20_000
    (tmp_path / "x.csv").write_text("\n".join(rows))
    tracemalloc.start()
    dataset = load(tmp_path / "x.csv")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * 2**20
    assert dataset.labels.sum() == 20_000


def test_a_large_csv_is_never_in_memory_whole(tmp_path):
    row = ",".join(["0.5"] * 100)
    (tmp_path / "x.csv").write_text((row + "\n") * 50_000)  # 40 MB of numbers
    tracemalloc.start()
    samples = open_csv(tmp_path / "x.csv", longest=2**18).samples
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (samples.shape, len(samples), samples.on_disk) == ((100,), 50_000, True)
    assert peak < 8 * 2**20


def test_a_full_temporary_folder_is_named(tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("1,2\n" * 1000)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: open("/dev/full", "wb"))  # noqa: SIM115
    refuse(tmp_path / "x.csv", r"written to .* \(No space left on device\).* TMPDIR")


# images


def png_header(width, height):
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    head = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    data = b"IDAT" + zlib.compress(bytes(1000))
    tail = struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    return b"\x89PNG\r\n\x1a\n" + head + tail


@pytest.mark.parametrize(("side", "words"), [(9600, "pixels"), (60_000, "exceeds limit")])
@pytest.mark.filterwarnings("ignore")
def test_images_of_too_many_pixels_are_refused_by_their_header(tmp_path, side, words):
    (tmp_path / "x.png").write_bytes(png_header(side, side))
    with pytest.raises(DataError, match=words) as caught:
        load(tmp_path)
    assert "x.png" in str(caught.value)


def test_images_obey_the_limit_too(tmp_path, small_limit):
    (tmp_path / "x.png").write_bytes(png_header(600, 600))
    with pytest.raises(DataError, match=r"x\.png unpacks to 1080000 bytes, above the limit"):
        load(tmp_path)


def test_files_that_start_other_programs_are_no_images(tmp_path):
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n")
    with pytest.raises(DataError, match=r"x\.png is not a readable image"):
        load(tmp_path)


def test_links_to_folders_above_are_passed_over(tmp_path):
    (tmp_path / "a").mkdir()
    Image.fromarray(np.zeros((3, 2), np.uint8)).save(tmp_path / "a" / "x.png")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    (tmp_path / "a" / "broken.png").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "a" / "pipe.png")
    dataset = load(tmp_path)
    assert (len(dataset.samples), dataset.label_names) == (1, ("a",))


def test_very_deep_folders_are_walked(tmp_path):
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1100):
            os.mkdir("d")
            os.chdir("d")
        refuse(tmp_path, "folder without images")
    finally:
        while os.getcwd() != str(tmp_path):  # pytest would clean up by recursion
            os.chdir("..")
            os.rmdir("d")
        os.chdir(here)


# .h5


def test_one_h5_word_said_very_often_is_held_once(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["X"] = np.zeros((5000, 1), np.float32)
        words = file.create_dataset("y", 5000, h5py.string_dtype())
        words[:] = "a"
        words[0] = "long" * 100_000
    with h5py.File(path) as file:
        offset = file["y"].id.get_offset()
    content = bytearray(path.read_bytes())
    content[offset : offset + 16 * 5000] = content[offset : offset + 16] * 5000
    path.write_bytes(content)  # 2 GB of labels in less than a megabyte
    tracemalloc.start()
    assert load(path).labels.tolist() == [0] * 5000
    assert tracemalloc.get_traced_memory()[1] < 128 * 2**20
    tracemalloc.stop()


def test_h5_samples_in_other_files_are_refused(tmp_path):
    (tmp_path / "secret").write_bytes(X.tobytes())
    with h5py.File(tmp_path / "external.h5", "w") as file:
        places = [(str(tmp_path / "secret"), 0, X.nbytes)]
        file.create_dataset("X", X.shape, X.dtype, external=places)
    refuse(tmp_path / "external.h5", "in other files")
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "X", X.shape)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("X", layout)
    refuse(tmp_path / "virtual.h5", "in other files")


def test_h5_that_promises_more_than_it_can_hold_is_refused(tmp_path, small_limit):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("X", (2**40, 2), "f4", chunks=(1024, 2))
    refuse(tmp_path / "x.h5", "array /X .* more than 0 packed bytes can hold")
    with h5py.File(tmp_path / "block.h5", "w") as file:
        file.create_dataset("X", data=ZEROS, chunks=ZEROS.shape, compression="gzip")
    refuse(tmp_path / "block.h5", "A block of .* above the limit")


# .parquet


def test_a_row_group_above_the_limit_is_refused(tmp_path, small_limit):
    table = pa.table({"a": ZEROS[0], "b": ZEROS[0], "c": ZEROS[1]})
    parquet.write_table(table, tmp_path / "small.parquet")
    assert load(tmp_path / "small.parquet").samples.shape == (3,)
    parquet.write_table(pa.table({"a": np.zeros(200_000)}), tmp_path / "x.parquet")
    refuse(tmp_path / "x.parquet", "A row group of .* unpacks to 1600000 bytes")


def test_a_list_that_is_longer_than_the_others_is_not_unpacked(tmp_path, small_limit):
    table = pa.table({"a": [[0.0], np.zeros(200_000)]})
    parquet.write_table(table, tmp_path / "x.parquet")
    refuse(tmp_path / "x.parquet", "A row group of .* unpacks to 1600008 bytes")


def test_a_long_word_in_many_rows_of_parquet_is_kept_once(tmp_path):
    which = pa.array(np.arange(20_000, dtype=np.int32) % 2)
    words = pa.DictionaryArray.from_arrays(which, ["long" * 25_000, "b"])
    table = pa.table({"x": np.zeros(20_000), "label": words})
    # Without the schema of pyarrow, the column is plain text: 1 GB of it.
    parquet.write_table(table, tmp_path / "x.parquet", store_schema=False)
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    dataset = load(tmp_path / "x.parquet")
    assert pool.max_memory() - before < 2**24
    assert dataset.labels.tolist() == [1, 0] * 10_000
