"""The scan: right where the structure is clear, in doubt where there is none."""

import numpy as np
import pytest

from kscn.data import make_union_of_subspaces
from kscn.errors import InputError
from kscn.experiments.scan import Cell, scan


def union(k, p, d=10, n=360, noise=0.05, seed=0):
    return make_union_of_subspaces(n, k, d, p, noise=noise, random_state=seed)[0]


@pytest.mark.parametrize(("k", "p"), [(2, 3), (3, 2), (4, 1)])
def test_clear_unions_are_recognised_with_high_confidence(k, p):
    found = scan(union(k, p), range(2, 6), range(1, 5), budget=1e6)
    assert (found.k, found.p, found.confidence) == (k, p, "high")
    assert found.stability > 0.95
    assert found.stability - found.noise_stability > 0.4
    assert found.spectrum_dims == (p,) * k
    assert found.complete


@pytest.mark.parametrize("spread", [np.ones(10), np.exp(-np.arange(10) / 2)], ids=["even", "long"])
def test_noise_gets_low_confidence(spread):
    noise = np.random.default_rng(1).standard_normal((360, 10)) * spread
    found = scan(noise, range(2, 6), range(1, 5), budget=1e6)
    assert found.confidence == "low"
    assert any("no evidence of groups" in reason for reason in found.reasons)


def test_images_are_vectors_of_pixels_and_their_scale_does_not_matter():
    images = union(2, 1, d=16, n=200).reshape(-1, 4, 4)
    found = scan(images, [2, 3], [1, 2], budget=1e6)
    tiny = 1e-200 * images.reshape(-1, 16).astype(np.float64)
    assert (found.k, found.p) == (2, 1)
    assert scan(tiny, [2, 3], [1, 2], budget=1e6).reasons == found.reasons


def test_the_same_seed_gives_the_same_scan():
    first, second = (scan(union(2, 1, n=120), [2, 3], [1], budget=1e6) for _ in range(2))
    assert first.cells == second.cells
    assert first.reasons == second.reasons


def test_the_residual_is_the_energy_outside_the_subspaces():
    """Two lines with noise: what is left of d = 10 coordinates is nine of noise."""
    found = scan(union(2, 1, n=400, noise=0.1), [2], [1], budget=1e6)
    (cell,) = found.cells
    outside = 9 * 0.1**2
    assert cell.residual == pytest.approx(outside / (1 + 10 * 0.1**2), rel=0.25)
    assert cell.objective < cell.residual  # what it was fitted to, it fits better


def test_a_budget_that_ends_at_once_still_answers_and_says_so():
    found = scan(union(3, 2), range(2, 6), range(1, 5), budget=1e-6)
    assert not found.complete
    assert 1 <= len(found.cells) <= 2
    assert found.confidence != "high"
    assert any("time ended" in reason for reason in found.reasons)


def test_progress_is_told_and_only_a_subsample_is_looked_at():
    told = []
    found = scan(
        union(2, 1), [2, 3], [1], n_samples=100, budget=1e6,
        progress=lambda stage, done, total: told.append((stage, done, total)),
    )  # fmt: skip
    assert found.n_samples == 100
    assert all(0 <= done < total for _, done, total in told)
    assert len({stage for stage, _, _ in told}) >= 2


def test_many_features_are_reduced_to_components_that_hold_the_energy():
    wide = np.pad(union(2, 1, n=120), ((0, 0), (0, 190)))
    found = scan(wide, [2], [1], budget=1e6)
    assert found.n_components <= 64
    assert found.energy > 0.97


def test_the_plain_form_has_every_cell():
    found = scan(union(2, 1, n=120), [2], [1, 2], budget=1e6)
    plain = found.to_dict()
    assert [Cell(**cell) for cell in plain["cells"]] == list(found.cells)
    assert plain["k"] == 2


@pytest.mark.parametrize(
    ("samples", "options", "words"),
    [
        (np.zeros((100, 5)), {}, "nothing but zeros"),
        (np.full((100, 5), np.nan), {}, "NaN"),
        (np.ones((30, 5)), {}, "needs at least 40 samples"),
        (np.ones((100, 1)), {}, "2 dimensions"),
        (np.eye(100)[:, :5], {"clusters": [1, 2]}, "between 2 and 5"),
        (np.eye(100)[:, :5], {"clusters": range(2, 9)}, "got 2 to 8"),
        (np.eye(100)[:, :5], {"dims": [5]}, "between 1 and 4"),
        (np.eye(100)[:, :5], {"dims": []}, "got none"),
        (np.eye(100)[:, :5], {"budget": 0}, "positive number of seconds"),
    ],
)
def test_what_cannot_be_scanned_is_refused_in_words(samples, options, words):
    with pytest.raises(InputError, match=words):
        scan(samples, **options)


def test_the_drop_behind_the_mean_is_not_the_end_of_a_subspace():
    """Signs turned at random leave the subspaces what they are, but the clusters have no mean."""
    rng = np.random.default_rng(0)
    frames = np.linalg.qr(rng.standard_normal((2, 12, 12)))[0]
    spread = np.sqrt(1.5 * 0.7 ** np.arange(11))  # no end anywhere
    codes = np.c_[np.full(200, 5.0), rng.standard_normal((200, 11)) * spread]  # 84 % in the mean
    samples = np.einsum("nij,nj->ni", frames[np.arange(200) % 2], codes)
    turned = samples * rng.choice([-1, 1], size=(200, 1))
    assert min(scan(samples, [2], [1, 2, 3], budget=1e6).spectrum_dims) > 1
    assert scan(turned, [2], [1, 2, 3], budget=1e6).spectrum_dims == (1, 1)
