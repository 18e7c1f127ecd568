"""Residual networks, shortcut + scale * branch: for images (He et al. 2016) and of the theory (Hayou section 3)."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import nn

from epoch0.activations import ActivationLike, get
from epoch0.arguments import Layers, Positive, Seed, Size, checked
from epoch0.distributions import Law
from epoch0.errors import InputError
from epoch0.networks.convolutional import check_kernel, readout
from epoch0.networks.nonlinearities import Dtype, Norm, Padding, Parts, check_inputs, laws_of, scaled_channels


class ResidualBlock(nn.Module):
    """A block whose branch has a fixed factor: 1 in a plain network, 1/sqrt(blocks) in a stable one."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def joined(self, shortcut: Any, branch: Any) -> Any:
        """The sum of shortcut and scaled branch."""
        return shortcut + (branch if self.scale == 1.0 else self.scale * branch)

    def extra_repr(self) -> str:
        return f"scale={self.scale:.6g}"


class Rung(ResidualBlock):
    """y + scale * (W phi(y) + b): the block of the theory, whose shortcut carries pre-activations."""

    def __init__(self, activation: nn.Module, layer: nn.Module, scale: float) -> None:
        super().__init__(scale)
        self.activation, self.layer = activation, layer

    def forward(self, y: Any) -> Any:
        return self.joined(y, self.layer(self.activation(y)))


class BasicBlock(ResidualBlock):
    """phi(shortcut(x) + scale * branch(x)) with two 3x3 convolutions in the branch."""

    expansion = 1

    def __init__(self, chosen: Parts, inputs: int, channels: int, stride: int, scale: float) -> None:
        super().__init__(scale)
        self.conv1, self.bn1 = chosen.convolution(inputs, channels, 3, stride), chosen.normalization(channels)
        self.activation1 = chosen.nonlinearity()
        self.conv2, self.bn2 = chosen.convolution(channels, channels, 3), chosen.normalization(channels)
        self.downsample = _shortcut(chosen, inputs, channels, stride)
        self.activation2 = chosen.nonlinearity()

    def forward(self, x: Any) -> Any:
        """(batch, inputs, height, width) to (batch, expansion * channels, height / stride, width / stride)."""
        branch = self.bn2(self.conv2(self.activation1(self.bn1(self.conv1(x)))))
        return self.activation2(self.joined(self.downsample(x), branch))


class Bottleneck(ResidualBlock):
    """phi(shortcut(x) + scale * branch(x)) with 1x1, 3x3 and 1x1 convolutions in the branch, the last 4 times wider."""

    expansion = 4

    def __init__(self, chosen: Parts, inputs: int, channels: int, stride: int, scale: float) -> None:
        super().__init__(scale)
        outputs = self.expansion * channels
        self.conv1, self.bn1 = chosen.convolution(inputs, channels, 1), chosen.normalization(channels)
        self.activation1 = chosen.nonlinearity()
        self.conv2, self.bn2 = chosen.convolution(channels, channels, 3, stride), chosen.normalization(channels)
        self.activation2 = chosen.nonlinearity()
        self.conv3, self.bn3 = chosen.convolution(channels, outputs, 1), chosen.normalization(outputs)
        self.downsample = _shortcut(chosen, inputs, outputs, stride)
        self.activation3 = chosen.nonlinearity()

    def forward(self, x: Any) -> Any:
        inside = self.activation2(self.bn2(self.conv2(self.activation1(self.bn1(self.conv1(x))))))
        return self.activation3(self.joined(self.downsample(x), self.bn3(self.conv3(inside))))


