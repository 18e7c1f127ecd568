"""Means over two correlated Gaussian variables that have a closed form: arc-cosine, arcsine and sine kernels.

Cho & Saul 2009 (one kink at 0), Williams 1997 (erf); the slopes follow by Price's theorem.
"""

import math

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation

Array = NDArray[np.float64]

_PROBES = np.array([-2.3, -0.4, 0.0, 0.7, 1.9])


def closed_form(
    rule: Activation, q1: Array, q2: Array, cosine: Array, sine: Array, derivative: bool
) -> Array | None:
    """E phi(h1) phi(h2), or of phi', in closed form; None where the activation has none.

    >>> one, half = np.ones(()), np.array(0.5)
    >>> closed_form(get("erf"), one, one, half, np.sqrt(1 - half**2), False).round(6)
    array(0.216347)

    Args:
        rule: the activation.
        q1: variance of h1, >= 0; float64 arrays of one shape.
        q2: variance of h2.
        cosine: correlation of h1 and h2.
        sine: sqrt(1 - cosine^2), to its own precision.
        derivative: whether to take phi' in the place of phi.

    Returns:
        An array of that shape, or None.
    """
    if rule.homogeneous and rule.slopes is not None:
        return _one_kink(rule.slopes[0], rule.slopes[-1], q1, q2, cosine, sine, derivative)
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
    """Whether this is the error function itself, not only by name."""
    from scipy.special import erf

    return rule.name == "erf" and np.array_equal(rule.function(_PROBES), erf(_PROBES))


def _one_kink(
    left: float, right: float, q1: Array, q2: Array, cosine: Array, sine: Array, derivative: bool
) -> Array:
    """Slope ``left`` below 0 and ``right`` above: parts of one sign and of two, each an arc-cosine kernel."""
    angle = np.arctan2(sine, cosine)
    same, mixed = left**2 + right**2, 2 * left * right
    if derivative:
        return np.asarray((same * (math.pi - angle) + mixed * angle) / (2 * math.pi))
    up = sine + (math.pi - angle) * cosine
    down = sine - angle * cosine
    return np.asarray(np.sqrt(q1) * np.sqrt(q2) * (same * up - mixed * down) / (2 * math.pi))
