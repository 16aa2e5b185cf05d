"""`KSCNPlus`: the most self-consistent of many clusterings, then self-labelled refinement."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from kscn.constraints import POSITIVE, Integer, parameter
from kscn.data import Source
from kscn.errors import InputError
from kscn.estimators.base import SubspaceClusterer
from kscn.estimators.embedding import checked_about, encoded_for_fit, encoded_for_use
from kscn.features import FeatureChain
from kscn.features.encoders import Encoder as PretrainedEncoder
from kscn.model import SubspaceModel
from kscn.modelfile import ModelFile
from kscn.modelparts import integer, number, plain
from kscn.nn import ConvEncoder, network
from kscn.runtime.group import Group, current_group, place
from kscn.stages import validation as check
from kscn.stages.choose import CHOICE, Choose
from kscn.stages.refine import TEMPERATURE, Refine
from kscn.stages.run import Fit

if TYPE_CHECKING:
    from typing import Self


# With fewer samples per cluster a network has too little to learn from.
REFINE_MEMBERS = 100
LEAST_MEMBERS = 4  # in the sample on which clusters are chosen, on average


@dataclass(eq=False, repr=False, kw_only=True)
class KSCNPlus(SubspaceClusterer):
    """The method for data of any kind: three stages, none of which sees a label.

    1. *Candidates.* A sample is described in several ways (pixels and wavelet scattering of images;
       vectors by distances, by angles, whitened) and clustered by several methods in each:
       spectral clustering of the neighbour graph and a layout of it, k-means, k-subspaces. Each
       candidate has a self-consistency, which needs no labels (see `confidence_`); the consensus of
       the good ones is one more candidate, and the best is taken.
    2. *Start.* Where subspaces describe the clusters they grow and label all samples, every sample
       by subspaces that it had no part in; elsewhere a larger sample is laid out by its neighbour
       graph, and the nearest vote for all others.
    3. *Refinement* (images). An encoder learns to put altered views of an image into the subspace
       of the image, from the clearest images first. Then it learns what it and the subspaces of
       the features, fitted to its clusters, hold together. Its clusters replace those of the start
       unless they are clearly less self-consistent.

    Time is linear in the number of samples, and samples are read in batches.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of subspaces.
    encoder : path, str, torch.nn.Module or Encoder, optional
        A pretrained network as the first stage: an .onnx file, a name such as "timm:resnet50", or
        a module (`kscn.features.encoders`). Samples are then images, also of different sizes in a
        folder, and what is clustered are their embeddings.
    starts : int, default=4
        Runs of k-subspaces per space and dimension.
    refine : bool or "auto", default="auto"
        Whether to refine; "auto" does for images of which there are 100 per cluster, and keeps the
        result unless it is clearly less self-consistent than before.
    epochs : int or "auto", default="auto"
        Of the refinement; "auto" takes more for fewer samples.
    augment : "elastic", "affine", dict or callable, default="elastic"
        Random changes of an image that do not change what it shows.
    batch_size : int, default=256
        Samples per step.
    learning_rate : float, default=3e-3
        Peak of the cycle of Adam.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything random. The one used is recorded in `random_state_`.
    checkpoint_dir : path or CheckpointDirectory, optional
        Where the state of a fit is written while it goes on: when the start is found, after every
        epoch of the refinement (that takes more than a second), and within longer ones. A fit that
        finds the state of the same fit there (same settings, same data) goes on from it, to the
        same result; the search for a start is begun anew if it was not done. The last state stays;
        remove the directory to begin anew.
        `kscn.runtime.checkpoint.CheckpointDirectory(path, minutes=2)` asks for more states.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        during the refinement ends it.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of each sample, largest cluster first.
    start_labels_ : ndarray of shape (n,)
        Clusters before the refinement, each with the number that it has in `labels_`.
    subspaces_ : ndarray of shape (k, d, p)
        Orthonormal bases, in the latent of the encoder or, without refinement, of the features.
    features_ : FeatureChain
        From samples to the features of the start.
    confidence_ : float
        Self-consistency of the clusters chosen, from 0 to 1: the share of members that Gaussians
        fitted to other folds assign to their own cluster, times the share of nearest neighbours
        in the same cluster, both in the two spaces in which most neighbours agree.
    chosen_ : str
        Which candidate was taken, in words.
    selection_ : Selection
        All candidates that were tried on the sample, best first. Not part of a saved model, nor of
        a fit that went on from a checkpoint.
    tried_ : dict
        The same in short, as plain values: the best ten in `tried`, how many `candidates` in how
        many `spaces`, and the `rival`, the best of another kind than what was taken. Not part of a
        saved model; `kscn fit` writes it to the run.
    subspace_dim_ : int
        Dimension of the subspaces by which the candidate taken was found; 0 if by neighbours.
    encoder_ : ConvEncoder or None
        The refined network.
    image_encoder_ : Encoder or None
        The pretrained network of `encoder`; that of a loaded model is opened when it is needed.
    inertia_ : float
        Sum of squared distances of latents to the nearest subspace.
    n_iter_ : int
        Epochs of the refinement.
    history_ : list of dict
        One record per round of the search and of the growth, and per epoch.
    random_state_ : int
        The seed used.
    n_features_in_ : int
        Numbers per sample.

    Examples
    --------
    >>> from kscn import KSCNPlus, data
    >>> x, _, _ = data.make_union_of_subspaces(120, 2, 6, 1, random_state=0)
    >>> KSCNPlus(2, random_state=0).fit_predict(x).shape
    (120,)
    """

    encoder: Any = None
    starts: int = parameter(4, Integer(1))
    refine: bool | str = parameter("auto", bool, "auto")
    epochs: int | str = parameter("auto", Integer(1), "auto")
    augment: str | Mapping[str, Any] | Callable[..., Tensor] = "elastic"
    batch_size: int = parameter(256, Integer(1))
    learning_rate: float = parameter(3e-3, POSITIVE)

    # Fitting ------------------------------------------------------------------------------------

    def fit(self, X: Any, y: object = None) -> Self:
        """Find the clusters of X.

        Parameters
        ----------
        X : array-like, memmap, torch.Tensor, torch Dataset, data.Source or path
            Images (n, h, w) or (n, c, h, w), or vectors (n, d). With an `encoder` images, colours
            first or last, or a folder of any images.
        y : ignored

        Notes
        -----
        Where torch.distributed is initialised, all its processes must call this with the same X.
        Each has its own contiguous part and takes its share of every mini-batch; all end with
        the same model and the labels of all samples.
        """
        group = current_group()
        source = self._new_samples(X, group)
        self.model_ = SubspaceModel(network.image_shape(source.shape) or source.shape)
        self._check_params(place(source)[1])
        check.unequal(source, group)
        if self._takes_images:
            network.augmentation(self.augment, self.model_.shape)
        group.batch_size(self.batch_size)  # what cannot be shared out is refused before the search
        fit = Fit(self, source, group)
        stages = self.stages(place(source)[1])
        fit.run(stages)
        self._keep(*stages[-1].found)
        self.start_labels_ = stages[-1].start_labels
        return self

    def stages(self, n_samples: int) -> list[Choose | Refine]:
        """The stages of a fit of so many samples, in order."""
        many = n_samples >= REFINE_MEMBERS * self.n_clusters
        wanted = self._refines or (self.refine == "auto" and self._takes_images and many)
        wanted &= self.n_clusters > 1  # or there is nothing to tell apart
        choose = Choose(self, refined=wanted)
        return [choose, Refine(self, choose)] if wanted else [choose]

    @property
    def _refines(self) -> bool:
        """Whether the refinement was asked for, whatever comes of it."""
        return self.refine != "auto" and bool(self.refine)

    @property
    def _takes_images(self) -> bool:
        return len(self.model_.shape) == 3

    def _new_samples(self, X: Any, group: Group) -> Source:
        encoder: PretrainedEncoder | None = None
        if self.encoder is not None:
            X, encoder = encoded_for_fit(self, X, group)
        source = super()._new_samples(X, group)
        self.image_encoder_ = encoder
        self._encoder_of_fit: dict[str, Any] | None = encoder.about if encoder else None
        return source

    # Using the fitted model ---------------------------------------------------------------------

    @property
    def features_(self) -> FeatureChain:
        """From samples to the features of the start."""
        return self._part("features")

    @property
    def encoder_(self) -> ConvEncoder | None:
        """The refined network."""
        return self.model_.network  # type: ignore[return-value]

    def _temperature(self) -> float:
        if self.encoder_ is None:
            return super()._temperature()
        return TEMPERATURE

    def _opened(self, X: Any) -> tuple[SubspaceModel, Source]:
        check_is_fitted(self, "subspaces_")
        return super()._opened(X if self._encoder_of_fit is None else encoded_for_use(self, X))

    def _check_params(self, n_samples: int) -> None:
        check.parameters(self, n_samples, least=2)
        if self.n_clusters > CHOICE.most // LEAST_MEMBERS:
            raise InputError(
                f"n_clusters={self.n_clusters} is too many: clusters are chosen on a sample of at "
                f"most {CHOICE.most}, with at least {LEAST_MEMBERS} for each; use KSubspaces."
            )
        if self._refines and "model_" in vars(self) and not self._takes_images:
            raise InputError(
                "refine=True needs images, (n, h, w) or (n, c, h, w); leave it at 'auto'."
            )

    def on_embeddings(self) -> Self:
        """The same fitted model without its encoder: it takes embeddings in place of images."""
        inner = copy.copy(self)
        inner.encoder, inner.image_encoder_, inner._encoder_of_fit = None, None, None
        return inner

    # Model files --------------------------------------------------------------------------------

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        chosen = ("subspace_dim", "confidence", "chosen")
        facts = {name: plain(getattr(self, f"{name}_")) for name in chosen}
        return facts | {"image_encoder": self._encoder_of_fit}, {}

    @classmethod
    def _from_facts(cls, model: ModelFile, built: SubspaceModel) -> dict[str, Any]:
        fitted, params = model.params["fitted"], model.params["params"]
        told = fitted["chosen"]
        if not isinstance(told, str):
            raise ValueError("chosen is no text")
        if not isinstance(params.get("encoder"), (str, type(None))):
            raise ValueError("its encoder has no name")
        return {
            "subspace_dim_": integer(fitted, "subspace_dim", 0),
            "confidence_": number(fitted, "confidence"),
            "chosen_": told[:200],
            "image_encoder_": None,
            "_encoder_of_fit": checked_about(fitted["image_encoder"]),
        }
