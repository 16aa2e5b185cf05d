"""`KSCN`: deep k-subspace clustering behind scikit-learn's estimator interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.constraints import check_names, parameter
from kscn.data import Source
from kscn.errors import InputError
from kscn.estimators import presets
from kscn.estimators.base import SubspaceClusterer
from kscn.estimators.defaults import AUTO, OPEN, check_settings
from kscn.estimators.defaults import settings as derived
from kscn.estimators.saving import of_the_file
from kscn.model import SubspaceModel
from kscn.modelfile import ModelFile
from kscn.modelparts import plain
from kscn.nn import network
from kscn.runtime.device import placed, seeded
from kscn.runtime.group import current_group, place, send_module
from kscn.runtime.latents import block_rows, each_alone, evaluating
from kscn.runtime.minibatches import Minibatches
from kscn.stages import validation as check
from kscn.stages.alternate import Alternate
from kscn.stages.latent import FindStart, check_dims, check_start
from kscn.stages.pretrain import Pretrain
from kscn.stages.run import Fit, Stage

if TYPE_CHECKING:
    from typing import Self

# Settings without a parameter of their own.
SELDOM_SET = (
    "trim", "autoencoder_params", "latent", "latent_dim", "loss", "temperature", "balance",
    "init_dim", "n_init", "tol", "schedule",
)  # fmt: skip
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
    settings : dict, optional
        What is seldom set by hand, by the names below. `from_settings` takes all of them by name.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything random. The one used is recorded in `random_state_`.
    checkpoint_dir : path or CheckpointDirectory, optional
        Where the state of a fit is written while it goes on: after every epoch (that takes more
        than a second), and within longer ones. A fit that finds the state of the same fit there
        (same settings, same data) goes on from it, to the same result. The last state stays;
        remove the directory to begin anew.
        `kscn.runtime.checkpoint.CheckpointDirectory(path, minutes=2)` asks for more states.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        ends the stage that it comes from.

    Notes
    -----
    The names in `settings`, all of which are "auto" unless they are given:

    trim : float
        Share of each cluster's farthest members that do not move its subspace.
    autoencoder_params : dict or None
        Arguments of `nn.ConvAutoencoder` (channels, kernels, batch_norm) or `nn.DenseAutoencoder`
        (hidden, latent_dim); None for their own defaults.
    latent : {"identity", "whitened"}
        Subspaces are fitted to the autoencoder's code itself, or to the code whitened onto
        `latent_dim` directions and brought to unit norm.
    latent_dim : int
        Directions that whitening keeps.
    loss : {"residual", "separation"}
        Distance to the nearest subspace, or cross-entropy of projection energies against the
        current clusters, which also pushes subspaces apart.
    temperature, balance : float
        Of the separation loss; how much it asks for clusters of equal size, from 0 (not at all).
    init_dim : int or None
        Dimension of the subspaces that the start is searched with, where it should differ from
        `subspace_dim`: before training, clusters are wider than they will be.
    n_init : int
        Effort of that search; see `KSubspaces`.
    tol : float
        Stop when no more than this share of samples changed cluster in an epoch.
    schedule : {"constant", "one-cycle"}
        Of the learning rate over each stage.

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

    preset: str = presets.DEFAULT
    subspace_dim: int | Sequence[int] | str = AUTO
    update: str = parameter("svd", "grassmann")
    weight: float | str = AUTO
    autoencoder: str | nn.Module = AUTO
    augment: str | Mapping[str, Any] | Callable[..., Tensor] | None = AUTO
    init: str | NDArray | Callable[..., NDArray] = AUTO
    pretrain_epochs: int | str = AUTO
    epochs: int | str = AUTO
    batch_size: int | str = AUTO
    learning_rate: float | str = AUTO
    settings: Mapping[str, Any] | None = None

    @classmethod
    def from_settings(cls, n_clusters: int = 8, **settings: Any) -> Self:
        """A `KSCN` with settings by name, whether they have a parameter of their own or not.

        Examples
        --------
        >>> from kscn import KSCN
        >>> KSCN.from_settings(10, epochs=5, latent_dim=20).settings
        {'latent_dim': 20}
        """
        seldom = dict(settings.pop("settings", None) or {})
        seldom |= {name: settings.pop(name) for name in SELDOM_SET if name in settings}
        return cls(n_clusters, settings=seldom or None, **settings)

    @classmethod
    def from_preset(cls, preset: str, n_clusters: int = 8, **parameters: Any) -> Self:
        """A `KSCN` with the settings of a preset, below those that are given by name.

        Parameters
        ----------
        preset : {"tuned", "paper"}
        n_clusters : int, default=8
            Number of subspaces.
        **parameters
            As `from_settings` takes them; they count more than the preset.

        Examples
        --------
        >>> from kscn import KSCN
        >>> KSCN.from_preset("paper", n_clusters=10).preset
        'paper'
        """
        return cls.from_settings(n_clusters, preset=preset, **parameters)

    # Fitting ------------------------------------------------------------------------------------

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
        source = self._new_samples(X, group)
        self._check_params(place(source)[1])
        self.settings_ = self._derived(source)
        fit = Fit(self, source, group)
        stages = self.stages(source, fit)
        fit.run(stages)
        self.model_.eval()
        found = [stage.found for stage in stages if hasattr(stage, "found")][-1]
        self._keep(*found[:3])
        return self

    def stages(self, source: Source, fit: Fit) -> list[Stage]:
        """The stages of a fit, in order; a subclass may add some (`kscn.stages.run.Stage`).

        The last one that has `found`, with subspaces, labels and inertia, gives the result.
        """
        parts = self._build(source, fit)

        def narrower(latent_dim: int) -> dict[str, Any]:
            free = self._flat_params().get("latent_dim", AUTO) == AUTO
            return self._derived(source, latent_dim=latent_dim) if free and latent_dim > 1 else {}

        start = FindStart(*parts, self.n_clusters, narrower)
        return [Pretrain(*parts), start, Alternate(*parts, start, self.update)]

    def _derived(self, source: Source, **found: int) -> dict[str, Any]:
        """What was left "auto", decided by the samples and by what is known of their codes."""
        return derived(self._flat_params() | found, source.shape, place(source)[1])

    def _flat_params(self) -> dict[str, Any]:
        params = super()._flat_params()
        return params | dict(params.pop("settings") or {})

    _from_flat = from_settings

    def _build(self, source: Source, fit: Fit) -> tuple[SubspaceModel, Minibatches, dict[str, Any]]:
        """A model with a fresh network, the samples as its mini-batches, and the settings."""
        use = self.settings_
        # Not torch's global generator: the user's own random numbers stay as they were.
        with seeded(fit.seed):
            built = network.build(use["autoencoder"], use["autoencoder_params"], source.shape)
        placed(built, fit.device)
        send_module(fit.group, [built])
        self.model_ = SubspaceModel(network.input_shape(built, source.shape))
        self.model_.network = built
        image = network.image_shape(source.shape) is not None
        self.model_.scaling = fit.group.scaling(source, image).to(fit.device)
        size = fit.group.batch_size(use["batch_size"])
        batches = self.model_.batches(source, fit.device, size)
        code_dim = network.checked_run(built, batches.take(np.arange(min(2, len(batches)))))
        check_dims(use, self.n_clusters, code_dim)  # before hours of pretraining
        check_start(use, source)
        return self.model_, batches, use

    # Using the fitted model ---------------------------------------------------------------------

    @property
    def autoencoder_(self) -> nn.Module:
        """The network, from the beginning of the fit on."""
        return self._part("network")

    def _temperature(self) -> float:
        use = self.settings_
        return use["temperature"] if use["loss"] == "separation" else super()._temperature()

    def reconstruct(self, X: Any) -> NDArray:
        """Samples as the autoencoder restores them, in the shape and units of X."""
        batches, network = self._network_inputs(X), self.autoencoder_
        out = np.empty((len(batches), *batches.source.shape), dtype=np.float32)
        with evaluating(network), torch.no_grad():
            for first, batch in batches.blocks(block_rows(batches.shape)):
                restored = each_alone(lambda x: network.decode(network.encode(x)), batch)  # type: ignore[operator]
                restored = restored.reshape(len(batch), *batches.source.shape)
                out[first : first + len(batch)] = self.scaling_.inverse(restored).cpu().numpy()
        return out

    def _network_inputs(self, X: Any) -> Minibatches:
        """New samples as the network takes them, after all checks."""
        model, source = self._opened(X)
        return model.batches(source, model.device)

    def _check_params(self, n_samples: int) -> None:
        super()._check_params(n_samples)
        given = {} if self.settings is None else self.settings
        if not isinstance(given, Mapping):
            raise InputError(f"settings={given!r} must be None or a table of settings by name.")
        check_names(given, SELDOM_SET, "the parameter settings holds")
        if n_samples < 2:
            raise InputError(
                f"n_samples={n_samples}: a network needs at least 2 samples to learn from."
            )
        if not isinstance(self.init, str) and not callable(self.init):
            check.given_labels(self.init, n_samples, self.n_clusters)

    # Model files --------------------------------------------------------------------------------

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        used = self.settings_.items()
        return {"settings": {name: plain(v) for name, v in used if name not in NOT_SAVED}}, {}

    @classmethod
    def _from_facts(cls, model: ModelFile, built: SubspaceModel) -> dict[str, Any]:
        fitted = model.params["fitted"]
        # By which the model may be fitted again, and what the fit used, as far as it is saved.
        for found in (model.params["params"], fitted["settings"]):
            used = {name: found.get(name, AUTO) for name in OPEN if name not in NOT_SAVED}
            with of_the_file():
                check_settings(used)
        return {"settings_": used}
