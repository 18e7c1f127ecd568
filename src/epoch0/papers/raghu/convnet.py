"""Raghu's convolutional network (sections 2.2 and 3): the one of Figures 4, 6 and 8 to 11, and the names of its layers.

The paper gives away little: ReLU, pooling as layers 3 and 7 (Figure 4), two hidden fully connected layers of which the
last "halves the number of neurons" (Figure 8), weights N(0, sigma_w^2 / fan_in). So ten layers:

    1 conv   2 conv   3 pool   4 conv   5 conv   6 conv   7 pool   8 fully connected   9 fully connected   10 output

What it leaves open, and what is taken here: 3x3 kernels with zero padding, which keep the size; max pooling over 2x2
places; 32 channels in each convolution, and as many neurons in the first fully connected layer as come in, so that no
hidden layer has fewer neurons than the one before it but the pools and the last one, the exceptions that the caption of
Figure 8 names; biases that begin at zero; batch norm (Figure 10) or trajectory regularization (Figure 11) behind every
convolution and every hidden fully connected layer, before the ReLU, and a layer in front of batch norm without a bias,
which it would take away.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import nn

from epoch0.distributions import Gaussian
from epoch0.errors import InputError, is_count, suggest
from epoch0.seeds import generator
from epoch0.train.trajectory_regularization import TrajectoryRegularization

NORMS = ("none", "batch", "trajectory")

CONVOLUTIONS = 5
"""Two before the first pool, three before the second."""

POOL_BEHIND = (2, 5)
"""Convolutions, counted from 1, that a pool follows."""


@dataclass(frozen=True)
class ConvNet:
    """What the network is, apart from its seed.

    >>> net = ConvNet(channels=(16,) * 5, hidden=(64, 32), colours=1, size=8).build(seed=0)
    >>> net(torch.zeros(5, 1, 8, 8)).shape                      # (batch, colours, size, size) -> (batch, classes)
    torch.Size([5, 10])
    >>> net.conv1.weight.shape
    torch.Size([16, 1, 3, 3])

    Attributes:
        channels: of the five convolutions.
        hidden: neurons of the two fully connected layers before the output.
        colours: channels of an image.
        size: height and width of an image, a multiple of 4 for the two pools.
        classes: number of outputs.
        variance: sigma_w^2; a weight is Gaussian with variance sigma_w^2 / fan_in.
        norm: what stands between a hidden layer and its ReLU: ``"none"``, ``"batch"`` or ``"trajectory"``.

    Raises:
        InputError: naming the field that cannot be used.

    Source: Raghu et al. 2017, section 2.2, captions of Figures 4, 6, 8, 10 and 11.
    """

    channels: tuple[int, ...] = (32, 32, 32, 32, 32)
    hidden: tuple[int, ...] = (2048, 1024)
    colours: int = 3
    size: int = 32
    classes: int = 10
    variance: float = 2.0
    norm: str = "none"

    def __post_init__(self) -> None:
        for name, counts, length in (("channels", self.channels, CONVOLUTIONS), ("hidden", self.hidden, 2)):
            if len(counts) != length or not all(is_count(count) for count in counts):
                raise InputError(f"{name}={counts!r}; give {length} integers > 0, one a layer.")
        if not is_count(self.size) or self.size % 4:
            raise InputError(f"size={self.size!r}; two pools halve the image, so it is a multiple of 4, such as 32.")
        if not (is_count(self.colours) and is_count(self.classes)):
            raise InputError(f"colours={self.colours!r}, classes={self.classes!r}: both are integers > 0.")
        if not (math.isfinite(self.variance) and self.variance > 0):
            raise InputError(f"variance={self.variance!r}; sigma_w^2 is a finite number > 0, such as 2.")
        if self.norm not in NORMS:
            raise InputError(f"norm={self.norm!r} is not one of {', '.join(NORMS)}.{suggest(self.norm, NORMS)}")

    @property
    def inputs(self) -> tuple[int, int, int]:
        """Shape of one image."""
        return (self.colours, self.size, self.size)

    def build(self, seed: int) -> nn.Sequential:
        """One network: its parts are named conv1, norm1, relu1, ..., pool1, ..., flatten, fc1, fc2 and output.

        Args:
            seed: names the draw of the weights; the kind of norm does not change them.
        """
        layers = OrderedDict[str, nn.Module]()
        bias = self.norm != "batch"
        before = self.colours
        for number, after in enumerate(self.channels, start=1):
            layers[f"conv{number}"] = nn.Conv2d(before, after, 3, padding=1, bias=bias, device="meta")
            self._close(layers, number, after, image=True)
            if number in POOL_BEHIND:
                layers[f"pool{POOL_BEHIND.index(number) + 1}"] = nn.MaxPool2d(2)
            before = after
        layers["flatten"] = nn.Flatten()
        before *= (self.size // 4) ** 2
        for number, after in enumerate(self.hidden, start=1):
            layers[f"fc{number}"] = nn.Linear(before, after, bias=bias, device="meta")
            self._close(layers, CONVOLUTIONS + number, after, image=False)
            before = after
        layers["output"] = nn.Linear(before, self.classes, device="meta")
        return self._filled(nn.Sequential(layers), seed)

    def _close(self, layers: "OrderedDict[str, nn.Module]", number: int, width: int, image: bool) -> None:
        """The norm and the ReLU of a hidden layer."""
        if self.norm == "batch":
            layers[f"norm{number}"] = nn.BatchNorm2d(width) if image else nn.BatchNorm1d(width)
        elif self.norm == "trajectory":
            layers[f"norm{number}"] = TrajectoryRegularization()
        layers[f"relu{number}"] = nn.ReLU()

    def _filled(self, network: nn.Sequential, seed: int) -> nn.Sequential:
        source = generator(seed)
        with torch.no_grad():
            for layer in network:
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    layer.to_empty(device="cpu", recurse=False)
                    law = Gaussian(math.sqrt(self.variance / layer.weight[0].numel()))
                    law.sample(layer.weight.shape, source, out=layer.weight)
                    if layer.bias is not None:
                        layer.bias.zero_()
        return network


@dataclass(frozen=True)
class Layer:
    """A layer as the figures number it.

    Attributes:
        number: from 1, pools counted.
        label: short, for an axis.
        kind: ``"convolution"``, ``"pooling"`` or ``"linear"``.
        weights: name of the module with its weights; None for a pool.
        output: name of the module whose output is the layer's: its ReLU, the pool, or the network's output.
    """

    number: int
    label: str
    kind: str
    weights: str | None
    output: str


def layers() -> list[Layer]:
    """The ten layers in order, whatever the widths and norms.

    >>> [layer.label for layer in layers()]
    ['conv1', 'conv2', 'pool1', 'conv3', 'conv4', 'conv5', 'pool2', 'fc1', 'fc2', 'output']
    """
    found: list[Layer] = []
    for number in range(1, CONVOLUTIONS + 1):
        name = f"conv{number}"
        found.append(Layer(len(found) + 1, name, "convolution", name, f"relu{number}"))
        if number in POOL_BEHIND:
            name = f"pool{POOL_BEHIND.index(number) + 1}"
            found.append(Layer(len(found) + 1, name, "pooling", None, name))
    for number in (1, 2):
        found.append(Layer(len(found) + 1, f"fc{number}", "linear", f"fc{number}", f"relu{CONVOLUTIONS + number}"))
    return [*found, Layer(len(found) + 1, "output", "linear", "output", "output")]
