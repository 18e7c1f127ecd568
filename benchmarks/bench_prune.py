"""Scores of weights on a ResNet-32 of doubled width: their cost in forward and backward passes, and their memory."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from clock import cpu_seconds
from torch import Tensor, nn

from epoch0.networks.residual import resnet
from epoch0.prune.scores.gradients import force, grasp, obd, snip
from epoch0.prune.scores.synaptic_flow import iterate, synflow
from epoch0.seeds import generator

SPARSITY, EXAMPLES = 0.98, 128
HANDED_BACK = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
"""Environment in which freed tensors of a megabyte or more leave the resident set."""


def network() -> nn.Module:
    """The network of the published comparison: 1,855,584 prunable weights in 34 tensors."""
    return resnet(32, width=2, seed=0).train()


def batch() -> tuple[Tensor, Tensor]:
    """128 images of noise and labels."""
    source = generator(1)
    x = torch.randn(EXAMPLES, 3, 32, 32, generator=source)
    return x, torch.randint(10, (EXAMPLES,), generator=source)


def scores(net: nn.Module, data: tuple[Tensor, Tensor]) -> dict[str, tuple[Callable[[], object], str]]:
    """What is timed, and what it may cost."""
    rounds = functools.partial(synflow, x=(3, 32, 32))
    return {
        "SNIP": (lambda: snip(net, [data]), "at most 1.2"),
        "GraSP": (lambda: grasp(net, [data]), "at most 4.2"),
        "SynFlow, 100 rounds in float64": (lambda: iterate(net, rounds, SPARSITY, steps=100), "at most 4.5"),
        "SynFlow, 1 round": (lambda: synflow(net, (3, 32, 32)), "no target"),
        "FORCE, 5 steps": (lambda: force(net, [data], SPARSITY, 5), "no target"),
        "OBD, 1 probe": (lambda: obd(net, [data], probes=1), "no target"),
    }


def times() -> None:
    """Each score in forward and backward passes of the same batch, which are timed before and after it."""
    net, data = network(), batch()

    def once() -> None:
        net.zero_grad()
        F.cross_entropy(net(data[0]), data[1]).backward()

    once()
    for name, (run, target) in scores(net, data).items():
        before = cpu_seconds(once, 2)
        seconds = cpu_seconds(run, 2)
        one = min(before, cpu_seconds(once, 2))
        print(f"{name}: {seconds / one:.2f} forward + backward passes ({target}); {seconds:.2f} s, one is {one:.2f} s")


def peak(name: str) -> float:
    """Growth of the largest resident set over one score, in MB; good once a process."""
    run, _ = scores(network(), batch())[name]
    before = resident("VmRSS")
    run()
    return resident("VmHWM") - before


def resident(field: str) -> float:
    """Memory of this process in MB; ru_maxrss would begin with that of the process that started it."""
    with open("/proc/self/status") as file:
        return next(float(line.split()[1]) * 1.024e-3 for line in file if line.startswith(f"{field}:"))


def memory() -> None:
    """Peaks of SNIP and GraSP, each in two processes of its own, of which the least counts.

    First as tensors need it: large blocks go back to the system when they are freed. Then with the threshold of glibc,
    which grows and after that keeps the holes between blocks.
    """
    for blocks, words in ((HANDED_BACK, "of tensors"), ({}, "with the holes that malloc keeps")):
        found = {}
        for name in ("SNIP", "GraSP"):
            command, environment = (sys.executable, __file__, name), {**os.environ, **blocks}
            runs = [
                subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
                for _ in range(2)
            ]
            found[name] = min(map(float, runs))
        one, two = found["SNIP"], found["GraSP"]
        print(f"memory {words}: SNIP {one:.0f} MB, GraSP {two:.0f} MB, {two / one:.2f} times (at most 3)")


def main() -> None:
    """Print the costs."""
    torch.set_num_threads(1)
    print("scores of a ResNet-32 of widths 32, 64, 128 on 128 images:")
    times()
    if sys.platform == "linux":
        memory()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:]:
        print(peak(sys.argv[1]))
    else:
        main()
