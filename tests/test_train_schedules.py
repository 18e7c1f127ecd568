"""Learning-rate schedules against torch's own schedulers, and refused where they mean nothing."""

import itertools
import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler as torchs

from epoch0.errors import InputError
from epoch0.seeds import generator
from epoch0.train.loop import SGD, train
from epoch0.train.record import Every
from epoch0.train.schedules import Constant, Cosine, Schedule, Steps, WarmUp, depends_on_total, settings_of


def rates_of_torch(make, steps: int, pace: int = 1) -> list[float]:
    """The learning rates of an optimizer of base rate 0.3 under a torch scheduler stepped every ``pace`` steps."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.3)
    scheduler, rates = make(optimizer), []
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % pace == 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # stepping a cosine past its end
                scheduler.step()
    return rates


def rates(schedule: Schedule, total: int, per_epoch: int) -> list[float]:
    return [0.3 * schedule.scale(step, total, per_epoch) for step in range(total)]


@given(epochs=st.integers(2, 9), per_epoch=st.integers(1, 7), factor=st.sampled_from([0.1, 0.2, 0.5]), data=st.data())
def test_steps_are_multi_step_lr(epochs: int, per_epoch: int, factor: float, data: st.DataObject) -> None:
    at = data.draw(st.lists(st.integers(1, epochs), unique=True, max_size=3).map(sorted))
    theirs = rates_of_torch(lambda o: torchs.MultiStepLR(o, at, factor), epochs * per_epoch, per_epoch)
    assert rates(Steps(tuple(at), factor), epochs * per_epoch, per_epoch) == pytest.approx(theirs, rel=1e-12)


@given(quarter=st.integers(1, 50))
def test_fractions_are_places_of_the_run(quarter: int) -> None:
    total = 4 * quarter
    theirs = rates_of_torch(lambda o: torchs.MultiStepLR(o, [2 * quarter, 3 * quarter], 0.1), total)
    assert rates(Steps(), total, per_epoch=3) == pytest.approx(theirs, rel=1e-12)


@given(epochs=st.integers(1, 9), per_epoch=st.integers(1, 7), end=st.sampled_from([0.0, 0.05]), each=st.booleans())
def test_cosine_is_cosine_annealing_lr(epochs: int, per_epoch: int, end: float, each: bool) -> None:
    total, pace = epochs * per_epoch, per_epoch if each else 1
    theirs = rates_of_torch(lambda o: torchs.CosineAnnealingLR(o, total // pace, eta_min=0.3 * end), total, pace)
    ours = rates(Cosine(end, "epoch" if each else "step"), total, per_epoch)
    assert ours == pytest.approx(theirs, rel=1e-10, abs=1e-14)


@given(
    epochs=st.integers(2, 9), per_epoch=st.integers(1, 7), start=st.sampled_from([0.01, 0.1, 1.0]),
    then=st.sampled_from([Constant(), Steps((1,), 0.5), Cosine()]), data=st.data(),
)  # fmt: skip
def test_warm_up_is_linear_lr_chained(
    epochs: int, per_epoch: int, start: float, then: Constant | Steps | Cosine, data: st.DataObject
) -> None:
    length, total = data.draw(st.integers(1, epochs)), epochs * per_epoch

    def make(optimizer: torch.optim.Optimizer) -> torchs.LRScheduler:
        below = {
            Constant: lambda: torchs.LambdaLR(optimizer, lambda _: 1.0),
            Steps: lambda: torchs.MultiStepLR(optimizer, [per_epoch], 0.5),
            Cosine: lambda: torchs.CosineAnnealingLR(optimizer, total),
        }[type(then)]
        linear = torchs.LinearLR(optimizer, start, total_iters=length * per_epoch)
        return torchs.ChainedScheduler([linear, below()]) if not isinstance(then, Constant) else linear

    ours = rates(WarmUp(length, start, then), total, per_epoch)
    assert ours == pytest.approx(rates_of_torch(make, total), rel=1e-9, abs=1e-12)


@given(step=st.integers(0, 99), schedule=st.sampled_from([Constant(), Steps(), Cosine(), WarmUp(0.2, then=Cosine())]))
def test_rates_lie_between_zero_and_the_base(step: int, schedule: Schedule) -> None:
    assert 0 <= schedule.scale(step, 100, 10) <= 1


def test_the_loop_uses_the_rate_of_each_step() -> None:
    """One weight, gradient one, plain SGD: the weight after a step is minus the sum of the rates so far."""
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    seen: list[float] = []
    schedule = WarmUp(0.25, 0.1, Steps((0.5, 0.75), 0.1))
    train(
        net, (torch.ones(20, 1), torch.ones(20)), epochs=4, batch_size=5, learning_rate=0.3, schedule=schedule,
        loss=lambda outputs, targets: outputs.mean(),
        callbacks=[Every(1, lambda step, model, row: seen.append(-model.weight.item()))],
    )  # fmt: skip
    assert [b - a for a, b in itertools.pairwise(seen)] == pytest.approx(rates(schedule, 16, 4), abs=1e-6)


@pytest.mark.parametrize("schedule", [None, Constant()])
def test_a_constant_rate_changes_no_bit(schedule: Schedule | None) -> None:
    x = torch.randn(30, 4, generator=generator(0))
    weights = []
    for chosen in (None, schedule):
        net = torch.nn.Linear(4, 1)
        with torch.no_grad():
            net.weight.fill_(0.5), net.bias.fill_(0.1)
        train(net, (x, x[:, :1]), steps=7, batch_size=8, optimizer=SGD(0.9), schedule=chosen,
              loss=torch.nn.functional.mse_loss)  # fmt: skip
        weights.append(net.weight.clone())
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Steps((0.5, 1.5)), r"Steps\(at=...\) holds 1.5; a place in a run is a fraction"),
        (lambda: Steps((0,)), "holds 0;"),
        (lambda: Steps((True,)), "holds True;"),
        (lambda: Steps(factor=0.0), r"Steps\(factor=...\) is 0.0; it must be a finite number above 0"),
        (lambda: Cosine(end=-0.1), r"Cosine\(end=...\) is -0.1; it must be a finite number from 0"),
        (lambda: Cosine(end=math.nan), "is nan"),
        (lambda: WarmUp(1.0), "holds 1.0;"),
        (lambda: WarmUp(3, start=math.inf), "is inf"),
    ],
)
def test_schedules_that_mean_nothing(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_settings_are_plain_and_tell_schedules_apart() -> None:
    every: list[Schedule] = [Steps(), Steps((30, 60)), Steps(factor=0.2), Cosine(), Cosine(each="epoch"), WarmUp()]
    every.append(WarmUp(then=Steps()))
    told = [settings_of(schedule) for schedule in every]
    assert all(a != b for i, a in enumerate(told) for b in told[:i])
    assert settings_of(Constant()) is None and settings_of(None) is None
    assert [depends_on_total(schedule) for schedule in every] == [True, False, True, True, True, False, True]
    assert depends_on_total(WarmUp(0.1)) and not depends_on_total(None)
