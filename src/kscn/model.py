"""`FittedModel`: what every fit ends with, from samples to the clusters that they belong to."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.constraints import NUMBER, Integer, check_table, require
from kscn.data import Source
from kscn.features.steps import built, described, made
from kscn.modelfile import ModelFile, write_model
from kscn.nn.network import part
from kscn.runtime.blocks import Blocks, check_finite
from kscn.runtime.labels import Assignment, assign
from kscn.runtime.lazy import Lazy
from kscn.subspaces import Subspaces

# Numbers of one sample: far above any image, and still little to try a network on.
MOST_VALUES = 2**26
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class SubspaceAssignment(nn.Module):
    """Each vector belongs to the nearest of k subspaces of dimension p in d dimensions.

    Attributes
    ----------
    bases : Tensor, shape (k, d, p)
        Orthonormal.
    offsets : Tensor, shape (k, d), or None
        A point on each affine subspace, less the shift.
    shift : Tensor, shape (d,), or None
        What is subtracted from vectors before distances are taken; affine subspaces only.
    """

    bases: Tensor
    offsets: Tensor | None
    shift: Tensor | None

    def __init__(
        self, n_clusters: int, dim: int, width: int, affine: bool = False, dtype: str = "float32"
    ) -> None:
        super().__init__()
        bases = torch.zeros(n_clusters, width, dim, dtype=DTYPES[dtype])
        self.register_buffer("bases", bases)
        self.register_buffer("offsets", bases.new_zeros(n_clusters, width) if affine else None)
        self.register_buffer("shift", bases.new_zeros(width) if affine else None)

    @classmethod
    def of(cls, found: Subspaces, shift: Tensor | None = None) -> Self:
        """By subspaces of vectors less a shift, on the CPU."""
        made = cls(1, 1, 1)
        made.bases = found.bases.cpu()
        if found.offsets is not None and shift is not None:
            made.offsets, made.shift = found.offsets.to(made.bases), shift.to(made.bases)
        return made

    @property
    def subspaces(self) -> Subspaces:
        """The subspaces, in the coordinates of shifted vectors."""
        return Subspaces(self.bases, self.offsets)

    def config(self) -> dict[str, Any]:
        """The arguments that build this assignment again."""
        k, d, p = self.bases.shape
        dtype = str(self.bases.dtype).removeprefix("torch.")
        affine = self.offsets is not None
        return {"n_clusters": k, "dim": p, "width": d, "affine": affine, "dtype": dtype}

    def fault(self) -> str | None:
        """Say in words why there are no such subspaces, or return None when there are."""
        return self.subspaces.fault(1e-3)


# Another kind is to have `subspaces`' residuals and its own buffers; a file says which it holds.
ASSIGNMENTS: dict[str, type[SubspaceAssignment]] = {"subspaces": SubspaceAssignment}


class FittedModel(nn.Module):
    """Steps from samples to vectors, and how these are assigned to clusters.

    Parameters
    ----------
    shape : tuple of int
        Of one sample, as the first step takes it.
    steps : iterable of nn.Module
        Applied one after the other; of a network that also decodes, only the encoder.
    assignment : SubspaceAssignment
        Of the vectors that the steps make.
    temperature : float
        By what residuals are divided to become logarithms of probabilities.
    """

    steps: nn.ModuleList

    def __init__(
        self,
        shape: tuple[int, ...],
        steps: Iterable[nn.Module],
        assignment: SubspaceAssignment,
        temperature: float,
    ) -> None:
        super().__init__()
        self.shape, self.temperature = shape, temperature
        self.steps, self.assignment = nn.ModuleList(steps), assignment
        self.eval()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.assignment.bases.device

    @property
    def network(self) -> nn.Module | None:
        """The step that was trained to encode samples, if there is one."""
        return next((step for step in self.steps if hasattr(step, "encode")), None)

    def space(self, source: Source) -> Source:
        """Samples as the vectors that are assigned, made in blocks whenever they are read."""
        if not self.steps:
            return source
        width = self.assignment.bases.shape[1]
        return Lazy(source, self.steps, self.device, self.shape, width, "the latents")

    def blocks(self, source: Source) -> Blocks:
        """The same in blocks, less the shift of affine subspaces."""
        own = self.assignment
        return Blocks(self.space(source), own.bases.dtype, self.device, own.shift)

    def assign(self, source: Source) -> Assignment:
        """The nearest subspace of every sample, and the squared distance to it."""
        return assign(self.blocks(source), self.assignment.subspaces)

    def residuals(self, source: Source) -> NDArray:
        """Squared distance of every sample to every subspace, in the latent space, (n, k)."""
        blocks, subspaces = self.blocks(source), self.assignment.subspaces
        dtype = str(blocks.dtype).removeprefix("torch.")
        out = np.empty((len(blocks), subspaces.n_clusters), dtype=dtype)
        for where, z in blocks:
            norms = z.square().sum(dim=1)
            check_finite(norms, blocks.source.name, where)
            out[where : where + len(z)] = subspaces.residuals(z, norms).cpu().numpy()
        return out

    def probabilities(self, residuals: NDArray) -> NDArray:
        """Posteriors (n, k) of clusters, proportional to exp(-residual / temperature)."""
        residuals = residuals.astype(np.float64)
        # Without noise any positive number does, if only it is small beside the residuals.
        least = np.finfo(np.float32).tiny * min(1.0, residuals.max() or 1.0)
        scale = max(self.temperature, least)
        odds = np.exp(-(residuals - residuals.min(axis=1, keepdims=True)) / scale)
        return odds / odds.sum(axis=1, keepdims=True)

    # Files --------------------------------------------------------------------------------------

    def to_file(
        self,
        path: str | os.PathLike[str],
        kind: str,
        facts: Mapping[str, Any],
        tensors: Mapping[str, Any],
    ) -> None:
        """Write the model, with facts and tensors of the estimator of this kind."""
        model = {
            "shape": list(self.shape),
            "steps": described(self.steps),
            "assignment": {"kind": "subspaces", "config": self.assignment.config()},
            "temperature": self.temperature,
        }
        write_model(path, kind, {**facts, "model": model}, {**self.state_dict(), **tensors})

    @classmethod
    def of_file(cls, file: ModelFile, given: nn.Module | None = None) -> Self:
        """The model of a file, after checking that its parts fit together.

        `given` is a copy of the user's own network, if there is one. What is wrong with the file is
        any of Python's errors, which the caller puts into words.
        """
        model, tensors = file.params["model"], file.tensors
        check_table(model, {"shape": [Integer(1)], "temperature": NUMBER})
        shape = tuple(model["shape"])
        fine = 1 <= len(shape) <= 8 and math.prod(shape) <= MOST_VALUES
        require(fine, f"its samples are of shape {shape}")
        entry, own = model["assignment"], part(tensors, "assignment")
        assignment = made(ASSIGNMENTS[entry["kind"]], entry["config"], own)
        steps, latent = built(model["steps"], part(tensors, "steps"), shape, given)
        width, wanted = math.prod(latent), assignment.bases.shape[1]
        require(width == wanted, f"its latents have {width} dimensions and its bases {wanted}")
        return cls(shape, steps, assignment, float(model["temperature"]))
