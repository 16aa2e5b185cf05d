"""Pretraining: the autoencoder alone restores clean samples from augmented ones."""

from __future__ import annotations

from torch import Tensor, nn

from kscn.training.driver import Run
from kscn.training.trainer import Trainer

STAGE = "pretrain"


def pretrain(trainer: Trainer, epochs: int, run: Run) -> None:
    """Lower |x - g(f(x))|^2 for the epochs that are left."""
    for epoch in run.epochs(STAGE, epochs, trainer=trainer):
        for batch in trainer.epoch(epoch):
            restored, _ = trainer.wrapped(batch.seen)
            error = squared_error(restored, batch.clean, batch.samples)
            trainer.step(batch, error, error.new_zeros(()), 0.0)
        reconstruction, _ = trainer.losses()
        done = {"epoch": epoch + 1, "epochs": epochs, "reconstruction": reconstruction}
        if run.group.any(run.record(stage=STAGE, **done)):
            break


def squared_error(restored: Tensor, clean: Tensor, samples: float) -> Tensor:
    """Mean over samples of the error summed over pixels, as in the paper."""
    return nn.functional.mse_loss(restored, clean, reduction="sum") / samples
