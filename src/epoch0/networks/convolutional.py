"""Vanilla convolutional networks: circular padding and no pooling, the CNN of the theory (Hayou section 2.1)."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from epoch0.activations import Activation
from epoch0.distributions import Law
from epoch0.errors import InputError, check_choice, is_count
from epoch0.networks._parts import Parts, check_counts, check_inputs, parts


def vanilla_cnn(
    depth: int = 10,
    channels: int | Sequence[int] = 32,
    kernel: int = 3,
    inputs: Sequence[int] = (1, 28, 28),
    classes: int | None = 10,
    activation: str | Activation = "relu",
    weights: Law | None = None,
    biases: Law | None = None,
    head: str = "flatten",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """A convolutional network without pooling, all of whose neurons see as many weights: the V-CNN.

    >>> net = vanilla_cnn(10, 32, inputs=(1, 28, 28), activation="tanh", weights=Gaussian(1.304), biases=Gaussian(0.2))
    >>> net(torch.zeros(5, 1, 28, 28)).shape                    # (batch, channels, *size) -> (batch, classes)
    torch.Size([5, 10])
    >>> vanilla_cnn(3, 8, inputs=(2, 50), classes=None)(torch.zeros(5, 2, 50)).shape        # features of a 1-D one
    torch.Size([5, 8, 50])

    Padding is circular, so every place of a channel has the same law and the mean-field maps hold at each. A weight has
    standard deviation sigma_w / sqrt(fan_in), where the fan-in is the channels before times the places of the
    kernel.

    ``depth`` convolutional layers, with ``channels`` of all or one number a layer; the ``kernel``, places along a side,
    is odd, 2k + 1 in the paper. ``inputs`` is the shape of one input, (channels, length) or (channels, height, width).
    The classifier, of ``classes`` outputs, is one more layer; it sees every place of every channel (``head="flatten"``)
    or the average of each channel (``"mean"``), which any size of input has. None leaves it out, and the network ends
    with the pre-activations of its last convolution. The rest is as in :func:`mlp`. An InputError names the argument
    that cannot be used.
    Source: Hayou et al. 2021, section 2.1, equation (3), and Table 4.
    """
    check_counts(depth=depth)
    shape = check_inputs(inputs, (1, 28, 28), dims=(1, 2))
    widths = _widths(channels, depth)
    check_kernel(kernel, shape[1:])
    check_choice("head", head, ("flatten", "mean"))
    if classes is not None:
        check_counts(classes=classes)
    chosen = parts(activation, (weights, biases), None, "circular", dtype, seed)
    layers: list[nn.Module] = []
    for before, after in zip((shape[0], *widths), widths, strict=False):
        layers += [chosen.nonlinearity()] if layers else []
        layers.append(chosen.convolution(before, after, kernel, dims=len(shape) - 1))
    if classes is not None:
        layers += readout(chosen, (widths[-1], *shape[1:]), classes, head)
    return chosen.fill(nn.Sequential(*layers), seed)


def readout(chosen: Parts, features: tuple[int, ...], classes: int, head: str = "flatten") -> list[nn.Module]:
    """What follows pre-activations of shape (channels, *size): the nonlinearity, and a layer on all or on averages."""
    layers: list[nn.Module] = [chosen.nonlinearity()]
    if head == "mean":
        layers.append(nn.AdaptiveAvgPool1d(1) if len(features) == 2 else nn.AdaptiveAvgPool2d(1))
    fan_in = features[0] if head == "mean" else math.prod(features)
    return [*layers, nn.Flatten(), chosen.linear(fan_in, classes)]


def check_kernel(kernel: int, size: tuple[int, ...]) -> None:
    """Refuse a kernel that circular padding cannot centre, or that goes round the input more than once."""
    if not is_count(kernel) or kernel % 2 == 0:
        near = f"; use {kernel - 1 or 3} or {kernel + 1}" if is_count(kernel) else ", such as 3"
        raise InputError(f"kernel={kernel!r}: circular padding centres odd kernels only{near}.")
    if kernel > 2 * min(size) + 1:
        raise InputError(f"kernel={kernel} goes round an input of size {size} more than once; use a smaller one.")


def _widths(channels: int | Sequence[int], depth: int) -> tuple[int, ...]:
    widths = tuple(channels) if isinstance(channels, Sequence) else (channels,) * depth
    if len(widths) != depth or not all(is_count(width) for width in widths):
        raise InputError(f"channels={channels!r}: give one integer > 0 for all {depth} layers, or one for each.")
    return widths
