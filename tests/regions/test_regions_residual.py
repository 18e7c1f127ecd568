"""A line through a small ResNet against dense sampling: no sign change is missed, none is made up."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epoch0 import regions
from region_twins import Recorder


class Block(nn.Module):
    def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(fan_in, fan_out, 3, stride, 1), nn.Conv2d(fan_out, fan_out, 3, 1, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(fan_out), nn.BatchNorm2d(fan_out)])
        self.short = nn.Conv2d(fan_in, fan_out, 1, stride) if stride > 1 else nn.Identity()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        h = self.norms[1](self.second(self.relu(self.norms[0](self.first(x)))))
        return self.relu(h + self.short(x))


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 2, 3, 1, 1), nn.BatchNorm2d(2), nn.ReLU(), Block(2, 2, 1), Block(2, 4, 2), Block(4, 8, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    ).double()  # fmt: skip
    for _ in range(5):
        net(torch.randn(32, 3, 12, 12, dtype=torch.float64))
    return net.eval()


def ends(lines: int = 2) -> Tensor:
    return torch.randn(2, lines, 3, 12, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def signs(record: Recorder, points: Tensor) -> np.ndarray:
    """Which neurons are above zero at every point, in the order of the calls."""
    return torch.cat([z.flatten(1) > 0 for _, z in record(points)], 1).numpy()


@pytest.mark.slow
def test_every_sign_at_every_sample_follows_from_the_break_points(resnet: nn.Module) -> None:
    record = Recorder(resnet)
    x0, x1 = ends()
    for line in regions.on_line(resnet, x0, x1):
        sizes = [z[0].numel() for _, z in record(line.corners[:1])]
        first = np.concatenate([[0], np.cumsum(sizes)])
        column = first[line.owner_layer] + line.owner_neuron
        t = np.linspace(0, 1, 4001)
        t = t[np.abs(t[:, None] - line.breakpoints).min(axis=1) > 1e-9]
        found = signs(record, line.point(t))
        flips = np.zeros_like(found, dtype=np.int64)
        inner = line.breakpoints < t[-1]
        np.add.at(flips, (np.searchsorted(t, line.breakpoints[inner]), column[inner]), 1)
        expected = found[0] ^ (np.cumsum(flips, axis=0) - flips[0]) % 2 == 1
        assert np.array_equal(found, expected.astype(bool))
        assert line.count > 500 and line.certificate.holds


def test_break_points_are_zeros_of_their_owner_where_its_sign_changes(resnet: nn.Module) -> None:
    record = Recorder(resnet)
    x0, x1 = ends()
    line = regions.on_line(resnet, x0[0], x1[0])
    gaps = np.diff(np.concatenate([[0], line.breakpoints, [1]]))
    step = 0.5 * np.minimum(gaps[1:], gaps[:-1])
    layers = [z.flatten(1) for _, z in record(line.point(line.breakpoints))]
    before, after = (
        [z.flatten(1) for _, z in record(line.point(line.breakpoints + side * step))] for side in (-1.0, 1.0)
    )
    for i, (layer, neuron) in enumerate(zip(line.owner_layer, line.owner_neuron, strict=True)):
        scale = float(layers[layer][i].abs().max())
        assert abs(float(layers[layer][i, neuron])) < 1e-11 * scale
        assert float(before[layer][i, neuron]) * float(after[layer][i, neuron]) < 0


@pytest.mark.slow
def test_pieces_of_a_residual_line_are_the_whole(resnet: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    x0, x1 = ends()
    whole = regions.on_line(resnet, x0, x1)
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 300_000)
    for one, other in zip(whole, regions.on_line(resnet, x0, x1), strict=True):
        assert np.allclose(one.breakpoints, other.breakpoints, rtol=0, atol=1e-13) and one.owner == other.owner
        assert one.per_layer == other.per_layer and other.certificate.holds
