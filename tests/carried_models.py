"""Networks whose layers are correlated, for what is carried through them, in float64."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """relu(x + F(x)) with batch norm, or x + F(x); the last gamma may start at zero."""

    def __init__(self, channels: int, *, zero: bool = False, after: bool = True) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2, self.after = nn.BatchNorm2d(channels), after
        if zero:
            nn.init.zeros_(self.norm2.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = x + self.norm2(self.second(torch.relu(self.norm1(self.first(x)))))
        return torch.relu(h) if self.after else h


class DenseBlock(nn.Module):
    """The input beside what two convolutions make of all that came before."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, growth, 3, padding=1)
        self.two = nn.Conv2d(channels + growth, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([x, torch.relu(self.one(x))], 1)
        return torch.cat([h, torch.relu(self.two(h))], 1)


class Recurrent(nn.Module):
    """One layer used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(12, 12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.inner(x))
        return self.head(x)


class Tokens(nn.Module):
    """A language model whose embedding is its head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(9, 12), nn.LayerNorm(12)
        self.up, self.down, self.head = nn.Linear(12, 20), nn.Linear(20, 12), nn.Linear(12, 9, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embedding(ids)
        h = h + self.down(F.gelu(self.up(self.norm(h))))
        return self.head(h)


def residual(*, zero: bool, after: bool = True) -> nn.Module:
    blocks = [ResidualBlock(6, zero=zero, after=after) for _ in range(3)]
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)
    )


def dense() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), DenseBlock(4, 3), DenseBlock(10, 3), nn.Flatten(), nn.Linear(400, 4)
    )


def normed() -> nn.Module:
    layers = [[nn.Linear(12, 12), nn.BatchNorm1d(12), nn.ReLU()] for _ in range(3)]
    return nn.Sequential(*[module for layer in layers for module in layer], nn.Linear(12, 4))
