"""The base class of `KSubspaces`, `KSCN` and `KSCNPlus`: what they do with a fitted model."""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from kscn.constraints import FUNCTIONS, PATH, Integer, parameter
from kscn.data import Source
from kscn.estimators import checks as check
from kscn.estimators import saving
from kscn.model import FittedModel, SubspaceAssignment
from kscn.nn import network
from kscn.runtime.group import Group, place
from kscn.training.driver import Run, States, identity

Callbacks = Iterable[Callable[[Any, dict[str, Any]], object]]


@dataclass(eq=False, repr=False)
class SubspaceClusterer(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    BaseEstimator,
):
    """An estimator whose fit ends with a `FittedModel`, kept as `model_`.

    A subclass has the stages of its fit and, as the fields of a dataclass, its other parameters.
    """

    n_clusters: int = parameter(8, Integer(1))
    _: KW_ONLY
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    checkpoint_dir: str | os.PathLike[str] | None = parameter(  # noqa: RUF009 - a field
        None, PATH
    )
    callbacks: Callbacks = parameter((), FUNCTIONS)  # noqa: RUF009 - a field

    @property
    def subspaces_(self) -> NDArray:
        """Orthonormal bases, shape (k, d, p)."""
        return self.model_.assignment.bases.cpu().numpy()

    @property
    def subspace_dims_(self) -> NDArray:
        """Dimension of each subspace, shape (k,)."""
        return self.model_.assignment.subspaces.dims.cpu().numpy()

    @property
    def _n_features_out(self) -> int:
        return self.subspaces_.shape[1]

    # Fitting ------------------------------------------------------------------------------------

    def _run(
        self,
        source: Source,
        group: Group,
        settings: Mapping[str, Any] | None = None,
        weights: Tensor | None = None,
    ) -> Run:
        """The driver of a fit of these samples, new or resumed."""
        states = None
        if self.checkpoint_dir is not None:
            params = self.get_params(deep=False) | dict(settings or {}) | {"sample_weight": weights}
            states = States(self.checkpoint_dir, identity(params, source, place(source)[1]))

        def on_record(record: dict[str, Any]) -> bool:
            return True in [callback(self, record) is True for callback in self.callbacks]

        seed, device = check.seed(self.random_state), check.device(self.device)
        return Run(seed, device, group, states, on_record)

    def _set(
        self,
        run: Run,
        about: Mapping[str, Any],
        *,
        shape: tuple[int, ...],
        steps: Sequence[nn.Module],
        assignment: SubspaceAssignment,
        labels: NDArray,
        inertia: float,
        noise: float | None = None,
        temperature: float | None = None,
        **more: Any,
    ) -> Self:
        """Set all that a fit has found, in place of what an earlier one had."""
        warn_of_empty(labels, self.n_clusters, stacklevel=3)
        if noise is None:  # mean squared distance, for each direction outside of a subspace
            width, dims = assignment.bases.shape[1], assignment.subspaces.dims.cpu().numpy()
            noise = inertia / max(1, int((width - dims[labels]).sum()))
        for name in [name for name in vars(self) if name.endswith("_")]:
            del self.__dict__[name]
        scale = 2 * noise if temperature is None else temperature
        self.model_ = FittedModel(shape, steps, assignment, scale)
        self.labels_, self.inertia_, self.noise_variance_ = labels, inertia, noise
        self.history_, self.random_state_ = run.history, run.seed
        self.n_iter_ = sum(record["stage"] == "fit" for record in run.history)
        self.__dict__.update(about, **more)
        # Not the parameters, which may be set to others after a fit.
        self._params_of_fit = saving.params_of_fit(self)
        return self

    # Using the fitted model ---------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray:
        """The nearest subspace of every sample, shape (n,)."""
        model, source = self._opened(X)
        return model.assign(source).labels.cpu().numpy()

    def residuals(self, X: Any) -> NDArray:
        """Squared distance of every sample to every subspace, in the latent space, (n, k)."""
        model, source = self._opened(X)
        return model.residuals(source)

    def transform(self, X: Any) -> NDArray:
        """Latents in which the subspaces are, shape (n, d)."""
        model, source = self._opened(X)
        return np.concatenate([z.cpu().numpy() for _, z in model.blocks(source)])

    def predict_proba(self, X: Any) -> NDArray:
        """Posterior of every cluster, shape (n, k); the largest is at `predict(X)`.

        Proportional to exp(-residual / t): t is `temperature` where a network was trained with the
        separation loss, and twice the noise variance around the subspaces otherwise.
        """
        residuals = self.residuals(X)  # refuses an estimator that is not fitted
        return self.model_.probabilities(residuals)

    def score_samples(self, X: Any) -> NDArray:
        """Minus the squared distance to the nearest subspace, shape (n,): low means outlier."""
        model, source = self._opened(X)
        return -model.assign(source).distance.cpu().numpy()

    def score(self, X: Any, y: object = None, sample_weight: Any = None) -> float:
        """Minus the sum of squared distances to the nearest subspace."""
        near = self.score_samples(X).astype(np.float64)
        weights = check.sample_weights(sample_weight, len(near))
        return float((near if weights is None else near * weights.numpy()).sum())

    def _opened(self, X: Any) -> tuple[FittedModel, Source]:
        """The model, on the device that is wanted now, and new samples for it, after all checks."""
        check_is_fitted(self, "subspaces_")
        source = check.known_samples(self, X)
        network.check_images(source, self.model_.shape, type(self).__name__)
        return self.model_.to(check.device(self.device)), source

    # Model files --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to the directory `path` (safetensors + JSON, never pickle).

        The file holds the parameters that the model was fitted with. A module of your own is saved
        by its weights; `load_model(path, autoencoder=module)` needs one of the same architecture
        to put them into.
        """
        check_is_fitted(self, "subspaces_")
        saving.write(self, path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def warn_of_empty(labels: NDArray, n_clusters: int, stacklevel: int) -> None:
    """Warn if some clusters have no members; `stacklevel` is that of a warning of the caller."""
    missing = n_clusters - len(np.unique(labels))
    if missing:
        warnings.warn(
            f"{missing} of the {n_clusters} clusters ended up empty; the data may hold fewer "
            "distinct groups than n_clusters.",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )
