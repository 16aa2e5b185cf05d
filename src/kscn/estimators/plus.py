"""`KSCNPlus`: the most self-consistent of many clusterings, then self-labelled refinement."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from kscn.choice.choose import CHOICE, Choice, better, choose
from kscn.choice.view import FeatureView, feature_view
from kscn.constraints import (
    FLAG,
    NUMBER,
    POSITIVE,
    TEXT,
    Integer,
    check_table,
    parameter,
)
from kscn.data import Source
from kscn.errors import InputError
from kscn.estimators import checks as check
from kscn.estimators.base import SubspaceClusterer
from kscn.estimators.embedding import checked_about, encoded_for_fit, encoded_for_use
from kscn.features.encoders import Encoder as PretrainedEncoder
from kscn.model import FittedModel, SubspaceAssignment
from kscn.modelfile import ModelFile
from kscn.nn import ConvEncoder, DeepNetwork, network
from kscn.runtime.blocks import Blocks
from kscn.runtime.group import current_group, place
from kscn.runtime.labels import in_order
from kscn.runtime.lazy import held_features
from kscn.runtime.minibatches import Minibatches, encode
from kscn.runtime.moments import scaling_of
from kscn.subspaces import Subspaces
from kscn.training.driver import Run
from kscn.training.refine import TEMPERATURE, refine, refinement_epochs, refining

# With fewer samples per cluster a network has too little to learn from.
REFINE_MEMBERS = 100
LEAST_MEMBERS = 4  # in the sample on which clusters are chosen, on average
# What the estimator tells of the choice, besides the features themselves.
SAVED = {"subspace_dim": Integer(0), "confidence": NUMBER, "chosen": TEXT}
CHOSEN = (*SAVED, "tried")


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
    checkpoint_dir : path, optional
        Where the state of a fit is written when the start is found and after every epoch of the
        refinement. A fit that finds the state of the same fit there (same settings, same data) goes
        on from it, to the same result. The last states stay; remove the directory to begin anew.
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
    features_ : nn.ModuleList
        The steps from samples to the vectors that the subspaces are of.
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
    refine: bool | str = parameter("auto", FLAG, "auto")
    epochs: int | str = parameter("auto", Integer(1), "auto")
    augment: str | Mapping[str, Any] | Callable[..., Tensor] = "elastic"
    batch_size: int = parameter(256, Integer(1))
    learning_rate: float = parameter(3e-3, POSITIVE)

    # Fitting ------------------------------------------------------------------------------------

    @torch.inference_mode(False)  # gradients, also where the caller wants none
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
        encoder: PretrainedEncoder | None = None
        if self.encoder is not None:
            X, encoder = encoded_for_fit(self, X, group)
        source, about = check.new_samples(X, group)
        n, shape = place(source)[1], network.image_shape(source.shape) or source.shape
        self._check_params(n, about["n_features_in_"])
        image = len(shape) == 3
        asked = self.refine != "auto" and bool(self.refine)  # and kept, whatever comes of it
        if asked and not image:
            raise InputError(
                "refine=True needs images, (n, h, w) or (n, c, h, w); leave it at 'auto'."
            )
        check.unequal(source, group)
        augment = network.augmentation(self.augment, shape) if image else None
        size = group.batch_size(self.batch_size)  # what cannot be shared out is refused now
        enough = image and n >= REFINE_MEMBERS * self.n_clusters
        wanted = self.n_clusters > 1 and (asked or (self.refine == "auto" and enough))

        run = self._run(source, group)
        choice = choose(source, self.n_clusters, self.starts, image, wanted, run)
        start, steps = choice.start, list(choice.features)
        found = start.subspaces, start.labels, start.inertia
        start_labels, temperature = start.labels, None
        if wanted:
            scaling = scaling_of(source, True, group).to(run.device)
            batches = Minibatches(source, scaling, shape, size, run.device)
            refined, order, averaged = self._refined(choice, batches, augment, run)
            found, start_labels = refined, order.argsort().numpy().astype(np.int32)[start.labels]
            if averaged is not None:
                averaged.requires_grad_(False)
                steps, temperature = [scaling, averaged.autoencoder, averaged.latent], TEMPERATURE
        taken = {f"{name}_": choice.facts[name] for name in CHOSEN}
        if wanted and temperature is None:  # the refinement was not taken
            taken["n_iter_"] = 0
        return self._set(
            run,
            about,
            shape=shape,
            steps=steps,
            assignment=SubspaceAssignment.of(found[0].to(torch.float32)),
            labels=found[1].astype(np.int32, copy=False),
            inertia=found[2],
            temperature=temperature,
            start_labels_=start_labels,
            selection_=choice.selection,
            image_encoder_=encoder,
            _encoder_of_fit=encoder.about if encoder else None,
            **taken,
        )

    def _refined(
        self, choice: Choice, batches: Minibatches, augment: Any, run: Run
    ) -> tuple[tuple[Subspaces, NDArray, float], Tensor, DeepNetwork | None]:
        """The clusters after a refinement, which of those before each is, and the network.

        Without a network where the refinement is clearly less self-consistent than the start.
        """
        k, source, start = self.n_clusters, batches.source, choice.start
        usual = refinement_epochs(place(source)[1], self.batch_size)
        epochs = usual if self.epochs == "auto" else int(self.epochs)
        trainer, axes = refining(batches, k, augment, self.learning_rate, epochs, run)
        run.keep(encoder=trainer.network)

        @cache  # made when it is wanted first, because features may take long
        def view() -> FeatureView:
            features = held_features(choice.wide, source, run.device, run.group)
            return feature_view(features, k, run)

        assert start.doubt is not None
        labels = torch.from_numpy(start.labels)

        def agreed(latents: Blocks) -> tuple[Tensor, Tensor]:
            return view().combined(torch.cat([axes.residuals(z) for _, z in latents]))

        averaged = refine(trainer, axes, labels, start.doubt, agreed, epochs, run)
        blocks = Blocks(encode(batches, averaged), torch.float32, run.device)
        found = in_order(blocks, axes, run.group)
        if self.refine != "auto" or better(choice.wide, source, found.labels, start.labels, k, run):
            return found[:3], found.order, averaged
        features = held_features(choice.features, source, run.device, run.group)
        blocks = Blocks(features, torch.float32, run.device)
        found = in_order(blocks, start.subspaces.to(torch.float32, run.device), run.group)
        return found[:3], found.order, None

    # Using the fitted model ---------------------------------------------------------------------

    @property
    def features_(self) -> nn.ModuleList:
        """The steps from samples to the vectors that the subspaces are of."""
        return self.model_.steps

    @property
    def encoder_(self) -> ConvEncoder | None:
        """The refined network."""
        return self.model_.network  # type: ignore[return-value]

    def _opened(self, X: Any) -> tuple[FittedModel, Source]:
        check_is_fitted(self, "subspaces_")
        return super()._opened(X if self._encoder_of_fit is None else encoded_for_use(self, X))

    def _check_params(self, n_samples: int, n_features: int) -> None:
        check.parameters(self, n_samples, least=2)
        if self.encoder is not None and self.refine != "auto" and self.refine:
            raise InputError("refine=True cannot be used with an encoder; leave it at 'auto'.")
        if self.n_clusters > CHOICE.most // LEAST_MEMBERS:
            raise InputError(
                f"n_clusters={self.n_clusters} is too many: clusters are chosen on a sample of at "
                f"most {CHOICE.most}, with at least {LEAST_MEMBERS} for each; use KSubspaces."
            )

    def on_embeddings(self) -> Self:
        """The same fitted model without its encoder: it takes embeddings in place of images."""
        inner = copy.copy(self)
        inner.encoder, inner.image_encoder_, inner._encoder_of_fit = None, None, None
        return inner

    # Model files --------------------------------------------------------------------------------

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        facts = {name: getattr(self, f"{name}_") for name in SAVED}
        return facts | {"image_encoder": self._encoder_of_fit}, {}

    @classmethod
    def _from_facts(cls, model: ModelFile, built: FittedModel) -> dict[str, Any]:
        fitted = model.params["fitted"]
        check_table(fitted, SAVED)
        check_table(model.params["params"], {"encoder?": TEXT})
        found = {f"{name}_": fitted[name] for name in SAVED}
        return found | {
            "image_encoder_": None,
            "_encoder_of_fit": checked_about(fitted["image_encoder"]),
        }
