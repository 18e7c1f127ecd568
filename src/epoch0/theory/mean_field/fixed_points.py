"""Where the variance of the pre-activations settles: the attracting fixed point q* of the variance map (Hayou, B.1)."""

import math

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import ActivationLike, get
from epoch0.errors import InputError
from epoch0.theory.mean_field._arguments import check_scales
from epoch0.theory.mean_field.moments import LOWEST, Moments, moments_of

Array = NDArray[np.float64]

# A step of q smaller than this part of q is no step: the table is not more exact, and no depth would show it.
_STILL = 3e-11
_CHUNK = 4_000_000


def q_star(activation: ActivationLike, weight_std: float, bias_std: float, density: float = 1.0) -> float:
    """The variance q* at which q' = bias_std^2 + density * weight_std^2 * E phi(sqrt(q) Z)^2 settles, from q = 1.

    >>> round(q_star("tanh", 1.700796 ** 0.5, 0.2), 4)
    0.5121
    >>> q_star("tanh", 0.9, 0.0)                            # everything shrinks to nothing
    0.0

    Some activations have several fixed points. This is the one that deep layers reach from pre-activations of variance
    1, which is what normalized inputs give. ReLU at weight_std = sqrt(2) without biases keeps every q; then it is the 1
    it started from.

    Args:
        activation: a name such as "tanh", an Activation, or a numpy or torch function.
        weight_std: sigma_w, the standard deviation of a kept weight times sqrt(fan_in); >= 0.
        bias_std: sigma_b, the standard deviation of a bias; >= 0.
        density: fraction of the weights kept (alpha), in (0, 1].

    Returns:
        The fixed point, >= 0, to about 12 digits.

    Raises:
        InputError: if q grows without bound (the message says from which weight_std on it does); for an unknown
            activation, or a weight_std, bias_std or density out of its range.

    Source: Hayou et al. 2021, B.1.
    """
    moments = moments_of(get(activation))
    check_scales(weight_std, bias_std, density)
    name, kept = moments.activation.name, density * weight_std**2
    q = float(settle(moments, np.array([kept]), np.array([bias_std**2]))[0])
    if math.isinf(q):
        raise InputError(f"q diverges for {name} at weight_std={weight_std:g}, bias_std={bias_std:g}"
                         f"{_at_density(density)}: {why_it_diverges(moments, bias_std, density)}")  # fmt: skip
    return polish(moments, kept, bias_std**2, q)


def _at_density(density: float) -> str:
    return "" if density == 1 else f", density={density:g}"


def why_it_diverges(moments: Moments, bias_std: float, density: float) -> str:
    """The weight_std from which on q grows without bound, as the end of a message."""
    limit = diverges_from(moments, bias_std, density)
    return f"with this bias_std it does from weight_std={limit:.6g} on; take a smaller weight_std."


def diverges_from(moments: Moments, bias_std: float, density: float) -> float:
    """The smallest weight_std with which q, started at 1, grows without bound; infinity if it never does.

    The map increases with q, so q stays bounded exactly if somewhere at or above 1 the map lies below the diagonal.
    """
    q, square, _ = moments.table(400)
    with np.errstate(divide="ignore"):
        bounded = ((q - bias_std**2) / square)[q >= 1]
    best = int(bounded.argmax())
    if best == len(bounded) - 1:
        # still growing at the end: like q without bound if phi is bounded, or towards a limit if phi is like a line
        still = math.log(bounded[-1] / bounded[-401]) if bounded[-401] > 0 else math.inf
        if still > 0.1:
            return math.inf
    return math.sqrt(max(float(bounded[best]), 0.0) / density)


