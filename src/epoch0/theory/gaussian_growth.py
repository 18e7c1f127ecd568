"""Exact growth of a tangent through one layer of Gaussian weights, dense or sparse, at any width (beyond Price-Tanner).

The sign of a pre-activation is a fair coin, independent of the size of its derivative, so that for rows w_i and a unit
direction u the squared growth is a sum of independent terms ``slope_i^2 (w_i . u)^2``. Everything here is the mean of
the square root of such a sum, or its law.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]


def binomial(trials: int, probability: float) -> tuple[Array, Array]:
    """The counts of a binomial law that matter (all but 1e-20 of the mass), and their probabilities, of one shape."""
    if probability == 1.0:
        return np.array([float(trials)]), np.ones(1)
    mean = trials * probability
    room = 9.5 * math.sqrt(mean * (1 - probability)) + 40.0
    counts = np.arange(max(0, math.floor(mean - room)), min(trials, math.ceil(mean + room)) + 1, dtype=np.float64)
    # the ratios of neighbours keep the digits that differences of log-gammas of large numbers would lose
    steps = np.log((trials - counts[:-1]) / (counts[:-1] + 1)) + math.log(probability) - math.log1p(-probability)
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    mass = np.exp(logs - logs.max())
    return counts, mass / mass.sum()


def chi_mean(degrees: Array) -> Array:
    """Mean of a chi variable: sqrt(2) Gamma((a + 1)/2) / Gamma(a/2), and 0 for a = 0."""
    half = np.asarray(degrees, dtype=np.float64) / 2
    safe = np.where(half > 0, half, 1.0)
    small = np.exp(gammaln(safe + 0.5) - gammaln(safe))
    inverse = 1.0 / np.maximum(safe, 1.0)
    # the log-gammas of large numbers nearly cancel; the asymptotic series is exact to rounding from 100 on
    series = 1 + inverse * (-1 / 8 + inverse * (1 / 128 + inverse * (5 / 1024 + inverse * (-21 / 32768))))
    ratio = np.where(safe > 100.0, np.sqrt(safe) * series, small)
    return np.where(half > 0, math.sqrt(2.0) * ratio, 0.0)


@functools.lru_cache(maxsize=1024)  # networks repeat their widths
def binomial_chi_mean(width: int, probability: float) -> float:
    """E chi_A with A ~ Bin(width, probability): the growth through ``width`` unit Gaussian rows, each on by a coin."""
    counts, mass = binomial(width, probability)
    return float(mass @ chi_mean(counts))


def mean_root_of_sum(terms: int, lost: Callable[[Array], Array], typical: float) -> float:
    """E sqrt(X_1 + ... + X_terms) for independent copies of a variable X >= 0 known by its Laplace transform.

    ``E sqrt(S) = (1 / (2 sqrt(pi))) * integral_0^inf (1 - E exp(-s S)) s^(-3/2) ds``; with s = exp(t) the integrand is
    analytic around the real line and decays like exp(-|t|/2), so that the trapezoidal rule is exact to rounding.
    ``lost`` takes s to 1 - E exp(-s X) without cancellation at small s; ``typical`` is the size of the sum.
    """
    step = 0.25
    t = np.arange(-76.0, 76.0 + step / 2, step)
    s = np.exp(t) / typical
    with np.errstate(divide="ignore"):  # 1 - E exp(-sX) rounds to 1 where X cannot vanish: log(0), and exp gives 0
        gone = -np.expm1(terms * np.log1p(-lost(s)))
    return float(step * np.sum(gone * np.exp(-t / 2)) * math.sqrt(typical) / (2 * math.sqrt(math.pi)))


def one_hot_mean(width: int, density: float, slopes: tuple[float, float]) -> float:
    """Growth of a one-hot direction through rows of unit Gaussians kept with ``density``; at 1 of every direction."""
    if 0.0 in slopes:
        return max(map(abs, slopes)) * binomial_chi_mean(width, density / 2)
    if abs(slopes[0]) == abs(slopes[1]):
        return abs(slopes[0]) * binomial_chi_mean(width, density)
    return mean_root_of_sum(width, lambda s: density * _lost(s, slopes), width * density * _second(slopes))


@functools.lru_cache(maxsize=256)
def flat_mean(width: int, fan_in: int, density: float, slopes: tuple[float, float]) -> float:
    """Growth of a flat direction (all fan_in entries equal) through rows of unit Gaussians kept with ``density``.

    Given that a row keeps n of its entries, (w . u)^2 is n/fan_in times a squared standard normal.
    """
    counts, mass = binomial(fan_in, density)

    def lost(s: Array) -> Array:
        return np.array([mass @ _lost(value * counts / fan_in, slopes) for value in s])

    return mean_root_of_sum(width, lost, width * density * _second(slopes))


def _lost(s: Array, slopes: tuple[float, float]) -> Array:
    """1 - E exp(-s (slope N)^2) for a standard normal N and a slope that is a fair coin's."""
    return np.asarray(sum(-0.5 * np.expm1(-0.5 * np.log1p(2 * slope**2 * s)) for slope in slopes if slope))


def _second(slopes: tuple[float, float]) -> float:
    return (slopes[0] ** 2 + slopes[1] ** 2) / 2
