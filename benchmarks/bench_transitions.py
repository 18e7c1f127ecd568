"""Transitions of a deep hard-tanh net along an arc against sampling it; dichotomies of many nets; Raghu Figure 13."""

import time

import torch
from torch import nn

from epoch0.activity import dichotomies, transitions
from epoch0.curves import Arc
from epoch0.distributions import Gaussian
from epoch0.experiments.experiment import resolve
from epoch0.networks import ensemble, mlp
from epoch0.papers.catalogue import find

DEPTH, WIDTH, VARIANCE = 20, 512, 1.2
POINTS = 100_000
NETWORKS = 20
PART = 5000  # points sampled for the time; the count of all of them is taken once


def _net(seed: int = 0) -> nn.Sequential:
    sizes = [WIDTH] * (DEPTH + 1)
    return mlp(sizes, "hardtanh", Gaussian(VARIANCE**0.5), linear_output=False, seed=seed, dtype=torch.float64)


def _arc() -> Arc:
    ends = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Arc(ends[0], ends[1])


def sampled(net: nn.Sequential, arc: Arc, first: int, points: int) -> int:
    """Changes of state between neighbouring points of the fine grid, ``points`` steps from number ``first`` on."""
    total = 0
    with torch.no_grad():
        for start in range(first, first + points, 500):
            stop = min(start + 500, first + points)
            z = arc.point(torch.arange(start, stop + 1, dtype=torch.float64) / POINTS)
            for part in net:
                if isinstance(part, nn.Hardtanh):
                    state = (z > -1).to(torch.int8) + (z > 1).to(torch.int8)
                    total += int((state[1:] - state[:-1]).abs().sum())
                z = part(z)
    return total


def against_sampling(whole: bool = False) -> dict[str, float]:
    """CPU seconds of sampling 10^5 points over those of one call, and the counts; sides alternate, the least counts."""
    net, arc = _net(), _arc()
    ours, exact, theirs = [], [], []
    for turn in range(3):
        begun = time.process_time()
        found = transitions(net, arc)
        ours.append(time.process_time() - begun)
        begun = time.process_time()
        sampled(net, arc, turn * PART, PART)
        theirs.append((time.process_time() - begun) * POINTS / PART)
    begun = time.process_time()
    truth = transitions(net, arc, method="exact").count
    exact.append(time.process_time() - begun)
    counts = {}
    if whole:
        begun = time.process_time()
        counts = {"sampled_count": float(sampled(net, arc, 0, POINTS))}
        counts["whole_ratio"] = (time.process_time() - begun) / min(ours)
    return {
        "count": float(found.count), "exact_count": float(truth), **counts, "points": float(found.points),
        "seconds": min(ours), "exact_seconds": min(exact), "sampling_seconds": min(theirs),
        "ratio": min(theirs) / min(ours), "exact_ratio": min(theirs) / min(exact),
    }  # fmt: skip


def sweeps() -> dict[str, float]:
    """Raghu Figure 14a's quick preset: CPU seconds a network.

    Widths 16 and 64, 1 to 6 hidden layers, hard tanh, sigma_w^2 = 8, 15 inputs in R^100, the first layer swept.
    """
    seconds, networks = 0.0, 0
    for width in (16, 64):
        for depth in range(1, 7):
            nets = ensemble(NETWORKS, [100, *[width] * depth, 1], "hardtanh", Gaussian(8**0.5), seed=depth)
            source = torch.Generator().manual_seed(depth)
            x, other = torch.randn(15, 100, generator=source), torch.randn(width, 100, generator=source) * 0.08**0.5
            begun = time.process_time()
            dichotomies(nets, x, other=other, method="refined")
            seconds += time.process_time() - begun
            networks += NETWORKS
    return {"seconds_a_network": seconds / networks}


def figure_13() -> dict[str, float]:
    """CPU seconds of Figure 13c's paper preset: all widths and variances, 50 networks a point."""
    artifact = find("raghu/fig13c")
    begun = time.process_time()
    made = artifact.trials(artifact.setting("paper"))
    for trial in made:
        resolve(trial.function)(trial.spec, trial.seed)
    return {"combinations": float(len(made)), "seconds": time.process_time() - begun}


def main(whole: bool = False) -> None:
    """Print one line a task."""
    torch.set_num_threads(1)
    tasks = {
        "transitions against 10^5 points": against_sampling(whole), "dichotomies, Raghu Figure 14a": sweeps(),
        "Raghu Figure 13, paper preset": figure_13(),
    }  # fmt: skip
    for name, numbers in tasks.items():
        print(name, *(f"{key} {value:.4g}" for key, value in numbers.items()), sep="  ", flush=True)


if __name__ == "__main__":
    main()
