"""Encoders: what becomes of images, whatever they and the network are; and what is refused."""

import copy
import sys
import types

import numpy as np
import pytest
import tinyencoder
import torch
from PIL import Image

from kscn import data
from kscn.errors import DataError, InputError
from kscn.features.encoders import Preprocessing, load_encoder

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
IMAGES, KINDS = tinyencoder.photographs(20)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path):
    return tinyencoder.write(tmp_path / "tiny.onnx")


def by_hand(path, prepared):
    """What the convolution of the tiny encoder gives, by torch: maps (n, d, 4, 4)."""
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    layer, bias = (torch.from_numpy(weights[name].copy()) for name in ("weights", "bias"))
    with torch.no_grad():
        return torch.relu(torch.conv2d(torch.from_numpy(prepared), layer, bias, stride=4)).numpy()


def half(values):
    return values.astype(np.float16).astype(np.float32)


def test_images_are_cropped_scaled_and_embedded(file):
    encoder = load_encoder(file)
    assert encoder.preprocessing.size == (16, 16) and encoder.dim == tinyencoder.DIM
    small = Image.fromarray(IMAGES[0]).resize((16, 16), Image.Resampling.BICUBIC)
    mean, std = np.float32((0.485, 0.456, 0.406)), np.float32((0.229, 0.224, 0.225))
    expected = ((np.asarray(small) / np.float32(255) - mean) / std).transpose(2, 0, 1)
    np.testing.assert_allclose(encoder.prepare(IMAGES[:1])[0], expected, rtol=1e-6)
    found = encoder.embed(IMAGES)
    assert found.shape == (20, 12) and found.dtype == np.float32
    maps = by_hand(file, encoder.prepare(IMAGES))
    np.testing.assert_allclose(found, half(maps.mean(axis=(2, 3))), rtol=1e-3)


def test_maps_are_averaged_and_of_sequences_the_first_is_taken(file, tmp_path):
    vectors = load_encoder(file)
    maps = load_encoder(tinyencoder.write(tmp_path / "m.onnx", output="maps"))
    tokens = tinyencoder.write(tmp_path / "t.onnx", output="tokens")
    np.testing.assert_allclose(maps.embed(IMAGES), vectors.embed(IMAGES), rtol=2e-3)
    first = by_hand(tokens, vectors.prepare(IMAGES))[:, :, 0, 0]
    np.testing.assert_allclose(load_encoder(tokens).embed(IMAGES), half(first), rtol=2e-3)


def test_an_image_is_embedded_alike_alone_and_among_others(file):
    encoder = load_encoder(file)
    together = encoder.embed(IMAGES, cache=False)
    for row in (0, 7, 19):
        assert (encoder.embed(IMAGES[row : row + 1], cache=False) == together[row]).all()


def test_colours_may_come_first_or_last_as_bytes_or_fractions_or_grey(file):
    encoder = load_encoder(file)
    expected = encoder.embed(IMAGES)
    assert (encoder.embed(IMAGES.transpose(0, 3, 1, 2)) == expected).all()
    assert (encoder.embed(IMAGES / 255.0) == expected).all()
    assert (encoder.embed(torch.from_numpy(IMAGES.astype(np.int64))) == expected).all()
    grey = IMAGES[..., 0]
    assert (encoder.embed(grey) == encoder.embed(np.stack([grey] * 3, axis=-1))).all()


def test_files_of_any_size_and_mode_are_embedded_at_their_own_size(file, tmp_path):
    encoder = load_encoder(file)
    folder = tinyencoder.write_folder(tmp_path / "photos", IMAGES)
    Image.fromarray(IMAGES[0]).convert("CMYK").save(folder / "z.tif")
    found = encoder.embed(folder)
    assert found.shape == (21, 12)
    assert (found[0] == encoder.embed(IMAGES[:1])[0]).all()
    np.testing.assert_allclose(found[20], found[0], atol=0.2)  # colours of print
    assert (encoder.embed(data.load(folder, any_size=True).samples) == found).all()


def test_settings_beside_the_file_count_and_given_ones_count_more(file, tmp_path):
    file.with_suffix(".toml").write_text(
        'fit = "stretch"\ninterpolation = "nearest"\nmean = [0, 0, 0]\nstd = [1, 1, 1]\n'
    )
    plain = load_encoder(file).prepare(IMAGES[:2])
    assert plain.min() >= 0 and plain.max() <= 1
    wide = np.zeros((1, 16, 32, 3), np.uint8)
    wide[:, :, 8:24] = 255
    assert (load_encoder(file).prepare(wide) == 1).mean() == pytest.approx(0.5)
    assert (load_encoder(file, fit="crop").prepare(wide) == 1).all()


