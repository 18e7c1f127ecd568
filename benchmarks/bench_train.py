"""Training: our loop against a plain torch loop."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from clock import cpu_seconds
from torch import nn
from torch.nn import functional as F

from epoch0.networks import mlp, resnet, vanilla_cnn
from epoch0.seeds import generator
from epoch0.train.loop import ORDER, train


def loop_against_plain_torch(
    network: Callable[[], nn.Module],
    shape: tuple[int, ...],
    batch: int,
    steps: int,
    rounds: int,
    ours_last: bool = False,
) -> dict[str, float]:
    """Our loop with all it keeps track of, and ten lines of torch, in turns; the least of several of each counts.

    With `ours_last` our loop trains channels-last; torch's lines do what they do by themselves.
    """
    momentum = partial(torch.optim.SGD, momentum=0.9)
    settings: dict[str, Any] = {"optimizer": momentum, "learning_rate": 0.01, "channels_last": ours_last}
    examples = min(6000, steps * batch)
    x, y = torch.randn(examples, *shape, generator=generator(0)), torch.arange(examples) % 10

    def ours() -> None:
        train(network(), (x, y), steps=steps, batch_size=batch, **settings)

    def plain() -> None:
        net = network()
        optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
        done, epoch = 0, 0
        while done < steps:
            for chosen in torch.randperm(examples, generator=generator(0, ORDER, epoch)).split(batch)[: steps - done]:
                optimizer.zero_grad()
                F.cross_entropy(net(x[chosen]), y[chosen]).backward()
                optimizer.step()
                done += 1
            epoch += 1

    ours(), plain()
    loop, bare = [], []
    for _ in range(rounds):
        loop.append(cpu_seconds(ours))
        bare.append(cpu_seconds(plain))
    return {"loop_seconds": min(loop), "plain_seconds": min(bare), "ratio": min(loop) / min(bare)}


_SMALL = (lambda: vanilla_cnn(20, 16, inputs=(1, 8, 8), activation="tanh", seed=0), (1, 8, 8), 32, 20, 10)
_LARGE = (lambda: vanilla_cnn(10, 32, inputs=(1, 28, 28), activation="tanh", seed=0), (1, 28, 28), 100, 4, 5)

LOOPS: dict[str, tuple[Any, ...]] = {
    "ResNet-20, batch 64": (lambda: resnet(20, seed=0), (3, 32, 32), 64, 4, 5),
    "ResNet-20, batch 64, ours channels-last": (lambda: resnet(20, seed=0), (3, 32, 32), 64, 4, 5, True),
    "784-256-256-10, batch 100": (lambda: mlp([784, 256, 256, 10], seed=0), (784,), 100, 300, 10),
    "V-CNN of 20 circular layers, 16 channels of 8x8, batch 32": _SMALL,
    "V-CNN of 20 circular layers, ours channels-last": (*_SMALL, True),
    "V-CNN of 10 circular layers, 32 channels of 28x28, batch 100": _LARGE,
    "V-CNN of 10 circular layers, ours channels-last": (*_LARGE, True),
    "64-32-10, batch 32": (lambda: mlp([64, 32, 10], seed=0), (64,), 32, 500, 20),
}
"""Network, shape of an input, batch size, steps, rounds, whether ours is channels-last."""


def main() -> None:
    """Print all ratios."""
    torch.set_num_threads(1)
    for name, case in LOOPS.items():
        loop = loop_against_plain_torch(*case)
        each = 1e6 / case[3]
        print(
            f"our loop, {name}: {loop['ratio']:.3f} of a plain torch loop (limit 1.03 for the ResNet; "
            f"{loop['loop_seconds'] * each:.0f} us a step against {loop['plain_seconds'] * each:.0f} us)"
        )


if __name__ == "__main__":
    main()
