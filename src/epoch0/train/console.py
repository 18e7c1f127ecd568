"""How a training run goes, for whoever looks on: a bar on a terminal, now and then a line in a log."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from epoch0.meter import Meter, spelt


@dataclass(frozen=True)
class Glance:
    """A run at one moment.

    >>> print(Glance(120, 1000, 3.0, 0.412, {"accuracy": 0.874}, 5120.0, 75.0))
    step 120 of 1,000, epoch 3.0, loss 0.412, accuracy 0.874, 5,120 images/s, 1 min 15 s left

    Attributes:
        step: steps done.
        steps: steps in all.
        epoch: passes through the data done.
        loss: mean over the last steps, None before the first.
        metrics: the numbers of the last evaluation.
        images_per_second: examples trained on, per second of training proper.
        seconds_left: at the pace so far, evaluations included; None before the first step.
    """

    step: int
    steps: int
    epoch: float
    loss: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    images_per_second: float = 0.0
    seconds_left: float | None = None

    def __str__(self) -> str:
        """One line."""
        done = f"step {self.step:,} of {self.steps:,}, " + self.measured
        return done if self.seconds_left is None else f"{done}, {spelt(self.seconds_left)} left"

    @property
    def measured(self) -> str:
        """Epoch, loss, metrics and pace in words."""
        numbers = {name: value for name, value in self.metrics.items() if isinstance(value, int | float)}
        parts = [f"epoch {self.epoch:.1f}"]
        parts += [] if self.loss is None else [f"loss {self.loss:.3g}"]
        parts += [f"{name} {value:.3g}" for name, value in numbers.items()]
        parts += [f"{self.images_per_second:,.0f} images/s"] if self.images_per_second else []
        return ", ".join(parts)


Watch = Callable[[Glance], None]
"""What ``train(..., progress=...)`` calls a few times a second, and at the end."""


class Console:
    """Shows a run on standard error: loss, metrics, pace and time left.

    >>> train(net, data, epochs=10, progress=Console("ResNet-32"))              # doctest: +SKIP
    ResNet-32: step 1,200 of 3,910, epoch 3.1, loss 0.412, accuracy 0.874, 5,120 images/s, 1 min 15 s left

    Args:
        title: what is trained.
        stream: text file to show it in.
        every: least number of seconds between two lines in a log.
    """

    def __init__(self, title: str = "training", stream: Any = None, every: float = 5.0) -> None:
        self._meter = Meter(title, stream, every)
        self._last: Glance | None = None
        self._said = False

    def __call__(self, glance: Glance) -> None:
        """The run has come this far; the bar begins with the first call."""
        if self._last is None:
            self._meter.begin(glance.steps, glance.step)
        self._last, self._said = glance, False
        self._meter.show(glance.step, glance.measured, self._line)

    def close(self) -> None:
        """The run is over, finished or not; the last line of a log says how far it came."""
        if self._last is not None and not self._said:
            self._meter.line(self._line())
        self._meter.end()
        self._last = None

    def _line(self) -> str:
        self._said = True
        return str(self._last)
