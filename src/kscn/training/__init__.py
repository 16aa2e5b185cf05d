"""The loops of a fit: pretraining, the alternation of network and subspaces, k-subspaces."""
