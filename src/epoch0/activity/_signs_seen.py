"""Distinct sign vectors along a sequence of flips: exact codes up to 60 inputs, 128-bit hashes beyond (Raghu B.3)."""

import numpy as np

from epoch0.seeds import numpy_generator

EXACT_INPUTS = 60
"""Inputs up to which a sign vector is one integer; beyond, vectors are told apart by random 128-bit sums."""


def seen(first: np.ndarray, flips: np.ndarray) -> np.ndarray:
    """Distinct sign vectors so far: at the start, and after each flip.

    >>> seen(np.array([True, False]), np.array([0, 1, 1, 0]))
    array([1, 2, 3, 3, 3])

    Args:
        first: the signs at the start, shape (inputs,), bool.
        flips: which input's sign flips, one after another, shape (flips,).
    """
    inputs = len(first)
    if inputs <= EXACT_INPUTS:
        bits = np.left_shift(np.int64(1), np.arange(inputs, dtype=np.int64))
        codes = _along(np.bitwise_or.reduce(bits[first], initial=np.int64(0)), bits[flips])
    else:  # two sign vectors of n share a sum with probability below n^2 / 2^129
        words = numpy_generator(0, inputs).integers(0, 2**64, size=(2, inputs), dtype=np.uint64)
        parts = [_along(np.bitwise_xor.reduce(w[first], initial=np.uint64(0)), w[flips]) for w in words]
        codes = np.empty(len(flips) + 1, dtype=[("high", np.uint64), ("low", np.uint64)])
        codes["high"], codes["low"] = parts
    new = np.zeros(len(codes), dtype=np.int64)
    new[np.unique(codes, return_index=True)[1]] = 1
    return np.asarray(new.cumsum())


def _along(start: np.integer, changes: np.ndarray) -> np.ndarray:
    return np.asarray(np.bitwise_xor.accumulate(np.concatenate([[start], changes], dtype=changes.dtype)))