def test_the_shorter_side_may_be_scaled_beyond_what_is_cut_out():
    pixels = np.zeros((30, 60, 3), np.uint8)
    pixels[5:25, 20:40] = 255
    steps = Preprocessing(20, resize=30, mean=(0, 0, 0), std=(1, 1, 1))
    assert (steps(Image.fromarray(pixels)) == 1).all()
    assert steps.shape == (3, 20, 20)


def test_a_module_is_used_as_it_is_and_known_by_its_weights():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 4, stride=4), torch.nn.Dropout())
    encoder = load_encoder(layers, size=16)
    found = encoder.embed(IMAGES)
    layers.eval()
    with torch.no_grad():
        maps = layers(torch.from_numpy(encoder.prepare(IMAGES))).numpy()
    np.testing.assert_allclose(found, half(maps.mean(axis=(2, 3))), rtol=2e-3, atol=1e-4)
    assert load_encoder(copy.deepcopy(layers), size=16).sha256 == encoder.sha256
    with torch.no_grad():
        layers[0].bias[0] += 1
    assert load_encoder(layers, size=16).sha256 != encoder.sha256
    assert copy.deepcopy(encoder) is encoder and load_encoder(encoder) is encoder


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"fit": "zoom"}, "fit='zoom' must be 'crop' or 'stretch'"),
        ({"resize": 8}, "not be below the size 16"),
        ({"mean": (0.5, float("nan"), 10**40)}, "must be 3 numbers"),
        ({"std": (1, 1, 0)}, "must be 3 numbers"),
        ({"size": (20, 0)}, "at least 1 and at most 4096 or two of these"),
        ({"size": 32}, "cannot make features of images of (3, 32, 32)"),
        ({"output": "logits"}, "cannot make logits of images"),
        ({"colour": 1}, "'colour'"),
    ],
)
def test_wrong_settings_are_refused_in_words(settings, words, file):
    with pytest.raises(InputError) as told:
        load_encoder(file, **settings)
    assert words in str(told.value)


def test_what_is_no_encoder_is_refused_in_words(tmp_path, file):
    (tmp_path / "text.onnx").write_text("no graph")
    (tmp_path / "weights.pth").write_bytes(b"\x80\x04")
    eight = tinyencoder.write(tmp_path / "eight.onnx", batch=8)
    last = tinyencoder.write(tmp_path / "last.onnx", layout="NHWC")
    free = tinyencoder.write(tmp_path / "free.onnx", size="side")
    for given, words in (
        (tmp_path / "gone.onnx", "does not exist; give an .onnx file"),
        (tmp_path / "text.onnx", "cannot be run by onnxruntime"),
        (tmp_path / "weights.pth", "give an .onnx file, a name such as timm:resnet50"),
        (eight, "export it for images (n, 3, height, width) with n = 1 or any"),
        (last, "export it for images (n, 3, height, width)"),
        (free, "does not say how large images should be; write size = 224"),
        (torch.nn.Identity(), None),
        (torch.nn.Flatten(0), "the first axis must count images"),
        (torch.nn.Linear(5, 2), "cannot make one tensor of images of (3, 224, 224)"),
        ("timm:../x", "is not the name of a network"),
        ("timm:resnet50", "needs the package timm; run pip install 'kscn[encoders]'"),
        ("open_clip:ViT-B-32/openai", "give an .onnx file, a name such as timm:resnet50"),
    ):
        if words is None:
            assert load_encoder(given).dim == 3  # the mean colour is features too
            continue
        with pytest.raises(InputError) as told:
            load_encoder(given)
        assert words in str(told.value) and "\n" not in str(told.value)
    assert load_encoder(free, size=20).prepare(IMAGES).shape == (20, 3, 20, 20)
    file.with_suffix(".toml").write_text("size = [")
    with pytest.raises(InputError, match=r"tiny\.toml cannot be read"):
        load_encoder(file)


def test_samples_that_are_no_images_are_refused_in_words(file, tmp_path):
    encoder = load_encoder(file)
    for images, words in (
        (np.zeros((4, 9)), "cannot take for an image"),
        (IMAGES.astype(np.float32), "fractions from 0 to 1"),
        (IMAGES.astype(np.int16) * 5, "whole numbers from 0 to 255"),
    ):
        with pytest.raises(InputError, match=words):
            encoder.embed(images)
    folder = tinyencoder.write_folder(tmp_path / "photos", IMAGES[:3])
    (folder / "photo001.png").write_bytes((folder / "photo001.png").read_bytes()[:200])
    with pytest.raises(DataError, match=r"photo001\.png is not a readable image"):
        encoder.embed(folder)


