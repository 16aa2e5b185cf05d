"""The same fits for real, where there is a GPU."""

import fits
import pytest
import torch

from kscn import load_model
from kscn.metrics import clustering_accuracy

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
# Rounding is another one there, and a network follows it.
ALIKE, ALIKE_TRAINED = 1.0, 0.9


@pytest.mark.parametrize("fit", fits.LINEAR + fits.DEEP + fits.PLUS, ids=lambda fit: fit.__name__)
def test_fits_end_as_on_the_cpu(fit, cpu, tmp_path):
    model, samples = fit("cuda")
    expected, _ = cpu(fit)
    alike = ALIKE if fit in fits.LINEAR else ALIKE_TRAINED
    assert clustering_accuracy(expected.labels_, model.labels_) >= alike
    for call in fits.CALLS:
        assert len(getattr(model, call)(samples)) == len(samples)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model").set_params(device="cpu")
    assert clustering_accuracy(model.labels_, loaded.predict(samples)) >= 0.99
