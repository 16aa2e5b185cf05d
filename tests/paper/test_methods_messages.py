"""What names of methods that do not exist are answered with."""

import pytest

from kscn.errors import InputError
from kscn_paper import methods


def test_a_long_name_does_not_fill_the_message():
    with pytest.raises(InputError, match="is not available; give one of") as refusal:
        methods.repeated("x" * 5000, {"n_clusters": 2})
    assert len(str(refusal.value)) < 1000
