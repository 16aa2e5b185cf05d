"""Scaling of the input: what is divided by what, and back."""

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn.errors import InputError
from kscn.runtime.moments import scaling_of


def randn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def scaled(X, image):
    found = scaling_of(as_source(X), image)
    return found, found(torch.from_numpy(X))


@pytest.mark.parametrize("brightest", [255, 16])
def test_bytes_are_divided_by_the_brightest_of_them(brightest):
    X = np.array([[0, 4], [8, brightest]], dtype=np.uint8).reshape(2, 1, 2)
    _, out = scaled(X, True)
    assert out.dtype == torch.float32
    torch.testing.assert_close(
        out.flatten(), torch.tensor([0.0, 4 / brightest, 8 / brightest, 1.0])
    )


def test_black_bytes_stay_black():
    _, out = scaled(np.zeros((2, 2, 2), dtype=np.uint8), True)
    assert (out == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int16])
def test_other_images_are_divided_by_their_largest_value_and_keep_their_zero(dtype):
    X = np.array([0, -2, 8, 3], dtype=dtype).reshape(2, 1, 2)
    found, out = scaled(X.astype(np.float64), True)
    assert float(found.factor) == 1 / 8
    torch.testing.assert_close(out.flatten(), torch.tensor([0.0, -0.25, 1.0, 0.375]))


def test_masks_stay_as_they_are():
    X = np.array([True, False, True, True]).reshape(2, 1, 2)
    _, out = scaled(X, True)
    assert out.flatten().tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_are_centred_and_divided_by_one_number(dtype):
    X = (np.array([1.0, 5.0, 0.1]) * randn(400, 3) + [3, -7, 100]).astype(dtype)
    _, out = scaled(X, False)
    out = out.double().numpy()
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-4)
    assert (out**2).mean() == pytest.approx(1, rel=1e-4)
    spread = X.std(axis=0)  # relative sizes stay
    np.testing.assert_allclose(out.std(axis=0) / spread, 1 / np.sqrt((spread**2).mean()), rtol=1e-3)


@pytest.mark.parametrize("mean", [1e6, 1e9, -1e12])
def test_vectors_far_from_the_origin_keep_their_digits(mean):
    X = randn(300, 4)
    _, near = scaled(X, False)
    _, far = scaled(X + mean, False)
    torch.testing.assert_close(far, near, rtol=0, atol=1e-6 + 10 * abs(mean) * 2.0**-52)


@pytest.mark.parametrize("image", [False, True])
def test_the_inverse_goes_back(image):
    X = randn(10, 3, 4) * 7 + 2
    found, out = scaled(X if image else X.reshape(10, 12), image)
    back = found.inverse(out.reshape(X.shape))
    assert back.dtype == torch.float32
    torch.testing.assert_close(back, torch.from_numpy(X).float())


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize("value", [0.0, 3.5])
def test_constant_samples_are_no_division_by_zero(image, value):
    _, out = (
        scaled(np.full((4, 2, 3), value), image) if image else scaled(np.full((4, 6), value), image)
    )
    assert out.isfinite().all()


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_samples_that_are_no_numbers_are_refused_wherever_they_are(image, value, words):
    X = randn(20, 2, 3)
    X[13, 1, 2] = value
    with pytest.raises(InputError, match=f"Input faces contains {words}.* in row 13"):
        scaling_of(as_source(X, name="faces"), image)


def test_values_whose_squares_overflow_are_refused():
    with pytest.raises(
        InputError, match="Input X contains infinity or values too large for their squares"
    ):
        scaling_of(as_source(np.sign(randn(5, 3)) * 1e200), False)


def test_nothing_is_trained_and_everything_is_saved():
    found, _ = scaled(randn(5, 3), False)
    assert not list(found.parameters())
    assert set(found.state_dict()) == {"shift", "factor"}
