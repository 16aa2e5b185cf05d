"""Neighbour graphs of a bounded sample: what is near what, and which clusters that speaks for.

Everything here takes n x K memory and is meant for a sample of the data; subspaces and networks
carry what is found to all samples.
"""

from kscn.neighbours.consistency import View, consensus, self_consistency
from kscn.neighbours.graph import Neighbours, nearest, nearest_distinct, similarity_graph
from kscn.neighbours.layout import layout_clusters, layouts, membership_graph
from kscn.neighbours.local import local_subspace_clusters, nearest_by_local_subspace
from kscn.neighbours.spectral import spectral_clusters, spectral_embedding

__all__ = [
    "Neighbours",
    "View",
    "consensus",
    "layout_clusters",
    "layouts",
    "local_subspace_clusters",
    "membership_graph",
    "nearest",
    "nearest_by_local_subspace",
    "nearest_distinct",
    "self_consistency",
    "similarity_graph",
    "spectral_clusters",
    "spectral_embedding",
]
