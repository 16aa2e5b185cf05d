"""Products with rows that do not depend on one another."""

import pytest
import torch

from kscn.subspaces import Subspaces
from kscn.subspaces.bases import rows_times


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("inner", [1, 3, 5, 8, 13, 21, 64, 80])
@pytest.mark.parametrize("width", [1, 5, 8, 10, 16, 80])
def test_equal_rows_have_equal_products_wherever_they_are(inner, width):
    # Rows of 5 or 21 numbers begin at any alignment, which some kernels make a difference of.
    z = randn(1, inner).expand(70, -1).contiguous()
    for matrix in (randn(inner, width), randn(width, inner).mT):
        product = rows_times(z, matrix)
        torch.testing.assert_close(product, z @ matrix, rtol=1e-4, atol=1e-5)
        assert torch.equal(product, product[:1].expand(70, -1))
        assert torch.equal(rows_times(z[:1], matrix), product[:1])


@pytest.mark.parametrize(("d", "p"), [(8, 5), (8, 7), (16, 3), (9, 5)])
def test_distances_close_to_a_subspace_do_not_depend_on_the_place_either(d, p):
    found = Subspaces(torch.linalg.qr(randn(2, d, p, seed=1)).Q)
    near = found.project(randn(1, d, seed=2), torch.zeros(1, dtype=torch.long))
    z = near.expand(70, -1) + 1e-3 * randn(1, d, seed=3)
    residual = found.residuals(z.contiguous())
    assert torch.equal(residual, residual[:1].expand(70, -1))
