"""Training of many networks as one program against one by one, in CPU seconds of one thread."""

import itertools
import time
from collections.abc import Callable

import numpy as np
import torch
from clock import cpu_seconds
from torch import Tensor, nn
from torch.nn import functional as F

from epoch0.data import load
from epoch0.distributions import Gaussian
from epoch0.networks import ensemble, mlp
from epoch0.prune import apply, keep, snip
from epoch0.seeds import generator
from epoch0.train.loop import train
from epoch0.train.stacked import Stacked

DEPTH, WIDTH = 60, 100
SETTINGS = {"as printed": (100, 784), "batches of the loop's own size": (64, 784), "as in the quick preset": (64, 64)}
"""Batch and pixels. The larger both are, the less there is to save: dense products take most of a step as printed."""

INITS = ((1.0, 0.0), (1.0, 0.0), (1.0, 0.3))
"""sigma_w and sigma_b of Hayou's Figure 3: edge of chaos (with rescaling and without), ordered phase. The first are not
rescaled here, which would change no product."""


def pruned_column(size: int = 100, pixels: int = 784, steps: int = 12, rounds: int = 3) -> dict[str, float]:
    """A column of Hayou's Figure 3: 9 sparsities for 3 initializations, depth 60, width 100, batches of ``size``.

    One by one is the same loop on each pruned network as it is; plain is the shortest loop that torch allows, without
    a look at the losses. They take turns. Of the stack and of each single network the quickest step counts: other work
    on the machine slowed the stack by 30 % when it slowed single networks by 13 %, so a mean would say how busy it was;
    and the stack has three turns a round, as its step is the longest and least often finds the machine quiet.
    """
    x = torch.randn(10 * size, pixels, generator=generator(0))
    y = torch.randint(10, (10 * size,), generator=generator(1))
    nets = _pruned(x[:100], y[:100])
    begun: list[float] = []

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        begun.append(time.process_time())
        return F.cross_entropy(outputs, labels)

    options = {"batch_size": size, "learning_rate": 1e-3, "steps": steps + 2, "loss": loss}

    def together() -> None:
        stack = Stacked.of(nets)
        own = stack.loss(F.cross_entropy)

        def noted(outputs: Tensor, labels: Tensor) -> Tensor:
            begun.append(time.process_time())
            return own(outputs, labels)

        train(stack, (x, y), **{**options, "loss": noted})

    def alone(net: nn.Module) -> None:
        train(net, (x, y), **options)

    def plain(net: nn.Module) -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        for step in range(steps + 2):
            chosen = slice(step % 10 * size, step % 10 * size + size)
            optimizer.zero_grad()
            loss(net(x[chosen]), y[chosen]).backward()
            optimizer.step()

    def quickest(work: Callable[..., None], *given: nn.Module) -> float:
        begun.clear()
        work(*given)
        return min(end - start for start, end in itertools.pairwise(begun[1:]))  # the first step makes room

    found = np.full((3, len(nets)), np.inf)
    for _ in range(rounds):
        for place, net in enumerate(nets):
            if place % 9 == 0:  # so that each of the three ways is watched for about as long
                found[0, 0] = min(found[0, 0], quickest(together))
            for kind, work in ((1, alone), (2, plain)):
                found[kind, place] = min(found[kind, place], quickest(work, net))
    stacked, one_by_one, shortest = found[0, 0], found[1].sum(), found[2].sum()
    flops = 27 * 3 * 2 * size * (WIDTH**2 * (DEPTH - 2) + WIDTH * (2 * pixels / 3 + 10))
    return {
        "stacked_seconds": float(stacked),
        "one_by_one_seconds": float(one_by_one),
        "ratio": float(one_by_one / stacked),
        "plain_ratio": float(shortest / stacked),
        "flops": float(flops / stacked),
    }


def _pruned(x: Tensor, y: Tensor) -> list[nn.Module]:
    nets: list[nn.Module] = []
    for weight_std, bias_std in INITS:

        def net(weight_std: float = weight_std, bias_std: float = bias_std) -> nn.Sequential:
            return mlp(
                [x.shape[1], *[WIDTH] * (DEPTH - 1), 10], "tanh", weights=Gaussian(weight_std),
                biases=Gaussian(bias_std) if bias_std else None, seed=0,
            )  # fmt: skip

        scores = snip(net().double(), [(x.double(), y)])
        nets += [apply(net(), keep(scores, tenths / 10)) for tenths in range(1, 10)]
    return nets


NETWORKS, SIZES = 20, [64, *[32] * 9, 10]


def small_networks(steps: int = 100) -> dict[str, float]:
    """The networks of Price-Tanner's Figure 6 on the digits: one batched program, and a loop over the networks."""
    digits = load("digits")
    data = (torch.from_numpy(digits.inputs("norm")), torch.from_numpy(digits.labels))
    nets = ensemble(NETWORKS, SIZES, seed=0)

    def together() -> None:
        stack = Stacked.of(nets)
        train(stack, data, steps=steps, batch_size=32, optimizer="adam", learning_rate=0.004,
              loss=stack.loss(F.cross_entropy))  # fmt: skip

    def one_by_one() -> None:
        for net in nets:
            train(net, data, steps=steps, batch_size=32, optimizer="adam", learning_rate=0.004)

    ours, theirs = cpu_seconds(together, 3), cpu_seconds(one_by_one, 3)
    return {"stacked_seconds": ours, "one_by_one_seconds": theirs, "ratio": theirs / ours}


def main() -> None:
    """Print both ratios."""
    torch.set_num_threads(1)
    for name, (size, pixels) in SETTINGS.items():
        column = pruned_column(size, pixels)
        print(
            f"a step of 27 pruned networks (depth {DEPTH}, width {WIDTH}; {name}: batch {size}, {pixels} pixels) "
            f"as one program: {1e3 * column['stacked_seconds']:.0f} ms, {column['ratio']:.2f} times faster than "
            f"one by one, {column['plain_ratio']:.2f} times faster than plain loops of torch; "
            f"{column['flops'] / 1e9:.0f} GF/s of dense arithmetic"
        )
    small = small_networks()
    print(f"{NETWORKS} networks of width 32: {small['ratio']:.1f} times faster than one by one")


if __name__ == "__main__":
    main()
