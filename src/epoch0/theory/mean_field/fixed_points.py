"""Where the variance q and correlations settle with depth, and the way there layer by layer (Hayou 2021, B.1)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from epoch0.activations import Activation, ActivationLike, get
from epoch0.arguments import Density, Std, checked
from epoch0.errors import InputError
from epoch0.theory.checks import Array, continuous, scales_in_words
from epoch0.theory.mean_field.correlations import pair_mean
from epoch0.theory.mean_field.moments import LOWEST, Moments, mean_slope, mean_square, moments_of

# A step of q smaller than this part of q is no step: the table is not more exact, and no depth would show it.
_STILL = 3e-11
_CHUNK = 4_000_000
# chi closer to 1 than this is 1: q* itself is not more exact.
_ON_THE_EDGE = 1e-9


@checked
def q_star(activation: ActivationLike, weight_std: Std, bias_std: Std, density: Density = 1.0) -> float:
    """The variance q* at which q' = bias_std^2 + density * weight_std^2 * E phi(sqrt(q) Z)^2 settles, from q = 1.

    >>> round(q_star("tanh", 1.700796 ** 0.5, 0.2), 4)
    0.5121
    >>> q_star("tanh", 0.9, 0.0)                            # everything shrinks to nothing
    0.0

    Of several fixed points it is the one that deep layers reach from pre-activations of variance 1, as of normalized
    inputs; ReLU at weight_std = sqrt(2) without biases keeps that 1. To about 12 digits; an InputError if q diverges.

    Source: Hayou et al. 2021, B.1.
    """
    moments = moments_of(get(activation))
    if math.isinf(q := reached(moments, density * weight_std**2, bias_std**2)):
        at, why = scales_in_words(weight_std, bias_std, density), why_it_diverges(moments, bias_std, density)
        raise InputError(f"q diverges for {moments.activation.name} at {at}: {why}.")
    return q


def reached(moments: Moments, kept: float, bias: float) -> float:
    """Where q settles from 1, to about 12 digits; infinity where it diverges.

    By Newton's method with exact quadrature; 0 and what is not attracting stay as :func:`settled_q` has them.
    """
    if math.isinf(q := float(settled_q(moments, np.array([kept]), np.array([bias]))[0])) or q < LOWEST:
        return q
    for _ in range(3):
        slope = 1 - kept * moments.square_rate(q)
        if slope < 1e-7:  # on the border of stability every step would be rounding over nothing
            return q
        step = (bias + kept * mean_square(moments.activation, q) - q) / slope
        if abs(step) > 0.01 * q:
            return q
        q += step
        if abs(step) <= 1e-15 * q:
            break
    return q


def why_it_diverges(moments: Moments, bias_std: float, density: float) -> str:
    """The smallest weight_std with which q, started at 1, grows without bound, as the end of a message.

    The map increases with q, so q stays bounded exactly if somewhere at or above 1 the map lies below the diagonal.
    """
    q, square, _ = moments.table(400)
    with np.errstate(divide="ignore"):
        bounded = ((q - bias_std**2) / square)[q >= 1]
    limit = math.sqrt(max(float(bounded.max()), 0.0) / density)
    # still growing at the end: like q without bound if phi is bounded, or towards a limit if phi is like a line
    last, before = bounded[-1], bounded[-401]
    if last == bounded.max() and (before <= 0 or math.log(last / before) > 0.1):
        limit = math.inf
    return f"with this bias_std it does from weight_std={limit:.6g} on; take a smaller weight_std"


def settled_q(moments: Moments, kept: Array, bias: Array) -> Array:
    """Where q settles from 1, for many networks at once, to about ten digits; infinity where it diverges.

    It is the next fixed point on the side to which q moves first, also where E phi^2 falls with q: there is no cycle,
    since d log E phi^2 / d log q = E phi^2 (Z^2 - 1) / (2 E phi^2) >= -1/2, whatever phi is. ``kept`` is
    density * weight_std^2 and ``bias`` bias_std^2, of one shape (n,).
    """
    # a coarse grid misses fixed points that lie close together, which few networks have: fine for few
    q, square, _ = moments.table(400 if len(kept) < 200 else 20)
    start = int(np.argmin(np.abs(np.log(q))))
    low, high = np.zeros(len(kept)), np.zeros(len(kept))
    for first in range(0, len(kept), rows := max(_CHUNK // len(q), 1)):
        part = slice(first, first + rows)
        low[part], high[part] = _bracket(kept[part], bias[part], q, square, start)
    result = low.copy()
    if (inside := np.isfinite(high) & (high > low)).any():
        at, more, below, above = (item[inside] for item in (kept, bias, low, high))
        for _ in range(44):  # map minus diagonal falls from one end to the other
            middle = np.sqrt(below * above)
            rises = more + at * moments.square(middle) > middle
            below, above = np.where(rises, middle, below), np.where(rises, above, middle)
        result[inside] = np.sqrt(below * above)
    result[np.isinf(high)] = np.inf
    # below the table the map is a line
    tiny, rate = high < 0, (moments.square(np.array([LOWEST]))[0] - moments.at_zero) / LOWEST
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
    low = np.where(rises, q[next_high - 1], np.where(falls, q[next_low], q[start]))
    high = np.where(rises, q[next_high], np.where(falls, q[np.minimum(next_low + 1, len(q) - 1)], q[start]))
    return low, np.select([falls & ~before.any(axis=1), rises & ~after.any(axis=1)], [-1.0, np.inf], high)


@checked
def correlation_map(
    activation: ActivationLike,
    weight_std: Std,
    bias_std: Std,
    c: ArrayLike,
    q: float | None = None,
    density: Density = 1.0,
) -> Array:
    """Correlation of two inputs' next pre-activations, both inputs of one variance: f(c), with f(1) = 1.

    >>> correlation_map("relu", 2 ** 0.5, 0.0, np.array([0.0, 0.5, 1.0])).round(6)               # shape (3,)
    array([0.31831 , 0.608998, 1.      ])

    Convex on [0, 1] for every activation. ``q`` is the inputs' variance; None: the fixed point q*, as after many
    layers, or the limit towards 0 where that is 0. An InputError if weight_std and bias_std are both 0, or q diverges.

    Source: Hayou et al. 2021, B.1.
    """
    rule = get(activation)
    if weight_std == 0 == bias_std:
        raise InputError("weight_std=0, bias_std=0 make every pre-activation 0; a correlation needs one of them > 0.")
    variance = q_star(rule, weight_std, bias_std, density) if q is None else q
    return _map(rule, weight_std, bias_std, c, max(variance, 1e-12) if bias_std == 0 else variance, density)


def _map(rule: Activation, weight_std: float, bias_std: float, c: ArrayLike, q: float, density: float) -> Array:
    # the same quadrature above and below, so that f(1) = 1 to the last digit
    if (whole := bias_std**2 + density * weight_std**2 * float(pair_mean(rule, q, q, 1.0))) == 0:
        raise InputError(f"{rule.name} maps everything to 0 at q={q:g}: there is no correlation.")
    return np.asarray(np.clip((bias_std**2 + density * weight_std**2 * pair_mean(rule, q, q, c)) / whole, -1.0, 1.0))


@checked
def c_star(activation: ActivationLike, weight_std: Std, bias_std: Std, density: Density = 1.0) -> float:
    """The correlation at which two different inputs settle in a deep network; 1 in the ordered phase and on the edge.

    >>> c_star("tanh", 1.0, 0.3), round(c_star("tanh", 2.0, 0.3), 6)
    (1.0, 0.263895)

    f is convex on [0, 1] and f(1) = 1, so there is exactly one stable fixed point: 1 if f'(1) = chi <= 1, else the one
    below. Where the variance tends to 0, all pre-activations become the same, and c* is 1.

    Source: Hayou et al. 2021, B.1.
    """
    rule = continuous(activation)
    return settled_correlation(rule, weight_std, bias_std, q_star(rule, weight_std, bias_std, density), density)


def settled_correlation(rule: Activation, weight_std: float, bias_std: float, q: float, density: float) -> float:
    """:func:`c_star` at a fixed point q that is already known."""
    from scipy.optimize import brentq

    if q == 0 or density * weight_std**2 * mean_slope(rule, q) <= 1 + _ON_THE_EDGE:
        return 1.0

    def excess(c: float) -> float:
        return float(_map(rule, weight_std, bias_std, c, q, density)) - c

    if excess(0.0) <= 1e-14:  # an odd phi without biases
        return 0.0
    away = 0.5
    while excess(1 - away) >= 0:
        away /= 4
        if away < 1e-9:
            return 1.0
    return float(brentq(excess, 0.0, 1 - away, xtol=1e-14, rtol=1e-13))


@dataclass(frozen=True)
class DepthScale:
    """After how many layers a difference of q, or of a correlation, has shrunk by e; xi_c is how deep one can train."""

    xi_q: float
    xi_c: float


@checked
def depth_scale(activation: ActivationLike, weight_std: Std, bias_std: Std, density: Density = 1.0) -> DepthScale:
    """The depth scales xi_q = -1 / log of the q map's slope at q*, and xi_c = -1 / log f'(c*).

    >>> scale = depth_scale("tanh", 1.0, 0.3)
    >>> round(scale.xi_q, 3), round(scale.xi_c, 3)
    (1.337, 2.807)

    In layers; 0 where a single layer removes the difference, and on the edge of chaos xi_c is infinite. Where q* is 0
    both are those of the differences themselves, -1 / log chi.

    Source: Schoenholz et al. 2017, section 3; Hayou et al. 2021, B.1.
    """
    rule = continuous(activation)
    q = q_star(rule, weight_std, bias_std, density)
    return scales_at(rule, weight_std, q, settled_correlation(rule, weight_std, bias_std, q, density), density)


def scales_at(rule: Activation, weight_std: float, q: float, c: float, density: float) -> DepthScale:
    """:func:`depth_scale` at fixed points q and c that are already known."""
    moments, kept = moments_of(rule), density * weight_std**2
    slope = kept * (mean_slope(rule, q) if c == 1 or q == 0 else float(pair_mean(rule, q, q, c, derivative=True)))
    return DepthScale(_layers(kept * moments.square_rate(q)), _layers(slope))


def _layers(slope: float) -> float:
    """How many layers of that slope shrink a difference by e."""
    if slope == 0:
        return 0.0
    logarithm = math.log(abs(slope))
    return math.inf if logarithm >= -_ON_THE_EDGE else -1 / logarithm
