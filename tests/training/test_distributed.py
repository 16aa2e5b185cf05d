"""The group of processes: threads stand for processes, one process is the oracle."""

import copy
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn.data import as_source
from kscn.errors import InputError
from kscn.nn import ConvAutoencoder
from kscn.subspaces import ScatterSums, keep_nearest
from kscn.training import collectives, processes
from kscn.training.distributed import ALONE, Part, current_group, own_rows, place


class Wire:
    """torch.distributed's collectives between threads, by rank, in lockstep."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots = [None] * size
        self.own = threading.local()
        self.reduced = 0

    def get_rank(self):
        return self.own.rank

    def get_world_size(self):
        return self.size

    def exchange(self, tensor):
        self.slots[self.own.rank] = tensor.clone()
        self.barrier.wait(20)
        everything = list(self.slots)
        self.barrier.wait(20)
        return everything

    def all_reduce(self, tensor):
        self.reduced += 1
        tensor.copy_(torch.stack(self.exchange(tensor)).sum(dim=0))

    def all_gather(self, received, tensor):
        for place_, value in zip(received, self.exchange(tensor), strict=True):
            place_.copy_(value)

    def broadcast(self, tensor, source):
        tensor.copy_(self.exchange(tensor)[source])


def together(size, work, monkeypatch):
    """work(group) in `size` threads; what they return, by rank."""
    wire = Wire(size)
    monkeypatch.setattr(processes, "dist", wire)
    monkeypatch.setattr(collectives, "dist", wire)
    results, faults = [None] * size, []

    def run(rank):
        wire.own.rank = rank
        try:
            results[rank] = work(processes.processes())
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
    assert ALONE.add(1, 2.5) == (1, 2.5)
    assert (ALONE.rank, ALONE.size) == (0, 1)


@pytest.mark.parametrize("numbers", [1, 10, collectives.GATHERED // 8 + 1])
def test_sums_of_few_and_of_many_numbers(monkeypatch, numbers):
    rows = torch.rand(3, numbers, dtype=torch.float64)
    found = together(3, lambda group: group.sum(rows[group.rank]), monkeypatch)
    for one in found:
        torch.testing.assert_close(one, rows.sum(dim=0))
        assert torch.equal(one, found[0])  # to the last bit
    assert collectives.dist.reduced == (0 if numbers <= 10 else 3)
    largest = together(3, lambda group: group.largest(-group.rank - 1.0), monkeypatch)
    assert largest == [-1.0] * 3


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


def test_a_part_is_not_cut_again_and_has_its_source_s_stretches(monkeypatch):
    class Striped(Part):
        def stretches(self):
            return np.array([0, 4, 8, 10])

    source = as_source(np.zeros((10, 2)))
    source = Striped(source, 0, 10, 0, 10)
    part = Part(source, 3, 6, 3, 10)
    assert part.stretches().tolist() == [0, 1, 5, 6]
    assert together(2, lambda group: group.part(part), monkeypatch)[1] is part


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
        found = group.whole(own, own)
        assert found.changed.all()
        assert not own.changed.any()
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
    expected = ALONE.scaling(source, image)
    for found in together(3, lambda g: g.scaling(g.part(source), image), monkeypatch):
        torch.testing.assert_close(found.factor, expected.factor)
        torch.testing.assert_close(found.shift, expected.shift)


def test_gradients_with_batch_norm_are_those_of_one_batch(monkeypatch):
    """One step of many processes is the step of one: gradients, loss and running statistics."""
    images = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images[:6] += 2.0  # processes see different things

    torch.manual_seed(0)
    original = ConvAutoencoder((1, 8, 8), [4, 3], [3, 3], batch_norm=True)

    def step(group):
        network = copy.deepcopy(original)
        network.train()
        mine = split(images, group)
        (n,) = group.add(len(mine))
        with group.normalising(network):
            loss = (network(mine) - mine).square().sum() / n
            # A loss of the batch as a whole, which every process computes.
            mean = group.total(network.encode(mine).sum(dim=0)) / n
            loss = loss + group.once(mean.square().sum())
        loss.backward()
        figures = group.gradients(list(network.parameters()), loss.detach().double()[None])
        grads = torch.cat([p.grad.flatten() for p in network.parameters()])
        running = torch.cat([b.flatten().float() for b in network.buffers()])
        return grads, figures, running

    grads, figures, running = step(ALONE)
    for found in together(3, step, monkeypatch):
        torch.testing.assert_close(found[0], grads, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(found[1], figures, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[2], running, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}]
)
def test_batch_norm_is_that_of_all_batches_together(monkeypatch, settings):
    """Whatever the options of the layer; and afterwards it is an ordinary one again."""
    x = torch.randn(9, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[:3] = 1000 + 10 * x[:3]  # processes see different things, far from zero
    upstream = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))

    def pass_through(group):
        layer = torch.nn.BatchNorm1d(4, **settings).double()
        mine = split(x, group).clone().requires_grad_()
        with group.normalising(torch.nn.Sequential(layer)):
            for _ in range(2):
                out = layer(mine)
        out.backward(split(upstream, group))
        assert "forward" not in vars(layer)
        layer.eval()
        return out.detach(), mine.grad, list(layer.buffers()), layer(x).detach()

    out, grad, buffers, after = pass_through(ALONE)
    found = together(3, pass_through, monkeypatch)
    torch.testing.assert_close(torch.cat([part[0] for part in found]), out)
    torch.testing.assert_close(torch.cat([part[1] for part in found]), grad)
    for part in found:
        torch.testing.assert_close(part[2], buffers)
        torch.testing.assert_close(part[3], after)
