"""Models of every kind and a line for each, for the tests of trajectory length."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import epoch0 as e0
from epoch0.seeds import generator
from epoch0.tracing.tape import tape

DOUBLE = torch.float64


def he(model: nn.Module) -> nn.Module:
    """Weights of variance 2 / fan-in, so that curves neither die nor explode."""
    source = generator(8)
    with torch.no_grad():
        for p in model.parameters():
            # matrices like He; vectors are biases, or the slopes of a batch norm
            p.normal_(0, math.sqrt(2 / p[0].numel()) if p.dim() > 1 else 0.5, generator=source)
    return model.to(DOUBLE)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 30), nn.Linear(30, 30)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(torch.tanh(self.first(x))))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)
        self.norm, self.relu = nn.BatchNorm2d(2), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm(self.conv1(x)))
        return self.relu(x + self.conv2(out))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(12, 12), nn.Hardtanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.layer(self.act(self.layer(x))))


def dense(activation: str) -> nn.Module:
    sizes, biases = [12, 40, 30, 20], e0.Gaussian(0.3)
    return e0.networks.mlp(sizes, activation, biases=biases, seed=4, dtype=DOUBLE, linear_output=False)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 9), nn.GELU(),
    )  # fmt: skip


DENSE = ("relu", "tanh", "hardtanh", "leaky_relu", "erf", "silu")
MODELS = {
    **{name: (lambda name=name: dense(name), (12,)) for name in DENSE},
    "convolutional": (lambda: he(convolutional()), (2, 6, 6)),
    "residual": (lambda: he(Residual()), (2, 6, 6)),
    "functional": (lambda: he(Functional()), (12,)),
    "used twice": (lambda: he(Twice()), (12,)),
}


def line(shape: tuple[int, ...], seed: int = 0, dtype: torch.dtype = DOUBLE) -> e0.Line:
    x0, x1 = torch.randn(2, *shape, generator=generator(seed), dtype=dtype)
    return e0.Line(x0, x1)


def chord_lengths(
    model: nn.Module, curve: e0.curves.Curve, points: int, layers: Sequence[str] | None = None, batch_norm: str = "eval"
) -> NDArray[np.float64]:
    """The twin: sums of distances between neighbouring points at the input and each layer; no tangent is carried."""
    x = curve.point(torch.linspace(0, 1, points + 1, dtype=DOUBLE))
    with tape(model, x[:2], batch_norm=batch_norm) as record, torch.no_grad():
        seen = record.values(x.to(record.x), [0, *(tap.node for tap in record.taps(layers))])
        return np.array([float(z.flatten(1).diff(dim=0).norm(dim=1).sum()) for z in seen])
