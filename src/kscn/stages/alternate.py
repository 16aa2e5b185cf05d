"""The last stage of a `KSCN` fit: the alternation, from a start that was found before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from numpy.typing import NDArray

from kscn.model import SubspaceModel
from kscn.runtime.checkpoint import State, prefixed
from kscn.runtime.minibatches import Minibatches
from kscn.stages.alternation import Alternation, Epoch
from kscn.stages.latent import FindStart, latent_of
from kscn.stages.pretrain import NetworkStage
from kscn.stages.run import Fit
from kscn.subspaces import Subspaces


class Alternate(NetworkStage):
    """Network and subspaces in turn, from the subspaces that `start` has found.

    Attributes
    ----------
    found : tuple of Subspaces, ndarray, float
        Subspaces, labels and inertia, once the stage has run.
    """

    name = "alternate"
    found: tuple[Subspaces, NDArray, float]

    def __init__(
        self,
        model: SubspaceModel,
        batches: Minibatches,
        settings: Mapping[str, Any],
        start: FindStart,
        update: str,
    ) -> None:
        super().__init__(model, batches, settings)
        self.start, self.update = start, update

    def run(self, fit: Fit) -> None:
        """Alternate for the epochs that are left."""
        if hasattr(self, "found"):
            return
        use, state = self.settings, self.loaded
        if state is not None:
            self.model.latent = latent_of(state).to(fit.device)
        epochs = use["epochs"]
        start = self.start.subspaces if state is None else Subspaces(state.tensors["bases"])
        taken = ("loss", "weight", "trim", "temperature", "balance")
        self.alternation = Alternation(
            self._trainer(fit, epochs, "the alternation"),
            start.to(torch.float32, fit.device),
            update=self.update,
            found=self.start.labels,
            **{name: use[name] for name in taken},
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
        self.found = self.alternation.numbered()[:3]

    def state_dict(self) -> State:
        """That of the alternation; the network and what was found once it is over."""
        if not hasattr(self, "found"):
            return self.alternation.state_dict()
        subspaces, labels, inertia = self.found
        weights = prefixed("autoencoder", self.network.state_dict())
        weights |= prefixed("latent", self.model.latent.state_dict())
        found = {"bases": subspaces.bases, "found": torch.from_numpy(labels)}
        return State({"inertia": inertia}, weights | found)

    def load_state_dict(self, state: State) -> None:
        """Let `run` go on from here, or put back what it found if it was over."""
        super().load_state_dict(state)
        if "found" in state.tensors:
            self.network.load_state_dict(state.part("autoencoder"))
            self.model.latent = latent_of(state).to(self.batches.device)
            labels = state.tensors["found"].numpy()
            self.found = Subspaces(state.tensors["bases"]), labels, state.facts["inertia"]
