"""Learned maps: autoencoders, the map from their latent to the one clustered, augmentation."""

from kscn.nn.augment import NoAugmentation, RandomAffine, RandomNoise
from kscn.nn.cae import ConvAutoencoder
from kscn.nn.latent import IdentityLatent, WhitenedLatent
from kscn.nn.sae import DenseAutoencoder
from kscn.nn.scaling import InputScaling

__all__ = [
    "ConvAutoencoder",
    "DenseAutoencoder",
    "IdentityLatent",
    "InputScaling",
    "NoAugmentation",
    "RandomAffine",
    "RandomNoise",
    "WhitenedLatent",
]
