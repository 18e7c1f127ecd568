"""Means and their standard errors."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Mean(NamedTuple):
    """A mean and its standard error, numbers or arrays of one shape."""

    mean: Any
    error: Any


def mean_and_error(values: Any) -> Mean:
    """Mean over the first axis and its standard error, which is NaN for a single value.

    >>> mean_and_error(np.array([1.0, 2.0, 3.0]))               # shape (runs, ...) gives (...)
    Mean(mean=2.0, error=0.5773502691896258)
    """
    values = np.asarray(values, dtype=np.float64)
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else np.full_like(mean, math.nan)
    return Mean(float(mean), float(error)) if np.ndim(mean) == 0 else Mean(mean, error)


def means(values: Iterable[Any]) -> Mean:
    """Mean and error of each of several settings, (runs,) each: two arrays (settings,)."""
    return Mean(*np.transpose([mean_and_error(one) for one in values]))


def slopes(values: Array) -> Array:
    """Least-squares slope of values along the last axis, a step apart, shape (...) of (..., places)."""
    places = np.arange(values.shape[-1]) - (values.shape[-1] - 1) / 2
    return np.asarray(values @ places / (places @ places))


def columns_of(**values: Array) -> dict[str, float]:
    """Two columns of a row for each name: the mean over the first axis, and its standard error as ``name_error``."""
    each = {name: mean_and_error(one) for name, one in values.items()}
    return {f"{name}{part}": one[i] for name, one in each.items() for i, part in enumerate(("", "_error"))}


def mean_growth(growth: Array) -> tuple[float, float, int]:
    """Mean over all layers of all networks, its standard error over networks, and the networks that count.

    A layer that nothing reaches has no growth factor. The others count alike: a mean of each network's own mean would
    give the layers before a death more weight, among them the one that killed, and understate.

    Args:
        growth: shape (networks, layers), NaN where nothing reached the layer.
    """
    alive = ~np.isnan(growth)
    kept = alive.any(axis=1)
    total, count = np.where(alive, growth, 0.0)[kept].sum(axis=1), alive[kept].sum(axis=1)
    return (*ratio_of_sums(total, count), len(total))


def ratio_of_sums(above: Array, below: Array) -> Mean:
    """The sum of some numbers over that of others, of the same independent runs, and its standard error."""
    runs, mean = len(above), above.sum() / below.sum()
    if runs < 2:
        return Mean(float(mean), math.nan)
    spread = math.sqrt(float(((above - mean * below) ** 2).sum()) / (runs - 1))
    return Mean(float(mean), spread / float(below.mean()) / math.sqrt(runs))
