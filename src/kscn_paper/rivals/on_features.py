"""Affinity methods on the latent of a pretrained autoencoder: SSC-SAE, LRR-CAE and their like."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kscn.constraints import parameter
from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn_paper.rivals import make
from kscn_paper.rivals.autoencoder import AutoencoderRival
from kscn_paper.rivals.self_expression import AffinityRival


@dataclass(eq=False, repr=False, kw_only=True)
class OnFeatures(AutoencoderRival):
    """Cluster by an affinity between the latents of a pretrained autoencoder.

    The network is the one that `AutoencoderKMeans`, `DEC` and `DCN` begin with. There is no
    `predict`: an affinity says nothing about samples that it was not made of.

    Parameters
    ----------
    method : {"ssc", "lrr", "kssc", "ssc-omp"}, default="ssc"
        The method that clusters the latents.
    method_params : mapping or None, default=None
        Its parameters, such as {"alpha": 50}, except those that are also parameters here.
    pretrain_on : samples or None, default=None
        What the network learns from, when it is more than the samples to be clustered (an affinity
        cannot take as many as a network can). None for the samples themselves.

    Attributes
    ----------
    clusterer_ : AffinityRival
        The method, fitted to the latents; the history goes on with its records.
    affinity_ : ndarray or scipy.sparse.csr_array of shape (n, n)
        That of the method.
    n_iter_ : int
        Iterations of the method.
    """

    method: str = parameter("ssc", "lrr", "kssc", "ssc-omp")
    method_params: Mapping[str, Any] | None = None
    pretrain_on: Any = None

    def _check(self, n_samples: int) -> None:
        super()._check(n_samples)
        self._inside(None)._check(n_samples)  # before the network is trained

    def _fit(self, source: Source) -> None:
        teaching = source if self.pretrain_on is None else as_source(self.pretrain_on)
        if teaching.shape != source.shape:
            raise InputError(
                f"pretrain_on has samples of shape {teaching.shape}, those to be clustered have "
                f"{source.shape}; give samples of the same kind."
            )
        self._pretrain(teaching)
        self.clusterer_ = self._inside(self.random_state_).fit(self._latents(source))
        self.history_ += self.clusterer_.history_
        self.labels_ = self.clusterer_.labels_
        self.affinity_ = self.clusterer_.affinity_
        self.n_iter_ = self.clusterer_.n_iter_

    def _inside(self, seed: int | None) -> AffinityRival:
        shared = {"device": self.device, "random_state": seed}
        return make(self.method, self.n_clusters, **shared, **(self.method_params or {}))
