"""A fitted `KSubspaces` on disk: its subspaces and their spectra in one model file."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import torch

from kscn.estimators import fittedfile as saved
from kscn.estimators import validation as check
from kscn.estimators.sums import check_size
from kscn.modelfile import ModelFile, write_model
from kscn.modelparts import FLOATS, check_array, integer, number

EstimatorType = TypeVar("EstimatorType")


def write_linear(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted KSubspaces; see `KSubspaces.save`."""
    tensors = {
        "subspaces": estimator.subspaces_,
        "subspace_dims": estimator.subspace_dims_,
        "spectra": estimator.spectra_,
        "cluster_weights": estimator.cluster_weights_,
    }
    if estimator.offsets_ is not None and estimator._shift is not None:
        tensors |= {"offsets": estimator.offsets_, "shift": estimator._shift}
    fitted = {
        "inertia": estimator.inertia_,
        "n_iter": estimator.n_iter_,
        "noise_variance": estimator.noise_variance_,
        "feature_names": saved.names_of(estimator),
    }
    described = {"params": saved.params_in_file(estimator), "fitted": fitted}
    write_model(path, "KSubspaces", described, tensors)


def read_linear(cls: type[EstimatorType], model: ModelFile) -> EstimatorType:
    """A fitted KSubspaces from its file, after checking that its parts fit together."""
    with saved.described(model):
        params, fitted, arrays = model.params["params"], model.params["fitted"], model.tensors
        bases = saved.subspaces_of(model, FLOATS)
        k, d, _ = bases.shape
        shapes: dict[str, tuple[int, ...]] = {"spectra": (k, d), "cluster_weights": (k,)}
        shapes |= {"offsets": (k, d), "shift": (d,)} if params["affine"] else {}
        for name, shape in shapes.items():
            check_array(name, arrays[name], shape)
        state: dict[str, Any] = {
            "subspaces_": bases,
            "subspace_dims_": arrays["subspace_dims"],
            "spectra_": arrays["spectra"],
            "cluster_weights_": arrays["cluster_weights"],
            "offsets_": arrays["offsets"] if params["affine"] else None,
            "_shift": torch.from_numpy(arrays["shift"]) if params["affine"] else None,
            "_dtype": torch.from_numpy(bases).dtype,
            "_n_features_out": k,
            "inertia_": number(fitted, "inertia"),
            "n_iter_": integer(fitted, "n_iter", 0),
            "noise_variance_": number(fitted, "noise_variance"),
            "n_features_in_": d,
        }
        state |= saved.feature_names(fitted, d)
        estimator = saved.rebuilt(cls, params, state, check.parameters)
        with saved.of_the_file():
            check_size(k, d)  # of the sums that more samples would be added to
    return estimator
