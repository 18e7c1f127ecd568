"""Networks that are one function, neurons in another order and scale: one partition, one distance, other names."""

import copy
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epoch0 import regions
from region_twins import convolutional, recipe

Array = np.ndarray


class Residual(nn.Module):
    """Two residual blocks; neurons of a branch may change places and scales, those of the stream may not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 6)
        self.into = nn.ModuleList([nn.Linear(6, 8), nn.Linear(6, 8)])
        self.out = nn.ModuleList([nn.Linear(8, 6), nn.Linear(8, 6)])
        self.last = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.first(x)
        for into, out in zip(self.into, self.out, strict=True):
            h = h + out(torch.relu(into(h)))
        found: Tensor = self.last(h)
        return found


def pairs(net: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """Layers that make neurons, each with the layer that alone reads them."""
    if isinstance(net, Residual):
        return list(zip(net.into, net.out, strict=True))
    linear = [m for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    return list(itertools.pairwise(linear))


def changed(net: nn.Module, seed: int) -> tuple[nn.Module, list[Array]]:
    """A copy whose neurons (channels) stand in another order and at another scale, and the orders."""
    net, source, orders = copy.deepcopy(net), np.random.Generator(np.random.PCG64(seed)), []
    with torch.no_grad():
        for made, read in pairs(net):
            count = len(made.weight)
            order, scale = source.permutation(count), torch.from_numpy(np.exp(source.uniform(-3, 3, count)))
            rows = (-1, *[1] * (made.weight.dim() - 1))
            made.weight.copy_((made.weight * scale.view(rows))[order])
            made.bias.copy_((made.bias * scale)[order])
            columns = (1, -1, *[1] * (read.weight.dim() - 2))
            read.weight.copy_((read.weight / scale.view(columns))[:, order])
            orders.append(order)
    return net, orders


def made(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(1)
    known: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
        "dense": lambda: (recipe([3, 10, 10, 10, 2], 0.4), (3,)),
        "residual": lambda: (Residual().double(), (3,)),
        "convolutional": lambda: (convolutional().double(), (1, 6, 6)),
    }
    return known[name]()


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["dense", "residual", "convolutional"])
def test_the_partition_of_a_plane_stays(name: str, seed: int) -> None:
    net, shape = made(name)
    other, orders = changed(net, seed)
    x = torch.randn(20, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(net(x), other(x), rtol=1e-10, atol=1e-10)
    window = regions.through(*(3.0 * x[:3]))
    one, two = (regions.on_plane(each, window) for each in (net, other))
    assert one.count == two.count > 20 and one.linear_count == two.linear_count
    np.testing.assert_allclose(np.sort(one.areas), np.sort(two.areas), rtol=1e-7, atol=1e-10 * one.areas.sum())
    corners = [each.vertices[np.lexsort(each.vertices.round(6).T)] for each in (one, two)]
    np.testing.assert_allclose(*corners, rtol=1e-7, atol=1e-7)
    # every edge has the same owner, by its new name
    middles = [each.vertices[each.edges].mean(axis=1) for each in (one, two)]
    nearest = np.linalg.norm(middles[0][:, None] - middles[1][None], axis=2).argmin(axis=1)
    inner = one.owner_layer >= 0
    assert (one.owner_layer == two.owner_layer[nearest]).all() and sorted(nearest) == list(range(len(nearest)))
    for layer, order in enumerate(orders):
        mine = inner & (one.owner_layer == layer)
        places = len(order) if name != "convolutional" else 9 * len(order)  # both layers are 3 x 3
        of = np.argsort(order)[one.owner_neuron[mine] // (places // len(order))]
        assert (two.owner_neuron[nearest[mine]] // (places // len(order)) == of).all()


@pytest.mark.parametrize("name", ["dense", "residual", "convolutional"])
def test_break_points_and_distances_stay(name: str) -> None:
    net, shape = made(name)
    other, _ = changed(net, 5)
    x = torch.randn(30, *shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    one, two = (regions.distance(each, x) for each in (net, other))
    np.testing.assert_allclose(one.distance, two.distance, rtol=1e-9)
    assert (one.owner_layer == two.owner_layer).all()
    first, second = (regions.on_line(each, x[:10], x[10:20], kind="line") for each in (net, other))
    for line, same in zip(first, second, strict=True):
        np.testing.assert_allclose(line.breakpoints, same.breakpoints, rtol=1e-8, atol=1e-9)
        assert (line.owner_layer == same.owner_layer).all() and line.linear_count == same.linear_count
