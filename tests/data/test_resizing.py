"""Images of any size and mode become a folder that can be opened."""

import struct
import zlib

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from kscn import data
from kscn.cli import cli
from kscn.data.resizing import resize_images
from kscn.errors import DataError


def write(path, shape, mode=None, value=200):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.full(shape, value, np.uint8))
    (image.convert(mode) if mode else image).save(path)


@pytest.fixture
def mixed(tmp_path):
    folder = tmp_path / "mixed"
    write(folder / "cats" / "a.jpg", (40, 60, 3))
    write(folder / "cats" / "b.png", (33, 20), "LA")
    write(folder / "dogs" / "a.tif", (50, 50, 3), "CMYK")
    write(folder / "dogs" / "c.gif", (10, 90), "P")
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_sizes_and_modes_become_one(mixed, tmp_path):
    assert resize_images(mixed, tmp_path / "new", 16) == (4, None)
    found = data.load(str(tmp_path / "new"))
    assert np.asarray(found.samples).shape == (4, 3, 16, 16)
    assert found.name == "new"
    assert np.bincount(found.labels).tolist() == [2, 2]
    assert np.abs(np.asarray(found.samples).astype(int) - 200).max() <= 3  # JPEG and CMYK round
    resize_images(mixed, tmp_path / "grey", 8, grey=True)
    assert data.load(str(tmp_path / "grey")).samples.shape == (8, 8)


def test_the_middle_is_kept(tmp_path):
    pixels = np.zeros((30, 90), np.uint8)
    pixels[:, 30:60] = 255
    (tmp_path / "in").mkdir()
    Image.fromarray(pixels).save(tmp_path / "in" / "a.png")
    resize_images(tmp_path / "in", tmp_path / "out", 10, grey=True)
    assert np.asarray(Image.open(tmp_path / "out" / "a.png.png")).min() > 230


