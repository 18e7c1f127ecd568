"""Looks at values block by block, while they lie in the cache: which are positive, and which are near zero."""

import numpy as np
import torch
from torch import Tensor

BAND = 1e6  # how far above the tolerance the smallest decision is looked for
_BLOCK = 1 << 16  # values looked at together: they stay in the cache


class Watch:
    """What is seen of the values of some rows; every row is shown once, by whoever has it at hand.

    Attributes:
        positive: which values are above zero, (rows, columns).
        starts, least: first row of each block that was shown, and the least absolute value there.
        widest: the largest tolerance, times the band in which the smallest decision is looked for.
        narrowest: the smallest.
    """

    def __init__(self, rows: int, tolerance: Tensor) -> None:
        self._band = BAND * (tolerance[0] if len(tolerance) == 1 else tolerance.amax(dim=0))
        self.widest, self.narrowest = float(self._band.max()), float(self._band.min())
        self.positive = torch.empty(rows, len(self._band), dtype=torch.bool, device=tolerance.device)
        self.starts: list[int] = []
        self.least: list[float] = []
        self._close: list[Tensor] = []
        self._above, self._room = _array(self.positive), np.empty((0, 0))
        self._shown = 0

    def __call__(self, first: int, rows: np.ndarray) -> None:
        """Look at some rows, on the CPU.

        Args:
            first: number of the first.
            rows: they themselves, (rows, columns); few enough for the cache.
        """
        count = len(rows)
        self._shown += count
        if len(self._room) < count:
            self._room = np.empty(rows.shape)
        size = self._room[:count]
        np.greater(rows, 0.0, out=self._above[first : first + count])  # four times as quick as torch compares
        least = float(np.abs(rows, out=size).min())
        self.starts.append(first)
        self.least.append(least)
        if least <= self.widest:
            self._near(first, torch.from_numpy(size))

    def finish(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Look at all rows if they were not shown; rows and columns of what is near zero."""
        if self._shown:
            assert self._shown == len(values)
        elif values.device.type == "cpu":
            self._look(values)
        else:
            torch.gt(values, 0.0, out=self.positive)
            size = values.abs()
            self.starts.append(0)
            self.least.append(float(size.amin()))
            self._near(0, size)
        none = torch.empty(0, 2, dtype=torch.int64, device=values.device)
        near = torch.cat(self._close) if self._close else none
        return near[:, 0], near[:, 1]

    def _look(self, values: Tensor) -> None:
        some, numbers = max(1, _BLOCK // values.shape[1]), values.numpy()
        for start in range(0, len(numbers), some):
            self(start, numbers[start : start + some])

    def _near(self, first: int, size: Tensor) -> None:
        if len(found := nonzero(size <= self._band)):
            found[:, 0] += first
            self._close.append(found)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.numpy() if tensor.device.type == "cpu" else np.empty((0, 0))


def nonzero(mask: Tensor) -> Tensor:
    """Indices of the true entries, (entries, 2); eight at a time, as almost all are false."""
    columns = mask.shape[1]
    if columns % 8 or not mask.is_contiguous():
        return mask.nonzero()
    words = mask.view(torch.int64).view(-1)
    on_cpu = words.device.type == "cpu"  # numpy looks for them three times as quick as torch
    place = torch.from_numpy(np.flatnonzero(words.numpy() != 0)) if on_cpu else words.nonzero()[:, 0]
    eight = mask.view(-1, 8)[place].nonzero()
    entry = 8 * place[eight[:, 0]] + eight[:, 1]
    return torch.stack([entry // columns, entry % columns], dim=1)
