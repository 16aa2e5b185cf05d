"""What clusters would have to charge for all of them to be of the same size.

Prices are added to how far samples are from subspaces, and everybody goes where it is cheapest. If
a clustering cuts between groups of like size, low prices suffice; where groups were merged or
split, prices are high and samples go far. So what they cost tells good cuts from bad ones, better
than sizes do, as long as groups are not of very different sizes.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Of distances as a share of that to the nearest subspace, in the softmax that counts samples: about
# what makes subspaces that are fitted to other samples predict clusters best.
TEMPERATURE = 0.2
ROUNDS = 20
# Share of the objective that a spread of 1 of the prices is taken to be worth.
PRICED = 0.06


def relative(residual: Tensor) -> Tensor:
    """Squared distances (n, k) as multiples of the nearest.

    Not their difference: a rare shape is far from all subspaces, but may be clear.
    """
    return residual / residual.min(dim=1, keepdim=True).values.clamp(min=1e-12)


def log_odds(residual: Tensor) -> Tensor:
    """Squared distances (n, k) as minus the logarithm of odds; 1 / TEMPERATURE for the nearest."""
    return relative(residual) / TEMPERATURE


def even_prices(residual: Tensor) -> Tensor:
    """The prices (k,) at which k clusters have about the same size, in units of `log_odds`.

    A cluster that no price makes even is charged, or paid, what ROUNDS steps come to.
    """
    cost, k = log_odds(residual), residual.shape[1]
    prices = cost.new_zeros(k)
    for _ in range(ROUNDS):
        share = torch.softmax(-cost - prices, dim=1).mean(dim=0)
        prices += 0.5 * torch.log((k * share).clamp(min=1e-6))
    return prices


def even_labels(residual: Tensor) -> Tensor:
    """Where prices that make clusters even send samples, shape (n,)."""
    return (log_odds(residual) + even_prices(residual)).argmin(dim=1)


def even_objective(residual: Tensor) -> float:
    """Mean squared distance of samples to where prices that make clusters even send them."""
    return float(residual.gather(1, even_labels(residual)[:, None]).double().mean())


def even_cost(residual: Tensor) -> float:
    """The even objective, and more if prices differ: right cuts need low ones."""
    return even_objective(residual) * (1 + PRICED * spread(even_prices(residual)))


def spread(prices: Tensor) -> float:
    """How much prices differ: their standard deviation."""
    return float(prices.double().std(correction=0))
