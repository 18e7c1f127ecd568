"""VGG networks for small images, and the threefold ones of the rescaling experiments (Hayou section 4.3, Table 5)."""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from epoch0.activations import Activation, get
from epoch0.arguments import Layers, Positive, Seed, Size, checked
from epoch0.distributions import Law
from epoch0.errors import InputError
from epoch0.networks._parts import Dtype, Norm, Padding, Parts, check_inputs, laws_of, scaled_channels

CHANNELS = (64, 128, 256, 512, 512)
"""Of the convolutions in each block, at width 1."""

CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""In each block, by the number in the network's name."""


@checked
def vgg(
    depth: Size = 16,
    width: Positive = 1,
    repeat: Layers = 1,
    classes: Size = 10,
    activation: str | Activation = "relu",
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

    VGG16 for CIFAR has 13 convolutions and one fully connected layer in the place of the three of the original,
    14,715,584 weights in all. 3xVGG16 "has the same number of pooling layers as VGG16, and 3 times the number of
    convolutional layers inside each vanilla block": that is ``repeat=3``, not ``width=3``.

    ``depth`` is 11, 13, 16 or 19, the layers of the original, ``width`` a factor on all channels, 64 to 512 at 1,
    ``repeat`` one on the convolutions in each block, and ``inputs`` the shape of one input, (channels, height, width),
    at least 16 by 16; other sizes pass too. ``norm="batch"`` puts a batch norm after each convolution, which then has
    no bias; None: neither norm, and biases. ``padding`` is ``"zeros"``, or ``"circular"`` as in the theory. The rest is
    as in :func:`mlp`. An InputError names the argument that cannot be used.
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
    stages = OrderedDict[str, nn.Module](
        features=nn.Sequential(*(layer for layer in layers if norm or not isinstance(layer, nn.Identity))),
        average=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        classifier=chosen.linear(before, classes),
    )
    return chosen.fill(nn.Sequential(stages), seed)
