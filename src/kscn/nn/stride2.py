"""Stride-2 convolutions at the image end of a network, where channels are few.

CPU kernels work on blocks of 8 or 16 channels; with one channel in (or out) they crawl. The same
sums come out of a stride-1 convolution on four times the channels: even and odd pixels become
channels (pixel_unshuffle), and the kernel is cut up accordingly. Kernels of 5, 9, ... and even
image sides only; `suits` says whether that holds and the detour pays.
"""

import torch
from torch import Tensor, nn

FEW = 4  # channels at most for which it pays; kernels work on blocks of 8 or 16


def in_fast_order(images: Tensor) -> Tensor:
    """Images with the channels innermost on the CPU, where oneDNN is about three times faster."""
    if images.device.type != "cpu":
        return images
    return images.contiguous(memory_format=torch.channels_last)


def suits(
    layer: nn.Conv2d | nn.ConvTranspose2d, sides: tuple[int, ...], device: torch.device
) -> bool:
    """Whether the detour computes `layer` (stride 2, same padding) on such images, and sooner."""
    few = layer.in_channels if isinstance(layer, nn.Conv2d) else layer.out_channels
    even = all(side % 2 == 0 for side in sides)
    kernels = all(kernel % 4 == 1 for kernel in layer.kernel_size)
    return device.type == "cpu" and few <= FEW and even and kernels


def conv(layer: nn.Conv2d, images: Tensor) -> Tensor:
    """`layer(images)`, from (n, c, h, w) to (n, c', h / 2, w / 2)."""
    taps = _even_taps(layer.weight)  # (out, in, q, a, r, b): rows 2 q + a, columns 2 r + b
    weight = in_fast_order(taps.permute(0, 1, 3, 5, 2, 4).flatten(1, 3))
    halves = in_fast_order(nn.functional.pixel_unshuffle(images, 2))
    return nn.functional.conv2d(halves, weight, layer.bias, padding=_margin(weight))


def conv_transpose(layer: nn.ConvTranspose2d, images: Tensor) -> Tensor:
    """`layer(images)`, from (n, c, h, w) to (n, c', 2 h, 2 w)."""
    taps = _even_taps(layer.weight).flip(2, 4)  # (in, out, q, a, r, b)
    weight = in_fast_order(taps.permute(1, 3, 5, 0, 2, 4).flatten(0, 2))
    phases = nn.functional.conv2d(images, weight, None, padding=_margin(weight))
    out = nn.functional.pixel_shuffle(phases, 2)
    return out if layer.bias is None else out + layer.bias[:, None, None]


def _even_taps(weight: Tensor) -> Tensor:
    """Kernels with a zero row and column added, split into pairs of taps."""
    padded = nn.functional.pad(weight, (0, 1, 0, 1))
    return padded.unflatten(2, (-1, 2)).unflatten(4, (-1, 2))


def _margin(weight: Tensor) -> tuple[int, int]:
    return (weight.shape[2] // 2, weight.shape[3] // 2)
