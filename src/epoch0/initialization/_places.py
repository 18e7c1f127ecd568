"""The mean-field gain of a layer over the places and channels of its output, and the scale at which it is the target.

By theory weight_std^2 times the mean over places of E phi'(sqrt(q) Z)^2, q = bias_std^2 + weight_std^2 m with m the
mean square that comes in, so the transient before q reaches its fixed point is counted (Hayou et al. 2021, B.1.2).
Behind a norm with running statistics the pre-activation of channel c is normal with mean d_c and variance
a_c^2 (bias_std^2 + weight_std^2 m): the same expectation, with factor and offset. On the batch the mean over the
layer's own units: with s the scale, s^2 mean of (sum of squared weights into the unit) phi'(s h + b)^2, exactly.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.theory.mean_field import chi

Array = NDArray[np.float64]

BINS = 64
"""Groups of places of like variance that an expectation is taken over."""

PAIRS = 2048
"""Pairs of a place and a channel with a factor and an offset of its own."""

_REACH = 8.5
_CUTS_Z, _CUTS_H = (-4.0, -1.5, 0.0, 1.5, 4.0), (-8.0, -3.0, -1.0, 0.0, 1.0, 3.0, 8.0)


@dataclass(frozen=True)
class Places:
    """What comes into a layer of weight_std 1, place by place, and what a fixed norm makes of it.

    Attributes:
        square: variance of the pre-activation for weight_std 1 and no bias; shape (places,).
        share: fraction of the fan-in that meets an entry of the input, mean 1; likewise.
        factor: of the norm behind the weights; likewise, or (1,).
        offset: of that norm; likewise.
    """

    square: Array
    share: Array
    factor: Array = field(default_factory=lambda: np.ones(1))
    offset: Array = field(default_factory=lambda: np.zeros(1))

    def variance(self, weight_std: float, bias_std: float) -> float:
        """Mean variance of what goes into the activation."""
        return float((self.factor**2 * (bias_std**2 + weight_std**2 * self.square)).mean())


def places(square: Array, share: Array) -> Places:
    """Places binned by their variance."""
    return Places(*_binned(square, share, BINS))


def places_behind(square: Array, share: Array, factor: Array, offset: Array) -> Places:
    """Pairs of places and channels behind a norm.

    Args:
        square: variances for weight_std 1; shape (k, places), a row for every channels/k channels in order.
        share: likewise.
        factor: of each channel; shape (channels,).
        offset: likewise.
    """
    channels = len(factor)
    alike = bool((factor == factor[0]).all() and (offset == offset[0]).all())
    if alike and len(square) == 1:
        return Places(*_binned(square[0], share[0], BINS), factor[:1], offset[:1])
    bins = max(4, PAIRS // channels)
    rows = [_binned(*pair, bins) for pair in zip(square, share, strict=True)]
    repeats = channels // len(rows)
    squares, shares = (np.repeat(np.array([row[i] for row in rows]), repeats, axis=0) for i in (0, 1))
    count = squares.shape[1]
    return Places(squares.ravel(), shares.ravel(), np.repeat(factor, count), np.repeat(offset, count))


def _binned(square: Array, share: Array, bins: int) -> tuple[Array, Array]:
    if square.size <= bins:
        return square, share
    order = np.argsort(square, kind="stable")
    cuts = np.linspace(0, square.size, bins + 1).astype(int)
    counts = np.diff(cuts)
    return np.add.reduceat(square[order], cuts[:-1]) / counts, np.add.reduceat(share[order], cuts[:-1]) / counts


def expected(activation: Activation | None, weight_std: float, bias_std: float, at: Places) -> float:
    """Mean-field gain of a layer, shares of its places counted."""
    passed = weight_std**2 * at.share * at.factor**2
    if activation is None:
        return float(passed.mean())
    if activation.homogeneous and not at.offset.any():
        return float(passed.mean()) * float(chi(activation, 1.0, 1.0))
    q = at.factor**2 * (bias_std**2 + weight_std**2 * at.square)
    slopes = np.asarray(chi(activation, 1.0, q)) if not at.offset.any() else squared_slope(activation, at.offset, q)
    return float((passed * slopes).mean())


def squared_slope(activation: Activation, mean: Array, q: Array) -> Array:
    """E phi'(mean + sqrt(q) Z)^2, split at the break points of phi.

    Args:
        activation: phi.
        mean: of the normal variable.
        q: its variance, >= 0; of a shape that broadcasts with it.
    """
    mean, q = np.broadcast_arrays(np.asarray(mean, dtype=float), np.asarray(q, dtype=float))
    root = np.sqrt(np.maximum(q, 1e-30))[..., None]
    inside = (np.array([*_CUTS_H, *activation.breaks]) - mean[..., None]) / root
    edges = np.concatenate([inside, np.broadcast_to(_CUTS_Z, (*mean.shape, len(_CUTS_Z)))], axis=-1)
    edges = np.sort(np.clip(edges, -_REACH, _REACH), axis=-1)
    ends = np.full((*mean.shape, 1), _REACH)
    edges = np.concatenate([-ends, edges, ends], axis=-1)
    nodes, weights = leggauss(16)
    half = np.diff(edges, axis=-1)[..., None] / 2
    z = (edges[..., :-1, None] + half) + half * nodes
    mass = half * weights * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    slopes = activation.derivative(mean[..., None, None] + root[..., None] * z) ** 2
    return np.asarray((mass * slopes).sum(axis=(-2, -1)))


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
