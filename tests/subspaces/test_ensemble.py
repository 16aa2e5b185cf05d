"""What several runs agree on."""

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score

from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn.subspaces.ensemble import (
    agree,
    consensus_labels,
    cost_near,
    even_labels_near,
    mean_agreement,
    settled,
    support,
)
from kscn.subspaces.search import Problem, sweep


def problem(noise=0.05, seed=0, k=4, p=3, threads=None):
    X, y, _ = make_union_of_subspaces(600, k, 20, p, noise=noise, random_state=seed)
    z = torch.from_numpy(X.astype(np.float32))
    generator = torch.Generator().manual_seed(seed)
    return Problem(z, None, torch.full((k,), p), False, 0.0, generator), y


def test_runs_that_find_the_subspaces_agree_on_them():
    given, y = problem()
    heard = []
    agreed = agree(given, 12, 4, report=lambda *facts: heard.append(facts))
    assert clustering_accuracy(y, agreed.labels.numpy()) == 1
    assert agreed.agreement == pytest.approx(1)
    assert (agreed.share == 1).all()
    assert 0 < agreed.objective < 0.1
    assert [facts[:2] for facts in heard] == [(i, 12) for i in range(1, 13)]
    assert heard[-1][2] == agreed.objective == min(facts[2] for facts in heard)


def test_noise_without_structure_gives_every_run_its_own_clusters():
    z = torch.randn(600, 20, generator=torch.Generator().manual_seed(0))
    given = Problem(z, None, torch.full((4,), 3), False, 0.0, torch.Generator().manual_seed(0))
    assert agree(given, 12, 4).agreement < 0.3


def test_the_number_of_threads_does_not_matter():
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(agree(problem(noise=0.5)[0], 6, 3))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(found[0].labels, found[1].labels, rtol=0, atol=0)
    assert found[0].agreement == found[1].agreement


def test_a_run_with_an_accident_is_outvoted():
    truth = torch.arange(90) // 30
    accident = truth.clone()
    accident[:10] = 1  # a third of one cluster merged with the next
    renamed = torch.tensor([2, 0, 1])[truth]
    labels = consensus_labels([accident, truth, renamed, truth], 3)
    assert clustering_accuracy(truth.numpy(), labels.numpy()) == 1
    held = support(labels, [accident, truth, renamed, truth])
    torch.testing.assert_close(held[:10], torch.full((10,), 0.75))
    assert (held[10:] == 1).all()


def test_clusters_without_members_stay_without():
    runs = [torch.arange(40) % 2, torch.arange(40) % 2]
    assert set(consensus_labels(runs, 3).tolist()) == {0, 1}


def test_agreement_is_the_mean_mutual_information_of_pairs():
    rng = np.random.default_rng(0)
    runs = [torch.from_numpy(rng.integers(3, size=50)) for _ in range(4)]
    pairs = [
        normalized_mutual_info_score(runs[i], runs[j]) for i in range(4) for j in range(i + 1, 4)
    ]
    assert mean_agreement(runs) == pytest.approx(np.mean(pairs))
    assert mean_agreement(runs[:1]) == 1


def test_runs_are_kept_by_rising_objective():
    given, _ = problem(noise=0.5)
    runs = agree(given, 6, 3).runs
    reached = [float(sweep(given, run, 1)[1]) for run in runs]
    assert reached == pytest.approx(sorted(reached), rel=1e-3)


def test_runs_go_on_with_more_samples():
    given, y = problem(noise=0.3)
    few = Problem(
        given.z[::3].contiguous(), None, given.dims, False, 0.0, torch.Generator().manual_seed(1)
    )
    heard = []
    runs = agree(few, 9, 3).runs
    ended = settled(given, runs, lambda *facts: heard.append(facts[:2]))
    assert heard == [(i, 9) for i in range(1, 10)]
    assert [run.shape for run in ended] == [(600,)] * 9
    assert max(clustering_accuracy(y, run.numpy()) for run in ended) > 0.9


@pytest.mark.parametrize(("seed", "at_most"), [(0, 1.01), (1, 0.9), (2, 0.9), (3, 1.01)])
def test_groups_that_were_merged_and_split_cost_more_unless_they_are_found_again(seed, at_most):
    given, y = problem(noise=0.2, seed=seed)
    right = torch.as_tensor(y)
    wrong = right.clone()
    wrong[right == 1] = 0  # two groups are one cluster
    halves = (right == 2).nonzero().flatten()[::2]
    wrong[halves] = 1  # and one group is two
    assert cost_near(given, given, right) <= at_most * cost_near(given, given, wrong)


def test_even_clusters_follow_their_subspaces_and_groups_stay_what_they_are():
    given, y = problem(noise=0.15)
    right = torch.as_tensor(y)
    assert clustering_accuracy(y, even_labels_near(given, right).numpy()) > 0.97
    shifted = right.clone()
    shifted[(right == 1).nonzero().flatten()[::2]] = 0  # half of a group is in another's cluster
    found = even_labels_near(given, shifted)
    assert torch.bincount(found, minlength=4).max() < 170
    assert clustering_accuracy(y, found.numpy()) > 0.95
