"""Any image file becomes upright RGB pixels, or one sentence that names it."""

import struct

import numpy as np
import pytest

from kscn.data.decoding import read_rgb
from kscn.errors import DataError

Image = pytest.importorskip("PIL.Image")

rng = np.random.default_rng(0)
COLOUR = rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)
FLAT = np.full((6, 5, 3), (200, 120, 40), np.uint8)  # what lossy formats keep


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("a.png", "RGB", {}),
        ("a.png", "P", {}),
        ("a.jpg", "RGB", {"quality": 100}),
        ("a.jpg", "CMYK", {"quality": 100}),
        ("a.webp", "RGB", {"lossless": True}),
        ("a.tiff", "CMYK", {}),
        ("a.tif", "RGB", {"compression": "tiff_lzw"}),
        ("a.gif", "P", {}),
        ("a.bmp", "RGB", {}),
        ("a.ppm", "RGB", {}),
    ],
)
def test_every_format_and_mode_is_read(tmp_path, name, mode, options):
    image = Image.fromarray(FLAT)
    image = image.quantize(4) if mode == "P" else image.convert(mode)
    image.save(tmp_path / name, **options)
    read = read_rgb(tmp_path / name)
    assert (read.mode, read.size) == ("RGB", (5, 6))
    assert np.abs(np.asarray(read).astype(int) - FLAT).max() <= 3


def test_what_is_transparent_becomes_white(tmp_path):
    alpha = np.zeros((6, 5), np.uint8)
    alpha[:, :2] = 255
    Image.fromarray(np.dstack([COLOUR, alpha])).save(tmp_path / "a.png")
    pixels = np.asarray(read_rgb(tmp_path / "a.png"))
    np.testing.assert_array_equal(pixels[:, :2], COLOUR[:, :2])
    assert (pixels[:, 2:] == 255).all()


def test_deep_images_are_scaled_by_their_own_range_or_by_one_that_is_given(tmp_path):
    Image.fromarray(np.full((4, 4), 3000, np.uint16)).save(tmp_path / "a.png")
    found = np.asarray(read_rgb(tmp_path / "a.png"))
    assert (found == round(255 * 3000 / 4095)).all()
    assert (np.asarray(read_rgb(tmp_path / "a.png", (0, 6000))) == 128).all()


def test_the_first_frame_of_a_gif_counts_and_exif_turns_images(tmp_path):
    frames = [Image.new("RGB", (5, 6), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert np.asarray(read_rgb(tmp_path / "a.gif"))[0, 0].tolist() == [255, 0, 0]
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(COLOUR).save(tmp_path / "b.png", exif=exif)
    np.testing.assert_array_equal(read_rgb(tmp_path / "b.png"), np.rot90(COLOUR, -1))


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "text.png").write_text("no image")
    Image.fromarray(rng.integers(0, 256, (99, 99), dtype=np.uint8)).save(tmp_path / "half.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "half.png").read_bytes()[:900])
    (tmp_path / "bomb.bmp").write_bytes(
        struct.pack("<2sIHHIIiiHH", b"BM", 99, 0, 0, 54, 40, 99_999, 99_999, 1, 24) + bytes(24)
    )
    for name in ("text.png", "half.png", "bomb.bmp", "missing.png"):
        with pytest.raises(DataError, match=name):
            read_rgb(tmp_path / name)