def test_depth_transparency_and_turns_are_seen_to(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    Image.fromarray(np.full((9, 9), 40_000, np.uint16)).save(folder / "deep.png")
    Image.new("RGBA", (9, 9), (0, 0, 0, 0)).save(folder / "glass.png")
    half = np.zeros((20, 20, 3), np.uint8)
    half[:10] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(half).save(folder / "turned.png", exif=exif)
    resize_images(folder, tmp_path / "out", 20, grey=True)
    deep, glass, turned = np.asarray(data.load(str(tmp_path / "out")).samples)
    assert (deep == round(40_000 / 65_535 * 255)).all()
    assert (glass == 255).all()
    assert turned[:9].max() == 0
    assert turned[11:].min() == 255


RAMP = np.linspace(0, 1, 64).reshape(8, 8)


def resized(folder, *arrays, suffix="tif", **options):
    """What deep images come out as, and the values that became black and white."""
    for number, array in enumerate(arrays):
        (folder / "in").mkdir(exist_ok=True)
        Image.fromarray(array).save(folder / "in" / f"{number}.{suffix}")
    count, values = resize_images(folder / "in", folder / "out", 8, grey=True, **options)
    assert count == len(arrays)
    return np.asarray(data.load(str(folder / "out")).samples), values


@pytest.mark.parametrize(
    ("dtype", "suffix", "low", "high", "values"),
    [
        (np.uint16, "png", 0, 65_535, (0, 65_535)),
        (np.uint16, "png", 0, 4_095, (0, 4_095)),  # 12 bits, as cameras give them
        (np.uint16, "tif", 0, 3_000, (0, 4_095)),
        (np.uint16, "tif", 0, 1_000, (0, 1_023)),
        (np.int32, "tif", 0, 250, (0, 255)),
        (np.int32, "tif", 0, 1_000_000, (0, 2**20 - 1)),
        (np.int32, "tif", -1_000, 3_000, (-1_000, 3_000)),
        (np.float32, "tif", 0, 1, (0, 1)),
        (np.float32, "tif", 0, 0.5, (0, 1)),
        (np.float32, "tif", 0, 200, (0, 255)),
        (np.float32, "tif", -0.25, 7.5, (-0.25, 7.5)),
    ],
)
def test_deep_images_keep_their_shades(tmp_path, dtype, suffix, low, high, values):
    exact = low + (high - low) * RAMP
    dark = (low + (exact - low) / 4).astype(dtype)  # not brightened: the set has one scale
    found, used = resized(tmp_path, exact.astype(dtype), dark, suffix=suffix)
    assert used == values
    scale = 255 / (values[1] - values[0])
    assert np.abs(found[0] - scale * (exact - values[0])).max() < 1 + scale
    assert np.abs(found[1] - scale * (dark - values[0])).max() < 1 + scale


def test_the_range_of_deep_images_can_be_given(tmp_path):
    exact = 4000 * RAMP
    found, used = resized(tmp_path, exact.astype(np.uint16), values=(0, 2000))
    assert used == (0, 2000)
    assert np.abs(found[0] - np.minimum(255, 255 * exact / 2000)).max() < 2
    for values in ((5, 5), (7, 3), (0, float("inf")), (float("nan"), 1)):
        with pytest.raises(DataError, match="range"):
            resize_images(tmp_path / "in", tmp_path / "other", 8, values=values)


def test_the_command_says_which_range_it_used(tmp_path):
    def resize(*args):
        return CliRunner().invoke(cli, ["data", "resize", *map(str, args), "--size", "8"])

    (tmp_path / "in").mkdir()
    Image.fromarray((4000 * RAMP).astype(np.uint16)).save(tmp_path / "in" / "a.png")
    done = resize(tmp_path / "in", "-o", tmp_path / "out")
    assert done.exit_code == 0
    assert "0 became black and 4095 white; for new images give --range 0 4095" in done.output
    done = resize(tmp_path / "in", "-o", tmp_path / "new", "--range", 0, 4095)
    assert done.exit_code == 0
    assert (tmp_path / "new/a.png.png").read_bytes() == (tmp_path / "out/a.png.png").read_bytes()
    for folder, output in (("", tmp_path / "other"), (tmp_path / "in", "")):
        refused = resize(folder, "-o", output)
        assert refused.exit_code == 2
        assert "path is empty" in refused.output


def colour_of_16_bits(value):
    """A PNG file of 8 x 8 pixels, which Pillow reads but does not write."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    rows = (b"\0" + struct.pack(">H", value) * 24) * 8
    head = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def test_deep_images_that_cannot_be_scaled_are_named(tmp_path):
    holes = RAMP.astype(np.float32)
    holes[0, 0] = np.nan
    with pytest.raises(DataError, match=r"0\.tif has values that are no finite numbers"):
        resized(tmp_path, holes)
    Image.fromarray(RAMP.astype(np.float32)).save(tmp_path / "in" / "0.tif")
    Image.fromarray((4000 * RAMP).astype(np.uint16)).save(tmp_path / "in" / "1.png")
    with pytest.raises(DataError, match=r"1\.png and .*0\.tif .* folders of their own"):
        resize_images(tmp_path / "in", tmp_path / "out", 8)
    colour = tmp_path / "colour"
    colour.mkdir()
    (colour / "a.png").write_bytes(colour_of_16_bits(4095))
    with pytest.raises(DataError, match=r"a\.png .* 16 bits .* convert"):
        resize_images(colour, tmp_path / "out", 8)
    assert not (tmp_path / "out").exists()
    (colour / "b.png").write_bytes(colour_of_16_bits(65_535))  # so all 16 are in use
    assert resize_images(colour, tmp_path / "out", 8) == (2, None)
    written = np.asarray(data.load(str(tmp_path / "out")).samples)
    assert written[:, 0, 0, 0].tolist() == [15, 255]


def test_a_picture_is_turned_alike_by_resizing_and_by_reading(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "in").mkdir()
    pixels = np.repeat(np.arange(0, 256, 16, dtype=np.uint8)[None], 16, axis=0)
    Image.fromarray(pixels).save(tmp_path / "in" / "a.png", exif=exif)
    resize_images(tmp_path / "in", tmp_path / "out", 16, grey=True)
    read, written = (data.load(str(tmp_path / name)).samples[0] for name in ("in", "out"))
    np.testing.assert_array_equal(read, pixels.T)
    np.testing.assert_array_equal(written, read)


def test_who_has_images_of_many_sizes_is_told(mixed):
    with pytest.raises(DataError, match="--size 64"):
        data.load(str(mixed))


def test_bad_requests_are_refused(mixed, tmp_path):
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken"
    write(broken / "a.png", (4, 4))
    (broken / "b.png").write_bytes((broken / "a.png").read_bytes()[:40])
    for folder, output, size, text in (
        (mixed, tmp_path / "out", 0, "1 to 1024"),
        (mixed, tmp_path / "out", 5000, "1 to 1024"),
        (tmp_path / "nowhere", tmp_path / "out", 8, "not a folder"),
        (tmp_path / "empty", tmp_path / "out", 8, "without images"),
        (mixed, mixed / "inside", 8, "outside"),
        (mixed, mixed, 8, "not empty"),
        (broken, tmp_path / "out", 8, r"b\.png is not a readable image"),
    ):
        with pytest.raises(DataError, match=text):
            resize_images(folder, output, size)
    assert not list((tmp_path / "out").glob(".*"))  # nothing half done is left
