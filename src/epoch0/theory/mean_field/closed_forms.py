"""Means over two correlated Gaussian variables that have a closed form: arc-cosine, arcsine and sine kernels.

Cho & Saul 2009 (one kink at 0), Williams 1997 (erf); the slopes follow by Price's theorem.
"""

import math

import numpy as np

from epoch0 import special
from epoch0.activations import Activation
from epoch0.theory.checks import Array

_PROBES = np.array([-2.3, -0.4, 0.0, 0.7, 1.9])


def closed_form(rule: Activation, q1: Array, q2: Array, cosine: Array, sine: Array, derivative: bool) -> Array | None:
    """E phi(h1) phi(h2), or of phi', in closed form, None where the activation has none; arrays of one shape."""
    if rule.homogeneous and rule.slopes is not None:
        return _one_kink(rule.slopes[0], rule.slopes[-1], q1, q2, cosine, sine, derivative)
    if rule.slopes is not None and (derivative or rule.continuous):
        return straight_means(rule, q1, q2, cosine, sine)[derivative]
    if is_erf(rule):
        ends = (1 + 2 * q1) * (1 + 2 * q2)
        if derivative:
            return np.asarray(4 / math.pi / np.sqrt(1 + 2 * q1 + 2 * q2 + 4 * q1 * q2 * sine**2))
        return np.asarray(2 / math.pi * np.arcsin(2 * cosine * np.sqrt(q1 * q2 / ends)))
    if rule.name == "sin" and np.array_equal(rule.function(_PROBES), np.sin(_PROBES)):
        product = cosine * np.sqrt(q1) * np.sqrt(q2)
        # sinh and cosh would overflow where the whole is small, and their two halves cancel near 0
        plus, minus = (np.exp(-(q1 + q2) / 2 + sign * product) / 2 for sign in (1, -1))
        if derivative:
            return np.asarray(plus + minus)
        return np.where(np.abs(product) < 1, np.exp(-(q1 + q2) / 2) * np.sinh(np.clip(product, -1, 1)), plus - minus)
    return None


def is_erf(rule: Activation) -> bool:
    """Whether the activation is erf itself."""
    return rule.name == "erf" and np.array_equal(rule.function(_PROBES), special.erf(_PROBES))


def erf_pair(q1: Array, q2: Array, gap: Array) -> tuple[Array, Array]:
    """(K(c = 1) - K) / sqrt(q1 q2) and E erf' erf', from q1 (m, 1) > 0, q2 (n,) > 0 and 1 - c (m, n).

    The difference of two arcsines as the angle between them: a sum of positive terms, so nothing cancels.
    """
    first, second = 1 / np.sqrt(1 + 2 * q1), 1 / np.sqrt(1 + 2 * q2)
    # the sines of both arcs are largest and below, their cosines near and far
    largest = (2 * np.sqrt(q1) * first) * (np.sqrt(q2) * second)
    near = np.sqrt((1 + 2 * q1) + 2 * q2) * first * second
    across = largest * gap
    below = largest - across
    apart = (largest + below) * across
    far = np.sqrt(apart + near**2)
    sine = largest * apart / (near + far) + near * across
    angle = 2 * np.arctan(sine / (1 + near * far + largest * below))
    return angle * (2 / math.pi / np.sqrt(q1)) * (1 / np.sqrt(q2)), (4 / math.pi * first) * second / far


def _one_kink(left: float, right: float, q1: Array, q2: Array, cosine: Array, sine: Array, derivative: bool) -> Array:
    """Slope ``left`` below 0 and ``right`` above: parts of one sign and of two, each an arc-cosine kernel."""
    angle = np.arctan2(sine, cosine)
    same, mixed = left**2 + right**2, 2 * left * right
    if derivative:
        return np.asarray((same * (math.pi - angle) + mixed * angle) / (2 * math.pi))
    up = sine + (math.pi - angle) * cosine
    down = sine - angle * cosine
    return np.asarray(np.sqrt(q1) * np.sqrt(q2) * (same * up - mixed * down) / (2 * math.pi))


