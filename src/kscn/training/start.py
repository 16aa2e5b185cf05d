"""Between pretraining and the alternation: the latent space, and the subspaces to begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from kscn import checks as check
from kscn.data import Source, as_source
from kscn.errors import InputError, TrainingError
from kscn.features import Components, scattering_steps
from kscn.features.steps import made
from kscn.nn import DeepNetwork, IdentityLatent, WhitenedLatent
from kscn.runtime.blocks import Blocks
from kscn.runtime.group import own_rows, place
from kscn.runtime.labels import assign
from kscn.runtime.lazy import Lazy, held_features
from kscn.runtime.minibatches import Minibatches, encode
from kscn.runtime.moments import code_moments
from kscn.runtime.rows import raw_sample, sample_rows
from kscn.subspaces import Subspaces, check_size
from kscn.training.driver import Result, Run
from kscn.training.k_subspaces import Options, k_subspaces

Settings = Mapping[str, Any]

# A random subset of this size is what a function of the user's clusters.
DRAWN_SAMPLES = 2000
# Samples at most that k-subspaces and k-means iterate on; all others are assigned.
SAMPLES = 100_000
# Whitened directions of scattering coefficients that a start is searched in, found on so many
# images: 80 had the highest and steadiest scores on Fashion-MNIST of 30, 40, 60 and 80.
COMPONENTS = 80
DESCRIBED = 10_000
# What `KSubspaces` calls the starts that are searched.
SEARCHED = {
    "k-subspaces": "auto",
    "neighbours": "neighbours",
    "drawn": "k-means",
    "scattering": "k-means",
}


def deep_start(
    autoencoder: nn.Module,
    batches: Minibatches,
    n_clusters: int,
    settings_of: Callable[[int | None], Settings],
    run: Run,
) -> Result:
    """The map from codes to latents, and the subspaces to begin with.

    `settings_of` gives the settings of the fit, and those in a latent of so many dimensions where
    codes carry fewer directions than were wanted. Tensors of the result: `bases` (k, d, p), those
    below `latent.`, and `labels` (n,) where clusters were found elsewhere than in the latent.
    """
    use = settings_of(None)
    latent = latent_map(autoencoder, batches, use, run).to(run.device)
    latents = run.group.holding(encode(batches, DeepNetwork(autoencoder, latent)))
    carried = latents.shape[0]
    if isinstance(latent, WhitenedLatent) and carried < use["latent_dim"]:
        # Samples alike or dead units leave directions that whitening cannot bring back.
        use = settings_of(carried)
        try:
            check_start(use, n_clusters, carried, batches.source.shape)
        except InputError as error:
            raise TrainingError(
                f"only {carried} of {latent.linear.in_features} directions of the pretrained code "
                f"carry anything, too few to go on; lower learning_rate, or subspace_dim: {error}"
            ) from None
    labels = start_labels(latents, batches.source, use, n_clusters, run)
    found = subspaces_of(latents, labels, n_clusters, use["subspace_dim"], run)
    result = Result({"latent_dim": carried}, {"bases": found.bases})
    result.put("latent", latent.state_dict())
    if isinstance(use["init"], str) and use["init"] == "scattering":
        result.tensors["labels"] = torch.from_numpy(labels).long()
    return result


def start_labels(
    latents: Source, samples: Source, use: Settings, n_clusters: int, run: Run
) -> NDArray:
    """Clusters of the samples of all processes (n,), from which subspaces begin.

    They are found on a bounded sample. All others go to the nearest of its subspaces.
    """
    init, dim, group = use["init"], use["subspace_dim"], run.group
    if not isinstance(init, str) and not callable(init):
        return np.asarray(init).astype(np.int64)
    wide = dim if use["init_dim"] is None else use["init_dim"]
    source = scattered(samples, int(np.max(wide)), run) if init == "scattering" else latents
    n = place(source)[1]
    rows = sample_rows(n, DRAWN_SAMPLES if callable(init) else SAMPLES, run.seed)
    few = group.holding(as_source(source.take(own_rows(source, rows)), name=source.name))
    if callable(init) or init == "k-means":
        labels = _labelled(few, use, n_clusters, run)
        found = subspaces_of(few, labels, n_clusters, dim, run)
    else:
        settings = Options(n_clusters, wide, init=SEARCHED[init], n_init=use["n_init"])
        searched, _, _ = k_subspaces(few, settings, run, stage="start")
        found, labels = searched.subspaces, searched.labels
    if len(rows) == n and not callable(init):
        return labels
    near = assign(Blocks(source, torch.float32, run.device), found.to(torch.float32, run.device))
    return group.gather(near.labels).cpu().numpy()


def subspaces_of(
    source: Source, labels: NDArray, n_clusters: int, dim: int | Sequence[int], run: Run
) -> Subspaces:
    """The subspaces of given clusters: one iteration from their labels, and nothing more."""
    settings = Options(n_clusters, dim, init=labels, max_iter=1)
    return k_subspaces(source, settings, run, stage="")[0].subspaces


def _labelled(few: Source, use: Settings, n_clusters: int, run: Run) -> NDArray:
    """Clusters of a few latents of all processes, by k-means or by a function of the user's."""
    z = run.group.gather(torch.from_numpy(few[:]))
    if callable(use["init"]):
        labels = np.asarray(use["init"](z, n_clusters, run.seed))
    else:
        from sklearn.cluster import KMeans

        means = KMeans(n_clusters, n_init=use["n_init"], random_state=run.seed % 2**31)
        labels = means.fit_predict(z.numpy())
    check.given_labels(labels, len(z), n_clusters)
    return run.group.agree(torch.from_numpy(labels.astype(np.int64))).numpy()


