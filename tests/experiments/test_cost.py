"""Costs of a training: what is timed is a step of the whole batch, or two of smaller ones, which lie on a line."""

import math

import pytest
import torch
from torch import nn

from epoch0.experiments.cost import Cost
from epoch0.networks import mlp
from epoch0.train.stacked import Stacked


class Slow(nn.Module):
    """A linear map that takes its time on a clock of its own, each example and each call; it notes its batches."""

    def __init__(self, clock: list[float], an_example: float, a_call: float) -> None:
        super().__init__()
        self.map, self.clock, self.an_example, self.a_call = nn.Linear(4, 3), clock, an_example, a_call
        self.batches: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.batches.append(len(x))
        self.clock[0] += self.a_call + self.an_example * len(x)
        return self.map(x)


@pytest.mark.parametrize(("seconds", "size"), [(100.0, 64), (2.5, 32), (0.001, 8)])
def test_a_step_is_timed_at_the_batch_that_fits(monkeypatch: pytest.MonkeyPatch, seconds: float, size: int) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    monkeypatch.setenv("EPOCH0_DEVICE", "cpu")
    slow = Slow(clock, 0.01, 0.1)
    found = Cost("slow", [], lambda: slow, (4,), 3, 64, images=640).seconds_a_step(seconds)
    assert found == pytest.approx(0.1 + 0.01 * 64)  # not 64/8 times what eight examples take
    assert slow.batches[-1] == size == max(slow.batches) and clock[0] < max(seconds, 0.5) + 0.5


def test_a_stack_is_timed_by_the_losses_of_its_networks() -> None:
    cost = Cost("stack", [], lambda: Stacked.of([mlp([4, 3], seed=i) for i in range(2)]), (4,), 3, 8, images=80)
    assert math.isfinite(cost.seconds_a_step(0.05))


def test_images_that_are_passed_forward_count_a_third() -> None:
    assert Cost("net", [], lambda: nn.Linear(4, 3), (4,), 3, 10, images=1000, evaluated=300).steps == 110
