"""Fitting a `KSCN`: what each setting does, what is recorded, what repeats."""

import gc
from functools import partial

import numpy as np
import pytest
import short
import torch
from sklearn.datasets import load_digits
from torch import nn

from kscn import KSCNPlus
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn.nn import ConvAutoencoder, DenseAutoencoder
from kscn.runtime.lazy import Lazy
from kscn.runtime.rows import generator
from kscn.subspaces import principal_angles

N = 120
DIGITS = load_digits().images
pytestmark = pytest.mark.filterwarnings("ignore:.*clusters ended up empty")


def digits(n=N):
    return DIGITS[:n].astype(np.float32)


quick = short.kscn


def dense(**params):
    return quick(**{"autoencoder_params": {"hidden": [16], "latent_dim": 5}} | params)


class Same(nn.Module):
    """Latents that are the samples themselves, but for the scaling of the input."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def encode(self, x):
        return x * self.scale

    def decode(self, z):
        return z / self.scale


def union(n=150, noise=0.02):
    return make_union_of_subspaces(n, 3, 8, 2, noise=noise, random_state=0)[:2]


def state(model):
    return torch.cat([tensor.double().flatten() for tensor in model.state_dict().values()])


def stages(model):
    return [record["stage"] for record in model.history_]


# Equality -----------------------------------------------------------------------------------------


def plain_autoencoder(seed):
    """The layers of `quick`, in torch alone."""
    torch.manual_seed(seed)
    down = [nn.Conv2d(1, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 4, 3, 2, 1), nn.ReLU()]
    up = [
        nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 1, 3, 2, 1, output_padding=1),
    ]
    return nn.Sequential(*down, *up)


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_without_weight_the_network_is_a_plain_autoencoder(update):
    X = digits()
    model = quick(weight=0.0, pretrain_epochs=2, epochs=3, tol=0.0, random_state=5, update=update)
    model.fit(X)
    assert model.n_iter_ >= 1

    images = torch.from_numpy(X / X.max())[:, None]
    network = plain_autoencoder(5)
    # Two stages, each with an optimiser of its own.
    for stage, epochs in (("pretraining", 2), ("the alternation", model.n_iter_)):
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
        for epoch in range(epochs):
            order = generator(5, "order", stage, epoch)
            for rows in torch.randperm(N, generator=order).split(32):
                loss = (network(images[rows]) - images[rows]).square().sum() / len(rows)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    torch.testing.assert_close(state(model.autoencoder_), state(network), rtol=1e-4, atol=1e-6)


def test_dropout_in_a_module_of_your_own_follows_the_seed():
    class Dropping(DenseAutoencoder):
        def encode(self, x):
            return torch.nn.functional.dropout(super().encode(x), 0.5, self.training)

    X = digits().reshape(N, 64)
    torch.manual_seed(0)
    module = Dropping(64, [16], 5)
    labels = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        labels.append(quick(autoencoder=module, autoencoder_params=None).fit(X).labels_)
    np.testing.assert_array_equal(*labels)


# The model ----------------------------------------------------------------------------------------


def test_attributes_have_the_promised_shapes():
    X = digits()
    model = quick(subspace_dim=[1, 3, 2]).fit(X)
    assert model.subspaces_.shape == (3, 16, 3)
    assert sorted(model.subspace_dims_) == [1, 2, 3]
    for basis, p in zip(model.subspaces_, model.subspace_dims_, strict=True):
        gram = basis.T @ basis
        np.testing.assert_allclose(gram, np.diag(np.arange(3) < p).astype(float), atol=1e-5)
    assert model.n_features_in_ == 64
    assert model.n_iter_ == 1
    assert isinstance(model.autoencoder_, ConvAutoencoder)
    assert not model.autoencoder_.training
    distance = model.residuals(X).min(axis=1)
    assert model.inertia_ == pytest.approx(distance.astype(np.float64).sum(), rel=1e-5)
    freedom = (16 - model.subspace_dims_[model.labels_]).sum()
    assert model.noise_variance_ == pytest.approx(model.inertia_ / freedom)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((12, 12), ConvAutoencoder), ((3, 9, 14), ConvAutoencoder), ((20,), DenseAutoencoder)],
)
def test_the_network_fits_the_samples(shape, kind):
    X = np.random.default_rng(0).random((40, *shape))
    params = {"hidden": [9], "latent_dim": 4} if kind is DenseAutoencoder else None
    model = quick(autoencoder_params=params, subspace_dim=1).fit(X)
    assert type(model.autoencoder_) is kind
    assert model.reconstruct(X).shape == X.shape
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_weight_pulls_latents_to_their_subspaces():
    X = digits()
    ends = [
        quick(weight=weight, epochs=8, learning_rate=5e-3, tol=0.0).fit(X).history_[-1]["objective"]
        for weight in (0.0, 10.0)
    ]
    assert ends[1] < 0.5 * ends[0]


def test_whitened_latents_have_unit_norm_and_at_most_the_asked_dimensions():
    X = digits()
    model = quick(latent="whitened", latent_dim=5).fit(X)
    z = model.transform(X)
    assert z.shape == (N, 5)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, rtol=1e-5)
    assert quick(latent="whitened", latent_dim=99).fit(X).transform(X).shape[1] <= 16


# Starts -------------------------------------------------------------------------------------------


def thirds(latents, n_clusters, random_state):
    """A start by a function: three stretches of the samples that it is given."""
    assert (n_clusters, random_state) == (3, 0)
    return np.arange(len(latents)) * 3 // len(latents)


@pytest.mark.parametrize("init", ["k-subspaces", "scattering", "k-means", thirds, "labels"])
@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_every_start_with_every_update(init, update):
    X = digits(90)
    given = np.arange(90) % 3 if isinstance(init, str) and init == "labels" else init
    model = quick(init=given, update=update).fit(X)
    assert len(model.labels_) == 90
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_a_start_in_scattering_coefficients_has_room_for_large_subspaces():
    images = np.random.default_rng(0).random((120, 16, 16)).astype(np.float32)
    wide = {"channels": [16, 32], "kernels": [3, 3]}
    more = {"latent": "whitened", "latent_dim": 110, "init_dim": 90, "subspace_dim": 3}
    model = quick(init="scattering", autoencoder_params=wide, **more).fit(images)
    np.testing.assert_array_equal(model.predict(images), model.labels_)


@pytest.mark.parametrize("init", ["k-subspaces", "neighbours", "labels"])
@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_subspaces_that_are_there_are_found(init, update):
    X, y = union()
    X = np.concatenate([X, -X])  # a mean of zero, so that scaling moves no subspace
    y = np.concatenate([y, y])
    model = quick(
        init=y if init == "labels" else init,
        autoencoder=Same(),
        autoencoder_params=None,
        update=update,
        learning_rate=1e-6,
        n_init=3,
    ).fit(X)
    assert clustering_accuracy(y, model.labels_) == 1
    assert isinstance(model.subspaces_, np.ndarray)


def test_a_start_of_labels_is_taken_as_it_is_given():
    X, y = union()
    X, y = np.concatenate([X, -X]), np.concatenate([y, y])
    params = {"autoencoder": Same(), "autoencoder_params": None, "epochs": 0, "pretrain_epochs": 0}
    model = quick(init=y.tolist(), **params).fit(X)
    scaled = X / np.sqrt((X.astype(np.float64) ** 2).mean())
    for i in range(3):
        members = scaled[model.labels_ == i]
        expected = np.linalg.svd(members.T)[0][:, :2]
        angle = principal_angles(
            torch.from_numpy(model.subspaces_[i]), torch.from_numpy(expected.astype(np.float64))
        )
        assert float(angle.max()) < 1e-3
    assert model.n_iter_ == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("make", [quick, partial(KSCNPlus, 3, refine=True, epochs=1, starts=1)])
def test_a_fit_learns_also_where_the_caller_wants_no_gradients(make, mode):
    X = digits()
    with mode():
        inside = make(random_state=0).fit(X)
        assert not torch.is_grad_enabled()
    np.testing.assert_array_equal(inside.labels_, make(random_state=0).fit(X).labels_)


# History and callbacks ----------------------------------------------------------------------------


def test_one_record_per_epoch_of_each_stage_with_what_was_promised():
    model = quick(pretrain_epochs=2, epochs=3, tol=0.0, n_init=2).fit(digits())
    assert list(dict.fromkeys(stages(model))) == ["pretrain", "search", "start", "fit"]
    pretraining = [r for r in model.history_ if r["stage"] == "pretrain"]
    fitting = [r for r in model.history_ if r["stage"] == "fit"]
    assert [(r["epoch"], r["epochs"]) for r in pretraining] == [(1, 2), (2, 2)]
    assert [r["epoch"] for r in fitting] == list(range(1, model.n_iter_ + 1))
    promised = {
        "epoch", "epochs", "reconstruction", "subspace", "objective", "changed", "sizes", "angle",
        "relative", "seconds",
    }  # fmt: skip
    for record in fitting:
        assert promised <= record.keys()
        assert sum(record["sizes"]) == N
        assert np.isfinite([record[name] for name in promised - {"sizes"}]).all()
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)
    assert fitting[-1]["objective"] == pytest.approx(model.inertia_, rel=1e-5)


def test_the_fit_ends_when_no_more_than_the_tolerance_changes():
    X = digits()
    model = quick(epochs=30, tol=1.0).fit(X)
    assert model.n_iter_ == 1
    model = quick(epochs=30, tol=0.05).fit(X)
    changed = [r["changed"] for r in model.history_ if r["stage"] == "fit"]
    assert changed[-1] <= 0.05 or model.n_iter_ == 30
    assert all(share > 0.05 for share in changed[:-1])


def test_no_epochs_at_all_cluster_the_untrained_latents():
    model = quick(pretrain_epochs=0, epochs=0).fit(digits())
    assert model.n_iter_ == 0
    assert set(stages(model)) <= {"search", "start"}
    torch.manual_seed(0)
    fresh = ConvAutoencoder((1, 8, 8), [6, 4], [3, 3])
    assert torch.equal(state(model.autoencoder_), state(fresh))


# Modules of your own ------------------------------------------------------------------------------


class Own(nn.Module):
    """Convolution with BatchNorm down to a vector, and back."""

    def __init__(self, width=5):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, width)
        )
        self.norm = nn.BatchNorm1d(width)
        self.up = nn.Linear(width, 64)

    def encode(self, images):
        return self.norm(self.down(images))

    def decode(self, latent):
        return self.up(latent).unflatten(1, (1, 8, 8))


def own():
    torch.manual_seed(0)
    return Own()


def test_a_module_of_your_own_is_copied_and_left_as_it_was():
    X, module = digits(), own()
    before = state(module)
    model = quick(autoencoder=module, autoencoder_params=None).fit(X)
    assert model.autoencoder is module
    assert model.autoencoder_ is not module
    assert torch.equal(state(module), before)
    assert not torch.equal(state(model.autoencoder_), before)
    assert module.training
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    first = model.labels_
    np.testing.assert_array_equal(model.fit(X).labels_, first)


@pytest.mark.parametrize("n", [33, 65, 97])
def test_batch_norm_survives_a_last_sample_alone(n):
    X = digits(n)
    model = quick(autoencoder=own(), autoencoder_params=None).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


# Warm start ---------------------------------------------------------------------------------------


def test_the_network_of_a_fitted_model_is_where_a_fit_can_begin():
    X = digits()
    first = quick(pretrain_epochs=2).fit(X)
    again = {"autoencoder": first.autoencoder_, "autoencoder_params": None, "epochs": 0}
    warm = quick(pretrain_epochs=0, random_state=9, **again).fit(X)
    assert torch.equal(state(warm.autoencoder_), state(first.autoencoder_))
    np.testing.assert_array_equal(warm.reconstruct(X), first.reconstruct(X))
    more = quick(pretrain_epochs=1, **again).fit(X)
    assert not torch.equal(state(more.autoencoder_), state(first.autoencoder_))
    losses = [model.history_[0]["reconstruction"] for model in (first, more)]
    assert losses[1] < losses[0]


# Memory -------------------------------------------------------------------------------------------


def test_latents_that_are_done_with_are_given_back_at_once():
    """Millions of them are a gigabyte; a cycle of references would hold it for the whole fit."""
    alive = []

    def tell(_, record):
        if record["stage"] == "fit":
            alive.append(sum(isinstance(one, Lazy) for one in gc.get_objects()))

    X = np.random.default_rng(0).random((60, 8, 8))
    gc.collect()
    gc.disable()
    try:
        quick(epochs=3, tol=0.0, callbacks=[tell]).fit(X)
        assert alive == [0, 0, 0]
    finally:
        gc.enable()
