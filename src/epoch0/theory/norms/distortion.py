"""How far the norm of an output is from that of the input: the distortion that Arpit-Bengio's Figure 2 measures.

``epsilon = |1 - ||h|| / ||x|| |`` (equations 25 and 26) is about the norm itself, while the tolerance of the lemmas is
about its square. Its mean and quantiles follow from the law of the ratio.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from epoch0.errors import InputError
from epoch0.theory.gaussian_growth import binomial, chi_mean
from epoch0.theory.product_law import GrowthLaw

Array = NDArray[np.float64]


def mean_distortion(law: GrowthLaw) -> float:
    """E|1 - g| for the ratio g of two norms.

    >>> round(mean_distortion(GrowthLaw((500,), (500**-0.5 * 2**0.5,))), 6)         # He's weights, one layer
    0.039913

    Args:
        law: of the ratio of the norms, not of their squares.

    Returns:
        A number >= 0; for one layer a finite sum of incomplete gamma functions, for more one quadrature.
    """
    if len(law.widths) == 1:
        return _one_layer(law.widths[0], law.stds[0])
    # E|1 - g| = E g - 1 + 2 E max(1 - g, 0), and the last is the integral of the distribution function up to 1
    return law.mean - 1 + 2 * _below_one(law)


def distortion_quantile(law: GrowthLaw, p: float) -> float:
    """The distortion |1 - g| that a fraction p of the networks stays below.

    >>> round(distortion_quantile(GrowthLaw((500,), (500**-0.5 * 2**0.5,)), 0.95), 5)
    0.09801

    Args:
        law: of the ratio g of the norms.
        p: in (0, 1).

    Raises:
        InputError: for a p outside (0, 1).
    """
    if not 0 < p < 1:
        raise InputError(f"p={p!r} is no probability for a quantile; it lies strictly between 0 and 1.")

    def below(distortion: float) -> float:
        left = law.cdf(1 - distortion) if distortion < 1 else 0.0
        return law.cdf(1 + distortion) - left

    # a layer that is off leaves exactly 1; beyond it the law may reach far, and is searched by its logarithm
    low, high = (0.0, 1.0) if below(1.0) >= p else (1.0, max(1.0, law.support[1]))
    for _ in range(64):
        middle = (low + high) / 2 if low < 1 else math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if below(middle) < p else (low, middle)
    return high


def _one_layer(width: int, std: float) -> float:
    """The sum over how many units are on: std * chi_a has partial moments in closed form."""
    on, mass = binomial(width, 0.5)
    means = std * chi_mean(on)
    half = 0.5 / std**2
    short = gammainc(on / 2, half) - means * gammainc((on + 1) / 2, half)
    return float(mass @ (means - 1 + 2 * short))


def _below_one(law: GrowthLaw) -> float:
    """Integral of the distribution function from 0 to 1."""
    low, high = law.support
    if low >= 1:
        return law.zero_probability
    top = min(high, 1.0)
    # in the logarithm the law is smooth and its width known; pieces of a standard deviation, 16 points each
    ends = np.linspace(math.log(low), math.log(top), 2 + math.ceil(math.log(top / low) / law.log_std))
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(ends)[:, None] / 2
    points = np.exp((ends[:-1] + ends[1:])[:, None] / 2 + half * nodes)
    return law.zero_probability * low + float(np.sum(half * weights * points * law.cdf(points))) + (1 - top)