def _shortcut(chosen: Parts, inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(chosen.convolution(inputs, outputs, 1, stride), chosen.normalization(outputs))


Block = type[BasicBlock] | type[Bottleneck]


# one input, classes, channels of each stage at width 1 before the expansion, first convolution, name of the last layer
VARIANTS = {
    "cifar": ((3, 32, 32), 10, (16, 32, 64), "3x3", "linear"),
    "tiny_imagenet": ((3, 64, 64), 200, (16, 32, 64), "3x3", "linear"),
    "imagenet": ((3, 224, 224), 1000, (64, 128, 256, 512), "7x7", "fc"),
}

IMAGENET: dict[int, tuple[Block, tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}
"""Kind and number of blocks in each stage, by depth."""


@checked
def resnet(
    depth: Layers = 32,
    width: Positive = 1,
    stable: bool = False,
    classes: Size | None = None,
    activation: ActivationLike = "relu",
    *,
    variant: Annotated[str, tuple(VARIANTS)] = "cifar",
    inputs: Sequence[Size] | None = None,
    stem: Annotated[str | None, ("3x3", "7x7", None)] = None,
    norm: Norm = "batch",
    padding: Padding = "zeros",
    weights: Law | None = None,
    biases: Law | None = None,
    seed: Seed = 0,
    dtype: Dtype = torch.float32,
) -> nn.Sequential:
    """A residual network, as published or stable.

    >>> net = resnet(32, width=2)                               # 1,855,584 weights in 34 tensors
    >>> net(torch.zeros(5, 3, 32, 32)).shape                    # (batch, channels, height, width) -> (batch, classes)
    torch.Size([5, 10])
    >>> stable = resnet(104, width=2, stable=True, variant="tiny_imagenet")
    >>> large = resnet(50, variant="imagenet")                  # 25,557,032 parameters

    ``cifar``: three stages of 16, 32 and 64 channels with (depth - 2)/6 blocks each. ``tiny_imagenet``: the same
    network for 64x64 images of 200 classes. ``imagenet``: four stages of 64 to 512 channels, from depth 50 on of
    bottlenecks; ``stem="3x3"`` makes it one for small images. Where a block changes the shape, the shortcut is a 1x1
    convolution. Parameters have torchvision's names; the classifier is ``linear`` in the first two, ``fc`` in the last.

    ``depth`` counts layers on the longest path without the shortcuts: 6n + 2 (20, 32, 50, 56, 104, ...), or 18, 34, 50,
    101, 152 for ``variant="imagenet"``; ``width`` is a factor on all channels, ``stable`` multiplies every residual
    branch by 1/sqrt(L), L the number of blocks in the network: 15 for ResNet-32. Stable or not, the weights of a seed
    are the same. By default ``classes``, the shape of one input, (channels, height, width), and the ``stem``, ``"3x3"``
    or ``"7x7"`` (stride 2, then a max pool), are those of the variant. ``norm`` and ``padding`` are as in :func:`vgg`,
    the rest as in :func:`mlp`. An InputError names the argument that cannot be used.

    Source: He et al. 2016; Hayou et al. 2021, section 3, Proposition 2 (stable) and section 4.2 (doubled filters).
    """
    usual, labels, filters, entry, classifier = VARIANTS[variant]
    block, counts = _plan(depth, variant)
    channels, stem = scaled_channels(filters, width), stem or entry
    shape = check_inputs(usual if inputs is None else inputs, usual, dims=(2,))
    least = 2 ** (len(counts) - 1) * (4 if stem == "7x7" else 1)
    if min(shape[1:]) < least:
        raise InputError(f"inputs={inputs!r}: the strides divide the sides by {least}, which they cannot be below.")
    chosen = Parts(get(activation), *laws_of(weights, biases), norm, padding, dtype)

    scale, before = 1.0 / math.sqrt(sum(counts)) if stable else 1.0, channels[0]
    first = chosen.convolution(shape[0], before, *((7, 2) if stem == "7x7" else (3,)))
    layers = {"conv1": first, "bn1": chosen.normalization(before), "activation1": chosen.nonlinearity()}
    if stem == "7x7":
        layers["maxpool"] = nn.MaxPool2d(3, 2, padding=1)
    for stage, (after, count) in enumerate(zip(channels, counts, strict=True)):
        blocks = []
        for place in range(count):
            blocks.append(block(chosen, before, after, 2 if stage and not place else 1, scale))
            before = after * block.expansion
        layers[f"layer{stage + 1}"] = nn.Sequential(*blocks)
    layers |= {"average": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    layers[classifier] = chosen.linear(before, classes or labels)
    return chosen.fill(nn.Sequential(OrderedDict(layers)), seed)


def _plan(depth: int, variant: str) -> tuple[Block, tuple[int, ...]]:
    """Kind of the blocks, and how many each stage has."""
    if variant == "imagenet":
        if depth not in IMAGENET:
            raise InputError(f"depth={depth!r}: ImageNet ResNets have 18, 34, 50, 101 or 152 layers.")
        return IMAGENET[depth]
    count, rest = divmod(depth - 2, 6)
    if count < 1 or rest:
        near = f"{6 * count + 2} and {6 * count + 8}" if count > 0 else "8 and 14"
        other = " (variant='imagenet' has this depth)" if depth in IMAGENET else ""
        raise InputError(f"depth={depth!r}: three equal stages have 6n + 2 layers; nearest are {near}{other}.")
    return BasicBlock, (count,) * 3


@checked
def residual_chain(
    blocks: Layers = 15,
    width: Size = 100,
    inputs: Sequence[Size] = (784,),
    stable: bool = False,
    classes: Size | None = 10,
    activation: ActivationLike = "relu",
    weights: Law | None = None,
    biases: Law | None = None,
    kernel: Size = 3,
    seed: Seed = 0,
    dtype: Dtype = torch.float32,
) -> nn.Sequential:
    """A residual network as the theorems have it: fully connected, or convolutional with circular padding.

    >>> net = residual_chain(50, 300, inputs=(784,), stable=True)
    >>> net(torch.zeros(5, 784)).shape                          # (batch, inputs) -> (batch, classes)
    torch.Size([5, 10])
    >>> residual_chain(50, 32, inputs=(3, 8, 8))(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 10])

    One layer leads from the input to y; then each block adds W phi(y) + b. ``stable=True`` divides every branch by
    sqrt(blocks); either way a seed has the same weights. docs/networks has how the variance of y grows.

    ``width`` is the number of neurons, or channels, of every layer, ``inputs`` the shape of one input: (features,),
    (channels, length) or (channels, height, width); the ``kernel`` of convolutions is odd. ``classes`` are the outputs
    of a layer at the end, behind one more nonlinearity; None ends with y. The rest is as in :func:`mlp`. An InputError
    names the argument that cannot be used.
    Source: Hayou et al. 2021, section 3, Theorem 2 and Propositions 2 and 3.
    """
    shape = check_inputs(inputs, (784,), dims=(0, 1, 2))
    if dims := len(shape) - 1:
        check_kernel(kernel, shape[1:])
    chosen = Parts(get(activation), *laws_of(weights, biases), None, "circular", dtype)

    def layer(before: int) -> nn.Module:
        return chosen.convolution(before, width, kernel, dims=dims) if dims else chosen.linear(before, width)

    scale = 1.0 / math.sqrt(blocks) if stable else 1.0
    rungs = [Rung(chosen.nonlinearity(), layer(width), scale) for _ in range(blocks)]
    end = [] if classes is None else readout(chosen, (width, *shape[1:]), classes)
    return chosen.fill(nn.Sequential(layer(shape[0]), *rungs, *end), seed)
