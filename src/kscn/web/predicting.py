"""A fitted model as the service asks it: label, probability and residual of every sample."""

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kscn.data.images import Preparation, read_image
from kscn.errors import InputError
from kscn.estimators.embedding import encoder_of, has_encoder
from kscn.web.bodies import IMAGES, decode_array, decode_images, read_exact


class Predictor:
    """Answers of a fitted model for samples of one shape.

    For images that come as files, `white` is the value of a white pixel in the data of the model,
    by default the largest value that a network was fitted on, or 255; and `preparation` is how the
    images of the run were brought to one size, if they were, as these are then. `at_once` residuals
    are held at a time, samples times clusters.
    """

    def __init__(
        self,
        model: Any,
        shape: tuple[int, ...],
        white: float | None = None,
        preparation: Preparation | None = None,
        at_once: int = 2**22,
    ) -> None:
        self.shape = tuple(shape)
        self.kind = type(model).__name__
        self.n_clusters = int(model.n_clusters)
        self._rows = max(1, at_once // self.n_clusters)
        self._preparation = preparation
        self._encoder = encoder_of(model) if has_encoder(model) else None
        self._model = model if self._encoder is None else model.on_embeddings()
        fitted = self._model.model_
        scaling = fitted.steps[0] if fitted.network is not None else None
        if white is None:  # a factor of 1 / 255 comes back with a rounding error
            white = 255.0 if scaling is None else float(f"{1 / float(scaling.factor):.9g}")
        self._white = white

    def read(self, kind: str, parts: list[bytes]) -> NDArray:
        """Samples from the parts of a body, as calling this takes them.

        Images may have any size if an encoder takes them, or if those of the run were brought to
        one; arrays have the shape of the run's own.
        """
        if kind in IMAGES:
            shape = self.shape if self._encoder is None else self._encoder.preprocessing.shape
            return decode_images(parts, shape, self._image)
        samples = decode_array(kind, parts[0], self.shape)
        if self._encoder is None:
            return samples
        whole = samples.dtype.kind == "f" and (samples == np.rint(samples)).all()
        return self._encoder.prepare(samples.astype(np.int64) if whole else samples)

    def _image(self, file: Path, content: BinaryIO) -> NDArray:
        """One image as a sample."""
        if self._encoder is not None:
            values = None if self._preparation is None else self._preparation.values
            steps = self._encoder.preprocessing
            return steps(read_image(file, values=values, least=steps.least, content=content))
        if self._preparation is not None:
            return self._preparation.read(file, content)
        return read_exact(file, content, self.shape, self._white)

    def __call__(self, samples: NDArray) -> tuple[NDArray, ...]:
        """Label, probability of that label, and squared distance to its subspace, each (n,)."""
        starts = range(0, len(samples), self._rows)
        blocks = [self._block(samples[i : i + self._rows]) for i in starts]
        return tuple(np.concatenate(column) for column in zip(*blocks, strict=True))

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
