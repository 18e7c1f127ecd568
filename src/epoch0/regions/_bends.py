"""Where segments bend: new points on a segment between old ones, and the folds that the segment crosses."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Bends:
    """Of each new point the bends of its segment: how far from the straight line a bend of slope 1 pulls it.

    Attributes:
        start: first bend of each point, and their number.
        column: the column that bends there.
        weight: how far, per change of slope.
    """

    start: np.ndarray
    column: np.ndarray
    weight: np.ndarray


def bends(
    position: np.ndarray, begin: np.ndarray, count: np.ndarray, share: np.ndarray, column: np.ndarray,
    at_start: np.ndarray, at_stop: np.ndarray, most: float,
) -> Bends | None:  # fmt: skip
    """The bends of new points; None if there are more than ``most``.

    Args:
        position: of each new point in a list of the bends of all segments, sorted by segment and share.
        begin: where the bends of its segment begin there.
        count: how many there are.
        share: of each bend in the list, where it is on its segment.
        column: what bends.
        at_start: the column's value at the start of the segment.
        at_stop: and at the other end, of the other sign.
        most: bends that are worth it.
    """
    if count.sum() > most:
        return None
    start = np.concatenate([[0], np.cumsum(count)])
    point = np.repeat(np.arange(len(position)), count)
    bend = np.repeat(begin - start[:-1], count) + np.arange(start[-1])
    along = share[position][point]
    before = bend <= position[point]
    weight = np.where(before, np.abs(at_start)[bend] * (along - 1.0), np.abs(at_stop)[bend] * -along)
    return Bends(start, column[bend], weight)