def settle(moments: Moments, kept: Array, bias: Array) -> Array:
    """Where q settles from 1, for many networks at once, to about ten digits.

    Args:
        moments: of the activation.
        kept: density * weight_std^2, shape (n,).
        bias: bias_std^2, shape (n,).

    Returns:
        Shape (n,): the fixed points, infinity where q diverges.
    """
    if not moments.increasing:
        return _iterate(moments, kept, bias)
    # a coarse grid misses fixed points that lie close together, which few networks have: fine for few
    q, square, _ = moments.table(400 if len(kept) < 200 else 20)
    start = int(np.argmin(np.abs(np.log(q))))
    low, high = np.zeros(len(kept)), np.zeros(len(kept))
    for first in range(0, len(kept), rows := max(_CHUNK // len(q), 1)):
        part = slice(first, first + rows)
        low[part], high[part] = _bracket(kept[part], bias[part], q, square, start)
    result = low.copy()
    inside = np.isfinite(high) & (high > low)
    if inside.any():
        result[inside] = _bisect(moments, kept[inside], bias[inside], low[inside], high[inside])
    result[np.isinf(high)] = np.inf
    # below the table the map is a line
    tiny = high < 0
    rate = (moments.square(np.array([LOWEST]))[0] - moments.at_zero) / LOWEST
    line = (bias + kept * moments.at_zero) / np.maximum(1 - kept * rate, 1e-12)
    return np.where(tiny, np.minimum(line, LOWEST), result)


def _bracket(kept: Array, bias: Array, q: Array, square: Array, start: int) -> tuple[Array, Array]:
    """Neighbouring grid points around the fixed point; equal: it is that; high < 0: below; high infinite: none."""
    step = bias[:, None] + kept[:, None] * square - q
    up, down = step > _STILL * q, step < -_STILL * q
    rises, falls = up[:, start], down[:, start]
    # up: the first place where the map lies below the diagonal; down: the last place where it lies above
    after, before = down[:, start:], up[:, : start + 1][:, ::-1]
    next_high, next_low = start + after.argmax(axis=1), start - before.argmax(axis=1)
    low, high = np.full(len(kept), q[start]), np.full(len(kept), q[start])
    low, high = np.where(rises, q[next_high - 1], low), np.where(rises, q[next_high], high)
    high = np.where(rises & ~after.any(axis=1), np.inf, high)
    above = np.minimum(next_low + 1, len(q) - 1)
    low, high = np.where(falls, q[next_low], low), np.where(falls, q[above], high)
    return low, np.where(falls & ~before.any(axis=1), -1.0, high)


def _bisect(moments: Moments, kept: Array, bias: Array, low: Array, high: Array) -> Array:
    """The root of map minus diagonal, which falls from low to high; arrays of shape (n,)."""
    for _ in range(44):
        middle = np.sqrt(low * high)
        above = bias + kept * moments.square(middle) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(np.sqrt(low * high))


def _iterate(moments: Moments, kept: Array, bias: Array) -> Array:
    """The map again and again, where E phi^2 may fall with q.

    It cannot go round in a cycle: d log E phi^2 / d log q = E phi^2 (Z^2 - 1) / (2 E phi^2) >= -1/2, whatever phi is,
    so log q never swings back as far as it came; and a map without a cycle of two has none at all.
    """
    grid, square, _ = moments.table(400)
    logarithm = np.log(grid)
    q, before = np.ones(len(kept)), np.ones(len(kept))
    for layer in range(20_000 if len(kept) < 200 else 2000):
        before = q
        q = bias + kept * np.interp(np.log(np.maximum(q, LOWEST)), logarithm, square)
        if layer % 50 == 49 and (np.abs(q - before) <= 1e-9 * q + LOWEST).all():
            break
    q = np.where((q > moments.top) | ((q > 1e6) & (q > before * (1 + 1e-4))), np.inf, q)
    for _ in range(6):  # the interpolation was a line between points; Newton with the spline
        if (near := np.isfinite(q) & (q > LOWEST)).any():
            at, s, b = q[near], kept[near], bias[near]
            rate = (moments.square(at * 1.0001) - moments.square(at / 1.0001)) / (at * (1.0001 - 1 / 1.0001))
            slope = 1 - s * rate
            step = (b + s * moments.square(at) - at) / np.where(np.abs(slope) < 1e-6, 1e-6, slope)
            q[near] = np.clip(at + step, at / 1.1, at * 1.1)
    return np.where(q <= LOWEST, np.where(bias + kept * moments.at_zero <= LOWEST, 0.0, q), q)


def polish(moments: Moments, kept: float, bias: float, q: float) -> float:
    """The fixed point next to q, by Newton's method with exact quadrature; 0 and what is not attracting stay."""
    if q < LOWEST:
        return q
    for _ in range(3):
        slope = 1 - kept * moments.square_rate(q)
        if slope < 1e-7:  # on the border of stability every step would be rounding over nothing
            return q
        step = (bias + kept * moments.exact_square(q) - q) / slope
        if abs(step) > 0.01 * q:
            return q
        q += step
        if abs(step) <= 1e-15 * q:
            break
    return q
