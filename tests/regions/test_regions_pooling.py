"""Max pooling on planes: polygons as clipping has them, patterns as samples have them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from epoch0 import regions
from region_twins import area, plane_cells


def pooled(channels: list[int], size: int, hidden: int, seed: int, pool_first: bool = False) -> nn.Sequential:
    """Like VGG: convolutions with ReLUs, a max pool after each, and two dense layers; inputs (1, size, size)."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip([1, *channels], channels, strict=False):
        pair = [nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1), *(pair[::-1] if pool_first else pair)]
        size //= 2
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * size * size, hidden), nn.ReLU(),
                        nn.Linear(hidden, 3)).double()  # fmt: skip
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.normal_(layer.bias, std=0.2)
    return net.eval()


def window_of(size: int, seed: int, half: float) -> torch.Tensor:
    centre, u, v = torch.randn(3, 1, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return regions.square(0.3 * centre, u, v, half)


def corner_count(polygon: np.ndarray) -> int:
    """Corners of a polygon but for those in the middle of a straight side."""
    before, after = polygon - np.roll(polygon, 1, axis=0), np.roll(polygon, -1, axis=0) - polygon
    turn = before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]
    length = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    return int((np.abs(turn) > 1e-7 * length + 1e-13).sum())


def described(polygons: list[np.ndarray]) -> np.ndarray:
    """Area, centre and corners of each polygon, sorted by area."""
    rows = [(area(polygon), corner_count(polygon)) for polygon in polygons]
    return np.array(sorted(rows))


@pytest.mark.slow
@settings(max_examples=10)
@given(channels=st.sampled_from([[1], [2], [1, 2]]), hidden=st.integers(2, 5), seed=st.integers(0, 500))
def test_polygons_are_those_of_clipping(channels, hidden, seed) -> None:
    net = pooled(channels, 4, hidden, seed, pool_first=True)  # where windows of zeros are level clipping cannot follow
    p = regions.on_plane(net, window_of(4, seed, 3.0))
    assert p.certificate.holds and p.certificate.euler == 1 and p.verify().distinct
    assert p.cell_ends[-1] == 2 * len(p.edges) - (p.owner_layer < 0).sum()
    ours = described([p.cell(i) for i in range(p.count)])
    theirs = described(plane_cells(net, p.window.origin, p.window.axes, p.window.polygon.numpy()))
    assert ours.shape == theirs.shape and np.allclose(ours[:, 0], theirs[:, 0], rtol=1e-7, atol=1e-9)
    large = ours[:, 0] > 1e-6
    assert sorted(ours[large, 1]) == sorted(theirs[large, 1])


def sampled(net: nn.Module, p: regions.PlanePartition, points: np.ndarray) -> np.ndarray:
    """Patterns at points of the plane: what every unit and pooling window does, by hooks."""
    found: list[torch.Tensor] = []

    def note(module: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        if isinstance(module, nn.ReLU):
            found.append((output > 0).flatten(1))
        else:
            parts = inputs[0].unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
            top = (parts == parts.amax(dim=-1, keepdim=True)) & (parts > 0)  # zeros are level, none of them is on top
            found.append(top.flatten(1))

    handles = [m.register_forward_hook(note) for m in net.modules() if isinstance(m, nn.ReLU | nn.MaxPool2d)]
    with torch.no_grad():
        net(p.window.points(torch.from_numpy(points)))
    for handle in handles:
        handle.remove()
    return np.packbits(torch.cat(found, 1).numpy(), axis=1)


def cells_at(p: regions.PlanePartition, points: np.ndarray) -> np.ndarray:
    """The cell of every point, by the signs of its sides, one cell after another; -1 within 1e-9 of a side.

    Args:
        p: the cells.
        points: sorted by their second coordinate.
    """
    found = np.full(len(points), -1)
    for index in range(p.count):
        polygon = p.cell(index)
        low, high = polygon.min(axis=0), polygon.max(axis=0)
        first, last = np.searchsorted(points[:, 1], [low[1], high[1]])
        near = first + np.flatnonzero((points[first:last, 0] >= low[0]) & (points[first:last, 0] <= high[0]))
        side = np.roll(polygon, -1, axis=0) - polygon
        away = points[near][:, None] - polygon
        inside = (side[:, 0] * away[:, :, 1] - side[:, 1] * away[:, :, 0]) > 1e-9 * np.linalg.norm(side, axis=1)
        found[near[inside.all(axis=1)]] = index
    return found


def agrees_with_samples(net: nn.Module, window: torch.Tensor, number: int) -> tuple[int, int, int]:
    """Cells, distinct sampled patterns, and cells that hold no sample though they are larger than four grid squares.

    Raises:
        AssertionError: if samples in one cell differ, or samples in two cells agree.
    """
    p = regions.on_plane(net, window)
    polygon = p.window.polygon.numpy()
    low, high = polygon.min(axis=0), polygon.max(axis=0)
    axes = [np.linspace(a, b, number + 1)[:-1] + 0.5 * (b - a) / number for a, b in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    cells, seen = cells_at(p, points), sampled(net, p, points)
    inside = cells >= 0
    cells, seen = cells[inside], seen[inside]
    _, label = np.unique(seen, axis=0, return_inverse=True)
    pairs = np.unique(np.stack([cells, label.reshape(-1)]), axis=1)
    assert inside.mean() > 0.999
    assert pairs.shape[1] == len(np.unique(cells)), "samples in one cell differ"
    assert pairs.shape[1] == len(np.unique(label)), "samples in two cells agree"
    step = (high - low) / number
    hit = np.zeros(p.count, dtype=bool)
    hit[cells] = True
    round_enough = np.array([area(p.cell(i)) > 2 * step.max() * np.linalg.norm(np.ptp(p.cell(i), axis=0))
                             for i in range(p.count)])  # fmt: skip
    return p.count, len(np.unique(label)), int((round_enough & ~hit).sum())


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_dense_samples_fall_into_the_cells_they_should(seed: int) -> None:
    net = pooled([2, 3], 8, 6, seed)
    count, distinct, missed = agrees_with_samples(net, window_of(8, seed, 5.0), 110)
    assert 50 < distinct <= count and missed == 0


@pytest.mark.slow
def test_many_samples_of_a_larger_network() -> None:
    net = pooled([2, 4, 4], 8, 12, 0)
    count, distinct, missed = agrees_with_samples(net, window_of(8, 0, 3.0), 600)
    assert 5000 < distinct <= count and missed == 0
