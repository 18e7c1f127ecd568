"""How far apart inputs are: lengths, and 1 - c with its relative precision, for every pair."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError, check_finite

Array = NDArray[np.float64]

# Below this, 1 - c from a product of matrices has lost three digits; the difference of the inputs has not.
_NEAR = 1e-2
_NUMBERS_AT_ONCE = 4_000_000


def as_inputs(name: str, x: Any) -> Array:
    """The inputs as a float64 array of shape (n, d), or an error that says what is wrong with them."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
    try:
        array = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} of type {type(x).__name__} is no array of numbers of shape (n, d).") from None
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{name} has shape {array.shape}; it must be (n, d): n >= 1 inputs of d >= 1 numbers each.")
    check_finite(name, array)
    return array


def pair_gaps(first: Array, second: Array, fold: bool) -> tuple[Array, Array]:
    """1 - c of every pair of rows, and the sign that was taken off; (n1, d) and (n2, d) to (n1, n2) twice.

    >>> gaps, signs = pair_gaps(np.array([[1.0, 0.0]]), np.array([[1.0, 1e-9], [-2.0, 0.0]]), fold=True)
    >>> gaps, signs
    (array([[5.e-19, 0.e+00]]), array([[ 1., -1.]]))

    Args:
        first: vectors, one a row.
        second: vectors, one a row.
        fold: whether to give 1 - abs(c) and the sign of c (for an odd phi without biases, which keeps signs apart from
            the rest); otherwise every sign is 1.

    Returns:
        Gaps in [0, 2] and signs. Equal rows have a gap of exactly 0. A row of zeros is at a right angle to every other
        and equal to another row of zeros.
    """
    lengths = [np.sqrt(np.einsum("id,id->i", one, one)) for one in (first, second)]
    units = [one / np.where(n > 0, n, 1.0)[:, None] for one, n in zip((first, second), lengths, strict=True)]
    cosine = np.clip(units[0] @ units[1].T, -1.0, 1.0)
    signs = np.where(cosine < 0, -1.0, 1.0) if fold else np.ones(cosine.shape)
    gaps = 1 - cosine * signs
    rows, columns = np.nonzero(gaps < _NEAR)
    step = max(1, _NUMBERS_AT_ONCE // first.shape[1])
    for start in range(0, len(rows), step):
        i, j = rows[start : start + step], columns[start : start + step]
        difference = second[j] * signs[i, j][:, None] - first[i]
        # the part of the difference across the first vector is the sine times the second's length
        difference -= np.einsum("pd,pd->p", difference, units[0][i])[:, None] * units[0][i]
        sine = np.einsum("pd,pd->p", difference, difference) / lengths[1][j] ** 2
        gaps[i, j] = sine / (1 + np.sqrt(np.clip(1 - sine, 0.0, 1.0)))
    both = (lengths[0] == 0)[:, None] & (lengths[1] == 0)[None, :]
    gaps[both] = 0.0
    return gaps, signs
