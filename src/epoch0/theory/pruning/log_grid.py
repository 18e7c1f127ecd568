"""Laws of products on a grid of logarithms, where a product is a sum and a mixture a convolution (THEORY section 4)."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LOW, STEP, SIZE = -16.0, 0.02, 1100
GRID: Array = np.asarray(LOW + STEP * np.arange(SIZE), dtype=np.float64)
"""Logarithms at which laws are known, from -16 to 6: scores are in units of their layer's root mean square."""

_ZERO = round(-LOW / STEP)
_PAD = SIZE + 200  # beyond the grid a kernel is what it is at its ends


def histogram(factors: ArrayLike) -> Array:
    """Where factors lie on the grid of logarithms, each shared between its two neighbours.

    >>> histogram(np.array([1.0, 1.0, 0.0])).sum()               # shape (1100,); zeros count nowhere
    np.float64(2.0)

    Args:
        factors: numbers >= 0, shape (..., n).

    Returns:
        Counts, shape (..., 1100).
    """
    values = np.asarray(factors, dtype=np.float64)
    flat = values.reshape(-1, values.shape[-1])
    row, column = np.nonzero(flat > 0)
    place = np.clip((np.log(flat[row, column]) - LOW) / STEP, 0, SIZE - 1.000001)
    left = place.astype(np.int64)
    share = place - left
    cells = row * SIZE + left
    counts = np.bincount(cells, 1 - share, len(flat) * SIZE) + np.bincount(cells + 1, share, len(flat) * SIZE)
    return np.asarray(counts.reshape(*values.shape[:-1], SIZE))


def times(kernel: Array, *histograms: Array) -> Array:
    """The sum of kernel(log t - log of a product of factors) over all products of one factor from each histogram.

    With a tail function as kernel and histograms that sum to 1 that is the tail function of the product.

    Args:
        kernel: a function of log t on the grid, constant beyond its ends; shape (1100,).
        histograms: counts of factors on the grid, shape (..., 1100), which broadcast together.

    Returns:
        On the grid, shape (..., 1100).
    """
    padded = np.concatenate([np.full(_PAD, kernel[0]), kernel, np.full(_PAD, kernel[-1])])
    length = 1 << math.ceil(math.log2(len(padded) + SIZE * len(histograms)))
    spectrum: NDArray[Any] = np.fft.rfft(padded, length)
    for counts in histograms:
        spectrum = spectrum * np.fft.rfft(counts, length)
    start = _PAD + _ZERO * len(histograms)
    return np.asarray(np.fft.irfft(spectrum, length)[..., start : start + SIZE])
