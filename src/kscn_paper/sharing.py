"""`KSCN` in a table: runs that differ after pretraining only share it.

kSCN-S and kSCN-G of one seed begin with the same network. It is kept, with the state of the random
numbers, where the rivals keep theirs (`kscn_paper.rivals.pretrained`), so a run that finds it ends
as it would have ended without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kscn.data import Source
from kscn.estimators.deep import KSCN
from kscn.stages.pretrain import Pretrain
from kscn.stages.run import Fit, Stage
from kscn_paper.rivals import pretrained

KIND = "PretrainedKSCN"
# Raised whenever pretraining changes, so that no network of an older one is used.
VERSION = 1
# All that pretraining depends on besides the samples and the seed.
SETTINGS = (
    "autoencoder", "autoencoder_params", "augment", "batch_size", "learning_rate",
    "pretrain_epochs", "schedule",
)  # fmt: skip


@dataclass(eq=False, repr=False, kw_only=True)
class PretrainedOnce(KSCN):
    """A `KSCN` with settings of a preset that looks for its pretraining on disk first."""

    def stages(self, source: Source, fit: Fit) -> list[Stage]:
        """Those of `KSCN`."""
        pretraining, *later = super().stages(source, fit)
        assert isinstance(pretraining, Pretrain)
        return [KeptPretrain(pretraining.model, pretraining.batches, pretraining.settings), *later]


class KeptPretrain(Pretrain):
    """Pretraining whose outcome is kept on disk, and taken from there."""

    def run(self, fit: Fit) -> None:
        """Take in the network that is kept, or train one and keep it."""
        recipe = {name: self.settings[name] for name in SETTINGS}
        recipe |= {"seed": fit.seed, "version": VERSION}
        path = pretrained.place() / f"kscn-{pretrained.fingerprint(self.batches.source, recipe)}"
        kept = pretrained.restore(self.network, path, KIND, recipe, more=["generator"])
        if kept is not None:
            fit.generator.set_state(kept["generator"])
            fit.record({"stage": "pretrained", "network": path.name})
            return
        super().run(fit)
        if _complete(fit.estimator.history_):
            state = fit.generator.get_state()
            pretrained.keep(self.network, path, KIND, recipe, generator=state)


def _complete(history: list[dict[str, Any]]) -> bool:
    """Whether pretraining had any epochs, and a callback did not end it early."""
    return bool(history) and history[-1]["epoch"] == history[-1]["epochs"]
