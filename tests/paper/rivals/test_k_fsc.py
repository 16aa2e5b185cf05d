"""k-FSC: codes against conditions of optimality and a generic solver; the fit and its manners."""

import functools

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn.data import as_source, load, make_union_of_subspaces
from kscn.errors import InputError
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.k_fsc import (
    CODE_TOL,
    KFSC,
    Atoms,
    UnitBlocks,
    code_all,
    shrink,
    update_atoms,
)

CPU = torch.device("cpu")


def quick(k=3, **params):
    return KFSC(k, **{"subspace_dim": 2, "n_init": 3, "random_state": 0} | params)


@functools.cache
def union(n=200, noise=0.02):
    return make_union_of_subspaces(n, 3, 12, 2, noise=noise, random_state=0)[:2]


def problem(seed=0, n=40, k=4, d=7, p=3):
    """Samples (n, d) of unit length and random groups of atoms that overlap (k d > d)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    groups = rng.standard_normal((k, d, p))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    groups /= np.linalg.norm(groups, axis=1, keepdims=True)
    return torch.from_numpy(x), torch.from_numpy(groups)


def value(x, groups, codes, penalty):
    """The objective of every sample, written out as in the paper."""
    rest = x - sum(c @ g.T for c, g in zip(codes.swapaxes(0, 1), groups, strict=True))
    return (rest**2).sum(1) / 2 + penalty * np.linalg.norm(codes, axis=2).sum(1)


# Codes ------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.integers(0, 1000), st.floats(0.1, 0.9))
def test_codes_meet_the_conditions_of_optimality(seed, penalty):
    x, groups = problem(seed, n=8)
    codes, rest, _ = Atoms(groups, torch.float64).code(x, penalty, 1e-9)
    built = torch.einsum("nkp,kdp->nd", codes, groups)
    torch.testing.assert_close(rest, x - built, rtol=0, atol=1e-10)
    slope = torch.einsum("nd,kdp->nkp", rest, groups)
    lengths = codes.norm(dim=2, keepdim=True)
    active = (lengths > 0).squeeze(2)
    # Active groups pull with all their might in the direction of their code, the others with less.
    pull = penalty * codes / lengths.clamp(min=1e-300)
    assert ((slope - pull)[active].norm(dim=1) < 1e-7).all()
    assert (slope.norm(dim=2)[~active] <= penalty * (1 + 1e-7)).all()


def test_codes_are_those_of_a_generic_solver():
    x, groups = problem(n=4, k=3, d=5, p=2)
    codes, _, labels = Atoms(groups, torch.float64).code(x, 0.15, 1e-9)
    reached = value(x.numpy(), groups.numpy(), codes.numpy(), 0.15)
    assert len(set((codes.norm(dim=2) > 0).sum(dim=1).tolist())) > 1  # codes of both kinds
    for i, sample in enumerate(x.numpy()):
        # |c| <= t makes it smooth: minimise over codes and t.
        def smooth(v, sample=sample):
            rest = sample - np.einsum("kp,kdp->d", v[:6].reshape(3, 2), groups.numpy())
            return rest @ rest / 2 + 0.15 * v[6:].sum()

        def cone(v):
            return v[6:] ** 2 - (v[:6].reshape(3, 2) ** 2).sum(axis=1)

        begin = np.r_[np.full(6, 0.1), np.ones(3)]
        bounds = [(None, None)] * 6 + [(0, None)] * 3
        found = scipy.optimize.minimize(
            smooth,
            begin,
            bounds=bounds,
            constraints={"type": "ineq", "fun": cone},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert reached[i] == pytest.approx(found.fun, abs=1e-6)
        assert labels[i] == codes[i].norm(dim=1).argmax()


def test_orthonormal_groups_have_codes_in_closed_form():
    groups = torch.eye(6, dtype=torch.float64).view(6, 3, 2).permute(1, 0, 2)
    x = torch.tensor([[0.6, 0.0, 0.0, 0.8, 0.0, 0.0]], dtype=torch.float64)
    codes, _, labels = Atoms(groups, torch.float64).code(x, 0.5, 1e-12)
    # |D_j^T x| = 0.6, 0.8, 0, each shortened by 0.5.
    torch.testing.assert_close(codes.norm(dim=2), torch.tensor([[0.1, 0.3, 0.0]]).double())
    assert labels.tolist() == [1]


def test_an_empty_code_has_the_label_of_the_group_that_would_be_first():
    x, groups = problem()
    codes, rest, labels = Atoms(groups, torch.float64).code(x, 100.0, 1e-9)
    assert not codes.any()
    torch.testing.assert_close(rest, x)
    first = torch.einsum("nd,kdp->nkp", x, groups).norm(dim=2).argmax(dim=1)
    assert torch.equal(labels, first)


def test_a_shrunk_row_minimises_its_problem():
    rng = np.random.default_rng(0)
    b, s = rng.standard_normal((30, 4)), np.array([0.0, 0.3, 1.0, 2.5])
    b[:, 0] = 0  # an atom of length zero sees nothing
    u = shrink(torch.from_numpy(b), torch.from_numpy(s), 0.8, torch.zeros(30).double()).numpy()
    for target, found in zip(b, u, strict=True):

        def smooth(v, target=target):
            return (s * v**2).sum() / 2 - target @ v + 0.8 * np.sqrt(v @ v + 1e-14)

        best = scipy.optimize.minimize(smooth, np.full(4, 0.1), method="BFGS", tol=1e-10)
        assert smooth(found) <= best.fun + 1e-6
        if np.linalg.norm(target) <= 0.8:
            assert not found.any()


def test_with_equal_squares_shrinking_is_soft_thresholding():
    b = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    length = b.norm(dim=1, keepdim=True)
    expected = b * (1 - 0.7 / length).clamp(min=0) / 2
    guess = torch.zeros(50, dtype=torch.float64)
    torch.testing.assert_close(shrink(b, torch.full((3,), 2.0).double(), 0.7, guess), expected)


# Atoms ------------------------------------------------------------------------------------------


def test_an_update_of_the_atoms_lowers_the_error_and_is_stationary():
    x, groups = problem(n=60)
    codes, _, _ = Atoms(groups, torch.float64).code(x, 0.2, 1e-9)
    flat = codes.flatten(1)
    after = groups
    for _ in range(30):
        after = update_atoms(after, flat.mT @ flat, flat.mT @ x)
    before = value(x.numpy(), groups.numpy(), codes.numpy(), 0.2).sum()
    assert value(x.numpy(), after.numpy(), codes.numpy(), 0.2).sum() < before
    assert after.norm(dim=1).max() <= 1 + 1e-12
    # A projected gradient step goes nowhere.
    atoms = after.permute(1, 0, 2).flatten(1)
    gradient = atoms @ (flat.mT @ flat) - x.mT @ flat
    moved = atoms - 0.01 * gradient
    moved = moved / moved.norm(dim=0).clamp(min=1)
    torch.testing.assert_close(moved, atoms, rtol=0, atol=1e-4)


def test_atoms_that_no_code_uses_stay():
    _, groups = problem()
    unused = torch.zeros(12, 12).double()
    kept = update_atoms(groups, unused, torch.zeros(12, 7).double())
    torch.testing.assert_close(kept, groups)


def test_sums_over_blocks_are_those_of_all_samples():
    X, _ = union()
    _, groups = problem(d=12, k=3, p=2)
    blocks = UnitBlocks(as_source(X.astype(np.float64)), torch.float64, CPU, batch_size=37)
    found = code_all(blocks, Atoms(groups, torch.float64), 0.3)
    x = torch.from_numpy(X / np.linalg.norm(X, axis=1, keepdims=True)).double()
    codes, _, labels = Atoms(groups, torch.float64).code(x, 0.3, CODE_TOL)
    flat = codes.flatten(1)
    torch.testing.assert_close(found.second, flat.mT @ flat, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found.mixed, flat.mT @ x, atol=1e-6, rtol=1e-6)
    assert torch.equal(found.labels.long(), labels)
    expected = value(x.numpy(), groups.numpy(), codes.numpy(), 0.3).sum()
    assert found.objective == pytest.approx(expected, rel=1e-6)


# The fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_union_of_subspaces_is_recovered(seed):
    X, y, _ = make_union_of_subspaces(400, 4, 20, 3, noise=0.02, random_state=seed)
    model = quick(4, subspace_dim=3).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.95
    assert model.atoms_.shape == (4, 20, 3)


def test_clusters_on_one_side_of_the_origin_are_found_from_k_means():
    X, y, _ = make_union_of_subspaces(400, 4, 20, 3, noise=0.02, random_state=1)
    X = X + 3 * np.random.default_rng(0).standard_normal((4, 20))[y]
    model = quick(4, subspace_dim=4, init="k-means").fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.95


def test_the_objective_never_rises():
    X, _ = union(noise=0.3)
    model = quick(max_iter=15, tol=0).fit(X)
    objectives = [record["objective"] for record in model.history_]
    assert len(objectives) > 5 and objectives[-1] < objectives[0]
    assert (np.diff(objectives) <= 1e-5 * objectives[0]).all()
    assert model.objective_ <= objectives[-1] * (1 + 1e-5)


@functools.cache
def digits():
    found = load("digits")
    return np.asarray(found.samples)[:400].astype(np.float32), found.labels[:400]


def test_digits_are_told_apart_far_better_than_by_chance():
    X, y = digits()
    model = quick(10, subspace_dim=4, max_iter=4).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.55
    assert (np.diff(np.bincount(model.labels_)) <= 0).all()  # numbered by falling size
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_prediction_repeats_the_labels_and_takes_each_sample_alone():
    X, _ = union(noise=0.2)
    model = quick().fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict(X[50:51]), model.labels_[50:51])
    # Length means nothing, nor does the sign.
    np.testing.assert_array_equal(model.predict(-7 * X), model.labels_)


def test_the_batch_size_does_not_matter():
    X, _ = union(n=80)
    expected = quick(max_iter=5).fit(X)
    for batch_size in (1, 33, 10**6):
        model = quick(max_iter=5, batch_size=batch_size).fit(X)
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        np.testing.assert_allclose(model.atoms_, expected.atoms_, atol=1e-3)


def test_many_samples_begin_on_a_subsample():
    X, y = union()
    model = quick(pool=100).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.95
    stages = [record["stage"] for record in model.history_]
    assert stages[0] == "start" and stages[-1] == "fit"
    assert model.n_iter_ == stages.count("fit")


def test_a_penalty_that_empties_the_codes_is_halved():
    X, y = union()
    model = quick(penalty=10.0).fit(X)
    assert model.penalty_ < 1.0 and 10.0 / model.penalty_ in 2.0 ** np.arange(20)
    assert clustering_accuracy(y, model.labels_) > 0.95
    assert model.history_[0]["empty"] == 1.0 and model.history_[-1]["empty"] <= 0.1


def test_a_zero_sample_is_no_obstacle():
    X = union()[0].copy()
    X[3] = 0
    model = quick().fit(X)
    assert model.penalty_ == 0.5 and model.labels_[3] in range(3)


# What cannot be used ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params, words",
    [
        ({"subspace_dim": 12}, "subspace_dim=12 must be between 1 and 11"),
        ({"init": "hope"}, "init='hope' must be 'k-subspaces' or 'k-means'"),
    ],
)
def test_bad_arguments_are_refused_by_name(params, words):
    with pytest.raises(InputError, match=words):
        quick().set_params(**params).fit(union()[0])


def test_samples_without_subspaces_are_refused_in_words():
    with pytest.raises(InputError, match="at least 2 features"):
        quick().fit(union()[0][:, :1])
