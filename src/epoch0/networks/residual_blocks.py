"""Residual blocks, shortcut + scale * branch: the sum that keeps depth on the edge of chaos (Hayou section 3)."""

from typing import Any

from torch import Tensor, nn
from torch.fx import Proxy

from epoch0.networks._parts import Parts

Signal = Tensor | Proxy
"""What passes through a block: tensors, or the proxies with which torch.fx traces it."""


class ResidualBlock(nn.Module):
    """A block whose branch has a fixed factor: 1 in a plain network, 1/sqrt(blocks) in a stable one."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def joined(self, shortcut: Any, branch: Any) -> Any:
        """The sum; plain networks are spared the product."""
        return shortcut + (branch if self.scale == 1.0 else self.scale * branch)

    def extra_repr(self) -> str:
        """The factor of the branch."""
        return f"scale={self.scale:.6g}"


class Rung(ResidualBlock):
    """y + scale * (W phi(y) + b): the block of the theory, whose shortcut carries pre-activations."""

    def __init__(self, activation: nn.Module, layer: nn.Module, scale: float) -> None:
        super().__init__(scale)
        self.activation, self.layer = activation, layer

    def forward(self, y: Signal) -> Signal:
        """Any shape that the layer keeps to the same shape."""
        total: Signal = self.joined(y, self.layer(self.activation(y)))
        return total


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

    def forward(self, x: Signal) -> Signal:
        """(batch, inputs, height, width) to (batch, channels, height / stride, width / stride)."""
        branch = self.bn2(self.conv2(self.activation1(self.bn1(self.conv1(x)))))
        y: Signal = self.activation2(self.joined(self.downsample(x), branch))
        return y


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

    def forward(self, x: Signal) -> Signal:
        """(batch, inputs, height, width) to (batch, 4 channels, height / stride, width / stride)."""
        inside = self.activation2(self.bn2(self.conv2(self.activation1(self.bn1(self.conv1(x))))))
        y: Signal = self.activation3(self.joined(self.downsample(x), self.bn3(self.conv3(inside))))
        return y


def _shortcut(chosen: Parts, inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(chosen.convolution(inputs, outputs, 1, stride), chosen.normalization(outputs))
