"""Moments of the logarithm of chi_A, A ~ Bin(width, 1/2) at least 1: what a law over depth is put together from.

chi_A is the growth through ``width`` unit Gaussian rows, each on by a coin (THEORY 1.2, the exact law).
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, loggamma, polygamma

from epoch0.theory.gaussian_growth import binomial

Array = NDArray[np.float64]

STIRLING = 100.0
"""From here on Stirling's series is exact to rounding."""


@functools.lru_cache(maxsize=64)
def positive_counts(width: int) -> tuple[Array, Array]:
    """Counts >= 1 of rows that are on, and their probabilities given that there is one."""
    counts, mass = binomial(width, 0.5)
    on = counts > 0
    return counts[on], mass[on] / mass[on].sum()


def log_moment(width: int, power: complex) -> complex:
    """Logarithm of E[(chi_A / c)^power | A >= 1] with A ~ Bin(width, 1/2); log c is the mean of log chi_A.

    Args:
        width: number of rows.
        power: complex, of real part > -1.
    """
    counts, mass = positive_counts(width)
    half, shift = counts / 2, power / 2
    if half[0] > STIRLING:
        # log-gammas of large numbers cancel; Stirling's series written for their difference does not
        top = half + shift
        logs = (top - 0.5) * np.log1p(shift / half) - shift + (1 / top - 1 / half) / 12 - (top**-3 - half**-3) / 360
        logs = logs + shift * (np.log(2 * half) - 2 * log_moments(width)[0])
    else:
        logs = loggamma(half + shift) - gammaln(half) + shift * (math.log(2) - 2 * log_moments(width)[0])
    largest = logs.real.max()
    return complex(largest + np.log(mass @ np.exp(logs - largest)))


@functools.lru_cache(maxsize=64)
def log_moments(width: int) -> tuple[float, float]:
    """Mean and variance of log chi_A given A >= 1, A ~ Bin(width, 1/2)."""
    counts, mass = positive_counts(width)
    centres = (math.log(2) + digamma(counts / 2)) / 2
    mean = float(mass @ centres)
    return mean, float(mass @ ((centres - mean) ** 2 + polygamma(1, counts / 2) / 4))
