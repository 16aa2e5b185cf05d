"""The base class: a method of one's own in a few lines, and clusters numbered by size."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from kscn.constraints import Integer, parameter
from kscn.errors import InputError
from kscn_paper.rivals.base import Rival, largest_first, sharpened, subsample

X = np.random.default_rng(0).standard_normal((30, 4))


@dataclass(eq=False, repr=False, kw_only=True)
class ByRow(Rival):
    """Clusters of neighbouring rows, `size` in each."""

    size: int = parameter(10, Integer(1))

    def _fit(self, source):
        self.labels_ = np.minimum(np.arange(len(source)) // self.size, self.n_clusters - 1)
        self._record("fit", size=self.size)


def test_a_method_in_a_few_lines_is_an_estimator():
    model = ByRow(3, random_state=5)
    assert model.get_params() == {
        "n_clusters": 3, "size": 10, "device": "auto", "random_state": 5
    }  # fmt: skip
    assert repr(model) == "ByRow(n_clusters=3, random_state=5)"
    assert clone(model).set_params(size=4).size == 4
    np.testing.assert_array_equal(np.bincount(model.fit_predict(X)), [10, 10, 10])
    assert (model.random_state_, model.n_features_in_) == (5, 4)
    assert model.history_[0]["stage"] == "fit" and model.history_[0]["size"] == 10


def test_its_parameters_and_samples_are_checked_and_empty_clusters_named():
    with pytest.raises(InputError, match="size=0 must be an integer of at least 1"):
        ByRow(3, size=0).fit(X)
    with pytest.raises(InputError, match="n_samples=30 should be >= n_clusters=31"):
        ByRow(31).fit(X)
    with pytest.raises(InputError, match=r"All 9 samples of X are equal"):
        ByRow(2).fit(np.ones((9, 2)))
    with pytest.warns(ConvergenceWarning, match="2 of the 5 clusters ended up empty") as found:
        ByRow(5).fit(X)
    assert found[0].filename == __file__


def test_clusters_are_numbered_by_falling_size_and_labels_are_those_of_the_new_order():
    values = np.array([1, 2, 2, 2, 3, 3])

    def assign(parts):
        return np.array([list(parts).index(value) for value in values]), "value"

    parts, labels, value = largest_first(np.array([1, 2, 3]), assign)
    assert parts.tolist() == [2, 3, 1] and value == "value"
    assert labels.tolist() == [2, 0, 0, 0, 1, 1]


def test_a_subsample_is_in_order_and_everything_where_that_is_little():
    assert subsample(5, 5, seed=0).tolist() == [0, 1, 2, 3, 4]
    rows = subsample(100, 20, seed=0)
    assert len(set(rows.tolist())) == 20 and (np.diff(rows) > 0).all()


def test_a_target_worked_out_by_hand():
    # s^2 / f: (.64/1.2, .04/.8) = (.5333, .05) and (.16/1.2, .36/.8) = (.1333, .45).
    target = sharpened(torch.tensor([[0.8, 0.2], [0.4, 0.6]], dtype=torch.float64))
    expected = [[0.5333333 / 0.5833333, 0.05 / 0.5833333], [0.1333333 / 0.5833333, 0.7714286]]
    np.testing.assert_allclose(target, expected, rtol=1e-6)
