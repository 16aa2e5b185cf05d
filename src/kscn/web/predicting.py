"""A fitted model as the service asks it: label, probability and residual of every sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kscn.data.decoding import read_rgb
from kscn.data.images import Preparation
from kscn.errors import InputError
from kscn.estimators.embedding import encoder_of, has_encoder
from kscn.export.graph import noise_scale
from kscn.web.bodies import AT_ONCE, IMAGES, decode, decode_images

# Residuals, samples times clusters, that are held at a time.
_AT_ONCE = 2**22


class Predictor:
    """Answers for samples of one shape.

    Parameters
    ----------
    model : KSCN or KSubspaces
        The fitted model.
    shape : tuple of int
        Of one sample.
    white : float, optional
        The value of a white pixel in the data of the model, for images that come as files: by
        default the largest value that a network was fitted on, or 255.
    preparation : Preparation, optional
        How the images of the run were brought to one size, as those that come as files are then.
    """

    def __init__(
        self,
        model: Any,
        shape: tuple[int, ...],
        white: float | None = None,
        preparation: Preparation | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.kind = type(model).__name__
        self.n_clusters = int(model.n_clusters)
        self._encoder = None
        self._preparation = preparation
        # Bytes of a body that is decoded while everybody else waits; images unpack to any size.
        self.at_once = 0 if preparation is not None or has_encoder(model) else AT_ONCE
        if has_encoder(model):
            self._encoder = encoder_of(model)
            model = model.on_embeddings()
        self._model = model
        self._scale = noise_scale(model)
        scaling = getattr(model, "scaling_", None)
        if white is None:
            white = 255.0 if scaling is None else 1 / float(scaling.factor)
        # A factor of 1 / 255 comes back with a rounding error.
        self.white = float(round(white)) if abs(white - round(white)) < 1e-9 * white else white

    def read(self, kind: str, parts: list[bytes]) -> NDArray:
        """Samples from the parts of a body, as calling this takes them.

        Images may have any size if an encoder takes them, or if those of the run were brought to
        one; arrays have the shape of the run's own.
        """
        if self._encoder is None:
            if kind in IMAGES and self._preparation is not None:
                return decode_images(parts, self._preparation.read, self.shape)
            return decode(kind, parts, self.shape, self.white)
        steps = self._encoder.preprocessing
        values = None if self._preparation is None else self._preparation.values

        def read(file: Path, content: BinaryIO) -> NDArray:
            return steps(read_rgb(file, values, steps.least, content))

        if kind in IMAGES:
            return decode_images(parts, read, steps.shape)
        pixels = decode(kind, parts, self.shape)
        whole = pixels.dtype.kind == "f" and (pixels == np.rint(pixels)).all()
        return self._encoder.prepare(pixels.astype(np.int64) if whole else pixels)

    def __call__(self, samples: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Label, probability of that label, and squared distance to its subspace, each (n,)."""
        rows = max(1, _AT_ONCE // self.n_clusters)
        blocks = [self._block(samples[i : i + rows]) for i in range(0, len(samples), rows)]
        label, probability, least = (np.concatenate(column) for column in zip(*blocks, strict=True))
        return label, probability, least

    def _block(self, samples: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        if self._encoder is not None:
            samples = self._encoder.run(samples).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            residual = np.asarray(self._model.residuals(samples), dtype=np.float64)  # (n, k)
        if not np.isfinite(residual).all():
            raise InputError(
                "the samples hold values too large to compute with; send them in the units of the "
                "data that the model was fitted on."
            )
        label = residual.argmin(axis=1)
        least = residual.min(axis=1)
        odds = np.exp(-(residual - least[:, None]) / self._scale)
        return label, 1 / odds.sum(axis=1), least
