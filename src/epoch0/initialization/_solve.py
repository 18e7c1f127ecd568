"""The scale of one layer's weights at which its gain is the target, by theory or on the batch (Hayou et al. B.1.2).

By theory weight_std^2 times the mean over places of E phi'(sqrt(q) Z)^2, q = bias_std^2 + weight_std^2 m with m the
mean square that comes in, so the transient before q reaches its fixed point is counted. On the batch the mean over the
layer's own units: with s the scale, s^2 mean of (sum of squared weights into the unit) phi'(s h + b)^2, exactly.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.theory.mean_field import chi

Array = NDArray[np.float64]

BINS = 64
"""Groups of places of like variance that an expectation is taken over."""

LARGEST = 1e6
"""Scales beyond this, or below one over it, count as out of reach."""


class OutOfReach(Exception):
    """No scale gives the target; the message says what the gain does."""


@dataclass(frozen=True)
class Places:
    """What comes into a layer of weight_std 1, place by place.

    Attributes:
        square: variance of the pre-activation for weight_std 1 and no bias; shape (places,).
        share: fraction of the fan-in that meets an entry of the input, mean 1; likewise.
    """

    square: Array
    share: Array

    @property
    def mean(self) -> float:
        """Mean variance for weight_std 1."""
        return float(self.square.mean())


def places(square: Array, share: Array) -> Places:
    """Places binned by their variance."""
    if square.size > BINS:
        order = np.argsort(square, kind="stable")
        cuts = np.linspace(0, square.size, BINS + 1).astype(int)[:-1]
        counts = np.diff([*cuts, square.size])
        square = np.add.reduceat(square[order], cuts) / counts
        share = np.add.reduceat(share[order], cuts) / counts
    return Places(square, share)


def expected(activation: Activation | None, weight_std: float, bias_std: float, at: Places) -> float:
    """Mean-field gain of a layer, shares of its places counted."""
    if activation is None:
        return weight_std**2 * float(at.share.mean())
    if activation.homogeneous:
        return weight_std**2 * float(at.share.mean()) * float(chi(activation, 1.0, 1.0))
    slopes = np.asarray(chi(activation, 1.0, bias_std**2 + weight_std**2 * at.square))
    return weight_std**2 * float((at.share * slopes).mean())


def by_theory(activation: Activation | None, target: float, bias_std: float, at: Places) -> float:
    """The weight_std at which the mean-field gain is the target."""
    if activation is None or activation.homogeneous:
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
