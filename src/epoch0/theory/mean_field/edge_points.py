"""The search for points on the edge of chaos: each is one root in the variance q, found to rounding by quadrature."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epoch0.theory.mean_field.edge_arrays import NOTHING, SIGN
from epoch0.theory.mean_field.fixed_points import settle
from epoch0.theory.mean_field.moments import Moments

Array = NDArray[np.float64]

_SETTLED = 1e-3


@dataclass(frozen=True)
class EdgePoint:
    """A fixed point with chi = 1: does it attract the variance, and from q = 1?"""

    weight_std: float
    bias_std: float
    q: float
    attracts: bool
    reached: bool


def edge_points(moments: Moments, bias_std: float | None, weight_std: float | None, density: float) -> list[EdgePoint]:
    """All fixed points with chi = 1 and this bias_std or weight_std, by growing q."""
    q, square, slope = moments.table(400)
    if not (slope > NOTHING).all():
        q, square, slope = (column[slope > NOTHING] for column in (q, square, slope))
    found: list[float] = []
    if weight_std is None:
        assert bias_std is not None
        bias = bias_std**2
        # relative to the largest term: for sigmoid E phi^2 / E phi'^2 is far larger than q where q is small
        residual = (q - square / slope - bias) / np.maximum(q, square / slope)
        for low, high in _changes(q, residual):
            found += _root(lambda v: v - moments.exact_square(v) / moments.exact_slope(v) - bias, low, high)
        at_zero = bias == 0
    else:
        target = density * weight_std**2
        residual = 1 - slope * target
        for low, high in _changes(q, residual):
            found += _root(lambda v: 1 - moments.exact_slope(v) * target, low, high)
        at_zero = abs(target * moments.slope_at_zero - 1) < 1e-9
    points = []
    for v in found:
        kept = 1 / moments.exact_slope(v)
        bias = bias_std**2 if bias_std is not None else v - kept * moments.exact_square(v)
        if bias >= -SIGN * v:
            points.append(_point(moments, kept, max(bias, 0.0), v, density, weight_std, bias_std))
    if at_zero and moments.at_zero < 1e-20 and moments.slope_at_zero > 0:
        points.insert(0, _point(moments, 1 / moments.slope_at_zero, 0.0, 0.0, density, weight_std, bias_std))
    return points


def _point(
    moments: Moments, kept: float, bias: float, q: float, density: float, weight_std: float | None,
    bias_std: float | None,
) -> EdgePoint:  # fmt: skip
    if q == 0:
        near, square, _ = moments.table(20)
        attracts = bool((kept * square <= near * (1 + SIGN))[near <= 1e-2].all())
    else:
        attracts = abs(kept * moments.square_rate(q)) < 1
    settled = float(settle(moments, np.array([kept]), np.array([bias]))[0])
    reached = attracts and abs(settled - q) <= _SETTLED * q + 1e-5
    return EdgePoint(
        math.sqrt(kept / density) if weight_std is None else weight_std,
        math.sqrt(bias) if bias_std is None else bias_std, q, attracts, reached,
    )  # fmt: skip


def _changes(q: Array, residual: Array) -> list[tuple[float, float]]:
    """Where the residual changes its sign, residuals without a sign left out."""
    signed = np.flatnonzero(np.abs(residual) > SIGN)
    sign = np.sign(residual[signed])
    change = np.flatnonzero(sign[1:] != sign[:-1])
    return [(float(q[signed[i]]), float(q[signed[i + 1]])) for i in change]


def _root(residual: Callable[[float], float], low: float, high: float) -> list[float]:
    """The root between, by exact quadrature; none if that does not confirm the signs which the table saw."""
    from scipy.optimize import brentq

    if residual(low) * residual(high) >= 0:
        return []
    return [math.exp(brentq(lambda x: residual(math.exp(x)), math.log(low), math.log(high), xtol=1e-14, rtol=1e-14))]
