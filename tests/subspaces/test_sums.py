"""Scatter sums: refused where they would not fit, and rebuilt from what a model keeps."""

import numpy as np
import pytest
import torch

from kscn import KSubspaces
from kscn.errors import InputError
from kscn.subspaces import ScatterSums, check_size


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_sums_that_would_not_fit_are_refused_before_any_work(method):
    X = np.random.default_rng(0).standard_normal((6, 40000)).astype(np.float32)
    model = KSubspaces(np.int32(2), subspace_dim=1, callbacks=[pytest.fail])
    with pytest.raises(InputError, match=r"needs 23\.8 GiB .* 8 GiB; reduce .* PCA") as caught:
        getattr(model, method)(X)
    assert "n_clusters=2 in 40000 features" in str(caught.value)


def test_sums_of_the_largest_size_are_allowed():
    check_size(1, 2**15)  # 8 GiB
    with pytest.raises(InputError):
        check_size(1, 2**15 + 1)


@pytest.mark.parametrize("affine", [False, True])
def test_rebuilt_sums_are_exact_inside_the_subspaces_and_isotropic_outside(affine):
    generator = torch.Generator().manual_seed(0)
    stretch = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.5, 0.25], dtype=torch.float64)
    z = stretch * torch.randn(90, 6, generator=generator, dtype=torch.float64) + 1
    labels = torch.arange(90) % 2
    sums = ScatterSums(2, 6, affine)
    sums.add(z, labels)
    dims = torch.tensor([2, 1])
    found = sums.subspaces(dims)
    spectra = sums.spectra()
    again = ScatterSums.from_spectra(found, spectra, sums.weight)
    assert torch.equal(again.weight, sums.weight)
    assert again.objective(found.bases) == pytest.approx(sums.objective(found.bases))
    same = again.subspaces(dims).bases
    torch.testing.assert_close(same @ same.mT, found.bases @ found.bases.mT)
    for rebuilt, exact, p in zip(again.spectra(), spectra, dims, strict=True):
        torch.testing.assert_close(rebuilt[:p], exact[:p])
        torch.testing.assert_close(rebuilt[p:], exact[p:].mean().expand(6 - int(p)))
