"""`KSCN`: deep k-subspace clustering behind scikit-learn's estimator interface."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.checks import given_labels
from kscn.constraints import POSITIVE, Integer, Number, array_of, check_value, parameter
from kscn.data import Source, as_source
from kscn.estimators import checks as check
from kscn.estimators import presets
from kscn.estimators.base import SubspaceClusterer
from kscn.estimators.defaults import AUTO, OPEN, kscn_settings
from kscn.estimators.saving import MANY
from kscn.model import FittedModel, SubspaceAssignment
from kscn.modelfile import ModelFile
from kscn.nn import DeepNetwork, IdentityLatent, InputScaling, network
from kscn.nn.rows import in_whole_blocks
from kscn.runtime.blocks import Blocks
from kscn.runtime.device import seeded
from kscn.runtime.group import current_group, place
from kscn.runtime.labels import in_order
from kscn.runtime.lazy import Lazy
from kscn.runtime.minibatches import Minibatches
from kscn.runtime.moments import scaling_of
from kscn.subspaces import Subspaces
from kscn.training.alternate import NONE, Options, alternate
from kscn.training.driver import Run
from kscn.training.losses import LOSSES
from kscn.training.pretrain import pretrain
from kscn.training.start import check_start, deep_start, latent_of
from kscn.training.trainer import Trainer

# Settings that may be networks, functions or arrays; of the network, the file holds what it is.
NOT_SAVED = {"autoencoder", "autoencoder_params", "augment", "init"}


@dataclass(eq=False, repr=False, kw_only=True)
class KSCN(SubspaceClusterer):
    """Learn a representation and the k subspaces that samples lie near in it, together.

    An autoencoder is pretrained; its latents are clustered by k-subspaces; then network and
    subspaces alternate: the network lowers reconstruction error plus `weight` times the loss that
    the subspaces set, the subspaces follow the latents. No n x n matrix is ever made: time is
    linear in the number of samples and the input is read in mini-batches.

    What is left "auto" is decided when `fit` sees the samples: by the preset, whose own "auto" is
    derived from the number and shape of the samples and the number of clusters. `settings_` tells
    what was used.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of subspaces.
    preset : str, default="tuned"
        Where the values of settings that are "auto" come from: "tuned" or "paper", which has what
        the paper states. Its start is k-means on the latents; that from DSC-Net, which the paper
        has too, is `init=kscn_paper.rivals.self_expression.dsc_start`.
    subspace_dim : int or sequence of int, default="auto"
        Their dimension in the latent space.
    update : {"svd", "grassmann"}, default="svd"
        How subspaces follow the latents: by trimmed SVD after every epoch (kSCN-S), or by a
        Riemannian gradient step (kSCN-G).
    weight : float, default="auto"
        Weight of the subspace loss of a sample against its reconstruction error (a sum over
        pixels).
    autoencoder : {"auto", "cae", "sae"} or nn.Module, default="auto"
        Convolutional for images, dense for vectors, or your own module with `encode` and `decode`,
        which is copied with its weights: that of a fitted model, say, with `pretrain_epochs=0`.
    augment : None, "affine", "noise", dict or callable, default="auto"
        Random changes of the input that should not change its cluster.
    init : {"k-subspaces", "drawn", "neighbours", "scattering", "k-means"}, array of labels or \
            callable, default="auto"
        Where subspaces start: k-subspaces searched on the latents, from drawn starts and from
        their neighbour graph, or only from one of these (see `KSubspaces`), or from drawn ones on
        whitened scattering coefficients of the images instead of latents; k-means on the latents;
        given labels; or labels of 2,000 of the latents by a function of yours,
        `init(latents, n_clusters, random_state)` with a tensor of shape (m, d). The start from
        DSC-Net is `kscn_paper.rivals.self_expression.dsc_start`.
    pretrain_epochs : int, default="auto"
        Epochs of the autoencoder alone.
    epochs : int, default="auto"
        Epochs of the alternation at most.
    batch_size : int, default="auto"
        Samples per step.
    learning_rate : float, default="auto"
        Of Adam in both stages: constant, or the peak of the cycle.
    trim : float, default="auto"
        Share of each cluster's farthest members that do not move its subspace.
    autoencoder_params : dict or None, default="auto"
        Arguments of `nn.ConvAutoencoder` (channels, kernels, batch_norm) or `nn.DenseAutoencoder`
        (hidden, latent_dim); None for their own defaults.
    latent : {"identity", "whitened"}, default="auto"
        Subspaces are fitted to the autoencoder's code itself, or to the code whitened onto
        `latent_dim` directions and brought to unit norm.
    latent_dim : int, default="auto"
        Directions that whitening keeps.
    loss : {"residual", "separation"}, default="auto"
        Distance to the nearest subspace, or cross-entropy of projection energies against the
        current clusters, which also pushes subspaces apart.
    temperature, balance : float, default="auto"
        Of the separation loss; how much it asks for clusters of equal size, from 0 (not at all).
    init_dim : int or None, default="auto"
        Dimension of the subspaces that the start is searched with, where it should differ from
        `subspace_dim`: before training, clusters are wider than they will be.
    n_init : int, default="auto"
        Effort of that search; see `KSubspaces`.
    tol : float, default="auto"
        Stop when no more than this share of samples changed cluster in an epoch.
    schedule : {"constant", "one-cycle"}, default="auto"
        Of the learning rate over each stage.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything random. The one used is recorded in `random_state_`.
    checkpoint_dir : path, optional
        Where the state of a fit is written after every epoch (unless writing would take more than
        a twentieth of the time). A fit that finds the state of the same fit there (same settings,
        same data) goes on from it, to the same result. The last states stay; remove the directory
        to begin anew.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        ends the stage that it comes from.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of every sample, equal to `predict(X)`. Clusters are numbered by falling size.
    subspaces_ : ndarray of shape (k, d, p)
        Orthonormal bases in the latent space.
    subspace_dims_ : ndarray of shape (k,)
        Dimension of each subspace.
    settings_ : dict
        The value that was used of every parameter that can be "auto".
    autoencoder_ : nn.Module
        The trained network.
    latent_ : nn.Module
        From its code to the latent in which subspaces are.
    inertia_ : float
        Sum of squared distances of latents to the nearest subspace.
    n_iter_ : int
        Epochs of the alternation.
    history_ : list of dict
        One record per epoch of each stage.
    random_state_ : int
        The seed used.
    n_features_in_ : int
        Numbers per sample.

    Examples
    --------
    >>> from kscn import KSCN, data
    >>> digits = data.load("digits").samples.take(range(300))
    >>> model = KSCN(10, pretrain_epochs=2, epochs=1, random_state=0)
    >>> model.fit_predict(digits).shape
    (300,)
    """

    preset: str = parameter(*presets.PRESETS)
    subspace_dim: int | Sequence[int] | str = AUTO
    update: str = parameter("svd", "grassmann")
    weight: float | str = parameter(AUTO, Number(0))
    autoencoder: str | nn.Module = AUTO
    augment: str | Mapping[str, Any] | Callable[..., Tensor] | None = AUTO
    init: str | NDArray | Callable[..., NDArray] = parameter(  # noqa: RUF009 - a field
        AUTO,
        "k-subspaces",
        "drawn",
        "neighbours",
        "scattering",
        "k-means",
        array_of("labels or a function"),
    )
    pretrain_epochs: int | str = parameter(AUTO, Integer(0))
    epochs: int | str = parameter(AUTO, Integer(0))
    batch_size: int | str = parameter(AUTO, Integer(1))
    learning_rate: float | str = parameter(AUTO, POSITIVE)
    trim: float | str = parameter(AUTO, Number(0, 0.5))
    autoencoder_params: Mapping[str, Any] | str | None = AUTO
    latent: str = parameter(AUTO, "identity", "whitened")
    latent_dim: int | str = parameter(AUTO, Integer(2))
    loss: str = AUTO
    temperature: float | str = parameter(AUTO, POSITIVE)
    balance: float | str = parameter(AUTO, Number(0))
    init_dim: int | str | None = AUTO
    n_init: int | str = parameter(AUTO, Integer(1))
    tol: float | str = parameter(AUTO, Number(0))
    schedule: str = parameter(AUTO, "constant", "one-cycle")

    @classmethod
    def from_preset(cls, preset: str, n_clusters: int = 8, **parameters: Any) -> Self:
        """A `KSCN` with the settings of a preset, below those that are given by name.

        Examples
        --------
        >>> from kscn import KSCN
        >>> KSCN.from_preset("paper", n_clusters=10).preset
        'paper'
        """
        return cls(n_clusters, preset=preset, **parameters)

    # Fitting ------------------------------------------------------------------------------------

    @torch.inference_mode(False)  # gradients, also where the caller wants none
    def fit(self, X: Any, y: object = None) -> Self:
        """Train network and subspaces on X.

        Parameters
        ----------
        X : array-like, memmap, torch.Tensor, torch Dataset, data.Source or path
            Images (n, h, w) or (n, c, h, w), or vectors (n, d).
        y : ignored

        Notes
        -----
        Where torch.distributed is initialised, all its processes must call this with the same X.
        Each has its own contiguous part and takes its share of every mini-batch; all end with
        the same model and the labels of all samples.
        """
        group = current_group()
        source, about = check.new_samples(X, group)
        n = place(source)[1]
        self._check_params(n, about["n_features_in_"])
        use = kscn_settings(source.shape, n, self.n_clusters, self.get_params())
        run = self._run(source, group, use)
        autoencoder, batches = self._network(source, use, run)

        trained = {name: use[name] for name in ("learning_rate", "schedule")}
        trained["augment"] = network.augmentation(use["augment"], batches.shape)

        def settings_of(carried: int | None) -> dict[str, Any]:
            """The settings in a latent of so many dimensions, where codes carry no more."""
            if carried is None or self.latent_dim != AUTO or not 1 < carried < use["latent_dim"]:
                return use
            given = self.get_params() | {"latent_dim": carried}
            return kscn_settings(source.shape, n, self.n_clusters, given)

        run.keep(autoencoder=autoencoder)
        alone, epochs = DeepNetwork(autoencoder, IdentityLatent()), use["pretrain_epochs"]
        trainer = Trainer(alone, batches, run, "pretraining", epochs=epochs, **trained)
        pretrain(trainer, epochs, run)
        start = run.once(
            "start", lambda: deep_start(autoencoder, batches, self.n_clusters, settings_of, run)
        )
        latent = latent_of(start.part("latent")).to(run.device)
        run.keep(latent=latent)
        if use["latent"] == "whitened":
            use = settings_of(start.facts["latent_dim"])
        whole, epochs = DeepNetwork(autoencoder, latent), use["epochs"]
        trainer = Trainer(whole, batches, run, "the alternation", epochs=epochs, **trained)
        names = ("epochs", "weight", "loss", "temperature", "balance", "trim", "tol")
        options = {name: use[name] for name in names}
        found = start.tensors.get("labels", NONE)
        subspaces, assigned = alternate(
            trainer,
            Subspaces(start.tensors["bases"]).to(torch.float32, run.device),
            Options(update=self.update, group=group, **options),
            run,
            found[place(source)[0] :][: len(source)].to(run.device),  # those of our own samples
        )
        numbered = in_order(trainer.latents(), subspaces, group, assigned)
        steps = [batches.scaling, autoencoder]
        if use["latent"] != "identity":
            steps.append(latent)
        temperature = use["temperature"] if use["loss"] == "separation" else None
        return self._set(
            run,
            about,
            shape=batches.shape,
            steps=steps,
            assignment=SubspaceAssignment.of(numbered.subspaces.to(torch.float32)),
            labels=numbered.labels,
            inertia=numbered.inertia,
            temperature=temperature,
            settings_=use,
        )

    def _network(
        self, source: Source, use: Mapping[str, Any], run: Run
    ) -> tuple[nn.Module, Minibatches]:
        """A fresh network, and the samples as its mini-batches, after a look whether they fit."""
        # Not torch's global generator: the user's own random numbers stay as they were.
        with seeded(run.seed):
            built = network.build(use["autoencoder"], use["autoencoder_params"], source.shape)
        built.to(run.device)
        scaling = scaling_of(source, network.image_shape(source.shape) is not None, run.group)
        shape = network.input_shape(built, source.shape)
        size = run.group.batch_size(use["batch_size"])
        batches = Minibatches(source, scaling.to(run.device), shape, size, run.device)
        code_dim = network.checked_run(built, batches.take(np.arange(min(2, len(batches)))))
        check_start(use, self.n_clusters, code_dim, source.shape)  # before hours of pretraining
        return built, batches

    # Using the fitted model ---------------------------------------------------------------------

    @property
    def scaling_(self) -> InputScaling:
        """From stored values to those of the network."""
        return self.model_.steps[0]  # type: ignore[return-value]

    @property
    def autoencoder_(self) -> nn.Module:
        """The trained network."""
        return self.model_.steps[1]

    @property
    def latent_(self) -> nn.Module:
        """From the codes of the network to the latents in which subspaces are."""
        return next(iter(self.model_.steps[2:]), IdentityLatent())

    def reconstruct(self, X: Any) -> NDArray:
        """Samples as the autoencoder restores them, in the shape and units of X."""
        codes = self._codes(X)
        decode: Any = self.autoencoder_.decode
        with torch.no_grad():
            restored = [
                self.scaling_.inverse(in_whole_blocks(decode, code)).cpu().numpy()
                for _, code in Blocks(codes, torch.float32, codes.device)
            ]
        return np.concatenate(restored).reshape(len(codes), *as_source(X).shape)

    def _codes(self, X: Any) -> Lazy:
        """Codes of new samples, from which their latents are made."""
        model, source = self._opened(X)
        return Lazy(source, model.steps[:2], model.device, model.shape)

    def _check_params(self, n_samples: int, n_features: int) -> None:
        check.parameters(self, n_samples, least=2)
        check_value("loss", self.loss, [AUTO, *LOSSES])  # to which some may have been added
        if not isinstance(self.init, str) and not callable(self.init):
            given_labels(self.init, n_samples, self.n_clusters)

    # Model files --------------------------------------------------------------------------------

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        used = self.settings_.items()
        return {"settings": {name: value for name, value in used if name not in NOT_SAVED}}, {}

    @classmethod
    def _from_facts(cls, model: ModelFile, built: FittedModel) -> dict[str, Any]:
        settings = model.params["fitted"]["settings"]
        used = {name: settings.get(name, AUTO) for name in OPEN if name not in NOT_SAVED}
        check.parameters(cls(**used), MANY)
        return {"settings_": used}
