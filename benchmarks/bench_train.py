"""Training: many small networks stacked against one by one, and our loop against a plain torch loop."""

import torch
from clock import cpu_seconds
from torch import nn
from torch.nn import functional as F

from epoch0.data import load
from epoch0.networks import ensemble, mlp
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


def loop_against_plain_torch(steps: int = 300) -> dict[str, float]:
    """Our loop with all it keeps track of, and ten lines of torch, on one network of MNIST's size."""
    x, y = torch.randn(6000, 784, generator=generator(0)), torch.arange(6000) % 10

    def ours() -> None:
        train(mlp([784, 256, 256, 10], seed=0), (x, y), steps=steps, batch_size=100, optimizer=SGD(momentum=0.9))

    def plain() -> None:
        net: nn.Module = mlp([784, 256, 256, 10], seed=0)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        for epoch in range(steps // 60):
            for chosen in torch.randperm(6000, generator=generator(0, ORDER, epoch)).split(100):
                optimizer.zero_grad()
                F.cross_entropy(net(x[chosen]), y[chosen]).backward()
                optimizer.step()

    loop, bare = cpu_seconds(ours, 3), cpu_seconds(plain, 3)
    return {"loop_seconds": loop, "plain_seconds": bare, "ratio": loop / bare}


def main() -> None:
    """Print both ratios."""
    torch.set_num_threads(1)
    stacked, loop = stacked_against_one_by_one(), loop_against_plain_torch()
    print(
        f"stacked training, {NETWORKS} nets of depth 10, width 32, 100 Adam steps: {stacked['ratio']:.1f} times less "
        f"than one by one ({stacked['stacked_seconds']:.2f} s against {stacked['one_by_one_seconds']:.2f} s)"
    )
    print(
        f"our loop, 784-256-256-10, 300 SGD steps: {loop['ratio']:.3f} of a plain torch loop "
        f"({loop['loop_seconds']:.2f} s against {loop['plain_seconds']:.2f} s)"
    )


if __name__ == "__main__":
    main()
