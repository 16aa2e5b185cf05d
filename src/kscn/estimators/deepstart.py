"""Where the subspaces of a deep fit begin, once the pretrained latents are there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from kscn.baselines.self_expression import dsc_labels
from kscn.data import Source, as_source
from kscn.estimators import validation as check
from kscn.estimators.deepstate import DeepProgress
from kscn.estimators.linear import KSubspaces
from kscn.subspaces import Subspaces
from kscn.training.blocks import Blocks
from kscn.training.checkpoint import State
from kscn.training.distributed import Group, own_rows, place
from kscn.training.labels import assign
from kscn.training.latents import LatentSource

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
    device: torch.device,
    group: Group,
    progress: DeepProgress,
) -> Subspaces:
    """The subspaces to begin with; arguments as in `KSCN`, `on_record` hears of the search.

    `latents` are those of this process; the processes of the `group` find the same subspaces.
    """
    # Encoded anew for every pass: then the search on a subsample and one pass over all have to do.
    streamed = group.any(isinstance(latents, LatentSource))
    latents = group.holding(latents)
    d = latents.shape[0]
    check.latent_dims("subspace_dim", subspace_dim, n_clusters, d)
    if init_dim is not None:
        check.latent_dims("init_dim", init_dim, n_clusters, d)
    if not isinstance(init, str):
        labels = np.asarray(init).astype(np.int64)
    elif init == "k-means":
        labels = _k_means(latents, n_clusters, n_init, seed, group)
    elif init == "dsc":
        labels = _dsc(latents, n_clusters, subspace_dim, seed, device, group)
    else:
        search = KSubspaces(
            n_clusters,
            subspace_dim=subspace_dim if init_dim is None else init_dim,
            init="auto" if init == "k-subspaces" else init,
            n_init=n_init,
            device=str(device),
            checkpoint_minutes=progress.estimator.checkpoint_minutes,
            callbacks=[on_record],
        )
        if streamed:
            search.set_params(max_iter=1)
        searched = _best_of(search, latents, restarts, seed, progress)
        if init_dim is None:
            return Subspaces(searched.bases)
        labels = searched.labels.numpy()
    return _subspaces_of(latents, labels, n_clusters, subspace_dim, device)


class _Searched(NamedTuple):
    """The result of a search."""

    inertia: float
    bases: Tensor
    labels: Tensor


def _best_of(
    search: KSubspaces, latents: Source, restarts: int, seed: int, progress: DeepProgress
) -> _Searched:
    """The lowest of independent searches; what they found so far is part of every state."""
    best, done, saved = None, 0, progress.at("start")
    if saved is not None and "searches" in saved.facts:
        done, found = saved.facts["searches"], saved.part("best")
        best = _Searched(saved.facts["inertia"], found["bases"], found["labels"])

    def state() -> State:
        facts = {"searches": done, "inertia": best.inertia} if best is not None else {}
        tensors = {} if best is None else {"best.bases": best.bases, "best.labels": best.labels}
        return State(facts, tensors)

    progress.enter("start", state)
    progress.keeper.keep()
    for turn in range(done, restarts):
        name = f"start-{turn}"
        heard = len(progress.estimator.history_)
        # Latents that another number of processes has whitened differ in their last digits: to a
        # search that was interrupted they are other samples, and it is begun anew.
        inside = progress.keeper.below(f"{name}/by-{progress.group.size}")
        search.set_params(random_state=(seed + turn) % 2**32, checkpoint_dir=inside)
        with warnings.catch_warnings():
            if search.max_iter == 1:  # as intended
                warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = search.fit(latents)
        _complete(progress.estimator.history_, heard, fitted.history_)
        if best is None or fitted.inertia_ < best.inertia:
            bases, labels = (torch.from_numpy(a) for a in (fitted.subspaces_, fitted.labels_))
            best = _Searched(fitted.inertia_, bases, labels)
        done = turn + 1
        progress.keeper.keep(always=True)
        progress.keeper.forget(name)
    assert best is not None
    return best


def renamed(record: dict[str, Any]) -> dict[str, Any]:
    """A record of a search as one of the whole fit, where "fit" is something else."""
    return record | {"stage": {"search": "search", "fit": "start"}[record["stage"]]}


def _complete(history: list[dict[str, Any]], heard: int, searched: list[dict[str, Any]]) -> None:
    """Put in what a search that was gone on with had told before, which is in its state only."""
    before = searched[: len(searched) - (len(history) - heard)]
    passed = history[heard - 1]["seconds"] if heard else 0.0
    history[heard:heard] = [
        renamed(record) | {"seconds": passed + record["seconds"]} for record in before
    ]


def _subspaces_of(
    latents: Source,
    labels: NDArray,
    n_clusters: int,
    subspace_dim: int | Sequence[int] | str,
    device: torch.device,
) -> Subspaces:
    """The subspaces of given clusters: one iteration from their labels, and nothing more."""
    found = KSubspaces(
        n_clusters,
        subspace_dim=subspace_dim,
        init=labels,
        max_iter=1,
        device=str(device),
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found.fit(latents)
    return Subspaces(torch.from_numpy(found.subspaces_))


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
    found = _subspaces_of(as_source(subset), few.numpy(), n_clusters, subspace_dim, device)
    labels = assign(Blocks(latents, torch.float32, device), found.to(torch.float32, device))[0]
    return group.gather(labels).cpu().numpy()
