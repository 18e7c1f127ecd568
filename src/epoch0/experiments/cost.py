"""What a training costs before it is started: runs, weights, images, and images a second measured on this device."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from epoch0.errors import InputError
from epoch0.experiments.experiment import Trial

if TYPE_CHECKING:
    import torch
    from torch import nn

FORWARD_ONLY = 1 / 3
"""Cost of an image that is only passed forward, in training steps: a backward pass takes twice the forward one."""


@dataclass(frozen=True)
class Speed:
    """How fast one configuration trains on this device.

    >>> fast = Speed(1200.0, error=15.0, batch_size=128, flops=1.7e9, peak=60e12)
    >>> round(100 * fast.share, 1)                              # percent of what a large matrix product reaches
    3.4

    Attributes:
        images_per_second: examples of full training steps a second; NaN if it could not be measured.
        error: its standard error over blocks of steps; NaN after a single block.
        batch_size: of the steps that were timed.
        flops: multiplications and additions of one example's training step, forward and backward; NaN if not counted.
        peak: of the device, the same unit a second, measured in the same precision; NaN if not measured.
        note: what is to be said about it, such as that a smaller batch was timed.
    """

    images_per_second: float
    error: float = math.nan
    batch_size: int = 0
    flops: float = math.nan
    peak: float = math.nan
    note: str = ""

    @property
    def share(self) -> float:
        """Fraction of the device's peak."""
        return self.images_per_second * self.flops / self.peak


@dataclass(frozen=True)
class Workload:
    """The training steps of one configuration, to be timed on random data.

    >>> work = Workload(lambda: nn.Linear(64, 10), inputs=(64,), classes=10, batch_size=32)
    >>> work.speed(seconds=1.0, device="cpu").images_per_second > 0
    True

    Attributes:
        model: makes the network, its masks applied.
        inputs: shape of one input.
        classes: number of classes.
        batch_size: examples a step.
        training: further arguments of :func:`epoch0.train.loop.train`: optimizer, precision and the like.
        data: number of examples -> what ``train`` takes as data, of random content but in the form of the real one,
            so that its way to the device is timed too; None: float32 tensors.
    """

    model: "Callable[[], nn.Module]"
    inputs: tuple[int, ...]
    classes: int
    batch_size: int
    training: Mapping[str, Any] = field(default_factory=dict)
    data: Callable[[int], Any] | None = None

    def speed(self, seconds: float, device: "str | torch.device | None" = None) -> Speed:
        """Time full steps of the training loop (data, forward, backward, optimizer) for about so many seconds in all.

        At least one whole step is timed behind one that warms up, however long it takes; where the batch does not fit
        into the seconds or into memory a smaller one is timed, and the note says so. Nothing is raised for a lack of
        memory.

        Args:
            seconds: for everything: building, counting, warming up and timing.
            device: where; None: the one that trials choose.

        Raises:
            InputError: if seconds is not a finite number > 0.
        """
        from epoch0.experiments.step_speed import step_speed

        check_seconds(seconds)
        return step_speed(self, seconds, device)


@dataclass(frozen=True)
class Cost:
    """One line of a dry run: the runs of one configuration.

    >>> work = Workload(lambda: nn.Linear(64, 10), inputs=(64,), classes=10, batch_size=32)
    >>> cost = Cost("linear map, digits", 3, parameters=650, prunable=640, images=1437 * 10, probe=work.speed)
    >>> cost.steps_worth                                        # examples' training steps of one run
    14370.0

    Attributes:
        name: of the configuration, such as ``"ResNet-32 x2, CIFAR-10, SNIP"``.
        runs: how many, all sparsities and repetitions together.
        parameters: of the network.
        prunable: how many of them are weights that masks are put on.
        images: examples one run trains on, all epochs together.
        flops: multiplications and additions of one example's training step; None: counted when it is timed.
        probe: seconds -> images a second of this very configuration on this device, timed for about so long, as
            :meth:`Workload.speed` or a plain number; None: not timed.
        evaluated: examples one run only passes forward (tests, validation).
        trials: the trials these runs are, so that those in a results file already are not counted again.
        timed_as: costs with the same text are timed once; empty: the name.
    """

    name: str
    runs: int
    parameters: int
    prunable: int
    images: int
    flops: float | None = None
    probe: Callable[[float], Speed | float] | None = field(default=None, compare=False)
    evaluated: int = 0
    trials: Sequence[Trial] = field(default=(), compare=False, repr=False)
    timed_as: str = ""

    def __post_init__(self) -> None:
        counts = {"runs": self.runs, "parameters": self.parameters, "prunable": self.prunable, "images": self.images,
                  "evaluated": self.evaluated}  # fmt: skip
        wrong = [name for name, count in counts.items() if isinstance(count, bool) or not isinstance(count, int)]
        wrong += [name for name, count in counts.items() if name not in wrong and count < 0]
        if wrong:
            raise InputError(f"the cost of {self.name!r} has {wrong[0]}={counts[wrong[0]]!r}; it is an integer >= 0.")
        if self.prunable > self.parameters:
            raise InputError(
                f"the cost of {self.name!r} has {self.prunable} prunable weights of {self.parameters} parameters; "
                "there are at least as many parameters."
            )

    @property
    def steps_worth(self) -> float:
        """Training steps of single examples that take as long as one run."""
        return self.images + FORWARD_ONLY * self.evaluated


def check_seconds(seconds: float) -> None:
    """Refuse a time that nothing can be measured in.

    Raises:
        InputError: if it is not a finite number > 0.
    """
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not (number and math.isfinite(seconds) and seconds > 0):
        raise InputError(f"seconds={seconds!r}; give a finite number > 0, such as 20.")
