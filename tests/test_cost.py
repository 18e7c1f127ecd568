"""Costs of a training: what is timed is whole steps, counted honestly, inside its seconds and inside memory."""

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from epoch0.errors import InputError
from epoch0.experiments import step_speed
from epoch0.experiments.cost import Cost, Speed, Workload
from epoch0.networks import resnet, vanilla_cnn
from epoch0.prune import apply, keep, random


class Slow(nn.Module):
    """A linear map that takes its time, each example its own; it notes the batches it sees."""

    def __init__(self, seconds_an_example=0.0, most=math.inf):
        super().__init__()
        self.map = nn.Linear(4, 3)
        self.seconds, self.most, self.batches = seconds_an_example, most, []

    def forward(self, x):
        self.batches.append(len(x))
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 PiB.")
        time.sleep(self.seconds * len(x))
        return self.map(x)


@pytest.fixture(scope="module", autouse=True)
def peak_is_known():
    """Measured once a process, and not in the time of the first test."""
    step_speed.device_peak(torch.device("cpu"), "float32")
    work_of(Slow()).speed(0.01, "cpu")


def work_of(model, batch_size=32, **more):
    return Workload(lambda: model, (4,), 3, batch_size, **more)


def test_images_a_second_are_those_of_the_steps() -> None:
    speed = work_of(Slow(0.001)).speed(2.0, "cpu")
    # a sleep is never shorter than asked, so 1000 images a second cannot be passed; a busy machine is slower
    assert 200 < speed.images_per_second <= 1000
    assert speed.batch_size == 32 and speed.note == ""
    assert 0 <= speed.error < 0.5 * speed.images_per_second


def test_the_backward_pass_and_the_optimizer_are_in_the_time() -> None:
    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            time.sleep(0.01)
            return gradient

    class Net(Slow):
        def forward(self, x):
            return Backward.apply(super().forward(x))

    assert work_of(Net(), 1).speed(0.5, "cpu").images_per_second <= 100


def test_the_data_path_is_in_the_time_and_its_form_is_kept() -> None:
    asked = []

    def data(examples):
        asked.append(examples)
        return torch.zeros(examples, 4, dtype=torch.float32), torch.zeros(examples, dtype=torch.int64)

    work_of(Slow(), 8, data=data).speed(0.2, "cpu")
    assert asked and all(count % 2 == 0 for count in asked) and max(asked) >= 8


def test_operations_are_counted_forward_and_backward() -> None:
    # forward 2 * 4 * 3, gradient of the weights as much, none for the inputs
    assert work_of(Slow()).speed(0.1, "cpu").flops == 2 * 2 * 4 * 3


def plain_flops(net, shape):
    """A V-CNN's operations by hand: each convolution three times its products, the first without input gradients."""
    total, first = 0, True
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            places = math.prod(shape) if isinstance(layer, nn.Conv2d) else 1
            total += 2 * layer.weight.numel() * places * (2 if first else 3)
            first = False
    return total


def test_operations_of_a_convolutional_network_with_masks() -> None:
    def build():
        net = vanilla_cnn(4, 5, inputs=(2, 6, 6))
        apply(net, keep(random(net, seed=0), 0.5))
        return net

    speed = Workload(build, (2, 6, 6), 10, 4).speed(0.3, "cpu")
    # masked weights are multiplied like others
    assert speed.flops == plain_flops(vanilla_cnn(4, 5, inputs=(2, 6, 6)), (6, 6))


def test_share_of_the_peak() -> None:
    speed = Workload(lambda: nn.Linear(512, 512), (512,), 512, 256).speed(1.0, "cpu")
    assert speed.share == speed.images_per_second * speed.flops / speed.peak
    # a large matrix product comes near the peak; a little above it is noise of the two timings
    assert 0.01 < speed.share < 1.5


def test_peak_is_that_of_a_matrix_product() -> None:
    peak = step_speed.device_peak(torch.device("cpu"), "float32")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a = torch.randn(512, 512)
        times = []
        for _ in range(10):
            begun = time.perf_counter()
            a @ a
            times.append(time.perf_counter() - begun)
    finally:
        torch.set_num_threads(before)
    assert 0.1 < peak / (2 * 512**3 / min(times)) < 10


def test_a_network_too_large_for_its_share_is_timed_with_fewer_images() -> None:
    net = Slow(0.01)
    speed = work_of(net, 64).speed(0.6, "cpu")
    assert 2 <= speed.batch_size < 64 and max(net.batches) == speed.batch_size
    assert "too large for its share of the time" in speed.note and "of 64 images a step" in speed.note
    assert 20 < speed.images_per_second <= 100


