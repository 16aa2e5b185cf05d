"""Between pretraining and the alternation: the latent space, and the subspaces to begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.data import Source, as_source
from kscn.errors import InputError, TrainingError
from kscn.features import FeatureChain, PCAFeatures, ScatteringFeatures
from kscn.model import SubspaceModel
from kscn.nn import IdentityLatent, WhitenedLatent
from kscn.runtime.blocks import Blocks
from kscn.runtime.checkpoint import State, prefixed
from kscn.runtime.group import Group, own_rows, place, send_module
from kscn.runtime.labels import Numbered, assign
from kscn.runtime.latents import Encoder, LatentSource, encode, moments
from kscn.runtime.minibatches import Minibatches
from kscn.stages import validation as check
from kscn.stages.candidates import RULES as SPACES
from kscn.stages.choose import held_features, in_memory, raw_sample
from kscn.stages.pretrain import NetworkStage
from kscn.stages.run import Fit
from kscn.stages.start import StartSearch, SubspaceStage, subspaces_of
from kscn.subspaces import Subspaces, check_size

# Labels of latents (m, d), from the number of clusters and a seed.
Start = Callable[[Tensor, int, int], NDArray]


# A random subset of this size is what a function of the user's clusters.
DRAWN_SAMPLES = 2000
# Of mini-batch k-means.
KMEANS_BATCH = 4096
# Iterations of k-subspaces over all latents at most: as by default in `KSubspaces`.
ITERATIONS = 100
# Whitened directions of scattering coefficients that a start is searched in, found on so many
# images: 80 had the highest and steadiest scores on Fashion-MNIST of 30, 40, 60 and 80.
COMPONENTS = 80
DESCRIBED = 10_000


class FindStart(NetworkStage):
    """The map from codes to latents, and the subspaces to begin with.

    Where codes carry fewer directions than were wanted, `narrower` gives the settings that become
    others in a latent of so many.

    Attributes
    ----------
    subspaces : Subspaces
        Once the stage has run, the same in all processes.
    labels : Tensor of shape (n,) or None
        The clusters of all samples, where they were found elsewhere than in the latent.
    """

    name = "start"
    running = False
    search: SubspaceStage | None = None
    labels: Tensor | None = None

    def __init__(
        self,
        model: SubspaceModel,
        batches: Minibatches,
        settings: dict[str, Any],
        n_clusters: int,
        narrower: Callable[[int], Mapping[str, Any]],
    ) -> None:
        super().__init__(model, batches, settings)
        self.settings: dict[str, Any] = settings
        self.n_clusters, self.narrower = n_clusters, narrower

    def run(self, fit: Fit) -> None:
        """Whiten the codes if that is wanted, and search."""
        self.running = True
        fit.safe_points.reached()
        self.model.latent = self._latent_map(fit.group).to(fit.device)
        latents = encode(self.batches, Encoder(self.network, self.model.latent))
        self.subspaces = self._find(latents, fit)
        self.running = False

    def state_dict(self) -> State:
        """How far the search is; the latent map and the subspaces once it is over."""
        if not self.running:
            latent = prefixed("latent", self.model.latent.state_dict())
            labels = {} if self.labels is None else {"labels": self.labels}
            return State({}, latent | labels | {"bases": self.subspaces.bases})
        found = None if self.search is None else self.search.state_dict()
        if found is None:
            return State({})
        return State({"search": found.facts}, prefixed("search", found.tensors))

    def load_state_dict(self, state: State) -> None:
        """Let `run` go on from here, or put back what it found if it was over."""
        super().load_state_dict(state)
        if "bases" in state.tensors:
            self.model.latent = latent_of(state).to(self.batches.device)
            self.subspaces = Subspaces(state.tensors["bases"])
            self.labels = state.tensors.get("labels")

    def _latent_map(self, group: Group) -> nn.Module:
        """The map from codes to latents, after a look at the codes of all samples."""
        codes = encode(self.batches, Encoder(self.network, IdentityLatent()))
        mean, covariance = moments(codes, group, self.batches.device)
        if self.settings["latent"] == "identity":
            return IdentityLatent()
        wanted = min(len(mean), self.settings["latent_dim"])
        made = WhitenedLatent.from_moments(group.agree(mean), group.agree(covariance), wanted)
        send_module(group, [made])
        carried = made.linear.out_features
        if carried < wanted:  # samples alike or dead units, which whitening cannot bring back
            self.settings.update(self.narrower(carried))
            try:
                check_dims(self.settings, self.n_clusters, carried)
            except InputError as error:
                raise TrainingError(
                    f"only {carried} of {len(mean)} directions of the pretrained code carry "
                    f"anything, too few to go on; lower learning_rate, or subspace_dim: {error}"
                ) from None
        return made

    def _find(self, latents: Source, fit: Fit) -> Subspaces:
        use, k, group = self.settings, self.n_clusters, fit.group
        # Encoded anew for every pass: then the search on a subsample and one pass have to do.
        streamed = group.any(isinstance(latents, LatentSource))
        latents = group.holding(latents)
        dim, wide, init = use["subspace_dim"], use["init_dim"], use["init"]
        check_dims(use, k, latents.shape[0])
        if callable(init):
            labels = _of_drawn(init, latents, k, dim, fit)
        elif not isinstance(init, str):
            labels = np.asarray(init).astype(np.int64)
        elif init == "k-means":
            labels = _k_means(latents, k, use["n_init"], fit.seed, group)
        elif init == "scattering":
            described = _scattered(fit, int(np.max(dim if wide is None else wide)))
            streamed = not in_memory(place(fit.source)[1], described.shape[0], group)
            labels = self._searched(described, "k-means", streamed, fit).labels
            self.labels = torch.from_numpy(labels).long()
        else:
            drawn = {"k-subspaces": "auto", "drawn": "k-means"}.get(init, init)
            found = self._searched(latents, drawn, streamed, fit)
            if wide is None:
                return found.subspaces
            labels = found.labels
        return subspaces_of(latents, labels, k, dim, fit.device, group)

    def _searched(self, source: Source, drawn: str, streamed: bool, fit: Fit) -> Numbered:
        """k-subspaces of what `source` holds, from starts drawn in this way."""
        use = self.settings
        search = StartSearch(
            n_clusters=self.n_clusters,
            subspace_dim=use["subspace_dim"] if use["init_dim"] is None else use["init_dim"],
            affine=False,
            trim=0.0,
            init=drawn,
            n_init=use["n_init"],
            seed=fit.seed,
            group=fit.group,
        )
        most = 1 if streamed else ITERATIONS
        self.search = SubspaceStage(search, source, max_iter=most, records="start")
        if self.loaded is not None and "search" in self.loaded.facts:
            inside = State(self.loaded.facts["search"], self.loaded.part("search"))
            self.search.load_state_dict(inside)
        self.search.run(fit)
        found, self.search = self.search.found, None
        return found


def latent_of(state: State) -> nn.Module:
    """The map from codes to latents that a state holds."""
    weights = state.part("latent")
    if not weights:
        return IdentityLatent()
    kept, width = weights["linear.weight"].shape
    with torch.random.fork_rng(devices=[]):  # its own first weights are drawn and thrown away
        latent = WhitenedLatent(width, kept)
    latent.load_state_dict(weights)
    return latent


def check_dims(settings: Mapping[str, Any], n_clusters: int, code_dim: int) -> None:
    """Refuse subspaces that do not fit into the latent of codes of a length."""
    whitened = settings["latent"] == "whitened"
    check_size(1 if whitened else n_clusters, code_dim)
    d = min(code_dim, settings["latent_dim"]) if whitened else code_dim
    check.latent_dims("subspace_dim", settings["subspace_dim"], n_clusters, d)
    if settings["init_dim"] is not None:
        check.latent_dims("init_dim", settings["init_dim"], n_clusters, d)


def check_start(settings: Mapping[str, Any], source: Source) -> None:
    """Refuse samples that the start cannot be found for, before anything takes time."""
    init = settings["init"]
    if isinstance(init, str) and init == "scattering":
        _scattering_of(source.take(np.arange(1)))


def _scattering_of(images: NDArray) -> ScatteringFeatures:
    return ScatteringFeatures(largest_side=SPACES.largest_side).fit(images)


def _scattered(fit: Fit, dim: int) -> Source:
    """Whitened scattering coefficients of the images of this process, at unit norm.

    They have more directions than subspaces of `dim` dimensions fill.
    """
    _, some = raw_sample(fit.source, DESCRIBED, fit.seed, fit.group)
    scattering = _scattering_of(some).to(fit.device)
    described = scattering.transform(some)
    wanted = min(max(COMPONENTS, dim + 1), *(length - 1 for length in described.shape))
    whitened = PCAFeatures(wanted, whiten=True).to(fit.device).fit(described)
    chain = FeatureChain.of_fitted([scattering, whitened])
    return held_features(chain, fit.source, fit.group)


def _k_means(latents: Source, n_clusters: int, n_init: int, seed: int, group: Group) -> NDArray:
    from sklearn.cluster import MiniBatchKMeans

    size = KMEANS_BATCH
    means = MiniBatchKMeans(n_clusters, batch_size=size, n_init=n_init, random_state=seed % 2**31)
    everyone = group.gather(torch.from_numpy(np.asarray(latents))).numpy()
    labels = means.fit_predict(everyone).astype(np.int64)
    return group.agree(torch.from_numpy(labels)).numpy()


def _of_drawn(
    start: Start, latents: Source, k: int, subspace_dim: int | Sequence[int] | str, fit: Fit
) -> NDArray:
    """A function of the user's clusters a random subset; its subspaces take in the rest."""
    seed, device, group = fit.seed, fit.device, fit.group
    rng = np.random.default_rng(seed)
    picked = np.sort(rng.permutation(place(latents)[1])[:DRAWN_SAMPLES])
    subset = group.gather(torch.from_numpy(latents.take(own_rows(latents, picked))))
    labels = np.asarray(start(subset, k, seed))
    check.given_labels(labels, len(subset), k)
    few = group.agree(torch.from_numpy(labels.astype(np.int64)))
    found = subspaces_of(as_source(subset), few.numpy(), k, subspace_dim, device, group)
    near = assign(Blocks(latents, torch.float32, device), found.to(torch.float32, device))[0]
    return group.gather(near).cpu().numpy()
