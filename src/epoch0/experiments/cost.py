"""What trainings cost before they are started: the steps to do, and the seconds a step takes on this device."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from epoch0.experiments.engine import one_thread
from epoch0.experiments.experiment import Trial
from epoch0.seeds import generator
from epoch0.train.device import autocast, chosen_device
from epoch0.train.stacked import Stacked


@dataclass(frozen=True)
class Cost:
    """One line of a dry run: the trials of one configuration, and what one of their training steps is."""

    name: str  #: of the configuration, such as "ResNet-32 x2, CIFAR-10"; costs of one name are timed once
    trials: Sequence[Trial] = field(repr=False)  #: its runs
    model: Callable[[], nn.Module] = field(repr=False)  #: makes the network, or a stack of networks
    inputs: tuple[int, ...]
    classes: int
    batch_size: int
    images: int  #: examples one run trains on, all epochs together
    evaluated: int = 0  #: examples it only passes forward

    @property
    def steps(self) -> float:
        """Training steps that take as long as one run; a backward pass takes twice as long as a forward one."""
        return (self.images + self.evaluated / 3) / self.batch_size

    def seconds_a_step(self, seconds: float) -> float:
        """Time of a training step with one thread, on random data, measured for about so long. If the whole batch does
        not fit into that, its time is extrapolated linearly from the two largest that did.
        """
        device = chosen_device()
        model = self.model().to(device).train()
        loss = model.loss(nn.functional.cross_entropy) if isinstance(model, Stacked) else nn.functional.cross_entropy
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-9, momentum=0.9)
        x = torch.randn(self.batch_size, *self.inputs, generator=generator(0)).to(device)
        y = torch.randint(self.classes, (self.batch_size,), generator=generator(1)).to(device)

        def timed(size: int) -> float:
            begun = time.perf_counter()
            with autocast(device, "auto"):
                outputs = model(x[:size])
            optimizer.zero_grad()
            loss(outputs.float(), y[:size]).backward()
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return time.perf_counter() - begun

        with one_thread():
            size, slope = min(2, self.batch_size), 0.0  # the smallest batch that batch norm can train on
            end, took = time.perf_counter() + seconds, min(timed(size), timed(size))  # new memory slows the first
            while size < self.batch_size and (not slope or 8 * took < end - time.perf_counter()):
                larger = min(4 * size, self.batch_size)
                again = min(timed(larger), timed(larger))
                slope, size, took = max(again - took, 1e-9) / (larger - size), larger, again
            return took + slope * (self.batch_size - size)
