"""Where the subspaces of a deep fit begin, once the pretrained latents are there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from kscn.data import Source, as_source
from kscn.estimators import validation as check
from kscn.estimators.linear import KSubspaces
from kscn.subspaces import Subspaces
from kscn.training.alternate import assign
from kscn.training.blocks import Blocks

# A random subset of this size is what DSC-Net starts from.
DSC_SAMPLES = 2000


def find_subspaces(
    latents: Source,
    n_clusters: int,
    subspace_dim: int | Sequence[int] | str,
    *,
    init: str | NDArray,
    init_dim: int | None,
    n_init: int,
    restarts: int,
    seed: int,
    on_record: Callable[[Any, dict[str, Any]], object],
) -> Subspaces:
    """The subspaces to begin with; arguments as in `KSCN`, `on_record` hears of the search."""
    d = latents.shape[0]
    check.latent_dims("subspace_dim", subspace_dim, n_clusters, d)
    if init_dim is not None:
        check.latent_dims("init_dim", init_dim, n_clusters, d)
    if not isinstance(init, str):
        labels = np.asarray(init).astype(np.int64)
    elif init == "k-means":
        labels = _k_means(latents, n_clusters, n_init, seed)
    elif init == "dsc":
        labels = _dsc(latents, n_clusters, subspace_dim, seed)
    else:
        dims = subspace_dim if init_dim is None else init_dim
        searched = min(
            (
                KSubspaces(
                    n_clusters,
                    subspace_dim=dims,
                    n_init=n_init,
                    random_state=(seed + turn) % 2**32,
                    callbacks=[on_record],
                ).fit(latents)
                for turn in range(restarts)
            ),
            key=lambda fitted: fitted.inertia_,
        )
        if init_dim is None:
            return Subspaces(torch.from_numpy(searched.subspaces_))
        labels = searched.labels_
    return _subspaces_of(latents, labels, n_clusters, subspace_dim)


def _subspaces_of(
    latents: Source, labels: NDArray, n_clusters: int, subspace_dim: int | Sequence[int] | str
) -> Subspaces:
    """The subspaces of given clusters: one iteration from their labels, and nothing more."""
    found = KSubspaces(
        n_clusters, subspace_dim=subspace_dim, init=labels, max_iter=1, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found.fit(latents)
    return Subspaces(torch.from_numpy(found.subspaces_))


def _k_means(latents: Source, n_clusters: int, n_init: int, seed: int) -> NDArray:
    from sklearn.cluster import MiniBatchKMeans

    means = MiniBatchKMeans(n_clusters, batch_size=4096, n_init=n_init, random_state=seed % 2**31)
    return means.fit_predict(np.asarray(latents)).astype(np.int64)


def _dsc(
    latents: Source, n_clusters: int, subspace_dim: int | Sequence[int] | str, seed: int
) -> NDArray:
    """DSC-Net's self-expression clusters a subset; its subspaces take in the rest."""
    from kscn.baselines.dsc_net import dsc_labels

    rng = np.random.default_rng(seed)
    picked = np.sort(rng.permutation(len(latents))[:DSC_SAMPLES])
    subset = latents.take(picked)
    few = dsc_labels(torch.from_numpy(subset), n_clusters, random_state=seed)
    found = _subspaces_of(as_source(subset), np.asarray(few), n_clusters, subspace_dim)
    return assign(Blocks(latents, torch.float32, torch.device("cpu")), found)[0].numpy()
