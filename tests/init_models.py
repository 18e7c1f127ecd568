"""Models as users write them, for setting their weights: chains, residual networks, norms, masks, odd spellings."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0.networks import mlp


def vgg(activation: type[nn.Module] = nn.ReLU, pool: type[nn.Module] | None = nn.MaxPool2d) -> nn.Sequential:
    """Four zero-padded convolutions with pools, flattened into two dense layers; for (examples, 3, 16, 16)."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 32, 48, 48):
        layers += [nn.Conv2d(channels, width, 3, padding=1), activation()]
        channels = width
        if width == 48 and pool is not None:
            layers.append(pool(2))
    side = 16 if pool is None else 4
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(48 * side**2, 64), activation(), nn.Linear(64, 10))


def strided(activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Strides, groups, dilation, a transposed convolution, circular padding; for (examples, 3, 16, 16)."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), activation(), nn.Conv2d(32, 64, 3, stride=2, padding=1, groups=4), activation(),
        nn.Conv2d(64, 64, 3, padding=2, dilation=2), activation(),
        nn.ConvTranspose2d(64, 48, 4, stride=2, padding=1), activation(),
        nn.ConvTranspose2d(48, 48, 3, padding=1, groups=2), activation(),
        nn.Conv2d(48, 32, 3, padding=1, padding_mode="circular"), activation(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


class Block(nn.Module):
    """Post-activation block as in torchvision, with one in-place ReLU used twice; with or without batch norm."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, norm: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not norm)
        self.bn1 = nn.BatchNorm2d(outputs) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=not norm)
        self.bn2 = nn.BatchNorm2d(outputs) if norm else nn.Identity()
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=not norm),
                nn.BatchNorm2d(outputs) if norm else nn.Identity(),
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """A small ResNet in torchvision's style; for (examples, 3, 16, 16)."""

    def __init__(self, blocks: int = 2, norm: bool = True, width: int = 32) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=not norm)
        self.bn1 = nn.BatchNorm2d(width) if norm else nn.Identity()
        stage1 = [Block(width, width, norm=norm) for _ in range(blocks)]
        wide = 2 * width
        stage2 = [Block(width, wide, 2, norm), *(Block(wide, wide, norm=norm) for _ in range(blocks - 1))]
        self.layer1, self.layer2 = nn.Sequential(*stage1), nn.Sequential(*stage2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(x, 1))


class PreActivation(nn.Module):
    """x + W2 phi(W1 phi(x)), dense."""

    def __init__(self, width: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.second, self.phi = nn.Linear(width, width), nn.Linear(width, width), activation()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.phi(self.first(self.phi(x))))


class NormBlock(nn.Module):
    """x + W2 gelu(W1 LN(x)), as in a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def residual_mlp(blocks: int = 6, width: int = 128, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Pre-activation blocks without norms; for (examples, 100)."""
    inside = [PreActivation(width, activation) for _ in range(blocks)]
    return nn.Sequential(nn.Linear(100, width), *inside, nn.Linear(width, 10))


def transformer_like(blocks: int = 6, width: int = 64) -> nn.Sequential:
    """Blocks with a layer norm in front; for (examples, 100)."""
    return nn.Sequential(nn.Linear(100, width), *(NormBlock(width) for _ in range(blocks)), nn.Linear(width, 10))


class PreActivationConv(nn.Module):
    """A block of He et al. 2016b: norm, ReLU, convolution, twice; the shortcut is the identity or one convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: bool) -> None:
        super().__init__()
        self.bn1, self.bn2 = (nn.BatchNorm2d(n) if norm else nn.Identity() for n in (inputs, outputs))
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not norm)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=not norm)
        self.beside = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.relu(self.bn1(x)))
        return self.beside(x) + self.conv2(F.relu(self.bn2(h)))


def preactivation_resnet(norm: bool = True, width: int = 24) -> nn.Sequential:
    """A ResNet whose sums have no activation behind them, and a global average; for (examples, 3, 16, 16)."""
    blocks = [(width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1)]
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), *(PreActivationConv(*block, norm) for block in blocks),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 100),
    )  # fmt: skip


class Odd(nn.Module):
    """Spellings that users find: x @ W + b, W.t(), addmm, h * sigmoid(h), a scaled ReLU, in-place changes."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(100, width)), nn.Parameter(torch.zeros(width))
        self.w2, self.b2 = nn.Parameter(torch.randn(width, width)), nn.Parameter(torch.zeros(width))
        self.w3, self.b3 = nn.Parameter(torch.randn(width, width)), nn.Parameter(torch.zeros(width))
        self.last = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = x @ self.w1 + self.b1
        h = h * torch.sigmoid(h)
        h = F.dropout(torch.addmm(self.b2, h, self.w2.t()), 0.3)
        h = 1.5 * torch.relu_(h)
        h = F.linear(h, self.w3, self.b3).clamp(min=0)
        return self.last(h)


class Custom(nn.Module):
    """An activation that nobody has named."""

    def forward(self, h: Tensor) -> Tensor:
        return h * torch.sigmoid(2 * h) + 0.3 * torch.sin(h)


def custom() -> nn.Module:
    """A chain of it; for (examples, 100)."""
    return nn.Sequential(nn.Linear(100, 300), Custom(), nn.Linear(300, 300), Custom(), nn.Linear(300, 100))


def chain(activation: str) -> nn.Module:
    """A plain network; for (examples, 100)."""
    return mlp([100, 300, 250, 300, 100], activation)


def vectors(examples: int = 48) -> Tensor:
    """Gaussian inputs."""
    return torch.randn(examples, 100, generator=torch.Generator().manual_seed(3))


def images(examples: int = 8) -> Tensor:
    """Gaussian images."""
    return torch.randn(examples, 3, 16, 16, generator=torch.Generator().manual_seed(4))


CASES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    **{
        f"mlp {name}": (lambda name=name: chain(name), vectors(16))
        for name in ("relu", "tanh", "gelu", "erf", "elu", "softplus")
    },
    "mlp custom": (custom, vectors(16)),
    "vgg, averages, tanh": (lambda: vgg(nn.Tanh, nn.AvgPool2d), images(4)),
    "vgg, averages, relu": (lambda: vgg(nn.ReLU, nn.AvgPool2d), images(4)),
    "vgg, no pools": (lambda: vgg(nn.GELU, None), images(4)),
    "strided": (strided, images(4)),
    "resnet": (lambda: ResNet(2, norm=False, width=24), images(4)),
    "resnet, batch norm": (lambda: ResNet(1), images(4)),
    "resnet, pre-activation": (lambda: preactivation_resnet(norm=False), images(4)),
    "resnet, pre-activation, batch norm": (lambda: preactivation_resnet(width=16), images(4)),
    "residual, relu": (lambda: residual_mlp(3), vectors(16)),
    "residual, tanh": (lambda: residual_mlp(3, activation=nn.Tanh), vectors(16)),
    "layer norm": (lambda: transformer_like(2, 48), vectors(16)),
    "odd spellings": (Odd, vectors(16)),
}
"""Models that theory covers, and inputs."""


def build(case: str) -> tuple[nn.Module, Tensor]:
    """A fresh model of a case and its input."""
    torch.manual_seed(0)
    make, x = CASES[case]
    return make(), x