def test_one_step_is_timed_in_any_case() -> None:
    speed = work_of(Slow(0.05), 64).speed(1e-3, "cpu")
    assert speed.batch_size == 2 and 5 < speed.images_per_second <= 20
    assert math.isnan(speed.error)


def test_a_batch_that_does_not_fit_is_halved() -> None:
    net = Slow(most=10)
    speed = work_of(net, 64).speed(0.5, "cpu")
    fitted = speed.batch_size
    assert 5 < fitted <= 10 and speed.note == f"does not fit into memory, timed {fitted} of 64 images a step"
    assert max(size for size in net.batches if size <= 10) == fitted and speed.images_per_second > 0


def test_a_network_that_never_fits_is_told() -> None:
    for model in (lambda: Slow(most=1), lambda: torch.empty(2**60)):
        speed = Workload(model, (4,), 3, 16).speed(0.2, "cpu")
        assert math.isnan(speed.images_per_second) and speed.note == "does not fit into memory"


def test_memory_is_looked_at_before_it_is_used(monkeypatch) -> None:
    class Free:
        available = 3e5

    monkeypatch.setattr(step_speed.psutil, "virtual_memory", lambda: Free)
    net = Slow()
    net.map = nn.Sequential(nn.Linear(4, 1000), nn.ReLU(), nn.Linear(1000, 3))
    speed = work_of(net, 4096).speed(3.0, "cpu")
    # a hidden activation of 4000 bytes an example is held: tens of examples, not thousands
    assert 2 <= speed.batch_size < 75 and max(net.batches) == speed.batch_size
    assert "does not fit into memory" in speed.note


def test_other_errors_are_not_hidden() -> None:
    class Broken(Slow):
        def forward(self, x):
            raise RuntimeError("shapes do not fit")

    with pytest.raises((RuntimeError, InputError), match="shapes do not fit"):
        work_of(Broken()).speed(0.1, "cpu")


def test_batch_norm_is_timed_with_the_smallest_batch() -> None:
    speed = Workload(lambda: resnet(8, 0.5), (3, 32, 32), 10, 64).speed(0.01, "cpu")
    assert speed.batch_size >= 2 and speed.images_per_second > 0


def test_nothing_outside_changes() -> None:
    net = Slow()
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    weights = net.map.weight.detach().clone()
    work_of(net).speed(0.1, "cpu")
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == threads
    # a learning rate that moves nothing: many steps of noise do not make the loss explode
    assert torch.allclose(net.map.weight, weights, atol=1e-3)


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, math.inf, True])
def test_seconds_that_cannot_be_used(seconds) -> None:
    with pytest.raises(InputError, match=r"seconds=.*finite number > 0"):
        work_of(Slow()).speed(seconds, "cpu")


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(InputError, match="quantum"):
        work_of(Slow()).speed(0.1, "quantum")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-4, 0.2), min_size=40, max_size=60), st.integers(0, 3), st.floats(0.0, 3.0))
def test_the_clock_against_plain_sums(durations, warm, seconds) -> None:
    """With a made-up time, the blocks cover the steps behind the warm ones without a gap, and end on time."""
    now = [0.0]
    clock = step_speed._Clock(lambda outputs, targets: 0.0, seconds, warm, torch.device("cpu"))
    before, step_speed.time.perf_counter = step_speed.time.perf_counter, lambda: now[0]
    starts, nothing = [], torch.empty(0)
    try:
        for duration in durations:
            starts.append(now[0])
            try:
                clock(nothing, nothing)
            except step_speed._Enough:
                break
            now[0] += duration
    finally:
        step_speed.time.perf_counter = before
    stamps = clock.stamps
    assert [done for done, _ in stamps] == sorted({done for done, _ in stamps})
    assert stamps[0][0] == warm and all(at == starts[done] for done, at in stamps)
    if len(stamps) > 1:
        steps, times = np.diff(np.array(stamps), axis=0).T
        assert np.allclose(clock.rates(), (steps / times)[1 if len(steps) > 2 else 0 :])


def test_costs_are_checked() -> None:
    cost = Cost("net", 3, 650, 640, 1000, evaluated=300)
    assert cost.steps_worth == pytest.approx(1100)
    for wrong in ({"runs": -1}, {"images": -5}, {"prunable": 651}, {"evaluated": True}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Cost(**{"name": "net", "runs": 3, "parameters": 650, "prunable": 640, "images": 10} | wrong)


def test_share_of_a_known_speed() -> None:
    assert Speed(1200.0, flops=1.7e9, peak=60e12).share == pytest.approx(0.034)
    assert math.isnan(Speed(10.0).share)
