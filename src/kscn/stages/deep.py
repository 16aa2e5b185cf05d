"""The stages of a `KSCN` fit: pretraining, the start, and the alternation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.baselines.self_expression import dsc_labels
from kscn.data import Source, as_source
from kscn.errors import InputError, TrainingError
from kscn.model import SubspaceModel
from kscn.nn import IdentityLatent, WhitenedLatent
from kscn.runtime.blocks import Blocks
from kscn.runtime.checkpoint import State, prefixed
from kscn.runtime.group import Group, own_rows, place, send_module
from kscn.runtime.labels import Numbered, assign
from kscn.runtime.latents import Encoder, LatentSource, encode, moments
from kscn.runtime.minibatches import Minibatches
from kscn.stages import network
from kscn.stages import validation as check
from kscn.stages.alternate import Alternation, Epoch
from kscn.stages.pretrain import EpochLosses, Trainer, pretrain
from kscn.stages.run import Fit, Stage
from kscn.stages.start import StartSearch, SubspaceStage, subspaces_of
from kscn.subspaces import Subspaces, check_size

# A random subset of this size is what DSC-Net starts from.
DSC_SAMPLES = 2000


class NetworkStage(Stage):
    """A stage that trains or uses the network of a model.

    Parameters
    ----------
    model : SubspaceModel
        With its network; the latent map follows.
    batches : Minibatches
        The samples of this process.
    settings : mapping
        Of `KSCN`, none of which is "auto".
    """

    def __init__(
        self, model: SubspaceModel, batches: Minibatches, settings: Mapping[str, Any]
    ) -> None:
        self.model, self.batches, self.settings = model, batches, settings

    def _trainer(self, fit: Fit, epochs: int, stage: str) -> Trainer:
        use = self.settings
        assert self.model.network is not None
        return Trainer(
            self.model.network,
            self.model.latent,
            self.batches,
            epochs=epochs,
            learning_rate=use["learning_rate"],
            schedule=use["schedule"],
            augment=network.augmentation(use["augment"], self.model.shape),
            generator=fit.generator,
            stage=stage,
            group=fit.group,
            safe_points=fit.safe_points,
        )


class Pretrain(NetworkStage):
    """The autoencoder alone."""

    name = "pretrain"
    trainer: Trainer | None = None

    def run(self, fit: Fit) -> None:
        """Train for the epochs that are left."""
        epochs = self.settings["pretrain_epochs"]

        def report(number: int, losses: EpochLosses) -> bool:
            return fit.record(
                {
                    "stage": "pretrain",
                    "epoch": number,
                    "epochs": epochs,
                    "reconstruction": losses.reconstruction,
                }
            )

        self.trainer = self._trainer(fit, epochs, "pretraining")
        if self.loaded is not None:
            self.trainer.load_state_dict(self.loaded)
        pretrain(self.trainer, epochs, report)
        self.trainer = None

    def state_dict(self) -> State:
        """That of the training; nothing once it is over, since later stages have the weights."""
        return State({}) if self.trainer is None else self.trainer.state_dict()


class FindStart(NetworkStage):
    """The map from codes to latents, and the subspaces to begin with.

    Parameters
    ----------
    model, batches, settings
        As in `NetworkStage`.
    n_clusters : int
        How many subspaces.
    narrower : callable
        Settings for a latent of so many directions, where codes carry fewer than were wanted.
    """

    name = "start"
    running = False
    search: SubspaceStage | None = None

    def __init__(
        self,
        model: SubspaceModel,
        batches: Minibatches,
        settings: Mapping[str, Any],
        n_clusters: int,
        narrower: Callable[[int], Mapping[str, Any]],
    ) -> None:
        super().__init__(model, batches, settings)
        self.n_clusters, self.narrower = n_clusters, narrower

    def run(self, fit: Fit) -> None:
        """Whiten the codes if that is wanted, and search."""
        assert self.model.network is not None
        if self.loaded is not None and self.loaded.tensors:
            self.model.network.load_state_dict(self.loaded.part("autoencoder"))
        self.running = True
        fit.safe_points.reached()
        self.model.latent = self._latent_map(fit.group).to(fit.device)
        latents = encode(self.batches, Encoder(self.model.network, self.model.latent))
        self.subspaces = self._find(latents, fit)
        self.running = False

    def state_dict(self) -> State:
        """The weights, and how far the search is; nothing once it is over."""
        if not self.running:
            return State({})
        assert self.model.network is not None
        weights = prefixed("autoencoder", self.model.network.state_dict())
        found = None if self.search is None else self.search.state_dict()
        if found is None:
            return State({}, weights)
        return State({"search": found.facts}, weights | prefixed("search", found.tensors))

    def _latent_map(self, group: Group) -> nn.Module:
        """The map from codes to latents, after a look at the codes of all samples."""
        assert self.model.network is not None
        codes = encode(self.batches, Encoder(self.model.network, IdentityLatent()))
        mean, covariance = moments(codes, group, self.batches.device)
        if self.settings["latent"] == "identity":
            return IdentityLatent()
        wanted = min(len(mean), self.settings["latent_dim"])
        made = WhitenedLatent.from_moments(group.agree(mean), group.agree(covariance), wanted)
        send_module(group, [made])
        carried = made.linear.out_features
        if carried < wanted:  # samples alike or dead units, which whitening cannot bring back
            self.settings = self.narrower(carried)
            try:
                check_dims(self.settings, self.n_clusters, carried)
            except InputError as error:
                raise TrainingError(
                    f"only {carried} of {len(mean)} directions of the pretrained code carry "
                    f"anything, too few to go on; lower learning_rate, or subspace_dim: {error}"
                ) from None
        return made

    def _find(self, latents: Source, fit: Fit) -> Subspaces:
        """The subspaces to begin with, the same in all processes."""
        use, k, group = self.settings, self.n_clusters, fit.group
        # Encoded anew for every pass: then the search on a subsample and one pass have to do.
        streamed = group.any(isinstance(latents, LatentSource))
        latents = group.holding(latents)
        dim, wide, init = use["subspace_dim"], use["init_dim"], use["init"]
        check_dims(use, k, latents.shape[0])
        if not isinstance(init, str):
            labels = np.asarray(init).astype(np.int64)
        elif init == "k-means":
            labels = _k_means(latents, k, use["n_init"], fit.seed, group)
        elif init == "dsc":
            labels = _dsc(latents, k, dim, fit.seed, fit.device, group)
        else:
            search = StartSearch(
                n_clusters=k,
                subspace_dim=dim if wide is None else wide,
                affine=False,
                trim=0.0,
                init={"k-subspaces": "auto", "drawn": "k-means"}.get(init, init),
                n_init=use["n_init"],
                seed=fit.seed,
                group=group,
            )
            most = 1 if streamed else 100
            self.search = SubspaceStage(search, latents, max_iter=most, records="start")
            if self.loaded is not None and "search" in self.loaded.facts:
                inside = State(self.loaded.facts["search"], self.loaded.part("search"))
                self.search.load_state_dict(inside)
            self.search.run(fit)
            found, self.search = self.search.found, None
            if wide is None:
                return found.subspaces
            labels = found.labels
        return subspaces_of(latents, labels, k, dim, fit.device, group)


class Alternate(NetworkStage):
    """Network and subspaces in turn; see `kscn.stages.alternate`.

    Parameters
    ----------
    model, batches
        As in `NetworkStage`.
    start : FindStart
        Has the subspaces to begin with, unless a state has; and the settings, which depend on the
        latent.
    update : {"svd", "grassmann"}
        How subspaces follow.

    Attributes
    ----------
    found : Numbered
        Subspaces and labels, once the stage has run.
    """

    name = "alternate"
    found: Numbered

    def __init__(
        self,
        model: SubspaceModel,
        batches: Minibatches,
        start: FindStart,
        update: str,
    ) -> None:
        super().__init__(model, batches, start.settings)
        self.start, self.update = start, update

    def run(self, fit: Fit) -> None:
        """Alternate for the epochs that are left."""
        use, state = self.start.settings, self.loaded
        if state is not None:
            self.model.latent = _latent_like(state.part("latent")).to(fit.device)
        epochs = use["epochs"]
        trainer = self._trainer(fit, epochs, "the alternation")
        start = Subspaces(state.tensors["bases"]) if state is not None else self.start.subspaces
        self.alternation = Alternation(
            trainer,
            start.to(torch.float32, fit.device),
            update=self.update,
            loss=use["loss"],
            weight=use["weight"],
            trim=use["trim"],
            temperature=use["temperature"],
            balance=use["balance"],
            update_every=use["update_every"],
        )
        if state is not None:
            self.alternation.load_state_dict(state)
        else:
            self.alternation.begin()
            fit.safe_points.reached()

        def on_epoch(epoch: Epoch) -> bool:
            facts = asdict(epoch)
            number = facts.pop("number")
            return fit.record({"stage": "fit", "epoch": number, "epochs": epochs, **facts})

        self.alternation.run(epochs, use["tol"], on_epoch)
        self.found = self.alternation.numbered()

    def state_dict(self) -> State:
        """That of the alternation."""
        return self.alternation.state_dict()


def check_dims(settings: Mapping[str, Any], n_clusters: int, code_dim: int) -> None:
    """Refuse subspaces that do not fit into the latent of codes of a length."""
    whitened = settings["latent"] == "whitened"
    check_size(1 if whitened else n_clusters, code_dim)
    d = min(code_dim, settings["latent_dim"]) if whitened else code_dim
    check.latent_dims("subspace_dim", settings["subspace_dim"], n_clusters, d)
    if settings["init_dim"] is not None:
        check.latent_dims("init_dim", settings["init_dim"], n_clusters, d)


def _latent_like(weights: Mapping[str, Tensor]) -> nn.Module:
    """A map from codes to latents that has weights of these shapes."""
    if not weights:
        return IdentityLatent()
    kept, width = weights["linear.weight"].shape
    with torch.random.fork_rng(devices=[]):  # its own first weights are drawn and thrown away
        return WhitenedLatent(width, kept)


def _k_means(latents: Source, n_clusters: int, n_init: int, seed: int, group: Group) -> NDArray:
    from sklearn.cluster import MiniBatchKMeans

    means = MiniBatchKMeans(n_clusters, batch_size=4096, n_init=n_init, random_state=seed % 2**31)
    everyone = group.gather(torch.from_numpy(np.asarray(latents))).numpy()
    labels = means.fit_predict(everyone).astype(np.int64)
    return group.agree(torch.from_numpy(labels)).numpy()


def _dsc(
    latents: Source,
    n_clusters: int,
    subspace_dim: int | Sequence[int] | str,
    seed: int,
    device: torch.device,
    group: Group,
) -> NDArray:
    """DSC-Net's self-expression clusters a subset; its subspaces take in the rest."""
    rng = np.random.default_rng(seed)
    picked = np.sort(rng.permutation(place(latents)[1])[:DSC_SAMPLES])
    subset = group.gather(torch.from_numpy(latents.take(own_rows(latents, picked))))
    few = group.agree(torch.as_tensor(dsc_labels(subset, n_clusters, random_state=seed)))
    found = subspaces_of(as_source(subset), few.numpy(), n_clusters, subspace_dim, device, group)
    labels = assign(Blocks(latents, torch.float32, device), found.to(torch.float32, device))[0]
    return group.gather(labels).cpu().numpy()
