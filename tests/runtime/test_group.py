"""The group of processes: threads stand for processes, one process is the oracle."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn.data import as_source
from kscn.errors import InputError
from kscn.runtime import group as distributed
from kscn.runtime.group import ALONE, Group, current_group, own_rows, place
from kscn.runtime.minibatches import Minibatches
from kscn.runtime.moments import scaling_of
from kscn.subspaces import ScatterSums, keep_nearest


class Wire:
    """torch.distributed's collectives between threads, by rank, in lockstep."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size)
        self.slots = [None] * size
        self.own = threading.local()

    def exchange(self, tensor):
        self.slots[self.own.rank] = tensor.clone()
        self.barrier.wait(20)
        everything = list(self.slots)
        self.barrier.wait(20)
        return everything

    def all_reduce(self, tensor):
        tensor.copy_(torch.stack(self.exchange(tensor)).sum(dim=0))

    def broadcast(self, tensor, source):
        tensor.copy_(self.exchange(tensor)[source])


def together(size, work, monkeypatch):
    """work(group) in `size` threads; what they return, by rank."""
    wire = Wire(size)
    monkeypatch.setattr(distributed, "dist", wire)
    results, faults = [None] * size, []

    def run(rank):
        wire.own.rank = rank
        try:
            results[rank] = work(Group(rank, size))
        except Exception as error:
            faults.append(error)
            wire.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return results


def test_without_torch_distributed_a_process_is_alone():
    assert current_group() is ALONE
    assert ALONE.add(1, 2.5) == [1, 2.5]
    assert (ALONE.rank, ALONE.size) == (0, 1)


def test_sums_over_processes(monkeypatch):
    rows = torch.rand(3, 10, dtype=torch.float64)
    for found in together(3, lambda group: group.sum(rows[group.rank]), monkeypatch):
        torch.testing.assert_close(found, rows.sum(dim=0))
    assert together(3, lambda group: group.any(group.rank == 1), monkeypatch) == [True] * 3


def test_rows_are_gathered_in_order_of_rank_whatever_they_hold(monkeypatch):
    rows = torch.tensor([[1, torch.nan], [-3, 1e30], [5, -torch.inf], [2, 0], [-1, 7]])
    for found in together(3, lambda group: group.gather(split(rows, group)), monkeypatch):
        torch.testing.assert_close(found, rows, equal_nan=True)


@pytest.mark.parametrize(("n", "size"), [(10, 3), (3, 3), (100, 7)])
def test_parts_are_contiguous_and_cover_everything(monkeypatch, n, size):
    source = as_source(np.arange(2 * n).reshape(n, 2))
    parts = together(size, lambda group: group.part(source), monkeypatch)
    assert [place(part) for part in parts] == [(part.first, n) for part in parts]
    np.testing.assert_array_equal(np.concatenate([part[:] for part in parts]), source[:])
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1
    rows = np.arange(0, n, 2)
    taken = np.concatenate([part.take(own_rows(part, rows)) for part in parts])
    np.testing.assert_array_equal(taken, source.take(rows))
    for part in parts:
        blocks = np.concatenate([block for _, block in part.batches(2)])
        np.testing.assert_array_equal(blocks, part[:])
        assert [first for first, _ in part.batches(2)] == list(range(0, len(part), 2))


def test_too_few_samples_or_too_small_batches_are_refused(monkeypatch):
    with pytest.raises(InputError, match="2 samples, too few for 3 processes"):
        together(3, lambda group: group.part(as_source(np.zeros((2, 2)))), monkeypatch)
    with pytest.raises(InputError, match="batch_size=5"):
        together(3, lambda group: group.batch_size(5), monkeypatch)
    assert together(3, lambda group: group.batch_size(256), monkeypatch) == [85] * 3


def split(tensor, group):
    return tensor.tensor_split(group.size)[group.rank]


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 4),
    distances=st.lists(st.sampled_from([0.0, -0.0, 0.5, 1.0, 1e-38, 3e38, 7.25]), min_size=4),
    k=st.integers(1, 3),
    trim=st.sampled_from([0.0, 0.1, 0.3, 0.49]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 9),
)
def test_the_cut_is_that_of_one_process_to_the_sample(size, distances, k, trim, dtype, seed):
    distance = torch.tensor(distances, dtype=dtype)
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, k, len(distances)))
    expected = keep_nearest(distance, labels, trim, k)
    with pytest.MonkeyPatch.context() as patch:
        found = together(
            size,
            lambda g: g.keep_nearest(split(distance, g), split(labels, g), trim, k),
            patch,
        )
    assert torch.cat(found).tolist() == expected.tolist()


def test_sums_over_parts_are_sums_over_all(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (50,), generator=generator)
    whole = ScatterSums(3, 4, affine=True)
    whole.add(z, labels)

    def work(group):
        own = ScatterSums(3, 4, affine=True)
        own.add(split(z, group), split(labels, group))
        found = group.sum_scatter(own)
        return found

    for found in together(3, work, monkeypatch):
        torch.testing.assert_close(found.second, whole.second)
        torch.testing.assert_close(found.first, whole.first)
        torch.testing.assert_close(found.weight, whole.weight)


@pytest.mark.parametrize("image", [True, False])
def test_scaling_is_that_of_all_samples(monkeypatch, image):
    rng = np.random.default_rng(0)
    samples = rng.normal(3, 2, (40, 5)) * np.linspace(1, 4, 40)[:, None]
    samples = np.abs(samples) if image else samples
    source = as_source(samples)
    expected = scaling_of(source, image)
    for found in together(3, lambda g: scaling_of(g.part(source), image, g), monkeypatch):
        torch.testing.assert_close(found.factor, expected.factor)
        torch.testing.assert_close(found.shift, expected.shift)


@pytest.mark.parametrize("on_disk", [False, True])
def test_mini_batches_are_drawn_from_all_samples(monkeypatch, tmp_path, on_disk):
    """In every process, though its part has a few classes only; each sample once."""
    rows = np.arange(2000.0, dtype=np.float32).repeat(4).reshape(2000, 4)
    np.save(tmp_path / "rows.npy", rows)
    source = as_source(tmp_path / "rows.npy" if on_disk else rows)
    source.window_bytes, source.stretch_bytes = 2**12, 2**8

    def epoch(group):
        part = group.part(source)
        batches = Minibatches(part, torch.nn.Identity(), (4,), 64, torch.device("cpu"))
        found = list(batches.shuffled(torch.Generator().manual_seed(0)))
        assert len(found) == batches.per_epoch
        for indices, batch in found:
            assert torch.equal(batch[:, 0], indices.float())
            assert indices.float().std() > 400  # from everywhere
        return torch.cat([indices for indices, _ in found])

    found = together(3, epoch, monkeypatch)
    assert [len(indices) for indices in found] == [666, 667, 667]
    assert torch.cat(found).sort().values.tolist() == list(range(2000))
    for indices in found:
        classes = torch.bincount(indices // 500, minlength=4)
        assert (classes > 100).all()
