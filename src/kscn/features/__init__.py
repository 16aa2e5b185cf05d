"""Fixed steps from samples to features: wavelet scattering, principal components, votes."""

from kscn.features.components import Components
from kscn.features.images import BlockMeans, ScatteringMaps, block_means, scattering_steps
from kscn.features.scattering import Scattering2D
from kscn.features.votes import Votes

__all__ = [
    "BlockMeans",
    "Components",
    "Scattering2D",
    "ScatteringMaps",
    "Votes",
    "block_means",
    "scattering_steps",
]
