"""Epochs of training: the same steps as a loop written by hand, and a stop at nonsense."""

import pytest
import torch
from torch import nn
from trainers import dense, new_run, trainer

from kscn.errors import TrainingError
from kscn.nn import DenseAutoencoder, WhitenedLatent
from kscn.runtime.rows import generator
from kscn.subspaces import Subspaces
from kscn.training.losses import LossOptions, residual_loss, squared_error
from kscn.training.pretrain import pretrain


def samples(n=50, d=6):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0))


def weights(network):
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def epoch(given, number=0, subspaces=None, weight=0.0):
    """One epoch of the paper's losses, and their means."""
    for batch in given.epoch(number):
        restored, z = given.wrapped(batch.seen)
        l_ae = squared_error(restored, batch.clean, batch.samples)
        l_ksc = l_ae.new_zeros(())
        if subspaces is not None:
            l_ksc = residual_loss(z, subspaces, torch.zeros(0), batch.samples, LossOptions())
        given.step(batch, l_ae + weight * l_ksc, reconstruction=l_ae, subspace=l_ksc)
    return given.losses().values()


def test_pretraining_equals_a_loop_of_plain_torch():
    network, twin = dense(), dense()
    assert torch.equal(weights(network), weights(twin))
    run = new_run()
    pretrain(trainer(network, samples(), run), 3, run)
    found = [record["reconstruction"] for record in run.history]

    X, optimizer, expected = samples(), torch.optim.Adam(twin.parameters(), lr=1e-2), []
    for number in range(3):
        total, order = 0.0, generator(run.seed, "order", "pretraining", number)
        for rows in torch.randperm(50, generator=order).split(16):
            loss = (twin.decoder(twin.encoder(X[rows])) - X[rows]).square().sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        expected.append(total / 50)
    torch.testing.assert_close(weights(network), weights(twin), rtol=1e-4, atol=1e-6)
    assert found == pytest.approx(expected, rel=1e-5)
    assert found[2] < found[0]


def test_a_callback_may_end_the_pretraining():
    run = new_run(on_record=lambda record: record["epoch"] == 2)
    pretrain(trainer(dense(), samples(), run), 3, run)
    assert [record["epoch"] for record in run.history] == [1, 2]


def test_reported_losses_are_means_over_all_samples():
    network, X = dense(), samples()
    subspaces = Subspaces(torch.linalg.qr(samples(3, 6).view(2, 3, 3)[:, :, :1]).Q)
    # A step size of zero: every batch sees the same network.
    reconstruction, subspace = epoch(trainer(network, X, learning_rate=0.0), 0, subspaces, 0.5)
    with torch.no_grad():
        codes = network.encode(X)
        restored = network.decode(codes)
    assert reconstruction == pytest.approx(float((restored - X).square().sum() / 50), rel=1e-5)
    assert subspace == pytest.approx(float(subspaces.assign(codes)[1].mean()), rel=1e-4)


def test_the_subspace_loss_pulls_by_its_weight_and_not_at_all_at_zero():
    subspaces = Subspaces(torch.eye(3)[None, :, :1])
    ends = {}
    for weight in (None, 0.0, 0.1, 10.0):
        network = dense()
        given = trainer(network, samples())
        for number in range(5):
            epoch(given, number, None if weight is None else subspaces, weight or 0.0)
        with torch.no_grad():
            codes = network.encode(samples())
        ends[weight] = weights(network), float(subspaces.assign(codes)[1].mean())
    assert torch.equal(ends[None][0], ends[0.0][0])
    assert ends[10.0][1] < ends[0.1][1] < ends[0.0][1]


def test_the_latent_map_is_trained_with_the_network():
    latent = WhitenedLatent(3, 2)
    before = weights(latent)
    given = trainer(dense(), samples(), latent=latent)
    epoch(given)
    assert torch.equal(weights(latent), before)
    epoch(given, 1, Subspaces(torch.eye(2)[None, :, :1]), 1.0)
    assert not torch.equal(weights(latent), before)


