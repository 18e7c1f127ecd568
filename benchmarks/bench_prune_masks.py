"""Masks: the threshold over 25 million scores, and the paths of a deep network."""

import numpy as np
import torch
from clock import cpu_seconds, peak_bytes

from epoch0.networks import mlp
from epoch0.prune.effects.paths import on_paths
from epoch0.prune.masks.masks import keep
from epoch0.prune.scores.scores import random
from epoch0.seeds import generator


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


if __name__ == "__main__":
    main()
