"""Samples become the pixels they should, and PNG files that another library reads back."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from kscn.report.pictures import Painter, data_uri, is_image, sheet


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_pillow_reads_the_png_back(channels, mode):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    head, body = data_uri(pixels).split(",")
    assert head == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(body)))
    assert image.mode == mode
    assert (np.asarray(image).reshape(pixels.shape) == pixels).all()


@pytest.mark.parametrize(
    ("shape", "answer"),
    [((8, 8), True), ((3, 8, 8), True), ((8, 8, 3), True), ((64,), False), ((1, 64), False)],
)
def test_which_samples_are_pictures(shape, answer):
    assert is_image(shape) is answer


def test_values_are_drawn_from_black_to_white():
    pixels = Painter((1, 2), 0.0, 16.0).pixels(np.array([[[0, 16]], [[8, 99]]]))
    assert pixels.reshape(2, 2).tolist() == [[0, 255], [128, 255]]
    assert not Painter((2, 2), 0.0, 0.0).pixels(np.zeros((1, 2, 2))).any()


@pytest.mark.parametrize("shape", [(3, 5, 6), (5, 6, 3)])
def test_colours_keep_their_channels(shape):
    first = np.zeros((1, *shape))
    first[(0, 0) if shape[0] == 3 else (0, ..., 0)] = 1  # the red channel alone
    pixels = Painter(shape, 0.0, 1.0).pixels(first)
    assert pixels.shape == (1, 5, 6, 3)
    assert (pixels == [255, 0, 0]).all()


def test_large_pictures_are_averaged_down():
    image = np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones((50, 50)))
    pixels = Painter((100, 100), 0.0, 1.0, most=2).pixels(image[None])
    assert pixels[0, ..., 0].tolist() == [[0, 255], [255, 0]]
    pixels = Painter((101, 70), 0.0, 1.0, most=32).pixels(np.ones((1, 101, 70)))
    assert pixels.shape[1:3] == (26, 18)


def test_a_change_is_clear_where_nothing_changes():
    grows, shrinks, stays = Painter((1, 3), 0.0, 1.0).change(np.array([[[2.0, -1.0, 0.0]]]))[0, 0]
    assert (grows[3], shrinks[3], stays[3]) == (255, 128, 0)
    assert grows[0] > grows[2] and shrinks[2] > shrinks[0]  # orange, blue


def test_every_tile_is_where_the_page_looks_for_it():
    pixels = np.random.default_rng(1).integers(0, 256, (7, 2, 3, 1), dtype=np.uint8)
    whole, columns = sheet(pixels)
    for i, picture in enumerate(pixels):
        top, left = 2 * (i // columns), 3 * (i % columns)
        assert (whole[top : top + 2, left : left + 3] == picture).all()
