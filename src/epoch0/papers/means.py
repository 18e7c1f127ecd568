"""Means over networks (or whatever is repeated independently) with their standard errors, for the papers' tables."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def mean_and_error(values: Array) -> tuple[Any, Any]:
    """Mean over the first axis and its standard error; the error of a single value is NaN.

    >>> mean_and_error(np.array([1.0, 2.0, 3.0]))               # shape (networks, ...) gives (...)
    (2.0, 0.5773502691896258)

    Args:
        values: shape (networks, ...), at least one network.

    Returns:
        Two floats for one axis, else two arrays.
    """
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else np.full_like(mean, math.nan)
    return (float(mean), float(error)) if np.ndim(mean) == 0 else (mean, error)
