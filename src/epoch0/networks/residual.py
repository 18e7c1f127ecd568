"""Residual networks for CIFAR, Tiny ImageNet and ImageNet, plain or stable (He et al. 2016; Hayou section 3)."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from epoch0.activations import Activation
from epoch0.distributions import Law
from epoch0.errors import InputError, is_count, suggest
from epoch0.networks._parts import Parts, check_count, check_inputs, parts, scaled_channels
from epoch0.networks.residual_blocks import BasicBlock, Bottleneck

Block = type[BasicBlock] | type[Bottleneck]


@dataclass(frozen=True)
class Variant:
    """A family of residual networks.

    Attributes:
        inputs: shape of one input.
        classes: number of outputs.
        channels: of each stage at width 1, before the expansion of bottlenecks.
        stem: first convolution: ``"3x3"``, or ``"7x7"`` with stride 2 and a max pool behind it.
        classifier: name of the last layer.
    """

    inputs: tuple[int, int, int]
    classes: int
    channels: tuple[int, ...]
    stem: str
    classifier: str


VARIANTS = {
    "cifar": Variant((3, 32, 32), 10, (16, 32, 64), "3x3", "linear"),
    "tiny_imagenet": Variant((3, 64, 64), 200, (16, 32, 64), "3x3", "linear"),
    "imagenet": Variant((3, 224, 224), 1000, (64, 128, 256, 512), "7x7", "fc"),
}

IMAGENET: dict[int, tuple[Block, tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}
"""Kind and number of blocks in each stage, by depth."""

STEMS = ("3x3", "7x7")


def resnet(
    depth: int = 32,
    width: float = 1,
    stable: bool = False,
    classes: int | None = None,
    activation: str | Activation = "relu",
    *,
    variant: str = "cifar",
    inputs: Sequence[int] | None = None,
    stem: str | None = None,
    norm: str | None = "batch",
    padding: str = "zeros",
    weights: Law | None = None,
    biases: Law | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
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

    Args:
        depth: layers on the longest path without the shortcuts: 6n + 2 (20, 32, 50, 56, 104, ...), or 18, 34, 50, 101,
            152 for ``variant="imagenet"``.
        width: factor on all channels; the pruning literature has ResNet-32 with 2.
        stable: multiply every residual branch by 1/sqrt(L), L the number of blocks in the network: 15 for ResNet-32.
        classes: outputs; by default those of the variant, 10, 200 and 1,000.
        activation: a name of :mod:`epoch0.activations`, or an activation.
        variant: ``"cifar"``, ``"tiny_imagenet"`` or ``"imagenet"``.
        inputs: shape of one input, (channels, height, width); by default that of the variant. Other sizes pass too.
        stem: ``"3x3"`` or ``"7x7"`` (stride 2, then a max pool); by default that of the variant.
        norm: ``"batch"``: batch norm after each convolution, which then has no bias; None: neither norm, and biases.
        padding: ``"zeros"``, or ``"circular"`` as in the theory.
        weights: law of a weight before the division by sqrt(fan_in); None is ``Gaussian(sqrt 2)``, He's law.
        biases: law of a bias; None is zero.
        seed: names the draw; stable or not, the weights are the same.
        dtype: torch.float32 or torch.float64.

    Raises:
        InputError: naming the argument that cannot be used.

    Source: He et al. 2016; Hayou et al. 2021, section 3, Proposition 2 (stable) and section 4.2 (doubled filters).
    """
    if variant not in VARIANTS:
        names = ", ".join(f"'{name}'" for name in VARIANTS)
        raise InputError(f"variant={variant!r} is not known; use one of {names}.{suggest(variant, VARIANTS)}")
    family = VARIANTS[variant]
    block, counts = _plan(depth, variant)
    channels = scaled_channels(family.channels, width)
    classes = family.classes if classes is None else classes
    check_count("classes", classes, "the number of outputs")
    stem = family.stem if stem is None else stem
    if stem not in STEMS:
        raise InputError(f"stem={stem!r} is not known; use '3x3' or '7x7'.")
    shape = check_inputs(family.inputs if inputs is None else inputs, family.inputs, dims=(2,))
    least = 2 ** (len(counts) - 1) * (4 if stem == "7x7" else 1)
    if min(shape[1:]) < least:
        raise InputError(f"inputs={inputs!r}: the strides divide the sides by {least}, which they cannot be below.")
    chosen = parts(activation, weights, biases, norm, padding, dtype, seed)

    scale = 1.0 / math.sqrt(sum(counts)) if stable else 1.0
    layers = _stem(chosen, shape[0], channels[0], stem)
    before = channels[0]
    for stage, (after, count) in enumerate(zip(channels, counts, strict=True)):
        blocks = []
        for place in range(count):
            blocks.append(block(chosen, before, after, 2 if stage and not place else 1, scale))
            before = after * block.expansion
        layers[f"layer{stage + 1}"] = nn.Sequential(*blocks)
    layers |= {"average": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    layers[family.classifier] = chosen.linear(before, classes)
    return chosen.fill(nn.Sequential(OrderedDict(layers)), seed)


def _stem(chosen: Parts, inputs: int, channels: int, stem: str) -> dict[str, nn.Module]:
    large = stem == "7x7"
    convolution = chosen.convolution(inputs, channels, 7, 2) if large else chosen.convolution(inputs, channels, 3)
    layers = {"conv1": convolution, "bn1": chosen.normalization(channels), "activation1": chosen.nonlinearity()}
    return layers | ({"maxpool": nn.MaxPool2d(3, 2, padding=1)} if large else {})


def _plan(depth: int, variant: str) -> tuple[Block, tuple[int, ...]]:
    """Kind of the blocks, and how many each stage has."""
    if variant == "imagenet":
        if depth not in IMAGENET:
            raise InputError(f"depth={depth!r}: ImageNet ResNets have 18, 34, 50, 101 or 152 layers.")
        return IMAGENET[depth]
    count, rest = divmod(depth - 2, 6) if is_count(depth) else (0, 0)
    if count < 1 or rest:
        near = f"{6 * count + 2} and {6 * count + 8}" if is_count(depth) and count > 0 else "8 and 14"
        other = " (variant='imagenet' has this depth)" if depth in IMAGENET else ""
        raise InputError(
            f"depth={depth!r}: three equal stages of two-layer blocks make 6n + 2 layers; nearest are {near}{other}."
        )
    return BasicBlock, (count,) * 3
