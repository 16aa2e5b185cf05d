"""k-FSC (Fan, 2021): subspace clustering by factorisation into k groups of atoms.

Codes and atoms are found in turn. Codes are a convex problem for each sample (`group_codes`). Atoms
need only the sums C^T C and C^T X over all samples, so these are read in blocks, and memory does
not grow with their number. Neither step raises the objective.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from kscn.constraints import POSITIVE, Integer, Number, parameter
from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn.estimators.linear import KSubspaces
from kscn.runtime.blocks import Blocks, check_finite, working_dtype
from kscn.runtime.device import kept_memory
from kscn.runtime.labels import canonical_order
from kscn.stages import validation as check
from kscn.subspaces import ScatterSums
from kscn_paper.rivals.base import Baseline, largest_first, subsample, unit_rows
from kscn_paper.rivals.group_codes import Atoms, update_atoms


@dataclass(frozen=True)
class Constants:
    """Numbers that steer the method."""

    # Samples that the start is found on, and what is better done on few before all are read.
    pool: int = 10_000
    # With this share of empty codes the penalty is too large: it is halved, the fit begins again.
    empty_codes: float = 0.1
    # Violation of the conditions of optimality that codes may keep, as a share of the penalty.
    code_tol: float = 3e-3


CONSTANTS = Constants()


@dataclass
class Pass:
    """What one pass over all samples found with the atoms that it had."""

    objective: float
    labels: Tensor  # (n,)
    empty: float  # share of codes that are zero
    active: float  # mean number of groups in a code
    second: Tensor  # C^T C, (k p, k p)
    mixed: Tensor  # C^T X, (k p, d)


@kept_memory()
def code_all(blocks: Blocks, atoms: Atoms, penalty: float) -> Pass:
    """Code all samples, keeping of the codes only sums and labels."""
    width, d = atoms.k * atoms.p, atoms.d
    second = torch.zeros(width, width, dtype=torch.float64, device=blocks.device)
    mixed = torch.zeros(width, d, dtype=torch.float64, device=blocks.device)
    labels = torch.empty(len(blocks), dtype=torch.int32)
    objective, empty, active = 0.0, 0, 0
    for where, x in blocks:
        codes, rest, label = atoms.code(x, penalty, CONSTANTS.code_tol)
        labels[where : where + len(x)] = label.cpu()
        lengths = codes.norm(dim=2)
        objective += float(rest.square().sum(dtype=torch.float64)) / 2
        objective += penalty * float(lengths.sum(dtype=torch.float64))
        empty += int(((lengths.amax(dim=1) == 0) & x.any(dim=1)).sum())
        active += int((lengths > 0).sum())
        flat = codes.flatten(1)
        second += (flat.mT @ flat).double()
        mixed += (flat.mT @ x).double()
    n = len(blocks)
    return Pass(objective, labels, empty / n, active / n, second, mixed)


class UnitBlocks(Blocks):
    """Blocks whose samples have unit length; zero stays zero."""

    def _ready(self, block: Tensor) -> Tensor:
        block = super()._ready(block)
        check_finite(block, block, self.source.name)
        return unit_rows(block)


@dataclass(eq=False, repr=False, kw_only=True)
class KFSC(Baseline):
    """k-factorisation subspace clustering: k groups of atoms, and codes that use few groups.

    Samples are brought to unit length. Then

        1/2 |X - sum_j C_j D_j^T|^2 + penalty * sum over samples and groups of |c_j|

    is minimised over codes C_j and atoms D_j of at most unit length. That asks for few groups, best
    for one: the subspace that a sample lies in. It belongs to the group with its longest code. Time
    is linear in the number of samples, which are read in blocks; no code outlives its block. Images
    are flattened.

    Parameters
    ----------
    subspace_dim : int, default=10
        Atoms in a group.
    penalty : float, default=0.5
        Weight of the length of a code. Where a tenth of the samples gets an empty code, it is
        halved and the fit begins again; `penalty_` is the one used.
    init : {"k-subspaces", "k-means"}, default="k-subspaces"
        How a subsample is clustered at first; atoms are the leading directions of the clusters.
        The paper's start is k-means, which sees no subspace that lies on both sides of the origin.
    n_init : int, default=10
        Starts of k-means, or effort of the search for k-subspaces.
    max_iter : int, default=50
        Passes over the samples at most. The history has a record of each, over a subsample at first
        (stage "start"), then over all ("fit").
    tol : float, default=1e-4
        Stop when the objective falls by less than this share.
    batch_size : int, default=16384
        Samples held at a time.

    Attributes
    ----------
    atoms_ : ndarray of shape (k, d, p)
        The groups of atoms.
    penalty_ : float
        The penalty used.
    objective_ : float
        What is minimised, at the atoms found.
    n_iter_ : int
        Updates of the atoms with all samples.

    Examples
    --------
    >>> from kscn import data, metrics
    >>> from kscn_paper.rivals.k_fsc import KFSC
    >>> X, y, _ = data.make_union_of_subspaces(600, 3, 20, 2, noise=0.01, random_state=0)
    >>> model = KFSC(3, subspace_dim=2, random_state=0).fit(X)
    >>> metrics.clustering_accuracy(y, model.labels_)
    1.0
    """

    subspace_dim: int = parameter(10, Integer(1))
    penalty: float = parameter(0.5, POSITIVE)
    init: str = parameter("k-subspaces", "k-means")
    n_init: int = parameter(10, Integer(1))
    max_iter: int = parameter(50, Integer(1))
    tol: float = parameter(1e-4, Number(0))
    batch_size: int = parameter(16384, Integer(1))

    def _check(self, n_samples: int) -> None:
        super()._check(n_samples)
        if self.n_features_in_ < 2:
            raise InputError(
                f"X has {self.n_features_in_} feature(s), but a subspace needs at least 2 features "
                "to lie in."
            )
        check.subspace_dim(self.subspace_dim, self.n_clusters, self.n_features_in_)

    def _fit(self, source: Source) -> None:
        self._dtype = working_dtype(source.dtype)
        blocks = self._blocks(source)
        # The start is found on a subsample; on all samples where they are few.
        pool = blocks.take(subsample(len(blocks), CONSTANTS.pool, self.random_state_)).cpu()
        if (pool == pool[0]).all():
            raise InputError(
                f"The samples of {source.name} are all equal at unit length; there is nothing to "
                "cluster."
            )
        start = self._start(pool).to(blocks.device)
        self.penalty_ = float(self.penalty)
        if len(pool) < len(blocks):  # most of the way costs little there
            few = self._blocks(as_source(pool.numpy()))
            start = self._alternate(few, start, "start")[0]
        found, labels = self._alternate(blocks, start, "fit")

        def assign(groups: NDArray) -> tuple[NDArray, float]:
            coded = self._pass(blocks, torch.from_numpy(groups))
            return coded.labels.numpy(), coded.objective

        # Sizes change a little with the last update of the atoms, so these are nearly in order.
        groups = found.cpu().numpy()[canonical_order(labels.numpy(), self.n_clusters)]
        self.atoms_, self.labels_, self.objective_ = largest_first(groups, assign)

    def predict(self, X: Any) -> NDArray:
        """The group with the longest code of every sample, shape (n,)."""
        blocks = self._blocks(self._opened(X))
        return self._pass(blocks, torch.from_numpy(self.atoms_)).labels.numpy()

    def _blocks(self, source: Source) -> Blocks:
        device = check.device(self.device)
        return UnitBlocks(source, self._dtype, device, batch_size=self.batch_size)

    def _start(self, pool: Tensor) -> Tensor:
        """Orthonormal atoms (k, d, p): leading directions of the clusters of a subsample."""
        k, p, seed = self.n_clusters, self.subspace_dim, self.random_state_
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than k
            if self.init == "k-subspaces":
                search = KSubspaces(k, subspace_dim=p, n_init=self.n_init, random_state=seed)
                search.set_params(device=self.device)
                return torch.from_numpy(search.fit(pool).subspaces_)
            means = KMeans(k, n_init=self.n_init, random_state=seed % 2**31)
            labels = means.fit_predict(pool.numpy())
        sums = ScatterSums(k, pool.shape[1], affine=False)
        sums.add(pool.double(), torch.from_numpy(labels).long())
        return sums.subspaces(torch.full((k,), p)).bases

    def _pass(self, blocks: Blocks, groups: Tensor) -> Pass:
        atoms = Atoms(groups.to(blocks.device), blocks.dtype)
        return code_all(blocks, atoms, self.penalty_)

    def _alternate(self, blocks: Blocks, start: Tensor, stage: str) -> tuple[Tensor, Tensor]:
        """Code and update in turn; return the atoms and the labels of the last pass."""
        groups, labels = start, torch.full((len(blocks),), -1)
        previous, number = np.inf, 0
        while number < self.max_iter:
            number += 1
            coded = self._pass(blocks, groups)
            stop = self._log(
                stage,
                iteration=number,
                max_iter=self.max_iter,
                objective=coded.objective,
                changed=float((coded.labels != labels).double().mean()),
                empty=coded.empty,
                active=coded.active,
                penalty=self.penalty_,
                samples=len(blocks),
            )
            labels = coded.labels
            if coded.empty > CONSTANTS.empty_codes and not stop:
                self.penalty_ /= 2
                groups, previous, number = start, np.inf, 0
                continue
            groups = update_atoms(groups, coded.second, coded.mixed)
            self.n_iter_ = number
            if stop or previous - coded.objective < self.tol * previous:
                break
            previous = coded.objective
        return groups, labels
