"""The mathematics of k subspaces: pure tensor functions on one (k, d, p) tensor.

`bases` holds the value object, `update` the closed form from scatter sums, `grassmann` the
manifold, `seeding` the starts, `search` the race and the swaps between them.
"""

from kscn.subspaces.bases import Subspaces
from kscn.subspaces.grassmann import (
    largest_turn,
    principal_angles,
    retract,
    tangent,
)
from kscn.subspaces.update import (
    ScatterSums,
    check_size,
    keep_nearest,
    leading_directions,
)

__all__ = [
    "ScatterSums",
    "Subspaces",
    "check_size",
    "keep_nearest",
    "largest_turn",
    "leading_directions",
    "principal_angles",
    "retract",
    "tangent",
]
