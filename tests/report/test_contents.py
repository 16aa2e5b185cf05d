"""What a report says agrees with the model, and what does not fit is refused."""

from copy import copy
from functools import partial

import numpy as np
import pytest

from kscn import KSCNPlus, KSubspaces, metrics
from kscn.data import as_source
from kscn.errors import DataError
from kscn.report import contents
from kscn.report.palette import TEN, colours
from kscn.report.pictures import Painter, data_uri
from kscn.report.spaces import space_of
from kscn.report.survey import look

collect = partial(contents.collect, tsne=False)  # PCA, as t-SNE has tests of its own


def looked(linear, planes, **options):
    """A survey in blocks of 17 samples, with four members of each kind."""
    labels, space = linear.labels_.astype(np.int64), space_of(linear, (8,))
    return look(as_source(planes[0]), labels, 3, space, 4, block_rows=17, **options)


def test_members_are_those_that_the_residuals_name(linear, planes):
    found = looked(linear, planes)
    z = planes[0].astype(np.float64)
    share = linear.residuals(z) / (z**2).sum(axis=1, keepdims=True)
    ordered = np.sort(share, axis=1)
    for i in range(3):
        members = np.flatnonzero(linear.labels_ == i)
        near = members[np.argsort(share[members, i])]
        gap = members[np.argsort((ordered[:, 1] - ordered[:, 0])[members])]
        assert found.typical.of(i)[0].tolist() == near[:4].tolist()
        assert found.outliers.of(i)[0].tolist() == near[::-1][:4].tolist()
        assert found.borderline.of(i)[0].tolist() == gap[:4].tolist()
        second = np.argsort(share, axis=1)[gap[:4], 1]
        assert found.borderline.of(i)[2].tolist() == second.tolist()
        assert found.outside[i] == pytest.approx(share[members, i].mean(), rel=1e-4)
    assert (found.low, found.high) == (planes[0].min(), planes[0].max())
    assert (found.points == planes[0]).all()


def test_a_large_set_is_mapped_by_a_fair_part(linear, planes):
    found = looked(linear, planes, map_points=30)
    assert len(set(found.chosen)) == 30
    assert (found.points == planes[0][found.chosen]).all()


def test_a_run_with_classes_is_scored(linear, planes, run_of):
    run, data = run_of(linear, planes[0])
    report = collect(run, data, np.array(["a", "b", "c"])[planes[1]])
    assert report.scores == metrics.scores(planes[1], linear.labels_)
    assert report.confusion.cells == [["60", "", ""], ["", "40", ""], ["", "", "20"]]
    assert report.confusion.marks == {(0, 0), (1, 1), (2, 2)}
    assert [cluster.most for cluster in report.clusters] == ["a", "b", "c"]
    assert "100.0% of them agree" in report.headline
    assert report.map["classes"] == ["a", "b", "c"]


def test_a_run_without_classes_says_what_the_subspaces_hold(linear, planes, run_of):
    report = collect(*run_of(linear, planes[0]))
    assert report.scores is None and report.confusion is None
    assert all(cluster.most is None for cluster in report.clusters)
    assert "subspaces hold 9" in report.headline
    assert sum(cluster.size for cluster in report.clusters) == 120


def test_empty_clusters_are_counted(linear, planes, run_of):
    full = collect(*run_of(linear, planes[0]))
    assert "empty" not in full.headline and dict(full.facts)["Clusters"] == "3"
    kept, model = linear.labels_ != 2, copy(linear)
    model.labels_ = linear.labels_[kept]
    report = collect(*run_of(model, planes[0][kept]))
    assert "into 3 clusters (1 of them empty) in" in report.headline
    assert dict(report.facts)["Clusters"] == "3 (1 of them empty)"


def test_angles_are_those_between_the_planes(linear, planes, run_of):
    from scipy.linalg import subspace_angles

    report = collect(*run_of(linear, planes[0]))
    for i, j in ((0, 1), (2, 0)):
        angles = np.degrees(subspace_angles(linear.subspaces_[i], linear.subspaces_[j]))[::-1]
        assert report.angles.cells[i][j] == f"{angles[0]:.0f}"
        told = ", ".join(f"{angle:.1f}°" for angle in angles)
        assert report.angles.notes[i][j] == f"clusters {i} and {j}: {told}"
    assert report.angles.cells[1][1] == ""