def test_augmented_samples_go_in_and_clean_ones_are_to_come_out():
    network, X = dense(), samples()
    blind = trainer(network, X, learning_rate=0.0, augment=lambda x, _: torch.zeros_like(x))
    found, _ = epoch(blind)
    with torch.no_grad():
        restored = network.decode(network.encode(torch.zeros(1, 6)))
    assert found == pytest.approx(float((restored - X).square().sum(dim=1).mean()), rel=1e-5)


# Draws --------------------------------------------------------------------------------------------


def draws(given, number, before=()):
    """What is drawn in an epoch: the order, the augmentation, and by a layer; `before` comes."""
    for other in before:
        epoch(given, other)
    torch.manual_seed(len(before))  # the user's own generator means nothing
    found = []
    for batch in given.epoch(number):
        found += [batch.rows.clone(), batch.seen.clone(), torch.rand(4)]
        given.step(batch, sum(p.sum() for p in given.network.parameters()))
    return found


def noisy(seed=7, stage="pretraining"):
    def augment(x, generator):
        return x + torch.randn(x.shape, generator=generator)

    return trainer(dense(), samples(), new_run(seed), stage=stage, augment=augment)


def test_draws_are_a_function_of_seed_stage_epoch_and_step():
    here = draws(noisy(), 2)
    after = draws(noisy(), 2, before=(0, 1, 5))
    assert all(torch.equal(a, b) for a, b in zip(here, after, strict=True))
    assert len({tuple(drawn.flatten().tolist()) for drawn in here}) == len(here)
    for other in (draws(noisy(8), 2), draws(noisy(stage="another"), 2), draws(noisy(), 3)):
        assert not any(torch.equal(a, b) for a, b in zip(here, other, strict=True))


def test_the_generator_of_the_user_stays_as_it_was():
    network = dense()
    network.encoder = nn.Sequential(nn.Dropout(0.5), *network.encoder)
    given, before = trainer(network, samples()), torch.random.get_rng_state()
    epoch(given)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_cycle_warms_up_and_comes_down_to_nothing():
    given = trainer(dense(), samples(), schedule="one-cycle", epochs=5)
    rates = []
    given.optimizer.register_step_post_hook(
        lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])
    )
    for number in range(5):
        epoch(given, number)
    assert len(rates) == 20
    assert max(rates) == pytest.approx(1e-2, rel=0.02)
    assert rates[0] < 1e-3
    assert rates[-1] < 1e-4
    assert rates.index(max(rates)) in range(3, 9)


@pytest.mark.parametrize("average", [None, 0.9])
@pytest.mark.parametrize("schedule", ["constant", "one-cycle"])
def test_training_goes_on_from_a_state_to_the_same_weights(average, schedule):
    def new():
        return trainer(dense(), samples(), schedule=schedule, average=average, epochs=4)

    whole, first, second = new(), new(), new()
    for number in range(4):
        epoch(whole, number)
    for number in range(2):
        epoch(first, number)
    second.network.load_state_dict(first.network.state_dict())
    second.load_state_dict(first.state_dict())
    for number in range(2, 4):
        epoch(second, number)
    assert torch.equal(weights(second.network), weights(whole.network))
    assert torch.equal(weights(second.encoding), weights(whole.encoding))


class Failing(DenseAutoencoder):
    """Restores `value` from the given call on."""

    def __init__(self, call, value):
        super().__init__(6, [8], 3)
        self.calls, self.call, self.value = 0, call, value

    def decode(self, latent):
        self.calls += 1
        return super().decode(latent) + (self.value if self.calls >= self.call else 0.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_said_with_its_epoch(value):
    given = trainer(Failing(4 + 3, value), samples())  # four batches in an epoch
    epoch(given)
    with pytest.raises(TrainingError, match="epoch 2 of pretraining; lower learning_rate"):
        epoch(given, 1)
