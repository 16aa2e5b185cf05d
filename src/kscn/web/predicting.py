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
from kscn.web.bodies import IMAGES, decode, decode_images

# Residuals, samples times clusters, that are held at a time.
_AT_ONCE = 2**22
# Bytes of a body that is decoded while everybody else waits.
_SMALL = 32 * 1024


class Predictor:
    """Answers of a fitted model for samples of one shape.

    For images that come as files, `white` is the value of a white pixel in the data of the model,
    by default the largest value that a network was fitted on, or 255; and `preparation` is how the
    images of the run were brought to one size, if they were, as these are then.
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
        self._preparation = preparation
        self._encoder = encoder_of(model) if has_encoder(model) else None
        self._model = model if self._encoder is None else model.on_embeddings()
        # Images of any size may unpack to far more than their bytes.
        self.at_once = _SMALL if preparation is None and self._encoder is None else 0
        scaling = getattr(self._model, "scaling_", None)
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
        probability = self._model.model_.probabilities(residual)
        return residual.argmin(axis=1), probability.max(axis=1), residual.min(axis=1)
