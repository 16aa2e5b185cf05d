"""Presets: what a section gives for which data and method, and what is refused."""

import pytest

from kscn import KSCN
from kscn.data.catalog import NAMES
from kscn.errors import InputError
from kscn.estimators import presets

IMAGE, VECTOR = (28, 28), (784,)
SHAPES = {"digits": (8, 8)}


@pytest.fixture
def written(tmp_path):
    """A preset file with the given text."""

    def write(text, name="mine.toml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_both_presets_are_packaged():
    assert presets.names() == ["paper", "tuned"]
    assert presets.DEFAULT in presets.names()


@pytest.mark.parametrize("preset", ["paper", "tuned"])
@pytest.mark.parametrize("method", list(presets.METHODS))
@pytest.mark.parametrize("dataset", [*NAMES, None])
def test_every_named_data_set_has_settings_that_kscn_takes(preset, method, dataset):
    found = presets.parameters(preset, method, dataset, SHAPES.get(dataset, IMAGE))
    model = KSCN(10, **found)
    assert model.update == {"kscn-s": "svd", "kscn-g": "grassmann"}[method]
    assert found["subspace_dim"] >= 1


@pytest.mark.parametrize("preset", ["paper", "tuned"])
def test_vectors_get_a_dense_network(preset):
    assert presets.parameters(preset, "kscn-s", None, VECTOR)["autoencoder"] == "sae"


def test_the_paper_preset_holds_what_the_paper_states():
    stated = {
        "learning_rate": 1e-3,
        "pretrain_epochs": 200,
        "autoencoder": "cae",
        "autoencoder_params": {"channels": [20, 10, 5], "kernels": [5, 3, 3]},
        "loss": "residual",
        "latent": "identity",
    }
    for dataset, dim, weight in (("mnist", 7, 0.08), ("fashion-mnist", 11, 0.11)):
        for method, trim in (("kscn-s", 0.1), ("kscn-g", 0.0)):
            found = presets.parameters("paper", method, dataset, IMAGE)
            assert stated.items() <= found.items()
            assert (found["subspace_dim"], found["weight"], found["trim"]) == (dim, weight, trim)


@pytest.mark.parametrize("part", ["mnist-test", "mnist-train"])
def test_parts_of_a_data_set_take_its_section_unless_they_have_their_own(part, written):
    whole = "[mnist]\nepochs = 5\n[images]\nepochs = 1\n"
    found = presets.parameters(written(whole), "kscn-s", part, IMAGE)
    assert found["epochs"] == 5
    own = written(f"{whole}[{part}]\nepochs = 7\n")
    assert presets.parameters(own, "kscn-s", part, IMAGE)["epochs"] == 7


def test_few_samples_may_have_a_section_of_their_own(written):
    path = written("[mnist]\nepochs = 3\n[images]\nepochs = 1\n[few-images]\nepochs = 9\n")
    for n, epochs in ((None, 1), (20_000, 1), (19_999, 9)):
        assert presets.parameters(path, "kscn-s", None, IMAGE, n)["epochs"] == epochs
    assert presets.parameters(path, "kscn-s", "mnist-test", IMAGE, 10_000)["epochs"] == 3
    without = written("[images]\nepochs = 1\n")
    assert presets.parameters(without, "kscn-s", None, IMAGE, 100)["epochs"] == 1
    few = presets.parameters("tuned", "kscn-s", None, IMAGE, 1_000)
    many = presets.parameters("tuned", "kscn-s", None, IMAGE, 100_000)
    assert few["epochs"] / few["batch_size"] > 10 * many["epochs"] / many["batch_size"]


@pytest.mark.parametrize("shape", [(8, 8), (3, 15, 40), (40, 4)])
def test_small_images_have_a_network_that_leaves_enough_of_them(shape):
    from kscn.nn import ConvAutoencoder

    found = presets.parameters("tuned", "kscn-s", None, shape, 1_000)
    full = shape if len(shape) == 3 else (1, *shape)
    network = ConvAutoencoder(full, **found["autoencoder_params"])
    assert network.latent_dim > found["init_dim"]
    assert presets.parameters("tuned", "kscn-s", None, (16, 16), 1_000)["batch_size"] == 64
    assert "small-images" not in presets.read("paper")  # which says what the paper says


def test_sections_add_up_and_a_table_is_replaced_whole(written):
    path = written(
        "[common]\nweight = 1.0\ntrim = 0.1\nepochs = 1\n"
        "[common.kscn-g]\ntrim = 0.0\n"
        "[images]\nepochs = 2\ntrim = 0.2\nautoencoder_params = { channels = [4], kernels = [3] }\n"
        "[images.kscn-g]\nweight = 3.0\nautoencoder_params = { channels = [8] }\n"
    )
    params = {"channels": [4], "kernels": [3]}
    assert presets.parameters(path, "kscn-s", None, (3, 9, 9)) == {
        "weight": 1.0, "trim": 0.2, "epochs": 2, "autoencoder_params": params, "update": "svd",
    }  # fmt: skip
    assert presets.parameters(path, "kscn-g", None, (3, 9, 9)) == {
        "weight": 3.0, "trim": 0.0, "epochs": 2, "autoencoder_params": {"channels": [8]},
        "update": "grassmann",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[images]\nwieght = 1\n", "'wieght', which .* cannot set; did you mean weight"),
        ("[images]\nzzz = 1\n", "it takes augment, autoencoder"),
        ("[images]\n[mnist.kscn-g]\ntrimm = 1\n", "did you mean trim"),
        ("[images]\nrandom_state = 1\n", "'random_state'"),
        ("[images]\nupdate = 'svd'\n", "'update'"),
        ("[vectors]\nepochs = 1\n", r"no section for this data; add one of \[images\]"),
        ("epochs = 1\n[images]\n", "sets epochs outside of any section"),
        ("[images\n", "not valid TOML"),
    ],
)  # fmt: skip
def test_a_faulty_preset_is_refused_in_words(written, text, words):
    with pytest.raises(InputError, match=words):
        presets.parameters(written(text), "kscn-s", None, IMAGE)


def test_a_preset_that_is_not_there_is_refused_in_words(written, tmp_path):
    with pytest.raises(InputError, match="'papr' is no known preset; known ones are paper, tuned"):
        presets.parameters("papr", "kscn-s", None, IMAGE)
    with pytest.raises(InputError, match=r"nothing\.toml \(No such file"):
        presets.parameters(str(tmp_path / "nothing.toml"), "kscn-s", None, IMAGE)
    with pytest.raises(InputError, match=r"tuned\.toml is named like a preset of kscn"):
        presets.parameters(written("[images]", "tuned.toml"), "kscn-s", None, IMAGE)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"cannot read the preset .*binary\.toml"):
        presets.parameters(str(tmp_path / "binary.toml"), "kscn-s", None, IMAGE)
