"""How the correlation of two inputs changes with depth: its map, where it settles, depth scales (Hayou, B.1)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0.activations import Activation, ActivationLike, get
from epoch0.errors import InputError
from epoch0.theory.mean_field._arguments import check_continuous, check_scales
from epoch0.theory.mean_field.correlations import pair_mean
from epoch0.theory.mean_field.fixed_points import q_star
from epoch0.theory.mean_field.moments import moments_of

Array = NDArray[np.float64]

# chi closer to 1 than this is 1: q* itself is not more exact.
_ON_THE_EDGE = 1e-9


def covariance_map(
    activation: ActivationLike,
    weight_std: float,
    bias_std: float,
    q1: ArrayLike,
    q2: ArrayLike,
    c: ArrayLike,
    density: float = 1.0,
) -> Array:
    """Covariance of two inputs' next pre-activations: bias_std^2 + density * weight_std^2 * E phi(h1) phi(h2).

    >>> covariance_map("relu", 2 ** 0.5, 0.1, 1.0, 4.0, np.array([0.0, 1.0])).round(6)           # shape (2,)
    array([0.64662, 2.01   ])

    Args:
        activation: a name such as "tanh", an Activation, or a numpy or torch function.
        weight_std: sigma_w, the standard deviation of a kept weight times sqrt(fan_in); >= 0.
        bias_std: sigma_b, the standard deviation of a bias; >= 0.
        q1: variance of h1, >= 0; numbers or arrays that broadcast together.
        q2: variance of h2.
        c: correlation of h1 and h2, in [-1, 1].
        density: fraction of the weights kept (alpha), in (0, 1].

    Returns:
        float64 array of the broadcast shape.

    Raises:
        InputError: for an unknown activation, or an argument out of its range.

    Source: Hayou et al. 2021, B.1 and appendix H (density).
    """
    rule = _checked(activation, weight_std, bias_std, density)
    try:
        np.broadcast_shapes(*(np.shape(values) for values in (q1, q2, c)))
    except ValueError:
        shapes = f"q1 {np.shape(q1)}, q2 {np.shape(q2)}, c {np.shape(c)}"
        raise InputError(f"the shapes do not go together: {shapes}; give numbers, or arrays that broadcast.") from None
    return np.asarray(bias_std**2 + density * weight_std**2 * _pair(rule, q1, q2, c))


def correlation_map(
    activation: ActivationLike,
    weight_std: float,
    bias_std: float,
    c: ArrayLike,
    q: float | None = None,
    density: float = 1.0,
) -> Array:
    """Correlation of two inputs' next pre-activations, both inputs of one variance: f(c), with f(1) = 1.

    >>> correlation_map("relu", 2 ** 0.5, 0.0, np.array([0.0, 0.5, 1.0])).round(6)               # shape (3,)
    array([0.31831 , 0.608998, 1.      ])

    Args:
        activation: a name such as "tanh", an Activation, or a numpy or torch function.
        weight_std: sigma_w, the standard deviation of a kept weight times sqrt(fan_in); > 0 unless bias_std is.
        bias_std: sigma_b, the standard deviation of a bias; >= 0.
        c: correlation of the pre-activations, in [-1, 1]; a number or an array.
        q: their variance, >= 0; None: the fixed point q*, as after many layers. Where q* is 0 the limit is taken: with
            ever smaller q the activation is what it is next to 0.
        density: fraction of the weights kept (alpha), in (0, 1].

    Returns:
        float64 array of the shape of c. For every activation f is convex on [0, 1].

    Raises:
        InputError: if q is None and the variance diverges, if weight_std and bias_std are both 0, for an unknown
            activation, or an argument out of its range.

    Source: Hayou et al. 2021, B.1.
    """
    rule = _checked(activation, weight_std, bias_std, density)
    if weight_std == 0 == bias_std:
        raise InputError("weight_std=0, bias_std=0 make every pre-activation 0; a correlation needs one of them > 0.")
    variance = q_star(rule, weight_std, bias_std, density) if q is None else q
    variance = max(variance, 1e-12) if bias_std == 0 else variance
    return _map(rule, weight_std, bias_std, c, variance, density)


def _map(rule: Activation, weight_std: float, bias_std: float, c: ArrayLike, q: float, density: float) -> Array:
    # the same quadrature above and below, so that f(1) = 1 to the last digit
    whole = bias_std**2 + density * weight_std**2 * float(_pair(rule, q, q, 1.0))
    if whole == 0:
        raise InputError(f"{rule.name} maps everything to 0 at q={q:g}: there is no correlation.")
    both = bias_std**2 + density * weight_std**2 * _pair(rule, q, q, c)
    return np.asarray(np.clip(both / whole, -1.0, 1.0))


def _pair(rule: Activation, q1: ArrayLike, q2: ArrayLike, c: ArrayLike, derivative: bool = False) -> Array:
    """:func:`pair_mean` on arrays of at least one dimension, in the shape that was asked for."""
    shape = np.broadcast_shapes(np.shape(q1), np.shape(q2), np.shape(c))
    return pair_mean(rule, q1, q2, np.atleast_1d(np.asarray(c, dtype=np.float64)), derivative).reshape(shape)


def _checked(activation: ActivationLike, weight_std: float, bias_std: float, density: float) -> Activation:
    check_scales(weight_std, bias_std, density)
    return get(activation)


def c_star(activation: ActivationLike, weight_std: float, bias_std: float, density: float = 1.0) -> float:
    """The correlation at which two different inputs settle in a deep network; 1 in the ordered phase and on the edge.

    >>> c_star("tanh", 1.0, 0.3), round(c_star("tanh", 2.0, 0.3), 6)
    (1.0, 0.263895)

    f is convex on [0, 1] and f(1) = 1, so there is exactly one stable fixed point: 1 if f'(1) = chi <= 1, else the one
    below. Where the variance tends to 0, all pre-activations become the same, and c* is 1.

    Args:
        activation: a name such as "tanh", an Activation, or a numpy or torch function.
        weight_std: sigma_w, the standard deviation of a kept weight times sqrt(fan_in); >= 0.
        bias_std: sigma_b, the standard deviation of a bias; >= 0.
        density: fraction of the weights kept (alpha), in (0, 1].

    Returns:
        c*, in [0, 1].

    Raises:
        InputError: if q diverges, for an unknown activation, or an argument out of its range.

    Source: Hayou et al. 2021, B.1.
    """
    rule = _checked(activation, weight_std, bias_std, density)
    check_continuous(rule)
    return settled_correlation(rule, weight_std, bias_std, q_star(rule, weight_std, bias_std, density), density)


def settled_correlation(rule: Activation, weight_std: float, bias_std: float, q: float, density: float) -> float:
    """:func:`c_star` at a fixed point q that is already known."""
    from scipy.optimize import brentq

    chi = density * weight_std**2 * moments_of(rule).exact_slope(q)
    if q == 0 or chi <= 1 + _ON_THE_EDGE:
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
    """After how many layers a difference has shrunk by a factor e.

    Attributes:
        xi_q: for the variance q, towards q*.
        xi_c: for the correlation of two inputs, towards c*; this is how deep the network can be trained.
    """

    xi_q: float
    xi_c: float


def depth_scale(activation: ActivationLike, weight_std: float, bias_std: float, density: float = 1.0) -> DepthScale:
    """The depth scales xi_q = -1 / log of the q map's slope at q*, and xi_c = -1 / log f'(c*).

    >>> scale = depth_scale("tanh", 1.0, 0.3)
    >>> round(scale.xi_q, 3), round(scale.xi_c, 3)
    (1.337, 2.807)

    On the edge of chaos xi_c is infinite. Where q* is 0 both are those of the differences themselves, -1 / log chi.

    Args:
        activation: a name such as "tanh", an Activation, or a numpy or torch function.
        weight_std: sigma_w, the standard deviation of a kept weight times sqrt(fan_in); >= 0.
        bias_std: sigma_b, the standard deviation of a bias; >= 0.
        density: fraction of the weights kept (alpha), in (0, 1].

    Returns:
        A :class:`DepthScale`, in layers; 0 where a single layer removes the difference.

    Raises:
        InputError: if q diverges, for an unknown activation, or an argument out of its range.

    Source: Schoenholz et al. 2017, section 3; Hayou et al. 2021, B.1.
    """
    rule = _checked(activation, weight_std, bias_std, density)
    check_continuous(rule)
    q = q_star(rule, weight_std, bias_std, density)
    c = settled_correlation(rule, weight_std, bias_std, q, density)
    return scales_at(rule, weight_std, q, c, density)


def scales_at(rule: Activation, weight_std: float, q: float, c: float, density: float) -> DepthScale:
    """:func:`depth_scale` at fixed points q and c that are already known."""
    moments, kept = moments_of(rule), density * weight_std**2
    slope = kept * (moments.exact_slope(q) if c == 1 or q == 0 else float(_pair(rule, q, q, c, derivative=True)))
    return DepthScale(_layers(kept * moments.square_rate(q)), _layers(slope))


def _layers(slope: float) -> float:
    """How many layers of that slope shrink a difference by e."""
    if slope == 0:
        return 0.0
    logarithm = math.log(abs(slope))
    return math.inf if logarithm >= -_ON_THE_EDGE else -1 / logarithm
