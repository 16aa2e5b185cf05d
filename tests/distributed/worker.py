"""What every process of `test_equality.py` does; `everything` by itself is one process.

torchrun --nproc-per-node=2 worker.py RESULT.npz
"""

import shutil
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist

from kscn import KSCN, KSCNPlus, KSubspaces, data
from kscn.data import as_source
from kscn.errors import InputError
from kscn.estimators.defaults import OPEN
from kscn.features import Votes
from kscn.nn import ConvAutoencoder, DeepNetwork, InputScaling, WhitenedLatent
from kscn.runtime.group import current_group
from kscn.runtime.minibatches import Minibatches
from kscn.subspaces import Subspaces
from kscn.training.driver import Run
from kscn.training.losses import LossOptions, residual_loss, separation_loss, squared_error
from kscn.training.trainer import Trainer

found = {}
SHARED = {
    "subspace_dim": 2,
    "autoencoder_params": {"channels": [8, 4], "kernels": [3, 3], "batch_norm": True},
    "pretrain_epochs": 8,
    "epochs": 3,
    "n_init": 2,
    "batch_size": 60,
    "learning_rate": 3e-3,
}


def linear():
    """k-subspaces from the same start, with and without its options."""
    samples = data.make_union_of_subspaces(401, 4, 12, 3, noise=0.3, random_state=0)[0]
    weights = np.random.default_rng(1).uniform(0.5, 2, len(samples))
    labels = np.arange(len(samples)) % 4
    cases = {
        "plain": {},
        "trim": {"trim": 0.1},
        "affine": {"affine": True},
        "auto": {"subspace_dim": "auto"},
        "labels": {"init": labels},
        "wide": {},
    }
    # So many columns that updates are rough at first.
    many = data.make_union_of_subspaces(401, 4, 300, 3, noise=0.1, random_state=0)[0]
    for name, settings in cases.items():
        model = KSubspaces(
            4, **{"subspace_dim": 3, "n_init": 1, "tol": 0.0, "random_state": 0} | settings
        ).fit(
            many if name == "wide" else samples,
            sample_weight=weights if name == "plain" else None,
        )
        found[f"{name}.bases"], found[f"{name}.labels"] = model.subspaces_, model.labels_
        found[f"{name}.inertia"] = model.inertia_


def images():
    """Separable images, sorted by class, so that processes see different ones."""
    rng = np.random.default_rng(0)
    patterns = np.zeros((4, 2, 8, 8))
    for i, (row, column) in enumerate(np.ndindex(2, 2)):  # a quarter of the image each
        patterns[i, :, 4 * row :, 4 * column :][:, :4, :4] = rng.uniform(0, 1, (2, 4, 4))
    true = np.repeat(np.arange(4), 100)
    samples = np.einsum("nj,njhw->nhw", rng.uniform(0.2, 1, (400, 2)), patterns[true])
    samples = samples + 0.02 * rng.standard_normal(samples.shape)
    return samples.astype(np.float32), true


def deep():
    """Network and subspaces together, in four variants."""
    samples, found["true"] = images()
    cases = {
        "separation": {"latent": "whitened", "latent_dim": 8, "loss": "separation", "balance": 1.0},
        "grassmann": {"update": "grassmann", "trim": 0.0, "init": "k-means"},
        "scattering": {"init": "scattering"},
        "svd": {},
    }
    for name, settings in cases.items():
        model = KSCN(4, random_state=0, **OPEN | SHARED | settings).fit(samples)
        np.testing.assert_array_equal(model.predict(samples), model.labels_)
        found[f"{name}.labels"], found[f"{name}.bases"] = model.labels_, model.subspaces_
        weights = torch.cat(
            [w.double().flatten() for w in model.autoencoder_.state_dict().values()]
        )
        found[f"{name}.weights"] = current_group().gather(weights[None]).numpy()


class Killed(BaseException):
    """What a callback raises in place of a kill."""


