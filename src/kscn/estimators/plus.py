"""`KSCNPlus`: fixed features, k-subspaces that many runs agree on, self-labelled refinement."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source
from kscn.estimators import network
from kscn.estimators import validation as check
from kscn.estimators.base import SubspaceClusterer
from kscn.estimators.embedding import checked_about, encoded_for_fit, encoded_for_use
from kscn.estimators.plusstart import (
    better,
    choose,
    coordinate_subspaces,
    find_start,
    held_features,
    in_memory,
    latent_dims,
    second_opinion,
)
from kscn.estimators.plusstate import PlusProgress, Start
from kscn.estimators.saving import facts_of, plain
from kscn.estimators.tried import summary
from kscn.features import FeatureChain
from kscn.features.encoders import Encoder as PretrainedEncoder
from kscn.model import SubspaceModel
from kscn.modelfile import ModelFile
from kscn.modelparts import integer, number
from kscn.nn import ConvEncoder, InputScaling, UnitLatent
from kscn.parallel import one_thread
from kscn.training.alternate import Epoch
from kscn.training.blocks import Blocks
from kscn.training.checkpoint import State
from kscn.training.device import placed, seeded
from kscn.training.distributed import Group, current_group, place, send_module
from kscn.training.labels import in_order
from kscn.training.opinion import SecondOpinion
from kscn.training.pretrain import Trainer
from kscn.training.refine import Refinement

if TYPE_CHECKING:
    from typing_extensions import Self

# Steps of the refinement where `epochs` is "auto", within these numbers of epochs.
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 8200, 12, 60
# Samples below which threads only wait for each other.
FEW = 1000
# With fewer samples per cluster a network has too little to learn from.
REFINE_MEMBERS = 100
# Share of the epochs in which the network learns the clusters of the start.
HOLD = 0.3
# Epochs between two questions to the subspaces of the features, after that.
ASK_EVERY = 2
# Of the average of the weights, per step.
AVERAGE = 0.99


class KSCNPlus(SubspaceClusterer):
    """The method for data of any kind: three stages, none of which sees a label.

    1. *Candidates.* A sample is described in several ways (pixels and wavelet scattering of images;
       vectors by distances, by angles, whitened) and clustered by several methods in each:
       spectral clustering of the neighbour graph and a layout of it, k-means, k-subspaces. Each
       candidate is measured by how well its members find back to their cluster out of fold, what
       the good ones have in common is one more, and the best is taken.
    2. *Start.* Where subspaces describe the clusters they grow and label all samples, every sample
       by subspaces that it had no part in; elsewhere the nearest of the sample vote.
    3. *Refinement* (images). An encoder learns to put altered views of an image into the subspace
       of the image, from the clearest images first. Then it learns what it and the subspaces of
       the features, fitted to its clusters, hold together. Its clusters replace those of the start
       if their members find back as well.

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
        result only if its members find back to their cluster as well as before.
    epochs : int or "auto", default="auto"
        Of the refinement; "auto" takes more for fewer samples.
    trim : float, default=0.1
        Share of each cluster of the start, its least clear samples, that does not teach the
        encoder; a fifth of it once encoder and features settle the clusters together.
    temperature : float, default=0.1
        Of the energies as logits.
    balance : float, default=0.5
        How much the refinement holds clusters to the sizes that they had at its start; 0 leaves
        it out.
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
        Where the state of a fit is written while it goes on: when the start is found, after every
        epoch of the refinement (that takes more than a second), and within longer ones. A fit that
        finds the state of the same fit there (same settings, same data) goes on from it, to the
        same result; the search for a start is begun anew if it was not done. The last state stays;
        remove the directory to begin anew.
    checkpoint_minutes : float, default=10
        At most this long passes between two states of the refinement.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        during the refinement ends it.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of each sample, largest cluster first.
    start_labels_ : ndarray of shape (n,)
        Clusters before the refinement, numbered likewise.
    subspaces_ : ndarray of shape (k, d, p)
        Orthonormal bases, in the latent of the encoder or, without refinement, of the features.
    features_ : FeatureChain
        From samples to the features of the start.
    confidence_ : float
        How well members of the clusters chosen find back to them, from 0 to 1: in the two
        spaces in which most neighbours agree, the share that Gaussians of other folds send back
        times the share of neighbours that are of the same cluster.
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
        Dimension of the subspaces of the start; 0 if neighbours vote instead.
    encoder_ : ConvEncoder or None
        The refined network.
    image_encoder_ : Encoder or None
        The pretrained network of `encoder`; that of a loaded model is opened when it is needed.
    inertia_ : float
        Sum of squared distances of latents to the nearest subspace.
    n_iter_ : int
        Epochs of the refinement.
    history_ : list of dict
        One record per run, iteration or epoch.
    random_state_ : int
        The seed used.
    n_features_in_ : int
        Numbers per sample.
    """

    image_encoder_: PretrainedEncoder | None
    _encoder_of_fit: dict[str, Any] | None
    _former_params = ("components", "whiten", "subspace_dim")  # chosen by the data now

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        encoder: Any = None,
        starts: int = 4,
        refine: bool | str = "auto",
        epochs: int | str = "auto",
        trim: float = 0.1,
        temperature: float = 0.1,
        balance: float = 0.5,
        augment: str | Mapping[str, Any] | Callable[..., Tensor] = "elastic",
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_minutes: float = 10.0,
        callbacks: Iterable[Callable[[Any, dict[str, Any]], object]] = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.encoder = encoder
        self.starts = starts
        self.refine = refine
        self.epochs = epochs
        self.trim = trim
        self.temperature = temperature
        self.balance = balance
        self.augment = augment
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state
        self.checkpoint_dir = checkpoint_dir
        self.checkpoint_minutes = checkpoint_minutes
        self.callbacks = callbacks

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
        Each reads its own contiguous part and takes its share of every mini-batch; all end with
        the same model and the labels of all samples.
        """
        group = current_group()
        source = self._new_samples(X, group)
        self.model_ = SubspaceModel(network.image_shape(source.shape) or source.shape)
        image = len(self.model_.shape) == 3
        self._check_params(place(source)[1])
        check.unequal(source, group)
        if image:
            network.augmentation(self.augment, self.model_.shape)
        group.batch_size(self.batch_size)  # what cannot be shared out is refused before the search
        progress = PlusProgress.begin(self, source, group)
        start = progress.start
        if start is None:
            with one_thread() if place(source)[1] < FEW else nullcontext():
                start = progress.start = self._start(source, image, progress)
        self.start_labels_ = start.labels
        if start.doubt is None or not self._improved(source, start, progress):
            progress.enter("finish", lambda: State({}))
            progress.keeper.keep(always=True)
            self._keep(start.subspaces, start.labels, start.inertia)
        progress.keeper.release()
        return self

    def _new_samples(self, X: Any, group: Group) -> Source:
        self.image_encoder_, self._encoder_of_fit = None, None
        if self.encoder is not None:
            X = encoded_for_fit(self, X, group)
        return super()._new_samples(X, group)

    def _start(self, source: Source, image: bool, progress: PlusProgress) -> Start:
        """k-subspaces on the features of all samples, from what short runs agree on."""
        group = progress.group

        def hear(record: dict[str, Any]) -> bool:
            stop = self._record(record)
            progress.keeper.keep()  # a point to stop at
            return stop

        progress.enter("start", lambda: State({}))
        device, n = check.device(self.device), place(source)[1]
        found, self.selection_ = choose(
            source,
            self.n_clusters,
            image=image,
            starts=self.starts,
            seed=self.random_state_,
            device=device,
            hear=hear,
            group=group,
        )
        self.confidence_, self.chosen_ = found.confidence, found.told
        self.tried_ = summary(self.selection_)
        self.subspace_dim_ = found.subspace_dim
        many = n >= REFINE_MEMBERS * self.n_clusters
        refined = self.refine is True or (self.refine == "auto" and image and many)
        if refined:
            progress.wide = found.wide
        self.model_.features, start = find_start(
            found,
            source,
            self.n_clusters,
            refined=refined,
            device=device,
            seed=self.random_state_,
            hear=hear,
            group=group,
        )
        return start

    def _improved(self, source: Source, start: Start, progress: PlusProgress) -> bool:
        """Refine, and keep what that found if its members find back as well as those before."""
        found = self._refine(source, start, progress).numbered()
        group, device = progress.group, check.device(self.device)
        assert progress.wide is not None
        k, seed = self.n_clusters, self.random_state_
        features = group.holding(progress.wide.to(device).source(source))
        before = start.labels
        if self.refine is True or better(features, found.labels, before, k, seed, device, group):
            self._keep(*found[:3])
            return True
        # What `predict` will say, which is not what a refinement learns from.
        self.model_.network, self.n_iter_ = None, 0
        blocks = Blocks(
            held_features(self.features_.to(device), source, group), torch.float32, device
        )
        found = in_order(blocks, start.subspaces.to(torch.float32, device), group)
        self._keep(*found[:3])
        return True

    def _refine(self, source: Source, start: Start, progress: PlusProgress) -> Refinement:
        """The refinement, brought to its end."""
        epochs = self._epochs(place(source)[1])
        refinement = self._refinement(source, start, epochs, progress)

        def on_epoch(epoch: Epoch) -> bool:
            self.n_iter_ = epoch.number
            facts = asdict(epoch)
            del facts["reconstruction"]
            return self._record(
                {"stage": "fit", "epoch": facts.pop("number"), "epochs": epochs, **facts}
            )

        if not progress.past("fit"):
            progress.enter("fit", refinement.state)
            if not progress.past("start"):
                progress.keeper.keep(always=True)  # the start took long to find
            refinement.run(epochs, 0.0, on_epoch)
            progress.enter("finish", refinement.state)
            progress.keeper.keep()
        averaged, self.model_.latent = refinement.trainer.encoding
        self.model_.network = averaged.requires_grad_(False)
        self.model_.eval()
        return refinement

    def _refinement(
        self, source: Source, start: Start, epochs: int, progress: PlusProgress
    ) -> Refinement:
        """The refinement, where it begins or where it was."""
        device, group = check.device(self.device), progress.group
        self.model_.scaling = group.scaling(source, image=True).to(device)
        k = self.n_clusters
        p = latent_dims(k)
        # Not torch's global generator: the user's own random numbers stay as they were.
        with seeded(self.random_state_):
            encoder = ConvEncoder(self.model_.shape, k * p)
        placed(encoder, device)
        send_module(group, [encoder])
        progress.train(encoder)
        trainer = Trainer(
            encoder,
            UnitLatent(),
            self.model_.batches(source, device, group.batch_size(self.batch_size)),
            epochs=epochs,
            learning_rate=self.learning_rate,
            schedule="one-cycle",
            augment=network.augmentation(self.augment, self.model_.shape),
            generator=progress.generator,
            stage="the refinement",
            reconstruct=False,
            average=AVERAGE,
            group=group,
            keeper=progress.keeper,
        )
        # Orthogonal to each other to begin with, in coordinates that the network can choose.
        subspaces = coordinate_subspaces(k, p)
        saved = progress.saved if progress.past("start") else None
        if saved is not None:
            trainer.restore(saved)
            subspaces = progress.subspaces()
        assert start.doubt is not None
        first, _ = place(source)
        own = slice(first, first + len(source))
        assert progress.wide is not None
        width = progress.wide._n_features_out
        return Refinement(
            trainer,
            subspaces.to(torch.float32, device),
            torch.from_numpy(start.labels)[own],
            start.doubt[own],
            partial(self._opinion, source, progress),
            hold=max(1, round(HOLD * epochs)),
            # Once only where features have to be computed for it.
            every=ASK_EVERY if in_memory(place(source)[1], width, group) else epochs,
            trim=self.trim,
            temperature=self.temperature,
            balance=self.balance,
            shares=_shares(start.labels, k),
            saved=saved,
        )

    def _opinion(self, source: Source, progress: PlusProgress) -> SecondOpinion:
        group, device = progress.group, check.device(self.device)
        assert progress.wide is not None
        features = held_features(progress.wide.to(device), source, group)
        return second_opinion(features, self.n_clusters, self.random_state_, device, group)

    def _epochs(self, n: int) -> int:
        if not isinstance(self.epochs, str):
            return self.epochs
        return max(FEWEST_EPOCHS, min(MOST_EPOCHS, -(-STEPS * self.batch_size // n)))

    # Using the fitted model ---------------------------------------------------------------------

    @property
    def features_(self) -> FeatureChain:
        """From samples to the features of the start."""
        return self._part("features")

    @property
    def encoder_(self) -> ConvEncoder | None:
        """The refined network."""
        return self.model_.network  # type: ignore[return-value]

    @property
    def latent_(self) -> UnitLatent:
        """From its codes to unit vectors."""
        return self._part("latent")

    @property
    def scaling_(self) -> InputScaling:
        """From stored values to those of the refined network."""
        return self._part("scaling")

    def _temperature(self) -> float:
        if self.encoder_ is None:
            return super()._temperature()
        return self._params_of_fit["temperature"]

    def _opened(self, X: Any) -> Source:
        return super()._opened(X if self._encoder_of_fit is None else encoded_for_use(self, X))

    def _check_params(self, n_samples: int) -> None:
        check.plus_parameters(self, n_samples, len(self.model_.shape) == 3)

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
        fitted = facts_of(model)
        told = fitted.get("chosen", "k-subspaces")
        if not isinstance(told, str):
            raise ValueError("chosen is no text")
        if not isinstance(model.params["params"].get("encoder"), (str, type(None))):
            raise ValueError("its encoder has no name")
        return {
            "subspace_dim_": integer(fitted, "subspace_dim", 0),
            # Older files know how runs agreed.
            "confidence_": number(fitted, "confidence" if "confidence" in fitted else "agreement"),
            "chosen_": told[:200],
            "image_encoder_": None,
            "_encoder_of_fit": checked_about(
                fitted.get("image_encoder", model.params.get("image_encoder"))
            ),
        }


def _shares(labels: NDArray, k: int) -> Tensor:
    """The share of the samples in each cluster, (k,); none has nothing."""
    return torch.from_numpy((np.bincount(labels, minlength=k) + 1) / (len(labels) + k)).float()