def test_vectors_have_loadings_and_no_pictures(linear, planes, run_of):
    report = collect(*run_of(linear, planes[0]))
    assert report.map["sheet"] is None
    for cluster in report.clusters:
        assert cluster.mean == "" and not any(m.picture for m in cluster.typical)
        for direction in cluster.directions:
            assert len(direction.loadings) == 6
            assert sum(value**2 for _, value in direction.loadings) <= 1 + 1e-9
            sizes = [abs(value) for _, value in direction.loadings]
            assert sizes == sorted(sizes, reverse=True)
        assert sum(d.share for d in cluster.directions) == pytest.approx(1)


def test_images_have_pictures_of_members_and_directions(planes, run_of):
    images = planes[0].reshape(-1, 2, 4)
    model = KSubspaces(3, subspace_dim=2, random_state=0).fit(images)
    report = collect(*run_of(model, images))
    sheet = report.map["sheet"]
    assert (sheet["width"], sheet["height"], len(sheet["points"])) == (4, 2, 120)
    for cluster in report.clusters:
        assert cluster.mean.startswith("data:image/png;base64,")
        assert len(cluster.directions) == 2
        assert [place for _, place in cluster.directions[0].walk] == [
            "−2 sd", "−1 sd", "mean", "+1 sd", "+2 sd",
        ]  # fmt: skip
        assert cluster.directions[0].walk[2][0] == cluster.mean
        assert 0.99 < cluster.held <= 1


def test_a_model_without_a_decoder_shows_members_along_its_directions(refined, bars, run_of):
    report = collect(*run_of(refined, bars, method="best"))
    assert report.space.name == "latents" and not report.space.decodes
    assert report.headline.startswith("KSCNPlus sorted 120 images into 2 clusters")
    assert report.angles is not None
    titles = [title for title, _ in report.curves]
    assert "Samples that changed cluster" in titles
    assert list(report.choice) == ["tried", "chosen", "because", "confidence"]
    assert report.choice["chosen"].endswith(", then refined by a network")
    assert report.choice["confidence"].startswith("members find back to their cluster: ")
    assert len(report.tried) == 10
    for cluster in report.clusters:
        members = bars[refined.labels_ == cluster.number]
        painter = Painter((12, 12), 0.0, float(bars.max()))
        mean = members.mean(axis=0, keepdims=True, dtype=np.float64)
        assert cluster.mean == data_uri(painter.pixels(mean)[0])
        assert cluster.typical and cluster.borderline and cluster.outliers and cluster.spectrum
        known = {data_uri(picture) for picture in painter.pixels(members)}
        for direction in cluster.directions:
            assert {picture for picture, _ in direction.walk} <= known
            assert direction.change
            first, last = direction.walk[0][1], direction.walk[-1][1]
            assert first.startswith("−") and last.startswith("+")


def test_features_of_vectors_have_loadings_of_their_own_columns(run_of):
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 80)
    samples = 0.01 * rng.standard_normal((160, 6))
    # Two columns vary in each cluster, the first of them more.
    samples[group == 0, 1:3] += rng.standard_normal((80, 2)) * [1, 0.5]
    samples[group == 1, 4:6] += rng.standard_normal((80, 2)) * [1, 0.5]
    samples = samples.astype(np.float32)
    model = KSCNPlus(2, starts=1, random_state=0)
    report = collect(*run_of(model.fit(samples), samples, method="best"))
    assert report.space.name == "features" and not report.space.decodes
    for cluster in report.clusters:
        column = 1 if group[model.labels_ == cluster.number].mean() < 0.5 else 4
        name, value = cluster.directions[0].loadings[0]
        assert name == f"feature {column}" and abs(value) > 0.9


def test_affine_subspaces_and_a_single_one(planes, run_of):
    model = KSubspaces(3, subspace_dim=2, affine=True, random_state=0).fit(planes[0] + 5)
    assert collect(*run_of(model, planes[0] + 5)).clusters[0].outside is None
    alone = KSubspaces(1, subspace_dim=2, random_state=0).fit(planes[0])
    report = collect(*run_of(alone, planes[0]))
    assert report.angles is None and not report.clusters[0].borderline


def test_other_samples_than_those_of_the_run_are_refused(linear, planes, run_of):
    run, _ = run_of(linear, planes[0])
    for other, words in (
        (planes[0][:100], "has 100 samples of shape \\(8,\\) and the run was fitted on 120"),
        (planes[0][:, :5], "of shape \\(5,\\)"),
        (planes[0][::-1], "nearer to another subspace than labels.csv says"),
    ):
        _, foreign = run_of(linear, other.copy())
        with pytest.raises(DataError, match=words):
            collect(run, foreign)


def test_colours_are_distinct():
    assert colours(3) == list(TEN[:3])
    assert len(set(colours(60))) == 60
