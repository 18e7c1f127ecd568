"""The scale of one layer's weights at which its gain is the target, by theory or on the batch (Hayou et al. B.1.2).

By theory weight_std^2 times the mean over places of E phi'(sqrt(q) Z)^2, q = bias_std^2 + weight_std^2 m with m the
mean square that comes in, so the transient before q reaches its fixed point is counted. On the batch the mean over the
layer's own units: with s the scale, s^2 mean of (sum of squared weights into the unit) phi'(s h + b)^2, exactly.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.initialization._places import Places, expected

Array = NDArray[np.float64]

LARGEST = 1e6
"""Scales beyond this, or below one over it, count as out of reach."""


class OutOfReach(Exception):
    """No scale gives the target; the message says what the gain does."""


def by_theory(activation: Activation | None, target: float, bias_std: float, at: Places) -> float:
    """The weight_std at which the mean-field gain is the target."""
    if activation is None or (activation.homogeneous and not at.offset.any()):
        return _squared(target, expected(activation, 1.0, 0.0, at))
    return _root(lambda s: expected(activation, s, bias_std, at), target)


def by_batch(activation: Activation | None, target: float, gains: Array, h: Array, bias: Array) -> float:
    """The factor on the weights at which the gain of these units is the target.

    Args:
        activation: after the weights.
        target: the gain.
        gains: sum of squared weights into the unit, for factor 1; shape (sample,).
        h: its pre-activation without bias, for factor 1; likewise.
        bias: its bias; likewise.
    """
    if activation is None:
        return _squared(target, float(gains.mean()))
    if activation.homogeneous and not bias.any():
        return _squared(target, float((gains * activation.derivative(h) ** 2).mean()))
    return _root(lambda s: s**2 * float((gains * activation.derivative(s * h + bias) ** 2).mean()), target)


def _squared(target: float, gain: float) -> float:
    if not (gain > 0 and math.isfinite(gain)):
        raise OutOfReach("nothing passes through it" if gain == 0 else "its signals overflow")
    return math.sqrt(target / gain)


def _root(gain: Callable[[float], float], target: float) -> float:
    """Where the gain passes the target, going up from small scales as far as they can be told from here."""
    from scipy.optimize import brentq

    low = high = 1.0
    value = gain(1.0)
    if not math.isfinite(value):
        raise OutOfReach("its signals overflow")
    best = value
    if value >= target:
        while (value := gain(low)) >= target:
            high, low = low, low / 1.5
            if low < 1 / LARGEST:
                raise OutOfReach(f"its gain stays above {value:.3g} however small the weights")
    else:
        while not (value := gain(high)) >= target:
            low, high, best = high, high * 1.5, max(best, value)
            if high > LARGEST or not math.isfinite(value):
                raise OutOfReach(f"its gain reaches {best:.3g} at most, whatever the weights")
    root = brentq(lambda log: gain(math.exp(log)) - target, math.log(low), math.log(high), xtol=1e-9, rtol=1e-12)
    return math.exp(float(root))
