"""Learned maps: autoencoders, the map from their latent to the one clustered, augmentation."""

from kscn.nn.augment import RandomAffine, RandomNoise
from kscn.nn.convolutional import ConvAutoencoder, ConvEncoder
from kscn.nn.latent import DeepNetwork, IdentityLatent, UnitLatent, WhitenedLatent
from kscn.nn.sae import DenseAutoencoder
from kscn.nn.scaling import InputScaling

__all__ = [
    "ConvAutoencoder",
    "ConvEncoder",
    "DeepNetwork",
    "DenseAutoencoder",
    "IdentityLatent",
    "InputScaling",
    "RandomAffine",
    "RandomNoise",
    "UnitLatent",
    "WhitenedLatent",
]
