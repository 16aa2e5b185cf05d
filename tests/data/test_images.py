"""Images of any format become samples, sub-folders their labels."""

import numpy as np
import pytest

from kscn.data import load
from kscn.data.images import read_image
from kscn.errors import DataError

Image = pytest.importorskip("PIL.Image")

rng = np.random.default_rng(0)
GREY = rng.integers(0, 256, (4, 6, 5), dtype=np.uint8)
COLOUR = rng.integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
FLAT = np.full((6, 5, 3), (200, 120, 40), np.uint8)  # what lossy formats keep


def save(folder, name, pixels, **options):
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels, **options).save(folder / name)


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
    read = read_image(tmp_path / name)
    assert (read.mode, read.size) == ("RGB", (5, 6))
    assert np.abs(np.asarray(read).astype(int) - FLAT).max() <= 3


def test_what_is_transparent_becomes_white(tmp_path):
    alpha = np.zeros((6, 5), np.uint8)
    alpha[:, :2] = 255
    save(tmp_path, "a.png", np.dstack([COLOUR[0], alpha]))
    pixels = np.asarray(read_image(tmp_path / "a.png"))
    np.testing.assert_array_equal(pixels[:, :2], COLOUR[0][:, :2])
    assert (pixels[:, 2:] == 255).all()


RAMP = np.linspace(0, 1, 64).reshape(8, 8)


@pytest.mark.parametrize(
    ("dtype", "suffix", "low", "high"),
    [
        (np.uint16, "png", 0, 65_535),
        (np.uint16, "tif", 0, 3_000),
        (np.int32, "tif", 0, 1_000_000),
        (np.int32, "tif", -1_000, 3_000),
        (np.float32, "tif", 0, 1),
        (np.float32, "tif", -0.25, 7.5),
    ],
)
def test_deep_images_of_a_folder_keep_their_shades(tmp_path, dtype, suffix, low, high):
    exact = low + (high - low) * RAMP
    dark = (low + (exact - low) / 4).astype(dtype)  # not brightened: the set has one scale
    save(tmp_path, f"0.{suffix}", exact.astype(dtype))
    save(tmp_path, f"1.{suffix}", dark)
    samples = load(tmp_path, size=8).samples
    assert samples.preparation.values == (low, high)
    assert np.abs(samples[0] - 255 * RAMP).max() < 1 + 255 / (high - low)
    assert np.abs(samples[1] - 255 * RAMP / 4).max() < 1 + 255 / (high - low)
    again = load(tmp_path, preparation=samples.preparation, names=["1." + suffix]).samples
    np.testing.assert_array_equal(again, samples[1:])
    own = np.asarray(read_image(tmp_path / f"1.{suffix}", "L"))
    assert own.max() == 255  # alone, it has a range of its own


def test_deep_images_without_numbers_are_named(tmp_path):
    holes = RAMP.astype(np.float32)
    holes[0, 0] = np.nan
    save(tmp_path, "a.tif", holes)
    with pytest.raises(DataError, match=r"a\.tif has values that are no finite numbers"):
        load(tmp_path, size=8)


