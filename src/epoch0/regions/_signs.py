"""Signs of pre-activations at points: packed into 64-bit words, with what counts as zero apart."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from epoch0.regions._sizes import Decisions

_BAND = 1e6  # how far above the tolerance the smallest decision is looked for
_BLOCK = 1 << 16  # values looked at together: they stay in the cache
_WORD = np.dtype("<u8")


@dataclass(frozen=True)
class Signs:
    """Signs of every column at every row.

    Attributes:
        positive: bit set where the value is above the tolerance, shape (rows, words).
        zero: bit set where it counts as zero, or None if that is nowhere.
        zero_row, zero_column: the zeros one by one.
    """

    positive: np.ndarray
    zero: np.ndarray | None
    zero_row: np.ndarray
    zero_column: np.ndarray


def read(values: Tensor, tolerance: Tensor, decisions: Decisions) -> Signs:
    """Signs of values (rows, columns) by a tolerance for every column; the closest decision goes to ``decisions``."""
    rows, columns = values.shape
    numbers, limit = values.numpy(), tolerance.numpy()
    positive = np.zeros((rows, -(-columns // 64) * 8), dtype=np.uint8)
    size, band = np.empty((max(1, _BLOCK // max(1, columns)), columns)), limit * _BAND
    truth = np.empty(size.shape, dtype=bool)
    near_rows, near_columns = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for start in range(0, rows, len(size)):
        part = numbers[start : start + len(size)]
        some, found = size[: len(part)], truth[: len(part)]
        np.greater(part, 0.0, out=found)
        positive[start : start + len(part), : -(-columns // 8)] = np.packbits(found, axis=1, bitorder="little")
        np.less_equal(np.abs(part, out=some), band, out=found)
        if found.any():
            row, column = np.nonzero(found)
            near_rows.append(row + start)
            near_columns.append(column)
    row, column = np.concatenate(near_rows), np.concatenate(near_columns)
    near = np.abs(numbers[row, column])
    is_zero = near <= limit[column]
    if is_zero.all() and numbers.size <= _BLOCK:  # nothing is near: look at everything
        every = np.abs(numbers) / np.maximum(limit, 1e-300)
        ratios = every[every > 1.0]
    else:
        ratios = near[~is_zero] / np.maximum(limit[column[~is_zero]], 1e-300)
    if len(ratios):
        decisions.smallest = min(decisions.smallest, float(ratios.min()) * decisions.relative)
    row, column = row[is_zero], column[is_zero]
    decisions.zeros += len(row)
    zero = None
    if len(row):
        zero = np.zeros_like(positive)
        bit = (1 << (column & 7)).astype(np.uint8)
        np.bitwise_or.at(zero, (row, column >> 3), bit)
        positive &= ~zero
        zero = zero.view(_WORD)
    return Signs(positive.view(_WORD), zero, row, column)


def bits(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every bit that is set, row after row; words of shape (rows, words)."""
    flat = words.reshape(-1)
    places = np.flatnonzero(flat != 0)
    left = flat[places]
    found, rounds = [], []
    active = np.arange(len(places))
    while len(active):  # the lowest bit of every word that has one left
        lowest = left & (~left + np.uint64(1))
        found.append(active)
        rounds.append(np.frexp(lowest.astype(np.float64))[1] - 1)
        left = left ^ lowest
        more = left != 0
        active, left = active[more], left[more]
    count = np.zeros(len(places), dtype=np.int64)
    for active in found:
        count[active] += 1
    start = np.cumsum(count) - count
    column = np.empty(int(count.sum()), dtype=np.int64)
    for number, (active, bit) in enumerate(zip(found, rounds, strict=True)):
        column[start[active] + number] = bit
    place = np.repeat(places, count)
    return place // words.shape[1], (place % words.shape[1]) * 64 + column
