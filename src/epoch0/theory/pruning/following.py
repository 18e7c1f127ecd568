"""Scores of weights that their gradients follow: the first layer of a network that sees white noise (THEORY section 4).

The gradient of a filter w with a ReLU behind it is a sum of inputs x over the places where w.x > 0. Of white noise
these have the mean direction of w, so that the gradient is c w plus noise, and the score W (c W + noise) is nearer to a
square than to a product of strangers.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc

from epoch0.theory.pruning.log_grid import GRID

Array = NDArray[np.float64]

LOG_NORMAL = -(math.log(2) + np.euler_gamma) / 2
"""E log |N| for a standard normal N."""

UNSURE = 0.3
"""How much lower a mean logarithm may be than that of a square before it tells nothing: its error with 30 scores."""

_NODES = 240  # of the integral over the weight, whose logarithm runs over what has any weight on the grid


def following_tail(correlation: float) -> Array:
    """Tail of X = |U V| / sqrt(1 + 2 rho^2) for standard normal U and V with this correlation; E X^2 = 1.

    >>> tail = following_tail(1.0)                              # of N^2 / sqrt(3): P(N^2 > sqrt(3)) at 1
    >>> float(np.interp(0.0, GRID, tail).round(3))
    0.188

    Args:
        correlation: rho, in [0, 1].

    Returns:
        P(X > exp(GRID)), shape (1100,).
    """
    t = np.exp(GRID) * math.sqrt(1 + 2 * correlation**2)
    rest = math.sqrt(max(1 - correlation**2, 0.0))
    if rest < 1e-6:
        return np.asarray(erfc(np.sqrt(t / 2)))
    logs = np.linspace(-14.0, 2.2, _NODES)  # |U| up to 9; below 1e-6 lies no mass
    u = np.exp(logs)
    mass = np.exp(-(u**2) / 2) * u
    mass /= mass.sum()
    up, down = ((t[:, None] / u + sign * correlation * u) / (rest * math.sqrt(2)) for sign in (1, -1))
    return np.asarray((erfc(up) + erfc(down)) @ mass / 2)


def following_moments(correlation: float) -> tuple[float, float]:
    """E X and E log X of that X.

    >>> following_moments(0.0)                                  # 2 / pi, and twice that of one normal variable
    (0.6366197723675814, -1.2703628454614782)
    """
    size = math.sqrt(1 + 2 * correlation**2)
    mean = 2 / math.pi * (math.sqrt(max(1 - correlation**2, 0.0)) + correlation * math.asin(correlation))
    return mean / size, 2 * LOG_NORMAL - math.log(size)


def fit(mean: float, log_mean: float) -> tuple[float, float]:
    """The correlation and the spread at which X exp(spread Z) / exp(spread^2) has this mean and mean logarithm.

    Both are of a variable of mean square 1. A spread lowers the mean by a factor exp(-spread^2 / 2) and the mean
    logarithm by spread^2; a correlation lowers the logarithm by more than that. Where they ask for less spread than
    none, there is none, and the logarithm decides. A logarithm that is lower than a square has it comes from scores
    next to 0, of units that hardly ever answer, and tells nothing: then the mean decides alone.

    Args:
        mean: E X, at most 2/pi.
        log_mean: E log X.

    Returns:
        The correlation in [0, 1] and the spread, >= 0.
    """
    from scipy.optimize import brentq

    def by_mean(correlation: float) -> float:
        return max(-2 * math.log(mean / following_moments(correlation)[0]), 0.0)

    def spread_square(correlation: float) -> float:
        return following_moments(correlation)[1] - log_mean

    def excess(correlation: float) -> float:
        return following_moments(correlation)[0] * math.exp(-spread_square(correlation) / 2) - mean

    if excess(1.0) <= 0:
        lowest = following_moments(1.0)[1] - by_mean(1.0)
        best = 1.0 if log_mean > lowest - UNSURE else 0.0
        return best, math.sqrt(by_mean(best))
    best = 0.0 if excess(0.0) >= 0 else float(brentq(excess, 0.0, 1.0))
    if spread_square(best) <= 0:
        return (0.0 if spread_square(0.0) <= 0 else float(brentq(spread_square, 0.0, 1.0))), 0.0
    return best, math.sqrt(spread_square(best))
