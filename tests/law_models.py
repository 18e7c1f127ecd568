"""Networks whose gains the law should predict, small enough for tests, of every kind that has one."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvBlock(nn.Module):
    """Two convolutions and a shortcut, activation after the sum (or before everything)."""

    def __init__(
        self, width: int, activation: Callable[[Tensor], Tensor] = torch.relu, *, norm: bool = True, first: bool = False
    ) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) if norm else nn.Identity() for _ in range(2))
        self.activation, self.first = activation, first

    def forward(self, x: Tensor) -> Tensor:
        phi, (one, two) = self.activation, self.norms
        if self.first:
            return x + self.two(phi(two(self.one(phi(one(x))))))
        return phi(x + two(self.two(phi(one(self.one(x))))))


class DenseBlock(nn.Module):
    """The second half of a transformer layer: norm, up, activation, down, added."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor], *, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.up, self.down, self.activation = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), activation

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.activation(self.up(self.norm(x))))


class Swish(nn.Module):
    """A module that is an activation without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.5 * x)


def randomized(net: nn.Module, variance: float = 2.0) -> nn.Module:
    """Gaussian weights with sigma_w^2 = variance, biases of standard deviation 0.1."""
    for module in net.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.normal_(module.weight, std=(variance / module.weight[0].numel()) ** 0.5)
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)
    return net


def dense(*between: Callable[[], nn.Module], depth: int = 4) -> nn.Module:
    parts = [m for i in range(depth) for m in (nn.Linear(64 if i else 20, 64), *(make() for make in between))]
    return nn.Sequential(*parts, nn.Linear(64, 10))


def stem(*blocks: nn.Module, after: nn.Module | None = None) -> nn.Module:
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *([after] if after else []), *blocks, *head)


def convolutions(norm: bool) -> nn.Module:
    def normed(width: int) -> nn.Module:
        return nn.BatchNorm2d(width) if norm else nn.Identity()

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), normed(16), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1, stride=2), normed(32),
        nn.GELU(), nn.AvgPool2d(2), nn.Conv2d(32, 32, 3, padding=1), normed(32), nn.ELU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def groups() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1),
        nn.InstanceNorm2d(32), nn.SiLU(), nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.BatchNorm2d(32), nn.ReLU6(),
    )  # fmt: skip


def blocks(make: Callable[[], nn.Module]) -> list[nn.Module]:
    return [make() for _ in range(3)]


IMAGES, VECTORS = (12, 3, 10, 10), (32, 20)
ZOO: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "relu": (lambda: randomized(dense(nn.ReLU)), VECTORS),
    "tanh": (lambda: randomized(dense(nn.Tanh)), VECTORS),
    "sigmoid": (lambda: randomized(dense(nn.Sigmoid), 9.0), VECTORS),
    "mish": (lambda: randomized(dense(nn.Mish)), VECTORS),
    "swish": (lambda: randomized(dense(Swish)), VECTORS),
    "softshrink": (lambda: randomized(dense(nn.Softshrink), 4.0), VECTORS),
    "batch norm": (lambda: dense(partial(nn.BatchNorm1d, 64), nn.ReLU), VECTORS),
    "batch norm, tanh": (lambda: dense(partial(nn.BatchNorm1d, 64), nn.Tanh), VECTORS),
    "batch norm last": (lambda: randomized(dense(nn.ReLU, partial(nn.BatchNorm1d, 64))), VECTORS),
    "layer norm": (lambda: randomized(dense(partial(nn.LayerNorm, 64), nn.ReLU)), VECTORS),
    "convolutions": (lambda: randomized(convolutions(norm=False)), IMAGES),
    "convolutions, batch norm": (lambda: convolutions(norm=True), IMAGES),
    "group norm": (groups, IMAGES),
    "resnet": (lambda: stem(*blocks(lambda: ConvBlock(16)), after=nn.ReLU()), IMAGES),
    "resnet, activation first": (lambda: stem(*blocks(lambda: ConvBlock(16, first=True))), IMAGES),
    "resnet without norm": (
        lambda: randomized(stem(*blocks(lambda: ConvBlock(16, norm=False)), after=nn.ReLU())), IMAGES,
    ),
    "tanh resnet": (
        lambda: randomized(stem(*blocks(lambda: ConvBlock(16, torch.tanh, norm=False)), after=nn.Tanh()), 1.5), IMAGES,
    ),
    "residual mlp, layer norm": (
        lambda: nn.Sequential(
            nn.Linear(20, 32), *blocks(lambda: DenseBlock(32, F.gelu, norm=True)), nn.LayerNorm(32), nn.Linear(32, 10)
        ), (16, 6, 20),
    ),
    "residual mlp": (
        lambda: randomized(
            nn.Sequential(nn.Linear(20, 32), *blocks(lambda: DenseBlock(32, F.selu, norm=False)), nn.Linear(32, 10))
        ), VECTORS,
    ),
}  # fmt: skip
