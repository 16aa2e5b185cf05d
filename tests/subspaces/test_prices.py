"""Prices that make clusters even."""

import numpy as np
import pytest
import torch

from kscn.subspaces.prices import (
    TEMPERATURE,
    even_cost,
    even_objective,
    even_prices,
    log_odds,
    spread,
)


def distances(shares, n=2000, noise=0.3, seed=0):
    """Squared distances of groups with such shares of the samples, each near a cluster."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), size=n, p=shares)
    far = 1.5 + noise * rng.standard_normal((n, len(shares)))
    far[np.arange(n), y] -= 0.5
    return torch.from_numpy(np.exp(far))


def sizes(residual, prices):
    return torch.bincount((log_odds(residual) + prices).argmin(1), minlength=residual.shape[1])


@pytest.mark.parametrize("shares", [[0.25] * 4, [0.3, 0.3, 0.2, 0.2], [0.35, 0.25, 0.25, 0.15]])
def test_at_these_prices_clusters_are_even(shares):
    residual = distances(shares)
    before, after = sizes(residual, torch.zeros(4)), sizes(residual, even_prices(residual))
    assert (after - 500).abs().max() <= max(40, (before - 500).abs().max() // 3)


def test_large_clusters_charge_and_even_ones_hardly():
    assert spread(even_prices(distances([0.25] * 4))) < 0.1
    prices = even_prices(distances([0.4, 0.3, 0.2, 0.1]))
    assert prices.tolist() == sorted(prices.tolist(), reverse=True)
    assert spread(prices) > 0.3


def test_odds_do_not_depend_on_the_unit_and_the_nearest_counts_one():
    residual = distances([0.5, 0.5])
    torch.testing.assert_close(log_odds(1e6 * residual), log_odds(residual))
    assert log_odds(residual).min(dim=1).values.tolist() == pytest.approx([1 / TEMPERATURE] * 2000)


@pytest.mark.parametrize("residual", [torch.zeros(5, 3), torch.ones(4, 1), torch.eye(3)])
def test_odd_distances_give_numbers(residual):
    prices = even_prices(residual)
    assert prices.shape == (residual.shape[1],)
    assert bool(torch.isfinite(prices).all())


def test_a_cluster_without_anybody_near_has_a_price_that_ends():
    residual = torch.ones(100, 3)
    residual[:, 2] = 1e9
    prices = even_prices(residual)
    assert bool(torch.isfinite(prices).all()) and prices[2] < prices[:2].min() - 10


def test_what_is_even_already_has_its_own_objective_and_else_a_higher_one():
    even, uneven = distances([0.25] * 4, noise=0.0), distances([0.7, 0.1, 0.1, 0.1])
    assert even_objective(even) == pytest.approx(float(even.min(dim=1).values.mean()))
    assert even_objective(uneven) > 1.05 * float(uneven.min(dim=1).values.mean())


def test_prices_add_to_the_cost():
    even, uneven = distances([0.25] * 4, noise=0.0), distances([0.7, 0.1, 0.1, 0.1])
    assert even_cost(even) == pytest.approx(even_objective(even), rel=0.01)
    assert even_cost(uneven) > 1.02 * even_objective(uneven)
