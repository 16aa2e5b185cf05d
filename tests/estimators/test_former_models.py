"""Model directories that earlier versions wrote still open, and say what they said then.

One of each kind is kept in `models/`, all of them fitted on the same 90 digits.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from kscn import load_model

MODELS = Path(__file__).parent / "models"
LABELS = json.loads((MODELS / "labels.json").read_text())


def digits(name):
    images = load_digits().images[:90]
    if name.endswith("vectors"):
        return images.reshape(90, 64).astype(np.float32)
    return images.astype(np.uint8)


@pytest.mark.parametrize("name", LABELS)
def test_a_former_model_opens_and_gives_the_labels_of_its_fit(name, tmp_path):
    model = load_model(MODELS / name)
    X = digits(name)
    assert "".join(map(str, model.predict(X))) == LABELS[name]
    assert name.startswith(type(model).__name__.lower())
    model.save(tmp_path / "again")
    again = load_model(tmp_path / "again")
    for method in ("residuals", "predict_proba", "transform", "score_samples"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(model, method)(X))
    assert again.get_params() == model.get_params()
