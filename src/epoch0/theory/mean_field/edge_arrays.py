"""The whole edge of chaos of an activation over a grid of the variance q: all of it at once, to about ten digits."""

import numpy as np
from numpy.typing import NDArray

from epoch0.theory.mean_field.moments import Moments

Array = NDArray[np.float64]

SIGN = 1e-10
"""The table's own error; smaller relative residuals have no sign."""
NOTHING = 1e-28
"""A moment below this is an underflow of the table, as for a phi that is flat around 0."""


def scale_free(moments: Moments) -> bool:
    """Whether E phi^2 = q E phi'^2 for every q, as for ReLU: then the edge is one point, without biases."""
    q, square, slope = moments.table(20)
    return bool((np.abs(square / (q * slope) - 1) < SIGN).all())


def edge_arrays(moments: Moments) -> tuple[Array, Array, Array]:
    """The attracting part of the edge over a grid of q: q, density * weight_std^2 and bias_std^2, each shape (n,)."""
    q, square, slope = moments.table(400)
    logarithmic = np.gradient(np.log(np.maximum(square, 1e-300)), np.log(q))
    with np.errstate(divide="ignore", over="ignore"):
        kept = 1 / slope
        bias = q - square * kept
        # next to 0 both conditions are decided by rounding
        attracts = np.abs(logarithmic * square * kept / q) < 1 - 1e-6
        attracts &= (slope > NOTHING) & (square > NOTHING) & (q < moments.top / 10)
    inside = attracts & (bias >= 10 * SIGN * q)
    # where the edge begins or ends at bias_std = 0, between two points of the grid
    crosses = (bias[1:] * bias[:-1] < 0) & (np.abs(bias[1:]) > 1e-7 * q[1:])
    starts = np.flatnonzero(crosses & attracts[1:] & attracts[:-1])
    share = bias[starts] / (bias[starts] - bias[starts + 1])
    between = [column[starts] + share * (column[starts + 1] - column[starts]) for column in (q, kept)]
    order = np.argsort(np.concatenate([q[inside], between[0]]), kind="stable")
    columns = ((q, between[0]), (kept, between[1]), (bias, np.zeros(len(starts))))
    first, second, third = (np.concatenate([column[inside], extra])[order] for column, extra in columns)
    return first, second, third
