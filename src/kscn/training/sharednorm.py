"""BatchNorm by the statistics of the batches of all processes together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class SharedStatistics(TorchFunctionMode):
    """BatchNorm in training by mean and variance over the batches of all processes.

    Parts are contiguous and files often sorted: a process may see a few classes only, whose
    statistics are not those of the data. (nn.SyncBatchNorm does this on GPUs only.)
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is nn.functional.batch_norm:
            return _batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`nn.functional.batch_norm`, which calls this by position or by name."""
    if not training:
        return torch.batch_norm(
            input, weight, bias, running_mean, running_var, False, momentum, eps, False
        )
    normalised, mean, variance, count = _SharedNorm.apply(input, running_mean, eps)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean), momentum)
            unbiased = variance * (count / max(count - 1, 1))
            running_var.lerp_(unbiased.to(running_var), momentum)
    if weight is not None:
        normalised = normalised * _channels(weight, input)
    return normalised if bias is None else normalised + _channels(bias, input)


class _SharedNorm(torch.autograd.Function):
    """(x - mean) / sqrt(variance + eps), with statistics and gradients over all processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pivot: Tensor | None, eps: float) -> Any:
        axes = _axes(x)
        n = x.numel() // x.shape[1]
        variance, mean = torch.var_mean(x, dim=axes, correction=0)
        # Relative to the running mean, squares of large means do not drown the variance.
        origin = torch.zeros_like(mean) if pivot is None else pivot.to(mean)
        away = (mean - origin).double()
        sums = torch.cat([n * away, n * (variance + away.square()), away.new_tensor([n])])
        dist.all_reduce(sums)
        count = float(sums[-1])
        away, squares = (sums[:-1] / count).chunk(2)
        variance = (squares - away.square()).clamp(min=0)
        mean = origin.double() + away
        scale = (variance + eps).rsqrt()
        out = (x - _channels(mean.to(x), x)) * _channels(scale.to(x), x)
        ctx.save_for_backward(out, scale)
        ctx.count = count
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance, count

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        out, scale = ctx.saved_tensors
        axes = _axes(grad)
        sums = torch.cat([grad.sum(dim=axes), (grad * out).sum(dim=axes)]).double()
        dist.all_reduce(sums)
        plain, along = (sums / ctx.count).to(grad).chunk(2)
        inner = torch.addcmul(_channels(plain, grad), out, _channels(along, grad))
        return (grad - inner) * _channels(scale.to(grad), grad), None, None


def _axes(x: Tensor) -> list[int]:
    return [0, *range(2, x.ndim)]


def _channels(values: Tensor, like: Tensor) -> Tensor:
    """One value per channel, shaped to meet a batch (n, c, ...)."""
    return values.view(1, -1, *[1] * (like.ndim - 2))
