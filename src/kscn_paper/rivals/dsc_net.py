"""Deep subspace clustering networks (Ji et al., 2017): an autoencoder with self-expressed latents.

`self_expression` has the codes and their affinity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.constraints import POSITIVE, Integer, Number, parameter
from kscn.data import Source
from kscn.errors import TrainingError
from kscn_paper.rivals.autoencoder import NetworkRival, train_alone
from kscn_paper.rivals.self_expression import AffinityRival, code_affinity, mean_energy, ridge_codes

# Of the dense autoencoder, unless `autoencoder_params` says otherwise: a latent that is shorter
# than all subspaces together cannot keep them apart.
DENSE = {"hidden": (200,), "latent_dim": 50}


@dataclass(eq=False, repr=False, kw_only=True)
class DSCNet(NetworkRival, AffinityRival):
    """Deep subspace clustering: samples are rebuilt from the latents of other samples.

    An autoencoder is trained by itself at first, then together with codes C between the latents Z
    of all samples,

        |X - decode(C Z)|^2 / 2 + code_weight |C|^2 + expression_weight / 2 |Z - C Z|^2

    with a zero diagonal of C, in steps over the whole data. The codes start at their best for the
    pretrained latents, which has a closed form, and not at zero. C holds n^2 numbers, of which a
    step needs eight copies: 0.13 GB for 2,000 samples, 3.2 GB for 10,000.

    Parameters
    ----------
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
        Epochs of the autoencoder by itself, in batches, each with a record in the history.
    epochs : int, default=30
        Steps of autoencoder and codes together, likewise.
    batch_size : int, default=256
        Samples per step of pretraining.
    learning_rate : float, default=1e-3
        Of Adam, for the networks.
    code_learning_rate : float, default=1e-4
        Of Adam, for the codes.

    Attributes
    ----------
    code_weight_ : float
        The weight used.
    n_iter_ : int
        Joint steps.
    """

    subspace_dim: int = parameter(9, Integer(1))
    autoencoder: str | nn.Module = "auto"
    autoencoder_params: Mapping[str, Any] | None = None
    expression_weight: float = parameter(0.1, POSITIVE)
    code_weight: float | None = parameter(None, POSITIVE)
    keep: float = parameter(0.4, Number(0, 1, closed="right"))
    power: float = parameter(8.0, POSITIVE)
    pretrain_epochs: int = parameter(40, Integer(0))
    epochs: int = parameter(30, Integer(0))
    learning_rate: float = parameter(1e-3, Number(0))
    code_learning_rate: float = parameter(1e-4, Number(0))

    def _make_affinity(self, source: Source) -> NDArray:
        kind, params = self.autoencoder, self.autoencoder_params
        if kind == "auto":
            kind = "sae" if len(source.shape) == 1 else "cae"
        if params is None and kind == "sae":
            params = DENSE
        self._build_network(kind, params, source)
        batches = self._batches(source)
        train_alone(
            self.autoencoder_,
            batches,
            self.pretrain_epochs,
            self._record,
            learning_rate=self.learning_rate,
            seed=self.random_state_,
        )
        codes = self._train_codes(self.autoencoder_, batches.take(np.arange(len(source))))
        rank = self.n_clusters * self.subspace_dim + 1
        return code_affinity(codes, rank, self.keep, self.power, self.random_state_)

    def _train_codes(self, network: Any, z: Tensor) -> Tensor:
        """The second stage: networks and codes (n, n) together."""
        weight = self.expression_weight
        with torch.no_grad():
            latent = network.encode(z)
            scale = mean_energy(latent)
            self.code_weight_ = float(self.code_weight or weight / 2 * scale)
            # The value at which code_weight |C|^2 + weight / 2 |Z - C Z|^2 is least.
            codes = ridge_codes(latent, 2 * self.code_weight_ / weight)
        codes.requires_grad_()
        groups = [
            {"params": list(network.parameters()), "lr": self.learning_rate},
            {"params": [codes], "lr": self.code_learning_rate},
        ]
        optimizer = torch.optim.Adam(groups)
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
            self._record(
                "train",
                epoch=epoch,
                objective=loss.item(),
                reconstruction=rebuilt.item(),
                expression=error.item(),
                code_size=size.item(),
            )
        self.n_iter_ = self.epochs
        return codes.detach()