def killed():
    """The last of them again, killed in both stages, in all processes."""
    group = current_group()
    folder = group.shared(tempfile.mkdtemp() if group.rank == 0 else None)
    kills = 0
    for stage, epoch in (("pretrain", 3), ("pretrain", 8), ("fit", 1), (None, None)):

        def kill(_, record, at=(stage, epoch)):
            if (record["stage"], record.get("epoch")) == at:
                raise Killed

        settings = {"checkpoint_dir": folder, "callbacks": [kill]}
        model = KSCN(4, random_state=0, **OPEN | SHARED | settings)
        try:
            model.fit(images()[0])
        except Killed:
            kills += 1
    found["killed.labels"], found["kills"] = model.labels_, kills
    if group.rank == 0:
        shutil.rmtree(folder)


def steps():
    """Steps on all samples at once, with and without a loss of the mini-batch as a whole."""
    samples, _ = images()
    group = current_group()
    batches = Minibatches(
        group.part(as_source(samples[:, None])),
        InputScaling(),
        (1, 8, 8),
        group.batch_size(len(samples)),
        torch.device("cpu"),
    )
    torch.manual_seed(0)
    network = ConvAutoencoder((1, 8, 8), [4, 3], [3, 3])  # without BatchNorm
    network.unused = torch.nn.Linear(2, 2)
    latent = WhitenedLatent(network.latent_dim, 6)
    trainer = Trainer(
        DeepNetwork(network, latent),
        batches,
        Run(0, torch.device("cpu"), group),
        "a test",
        epochs=4,
        learning_rate=1e-3,
        schedule="constant",
        augment=None,
    )
    subspaces = Subspaces(torch.linalg.qr(torch.randn(4, 6, 2)).Q)
    targets = torch.arange(len(samples)) % 5 - 1
    about = LossOptions(0.5, 1.0, group=group)
    weights = ((residual_loss, 0.0), (residual_loss, 1.0), *2 * ((separation_loss, 10.0),))
    for epoch, (loss, weight) in enumerate(weights):
        for batch in trainer.epoch(epoch):
            restored, z = trainer.wrapped(batch.seen)
            error = squared_error(restored, batch.clean, batch.samples)
            own = loss(z, subspaces, targets[batch.rows], batch.samples, about)
            trainer.step(batch, error + weight * own, reconstruction=error, subspace=own)
    found["steps.losses"] = np.array(list(trainer.losses().values()))
    weights = [p.detach().flatten() for p in [*network.parameters(), *latent.parameters()]]
    found["steps.weights"] = torch.cat(weights).numpy()


def plus():
    """The same images refined."""
    samples, _ = images()
    settings = {"starts": 1, "batch_size": 60}
    model = KSCNPlus(4, epochs=5, refine=True, random_state=0, **settings).fit(samples)
    np.testing.assert_array_equal(model.predict(samples), model.labels_)
    found["plus.start"], found["plus.labels"] = model.start_labels_, model.labels_
    weights = torch.cat([w.double().flatten() for w in model.encoder_.state_dict().values()])
    found["plus.weights"] = current_group().gather(weights[None]).numpy()


def noise():
    """Noise, whose clusters no subspaces describe: votes of its samples carry them on."""
    samples = np.random.default_rng(0).standard_normal((101, 8, 8))
    model = KSCNPlus(4, starts=1, batch_size=60, random_state=0).fit(samples)
    assert isinstance(model.features_[-1], Votes)
    found["noise.labels"], found["noise.bases"] = model.labels_, model.subspaces_


def refusals():
    """What cannot be shared out is refused in all processes alike."""
    for call in (
        lambda: KSubspaces(1, subspace_dim=1).fit(np.eye(current_group().size - 1, 3)),
        lambda: KSCN(2, subspace_dim=1, batch_size=3).fit(np.random.rand(20, 6)),
        lambda: KSCNPlus(2, batch_size=3).fit(np.random.rand(20, 6, 6)),
    ):
        try:
            call()
        except InputError as error:
            found.setdefault("refused", []).append(str(error))


def everything():
    """What this process finds, alone or with others."""
    found.clear()
    linear()
    deep()
    killed()
    steps()
    noise()
    plus()
    if current_group().size > 1:
        refusals()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = everything()
    if current_group().rank == 0:
        np.savez(sys.argv[1], **results)
    dist.destroy_process_group()
