"""The loop against a plain one of numpy: it takes the same path, descends, and ends."""

import copy

import numpy as np
import pytest
import torch
import trainers

from kscn.data import as_source, make_union_of_subspaces
from kscn.runtime.blocks import Blocks, working_dtype
from kscn.subspaces import Subspaces, principal_angles
from kscn.training.lloyd import NARROW, ROUNDING, Lloyd

K, D, P = 5, 10, 2


def overlapping(n=2000, *, affine=False, seed=0, dtype=np.float32):
    """Samples so noisy that many lie between clusters and the loop needs many iterations."""
    X, _, _ = make_union_of_subspaces(
        n, K, D, P, noise=0.35, affine=affine, random_state=seed, dtype=dtype
    )
    return X


def random_start(dims=P, *, affine=False, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    dims = torch.tensor(dims).expand(K)
    p = int(dims.max())
    bases = torch.linalg.qr(torch.randn(K, D, p, generator=generator, dtype=torch.float64)).Q
    bases = bases * (torch.arange(p) < dims[:, None])[:, None]
    offsets = None
    if affine:
        offsets = torch.randn(K, D, generator=generator, dtype=torch.float64)
        offsets = offsets - (bases @ (bases.mT @ offsets[:, :, None])).squeeze(-1)
    return Subspaces(bases, offsets).to(dtype)


def loop_over(X, start, *, batch_size=256, weights=None, **kwargs):
    dtype = working_dtype(np.dtype(X.dtype))
    blocks = Blocks(as_source(X), dtype, torch.device("cpu"), batch_size=batch_size)
    return Lloyd(
        blocks,
        start.to(dtype),
        trim=kwargs.pop("trim", 0.0),
        weights=None if weights is None else torch.tensor(weights),
        pool=torch.tensor(np.asarray(X[:500])).to(dtype),
        run=trainers.new_run(0, **kwargs),
    )


def run(loop, max_iter=60, tol=0.0, first=0):
    """What the iterations recorded."""
    loop.iterate(range(first, max_iter), tol, "fit", max_iter)
    return loop.run.history


VARIANTS = {
    "linear": {},
    "affine": {"affine": True},
    "float64": {"dtype": np.float64},
    "affine float64": {"affine": True, "dtype": np.float64},
    "weights": {"weights": True},
    "affine weights": {"weights": True, "affine": True},
    "trim": {"trim": 0.1},
    "affine trim weights": {"trim": 0.1, "affine": True, "weights": True},
    "mixed dimensions": {"dims": [1, 2, 3, 2, 1]},
    "affine mixed dimensions": {"dims": [1, 2, 3, 2, 1], "affine": True},
}


def prepared(variant, seed=0, n=2000):
    options = dict(VARIANTS[variant])
    affine = options.get("affine", False)
    X = overlapping(n, affine=affine, seed=seed, dtype=options.get("dtype", np.float32))
    weights = np.random.default_rng(seed).uniform(0.2, 3, n) if options.get("weights") else None
    start = random_start(options.get("dims", P), affine=affine, seed=seed)
    return X, start, {"weights": weights, "trim": options.get("trim", 0.0)}


def plain_loop(X, start, weights, trim, iterations):
    """Labels, shares that changed and objectives, every sum and residual anew in each iteration."""
    X = X.astype(np.float64)
    n, dims = len(X), start.dims.tolist()
    weights = np.ones(n) if weights is None else weights
    bases = [basis[:, :p].double().numpy() for basis, p in zip(start.bases, dims, strict=True)]
    affine = start.offsets is not None
    means = [np.zeros(D)] * K if not affine else list(start.offsets.double().numpy())
    labels, history = np.full(n, -1), []
    for _ in range(iterations):
        away = [X - mean for mean in means]
        residual = np.stack(
            [(z**2).sum(1) - ((z @ S) ** 2).sum(1) for z, S in zip(away, bases, strict=True)], 1
        )
        before, labels = labels, residual.argmin(axis=1)
        objective = 0.0
        for i, p in enumerate(dims):
            members = np.flatnonzero(labels == i)
            order = members[np.argsort(residual[members, i], kind="stable")]
            kept = np.sort(order[: len(order) - int(trim * len(order))])
            w = weights[kept][:, None]
            means[i] = (w * X[kept]).sum(0) / w.sum() if affine else np.zeros(D)
            z = X[kept] - means[i]
            values, vectors = np.linalg.eigh((w * z).T @ z)
            bases[i] = vectors[:, ::-1][:, :p]
            objective += values[: D - p].sum()
        history.append(((labels != before).mean(), objective))
        if history[-1][0] == 0:
            break
    return labels, history


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loop_takes_the_path_of_a_plain_one(variant):
    X, start, options = prepared(variant)
    loop = loop_over(X, start, **options)
    found = run(loop)
    labels, history = plain_loop(X, start, options["weights"], options["trim"], len(found))
    assert len(found) == len(history) > 5
    np.testing.assert_array_equal(loop.labels, labels)
    assert [i["changed"] for i in found] == [changed for changed, _ in history]
    objectives = [objective for _, objective in history]
    np.testing.assert_allclose([i["objective"] for i in found], objectives, rtol=1e-6)


@pytest.mark.parametrize("variant", ["linear", "float64", "weights", "mixed dimensions"])
def test_samples_that_are_not_evaluated_would_not_have_moved(variant):
    X, start, options = prepared(variant)
    bounded, plain = loop_over(X, start, **options), loop_over(X, start, **options)
    plain.margins = None
    skipped = []
    for _ in range(40):
        skipped.append(float((bounded.margins.amin(dim=1) > ROUNDING).float().mean()))
        run(bounded, max_iter=1)
        run(plain, max_iter=1)
        assert torch.equal(bounded.labels, plain.labels)
    assert max(skipped) > 0.3


def test_the_loop_ends_when_no_label_changes():
    X, start, _ = prepared("linear")
    loop = loop_over(X, start)
    assert len(run(loop, max_iter=500)) < 500
    again = loop_over(X, loop.subspaces)
    run(again, max_iter=1)
    assert torch.equal(again.labels, loop.labels)


def test_the_loop_ends_at_max_iter_and_when_told_to():
    X, start, _ = prepared("linear")
    assert len(run(loop_over(X, start), max_iter=3)) == 3
    told = loop_over(X, start, on_record=lambda record: record["iteration"] == 2)
    assert len(run(told)) == 2


@pytest.mark.parametrize("variant", ["linear", "float64", "affine trim weights"])
def test_batch_size_and_memory_maps_change_no_label(variant, tmp_path):
    X, start, options = prepared(variant, n=1000)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    reference = loop_over(X, start, **options)
    run(reference)
    for data in (X, mapped):
        for batch_size in (37, 300, 10**6):
            loop = loop_over(data, start, batch_size=batch_size, **options)
            run(loop)
            assert torch.equal(loop.labels, reference.labels)
            torch.testing.assert_close(loop.subspaces.bases, reference.subspaces.bases)


@pytest.mark.parametrize("affine", [False, True])
def test_an_empty_cluster_gets_a_new_place(affine):
    X, y, bases = make_union_of_subspaces(
        1500, 3, D, P, noise=0.02, affine=affine, random_state=0, dtype=np.float64
    )
    # The third subspace is a copy of the first, so that no sample is nearest to it.
    start = torch.tensor(bases)[[0, 1, 0]]
    offsets = None
    if affine:
        offsets = torch.stack([torch.tensor(X[y == i].mean(axis=0)) for i in (0, 1, 0)])
        offsets = offsets - (start @ (start.mT @ offsets[:, :, None])).squeeze(-1)
    loop = loop_over(X, Subspaces(start, offsets))
    run(loop)
    assert (loop.labels.numpy() == y).mean() > 0.995
    assert principal_angles(loop.subspaces.bases[2], torch.tensor(bases[2])).max() < 0.05


def test_clusters_that_stay_empty_are_given_up():
    X = np.repeat(np.eye(2, D), 20, axis=0)  # two directions, five clusters
    loop = loop_over(X, random_start(1))
    found = run(loop, max_iter=100)
    assert len(found) < 100
    assert loop.subspaces.fault() is None
    assert found[-1]["objective"] < 1e-20


def test_trimming_leaves_out_the_farthest_of_each_cluster():
    X, start, _ = prepared("linear")
    loop = loop_over(X, start, trim=0.1)
    run(loop, max_iter=4)
    sizes = np.bincount(loop.labels, minlength=K)
    kept = sizes - (0.1 * sizes).astype(int)
    np.testing.assert_array_equal(loop.sums.weight, kept)
    np.testing.assert_array_equal(np.bincount(loop.counted + 1)[1:], kept)


# Wide samples: rough updates first ---------------------------------------------------------------


def wide(affine=False, **options):
    """A loop over samples of many columns, from a start that is far from the end."""
    d = NARROW + 44
    X, _, _ = make_union_of_subspaces(
        500, K, d, P, noise=0.1, affine=affine, random_state=0, dtype=np.float64
    )
    generator = torch.Generator().manual_seed(0)
    bases = torch.linalg.qr(torch.randn(K, d, P, generator=generator, dtype=torch.float64)).Q
    points = torch.zeros(K, d, dtype=torch.float64) if affine else None
    return loop_over(X, Subspaces(bases, points), **options)


@pytest.mark.parametrize("affine", [False, True])
def test_rough_updates_descend_and_exact_ones_end_the_loop(affine):
    loop = wide(affine)
    assert not loop.exact
    found = run(loop)
    assert loop.exact
    objective = np.array([i["objective"] for i in found])
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    assert found[-1]["changed"] == 0
    best = loop.sums[torch.arange(K)].subspaces(loop.dims)
    assert principal_angles(loop.subspaces.bases, best.bases).max() < 1e-6


# States -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["wide", "linear", "affine trim weights", "mixed dimensions"])
@pytest.mark.parametrize("done", [1, 3, 6])
def test_a_loop_goes_on_to_the_same_result(variant, done):
    def new():
        if variant == "wide":
            return wide()
        X, start, options = prepared(variant)
        return loop_over(X, start, **options)

    first, second, whole, states = new(), new(), new(), []

    def so_many():
        yield from range(done)
        states.append(copy.deepcopy(first.state_dict()))

    uncut = run(whole)
    first.iterate(so_many(), 0.0, "fit", done)
    second.load_state_dict(*states)
    # A loop with no iteration left has sums all the same.
    torch.testing.assert_close(second.sums.second, first.sums.second)
    rest = run(second, first=done)
    assert [i["changed"] for i in rest] == [i["changed"] for i in uncut[done:]]
    assert torch.equal(second.labels, whole.labels)
    one, other = (loop.subspaces.bases @ loop.subspaces.bases.mT for loop in (second, whole))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
