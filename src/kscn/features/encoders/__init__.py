"""A pretrained network of the user's own as the first stage: images become vectors."""

from kscn.features.encoders.encoder import Encoder, load_encoder
from kscn.features.encoders.pictures import Preprocessing

__all__ = ["Encoder", "Preprocessing", "load_encoder"]
