"""Values of a dense layer at new points: added up from bends they are those of a product, and so are the regions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from epoch0 import regions
from epoch0.regions import walk


def dense(activation: nn.Module, inputs: int, width: int = 24) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(inputs, width), activation, nn.Linear(width, width), activation]
    net = nn.Sequential(*layers, nn.Linear(width, width), activation, nn.Linear(width, 2)).double()
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=1.6 * layer.in_features**-0.5)
            nn.init.normal_(layer.bias, std=0.3)
    return net


ACTIVATIONS = [nn.ReLU(), nn.Hardtanh(-0.5, 0.7), nn.PReLU(24).double(), nn.LeakyReLU(-0.2)]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: type(a).__name__)
def test_regions_from_bends_are_those_from_products(activation: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(activation, nn.PReLU):
        nn.init.uniform_(activation.weight, -0.5, 0.9)
    net = dense(activation, 6)
    x0, x1, other = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    window = regions.through(x0[0], x1[0], other[0])
    found: dict[float, tuple[Any, Any]] = {}
    for price in (1e-9, math.inf):  # hats for every cut, and for none
        monkeypatch.setattr(walk, "_HAT", price)
        found[price] = regions.on_line(net, x0, x1), regions.on_plane(net, window)
    (lines, plane), (line_twins, plane_twin) = found.values()
    for line, twin in zip(lines, line_twins, strict=True):
        assert line.owner == twin.owner and len(line.breakpoints) > 10
        assert np.allclose(line.breakpoints, twin.breakpoints, rtol=0, atol=1e-12)
    assert plane.count == plane_twin.count > 100 and plane.per_layer == plane_twin.per_layer
    assert plane.certificate.holds and plane_twin.certificate.holds
    assert np.allclose(np.sort(plane.areas), np.sort(plane_twin.areas), rtol=0, atol=1e-10 * plane.areas.sum())


def test_bends_cost_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[str, int] = {}

    def counted(step: walk.Affine, inputs: Any, *rest: Any, apply: Any = walk._apply) -> Any:
        rows[step.name] = rows.get(step.name, 0) + len(inputs[0])
        return apply(step, inputs, *rest)

    monkeypatch.setattr(walk, "_apply", counted)
    net, (x0, x1) = dense(nn.ReLU(), 6, 200), torch.randn(2, 6, generator=torch.Generator().manual_seed(1)).double() * 3
    line = regions.on_line(net, x0, x1)
    first, second, _ = line.per_layer
    assert rows["0"] == 2 and rows["2"] == first + 1  # a hundred break points of one segment cost as much as a product
    assert rows["4"] == first + 1 < second  # those of short segments do not


@pytest.mark.parametrize("at", ["one line", "a vertex"])
def test_where_bends_are_not_all_known_there_are_products(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, areas = dense(nn.ReLU(), 2), []
    with torch.no_grad():
        if at == "one line":  # neurons that are zero on the same line: the mesh keeps one of them
            net[0].weight[1], net[0].bias[1] = -2 * net[0].weight[0], -2 * net[0].bias[0]
        else:  # neurons that are all zero in one point
            net[0].bias.zero_()
    window = regions.square(torch.zeros(2), torch.eye(2)[0], torch.eye(2)[1], 3.0)
    for price in (1e-9, math.inf):
        monkeypatch.setattr(walk, "_HAT", price)
        plane = regions.on_plane(net, window)
        assert plane.certificate.holds and plane.verify().holds
        areas.append(np.sort(plane.areas))
    assert len(areas[0]) == len(areas[1]) > 50 and np.allclose(*areas, rtol=0, atol=1e-10)
