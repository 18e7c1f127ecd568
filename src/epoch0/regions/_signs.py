"""Signs of pre-activations at points: packed into 64-bit words, with what counts as zero apart."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from epoch0.regions._sizes import Decisions

_BAND = 1e6  # how far above the tolerance the smallest decision is looked for
_BLOCK = 1 << 19  # values looked at together: they stay in the cache


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
    words = -(-columns // 64)
    positive = np.zeros((rows, words * 8), dtype=np.uint8)
    limit = tolerance.numpy()
    band = tolerance * _BAND
    near_rows, near_columns = [], []
    block = max(1, _BLOCK // max(1, columns))
    for start in range(0, rows, block):
        part = values[start : start + block]
        positive[start : start + block, : -(-columns // 8)] = np.packbits((part > 0).numpy(), axis=1)
        row, column = np.nonzero((part.abs() <= band).numpy())
        near_rows.append(row + start)
        near_columns.append(column)
    row, column = np.concatenate(near_rows), np.concatenate(near_columns)
    size = np.abs(values.numpy()[row, column])
    is_zero = size <= limit[column]
    if is_zero.all() and values.numel() <= _BLOCK:  # nothing is near: look at everything
        every = np.abs(values.numpy()) / np.maximum(limit, 1e-300)
        ratios = every[every > 1.0]
    else:
        ratios = size[~is_zero] / np.maximum(limit[column[~is_zero]], 1e-300)
    if len(ratios):
        decisions.smallest = min(decisions.smallest, float(ratios.min()) * decisions.relative)
    row, column = row[is_zero], column[is_zero]
    decisions.zeros += len(row)
    zero = None
    if len(row):
        zero = np.zeros_like(positive)
        bit = (128 >> (column & 7)).astype(np.uint8)
        np.bitwise_or.at(zero, (row, column >> 3), bit)
        positive &= ~zero
        zero = zero.view(np.uint64)
    return Signs(positive.view(np.uint64), zero, row, column)


def bits(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every bit that is set, row after row; words of shape (rows, words)."""
    count = words.shape[1]
    flat = words.reshape(-1)
    places = np.flatnonzero(flat)
    found, bit = np.nonzero(np.unpackbits(flat[places].view(np.uint8).reshape(-1, 8), axis=1))
    place = places[found]
    return place // count, (place % count) * 64 + bit