def test_values_beyond_float16_are_refused(tmp_path):
    with pytest.raises(InputError, match="beyond 65,504"):
        load_encoder(tinyencoder.write(tmp_path / "t.onnx", scale=1e7)).embed(IMAGES)


# Safety -----------------------------------------------------------------------------------------


def graph(nodes, path, inputs=("images",)):
    from onnx import TensorProto, helper

    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, 8, 8]) for name in inputs
    ]
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", infos, [out]), opset_imports=imports)
    model.ir_version = 8
    onnx.save(model, path)
    return path


def test_operators_of_others_and_further_inputs_are_refused(tmp_path):
    node = onnx.helper.make_node
    custom = graph([node("Run", ["images"], ["out"], domain="mine")], tmp_path / "c.onnx")
    with pytest.raises(InputError, match="cannot be run by onnxruntime"):
        load_encoder(custom)
    two = graph([node("Add", ["images", "mask"], ["out"])], tmp_path / "t.onnx", ("images", "mask"))
    with pytest.raises(InputError, match=r"cannot make out of images .*mask"):
        load_encoder(two)


def test_weights_lie_beside_the_file_or_it_is_refused(tmp_path, file):
    model = onnx.load(file)
    aside = tmp_path / "aside"
    aside.mkdir()
    onnx.save(model, aside / "big.onnx", save_as_external_data=True, location="big.data",
              size_threshold=0)  # fmt: skip
    expected = load_encoder(file)
    found = load_encoder(aside / "big.onnx")
    assert (found.embed(IMAGES) == expected.embed(IMAGES)).all()
    content = bytearray((aside / "big.data").read_bytes())
    content[40] ^= 1
    (aside / "big.data").write_bytes(content)
    assert load_encoder(aside / "big.onnx").sha256 != found.sha256
    (aside / "big.data").unlink()
    with pytest.raises(InputError, match=r"cannot be run .*big.* weights in it or beside it"):
        load_encoder(aside / "big.onnx")
    elsewhere = onnx.load(aside / "big.onnx", load_external_data=False)
    for tensor in elsewhere.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../secret"
    (aside / "far.onnx").write_bytes(elsewhere.SerializeToString())
    with pytest.raises(InputError, match="weights in it or beside it"):
        load_encoder(aside / "far.onnx")


def test_files_are_limited(file, monkeypatch):
    monkeypatch.setenv("KSCN_MAX_BYTES", "100")
    with pytest.raises(DataError, match="above the limit of 100"):
        load_encoder(file)


# timm, which is not installed for tests -----------------------------------------------------------

NORMAL = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}


def fake_timm(monkeypatch, create_model, **config):
    module = types.ModuleType("timm")
    config = {"input_size": (3, 28, 28), "crop_pct": 0.875, "interpolation": "bilinear"} | config
    about = types.SimpleNamespace(resolve_model_data_config=lambda module: config | NORMAL)
    vars(module).update(create_model=create_model, data=about)
    monkeypatch.setitem(sys.modules, "timm", module)


@pytest.mark.parametrize(
    ("mode", "fit", "resize"), [("center", "crop", 32), ("squash", "stretch", None)]
)
def test_timm_says_how_images_are_prepared(mode, fit, resize, monkeypatch):
    asked = {}

    def create_model(name, **options):
        asked.update(options, name=name)
        return torch.nn.Conv2d(3, 4, 8).requires_grad_(False)

    fake_timm(monkeypatch, create_model, crop_mode=mode)
    encoder = load_encoder("timm:small.in1k")
    assert asked == {"name": "small.in1k", "pretrained": True, "num_classes": 0}
    assert encoder.preprocessing == Preprocessing(
        28, fit=fit, resize=resize, interpolation="bilinear", **NORMAL
    )
    assert encoder.name == "timm:small.in1k"


def test_what_timm_cannot_do_is_said(tmp_path, monkeypatch):
    def unknown(name, **options):
        raise RuntimeError("Unknown model\nnothing0")

    with monkeypatch.context() as patch:
        fake_timm(patch, unknown)
        with pytest.raises(InputError, match=r"timm cannot make nothing0 \(Unknown model"):
            load_encoder("timm:nothing0")
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"timm cannot make resnet50 \(operator nms"):
        load_encoder("timm:resnet50")


def test_progress_counts_all_images_and_interrupts_keep_what_was_computed(file):
    images, told = tinyencoder.photographs(80)[0], []

    def hear(done, total):
        told.append((done, total))
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_encoder(file).embed(images, progress=hear)
    load_encoder(file).embed(images, progress=hear)
    assert told == [(32, 80), (64, 80), (80, 80)]
