"""Exact regions on planes: from 10^5 to 10^6 cells of one network in cells a second and bytes a cell."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from bench_regions import _megabytes, network
from clock import cpu_seconds

from epoch0 import regions

WIDTHS = [2, 512, 512, 512, 1]
HALF = {"10^5 cells": 0.053, "10^6 cells": 1.0}  # half sides of windows of one network: the work a cell is the same


def scaling() -> dict[str, dict[str, float]]:
    """Cells a second and bytes a cell in a small and a large window, and what becomes of the speed."""
    net, found, before = network(WIDTHS, 0.1), {}, _megabytes()
    for name, half in HALF.items():
        window = regions.square(torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), half)
        counts: list[int] = []
        seconds = cpu_seconds(lambda: counts.append(regions.on_plane(net, window).count), 2 if half < 1 else 1)  # noqa: B023
        found[name] = {
            "count": float(counts[0]), "seconds": seconds, "cells_per_second": counts[0] / seconds,
            "peak_bytes_a_cell": max(0.0, _megabytes() - before) * 2**20 / counts[0],
        }  # fmt: skip
    small, large = (found[name]["cells_per_second"] for name in HALF)
    found["speed at 10^6 cells against 10^5"] = {"ratio": large / small}
    return found


def in_a_process_of_its_own(measure: Callable[[], dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """A process knows only the largest memory that it ever had, whatever had it."""
    with ProcessPoolExecutor(1, get_context("spawn"), torch.set_num_threads, (1,)) as process:
        return process.submit(measure).result()


def main() -> None:
    """Print one line a task."""
    torch.set_num_threads(1)
    for name, numbers in in_a_process_of_its_own(scaling).items():
        print(name, *(f"{key} {value:.4g}" for key, value in numbers.items()), sep="  ", flush=True)


if __name__ == "__main__":
    main()
