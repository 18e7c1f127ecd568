"""Trajectory length through training: what it adds to training when it is measured every 100 steps, at most 2 %."""

import statistics

import torch
from clock import cpu_seconds
from torch import nn
from torch.nn import functional as F

from epoch0.curves import Arc
from epoch0.networks import mlp
from epoch0.papers.raghu.convnet import ConvNet
from epoch0.train.raghu import TrajectoryLengths

EVERY = 100
LIMIT = 0.02
BATCH = 64
ROUNDS = 9


def share(net: nn.Module, *shape: int) -> dict[str, float]:
    """Seconds of a training step and of a measurement, in turn, and the part of training that measuring takes.

    The part is the middle one of the rounds: in each, the least of three steps and the least of three measurements.
    """
    x, y = torch.randn(BATCH, *shape), torch.arange(BATCH) % 10
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    watch = TrajectoryLengths(Arc(x[0], x[1]))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    def measure() -> None:
        watch(0, net)

    step()
    measure()  # finds the layers, once
    pairs = [(cpu_seconds(step, 3), cpu_seconds(measure, 3)) for _ in range(ROUNDS)]
    parts = [measured / (EVERY * trained) for trained, measured in pairs]
    return {
        "step_seconds": min(trained for trained, _ in pairs), "measure_seconds": min(measured for _, measured in pairs),
        "share": statistics.median(parts), "layers": float(len(watch.layers)),
    }  # fmt: skip


def main() -> None:
    """One line a network."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    networks = {
        "dense 784-256-256-10": (mlp([784, 256, 256, 10], seed=0), (784,)),
        "conv net, 32 x 32": (ConvNet().build(seed=0), (3, 32, 32)),
        "conv net with batch norm": (ConvNet(norm="batch").build(seed=0), (3, 32, 32)),
    }
    for name, (net, shape) in networks.items():
        found = share(net, *shape)
        print(
            f"length through training, {name}, batch {BATCH}: {1e3 * found['measure_seconds']:.2f} ms for "
            f"{found['layers']:.0f} layers, a training step {1e3 * found['step_seconds']:.2f} ms; every {EVERY} steps "
            f"{100 * found['share']:.2f} % (at most {100 * LIMIT:g} %)",
            flush=True,
        )


if __name__ == "__main__":
    main()
