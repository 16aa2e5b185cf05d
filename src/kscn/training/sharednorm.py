"""BatchNorm by the statistics of the batches of all processes together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from kscn.training.collectives import add_up


@contextmanager
def shared_statistics(*modules: nn.Module) -> Iterator[None]:
    """BatchNorm layers of `modules` in training take mean and variance over all processes.

    Parts are contiguous and files often sorted: a process may see a few classes only, whose
    statistics are not those of the data. (nn.SyncBatchNorm does this on GPUs only.)
    """
    layers = [
        layer for module in modules for layer in module.modules() if isinstance(layer, _BatchNorm)
    ]
    for layer in layers:
        layer.forward = partial(_forward, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)  # and the method of the class shows again


def _forward(layer: _BatchNorm, x: Tensor) -> Tensor:
    if not layer.training:
        return type(layer).forward(layer, x)
    layer._check_input_dim(x)
    mean, variance, count = _statistics(x.detach())
    if layer.running_mean is not None and layer.running_var is not None:
        assert layer.num_batches_tracked is not None
        layer.num_batches_tracked.add_(1)
        momentum = layer.momentum
        if momentum is None:  # the plain average of all batches
            momentum = 1 / float(layer.num_batches_tracked)
        layer.running_mean.lerp_(mean.to(layer.running_mean), momentum)
        unbiased = variance * (count / max(count - 1, 1))
        layer.running_var.lerp_(unbiased.to(layer.running_var), momentum)
    mean, variance = mean.to(x), variance.to(x)
    out: Tensor = _Normalise.apply(x, layer.weight, layer.bias, mean, variance, count, layer.eps)
    return out


def _statistics(x: Tensor) -> tuple[Tensor, Tensor, float]:
    """Mean and variance of every channel over all processes, and how many values they are of."""
    # The kernel of BatchNorm itself, many times as fast as torch.var_mean on channels-last images.
    mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
    # In float64, squares of large means do not drown the variance.
    mean = mean.double()
    squares = torch.addcmul(variance.double(), mean, mean)
    sums = torch.cat([mean, squares, mean.new_ones(1)]).mul_(x.numel() // x.shape[1])
    add_up(sums)
    count = sums[-1].item()
    mean, squares = (sums[:-1] / count).chunk(2)
    return mean, torch.addcmul(squares, mean, mean, value=-1).clamp_(min=0), count


class _Normalise(torch.autograd.Function):
    """(x - mean) / sqrt(variance + eps) * weight + bias, with gradients through the statistics.

    torch's kernels for fixed statistics do the work. What is missing from their gradient, the way
    that the statistics depend on x, is again an affine map of the normalised x:

        dx = scale * (g - mean(g) - xhat * mean(g * xhat)),   scale = weight / sqrt(variance + eps)

    with means over the batches of all processes.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: float,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.count, ctx.eps = count, eps
        return torch.batch_norm(x, weight, bias, mean, variance, False, 0.0, eps, False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, mean, variance = ctx.saved_tensors
        factor = torch.ones_like(mean) if weight is None else weight
        dx, along, plain = torch.ops.aten.native_batch_norm_backward(
            grads[0], x, factor, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        sums = torch.cat([along, plain])
        add_up(sums)
        scale = (variance + ctx.eps).rsqrt_().mul_(factor).div_(-ctx.count)
        through_scale, through_mean = (sums.view(2, -1) * scale).unbind()
        dx += torch.batch_norm(
            x, through_scale, through_mean, mean, variance, False, 0.0, ctx.eps, False
        )
        if weight is None:
            return dx, None, None, None, None, None, None
        # Of our own batch only: the gradients of all processes are added up later.
        return dx, along, plain, None, None, None, None
