"""Training of many networks as one program against one by one, in CPU seconds of one thread."""

import time
from collections.abc import Callable

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
from epoch0.train.many import train_many
from epoch0.train.stacked import Stacked

DEPTH, WIDTH, BATCH, PIXELS = 60, 100, 100, 784
INITS = ((1.0, 0.0), (1.0, 0.0), (1.0, 0.3))
"""sigma_w and sigma_b of Hayou's Figure 3: edge of chaos (with rescaling and without), ordered phase."""

LIMIT = 4.0
"""How many times faster the stack is asked to be."""


def pruned_column(steps: int = 10, rounds: int = 3) -> dict[str, float]:
    """A column of Hayou's Figure 3: 9 sparsities for 3 initializations, depth 60, width 100, batch 100.

    One by one is the same loop on each pruned network as it is; plain is the shortest loop that torch allows, without
    a look at the losses. They take turns, and the least of each counts: other work on the machine adds to all.
    """
    x = torch.randn(1000, PIXELS, generator=generator(0))
    y = torch.randint(10, (1000,), generator=generator(1))
    nets = _pruned(x[:100], y[:100])
    options = {"batch_size": BATCH, "learning_rate": 1e-3}

    def together(count: int) -> None:
        train_many(nets, (x, y), steps=count, **options)

    def one_by_one(count: int) -> None:
        for net in nets:
            train(net, (x, y), steps=count, **options)

    def plain(count: int) -> None:
        for net in nets:
            optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
            for step in range(count):
                chosen = slice(step % 10 * BATCH, step % 10 * BATCH + BATCH)
                optimizer.zero_grad()
                F.cross_entropy(net(x[chosen]), y[chosen]).backward()
                optimizer.step()

    together(1)
    best = {"stacked": float("inf"), "one_by_one": float("inf"), "plain": float("inf")}
    for _ in range(rounds):
        for name, work in (("stacked", together), ("one_by_one", one_by_one), ("plain", plain)):
            best[name] = min(best[name], _per_step(work, steps))
    flops = 27 * 3 * 2 * BATCH * (WIDTH**2 * (DEPTH - 2) + WIDTH * (2 * PIXELS / 3 + 10))
    return {
        "stacked_seconds": best["stacked"],
        "one_by_one_seconds": best["one_by_one"],
        "ratio": best["one_by_one"] / best["stacked"],
        "plain_ratio": best["plain"] / best["stacked"],
        "flops": flops / best["stacked"],
    }


def _pruned(x: Tensor, y: Tensor) -> list[nn.Module]:
    nets: list[nn.Module] = []
    for weight_std, bias_std in INITS:

        def net(weight_std: float = weight_std, bias_std: float = bias_std) -> nn.Sequential:
            return mlp(
                [PIXELS, *[WIDTH] * (DEPTH - 1), 10], "tanh", weights=Gaussian(weight_std),
                biases=Gaussian(bias_std) if bias_std else None, seed=0,
            )  # fmt: skip

        scores = snip(net(), None, [(x, y)], dtype=torch.float64)
        nets += [apply(net(), keep(scores, tenths / 10)) for tenths in range(1, 10)]
    return nets


def _per_step(work: Callable[[int], None], steps: int) -> float:
    """CPU seconds of a step, start and end of a run included as for a hundred steps."""
    times = []
    for count in (1, 1 + steps):
        begun = time.process_time()
        work(count)
        times.append(time.process_time() - begun)
    step = (times[1] - times[0]) / steps
    return step + max(times[0] - step, 0.0) / 100


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
    column, small = pruned_column(), small_networks()
    print(
        f"a step of 27 pruned networks (depth {DEPTH}, width {WIDTH}, batch {BATCH}) as one program: "
        f"{1e3 * column['stacked_seconds']:.0f} ms, {column['ratio']:.2f} times faster than one by one "
        f"(limit {LIMIT:g}), {column['plain_ratio']:.2f} times faster than plain loops of torch; "
        f"{column['flops'] / 1e9:.0f} GF/s of dense arithmetic"
    )
    print(f"{NETWORKS} networks of width 32: {small['ratio']:.1f} times faster than one by one")


if __name__ == "__main__":
    main()
