"""Convolutions of a few points at a time against those of all at once."""

import pytest
import torch
from torch import nn

from epoch0.regions._convolution import few_at_a_time


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, 2, groups=2), nn.Conv1d(2, 3, 3),
     nn.Conv2d(2, 3, 5, padding_mode="circular", padding=2)],
    ids=str,
)  # fmt: skip
def test_a_few_points_at_a_time_are_all_points(layer: nn.Module) -> None:
    layer = layer.double()
    points = {"Conv1d": 4000}.get(type(layer).__name__, 150)
    shape = (64,) if isinstance(layer, nn.Conv1d) else (32, 32)
    x = torch.randn(points, layer.in_channels, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    some = few_at_a_time(layer._conv_forward, layer.weight[0, 0].numel())
    with torch.no_grad():
        assert torch.allclose(some(x, layer.weight, layer.bias), layer(x), rtol=1e-12, atol=1e-12)
        assert torch.equal(some(x[:1], layer.weight, layer.bias), layer(x[:1]))
