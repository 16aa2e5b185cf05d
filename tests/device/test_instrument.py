"""The simulated device refuses and allows what CUDA does, and counts what it costs."""

import numpy as np
import pytest
import torch
from simulated import COSTS, SimTensor


@pytest.fixture
def there(simgpu):
    """A tensor on the device."""
    made = torch.arange(6.0).view(2, 3).to(simgpu)
    COSTS.clear()
    return made


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x @ torch.ones(3, 2),
        lambda x: x + torch.ones(3),
        lambda x: torch.cat([x, torch.ones(1, 3)]),
        lambda x: torch.where(x > 0, x, torch.ones(3)),
        lambda x: torch.ones(2)[x[0].long()],
        lambda x: x.index_put_((torch.tensor([0]),), torch.ones(1, 3)),
        lambda x: x.numpy(),
        lambda x: np.asarray(x),
        lambda x: x.pin_memory(),
        lambda x: torch.randn(3, generator=torch.Generator(), device=x.device),
        lambda x: torch.multinomial(x, 1, generator=torch.Generator()),
    ],
)
def test_what_is_refused(mix, there):
    with pytest.raises((RuntimeError, TypeError)):
        mix(there)


def test_what_is_allowed(there):
    rows = torch.tensor([1, 0])
    for result in (there * torch.tensor(2.0), there[rows], there + 1, there.new_zeros(3)):
        assert isinstance(result, SimTensor) and result.device == there.device
    torch.ones(2, 3).copy_(there)
    assert len(torch.arange(4, device=there.device)) == 4


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: float(x[0, 0]),
        lambda x: bool((x > 0).any()),
        lambda x: x.cpu(),
        lambda x: x.tolist(),
        lambda x: x.nonzero(),
        lambda x: x[x > 1],
        lambda x: torch.equal(x, x),
        lambda x: torch.bincount(x[0].long()),
        lambda x: torch.ones(2, 3).copy_(x),
    ],
)
def test_waits_are_counted(wait, there):
    wait(there)
    assert COSTS.synchronisations == 1


def test_what_stays_there_costs_nothing(there):
    (there @ there.mT).softmax(dim=1).sum().sqrt()
    there[:, 1:].add_(1)
    assert COSTS.synchronisations == COSTS.to_device == len(COSTS.to_host) == 0
    there.cpu()
    torch.ones(3).to(there.device)
    assert COSTS.to_host == [(2, 3)] and COSTS.to_device == 1
