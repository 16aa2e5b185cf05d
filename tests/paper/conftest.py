"""A small table with data to match, on which real methods run in no time."""

import numpy as np
import pytest

from kscn.data import as_source
from kscn.data.dataset import make_dataset
from kscn_paper.tables import Table

PRESET = """
[common]
latent = "whitened"
latent_dim = 6
loss = "separation"
subspace_dim = 2
n_init = 1
pretrain_epochs = 1
epochs = 1
[images]
autoencoder_params = { channels = [4, 3], kernels = [3, 3], batch_norm = true }
"""


def make_images(seed):
    """Ninety images of 8 x 8 on three planes, and which one each lies on."""
    rng = np.random.default_rng(seed)
    bases = np.linalg.qr(rng.standard_normal((3, 64, 2)))[0]
    labels = np.repeat([0, 1, 2], 30)
    images = np.einsum("nij,nj->ni", bases[labels], rng.standard_normal((90, 2)))
    return images.reshape(90, 8, 8).astype(np.float32), labels


def open_images(name):
    """The data set `first` or `second`."""
    images, labels = make_images({"first": 1, "second": 2}[name])
    return make_dataset(as_source(images), labels, name)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Where runs of this test keep pretrained networks, and find none of another."""
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pretrained"


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(PRESET)
    return path


@pytest.fixture(scope="session")
def table():
    """Two data sets; kscn-s in both, k-subspaces in one, and a method that nobody has."""
    return Table(
        "small",
        "Images on three planes",
        3,
        {
            "first": {
                "nobody-has-it": {"acc": 50.0, "nmi": 10.0},
                "k-subspaces": {"acc": 90.0, "nmi": 80.0},
                "kscn-s": {"acc": 99.0, "nmi": 98.0},
            },
            "second": {"kscn-s": {"acc": 97.0, "nmi": 96.0}},
        },
    )


@pytest.fixture
def load():
    """Opens `first` and `second`; `load.names` lists what was opened."""

    def open_named(name):
        open_named.names.append(name)
        return open_images(name)

    open_named.names = []
    return open_named