def straight_means(rule: Activation, q1: Array, q2: Array, cosine: Array, sine: Array) -> tuple[Array, Array]:
    """E phi phi (of a continuous phi) and E phi' phi' of an activation with straight pieces; arrays that broadcast.

    Where the variances differ these means bend sharply at c = 1 (two kinks pass each other), so that no table serves.
    """
    breaks, slopes = rule.breaks, rule.slopes or ()
    steps = np.diff(slopes)
    # phi(h) = start + slopes[0] h + sum of steps * max(h - break, 0)
    start = float(rule.function(np.zeros(1))[0]) - sum(t * max(-b, 0.0) for b, t in zip(breaks, steps, strict=True))
    q1, q2, cosine, sine = np.broadcast_arrays(q1, q2, cosine, sine)
    first, second = (np.sqrt(np.maximum(q, 1e-200)) for q in (q1, q2))
    hinges = [
        sum(step * scale * _hinge(point / scale) for point, step in zip(breaks, steps, strict=True))
        for scale in (first, second)
    ]
    value = (start + hinges[0]) * (start + hinges[1]) + slopes[0] ** 2 * first * second * cosine
    slope = np.full(value.shape, slopes[0] ** 2)
    for point, step in zip(breaks, steps, strict=True):
        # slopes that step at the breaks: chances that one variable, or both, lie above one
        above = special.ndtr(-point / first) + special.ndtr(-point / second)
        # E h1 max(h2 - b, 0) = covariance * P(h2 > b)
        value += slopes[0] * step * first * second * cosine * above
        slope += slopes[0] * step * above
        for other, change in zip(breaks, steps, strict=True):
            a, b = point / first, other / second
            chance = _both_above(a, b, cosine, sine)
            slope += step * change * chance
            product = _hinge_pair(a, b, cosine, sine, chance) - _hinge(a) * _hinge(b)
            value += step * change * first * second * product
    return value, slope


def _hinge(a: Array) -> Array:
    """E max(Z - a, 0)."""
    return np.asarray(np.exp(-(a**2) / 2) / math.sqrt(2 * math.pi) - a * special.ndtr(-a))


def _hinge_pair(a: Array, b: Array, cosine: Array, sine: Array, chance: Array) -> Array:
    """E max(Z1 - a, 0) max(Z2 - b, 0), given P(Z1 > a, Z2 > b) (moments of a truncated pair, Rosenbaum 1961)."""
    s = np.maximum(sine, 1e-150)
    lower = 1 / (1 + np.abs(cosine))

    def beyond(x: Array, y: Array) -> Array:
        # (y - cosine x) / sine without its cancellation
        turned = np.where(cosine > 0, (y - x) / s + s * lower * x, (y + x) / s - s * lower * x)
        return np.asarray(np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * special.ndtr(-turned))

    with np.errstate(over="ignore"):
        apart = np.where(cosine > 0, a - b, a + b) / s
        square = apart**2 + 2 * lower * np.where(cosine > 0, a * b, -a * b)
        density = s / (2 * math.pi) * np.exp(-square / 2)
    return np.asarray((a * b + cosine) * chance - b * beyond(a, b) - a * beyond(b, a) + density)


def _both_above(a: Array, b: Array, cosine: Array, sine: Array) -> Array:
    """P(Z1 > a, Z2 > b) for standard normal variables with that angle (Owen 1956)."""
    # Owen's formula divides by a and b; 0 as the limit from above
    a, b = (np.where(np.abs(x) < 1e-100, 1e-100, x) for x in (a, b))
    s = np.maximum(sine, 1e-150)

    def tail(x: Array, y: Array) -> Array:
        # (y - cosine x) / (sine x), where the difference would cancel near an angle of 0 or pi
        near = (y - x) / x / s + s / (1 + np.abs(cosine))
        far = (y + x) / x / s - s / (1 + np.abs(cosine))
        return np.asarray(special.owens_t(x, np.where(cosine > 0, near, far)))

    with np.errstate(over="ignore"):
        inside = (special.ndtr(-a) + special.ndtr(-b)) / 2 - tail(-a, -b) - tail(-b, -a)
    return np.asarray(np.clip(inside - np.where(a * b < 0, 0.5, 0.0), 0.0, 1.0))