def latent_map(autoencoder: nn.Module, batches: Minibatches, use: Settings, run: Run) -> nn.Module:
    """The map from codes to latents, after a look at the codes of all samples."""
    codes = encode(batches, DeepNetwork(autoencoder, IdentityLatent()))
    mean, covariance = code_moments(codes, run.group, run.device)
    if use["latent"] == "identity":
        return IdentityLatent()
    wanted = min(len(mean), use["latent_dim"])
    latent: nn.Module = run.group.shared(WhitenedLatent.from_moments(mean, covariance, wanted))
    return latent


def latent_of(weights: Mapping[str, torch.Tensor]) -> nn.Module:
    """The map from codes to latents that has these weights."""
    if not weights:
        return IdentityLatent()
    kept, width = weights["linear.weight"].shape
    latent: nn.Module = made(WhitenedLatent, {"latent_dim": width, "n_components": kept}, weights)
    return latent


def check_start(settings: Settings, n_clusters: int, code_dim: int, shape: tuple[int, ...]) -> None:
    """Refuse subspaces that do not fit into the latent of codes of a length, and small images."""
    whitened = settings["latent"] == "whitened"
    check_size(1 if whitened else n_clusters, code_dim)
    d = min(code_dim, settings["latent_dim"]) if whitened else code_dim
    check.subspace_dim(settings["subspace_dim"], n_clusters, d)
    if settings["init_dim"] is not None:
        check.subspace_dim(settings["init_dim"], n_clusters, d, "init_dim")
    if isinstance(settings["init"], str) and settings["init"] == "scattering":
        scattering_steps(shape)


def scattered(samples: Source, dim: int, run: Run) -> Source:
    """Whitened scattering coefficients of the images of this process, at unit norm.

    They have more directions than subspaces of `dim` dimensions fill.
    """
    _, some = raw_sample(samples, DESCRIBED, run.seed, run.group)
    steps = scattering_steps(samples.shape).to(run.device)
    described = Lazy(as_source(some), steps, run.device).all()
    wanted = min(max(COMPONENTS, dim + 1), *(length - 1 for length in described.shape))
    steps.append(Components.fit(described, wanted, whiten=True))
    return held_features(steps, samples, run.device, run.group)
