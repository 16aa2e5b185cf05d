"""The encoder without decoder."""

import pytest
import torch

from kscn.errors import InputError
from kscn.nn import ConvEncoder, UnitLatent


@pytest.mark.parametrize(
    ("shape", "layers"),
    [((1, 28, 28), 3), ((1, 8, 8), 2), ((3, 32, 32), 3), ((1, 48, 42), 4), ((1, 3, 9), 2)],
)
def test_layers_follow_from_the_size_of_the_images(shape, layers):
    encoder = ConvEncoder(shape, 12)
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in encoder.maps) == layers
    assert encoder.encode(torch.rand(5, *shape)).shape == (5, 12)


def test_its_configuration_builds_it_again():
    encoder = ConvEncoder((1, 28, 28), 6)
    again = ConvEncoder(**encoder.config())
    again.load_state_dict(encoder.state_dict())
    x = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(encoder.eval().encode(x), again.eval().encode(x))


def test_it_takes_images_only():
    with pytest.raises(InputError, match="must have shape"):
        ConvEncoder((28, 28), 6)


def test_unit_latents_have_unit_norm_and_zero_stays_finite():
    z = UnitLatent()(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    torch.testing.assert_close(z, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
