"""Exact regions: counts and CPU seconds of one thread on the reference networks, and our ratio to the bare products."""

import itertools

import numpy as np
import torch
from clock import cpu_seconds, peak_bytes
from torch import Tensor, nn

from epoch0 import regions


def network(widths: list[int], bias_std: float, seed: int = 0) -> nn.Sequential:
    """The random network of the reference counts, in float64."""
    source = np.random.Generator(np.random.PCG64(seed))
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        linear = nn.Linear(fan_in, fan_out, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(source.standard_normal((fan_out, fan_in)) * (2 / fan_in) ** 0.5))
            linear.bias.copy_(torch.from_numpy(source.standard_normal(fan_out) * bias_std))
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lines() -> tuple[Tensor, Tensor]:
    """100 random segments in 784 dimensions."""
    ends = np.random.Generator(np.random.PCG64(1)).standard_normal((100, 2, 784))
    return torch.from_numpy(ends[:, 0].copy()), torch.from_numpy(ends[:, 1].copy())


def plane(inputs: int) -> Tensor:
    """The reference square: of half width 1 in two dimensions, of half width 28 in 784."""
    if inputs == 2:
        return regions.square(torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 1.0)
    source = np.random.Generator(np.random.PCG64(2))
    centre, (u, v) = source.standard_normal(inputs), source.standard_normal((2, inputs))
    return regions.square(torch.from_numpy(centre), torch.from_numpy(u), torch.from_numpy(v), 28.0)


def floor(rows: list[int], widths: list[int]) -> float:
    """CPU seconds of the matrix products alone: rows points into each layer."""
    weights = [torch.randn(b, a, dtype=torch.float64) for a, b in itertools.pairwise(widths)]
    inputs = [torch.randn(n, w.shape[1], dtype=torch.float64) for n, w in zip(rows, weights, strict=False)]

    def products() -> None:
        for points, weight in zip(inputs, weights, strict=False):
            for part in points.split(4096):
                part @ weight.T

    return cpu_seconds(products, 2)


def reference_lines() -> dict[str, float]:
    """L1: 100 lines through 784-256-256-256-256-10."""
    widths = [784, 256, 256, 256, 256, 10]
    net, (x0, x1) = network(widths, 1e-3), lines()
    found = regions.on_line(net, x0, x1)
    assert isinstance(found, regions.LinePartitions)
    seconds = cpu_seconds(lambda: regions.on_line(net, x0, x1), 3)
    rows = [200, *(sum(line.per_layer[i] + 1 for line in found) for i in range(3))]
    return {"count": found.count, "seconds": seconds, "ratio_to_products": seconds / floor(rows, widths)}


def reference_plane(widths: list[int], times: int = 3) -> dict[str, float]:
    """P0 to P3: a square cut by one network, with geometry and by counting only."""
    net, window = network(widths, 0.1), plane(widths[0])
    found = regions.on_plane(net, window)
    made = np.full(len(found.vertices), -1)  # the layer that made each vertex
    np.maximum.at(made, found.edges.ravel(), np.repeat(found.owner_layer, 2))
    vertices = [int((made < i).sum()) for i in range(len(widths) - 2)]
    with_geometry = cpu_seconds(lambda: regions.on_plane(net, window), times)
    products = floor(vertices, widths)
    return {
        "count": found.count, "counted": float(regions.count(net, window)), "seconds": with_geometry,
        "count_only_seconds": cpu_seconds(lambda: regions.count(net, window), times),
        "ratio_to_products": with_geometry / products if products > 1e-3 else float("nan"),
        "cells_per_second": found.count / with_geometry,
    }  # fmt: skip


def small_resnet(channels: int = 4, blocks: int = 3) -> nn.Module:
    """A ResNet-20 of a quarter of the usual width, for images of 32 x 32."""

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

    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, 1, 1), nn.BatchNorm2d(channels), nn.ReLU()]
    width = channels
    for stage in range(3):
        for block in range(blocks):
            layers.append(Block(width, channels << stage, 2 if stage and not block else 1))
            width = channels << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)).eval()


def he_weights(net: nn.Module) -> nn.Module:
    """He's weights for every convolution: about every other neuron makes a break point."""
    torch.manual_seed(0)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
            nn.init.zeros_(module.bias)
    return net


def floor_of_convolutions(net: nn.Module, line: regions.LinePartition) -> float:
    """CPU seconds of the convolutions of one line as bare products of unfolded blocks that lie in the cache.

    Of torch and numpy, each with a library of its own, the quicker one counts.
    """
    rows, work = [2], []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if isinstance(module, nn.ReLU):
            rows.append(line.per_layer[len(rows) - 1] + 1)
        else:
            work.append((rows[-1], module.weight.detach().double().flatten(1), output[0, 0].numel()))

    hooks = [m.register_forward_hook(note) for m in net.modules() if isinstance(m, nn.Conv2d | nn.ReLU)]
    with torch.no_grad():
        net(torch.zeros(1, *line.corners.shape[1:], dtype=next(net.parameters()).dtype))
    for hook in hooks:
        hook.remove()
    total = 0.0
    for points, weight, places in work:
        some = max(1, (1 << 17) // (weight.shape[1] * places))  # points whose unfolded input is a megabyte
        unfolded, times = torch.randn(weight.shape[1], places * some, dtype=torch.float64), 10
        found = torch.empty(len(weight), places * some, dtype=torch.float64)
        one, two, three = weight.numpy(), unfolded.numpy(), found.numpy()
        by_torch = cpu_seconds(lambda: [torch.mm(weight, unfolded, out=found) for _ in range(times)], 3)  # noqa: B023
        by_numpy = cpu_seconds(lambda: [np.matmul(one, two, out=three) for _ in range(times)], 3)  # noqa: B023
        total += points / (times * some) * min(by_torch, by_numpy)
    return total


def residual_lines(count: int = 1, channels: int = 4) -> dict[str, float]:
    """Lines between random images through a ResNet-20, a quarter of the usual width or all of it."""
    net = he_weights(small_resnet(channels))
    x0, x1 = torch.randn(2, count, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found: list[regions.LinePartitions] = []
    seconds = cpu_seconds(lambda: found.append(regions.on_line(net, x0, x1)))  # type: ignore[arg-type]
    products = sum(floor_of_convolutions(net, line) for line in found[0])
    return {
        "count": found[0].count / count, "seconds_a_line": seconds / count, "megabytes": _megabytes(),
        "products_a_line": products / count, "ratio_to_products": seconds / products,
    }  # fmt: skip


def _megabytes() -> float:
    """Largest memory of the process so far."""
    return peak_bytes() / 2**20


def measure() -> dict[str, dict[str, float]]:
    """All of it."""
    torch.set_num_threads(1)
    return {
        "L1": reference_lines(),
        "P0": reference_plane([2, 16, 16, 1]),
        "P1": reference_plane([2, 64, 64, 64, 1]),
        "P3": reference_plane([784, 64, 64, 64, 10]),
        "P2": reference_plane([2, 256, 256, 256, 1], 2),
        "ResNet": residual_lines(),
    }


def main() -> None:
    """Print one line a task."""
    for name, numbers in measure().items():
        print(name, *(f"{key} {value:.4g}" for key, value in numbers.items()), sep="  ", flush=True)
