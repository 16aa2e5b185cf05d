"""Deep subspace clustering networks (Ji et al., 2017): an autoencoder with self-expressed latents.

Also `dsc_labels`, the clustering alone, of latents that some other network made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.baselines.base import AffinityClusterer, Callbacks, check_positive_or_none
from kscn.baselines.cost import PASS, Cost
from kscn.baselines.spectral import (
    EMBEDDING,
    angular_affinity,
    keep_largest_dense,
    spectral_labels,
    symmetric_factors,
)
from kscn.data import Source
from kscn.errors import InputError, TrainingError
from kscn.estimators import network as networks
from kscn.estimators import validation as check
from kscn.nn import IdentityLatent, NoAugmentation
from kscn.nn.scaling import InputScaling
from kscn.training.device import placed, seeded
from kscn.training.minibatches import Minibatches
from kscn.training.pretrain import EpochLosses, Trainer, pretrain

# Of the dense autoencoder, unless told otherwise.
DENSE = {"hidden": (200,), "latent_dim": 50}
# n x n matrices alive in a step: codes, their gradient, two moments, and what they are made with.
MATRICES = 8


class DSCNet(AffinityClusterer):
    """Deep subspace clustering: samples are rebuilt from the latents of other samples.

    An autoencoder is trained by itself at first, then together with codes C between the latents Z
    of all samples,

        |X - decode(C Z)|^2 / 2 + code_weight |C|^2 + expression_weight / 2 |Z - C Z|^2

    with a zero diagonal of C, in steps over the whole data. The codes start at their best for the
    pretrained latents, which has a closed form, and not at zero. C holds n^2 numbers, of which a
    step needs eight copies: 0.13 GB for 2,000 samples, 3.2 GB for 10,000.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    subspace_dim : int, default=9
        Dimension of the subspaces; the codes' affinity has rank `n_clusters * subspace_dim + 1`.
    autoencoder : {"auto", "cae", "sae"} or torch.nn.Module, default="auto"
        "auto" is the convolutional one for images (n, h, w) or (n, c, h, w), the dense one for
        vectors (n, d). A module needs encode and decode, and is copied.
    autoencoder_params : mapping or None, default=None
        Arguments of it, such as {"channels": (20, 10, 5), "kernels": (5, 3, 3)}. None gives the
        dense one a hidden layer of 200 and a latent of 50: one that is shorter than all subspaces
        together cannot keep them apart.
    expression_weight : float, default=0.1
        Weight of the error of self-expression.
    code_weight : float or None, default=None
        Weight of the size of the codes; None takes expression_weight / 2 times the mean square of
        the singular values of the pretrained latents, so that it does not depend on their scale.
    keep : float, default=0.4
        Share of the l1 norm of each code whose largest entries go into the affinity.
    power : float, default=8.0
        Affinity is max(0, cosine)^power between rows of the codes' factors.
    pretrain_epochs : int, default=40
        Epochs of the autoencoder by itself, in batches.
    epochs : int, default=30
        Steps of autoencoder and codes together.
    batch_size : int, default=256
        Samples per step of pretraining.
    learning_rate : float, default=1e-3
        Of Adam, for the networks.
    code_learning_rate : float, default=1e-4
        Of Adam, for the codes.
    max_samples : int, default=12000
        More samples are refused: memory and time grow with their square.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything. The one used is recorded in `random_state_`.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        ends the stage (pretraining or training) that it is called in.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of every sample. Clusters are numbered by falling size.
    affinity_ : ndarray of shape (n, n)
    autoencoder_ : torch.nn.Module
        With `encode` and `decode`, for samples scaled by `scaling_`.
    scaling_ : torch.nn.Module
        From samples to what the autoencoder takes.
    code_weight_ : float
        The weight used.
    n_iter_ : int
        Joint steps.
    history_ : list of dict
        The price, one record per epoch of both stages, the start of spectral clustering.
    random_state_, n_features_in_ : int
        The seed used, the number of features.
    """

    _integers: ClassVar = {
        "subspace_dim": 1,
        "pretrain_epochs": 0,
        "epochs": 0,
        "batch_size": 1,
    }
    _numbers: ClassVar = {
        "expression_weight": (1e-12, np.inf),
        "keep": (1e-6, 1.0000001),
        "power": (1e-6, np.inf),
        "learning_rate": (0, np.inf),
        "code_learning_rate": (0, np.inf),
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        subspace_dim: int = 9,
        autoencoder: str | nn.Module = "auto",
        autoencoder_params: Mapping[str, Any] | None = None,
        expression_weight: float = 0.1,
        code_weight: float | None = None,
        keep: float = 0.4,
        power: float = 8.0,
        pretrain_epochs: int = 40,
        epochs: int = 30,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        code_learning_rate: float = 1e-4,
        max_samples: int = 12_000,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Callbacks = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.subspace_dim = subspace_dim
        self.autoencoder = autoencoder
        self.autoencoder_params = autoencoder_params
        self.expression_weight = expression_weight
        self.code_weight = code_weight
        self.keep = keep
        self.power = power
        self.pretrain_epochs = pretrain_epochs
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.code_learning_rate = code_learning_rate
        self.max_samples = max_samples
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    def _cost(self, n: int, d: int, itemsize: int) -> Cost:
        network = 3e3 * d * n  # operations of an epoch, by far the most of them in convolutions
        step = network + n**2 * (8 * 100 + 20 * PASS)
        total = self.pretrain_epochs * network + self.epochs * step + n**2 * EMBEDDING
        return Cost(MATRICES * 4.0 * n**2, total)

    def _check_settings(self, n: int) -> None:
        super()._check_settings(n)
        check_positive_or_none("code_weight", self.code_weight)

    def _make_affinity(self, source: Source) -> NDArray:
        device = check.device(self.device)
        network, shape = self._network(source.shape)
        self.autoencoder_ = placed(network, device)
        self.scaling_ = InputScaling.of(source, image=len(source.shape) > 1).to(device)
        batches = Minibatches(source, self.scaling_, shape, self.batch_size, device)
        trainer = Trainer(
            network,
            IdentityLatent(),
            batches,
            epochs=self.pretrain_epochs,
            learning_rate=self.learning_rate,
            schedule="constant",
            augment=NoAugmentation(),
            generator=torch.Generator().manual_seed(self.random_state_),
            stage="pretraining",
        )
        pretrain(trainer, self.pretrain_epochs, self._on_pretraining)
        z = batches.read(0, len(source))
        if (z == z[0]).all():
            raise InputError(
                f"All {len(z)} sample(s) of {source.name} are equal; there is nothing to cluster."
            )
        codes = self._train_codes(network, z)
        return code_affinity(
            codes,
            rank=self.n_clusters * self.subspace_dim + 1,
            keep=self.keep,
            power=self.power,
            seed=self.random_state_,
        )

    def _network(self, shape: tuple[int, ...]) -> tuple[nn.Module, tuple[int, ...]]:
        """The autoencoder, and the shape of a sample as it takes it."""
        params = self.autoencoder_params
        dense = self.autoencoder == "sae" or (self.autoencoder == "auto" and len(shape) == 1)
        if params is None and dense:
            params = DENSE
        with seeded(self.random_state_):  # layers draw their weights from the global one
            network = networks.build(self.autoencoder, params, shape)
        taken = networks.input_shape(network, shape)
        networks.checked_run(network, torch.zeros(1, *taken))
        return network, taken

    def _on_pretraining(self, epoch: int, losses: EpochLosses) -> bool:
        return self._record(
            {
                "stage": "pretrain",
                "epoch": epoch,
                "epochs": self.pretrain_epochs,
                "reconstruction": losses.reconstruction,
            }
        )

    def _train_codes(self, network: Any, z: Tensor) -> Tensor:
        """The second stage: networks and codes (n, n) together."""
        weight = self.expression_weight
        with torch.no_grad():
            latent = network.encode(z)
            scale = mean_energy(latent)
            given = self.code_weight
            self.code_weight_ = weight / 2 * scale if given is None else float(given)
            # The value at which code_weight |C|^2 + weight / 2 |Z - C Z|^2 is least.
            codes = ridge_codes(latent, 2 * self.code_weight_ / weight)
        codes.requires_grad_()
        groups = [
            {"params": list(network.parameters()), "lr": self.learning_rate},
            {"params": [codes], "lr": self.code_learning_rate},
        ]
        optimizer = torch.optim.Adam(groups)
        self.n_iter_ = 0
        for epoch in range(1, self.epochs + 1):
            latent = network.encode(z)
            expressed = codes @ latent
            rebuilt = (network.decode(expressed) - z).square().sum() / 2
            size = codes.square().sum()
            error = (latent - expressed).square().sum() / 2
            loss = rebuilt + self.code_weight_ * size + weight * error
            if not loss.isfinite():
                raise TrainingError(
                    f"the loss became {loss.item()} in epoch {epoch} of training; lower "
                    "learning_rate or code_learning_rate and fit again."
                )
            optimizer.zero_grad()
            loss.backward()
            # Zero at the start, and a gradient of zero leaves it there: no sample uses itself.
            assert codes.grad is not None
            codes.grad.fill_diagonal_(0)
            optimizer.step()
            self.n_iter_ = epoch
            if self._record(
                {
                    "stage": "train",
                    "epoch": epoch,
                    "epochs": self.epochs,
                    "objective": loss.item(),
                    "reconstruction": rebuilt.item(),
                    "expression": error.item(),
                    "code_size": size.item(),
                }
            ):
                break
        return codes.detach()


def dsc_labels(
    latents: Tensor,
    n_clusters: int,
    subspace_dim: int = 9,
    *,
    ridge: float = 1.0,
    keep: float = 0.4,
    power: float = 8.0,
    random_state: int = 0,
) -> NDArray:
    """Cluster latents by self-expression, as DSC-Net does once its network is trained.

    Takes n^2 d operations for codes in closed form, and an n x n matrix: for a few thousand.

    Parameters
    ----------
    latents : Tensor, shape (n, d)
        What to cluster, as it is: bring it to unit norm first where length means nothing.
    n_clusters, subspace_dim : int
        Number and dimension of the subspaces.
    ridge : float
        Weight of the codes' size, in units of the mean square of the latents' singular values.
    keep, power
        As for `DSCNet`.
    random_state : int
        Seed of spectral clustering.

    Returns
    -------
    labels : ndarray of int, shape (n,)
        Clusters are numbered by falling size.
    """
    if not latents.isfinite().all():
        raise InputError("latents contain NaN or infinity; lower the network's learning rate.")
    if not n_clusters <= len(latents):
        raise InputError(
            f"{len(latents)} latents should be >= n_clusters={n_clusters}; give more of them."
        )
    latents = latents.detach().cpu()
    codes = ridge_codes(latents, ridge * mean_energy(latents))
    rank = n_clusters * subspace_dim + 1
    affinity = code_affinity(codes, rank=rank, keep=keep, power=power, seed=random_state)
    return spectral_labels(affinity, n_clusters, random_state)


def mean_energy(latents: Tensor) -> float:
    """Mean square of the singular values of latents (n, d)."""
    return float(latents.square().sum()) / min(latents.shape)


def ridge_codes(latents: Tensor, ridge: float) -> Tensor:
    """C (n, n) that minimises |Z - C Z|^2 + ridge |C|^2 with a zero diagonal.

    With H = Z (Z^T Z + ridge)^-1 Z^T, row i is H_ij / (1 - H_ii): ridge regression with sample i
    left out, all n of them at once.
    """
    left, s, _ = torch.linalg.svd(latents, full_matrices=False)
    energy = s.square()
    floor = torch.finfo(energy.dtype).tiny
    hat = (left * (energy / (energy + ridge).clamp(min=floor))) @ left.mT
    rest = (1 - hat.diagonal()).clamp(min=torch.finfo(energy.dtype).eps)
    return hat.div_(rest[:, None]).fill_diagonal_(0)


def code_affinity(codes: Tensor, rank: int, keep: float, power: float, seed: int) -> NDArray:
    """Affinity (n, n) of codes, which are overwritten.

    The largest entries of each row that hold the share `keep` of its l1 norm, symmetrised; of that
    the best approximation U s V^T of the given rank; then max(0, cosine)^power of the rows of
    U sqrt(s).
    """
    codes = keep_largest_dense(codes, keep)
    codes = (codes + codes.mT).div_(2)
    return angular_affinity(symmetric_factors(codes, rank, seed), power)
