"""Vanilla convolutional networks: circular padding and no pooling, the CNN of the theory (Hayou section 2.1)."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from epoch0.activations import Activation, get
from epoch0.arguments import Layers, Seed, Size, checked
from epoch0.distributions import Law
from epoch0.errors import InputError
from epoch0.networks._parts import Dtype, Parts, check_inputs, laws_of


@checked
def vanilla_cnn(
    depth: Layers = 10,
    channels: Size | Sequence[Size] = 32,
    kernel: Size = 3,
    inputs: Sequence[Size] = (1, 28, 28),
    classes: Size | None = 10,
    activation: str | Activation = "relu",
    weights: Law | None = None,
    biases: Law | None = None,
    seed: Seed = 0,
    dtype: Dtype = torch.float32,
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
    The classifier, of ``classes`` outputs, is one more layer that sees every place of every channel. None leaves it
    out, and the network ends with the pre-activations of its last convolution. The rest is as in :func:`mlp`. An
    InputError names the argument that cannot be used.
    Source: Hayou et al. 2021, section 2.1, equation (3), and Table 4.
    """
    shape = check_inputs(inputs, (1, 28, 28), dims=(1, 2))
    widths = tuple(channels) if isinstance(channels, Sequence) else (channels,) * depth
    if len(widths) != depth:
        raise InputError(f"channels={channels!r}: give one integer > 0 for all {depth} layers, or one for each.")
    check_kernel(kernel, shape[1:])
    chosen = Parts(get(activation), *laws_of(weights, biases), None, "circular", dtype)
    layers: list[nn.Module] = []
    for before, after in zip((shape[0], *widths), widths, strict=False):
        layers += [chosen.nonlinearity()] if layers else []
        layers.append(chosen.convolution(before, after, kernel, dims=len(shape) - 1))
    if classes is not None:
        layers += readout(chosen, (widths[-1], *shape[1:]), classes)
    return chosen.fill(nn.Sequential(*layers), seed)


def readout(chosen: Parts, features: tuple[int, ...], classes: int) -> list[nn.Module]:
    """What follows pre-activations of shape (channels, *size): the nonlinearity, and a layer on all of them."""
    return [chosen.nonlinearity(), nn.Flatten(), chosen.linear(math.prod(features), classes)]


def check_kernel(kernel: int, size: tuple[int, ...]) -> None:
    """Refuse a kernel that circular padding cannot centre, or that goes round the input more than once."""
    if kernel % 2 == 0:
        odd = f"{kernel - 1 or 3} or {kernel + 1}"
        raise InputError(f"kernel={kernel!r}: circular padding centres odd kernels only; use {odd}.")
    if kernel > 2 * min(size) + 1:
        raise InputError(f"kernel={kernel} goes round an input of size {size} more than once; use a smaller one.")
