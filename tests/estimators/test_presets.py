"""Presets: what a section gives for which data and method, and what is refused."""

import pytest

from kscn import KSCN
from kscn.data.catalog import NAMES
from kscn.errors import InputError
from kscn.estimators import presets
from kscn.estimators.presets import derive
from kscn.nn import ConvAutoencoder, DenseAutoencoder, network

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


def tuned(shape, n, k=10, **given):
    """What is derived from the data, and what was given."""
    return derive.settings({"n_clusters": k, **given}, shape, n)


def test_both_presets_are_packaged():
    assert presets.names() == ["paper", "tuned"]
    assert presets.DEFAULT in presets.names()


@pytest.mark.parametrize("preset", ["paper", "tuned"])
@pytest.mark.parametrize("method", list(presets.METHODS))
@pytest.mark.parametrize("dataset", [*NAMES, None])
def test_every_named_data_set_has_settings_that_kscn_takes(preset, method, dataset):
    shape = SHAPES.get(dataset, IMAGE)
    found = presets.parameters(preset, method, dataset, shape)
    model = KSCN.from_settings(10, preset=preset, **found)
    assert model.update == {"kscn-s": "svd", "kscn-g": "grassmann"}[method]
    used = derive.settings(model._flat_params(), shape)
    assert used["subspace_dim"] >= 1
    assert "auto" not in used.values()


@pytest.mark.parametrize("preset", ["paper", "tuned"])
def test_vectors_get_a_dense_network(preset):
    given = {"n_clusters": 10, "preset": preset}
    assert derive.settings(given, VECTOR)["autoencoder"] == "sae"
    for kind in ("sae", DenseAutoencoder(784)):  # and so do images, if it is asked for
        used = derive.settings({**given, "autoencoder": kind}, IMAGE)
        assert used["augment"] == derive.settings(given, VECTOR)["augment"]


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


@pytest.mark.parametrize("shape", [(8, 8), (3, 15, 40), (40, 4)])
def test_small_images_have_a_network_that_leaves_enough_of_them(shape):
    found = tuned(shape, 1_000)
    full = shape if len(shape) == 3 else (1, *shape)
    assert ConvAutoencoder(full, **found["autoencoder_params"]).latent_dim > found["init_dim"]
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
        ("[images]\nwieght = 1\n", "sets 'wieght', which it cannot; did you mean weight"),
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


# What is derived from the data --------------------------------------------------------------------

MEASURED = {  # as the results of the named data sets were measured
    "subspace_dim": 3, "init_dim": 12, "latent_dim": 30, "weight": 50.0, "batch_size": 256,
    "latent": "whitened", "loss": "separation", "schedule": "one-cycle", "learning_rate": 3e-3,
    "trim": 0.1, "tol": 0.0, "balance": 0.0, "temperature": 0.1, "n_init": 10,
    "init": "scattering", "update_every": None, "augment": "affine", "autoencoder": "cae",
    "autoencoder_params": {"channels": [16, 32, 8], "kernels": [5, 3, 3], "batch_norm": True},
}  # fmt: skip


@pytest.mark.parametrize(
    ("dataset", "n", "epochs"), [("mnist", 70_000, (2, 5)), ("mnist-test", 10_000, (5, 15))]
)
def test_named_data_sets_have_the_settings_that_they_were_measured_with(dataset, n, epochs):
    found = derive.settings({"n_clusters": 10}, IMAGE, n, dataset)
    assert found == MEASURED | dict(zip(("pretrain_epochs", "epochs"), epochs, strict=True))


@pytest.mark.parametrize(
    "shape",
    [(8, 8), (28, 28), (3, 32, 32), (64, 48), (5, 5), (2, 2), (1, 7), (3, 256, 256), (200, 17),
     (1,), (2,), (5,), (64,), (10_000,)],
)  # fmt: skip
def test_any_samples_have_settings_that_fit_together(shape):
    for n, k in [(3, 1), (3, 2), (11, 10), (100, 3), (5_000, 150), (None, 10)]:
        found = tuned(shape, n, k)
        assert set(found) == set(derive.OPEN)
        assert "auto" not in found.values()
        code = network.code_dim(found["autoencoder"], found["autoencoder_params"], shape)
        assert 2 <= found["latent_dim"] <= code <= 4096
        assert 1 <= found["subspace_dim"] <= found["init_dim"] < found["latent_dim"]
        assert found["subspace_dim"] * k <= max(found["latent_dim"], k)


def test_steps_do_not_depend_on_the_number_of_samples():
    for stage in ("pretrain_epochs", "epochs"):
        steps = []
        for n in (1_500, 6_000, 19_999, 20_000, 60_000):
            found = tuned(IMAGE, n)
            steps.append(found[stage] * n / found["batch_size"])
        assert max(steps) < 4 * min(steps)
    assert tuned(IMAGE, 50)["epochs"] <= 100  # however few there are


def test_what_is_derived_fits_to_what_was_given():
    assert tuned(IMAGE, 5_000, latent_dim=8)["init_dim"] < 8
    assert tuned(IMAGE, 5_000, subspace_dim=[9] * 10)["latent_dim"] == 90
    assert tuned((8, 8), 60, subspace_dim=20, k=3)["latent_dim"] > 20
    small = {"channels": [4], "kernels": [3]}  # 4 * 4 * 4 = 64
    assert tuned((8, 8), 500, autoencoder_params=small, latent_dim=100)["init_dim"] < 64
    plain = tuned(IMAGE, 5_000, latent="identity")
    assert (plain["loss"], plain["weight"], plain["init_dim"]) == ("residual", 0.08, None)
    assert tuned(IMAGE, 5_000, loss="residual")["weight"] == 0.08
    assert tuned(IMAGE, 5_000, augment=None)["augment"] is None
    assert tuned(IMAGE, 128, batch_size=1)["epochs"] < tuned(IMAGE, 128)["epochs"]


def test_a_preset_can_leave_values_to_the_rules_and_must_not_set_nonsense(written):
    mine = written('[images]\nlatent = "whitened"\nlatent_dim = "auto"\nepochs = 3\n')
    found = tuned(IMAGE, 5_000, preset=mine)
    assert (found["latent_dim"], found["epochs"], found["pretrain_epochs"]) == (70, 3, 50)
    with pytest.raises(InputError, match="batch_size='x' must be an integer"):
        tuned(IMAGE, 5_000, preset=written('[images]\nbatch_size = "x"\nepochs = "auto"\n'))
