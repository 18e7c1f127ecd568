"""Convolutional networks without branches: the vanilla CNN of the theory, without pools (Hayou section 2.1), and VGG.

VGG is for small images, and threefold as in the rescaling experiments (Hayou section 4.3, Table 5).
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from epoch0.activations import ActivationLike, get
from epoch0.arguments import Layers, Positive, Seed, Size, checked
from epoch0.distributions import Law
from epoch0.errors import InputError
from epoch0.networks.nonlinearities import Dtype, Norm, Padding, Parts, check_inputs, laws_of, scaled_channels


@checked
def vanilla_cnn(
    depth: Layers = 10,
    channels: Size | Sequence[Size] = 32,
    kernel: Size = 3,
    inputs: Sequence[Size] = (1, 28, 28),
    classes: Size | None = 10,
    activation: ActivationLike = "relu",
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
    standard deviation sigma_w / sqrt(fan_in), where the fan-in is the channels before times the places of the kernel.

    ``depth`` convolutional layers, with ``channels`` of all or one number a layer; ``kernel``, an odd side, is 2k + 1
    in the paper. ``inputs`` is the shape of one input, (channels, length) or (channels, height, width). The classifier,
    of ``classes`` outputs, is one more layer on all places and channels. None ends with the last pre-activations. The
    rest is as in :func:`mlp`. An InputError names the argument that cannot be used.
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
    """The readout of pre-activations of shape (channels, *size): the nonlinearity, and a layer on all of them."""
    return [chosen.nonlinearity(), nn.Flatten(), chosen.linear(math.prod(features), classes)]


def check_kernel(kernel: int, size: tuple[int, ...]) -> None:
    """Refuse a kernel that circular padding cannot centre, or that goes round the input more than once."""
    if kernel % 2 == 0:
        raise InputError(f"{kernel=}: circular padding centres odd kernels; use {kernel - 1 or 3} or {kernel + 1}.")
    if kernel > 2 * min(size) + 1:
        raise InputError(f"kernel={kernel} goes round an input of size {size} more than once; use a smaller one.")


CHANNELS = (64, 128, 256, 512, 512)  # of the convolutions in each block, at width 1

CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""In each block, by the number in the network's name."""


@checked
def vgg(
    depth: Size = 16,
    width: Positive = 1,
    repeat: Layers = 1,
    classes: Size = 10,
    activation: ActivationLike = "relu",
    *,
    inputs: Sequence[Size] = (3, 32, 32),
    norm: Norm = "batch",
    padding: Padding = "zeros",
    weights: Law | None = None,
    biases: Law | None = None,
    seed: Seed = 0,
    dtype: Dtype = torch.float32,
) -> nn.Sequential:
    """A VGG network for small images: blocks of 3x3 convolutions, a max pool between blocks, one layer as classifier.

    >>> net = vgg(16)
    >>> net(torch.zeros(5, 3, 32, 32)).shape                    # (batch, channels, height, width) -> (batch, classes)
    torch.Size([5, 10])
    >>> threefold = vgg(16, repeat=3)                           # 3xVGG16: as many pools, 39 convolutions

    One fully connected layer stands in the place of the three of the original. 3xVGG16, of the paper's section 4.3, is
    ``repeat=3``, not ``width=3`` (docs/networks).

    ``depth`` is 11, 13, 16 or 19, the layers of the original, ``width`` a factor on all channels, 64 to 512 at 1,
    ``repeat`` one on the convolutions in each block, and ``inputs`` the shape of one input, (channels, height, width),
    at least 16 by 16. ``norm="batch"`` puts a batch norm after each convolution, without bias; None: biases.
    ``padding`` is ``"zeros"``, or ``"circular"`` as in the theory. The rest is as in :func:`mlp`. An InputError names
    the argument that cannot be used.
    Source: Simonyan and Zisserman 2015; Hayou et al. 2021, section 4.3.
    """
    if depth not in CONVOLUTIONS:
        raise InputError(f"depth={depth!r}: VGG networks have 11, 13, 16 or 19 layers.")
    shape = check_inputs(inputs, (3, 32, 32), dims=(2,))
    if min(shape[1:]) < 16:
        raise InputError(f"inputs={inputs!r}: four pools halve the image, so its sides are at least 16.")
    channels = scaled_channels(CHANNELS, width)
    chosen = Parts(get(activation), *laws_of(weights, biases), norm, padding, dtype)
    layers: list[nn.Module] = []
    before = shape[0]
    for block, (after, count) in enumerate(zip(channels, CONVOLUTIONS[depth], strict=True)):
        layers += [nn.MaxPool2d(2)] if block else []
        for _ in range(count * repeat):
            layers += [chosen.convolution(before, after, 3), chosen.normalization(after), chosen.nonlinearity()]
            before = after
    features = nn.Sequential(*(layer for layer in layers if norm or not isinstance(layer, nn.Identity)))
    ends = OrderedDict(average=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), classifier=chosen.linear(before, classes))
    return chosen.fill(nn.Sequential(OrderedDict[str, nn.Module](features=features, **ends)), seed)
