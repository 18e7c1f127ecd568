"""Convolutions of a few points at a time against torch's, and networks of them with sums of all kinds."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epoch0 import regions
from epoch0.regions.network.trace import trace
from region_twins import line_breaks


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, 2, groups=2), nn.Conv1d(2, 3, 3),
     nn.Conv2d(2, 3, 5, padding_mode="circular", padding=2), nn.Conv2d(2, 3, 3, padding="same"),
     nn.Conv2d(2, 5, (3, 2), (2, 3), (2, 1), (2, 3), bias=False), nn.Conv2d(3, 2, 1), nn.Conv2d(3, 2, 1, 2)],
    ids=str,
)  # fmt: skip
def test_a_few_points_at_a_time_are_all_points(layer: nn.Module) -> None:
    layer = layer.double()
    points = {"Conv1d": 4000}.get(type(layer).__name__, 150)
    shape = (64,) if isinstance(layer, nn.Conv1d) else (32, 32)
    x = torch.randn(points, layer.in_channels, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        program = trace(nn.Sequential(layer), (layer.in_channels, *shape), "cpu")
        assert torch.allclose(program.forward(x), layer(x), rtol=1e-12, atol=1e-12)


class Sum(nn.Module):
    """Sums of all kinds, in place, with shared inputs, and read again."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.relu = kind, nn.ReLU()
        self.first, self.second, self.third = (nn.Conv2d(2, 2, 3, padding=1) for _ in range(3))
        self.norm, self.last = nn.BatchNorm2d(2), nn.Linear(2 * 5 * 5, 3)
        nn.init.uniform_(self.norm.running_mean, -0.2, 0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(x))
        h = self.second(self.relu(self.third(x)))
        if self.kind == "plain":
            h = h + x
        elif self.kind == "normed, other order":
            h = x + self.norm(h)
        elif self.kind == "in place":
            h += x
        elif self.kind == "two layers":
            h = h + self.third(x)
        elif self.kind == "read twice":
            h = h + x + h
        elif self.kind == "of its own input":
            h = self.second(x) + x
        elif self.kind == "broadcast":
            h = h + x.mean((2, 3), keepdim=True)
        elif self.kind == "scaled":
            h = torch.add(h, x, alpha=2.0)
        else:  # a fold between the layer and the sum
            h = h + self.relu(x - 0.3)
        return self.last(self.relu(h).flatten(1))


KINDS = [
    "plain", "normed, other order", "in place", "two layers", "read twice", "of its own input", "broadcast", "scaled",
    "fold between",
]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_every_kind(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Sum(kind).double().eval()
    x0, x1 = 2 * torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    program, x = trace(net, (2, 5, 5), "cpu"), torch.stack([x0, x1])
    with torch.no_grad():
        assert torch.allclose(program.forward(x), net(x), rtol=1e-12, atol=1e-12)
    line = regions.on_line(net, x0, x1)
    assert line.count > 20 and line.certificate.holds
    assert np.allclose(line.breakpoints, line_breaks(net, x0, x1, 4001), atol=1e-10)
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 60_000)
    pieces = regions.on_line(net, x0, x1)
    assert line.owner == pieces.owner and (abs(line.breakpoints - pieces.breakpoints) < 1e-12).all()
