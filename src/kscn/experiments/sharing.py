"""`KSCN` in a table: runs that differ after pretraining only share it.

kSCN-S and kSCN-G of one seed begin with the same network. It is kept, with the state of the random
numbers, where the rivals keep theirs (`kscn.baselines.pretrained`), so a run that finds it ends as
it would have ended without.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kscn.baselines.pretrained import fingerprint
from kscn.data import Source
from kscn.data.catalog import cache_dir
from kscn.errors import ModelFileError
from kscn.estimators.deep import KSCN
from kscn.modelfile import read_model, write_model
from kscn.nn import network as networks
from kscn.stages.pretrain import Pretrain
from kscn.stages.run import Fit, Stage

KIND = "PretrainedKSCN"
GENERATOR = "state of the generator"  # among the weights, whose names have no spaces
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
        path = cache_dir() / "pretrained" / f"kscn-{fingerprint(self.batches.source, recipe)}"
        if self._restored(path, fit):
            fit.record({"stage": "pretrained", "network": path.name})
            return
        super().run(fit)
        if _complete(fit.estimator.history_):
            tensors = {GENERATOR: fit.generator.get_state(), **self.network.state_dict()}
            try:
                write_model(path, KIND, recipe, tensors)
            except ModelFileError as error:
                warnings.warn(f"The pretrained network is not kept because {error}", stacklevel=2)

    def _restored(self, path: Path, fit: Fit) -> bool:
        """Put in what is kept at `path`; whether there was anything of use."""
        if not path.exists():
            return False
        try:
            kept = dict(read_model(path).tensors)
            state = torch.from_numpy(kept.pop(GENERATOR))
            networks.load_weights(self.network, kept, str(path))
        except (ModelFileError, KeyError) as error:
            warnings.warn(f"A network is pretrained again because {error}", stacklevel=2)
            return False
        fit.generator.set_state(state)
        return True


def _complete(history: list[dict[str, Any]]) -> bool:
    """Whether pretraining had any epochs, and a callback did not end it early."""
    return bool(history) and history[-1]["epoch"] == history[-1]["epochs"]
