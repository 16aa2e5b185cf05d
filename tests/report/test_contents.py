"""What a report says agrees with the model, and what does not fit is refused."""

from copy import copy

import numpy as np
import pytest

from kscn import KSubspaces, metrics
from kscn.data import as_source
from kscn.errors import DataError
from kscn.report.contents import collect
from kscn.report.palette import TEN, colours
from kscn.report.pictures import Painter, data_uri
from kscn.report.spaces import space_of
from kscn.report.survey import look

pytestmark = pytest.mark.usefixtures("quick_map")


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
    assert report.confusion.counts.tolist() == [[60, 0, 0], [0, 40, 0], [0, 0, 20]]
    assert report.confusion.matches == (0, 1, 2)
    assert [cluster.most for cluster in report.clusters] == ["a", "b", "c"]
    assert "100.0% of the samples agree" in report.headline
    assert report.map["classes"] == ["a", "b", "c"]


def test_a_run_without_classes_is_not_scored(linear, planes, run_of):
    report = collect(*run_of(linear, planes[0]))
    assert report.scores is None and report.confusion is None
    assert all(cluster.most is None for cluster in report.clusters)
    assert report.headline == "120 samples in 3 clusters, found by k-subspaces in 1.5\u00a0s."
    assert sum(cluster.size for cluster in report.clusters) == 120


def test_empty_clusters_are_counted(linear, planes, run_of):
    kept, model = linear.labels_ != 2, copy(linear)
    model.labels_ = linear.labels_[kept]
    report = collect(*run_of(model, planes[0][kept]))
    assert "in 3 clusters (1 of them empty), found by" in report.headline


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


def test_spectra_and_angles_are_those_of_the_subspaces(linear, planes, run_of):
    report, space = collect(*run_of(linear, planes[0])), space_of(linear, (8,))
    for i in range(3):
        values = np.linalg.svd(planes[0][linear.labels_ == i].astype(float))[1] ** 2
        assert space.spectrum(space.points(planes[0][linear.labels_ == i])).tolist() == (
            pytest.approx((values / values.sum()).tolist())
        )
        assert (
            f"{100 * values[0] / values.sum():.3g}% at direction 1" in report.clusters[i].spectrum
        )
        for j in range(3):
            cosines = np.linalg.svd(linear.subspaces_[i].T @ linear.subspaces_[j])[1]
            least = np.degrees(np.arccos(min(1.0, cosines.max())))
            assert report.angles[i, j] == pytest.approx(least, abs=0.05)


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


def test_of_a_model_without_a_decoder_members_are_shown(refined, bars, run_of):
    report = collect(*run_of(refined, bars, method="best"))
    assert report.space.name == "latents" and not report.space.decodes
    assert "Samples that changed cluster" in [title for title, _ in report.curves]
    assert report.confidence.startswith("members find back to their cluster: ")
    for cluster in report.clusters:
        members = bars[refined.labels_ == cluster.number]
        painter = Painter((12, 12), 0.0, float(bars.max()))
        mean = members.mean(axis=0, keepdims=True, dtype=np.float64)
        assert cluster.mean == data_uri(painter.pixels(mean)[0])
        assert cluster.typical and cluster.borderline and cluster.outliers
        assert not cluster.directions and cluster.dim is cluster.outside is None
        assert not cluster.spectrum and report.angles is None
        known = {data_uri(picture) for picture in painter.pixels(members)}
        assert {member.picture for member in cluster.typical} <= known


def test_affine_subspaces_and_a_single_one(planes, run_of):
    model = KSubspaces(3, subspace_dim=2, affine=True, random_state=0).fit(planes[0] + 5)
    assert collect(*run_of(model, planes[0] + 5)).clusters[0].outside is None
    alone = KSubspaces(1, subspace_dim=2, random_state=0).fit(planes[0])
    report = collect(*run_of(alone, planes[0]))
    assert not report.clusters[0].borderline


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
