"""Masks: the threshold over 25 million scores, the paths of a deep network, and sparse layers against dense ones."""


import numpy as np
import torch
from clock import cpu_seconds, peak_bytes
from torch import nn

from epoch0.networks import mlp
from epoch0.prune._csr import CsrConv, CsrLinear
from epoch0.prune._keep import keep
from epoch0.prune._paths import on_paths
from epoch0.prune.baselines import random
from epoch0.seeds import generator

DENSITIES = (0.02, 0.05, 0.10)


def threshold(millions: int = 25) -> dict[str, float]:
    """``keep`` of so many float32 scores in ten layers; memory beyond the scores, and numpy's partition of a copy."""
    scores = {f"w{i}": torch.rand(millions * 50, 2000, generator=generator(0, i)) for i in range(10)}
    keep({"w": torch.rand(100, generator=generator(1))}, 0.5)
    before = peak_bytes()
    ours = cpu_seconds(lambda: keep(scores, 0.98), 3)
    grown = peak_bytes() - before

    def partition() -> None:
        flat = np.concatenate([tensor.numpy().ravel() for tensor in scores.values()])
        least = np.partition(flat, round(0.98 * len(flat)))[round(0.98 * len(flat))]
        for tensor in scores.values():
            tensor >= least  # noqa: B015 - the masks, as ours makes them

    return {"seconds": ours, "grown_megabytes": grown / 1e6, "numpy_seconds": cpu_seconds(partition)}


def paths(depth: int = 100, width: int = 300) -> dict[str, float]:
    """The effective sparsity of a deep network, as a ratio to a forward and backward pass of 128 examples."""
    net, x = mlp([width] * (depth + 1), "tanh"), torch.randn(128, width, generator=generator(2))
    masks = keep(random(net), 0.9)
    on_paths(net, masks, (width,))
    ours = cpu_seconds(lambda: on_paths(net, masks, (width,)), 3)
    plain = cpu_seconds(lambda: net(x).sum().backward(), 3)
    return {"seconds": ours, "pass_seconds": plain, "ratio": ours / plain}


def linear(size: int, density: float, batch: int) -> float:
    """How many times as fast a sparse ``Linear(size, size)`` is."""
    layer, source = nn.Linear(size, size), generator(3)
    with torch.no_grad():
        layer.weight.mul_(torch.rand(size, size, generator=source) < density)
        ours, x = CsrLinear(layer), torch.randn(batch, size, generator=source)
        return _times_as_fast(layer, ours, x)


def convolution(channels: int, size: int, density: float, batch: int) -> float:
    """How many times as fast a sparse 3 x 3 convolution is, the better one of its two ways."""
    layer, source = nn.Conv2d(channels, channels, 3, padding=1), generator(4)
    with torch.no_grad():
        layer.weight.mul_(torch.rand(layer.weight.shape, generator=source) < density)
        x = torch.randn(batch, channels, size, size, generator=source)
        return max(_times_as_fast(layer, CsrConv(layer, together), x) for together in (False, True))


def _times_as_fast(dense: nn.Module, sparse: nn.Module, x: torch.Tensor) -> float:
    once = cpu_seconds(lambda: dense(x), 2)
    calls = max(1, int(0.02 / max(once, 1e-6)))

    def repeat(layer: nn.Module) -> None:
        for _ in range(calls):
            layer(x)

    return cpu_seconds(lambda: repeat(dense), 5) / cpu_seconds(lambda: repeat(sparse), 5)


def main() -> None:
    """Print all of them."""
    torch.set_num_threads(1)
    found = threshold()
    print(
        f"keep: threshold and masks of 25 million scores: {found['seconds']:.2f} CPU s (at most 1), "
        f"{found['grown_megabytes']:.0f} MB beyond the scores (the masks are 25, a copy of the scores is 100); "
        f"numpy's partition of a copy {found['numpy_seconds']:.2f} CPU s"
    )
    deep = paths()
    print(
        f"effective sparsity, tanh 100 x 300 wide: {deep['seconds']:.2f} CPU s, {deep['ratio']:.2f} of a forward and "
        "backward pass of 128 examples"
    )
    for size in (256, 512, 1024, 2048):
        for batch in (1, 32, 128):
            speeds = ", ".join(f"{linear(size, d, batch):.1f} at {d:.0%}" for d in DENSITIES)
            print(f"sparse Linear {size} x {size}, batch {batch}: times as fast as dense {speeds}")
    for channels, size in ((64, 16), (128, 8), (512, 4)):
        for batch in (1, 32):
            speeds = ", ".join(f"{convolution(channels, size, d, batch):.2f} at {d:.0%}" for d in DENSITIES)
            print(f"sparse 3x3 convolution, {channels} channels, {size} x {size}, batch {batch}: {speeds}")


if __name__ == "__main__":
    main()
