"""Epochs of training: the same steps as a loop written by hand, and a stop at nonsense."""

import pytest
import torch

from kscn.data import as_source
from kscn.errors import TrainingError
from kscn.nn import DenseAutoencoder, IdentityLatent, InputScaling, WhitenedLatent
from kscn.runtime.minibatches import Minibatches
from kscn.stages.losses import ResidualLoss
from kscn.stages.pretrain import Trainer, pretrain
from kscn.subspaces import Subspaces


def samples(n=50, d=6):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0))


def small_network(seed=0):
    torch.manual_seed(seed)
    return DenseAutoencoder(6, [8], 3)


def trainer(network, X=None, latent=None, **settings):
    X = samples() if X is None else X
    batches = Minibatches(
        as_source(X),
        InputScaling(),
        tuple(X.shape[1:]),
        settings.pop("batch_size", 16),
        torch.device("cpu"),
    )
    settings = {
        "epochs": 3,
        "learning_rate": 1e-2,
        "schedule": "constant",
        "generator": torch.Generator().manual_seed(7),
        "stage": "pretraining",
    } | settings
    return Trainer(network, latent or IdentityLatent(), batches, **settings)


def weights(network):
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def test_pretraining_equals_a_loop_of_plain_torch():
    network, twin = small_network(), small_network()
    assert torch.equal(weights(network), weights(twin))
    found = []
    pretrain(trainer(network), 3, lambda number, losses: found.append(losses.reconstruction))

    X, generator = samples(), torch.Generator().manual_seed(7)
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-2)
    expected = []
    for _ in range(3):
        total = 0.0
        for rows in torch.randperm(50, generator=generator).split(16):
            loss = (twin.decoder(twin.encoder(X[rows])) - X[rows]).square().sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        expected.append(total / 50)
    torch.testing.assert_close(weights(network), weights(twin), rtol=1e-4, atol=1e-6)
    assert found == pytest.approx(expected, rel=1e-5)
    assert found[2] < found[0]


def test_reported_losses_are_means_over_all_samples():
    network, X = small_network(), samples()
    subspaces = Subspaces(torch.linalg.qr(samples(3, 6).view(2, 3, 3)[:, :, :1]).Q)
    # A step size of zero: every batch sees the same network.
    done = trainer(network, learning_rate=0.0).epoch(ResidualLoss(subspaces), 0.5)
    with torch.no_grad():
        codes = network.encode(X)
        restored = network.decode(codes)
    assert done.reconstruction == pytest.approx(float((restored - X).square().sum() / 50), rel=1e-5)
    distance = subspaces.assign(codes)[1]
    assert done.subspace == pytest.approx(float(distance.mean()), rel=1e-4)


def test_the_subspace_loss_pulls_by_its_weight_and_not_at_all_at_zero():
    subspaces = Subspaces(torch.eye(3)[None, :, :1])
    ends = {}
    for weight in (None, 0.0, 0.1, 10.0):
        network = small_network()
        given = trainer(network)
        for _ in range(5):
            loss = None if weight is None else ResidualLoss(subspaces)
            given.epoch(loss, weight or 0.0)
        with torch.no_grad():
            codes = network.encode(samples())
        ends[weight] = weights(network), float(subspaces.assign(codes)[1].mean())
    assert torch.equal(ends[None][0], ends[0.0][0])
    assert ends[10.0][1] < ends[0.1][1] < ends[0.0][1]


def test_the_latent_map_is_trained_with_the_network():
    latent = WhitenedLatent(3, 2)
    before = weights(latent)
    given = trainer(small_network(), latent=latent)
    given.epoch()
    assert torch.equal(weights(latent), before)
    given.epoch(ResidualLoss(Subspaces(torch.eye(2)[None, :, :1])), 1.0)
    assert not torch.equal(weights(latent), before)


def test_augmented_samples_go_in_and_clean_ones_are_to_come_out():
    network, X = small_network(), samples()
    given = trainer(network, learning_rate=0.0, augment=lambda x, generator: torch.zeros_like(x))
    found = given.epoch().reconstruction
    with torch.no_grad():
        restored = network(torch.zeros(1, 6))
    assert found == pytest.approx(float((restored - X).square().sum(dim=1).mean()), rel=1e-5)


def test_the_cycle_warms_up_and_comes_down_to_nothing():
    given = trainer(small_network(), schedule="one-cycle", epochs=5)
    rates = []
    given.optimizer.register_step_post_hook(
        lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])
    )
    for _ in range(5):
        given.epoch()
    assert len(rates) == 20
    assert max(rates) == pytest.approx(1e-2, rel=0.02)
    assert rates[0] < 1e-3
    assert rates[-1] < 1e-4
    assert rates.index(max(rates)) in range(3, 9)


# Breakdown ----------------------------------------------------------------------------------------


class Failing(DenseAutoencoder):
    """Restores `value` from the given call on."""

    def __init__(self, call, value):
        super().__init__(6, [8], 3)
        self.calls, self.call, self.value = 0, call, value

    def decode(self, latent):
        self.calls += 1
        return super().decode(latent) + (self.value if self.calls >= self.call else 0.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_and_names_step_and_epoch(value):
    given = trainer(Failing(4 + 3, value))  # four batches in an epoch
    given.epoch()
    words = r"the loss became (nan|inf) in step 3 of epoch 2 of pretraining; lower learning_rate"
    with pytest.raises(TrainingError, match=words):
        given.epoch()