def test_the_middle_is_kept_and_the_first_frame_of_a_gif(tmp_path):
    pixels = np.zeros((30, 90), np.uint8)
    pixels[:, 30:60] = 255
    save(tmp_path / "wide", "a.png", pixels)
    assert load(tmp_path / "wide", size=10).samples[0].min() > 230
    frames = [Image.new("RGB", (5, 6), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert np.asarray(read_image(tmp_path / "a.gif"))[0, 0].tolist() == [255, 0, 0]


def test_a_flat_folder_has_no_labels(tmp_path):
    for number, pixels in enumerate(GREY):
        save(tmp_path, f"{number}.png", pixels)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden.png").write_text("not an image")
    dataset = load(tmp_path)
    assert dataset.samples.shape == (6, 5)
    np.testing.assert_array_equal(dataset.samples, GREY)
    np.testing.assert_array_equal(dataset.samples.take([2, 2, 0]), GREY[[2, 2, 0]])
    assert dataset.labels is None
    assert dataset.name == tmp_path.name


def test_sub_folders_are_labels_and_colour_comes_first(tmp_path):
    for number, pixels in enumerate(COLOUR):
        save(tmp_path / ("cat", "ant")[number % 2], f"{number}.png", pixels)
    dataset = load(str(tmp_path))
    assert dataset.samples.shape == (3, 6, 5)
    np.testing.assert_array_equal(dataset.samples, COLOUR[[1, 3, 0, 2]].transpose(0, 3, 1, 2))
    assert dataset.labels.tolist() == [0, 0, 1, 1]
    assert dataset.label_names == ("ant", "cat")


def test_only_headers_are_read_when_a_folder_is_opened(tmp_path, monkeypatch):
    for number, pixels in enumerate(GREY):
        save(tmp_path, f"{number}.png", pixels)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    assert len(load(tmp_path).samples) == 4


@pytest.mark.parametrize("content", [b"", b"this is no image", b"\x89PNG\r\n\x1a\n broken"])
def test_a_foreign_file_is_named_when_the_folder_is_opened(tmp_path, content):
    save(tmp_path, "a.png", GREY[0])
    (tmp_path / "broken.png").write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.png is not a readable image"):
        load(tmp_path)


def test_a_truncated_image_is_named_when_it_is_read(tmp_path):
    big = rng.integers(0, 256, (200, 200), dtype=np.uint8)
    save(tmp_path, "a.png", big)
    save(tmp_path, "broken.png", big)
    whole = (tmp_path / "broken.png").read_bytes()
    (tmp_path / "broken.png").write_bytes(whole[: len(whole) // 2])
    dataset = load(tmp_path)
    np.testing.assert_array_equal(dataset.samples[0], big)
    with pytest.raises(DataError, match=r"broken\.png is not a readable image"):
        np.asarray(dataset.samples)


def test_differing_sizes_and_modes_are_named(tmp_path):
    save(tmp_path / "sizes", "a.png", GREY[0])
    save(tmp_path / "sizes", "b.png", GREY[0].T.copy())
    with pytest.raises(DataError, match=r"b\.png is 6 x 5 L.*one size"):
        load(tmp_path / "sizes")
    save(tmp_path / "modes", "a.png", GREY[0])
    save(tmp_path / "modes", "b.png", COLOUR[0])
    with pytest.raises(DataError, match=r"b\.png is 5 x 6 RGB"):
        load(tmp_path / "modes")
    save(tmp_path / "lossy", "a.png", np.dstack([COLOUR[0], GREY[0]]))
    with pytest.raises(DataError, match=r"a\.png is 5 x 6 RGBA.*--size 64"):
        load(tmp_path / "lossy")


def turned(folder, kind, orientation):
    """A picture of 6 x 5 pixels as a camera writes it that was held in another way."""
    folder.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 100} if kind == "jpg" else {}
    Image.fromarray(GREY[0]).save(folder / f"a.{kind}", exif=exif, **options)


@pytest.mark.parametrize("kind", ["png", "jpg", "tif"])
@pytest.mark.parametrize(
    ("orientation", "upright"),
    [
        (1, GREY[0]),
        (2, GREY[0][:, ::-1]),
        (3, GREY[0][::-1, ::-1]),
        (4, GREY[0][::-1]),
        (5, GREY[0].T),
        (6, np.rot90(GREY[0], -1)),
        (7, GREY[0][::-1, ::-1].T),
        (8, np.rot90(GREY[0])),
        (9, GREY[0]),
    ],
)
def test_images_are_turned_upright(tmp_path, kind, orientation, upright):
    turned(tmp_path, kind, orientation)
    samples = load(tmp_path).samples
    assert samples.shape == upright.shape
    assert np.abs(samples[0].astype(int) - upright).max() <= (4 if kind == "jpg" else 0)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_does_not_hide_an_image(tmp_path):
    Image.fromarray(GREY[0]).save(tmp_path / "a.png", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    Image.fromarray(GREY[1]).save(tmp_path / "b.png", exif=b"Exif\0\0no TIFF header")
    np.testing.assert_array_equal(load(tmp_path).samples, GREY[:2])


def test_folders_without_images_and_mixed_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="folder without images"):
        load(tmp_path)
    save(tmp_path, "a.png", GREY[0])
    save(tmp_path / "class", "b.png", GREY[0])
    with pytest.raises(DataError, match="both beside and inside"):
        load(tmp_path)


def test_an_image_replaced_after_opening_is_noticed(tmp_path):
    save(tmp_path, "a.png", GREY[0])
    samples = load(tmp_path).samples
    save(tmp_path, "a.png", GREY[0, :3])
    with pytest.raises(DataError, match="changed since it was opened"):
        samples.take([0])


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    save(tmp_path, "a.png", GREY[0])
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r"pip install 'kscn\[images\]'"):
        load(tmp_path)


@pytest.fixture
def mixed(tmp_path):
    """Photographs as people have them, two broken files and a text among them."""
    folder = tmp_path / "mixed"
    save(folder, "a.png", COLOUR[0])
    save(folder, "b.jpg", rng.integers(0, 256, (90, 40, 3), dtype=np.uint8))
    save(folder, "c.png", np.dstack([COLOUR[1], GREY[1]]))
    save(folder, "d.tif", np.full((9, 9), 4000, np.uint16))
    save(folder, "e.png", rng.integers(0, 256, (200, 200), dtype=np.uint8))
    whole = (folder / "e.png").read_bytes()
    (folder / "e.png").write_bytes(whole[: len(whole) // 2])
    (folder / "f.webp").write_text("no image")
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_images_of_any_size_and_mode_become_one_shape(mixed):
    found = load(mixed, size=8, skip_broken=True)
    assert found.samples.names == ["a.png", "b.jpg", "c.png", "d.tif"]
    assert found.samples.file(1) == mixed / "b.jpg"
    assert np.asarray(found.samples).shape == (4, 3, 8, 8)
    assert found.samples.preparation.values == (0, 4000)
    assert found.samples[3].min() == 255
    assert list(found.samples.left_out) == ["e.png", "f.webp"]
    assert all("not a readable image" in why for why in found.samples.left_out.values())


def test_broken_images_are_counted_and_named(mixed):
    with pytest.raises(DataError, match=r"2 of 6 images .*e\.png, f\.webp\).*--skip-broken"):
        load(mixed, size=8)
    (mixed / "f.webp").unlink()
    with pytest.raises(DataError, match=r"e\.png is not a readable image .*--skip-broken"):
        load(mixed, size=8)
    for name in ("a.png", "b.jpg", "c.png", "d.tif"):
        (mixed / name).unlink()
    with pytest.raises(DataError, match=r"e\.png is not a readable image"):
        load(mixed, size=8, skip_broken=True)


def test_broken_images_are_left_out_of_a_folder_of_one_size(tmp_path):
    for number, pixels in enumerate(GREY):
        save(tmp_path, f"{number}.png", pixels)
    (tmp_path / "2.png").write_bytes((tmp_path / "2.png").read_bytes()[:50])
    found = load(tmp_path, skip_broken=True).samples
    np.testing.assert_array_equal(found, GREY[[0, 1, 3]])
    assert found.names == ["0.png", "1.png", "3.png"]


def test_grey_images_stay_grey_if_all_of_them_are(tmp_path):
    save(tmp_path, "a.png", GREY[0])
    save(tmp_path, "b.png", np.dstack([GREY[0], GREY[1]]), mode="LA")
    save(tmp_path, "c.tif", np.full((9, 12), 4000, np.uint16))
    assert load(tmp_path, size=4).samples.shape == (4, 4)
    save(tmp_path, "d.png", COLOUR[0])
    assert load(tmp_path, size=4).samples.shape == (3, 4, 4)


def test_images_are_decoded_once(mixed, monkeypatch):
    samples = load(mixed, size=8, skip_broken=True).samples
    first = np.asarray(samples)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    np.testing.assert_array_equal(samples.take([3, 0]), first[[3, 0]])


def test_a_full_disk_costs_time_and_nothing_else(mixed, monkeypatch):
    def full(*rest):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    samples = load(mixed, size=8, skip_broken=True).samples
    np.testing.assert_array_equal(samples.take([3, 0]), np.asarray(samples)[[3, 0]])


def test_an_encoder_gets_images_at_their_own_size(mixed):
    (mixed / "f.webp").unlink()
    samples = load(mixed, any_size=True).samples
    assert samples.original(1).size == (40, 90)
    assert samples.original(3).getpixel((0, 0)) == (255, 255, 255)
    assert samples[0].shape == (3, 96, 96)
    with pytest.raises(DataError, match=r"e\.png is not a readable image"):
        samples.original(4)


@pytest.mark.parametrize("size", [0, 5000])
def test_sizes_that_cannot_be_are_refused(mixed, size):
    with pytest.raises(DataError, match=f"size is {size} .* 1 to 1024"):
        load(mixed, size=size)


def test_only_folders_of_images_have_a_size_or_broken_files(tmp_path):
    np.save(tmp_path / "x.npy", GREY)
    for name in ("digits", tmp_path / "x.npy", tmp_path):
        for options in ({"size": 8}, {"skip_broken": True}):
            with pytest.raises(DataError, match=r"no folder of images.*--size"):
                load(name, **options)


def test_a_single_image_is_one_sample(tmp_path):
    pixels = np.arange(48, dtype=np.uint8).reshape(6, 8)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    Image.fromarray(pixels).save(tmp_path / "other.png")
    found = load(tmp_path / "one.png")
    assert found.name == "one.png" and found.labels is None
    assert found.samples.names == ["one.png"]
    np.testing.assert_array_equal(np.asarray(found.samples), pixels[None])
