"""`kscn figure`: the pictures it draws, the pretraining it repeats, and what it refuses."""

import numpy as np
import pytest
import torch
from PIL import Image

from kscn import KSCN, load_model
from kscn.errors import InputError
from kscn_paper import figures, pretraining

pytest.importorskip("matplotlib")
pytest.importorskip("openTSNE")

TINY = """
[images]
n_init = 1
pretrain_epochs = 2
epochs = 1
latent = "whitened"
latent_dim = 6
loss = "separation"
weight = 50.0
subspace_dim = 2
autoencoder_params = { channels = [4, 3], kernels = [3, 3], batch_norm = true }
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory, kscn):
    """Ninety images of 8 x 8 with labels, tiny.toml, and the run of kscn-s on them."""
    directory = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 30)
    images = rng.uniform(0, 0.1, (90, 8, 8)).astype(np.float32)
    images[labels == 0, :, :3] += 0.8
    images[labels == 1, :3, :] += 0.8
    images[labels == 2, 5:, 5:] += 0.8
    np.savez(directory / "xy.npz", x=images, y=labels)
    np.save(directory / "x.npy", images)
    np.save(directory / "names.npy", np.array(["left", "top", "corner"])[labels])
    (directory / "tiny.toml").write_text(TINY)
    call = ("fit", directory / "xy.npz", "-k", 3, "-o", directory / "run", "--seed", 4)
    result = kscn(*call, "--method", "kscn-s", "--preset", directory / "tiny.toml")
    assert result.exit_code == 0, result.output
    return directory


@pytest.fixture
def seen(monkeypatch):
    """What `latent_figure` is given, by name; t-SNE is left out to save time."""
    found = {}
    draw = figures.latent_figure

    def watch(panels, groups, names, what, caption):
        found.update(panels=panels, groups=groups, names=names, what=what, caption=caption)
        return draw(panels, groups, names, what, caption)

    monkeypatch.setattr(figures, "latent_figure", watch)
    monkeypatch.setattr(figures, "embed", lambda points, **_: np.asarray(points)[:, :2])
    return found


def test_the_latent_of_a_run_before_and_after(made, kscn, tmp_path):
    output = tmp_path / "latent.png"
    result = kscn("figure", "latent", made / "run", "-o", output)
    assert result.exit_code == 0, result.output
    assert result.output.strip() == f"wrote {output}"
    assert output.read_bytes().startswith(b"\x89PNG")
    with Image.open(output) as picture:
        assert picture.mode == "P"  # few colours, so that it can be put on a page


def test_the_repeated_pretraining_is_that_of_the_run(made, kscn, tmp_path, seen, recwarn):
    result = kscn("figure", "latent", made / "run", "-o", tmp_path / "latent.png")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no word of another error than the run's
    images = np.load(made / "x.npy")
    model = load_model(made / "run" / "model")
    # The same by hand: a fit of no epoch.
    before = KSCN(**{**model.get_params(), "epochs": 0, "random_state": 4}).fit(images)
    with torch.inference_mode():
        codes = before.autoencoder_.encode(torch.from_numpy(images)[:, None] / images.max())
    left, right = seen["panels"]
    np.testing.assert_allclose(left.places, codes[:, :2], atol=1e-4)
    np.testing.assert_allclose(right.places, model.transform(images)[:, :2], atol=1e-6)
    assert left.title == "pretrained autoencoder"
    assert right.title.startswith("after clustering by kscn-s (ACC ")
    assert (seen["what"], seen["names"]) == ("class", ["0", "1", "2"])
    assert seen["caption"] == "xy: t-SNE of 90 samples"


def test_one_fit_of_data_gives_both_latents(made, kscn, tmp_path, seen):
    options = ("-k", 3, "--preset", made / "tiny.toml", "--seed", 4)
    result = kscn("figure", "latent", made / "x.npy", *options, "-o", tmp_path / "a.svg")
    assert result.exit_code == 0, result.output
    of_data = seen["panels"]
    assert (seen["what"], seen["names"]) == ("cluster", ["0", "1", "2"])  # nobody told classes
    assert of_data[1].title == "after clustering by kscn-s"
    kscn("figure", "latent", made / "run", "-o", tmp_path / "b.svg")
    for ours, theirs in zip(of_data, seen["panels"], strict=True):
        np.testing.assert_allclose(ours.places, theirs.places, atol=1e-5)


def test_a_saved_model_is_taken_instead_of_pretraining_again(
    made, kscn, tmp_path, seen, monkeypatch
):
    monkeypatch.setattr(pretraining, "repeat", lambda *_: pytest.fail("pretrained again"))
    output = tmp_path / "latent.png"
    for given in (made / "run", made / "run" / "model"):  # any saved model serves to see it used
        result = kscn("figure", "latent", made / "run", "--pretrained", given, "-o", output)
        assert result.exit_code == 0, result.output
    model = load_model(made / "run" / "model")
    expected = pretraining.codes(model.autoencoder_, model.scaling_, np.load(made / "x.npy"))
    np.testing.assert_allclose(seen["panels"][0].places, expected[:, :2], atol=1e-6)


def test_other_samples_and_named_classes(made, kscn, tmp_path, seen):
    names = ("--labels", made / "names.npy", "--samples", 40)
    call = ("figure", "latent", made / "run", "--data", made / "x.npy", *names)
    result = kscn(*call, "-o", tmp_path / "latent.pdf")
    assert result.exit_code == 0, result.output
    assert seen["names"] == ["corner", "left", "top"]
    assert len(seen["groups"]) == len(seen["panels"][0].places) == 40
    assert seen["caption"] == "x: t-SNE of 40 of 90 samples"


def test_a_pretraining_that_ends_elsewhere_is_told(made):
    model = load_model(made / "run" / "model")
    parameters = {**model.get_params(), "random_state": 4}
    images, labels = np.load(made / "x.npy"), np.repeat([0, 1, 2], 30)
    history = [{"stage": "pretrain", "reconstruction": 1e-3}, {"stage": "done"}]
    with pytest.warns(UserWarning, match=r"ended at an error of .* and that of the run at 0\.001"):
        pretraining.repeat(parameters, images, labels, history)
    with pytest.raises(InputError, match=r"cannot be repeated .* --pretrained"):
        pretraining.repeat({**parameters, "autoencoder": "MyNet"}, images, labels, history)


def test_without_pretraining_the_network_of_the_start_is_kept(made):
    images = np.load(made / "x.npy")
    keep = pretraining.KeepPretrained()
    model = load_model(made / "run" / "model").set_params(pretrain_epochs=0, callbacks=[keep])
    model.fit(images)
    fresh = KSCN(**{**model.get_params(), "epochs": 0, "callbacks": ()}).fit(images)
    for ours, theirs in zip(
        keep.autoencoder.state_dict().values(),
        fresh.autoencoder_.state_dict().values(),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


# --- subspaces ----------------------------------------------------------------------------------


def test_the_subspaces_of_a_run(made, kscn, tmp_path, monkeypatch):
    found = {}
    draw = figures.subspace_figure

    def watch(shown, caption):
        found.update(shown=shown, caption=caption)
        return draw(shown, caption)

    monkeypatch.setattr(figures, "subspace_figure", watch)
    output = tmp_path / "subspaces.png"
    result = kscn("figure", "subspaces", made / "run", "-o", output, "--directions", 1)
    assert result.exit_code == 0, result.output
    assert output.read_bytes().startswith(b"\x89PNG")
    sizes = np.bincount(load_model(made / "run" / "model").predict(np.load(made / "x.npy")))
    assert len(found["shown"]) == len(sizes)
    for i, portrait in enumerate(found["shown"]):
        head, size, mostly = portrait.title.split("\n")
        assert (head, size) == (f"subspace {i}", f"{sizes[i]} samples")
        assert mostly.split("% ")[1] in ("“0”", "“1”", "“2”")
        assert len(portrait.ends) == 1
    assert "xy, kscn-s." in found["caption"]


def test_linear_subspaces_of_images_too(made, kscn, tmp_path):
    run, output = tmp_path / "run", tmp_path / "subspaces.svg"
    call = ("fit", made / "x.npy", "-k", 3, "-o", run, "--method", "k-subspaces")
    assert kscn(*call, "--subspace-dim", 2, "--seed", 0).exit_code == 0
    result = kscn("figure", "subspaces", run, "-o", output)
    assert result.exit_code == 0, result.output
    assert "subspace 2" in output.read_text()


# --- refusals -----------------------------------------------------------------------------------


def test_what_cannot_be_drawn_is_refused_in_one_sentence(
    made, finished, files, kscn, one_sentence, tmp_path
):
    def refused(*args, output=tmp_path / "a.png"):
        return one_sentence(kscn("figure", *args, "-o", output))

    run = made / "run"
    assert "does not end in .png, .svg or .pdf" in refused(
        "latent", run, output=tmp_path / "latent.gif"
    )
    assert "k-subspaces has no latent to draw" in refused("latent", finished)
    assert "samples of shape (8,)" in refused("subspaces", finished)
    assert "say with -k how many" in refused("latent", made / "x.npy")
    assert "--clusters, --seed cannot be used with RUN" in refused(
        "latent", run, "-k", 3, "--seed", 1
    )
    assert "--data cannot be used with DATA" in refused(
        "latent", made / "x.npy", "-k", 3, "--data", "digits"
    )
    assert "k-subspaces has no latent" in refused(
        "latent", made / "x.npy", "-k", 3, "--method", "k-subspaces"
    )
    assert "does not exist" in refused("subspaces", tmp_path / "nowhere")
    assert "is neither a file nor a known" in refused("latent", "nowhere", "-k", 3)
    assert "cannot write" in refused("latent", run, output=tmp_path / "no" / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_an_older_picture_survives_a_refusal(made, kscn, tmp_path):
    output = tmp_path / "latent.png"
    output.write_text("mine")
    assert kscn("figure", "latent", made / "x.npy", "-o", output).exit_code == 2
    assert output.read_text() == "mine"


def test_a_missing_package_is_found_before_the_work(
    made, kscn, one_sentence, monkeypatch, tmp_path
):
    def missing(module):
        raise InputError(f"figures need the package {module}; run pip install 'kscn[viz]'.")

    monkeypatch.setattr(figures, "require", missing)
    monkeypatch.setattr(KSCN, "fit", lambda *_: pytest.fail("the work began"))
    for call in (("latent", made / "x.npy", "-k", 3), ("subspaces", made / "run")):
        result = kscn("figure", *call, "-o", tmp_path / "a.png")
        assert "run pip install 'kscn[viz]'" in one_sentence(result)
