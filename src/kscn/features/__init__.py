"""Fixed maps from samples to features: scaling, wavelet scattering, principal components."""

from kscn.features.base import FeatureMap
from kscn.features.chain import FeatureChain
from kscn.features.maps import LARGEST_SIDE, ScaledFeatures, ScatteringFeatures, VotedFeatures
from kscn.features.pca import PCAFeatures
from kscn.features.scattering import Scattering2D

__all__ = [
    "LARGEST_SIDE",
    "FeatureChain",
    "FeatureMap",
    "PCAFeatures",
    "ScaledFeatures",
    "Scattering2D",
    "ScatteringFeatures",
    "VotedFeatures",
]
