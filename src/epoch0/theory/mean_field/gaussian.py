"""Means over one Gaussian variable, accurate where the function has kinks or jumps (Hayou et al. 2021, B.1)."""

import math
from collections.abc import Callable
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError

Array = NDArray[np.float64]

# Beyond 12 standard deviations lies 4e-33 of the mass.
_SDS = 12.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
# times (2 k + 1) / 2 each: the two highest Legendre coefficients that 20 nodes can see
_HIGHEST = np.polynomial.legendre.legvander(_NODES, 19)[:, 18:] * (np.array([37.0, 39.0]) / 2)
# Where those are this small against the whole, the error, which goes with their square, is below rounding.
_ROUGH = 1e-12
_MOST_PANELS = 4000
# the mass within 12 standard deviations differs from 1 by less than rounding
_NORMAL = math.sqrt(2 * math.pi)


@overload
def gaussian_mean(f: Callable[[Any], Any], q: float, breaks: tuple[float, ...] = ...) -> float: ...
@overload
def gaussian_mean(f: Callable[[Any], Any], q: Array, breaks: tuple[float, ...] = ...) -> Array: ...
def gaussian_mean(f: Callable[[Any], Any], q: float | Array, breaks: tuple[float, ...] = ()) -> float | Array:
    """E f(sqrt(q) Z) for a standard normal Z, accurate also where f has kinks or jumps.

    >>> gaussian_mean(lambda h: np.maximum(h, 0.0) ** 2, 3.0, breaks=(0.0,))
    1.5
    >>> gaussian_mean(np.abs, np.array([1.0, 4.0]), breaks=(0.0,)).round(6)          # q shape (2,)
    array([0.797885, 1.595769])

    Gauss-Legendre on panels which end at the breaks and shrink towards them and towards 0, so that a feature of width
    about one is resolved however large q is; panels on which f is still rough are halved. At q = 0 the value is the
    limit from above: the mean of f on both sides of 0. Name every break you know: one that is not named is mostly found
    by halving, but not if it hides within 0.3 % of a panel from its end.

    Args:
        f: a function of a float64 array of any shape that returns one of the same shape.
        q: variance of the argument, >= 0; a number, or an array of any shape.
        breaks: points h where f or a derivative of it jumps.

    Returns:
        A float, or an array of the shape of q.

    Raises:
        InputError: if q is negative, NaN or infinite, or f oscillates too fast for so large a q.
    """
    variances = np.asarray(q, dtype=np.float64)
    if not (np.isfinite(variances) & (variances >= 0)).all():
        raise InputError(f"q={q!r} is no variance; it must be finite and >= 0.")
    flat = variances.reshape(-1)
    tiny = np.finfo(np.float64).tiny
    result = np.full(flat.shape, float(np.mean(f(np.array([-tiny, tiny])))))
    positive = flat > 0
    if positive.any():
        result[positive] = _panel_means(f, np.sqrt(flat[positive]), breaks)
    return float(result[0]) if variances.ndim == 0 else result.reshape(variances.shape)


def _panel_means(f: Callable[[Any], Any], scale: Array, breaks: tuple[float, ...]) -> Array:
    """E f(scale Z) for each scale > 0, shape (m,) to shape (m,)."""
    farthest = _SDS * float(scale.max())
    steps = 2.0 ** np.arange(-2, max(math.ceil(math.log2(max(farthest, 1.0))), 0) + 1)
    around = np.concatenate([-steps, [0.0], steps])
    marks = np.unique(np.concatenate([point + around for point in {0.0, *breaks}]))
    # in units of standard deviations, shape (m, edges); marks out of range fold onto the ends, as empty panels
    with np.errstate(over="ignore"):
        inner = np.clip(marks / scale[:, None], -_SDS, _SDS)
    outer = np.broadcast_to(np.linspace(-_SDS, _SDS, 33), (len(scale), 33))
    edges = np.sort(np.concatenate([inner, outer], axis=1), axis=1)
    row, panel = np.nonzero(edges[:, 1:] > edges[:, :-1])
    low, high = edges[row, panel], edges[row, panel + 1]
    total, size = np.zeros(len(scale)), np.zeros(len(scale))  # the integral, and that of the absolute value
    evaluated = len(row)
    while True:
        part, weight, rough = _panels(f, scale[row], low, high)
        size += np.bincount(row, weight, len(scale))
        # rough: the integrand needs more than 20 nodes here, as at a kink that nobody named, or where it oscillates
        split = rough > _ROUGH * size[row]
        total += np.bincount(row, np.where(split, 0.0, part), len(scale))
        if not split.any():
            return total
        size -= np.bincount(row, np.where(split, weight, 0.0), len(scale))
        row, low, high = (np.repeat(values[split], 2) for values in (row, low, high))
        middle = (low + high) / 2
        low[1::2], high[::2] = middle[1::2], middle[::2]
        evaluated += len(row)
        if evaluated > _MOST_PANELS * len(scale):
            raise InputError(
                f"the Gaussian mean does not converge at q={float(scale[row[0]] ** 2):.6g}: the function oscillates "
                "too fast there, or is not continuous at too many points."
            )


def _panels(f: Callable[[Any], Any], scale: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """The integral over each panel, that of the absolute value, and the size of what 20 nodes cannot follow."""
    half = (high - low)[:, None] / 2
    z = (low + high)[:, None] / 2 + half * _NODES
    mass = half * _WEIGHTS * np.exp(-0.5 * z**2) / _NORMAL
    with np.errstate(over="ignore", invalid="ignore"):  # exp(h)^2 for a huge q is infinity, and so is its mean
        values = np.asarray(f(z * scale[:, None]), dtype=np.float64) * mass
        return values.sum(axis=1), np.abs(values).sum(axis=1), np.abs(values @ _HIGHEST).sum(axis=1)
