"""Fixed maps from samples to features: scaling, wavelet scattering, principal components."""

from kscn.features.base import FeatureMap
from kscn.features.chain import FeatureChain
from kscn.features.learned import LearnedFeatures
from kscn.features.maps import ScatteringFeatures
from kscn.features.pca import PCAFeatures
from kscn.features.scaled import ScaledFeatures
from kscn.features.scattering import Scattering2D

__all__ = [
    "FeatureChain",
    "FeatureMap",
    "LearnedFeatures",
    "PCAFeatures",
    "ScaledFeatures",
    "Scattering2D",
    "ScatteringFeatures",
]
