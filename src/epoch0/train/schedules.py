"""Learning-rate schedules as plain values: a factor for each step, which depends on the step and on nothing else.

So a resumed run has the rates of an uninterrupted one to the last bit. A place in a run is a fraction of it (a float
below 1) or a number of epochs (an integer); it begins with the step to which it rounds.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from epoch0.errors import InputError


@dataclass(frozen=True)
class Constant:
    """The learning rate as it is.

    >>> Constant().scale(7, total=10, per_epoch=2)
    1.0
    """

    def scale(self, step: int, total: int, per_epoch: int) -> float:
        """What the learning rate of a step is multiplied with; step 0 is the first one."""
        return 1.0


@dataclass(frozen=True)
class Steps:
    """The learning rate falls by a factor at certain places of the run.

    >>> schedule = Steps(at=(0.5, 0.75), factor=0.5)
    >>> [schedule.scale(step, total=8, per_epoch=2) for step in (3, 4, 5, 6)]
    [1.0, 0.5, 0.5, 0.25]

    Equal to ``torch.optim.lr_scheduler.MultiStepLR``, to rounding.

    Attributes:
        at: places in the run: fractions of it (floats above 0 and below 1) or epochs (integers from 1 on).
        factor: the learning rate is multiplied by this at each of them.

    Raises:
        InputError: if a place is neither, or the factor is no finite number above 0.
    """

    at: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __post_init__(self) -> None:
        """Refuse places and factors that mean nothing."""
        object.__setattr__(self, "at", tuple(self.at))  # a list would not be hashable, nor equal to the tuple
        for place in self.at:
            _check_place(place, "Steps(at=...)")
        _check_factor(self.factor, "Steps(factor=...)", least=0.0)

    def scale(self, step: int, total: int, per_epoch: int) -> float:
        """What the learning rate of a step is multiplied with; step 0 is the first one."""
        passed = sum(step >= _step_of(place, total, per_epoch) for place in self.at)
        return float(self.factor**passed)


@dataclass(frozen=True)
class Cosine:
    """The learning rate falls along half a cosine over the whole run.

    >>> [round(Cosine().scale(step, total=4, per_epoch=2), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> [round(Cosine(each="epoch").scale(step, total=4, per_epoch=2), 3) for step in range(4)]
    [1.0, 1.0, 0.5, 0.5]

    Equal to ``torch.optim.lr_scheduler.CosineAnnealingLR``, to rounding.

    Attributes:
        end: part of the learning rate that it falls to; reached one step (epoch) after the last.
        each: does it fall with each step or with each epoch?

    Source: Loshchilov and Hutter 2017, equation 5, without restarts.
    """

    end: float = 0.0
    each: Literal["step", "epoch"] = "step"

    def __post_init__(self) -> None:
        """Refuse an end that is none."""
        _check_factor(self.end, "Cosine(end=...)", least=-1.0)
        if self.each not in ("step", "epoch"):
            raise InputError(f"Cosine(each={self.each!r}) means nothing; it is 'step' or 'epoch'.")

    def scale(self, step: int, total: int, per_epoch: int) -> float:
        """What the learning rate of a step is multiplied with; step 0 is the first one."""
        pace = per_epoch if self.each == "epoch" else 1
        turn = math.pi * (step // pace) / max(-(-total // pace), 1)
        return self.end + (1 - self.end) * (1 + math.cos(turn)) / 2


@dataclass(frozen=True)
class WarmUp:
    """The learning rate rises linearly to its full size, on top of another schedule.

    >>> [WarmUp(0.5, start=0.0).scale(step, total=8, per_epoch=2) for step in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]

    The rise multiplies what follows (places of ``then`` count from the start of the run), so it equals
    ``ChainedScheduler([LinearLR(...), ...])`` of torch, to rounding.

    Attributes:
        length: how long it rises: epochs (an integer from 1 on) or a fraction of the run (a float above 0, below 1).
        start: part of the learning rate at the first step.
        then: the schedule below it.

    Source: Goyal et al. 2017, section 2.2.
    """

    length: float = 5
    start: float = 0.1
    then: "Constant | Steps | Cosine" = field(default_factory=Constant)

    def __post_init__(self) -> None:
        """Refuse a rise that is none."""
        _check_place(self.length, "WarmUp(length=...)")
        _check_factor(self.start, "WarmUp(start=...)", least=-1.0)
        if not isinstance(self.then, Constant | Steps | Cosine):
            raise InputError(f"WarmUp(then={self.then!r}) cannot be followed; use Constant, Steps or Cosine.")

    def scale(self, step: int, total: int, per_epoch: int) -> float:
        """What the learning rate of a step is multiplied with; step 0 is the first one."""
        rise = max(_step_of(self.length, total, per_epoch), 1)
        ramp = min(self.start + (1 - self.start) * step / rise, 1.0)
        return ramp * self.then.scale(step, total, per_epoch)


Schedule = Constant | Steps | Cosine | WarmUp
"""What :func:`epoch0.train.loop.train` takes as ``schedule``."""


def settings_of(schedule: "Schedule | None") -> dict[str, Any] | None:
    """A schedule as plain values, for a checkpoint; None if it leaves the learning rate alone.

    >>> settings_of(Steps((30, 60)))
    {'name': 'Steps', 'at': [30, 60], 'factor': 0.1}
    """
    if schedule is None or isinstance(schedule, Constant):
        return None
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(schedule).items()}
    if isinstance(schedule, WarmUp):
        values["then"] = settings_of(schedule.then)
    return {"name": type(schedule).__name__, **values}


def depends_on_total(schedule: "Schedule | None") -> bool:
    """Does the rate of a step depend on how long the run is?

    >>> depends_on_total(Steps((30, 60))), depends_on_total(Cosine())
    (False, True)
    """
    if isinstance(schedule, Steps):
        return any(not _in_epochs(place) for place in schedule.at)
    if isinstance(schedule, WarmUp):
        return not _in_epochs(schedule.length) or depends_on_total(schedule.then)
    return isinstance(schedule, Cosine)


def _in_epochs(place: float) -> bool:
    return place >= 1


def _step_of(place: float, total: int, per_epoch: int) -> int:
    return round(place * (per_epoch if _in_epochs(place) else total))


def _check_place(place: float, name: str) -> None:
    whole = isinstance(place, int) and not isinstance(place, bool) and place >= 1
    part = isinstance(place, float) and 0 < place < 1
    if not (whole or part):
        raise InputError(
            f"{name} holds {place!r}; a place in a run is a fraction of it (a float above 0 and below 1) "
            "or a number of epochs (an integer from 1 on)."
        )


def _check_factor(value: float, name: str, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < math.inf or value < 0:
        raise InputError(f"{name} is {value!r}; it must be a finite number {'above' if least == 0 else 'from'} 0.")
