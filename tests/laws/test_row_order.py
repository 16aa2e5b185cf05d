"""The order of the rows says nothing: sorted by class, the classes in turn, or shuffled.

Run by torchrun, this file is one of several processes that make one fit.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy import ndimage
from sklearn.datasets import load_digits

from kscn import KSCN, KSCNPlus, KSubspaces
from kscn.data import as_source, make_union_of_subspaces
from kscn.data.shuffle import in_one_window
from kscn.metrics import clustering_accuracy

ORDERS = ("as they are", "sorted", "interleaved", "shuffled")
# Digits of the fast tests: as many classes as there are folds, which once made a fold of each.
CLASSES, EACH = 5, 80


def ordered(y, order):
    """The rows of an order, in which classes of different sizes go on as long as they last."""
    turn = np.empty(len(y), dtype=int)
    for label in np.unique(y):
        turn[y == label] = np.arange((y == label).sum())
    keys = {
        "as they are": np.arange(len(y)),
        "sorted": y,
        "interleaved": turn,
        "shuffled": np.random.default_rng(7).permutation(len(y)),
    }
    return np.lexsort(
        (y, keys[order]) if order == "interleaved" else (np.arange(len(y)), keys[order])
    )


@cache
def digits(classes=10, each=None):
    """The digits of scikit-learn, or some of them."""
    x, y = load_digits(return_X_y=True)
    rows = np.flatnonzero(y < classes)
    if each is not None:
        rows = np.sort(np.concatenate([np.flatnonzero(y == c)[:each] for c in range(classes)]))
    return x[rows].reshape(-1, 8, 8).astype(np.float32), y[rows]


@cache
def large_digits(each=200):
    """Digits of 28 x 28 pixels, each drawn from those of scikit-learn, turned and shifted."""
    x, y = digits()
    rng = np.random.default_rng(0)
    made, labels = [], rng.permutation(np.repeat(np.arange(10), each))
    for label in labels:
        image = ndimage.zoom(x[rng.choice(np.flatnonzero(y == label))], 2.5, order=1)
        image = ndimage.rotate(image, rng.uniform(-10, 10), reshape=False, order=1)
        image = ndimage.shift(np.pad(image, 4), rng.uniform(-2, 2, size=2), order=1)
        made.append(image)
    return np.clip(np.stack(made) / 16, 0, 1).astype(np.float32), labels


def on_disk(x, folder, shards=5):
    """The same samples in several files."""
    folder.mkdir()
    for number, part in enumerate(np.array_split(x, shards)):
        np.save(folder / f"part-{number:03}.npy", part)
    return folder


# What is quick ----------------------------------------------------------------------------------


def accuracy(model, x, y):
    labels = model.fit(x).labels_
    assert len(np.unique(labels)) == model.n_clusters
    return clustering_accuracy(y, labels)


@pytest.mark.parametrize("order", ORDERS)
def test_k_subspaces(order, tmp_path):
    x, y = digits(CLASSES, EACH)
    rows = ordered(y, order)
    for given in (x[rows], on_disk(x[rows], tmp_path / "shards")):
        model = KSubspaces(CLASSES, subspace_dim=3, n_init=2, random_state=0)
        assert accuracy(model, given, y[rows]) > 0.9


@pytest.mark.parametrize("order", ["sorted", "interleaved"])
def test_subspaces_that_grow(order):
    x, y, _ = make_union_of_subspaces(CLASSES * EACH, CLASSES, 30, 4, noise=0.05, random_state=0)
    rows = ordered(y, order)
    model = KSCNPlus(CLASSES, starts=2, refine=False, random_state=0)
    assert accuracy(model, x[rows], y[rows]) > 0.95
    assert "grow" in {record["stage"] for record in model.history_}


@pytest.mark.parametrize("order", ["sorted", "interleaved"])
def test_a_network_that_learns_from_windows_of_a_disk(order, tmp_path):
    x, y = bars()
    rows = ordered(y, order)
    source = as_source(on_disk(x[rows], tmp_path / "shards", len(x) // 16))
    source.window_bytes = 100 * x[0].nbytes
    assert not in_one_window(source)
    model = KSCN(
        4,
        subspace_dim=2,
        autoencoder_params={"channels": [8, 4], "kernels": [3, 3], "batch_norm": True},
        pretrain_epochs=8,
        epochs=6,  # after three, rounding decides whether the last few percent are there
        n_init=2,
        batch_size=40,
        learning_rate=3e-3,
        random_state=0,
    )
    assert accuracy(model, source, y[rows]) > 0.98


def bars():
    """Images of four kinds that a small network tells apart at once."""
    rng = np.random.default_rng(0)
    patterns = np.zeros((4, 2, 8, 8))
    for i, (row, column) in enumerate(np.ndindex(2, 2)):  # a quarter of the image each
        patterns[i, :, 4 * row :, 4 * column :][:, :4, :4] = rng.uniform(0, 1, (2, 4, 4))
    y = np.repeat(np.arange(4), 100)
    x = np.einsum("nj,njhw->nhw", rng.uniform(0.2, 1, (400, 2)), patterns[y])
    return (x + 0.02 * rng.standard_normal(x.shape)).astype(np.float32), y


# The whole --------------------------------------------------------------------------------------

SETS = {"digits": digits, "large digits": large_digits}
SEEDS = (0, 1, 2)
# What an accuracy may vary by though three seeds happen to agree.
LEAST_SPREAD = 0.03


def estimator(name, samples, seed=0):
    """One with its usual settings for some samples."""
    if name == "KSubspaces":
        return KSubspaces(10, subspace_dim=4, random_state=seed)
    if name == "KSCN":
        return KSCN(10, random_state=seed)
    return KSCNPlus(10, random_state=seed)


@pytest.fixture(scope="module")
def usual():
    """(estimator, set) -> the least accuracy of three seeds, less their spread."""

    @cache
    def measured(name, data):
        x, y = SETS[data]()
        found = [accuracy(estimator(name, x, seed), x, y) for seed in SEEDS]
        return min(found) - max(LEAST_SPREAD, max(found) - min(found))

    return measured


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("data", SETS)
@pytest.mark.parametrize("name", ["KSubspaces", "KSCN", "KSCNPlus"])
@pytest.mark.parametrize("where", ["array", "disk", "two processes"])
@pytest.mark.parametrize("order", ORDERS)
def test_no_order_ends_below_the_others(order, where, name, data, usual, tmp_path):
    x, y = SETS[data]()
    rows = ordered(y, order)
    x, y = x[rows], y[rows]
    if where == "array":
        found = accuracy(estimator(name, x), x, y)
    else:
        folder = on_disk(x, tmp_path / "shards")
        processes = 2 if where == "two processes" else 1
        labels = by_torchrun(processes, name, folder, tmp_path)
        assert len(np.unique(labels)) == 10
        found = clustering_accuracy(y, labels)
    assert found >= usual(name, data)


def by_torchrun(processes, name, folder, tmp_path):
    """Labels of a fit from disk by so many processes."""
    out = tmp_path / "labels.npy"
    run = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
    subprocess.run([sys.executable, *run, __file__, name, str(folder), str(out)], check=True)
    return np.load(out)


def main(name, folder, out):
    """One of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    source = as_source(Path(folder))
    labels = estimator(name, source).fit(source).labels_
    if dist.get_rank() == 0:
        np.save(out, labels)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
