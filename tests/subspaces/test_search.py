"""The search for a start: sweeps descend, swaps improve, agreement decides between ties."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn.subspaces import Subspaces, principal_angles, search
from kscn.subspaces.search import (
    PROPOSALS,
    RACE_SWEEPS,
    RACERS,
    Problem,
    consensus,
    find_start,
    k_means_starts,
    propose_swaps,
    run_chain,
    settled,
    start_of_labels,
    sweep,
)
from kscn.subspaces.seeding import draw_rows


def problem(
    n=300, k=3, d=8, dims=2, *, noise=0.05, affine=False, trim=0.0, weights=False, seed=0, turn=None
):
    sizes = [dims] * k if isinstance(dims, int) else dims
    z, labels, _ = make_union_of_subspaces(
        n, k, d, sizes, noise=noise, affine=affine, random_state=seed, dtype=np.float64
    )
    z = z if turn is None else z @ turn
    given = np.random.default_rng(1).uniform(0.1, 3, n) if weights else None
    made = Problem(
        torch.tensor(z).float(),
        None if given is None else torch.tensor(given).float(),
        torch.tensor(sizes),
        affine,
        trim,
        torch.Generator().manual_seed(seed),
    )
    return made, labels


VARIANTS = {
    "linear": {},
    "affine": {"affine": True},
    "weights": {"weights": True},
    "mixed dimensions": {"dims": [1, 3, 2]},
    "affine, mixed dimensions, weights": {"dims": [1, 3, 2], "affine": True, "weights": True},
}


# Sweeps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_sweeps_never_raise_the_objective(variant):
    hard, _ = problem(noise=0.4, **VARIANTS[variant])
    for found in k_means_starts(hard, 6):
        previous = np.inf
        for _ in range(12):
            found, objective = sweep(hard, found, 1)
            assert objective <= previous * (1 + 1e-5)
            previous = objective
        assert found.fault() is None
        assert sorted(found.dims.tolist()) == sorted(hard.dims.tolist())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_objective_is_the_weighted_sum_of_residuals(variant):
    task, _ = problem(**VARIANTS[variant])
    weight = torch.ones(len(task.z)) if task.weights is None else task.weights
    for found in k_means_starts(task, 4):
        _, objective = sweep(task, found, 1)  # that of the assignment before the step
        nearest = found.residuals(task.z).amin(dim=1)
        assert objective == pytest.approx(float((nearest * weight).sum()), rel=1e-3)


def test_a_trimmed_objective_leaves_out_the_farthest_share():
    task, _ = problem(noise=0.3, trim=0.1)
    (found,) = k_means_starts(task, 1)
    _, objective = sweep(task, found, 1)
    nearest = found.residuals(task.z).amin(dim=1).sort().values
    assert objective == pytest.approx(float(nearest[:270].sum()), rel=1e-3)


def test_subspaces_of_labels_are_those_of_the_members():
    task, labels = problem(noise=0.01)
    found = start_of_labels(task, torch.tensor(labels), task.dims)
    for i in range(3):
        members = task.z[torch.tensor(labels) == i]
        exact = torch.linalg.svd(members.mT, full_matrices=False).U[:, :2]
        assert principal_angles(found.bases[i], exact).max() < 0.01


# Swaps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_swap_replaces_exactly_one_subspace(variant):
    task, _ = problem(**VARIANTS[variant])
    (best,) = k_means_starts(task, 1)
    proposals = propose_swaps(task, best)
    assert len(proposals) == PROPOSALS
    for one in proposals:
        assert sum(torch.equal(one.bases[i], best.bases[i]) for i in range(3)) == 2
        assert one.fault() is None
        assert one.dims.tolist() == best.dims.tolist()


def test_swaps_are_seeded_by_badly_served_samples_but_not_by_trimmed_ones(monkeypatch):
    draws = []

    def spy(mass, count, generator):
        draws.append(mass)
        return draw_rows(mass, count, generator)

    monkeypatch.setattr(search, "draw_rows", spy)
    task, labels = problem(trim=0.1)
    best = start_of_labels(task, torch.tensor(labels), task.dims)
    propose_swaps(task, best)
    residual = best.residuals(task.z).amin(dim=1)
    far = residual.argsort(descending=True)
    assert (draws[0][far[:30]] == 0).all()
    torch.testing.assert_close(draws[0][far[30:]], residual[far[30:]], rtol=1e-2, atol=1e-5)


def test_swaps_leave_a_minimum_that_sweeps_cannot_leave():
    # Three lines in the plane, at 0, 60 and 120 degrees. Two subspaces share the first line and
    # the third lies between the other two.
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    angles = np.deg2rad(60.0 * labels + rng.standard_normal(300))
    z = rng.standard_normal((300, 1)) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    generator = torch.Generator().manual_seed(0)
    task = Problem(torch.tensor(z).float(), None, torch.ones(3).long(), False, 0.0, generator)
    wrong = torch.deg2rad(torch.tensor([1.0, -1.0, 90.0]))
    bases = torch.stack([wrong.cos(), wrong.sin()], dim=1)[:, :, None]
    start, stuck = sweep(task, Subspaces(bases), 50)
    assert clustering_accuracy(labels, start.assign(task.z)[0].numpy()) < 0.7
    swapped = [sweep(task, one, 10) for one in propose_swaps(task, start)]
    best, after = min(swapped, key=lambda entry: entry[1])
    assert after < 0.1 * stuck
    assert clustering_accuracy(labels, best.assign(task.z)[0].numpy()) > 0.95


def test_a_chain_that_goes_on_ends_no_higher():
    tasks = [problem(k=6, noise=0.3)[0] for _ in range(7)]
    lowest = [run_chain(task, 2, rounds)[1] for rounds, task in enumerate(tasks)]
    assert all(b <= a for a, b in itertools.pairwise(lowest))
    assert lowest[-1] < lowest[0]


SAME, RENAMED, OTHER = [0, 0, 0, 1, 1, 1, 2, 2, 2], [2, 2, 2, 0, 0, 0, 1, 1, 1], [0, 1, 2] * 3


def chains(*ended):
    """Chains by their objectives and labels, with numbers for subspaces."""
    return [(number, value, np.array(labels)) for number, (value, labels) in enumerate(ended)]


def test_consensus_takes_the_lowest_objective_when_it_stands_out():
    assert consensus(chains((1.0, OTHER), (1.02, SAME), (1.02, SAME), (1.1, SAME))) == 0


def test_consensus_takes_what_most_of_the_tied_chains_found():
    assert consensus(chains((1.0, OTHER), (1.003, SAME), (1.004, RENAMED))) == 1


def test_the_search_is_settled_when_the_best_three_agree():
    agree = (1.0, SAME), (1.0001, RENAMED), (1.0002, SAME)
    assert settled(chains(*agree)) and settled(chains(*agree, (1.5, OTHER)))
    assert not settled(chains(*agree[:2]))
    assert not settled(chains(*agree[:2], (1.01, SAME)))  # not the same objective
    assert not settled(chains(*agree[:2], (1.0002, OTHER)))  # not the same clustering
    assert settled(chains(*[(0.0, SAME)] * 3))


def test_the_search_ends_when_three_chains_agree():
    task, _ = problem(noise=0.2)
    heard = []
    find_start(task, 8, lambda *report: heard.append(report))
    assert [entry[0] for entry in heard] == [1, 2, 3]


# The whole search ---------------------------------------------------------------------------------


def test_one_start_is_one_start():
    task, _ = problem()
    heard = []
    found = find_start(task, 1, lambda *report: heard.append(report))
    assert found.fault() is None
    assert len(heard) == 1
    assert heard[0][:3] == (1, 1, 1)
    # The same draws and sweeps by hand: no race and no swaps.
    again, _ = problem()
    alone, objective = sweep(again, *k_means_starts(again, 1), RACE_SWEEPS)
    assert torch.equal(found.bases, alone.bases)
    assert heard[0][3] == objective


def test_a_single_cluster_needs_no_search():
    task, _ = problem(k=1)
    heard = []
    found = find_start(task, 10, lambda *report: heard.append(report))
    assert len(heard) == 1
    exact = torch.linalg.svd(task.z.mT, full_matrices=False).U[:, :2]
    assert principal_angles(found.bases[0], exact).max() < 0.01


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_search_finds_an_easy_union(variant):
    task, labels = problem(n=200, noise=0.02, **VARIANTS[variant])
    found = find_start(task, 3)
    assert found.fault() is None
    assert clustering_accuracy(labels, found.assign(task.z)[0].numpy()) > 0.97


def test_reports_count_up_and_their_objective_never_rises():
    task, _ = problem(noise=0.3)
    heard = []
    find_start(task, 3, lambda *report: heard.append(report))
    done, most, starts, objective = (np.array(column) for column in zip(*heard, strict=True))
    assert (np.diff(done) > 0).all()
    assert (done <= most).all()
    assert (starts == RACERS).all()
    assert (np.diff(objective) <= 0).all()


def test_the_search_repeats_with_the_seed():
    one, two = (find_start(problem(noise=0.3)[0], 2) for _ in range(2))
    assert torch.equal(one.bases, two.bases)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def threads_of_a_new_thread():
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_the_number_of_threads_changes_nothing_and_is_given_back(two_threads):
    task, _ = problem(noise=0.01)
    side_by_side = find_start(problem(noise=0.01)[0], 4).assign(task.z)[0]
    assert torch.get_num_threads() == 2
    assert threads_of_a_new_thread() == 2
    torch.set_num_threads(1)
    in_turn = find_start(problem(noise=0.01)[0], 4).assign(task.z)[0]
    assert clustering_accuracy(side_by_side.numpy(), in_turn.numpy()) == 1


def test_an_interrupt_ends_the_search_and_gives_the_threads_back(two_threads):
    def interrupt(*report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_start(problem(noise=0.3)[0], 4, interrupt)
    assert torch.get_num_threads() == 2
    assert threads_of_a_new_thread() == 2


def test_a_large_problem_still_gets_one_chain():
    task, labels = problem(noise=0.01)
    task = replace(task, width=10**12)  # as if it had so many columns
    heard = []
    found = find_start(task, 10, lambda *report: heard.append(report))
    assert heard[-1][1] == 1
    assert clustering_accuracy(labels, found.assign(task.z)[0].numpy()) > 0.9


@pytest.mark.parametrize("affine", [False, True])
def test_the_clustering_found_does_not_depend_on_the_axes(affine):
    q = np.linalg.qr(np.random.default_rng(3).standard_normal((8, 8)))[0]
    here, _ = problem(affine=affine, noise=0.02)
    there, _ = problem(affine=affine, noise=0.02, turn=q)
    one = find_start(here, 2).assign(here.z)[0]
    other = find_start(there, 2).assign(there.z)[0]
    assert clustering_accuracy(one.numpy(), other.numpy()) > 0.98
