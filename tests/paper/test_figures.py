"""Figures: what they show of a model, and that they are what they claim to be."""

import io
import sys

import numpy as np
import pytest

from kscn import KSCN, KSubspaces
from kscn.errors import InputError
from kscn_paper import figures

pytest.importorskip("matplotlib")
pytest.importorskip("openTSNE")


@pytest.fixture(scope="module")
def images():
    """Ninety images of 8 x 8 in three groups: a bright half that differs, with a little noise."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], 30)
    made = np.zeros((90, 8, 8), dtype=np.float32)
    made[groups == 0, :, :3] = 1
    made[groups == 1, :3, :] = 1
    made[groups == 2, 5:, 5:] = 1
    made *= rng.uniform(0.5, 1.0, (90, 1, 1))
    return made + rng.uniform(0, 0.05, made.shape).astype(np.float32)


@pytest.fixture(scope="module")
def deep(images):
    model = KSCN.from_settings(
        3,
        subspace_dim=2,
        latent="whitened",
        latent_dim=6,
        autoencoder_params={"channels": [4, 4], "kernels": [3, 3], "batch_norm": True},
        n_init=1,
        pretrain_epochs=3,
        epochs=1,
        random_state=0,
    )
    return model.fit(images)


def drawn(figure):
    """The figure as pixels."""
    from matplotlib.image import imread

    file = io.BytesIO()
    figures.save(figure, file, "png")
    return imread(io.BytesIO(file.getvalue()))


# --- the latent ---------------------------------------------------------------------------------


def test_t_sne_keeps_far_groups_apart_and_repeats():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((60, 5)) + 50 * np.eye(5)[np.repeat([0, 1, 2], 20)]
    places = figures.embed(points, seed=3)
    assert places.shape == (60, 2)
    groups = places.reshape(3, 20, 2)
    within = max(group.std() for group in groups - groups.mean(axis=1, keepdims=True))
    middles = groups.mean(axis=1)
    between = min(np.linalg.norm(middles[i] - middles[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert between > 3 * within
    assert np.array_equal(places, figures.embed(points, seed=3))


def test_too_few_samples_for_t_sne_are_refused():
    with pytest.raises(InputError, match="t-SNE of 3 samples shows nothing"):
        figures.embed(np.eye(3))


@pytest.mark.parametrize("count", [2, 10, 40])
def test_every_group_has_its_colour_and_few_have_a_name(count):
    rng = np.random.default_rng(0)
    groups = np.arange(200) % count
    names = [f"group{i}" for i in range(count)]
    panels = [figures.Panel(title, rng.standard_normal((200, 2))) for title in ("left", "right")]
    figure = figures.latent_figure(panels, groups, names, "class", "some samples")
    axes = figure.axes
    assert [each.get_title() for each in axes] == ["left", "right"]
    for each in axes:
        (points,) = each.collections
        assert len(np.unique(points.get_facecolors(), axis=0)) == count
        assert len(each.texts) == (count if count <= 30 else 0)
    boxes = [each.get_position() for each in axes]
    assert boxes[0].width == pytest.approx(boxes[1].width)
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown[0] == ("class:" if count <= 30 else "class (the first 30 of 40):")
    assert shown[1:] == names[:30]


def test_the_panels_keep_the_proportions_of_the_map():
    places = np.array([[0.0, 0.0], [100.0, 0.0], [100.0, 50.0], [0.0, 50.0]])
    squared = figures.framed(places)
    assert squared.tolist() == [[-1, -0.5], [1, -0.5], [1, 0.5], [-1, 0.5]]


# --- the subspaces ------------------------------------------------------------------------------


def test_a_portrait_of_linear_subspaces_is_what_the_mathematics_says():
    """Members at mean + a u with one direction u: its ends are two deviations from the mean."""
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.standard_normal((16, 4)))[0].T.reshape(2, 2, 4, 4)
    steps = rng.standard_normal((2, 40))
    images = np.concatenate(
        [10 * b + a[:, None, None] * u for (b, u), a in zip(bases, steps, strict=True)]
    )
    model = KSubspaces(2, subspace_dim=2, random_state=0).fit(images.reshape(80, 16))
    found = figures.portraits(model, images, ["first", "second"], n_directions=1)
    labels = model.predict(images.reshape(80, 16))
    for cluster, portrait in enumerate(found):
        members = images[labels == cluster]
        mean = members.mean(axis=0)
        direction = np.linalg.svd((members - mean).reshape(len(members), -1))[2][0].reshape(4, 4)
        spread = ((members - mean) * direction).sum(axis=(1, 2)).std()
        np.testing.assert_allclose(portrait.mean, mean, atol=1e-4)
        np.testing.assert_allclose(portrait.ends.mean(axis=1)[0], mean, atol=1e-4)
        np.testing.assert_allclose(
            np.abs(portrait.ends[0, 1] - mean), np.abs(2 * spread * direction), atol=1e-3
        )


def test_a_portrait_of_deep_subspaces_resembles_their_members(deep, images):
    found = figures.portraits(deep, images, ["a", "b", "c"], n_nearest=4, n_farthest=2)
    residuals = deep.residuals(images)
    labels = residuals.argmin(axis=1)
    for cluster, portrait in enumerate(found):
        members = np.flatnonzero(labels == cluster)
        assert portrait.title == "abc"[cluster]
        assert portrait.mean.shape == (8, 8)
        assert portrait.ends.shape == (2, 2, 8, 8)  # a plane has two directions
        restored = deep.reconstruct(images[members]).mean(axis=0)
        assert np.abs(portrait.mean - restored).mean() < 0.1
        order = members[np.argsort(residuals[members, cluster])]  # unit latents: already relative
        np.testing.assert_array_equal(portrait.nearest, images[order[:4]])
        np.testing.assert_array_equal(portrait.farthest, images[order[::-1][:2]])


def test_a_subspace_without_members_is_left_out(deep, images):
    labels = deep.predict(images)
    found = figures.portraits(deep, images[labels == 1], ["a", "b", "c"])
    assert [portrait.title for portrait in found] == ["b"]


def test_no_member_is_both_near_and_far(deep, images):
    labels = deep.predict(images)
    six = images[labels == 0][:6]
    (portrait,) = figures.portraits(deep, six, "abc", n_nearest=5, n_farthest=3)
    assert (len(portrait.nearest), len(portrait.farthest)) == (5, 1)


def test_a_model_without_subspaces_is_refused(images):
    with pytest.raises(InputError, match="object has no subspaces to draw"):
        figures.portraits(object(), images, ["a"])


def test_subspaces_without_a_decoder_are_left_to_the_report(refined, bars):
    with pytest.raises(InputError, match=r"KSCNPlus has no decoder .*kscn report"):
        figures.portraits(refined, bars, ["a", "b"])


def test_the_mosaic_has_every_image_in_its_place():
    rows = [np.full((2, 4, 6), 3.0), np.full((1, 4, 6), 1.0)]
    mosaic = figures._mosaic(rows, 2, (4, 6), low=1.0, high=5.0)
    assert mosaic.shape == (2 * 5, 2 * 7)
    assert (mosaic[:4, :6] == 0.5).all()
    assert (mosaic[:4, 7:13] == 0.5).all()
    assert (mosaic[5:9, :6] == 0).all()
    assert (mosaic[5:, 6:] == 1).all()  # there is no second image: white
    red = np.zeros((1, 3, 4, 6))
    red[:, 0] = 1
    coloured = figures._mosaic([red], 1, (3, 4, 6), low=0.0, high=1.0)
    assert coloured.shape == (5, 7, 3)
    assert coloured[0, 0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("coloured", [False, True])
def test_the_figure_of_subspaces_shows_a_row_for_each(images, coloured):
    given = np.repeat(images[:, None], 3, axis=1) if coloured else images
    flat = given.reshape(len(given), -1)
    model = KSubspaces(3, subspace_dim=2, random_state=0).fit(flat)
    shown = figures.portraits(model, given, ["one\n30 samples", "two", "three"])
    figure = figures.subspace_figure(shown, "a caption")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["mean", "direction 1", "direction 2", "nearest members", "farthest"]
    texts = [text.get_text() for text in figure.texts]
    assert "a caption" in texts
    assert any("30 samples" in text for text in texts)
    pixels = drawn(figure)
    assert 0.1 < (pixels[..., :3].mean(axis=2) < 0.5).mean() < 0.9  # not empty, not all black


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_the_same_figure_gives_the_same_file_in_every_format(kind, start):
    def made():
        panel = figures.Panel("title", np.random.default_rng(0).standard_normal((50, 2)))
        figure = figures.latent_figure([panel], np.arange(50) % 2, ["a", "b"], "class", "caption")
        file = io.BytesIO()
        figures.save(figure, file, kind)
        return file.getvalue()

    first = made()
    assert first.startswith(start)
    assert first == made()
    if kind == "svg":
        assert b">caption<" in first  # text stays text


@pytest.mark.parametrize("package", ["matplotlib", "openTSNE"])
def test_a_missing_package_is_named_with_the_extra_to_install(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        InputError, match=rf"needs the package {package}; run pip install 'kscn\[viz"
    ):
        figures.require(package)
