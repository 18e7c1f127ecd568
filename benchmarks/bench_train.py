"""Training: many small networks stacked against one by one, and our loop against a plain torch loop."""

from collections.abc import Callable

import torch
from clock import cpu_seconds
from torch import nn
from torch.nn import functional as F

from epoch0.data import load
from epoch0.networks import ensemble, mlp, resnet
from epoch0.seeds import generator
from epoch0.train.loop import ORDER, SGD, train
from epoch0.train.stacked import Stacked

NETWORKS, SIZES = 20, [64, *[32] * 9, 10]


def stacked_against_one_by_one(steps: int = 100) -> dict[str, float]:
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


def loop_against_plain_torch(
    network: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, steps: int, rounds: int
) -> dict[str, float]:
    """Our loop with all it keeps track of, and ten lines of torch, in turns; the least of several of each counts."""
    examples = min(6000, steps * batch)
    x, y = torch.randn(examples, *shape, generator=generator(0)), torch.arange(examples) % 10

    def ours() -> None:
        train(network(), (x, y), steps=steps, batch_size=batch, optimizer=SGD(momentum=0.9), learning_rate=0.01)

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


LOOPS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int, int]] = {
    "ResNet-20, batch 64": (lambda: resnet(20, seed=0), (3, 32, 32), 64, 4, 5),
    "784-256-256-10, batch 100": (lambda: mlp([784, 256, 256, 10], seed=0), (784,), 100, 300, 10),
    "64-32-10, batch 32": (lambda: mlp([64, 32, 10], seed=0), (64,), 32, 500, 20),
}
"""Network, shape of an input, batch size, steps, rounds."""


def main() -> None:
    """Print all ratios."""
    torch.set_num_threads(1)
    stacked = stacked_against_one_by_one()
    print(
        f"stacked training, {NETWORKS} nets of depth 10, width 32, 100 Adam steps: {stacked['ratio']:.1f} times less "
        f"than one by one ({stacked['stacked_seconds']:.2f} s against {stacked['one_by_one_seconds']:.2f} s)"
    )
    for name, case in LOOPS.items():
        loop = loop_against_plain_torch(*case)
        each = 1e6 / case[3]
        print(
            f"our loop, {name}: {loop['ratio']:.3f} of a plain torch loop (limit 1.03 for the ResNet; "
            f"{loop['loop_seconds'] * each:.0f} us a step against {loop['plain_seconds'] * each:.0f} us)"
        )


if __name__ == "__main__":
    main()
