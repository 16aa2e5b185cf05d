"""Where a fit starts: the subsample it is looked for on, at whatever scale the data are."""

import numpy as np
import pytest
import torch
import trainers

from kscn import KSubspaces
from kscn.data import as_source, make_union_of_subspaces
from kscn.errors import InputError
from kscn.training.k_subspaces import Options, draw_pool


def pool(X, affine=False):
    return draw_pool(as_source(X), Options(3, 2, affine=affine), trainers.new_run(0))


def union(n=300, affine=False, dtype=np.float32):
    return make_union_of_subspaces(
        n, 3, 8, 2, noise=0.3, affine=affine, random_state=0, dtype=dtype
    )[0]


def quick(**params):
    return KSubspaces(
        **{"n_clusters": 3, "subspace_dim": 2, "n_init": 2, "random_state": 0} | params
    )


@pytest.mark.parametrize("affine", [False, True])
def test_the_pool_is_all_of_few_samples_and_some_of_many(affine):
    for n, expected in ((300, 300), (5000, 2048)):
        X = union(n)
        rows, z, shift = pool(X, affine)
        assert len(rows) == len(np.unique(rows)) == expected
        chosen = X[rows]
        if affine:
            torch.testing.assert_close(shift, torch.from_numpy(chosen.mean(axis=0)))
            chosen = chosen - shift.numpy()
        else:
            assert shift is None
        np.testing.assert_array_equal(z, chosen)


# Scale --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("exponent", [-83, 60], ids=["1e-25", "1e18"])
def test_single_precision_whose_squares_are_out_of_range_is_computed_in_double(affine, exponent):
    X = union(affine=affine)
    factor = 2.0**exponent
    scaled = X * np.float32(factor)
    expected = quick(affine=affine).fit(X.astype(np.float64))
    model = quick(affine=affine).fit(scaled)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.predict(scaled), expected.labels_)
    np.testing.assert_array_equal(model.predict_proba(scaled).argmax(axis=1), expected.labels_)
    np.testing.assert_allclose(model.predict_proba(scaled), expected.predict_proba(X), rtol=1e-6)
    assert model.inertia_ == pytest.approx(expected.inertia_ * factor**2)


def test_samples_whose_squares_vanish_in_any_precision_are_refused():
    X = 1e-200 * union(dtype=np.float64)
    with pytest.raises(InputError, match=r"Input X holds values around \de-200.* multiply all"):
        quick().fit(X)
