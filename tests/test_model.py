"""The fitted model by itself: one module, whichever estimator fitted it."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from kscn import KSCN, KSCNPlus, KSubspaces
from kscn.data import as_source
from kscn.model import FittedModel, SubspaceAssignment
from kscn.subspaces import Subspaces

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*clusters ended up empty"),
]
IMAGES = load_digits().images[:90].astype(np.float32)
SHORT = {"pretrain_epochs": 1, "epochs": 1, "random_state": 0}
MODELS = {
    "KSubspaces": lambda: KSubspaces(3, subspace_dim=2, affine=True, random_state=0),
    "KSCN": lambda: KSCN(3, n_init=1, **SHORT),
    "KSCNPlus": lambda: KSCNPlus(3, starts=1, refine=False, random_state=0),
    "KSCNPlus, refined": lambda: KSCNPlus(3, starts=1, refine=True, epochs=1, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_model_of_an_estimator_says_what_the_estimator_says(name):
    estimator = MODELS[name]().fit(IMAGES)
    model, source = copy.deepcopy(estimator.model_), as_source(IMAGES)
    np.testing.assert_array_equal(model.assign(source).labels.numpy(), estimator.labels_)
    residuals = model.residuals(source)
    np.testing.assert_array_equal(residuals, estimator.residuals(IMAGES))
    np.testing.assert_array_equal(residuals.argmin(axis=1), estimator.labels_)
    probabilities = model.probabilities(residuals)
    np.testing.assert_array_equal(probabilities, estimator.predict_proba(IMAGES))
    np.testing.assert_array_equal(
        model.state_dict()["assignment.bases"].numpy(), estimator.subspaces_
    )


def test_affine_subspaces_lie_where_the_shift_puts_them():
    bases = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]])
    offsets = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    own = SubspaceAssignment.of(Subspaces(bases, offsets), torch.tensor([10.0, 20.0]))
    model = FittedModel((2,), [], own, temperature=1.0)
    # The line y = 21 and the line x = 12, seen from (15, 23).
    residuals = model.residuals(as_source(np.array([[15.0, 23.0]], dtype=np.float32)))
    np.testing.assert_allclose(residuals, [[4.0, 9.0]])
