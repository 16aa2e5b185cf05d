"""Pretraining: the autoencoder alone restores clean samples from augmented ones."""

from __future__ import annotations

from kscn.training.driver import Run
from kscn.training.losses import squared_error
from kscn.training.trainer import Trainer

STAGE = "pretrain"


def pretrain(trainer: Trainer, epochs: int, run: Run) -> None:
    """Lower |x - g(f(x))|^2 for the epochs that are left."""
    for epoch in run.epochs(STAGE, epochs, trainer=trainer):
        for batch in trainer.epoch(epoch):
            restored, _ = trainer.wrapped(batch.seen)
            error = squared_error(restored, batch.clean, batch.samples)
            trainer.step(batch, error, reconstruction=error)
        if run.group.any(
            run.record(stage=STAGE, epoch=epoch + 1, epochs=epochs, **trainer.losses())
        ):
            break
