"""Images of any size and mode become a folder that can be opened."""

import numpy as np
import pytest
from PIL import Image

from kscn import data
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
    assert resize_images(mixed, tmp_path / "new", 16) == 4
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
    assert (deep == 40_000 // 256).all()
    assert (glass == 255).all()
    assert turned[:9].max() == 0
    assert turned[11:].min() == 255


def test_who_has_images_of_many_sizes_is_told(mixed):
    with pytest.raises(DataError, match="kscn data resize"):
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
