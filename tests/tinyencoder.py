"""A tiny ONNX encoder, and photographs of three kinds that it can tell apart."""

from pathlib import Path

import numpy as np

SIZE, DIM = 16, 12


def write(
    path, *, output="vectors", layout="NCHW", batch="n", size=SIZE, channels=3, seed=0, opset=17,
    dim=DIM, scale=1.0,
):  # fmt: skip
    """One convolution and a rectifier; `output` is vectors, maps or tokens. Returns the path."""
    from onnx import TensorProto, checker, helper, numpy_helper, save

    rng = np.random.default_rng(seed)
    weights = (scale * rng.standard_normal((dim, channels, 4, 4)) / 7).astype(np.float32)
    bias = rng.standard_normal(dim).astype(np.float32)
    shape = [channels, size, size] if layout == "NCHW" else [size, size, channels]
    nodes, before = [], "images"
    if layout == "NHWC":
        nodes.append(helper.make_node("Transpose", ["images"], ["first"], perm=[0, 3, 1, 2]))
        before = "first"
    last = "maps" if output == "maps" else "features"
    nodes.append(helper.make_node("Conv", [before, "weights", "bias"], ["conv"], strides=[4, 4]))
    nodes.append(helper.make_node("Relu", ["conv"], ["relu"]))
    if output == "maps":
        nodes.append(helper.make_node("Identity", ["relu"], [last]))
    elif output == "tokens":
        nodes.append(helper.make_node("Reshape", ["relu", "flat"], ["rows"]))
        nodes.append(helper.make_node("Transpose", ["rows"], [last], perm=[0, 2, 1]))
    else:
        nodes.append(helper.make_node("GlobalAveragePool", ["relu"], ["pooled"]))
        nodes.append(helper.make_node("Flatten", ["pooled"], [last]))
    shapes = {"vectors": [dim], "maps": [None] * 3, "tokens": [None, dim]}
    constants = {"weights": weights, "bias": bias, "flat": np.array([0, dim, -1], np.int64)}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, *shape])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", *shapes[output]])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    checker.check_model(model)
    save(model, path)
    return Path(path)


def photographs(n=60, side=24, seed=0):
    """Colour images (n, side, side, 3) of three kinds, one after the other, and their kinds."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(n) % 3
    colours = np.array([[200, 60, 40], [40, 190, 70], [50, 70, 210]])[kinds]
    images = colours[:, None, None] + rng.normal(0, 25, (n, side, side, 3))
    return images.clip(0, 255).astype(np.uint8), kinds


def write_folder(folder, images):
    """The images as files of different sizes in a folder."""
    from PIL import Image

    Path(folder).mkdir(parents=True)
    for number, pixels in enumerate(images):
        side = pixels.shape[0] - number % 3
        Image.fromarray(pixels[:side]).save(Path(folder) / f"photo{number:03}.png")
    return Path(folder)
