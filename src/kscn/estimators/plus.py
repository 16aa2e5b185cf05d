"""`KSCNPlus`: fixed features, k-subspaces that many runs agree on, self-labelled refinement."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from kscn.data import Source, as_source
from kscn.estimators import network
from kscn.estimators import validation as check
from kscn.estimators.labels import canonical_order
from kscn.estimators.linear import KSubspaces
from kscn.estimators.plusfile import read_plus, write_plus
from kscn.estimators.representation import Candidate, Representation, choose
from kscn.estimators.usage import LatentClusterer
from kscn.modelfile import ModelFile
from kscn.nn import ConvEncoder, InputScaling, UnitLatent
from kscn.subspaces import Subspaces
from kscn.training.alternate import Epoch, assign
from kscn.training.blocks import Blocks
from kscn.training.latents import Encoder, encode
from kscn.training.minibatches import Minibatches
from kscn.training.pretrain import Trainer
from kscn.training.refine import Refinement

if TYPE_CHECKING:
    from typing_extensions import Self

# Features of all samples are kept in memory up to this size; larger ones are computed once.
KEEP_BYTES = 2**30
# Latent dimensions shared out between the subspaces of the refined network, and at most per one.
LATENT_DIM, MOST_DIM = 80, 8
# Steps of the refinement where `epochs` is "auto", within these numbers of epochs.
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 4000, 14, 60
# Share of the epochs in which the network learns the clusters of the start.
HOLD = 0.3
# Of the average of the weights, per step.
AVERAGE = 0.99


class KSCNPlus(LatentClusterer):
    """The method that aims at the highest accuracy: three stages, none of which sees a label.

    1. *Features.* Images become wavelet scattering coefficients, reduced to principal components;
       vectors are reduced directly. Which components, and the dimension of the subspaces, are
       chosen by how well many short runs of k-subspaces agree with each other.
    2. *Start.* What the best of these runs have in common, brought to convergence on all samples.
       If they have little in common, the one with the most even clusters among the better ones.
    3. *Refinement* (images). An encoder learns to put altered views of an image into the subspace
       of the image, from the clearest images first, and its own clusters replace those of the
       start.

    Time is linear in the number of samples, and samples are read in batches.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of subspaces.
    components : int or "auto", default="auto"
        Principal components of the features.
    whiten : bool or "auto", default="auto"
        Whether each is divided by its spread.
    subspace_dim : int or "auto", default="auto"
        Dimension of the subspaces of the start, in the space of the components.
    starts : int, default=30
        Runs of k-subspaces per representation.
    refine : bool or "auto", default="auto"
        Whether to refine; "auto" does for images.
    epochs : int or "auto", default="auto"
        Of the refinement; "auto" takes more for fewer samples.
    trim : float, default=0.2
        Share of each cluster, its least clear samples, that does not teach the encoder.
    temperature : float, default=0.1
        Of the energies as logits.
    balance : float, default=0.5
        How much the refinement asks for clusters of equal size; 0 leaves it out.
    augment : "affine", dict or callable, default="affine"
        Random changes of an image that do not change what it shows.
    batch_size : int, default=256
        Samples per step.
    learning_rate : float, default=3e-3
        Peak of the cycle of Adam.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything random. The one used is recorded in `random_state_`.
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
    components_, whiten_, subspace_dim_, agreement_
        The representation chosen, and how well runs agreed in it, from 0 to 1.
    encoder_ : ConvEncoder or None
        The refined network.
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

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        components: int | str = "auto",
        whiten: bool | str = "auto",
        subspace_dim: int | str = "auto",
        starts: int = 30,
        refine: bool | str = "auto",
        epochs: int | str = "auto",
        trim: float = 0.2,
        temperature: float = 0.1,
        balance: float = 0.5,
        augment: str | Mapping[str, Any] | Callable[..., Tensor] = "affine",
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Iterable[Callable[[Any, dict[str, Any]], object]] = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.components = components
        self.whiten = whiten
        self.subspace_dim = subspace_dim
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
        self.callbacks = callbacks

    # Fitting ------------------------------------------------------------------------------------

    def fit(self, X: Any, y: object = None) -> Self:
        """Find the clusters of X.

        Parameters
        ----------
        X : array-like, memmap, torch.Tensor, torch Dataset, data.Source or path
            Images (n, h, w) or (n, c, h, w), or vectors (n, d).
        y : ignored
        """
        source = check.open_samples(self, X, reset=True)
        for name in ("subspaces_", "labels_"):  # a fit that fails leaves no mixture of old and new
            if hasattr(self, name):
                delattr(self, name)
        self._input_shape = network.image_shape(source.shape) or source.shape
        image = len(self._input_shape) == 3
        check.plus_parameters(self, len(source), image)
        self.random_state_ = check.seed(self.random_state)
        self.history_: list[dict[str, Any]] = []
        self._began = time.perf_counter()
        self.encoder_: ConvEncoder | None = None
        self.n_iter_ = 0

        chosen = self._choose(source, image)
        linear, features = self._start(source, chosen)
        self.start_labels_ = linear.labels_
        if self.refine is True or (self.refine == "auto" and image):
            self._refine(source, linear, features)
        else:
            self._keep(
                Subspaces(torch.from_numpy(linear.subspaces_)), linear.labels_, linear.inertia_
            )
        return self

    def fit_predict(self, X: Any, y: object = None) -> NDArray:
        """Fit and return `labels_`."""
        return self.fit(X).labels_

    def _choose(self, source: Source, image: bool) -> Representation:
        tried = None
        if not isinstance(self.components, str):
            tried = [Candidate(self.components, self.whiten is True, int(self.subspace_dim))]
        chosen = choose(
            source,
            self.n_clusters,
            tried,
            image=image,
            starts=self.starts,
            seed=self.random_state_,
            on_record=self._record,
        )
        self.features_ = chosen.features
        self.components_, self.whiten_, self.subspace_dim_ = (
            chosen.candidate.components,
            chosen.candidate.whiten,
            chosen.candidate.subspace_dim,
        )
        self.agreement_ = chosen.agreement
        return chosen

    def _start(self, source: Source, chosen: Representation) -> tuple[KSubspaces, Source]:
        """k-subspaces on the features of all samples, from what the runs agreed on."""
        features = self.features_.source(source)
        kept = len(features) * features.row_bytes <= KEEP_BYTES
        if kept:
            features = as_source(np.asarray(features, np.float32), name=features.name)
        linear = KSubspaces(
            self.n_clusters,
            subspace_dim=chosen.candidate.subspace_dim,
            init=chosen.start(features, self.random_state_, self._record).bases.numpy(),
            # Every iteration reads all features: one pass has to do where they are computed anew.
            max_iter=100 if kept else 1,
            tol=1e-5,
            device=self.device,
            random_state=self.random_state_,
            callbacks=[lambda _, record: self._record({**record, "stage": "start"})],
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            linear.fit(features)
        return linear, features

    def _refine(self, source: Source, linear: KSubspaces, features: Source) -> None:
        device = check.device(self.device)
        self.scaling_ = InputScaling.of(source, image=True).to(device)
        batches = self._batches(source)
        k = self.n_clusters
        p = max(2, min(MOST_DIM, LATENT_DIM // k))
        # Not torch's global generator: the user's own random numbers stay as they were.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state_)
            encoder = ConvEncoder(self._input_shape, k * p).to(device)
        epochs = self._epochs(len(source))
        trainer = Trainer(
            encoder,
            UnitLatent(),
            batches,
            epochs=epochs,
            learning_rate=self.learning_rate,
            schedule="one-cycle",
            augment=network.augmentation(self.augment, self._input_shape),
            generator=torch.Generator().manual_seed(self.random_state_),
            stage="the refinement",
            reconstruct=False,
            average=AVERAGE,
        )
        # Orthogonal to each other to begin with, in coordinates that the network can choose.
        bases = torch.eye(k * p).view(k * p, k, p).permute(1, 0, 2).contiguous()
        refinement = Refinement(
            trainer,
            Subspaces(bases).to(torch.float32, device),
            torch.from_numpy(linear.labels_),
            _doubt(linear, features),
            hold=max(1, round(HOLD * epochs)),
            trim=self.trim,
            temperature=self.temperature,
            balance=self.balance,
        )

        def on_epoch(epoch: Epoch) -> bool:
            self.n_iter_ = epoch.number
            facts = asdict(epoch)
            del facts["reconstruction"]
            return self._record(
                {"stage": "fit", "epoch": facts.pop("number"), "epochs": epochs, **facts}
            )

        refinement.run(epochs, 0.0, on_epoch)
        averaged, self.latent_ = trainer.encoding
        assert isinstance(averaged, ConvEncoder)
        self.encoder_ = averaged.eval().requires_grad_(False)
        found, labels, distance = refinement.subspaces, refinement.labels, refinement.distance
        for _ in range(2):  # renumbering can tip a tie and with it a size; see KSubspaces
            order = canonical_order(labels.numpy(), k)
            if (order == np.arange(k)).all():
                break
            found = found.reordered(torch.from_numpy(order).to(found.bases.device))
            blocks = Blocks(refinement.latents, torch.float32, found.bases.device)
            labels, distance = assign(blocks, found)[:2]
        self._keep(found, labels.numpy(), float(distance.double().sum()))

    def _epochs(self, n: int) -> int:
        if not isinstance(self.epochs, str):
            return self.epochs
        return max(FEWEST_EPOCHS, min(MOST_EPOCHS, -(-STEPS * self.batch_size // n)))

    def _keep(self, found: Subspaces, labels: NDArray, inertia: float) -> None:
        self.labels_ = labels.astype(np.int32)
        self.inertia_ = inertia
        # Latents are float32 whatever the samples are, and products want one precision.
        self.subspaces_ = found.bases.float().cpu().numpy()
        self.subspace_dims_ = found.dims.cpu().numpy()
        free = found.ambient_dim - self.subspace_dims_[self.labels_]
        self.noise_variance_ = inertia / max(1, int(free.sum()))
        self._n_features_out = found.ambient_dim
        missing = self.n_clusters - len(np.unique(self.labels_))
        if missing:
            warnings.warn(
                f"{missing} of the {self.n_clusters} clusters ended up empty; the data may hold "
                "fewer distinct groups than n_clusters.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _record(self, record: dict[str, Any]) -> bool:
        record["seconds"] = time.perf_counter() - self._began
        self.history_.append(record)
        stop = False
        for callback in self.callbacks:  # every one is called, also after one asked to stop
            stop |= callback(self, record) is True
        return stop

    # Using the fitted model ---------------------------------------------------------------------

    def _scale(self) -> float:
        return self.temperature if self.encoder_ is not None else 2 * self.noise_variance_

    def _batches(self, source: Source) -> Minibatches:
        device = check.device(self.device)
        return Minibatches(source, self.scaling_, self._input_shape, self.batch_size, device)

    def _latent_blocks(self, X: Any) -> Blocks:
        check_is_fitted(self, "subspaces_")
        source = check.open_samples(self, X, reset=False)
        device = check.device(self.device)
        if self.encoder_ is None:
            return Blocks(self.features_.source(source), torch.float32, device)
        network.check_images(source, self._input_shape)
        for part in (self.encoder_, self.latent_, self.scaling_):
            part.to(device)  # a loaded model is on the CPU at first
        latents = encode(self._batches(source), Encoder(self.encoder_, self.latent_))
        return Blocks(latents, torch.float32, device)

    # Model files --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to the directory `path` (safetensors + JSON, never pickle)."""
        check_is_fitted(self, "subspaces_")
        write_plus(self, path)

    @classmethod
    def _from_model(cls, model: ModelFile) -> Self:
        """Rebuild a fitted estimator; `labels_` and `history_` belong to the run, not the model."""
        return read_plus(cls, model)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _doubt(linear: KSubspaces, features: Source) -> Tensor:
    """Minus the gap between the nearest and the second nearest subspace of every sample, (n,)."""
    if linear.n_clusters == 1:
        return torch.zeros(len(features))
    pieces = []
    for _, rows in features.batches(2**16):
        nearest = torch.from_numpy(linear.residuals(rows)).topk(2, dim=1, largest=False).values
        pieces.append(nearest[:, 0] - nearest[:, 1])
    return torch.cat(pieces)
