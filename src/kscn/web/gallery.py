"""Samples as the page shows them: pictures, or the course of a vector's values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.data import Dataset
from kscn.report.pictures import Painter, data_uri, is_image

# Points in the little curve of a vector, and features in the table of one sample.
_POINTS, _FEATURES = 48, 200
_LARGE = 256


class Gallery:
    """Draws samples, reading from disk only those that are looked at.

    Parameters
    ----------
    data : Dataset
        The samples.
    low, high : float
        Range of their values.
    """

    def __init__(self, data: Dataset, low: float, high: float) -> None:
        self._source = data.samples.pictures
        self.pictures = is_image(self._source.shape)
        self._range = (min(0.0, low), high) if self.pictures else (low, high)
        self._names = [] if self.pictures else self._source.feature_names

    def thumbnails(self, samples: NDArray) -> list[dict[str, Any]]:
        """One `{"picture": uri}` or `{"curve": [0 to 1, ...]}` per sample."""
        rows = self._source.take(samples)
        if self.pictures:
            painter = Painter(self._source.shape, *self._range)
            return [{"picture": data_uri(pixels)} for pixels in painter.pixels(rows)]
        return [{"curve": curve} for curve in self._curves(rows)]

    def portrait(self, sample: int) -> dict[str, Any]:
        """A larger picture of one sample, or its features by name."""
        rows = self._source.take(np.array([sample]))
        if self.pictures:
            painter = Painter(self._source.shape, *self._range, most=_LARGE)
            return {"picture": data_uri(painter.pixels(rows)[0])}
        values = rows.reshape(-1)[:_FEATURES].astype(np.float64)
        pairs = zip(self._names, values.tolist(), strict=False)
        features = [[name, float(f"{value:.6g}")] for name, value in pairs]
        return {"features": features, "width": rows[0].size, "curve": self._curves(rows)[0]}

    def _curves(self, rows: NDArray) -> list[list[float]]:
        """Values between 0 and 1 on one scale for all samples; long vectors are averaged."""
        low, high = self._range
        values = (rows.reshape(len(rows), -1).astype(np.float64) - low) / max(high - low, 1e-300)
        if values.shape[1] > _POINTS:
            pieces = np.array_split(values, _POINTS, axis=1)
            values = np.stack([piece.mean(axis=1) for piece in pieces], axis=1)
        return np.round(values, 4).tolist()
