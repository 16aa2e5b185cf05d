"""Learned maps: autoencoders, the map from their latent to the one clustered, augmentation."""

from kscn.nn.augment import NoAugmentation, RandomAffine, RandomNoise
from kscn.nn.cae import ConvAutoencoder
from kscn.nn.latent import IdentityLatent, WhitenedLatent
from kscn.nn.sae import DenseAutoencoder

__all__ = [
    "ConvAutoencoder",
    "DenseAutoencoder",
    "IdentityLatent",
    "NoAugmentation",
    "RandomAffine",
    "RandomNoise",
    "WhitenedLatent",
]
