"""The mathematics of k subspaces: pure tensor functions on one (k, d, p) tensor.

`bases` holds the value object, `update` the closed form from scatter sums, `grassmann` the
manifold, `seeding` the starts, `search` the race and the swaps between them.
"""

from kscn.subspaces.bases import Subspaces
from kscn.subspaces.grassmann import (
    distance,
    geodesic,
    largest_turn,
    principal_angles,
    residual_gradient,
    retract,
    tangent,
)
from kscn.subspaces.update import (
    ScatterSums,
    check_size,
    keep_nearest,
    leading_directions,
    leading_eigenvectors,
)

__all__ = [
    "ScatterSums",
    "Subspaces",
    "check_size",
    "distance",
    "geodesic",
    "keep_nearest",
    "largest_turn",
    "leading_directions",
    "leading_eigenvectors",
    "principal_angles",
    "residual_gradient",
    "retract",
    "tangent",
]
