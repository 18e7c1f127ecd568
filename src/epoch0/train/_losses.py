"""Losses of the steps as plain numbers: read at once on a CPU, in bunches where reading would make a device wait."""

import math

import torch
from torch import Tensor

from epoch0.train.distributed import Group

BUNCH = 32
"""Steps between two looks at the losses on an accelerator; a diverging run ends that many steps late at most."""


class Losses:
    """Keeps losses until they are read, adds those of all ranks, and hears who was interrupted.

    >>> losses = Losses(torch.device("cpu"), Group())
    >>> losses.put(torch.tensor(0.5)), losses.due, losses.read()
    (None, True, [0.5])

    Args:
        device: where the losses are computed.
        group: the ranks that train together.
    """

    def __init__(self, device: torch.device, group: Group) -> None:
        self._group = group
        self.at_once = device.type == "cpu" and group.size == 1
        """Does reading a loss cost nothing, so that it need not be put in here?"""
        self._bunch = 1 if device.type == "cpu" else BUNCH
        self._waiting: list[Tensor] = []
        self.interrupted = False
        """Did some rank get Ctrl-C before the last reading?"""

    def put(self, value: Tensor, weight: float = 1.0) -> None:
        """Add the loss of a step: the mean over this rank's part, and how much of the joint batch that part is."""
        value = value.detach()
        self._waiting.append(value if weight == 1.0 else value * weight if weight else torch.zeros_like(value))

    @property
    def waiting(self) -> bool:
        """Are there losses that were not read yet?"""
        return bool(self._waiting)

    @property
    def due(self) -> bool:
        """Is it time to read?"""
        return len(self._waiting) >= self._bunch

    def read(self, interrupted: bool = False) -> list[float]:
        """The losses put since the last reading, in order, those of the joint batch; all ranks call this together.

        Args:
            interrupted: did this rank get Ctrl-C?
        """
        waiting, self._waiting = self._waiting, []
        if self._group.size == 1:
            self.interrupted = interrupted
            if len(waiting) == 1:
                return [waiting[0].item()]
            found: list[float] = torch.stack(waiting).tolist() if waiting else []
            return found
        flag = torch.tensor([float(interrupted)], dtype=torch.float64, device=self._group.device)
        numbers = torch.cat([flag, *(value.reshape(1).double() for value in waiting)])
        told: list[float] = self._group.added(numbers).tolist()
        self.interrupted = told[0] > 0
        return told[1:]


def first_not_finite(values: list[float]) -> int | None:
    """Where the first NaN or infinity is, None if there is none.

    >>> first_not_finite([1.0, float("inf")])
    1
    """
    return next((place for place, value in enumerate(values) if not math.isfinite(value)), None)
