"""Embeddings as samples that remember the images they stand for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscn.data import Source
from kscn.data.arrays import ArraySource


class EmbeddedSource(ArraySource):
    """Embeddings (n, d) of images, which people look at in their place."""

    def __init__(self, embeddings: NDArray[np.float16], pictures: Source) -> None:
        super().__init__(embeddings.astype(np.float32), f"the embeddings of {pictures.name}")
        self._pictures = pictures
        self.names = pictures.names

    @property
    def pictures(self) -> Source:
        """The images that the embeddings stand for."""
        return self._pictures
