"""Between pretraining and the alternation: the latent space, and the subspaces to begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn import checks as check
from kscn.data import Source, as_source
from kscn.errors import InputError, TrainingError
from kscn.features import Components, scattering_steps
from kscn.nn import DeepNetwork, IdentityLatent, WhitenedLatent
from kscn.runtime.blocks import Blocks
from kscn.runtime.group import own_rows, place, send_module
from kscn.runtime.labels import assign
from kscn.runtime.lazy import Lazy, held_features
from kscn.runtime.minibatches import Minibatches, encode
from kscn.runtime.moments import code_moments
from kscn.runtime.rows import raw_sample, sample, sample_rows
from kscn.subspaces import check_size
from kscn.training.driver import Result, Run
from kscn.training.k_subspaces import StartSearch, k_subspaces, subspaces_of

# Labels of latents (m, d), from the number of clusters and a seed.
Start = Callable[[Tensor, int, int], NDArray]
Settings = Mapping[str, Any]


# A random subset of this size is what a function of the user's clusters.
DRAWN_SAMPLES = 2000
# Samples at most that k-subspaces iterates on, and iterations at most; all others are assigned.
SAMPLES = 100_000
ITERATIONS = 100
# Whitened directions of scattering coefficients that a start is searched in, found on so many
# images: 80 had the highest and steadiest scores on Fashion-MNIST of 30, 40, 60 and 80.
COMPONENTS = 80
DESCRIBED = 10_000


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
    if isinstance(latent, WhitenedLatent) and latent.linear.out_features < use["latent_dim"]:
        carried = latent.linear.out_features
        use = settings_of(carried)
        _check_carried(use, n_clusters, carried, latent.linear.in_features)
    latents = encode(batches, DeepNetwork(autoencoder, latent))
    latents = run.group.holding(latents)
    check_dims(use, n_clusters, latents.shape[0])
    tensors = {f"latent.{name}": value for name, value in latent.state_dict().items()}
    labels = start_labels(latents, batches.source, use, n_clusters, run)
    if isinstance(use["init"], str) and use["init"] == "scattering":
        tensors["labels"] = torch.from_numpy(labels).long()
    found = subspaces_of(latents, labels, n_clusters, use["subspace_dim"], run)
    facts = {"latent_dim": latents.shape[0]}
    return Result(facts, tensors | {"bases": found.bases})


def start_labels(
    latents: Source, samples: Source, use: Settings, n_clusters: int, run: Run
) -> NDArray:
    """Clusters of the samples of all processes (n,), from which subspaces begin."""
    init, wide = use["init"], use["init_dim"]
    dim = use["subspace_dim"] if wide is None else wide
    search = StartSearch(run, n_clusters, dim, n_init=use["n_init"])
    if callable(init):
        return _of_drawn(init, latents, n_clusters, use["subspace_dim"], run)
    if not isinstance(init, str):
        return np.asarray(init).astype(np.int64)
    if init == "k-means":
        return _k_means(latents, n_clusters, use["n_init"], run)
    if init == "scattering":
        described = scattered(samples, int(np.max(dim)), run)
        return searched(described, replace(search, init="k-means"))
    drawn = {"k-subspaces": "auto", "drawn": "k-means"}.get(init, init)
    return searched(latents, replace(search, init=drawn))


def searched(source: Source, search: StartSearch) -> NDArray:
    """Clusters by k-subspaces, which iterates on a bounded sample; all others are assigned."""
    run, n = search.run, place(source)[1]
    rows = sample_rows(n, SAMPLES, run.seed)
    few = source
    if len(rows) < n:
        own = source.take(own_rows(source, rows))
        few = run.group.holding(as_source(own, name=source.name))
    with search.threads(few):
        found = k_subspaces(few, search, max_iter=ITERATIONS, stage="start")
    if len(rows) == n:
        return found.labels
    near = assign(Blocks(source, torch.float32, run.device), found.subspaces)
    return run.group.gather(near.labels).cpu().numpy()


def latent_map(autoencoder: nn.Module, batches: Minibatches, use: Settings, run: Run) -> nn.Module:
    """The map from codes to latents, after a look at the codes of all samples."""
    codes = encode(batches, DeepNetwork(autoencoder, IdentityLatent()))
    mean, covariance = code_moments(codes, run.group, run.device)
    if use["latent"] == "identity":
        return IdentityLatent()
    wanted = min(len(mean), use["latent_dim"])
    agree = run.group.agree
    made = WhitenedLatent.from_moments(agree(mean), agree(covariance), wanted)
    send_module(run.group, [made])
    return made


def latent_of(weights: Mapping[str, Tensor]) -> nn.Module:
    """The map from codes to latents that has these weights."""
    if not weights:
        return IdentityLatent()
    kept, width = weights["linear.weight"].shape
    with torch.random.fork_rng(devices=[]):  # its own first weights are drawn and thrown away
        latent = WhitenedLatent(width, kept)
    latent.load_state_dict(dict(weights))
    return latent


def check_dims(settings: Settings, n_clusters: int, code_dim: int) -> None:
    """Refuse subspaces that do not fit into the latent of codes of a length."""
    whitened = settings["latent"] == "whitened"
    check_size(1 if whitened else n_clusters, code_dim)
    d = min(code_dim, settings["latent_dim"]) if whitened else code_dim
    check.subspace_dim(settings["subspace_dim"], n_clusters, d)
    if settings["init_dim"] is not None:
        check.subspace_dim(settings["init_dim"], n_clusters, d, "init_dim")


def _check_carried(use: Settings, n_clusters: int, carried: int, of: int) -> None:
    """Samples alike or dead units leave directions that whitening cannot bring back."""
    try:
        check_dims(use, n_clusters, carried)
    except InputError as error:
        raise TrainingError(
            f"only {carried} of {of} directions of the pretrained code carry anything, too "
            f"few to go on; lower learning_rate, or subspace_dim: {error}"
        ) from None


def check_start(settings: Settings, source: Source) -> None:
    """Refuse samples that the start cannot be found for, before anything takes time."""
    init = settings["init"]
    if isinstance(init, str) and init == "scattering":
        scattering_steps(source.shape)


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


def _k_means(latents: Source, n_clusters: int, n_init: int, run: Run) -> NDArray:
    """Clusters of k-means on a bounded sample of latents, and the nearest centre for all others."""
    from sklearn.cluster import KMeans

    rows = sample_rows(place(latents)[1], SAMPLES, run.seed)
    few = sample(latents, rows, run.device, run.group).cpu().numpy()
    means = KMeans(n_clusters, n_init=n_init, random_state=run.seed % 2**31).fit(few)
    centres = run.group.agree(torch.from_numpy(means.cluster_centers_)).to(run.device)
    near = [
        torch.cdist(z, centres).argmin(dim=1) for _, z in Blocks(latents, torch.float32, run.device)
    ]
    return run.group.gather(torch.cat(near)).cpu().numpy()


def _of_drawn(start: Start, latents: Source, k: int, subspace_dim: Any, run: Run) -> NDArray:
    """A function of the user's clusters a random subset; its subspaces take in the rest."""
    rows = sample_rows(place(latents)[1], DRAWN_SAMPLES, run.seed)
    subset = sample(latents, rows, run.device, run.group).cpu()
    labels = np.asarray(start(subset, k, run.seed))
    check.given_labels(labels, len(subset), k)
    few = run.group.agree(torch.from_numpy(labels.astype(np.int64)))
    part = run.group.part(as_source(subset))
    found = subspaces_of(part, few.numpy(), k, subspace_dim, run)
    near = assign(Blocks(latents, torch.float32, run.device), found.to(torch.float32, run.device))
    return run.group.gather(near.labels).cpu().numpy()
