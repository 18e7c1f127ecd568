"""The exact chance that one layer changes a squared norm by more than eps, at any width (beyond Arpit-Bengio).

With weights N(0, 2/m) the ratio is ``(2/m) chi2_A``, A ~ Bin(m, 1/2). Narrow layers are a finite sum of chi-square
tails; for wide ones the sum is long and a contour integral of the moment generating function through its saddle point
gives the same number, to the same relative accuracy, from some hundred points at every width.
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammaln

from epoch0.theory.norms.rates import rate_at, saddle

Array = NDArray[np.float64]

# exp(-745) is the smallest float
_SMALLEST = 745.0
# An atom at zero has no decaying transform; below exp(-46) = 1e-20 of the tilted law it cannot be seen.
_NO_ATOM = 46.0
# Step of the trapezoidal rule in standard deviations: its error is below exp(-2 pi / 0.15) = 6e-19.
_STEP = 0.15


@functools.lru_cache(maxsize=4096)
def layer_failure(width: int, eps: float) -> float:
    """P(the ratio is outside [1 - eps, 1 + eps]) of one layer of ``width`` units; a layer that is all off counts.

    Args:
        width: number of units, >= 1.
        eps: tolerance, in (0, 1).
    """
    return min(1.0, tail(width, eps) + tail(width, -eps))


def tail(width: int, excess: float) -> float:
    """P(ratio > 1 + excess) for a positive excess, P(ratio < 1 + excess) for a negative one.

    Args:
        width: number of units, >= 1.
        excess: in (-1, 1), not 0.
    """
    u = saddle(excess)
    if width * rate_at(excess, u) > _SMALLEST:
        return 0.0
    # the atom has weight 2^-m in the law and (1 + s)^-m in the one that is tilted to the saddle point
    if width * math.log1p(1 + u) > _NO_ATOM and width > 256:
        return _by_contour(width, excess, u)
    return _by_sum(width, excess)


def _by_sum(width: int, excess: float) -> float:
    """The mixture of chi-square tails, term by term."""
    on = np.arange(width + 1.0)
    logs = -gammaln(on + 1) - gammaln(width - on + 1)
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    half = width * (1 + excess) / 4
    beyond = gammaincc(on / 2, half) if excess > 0 else gammainc(on / 2, half)
    return float(mass @ beyond)


def _by_contour(width: int, excess: float, u: float) -> float:
    """``1/(2 pi i) int exp(m (K(z) - z t/2)) / z dz`` along a vertical line, K(z) = log((1 + (1 - 2z)^(-1/2)) / 2)."""
    s = 1 + u
    spread = 1 / math.sqrt(width * s**5 * (3 + 2 * s) / (1 + s) ** 2)  # of the integrand along the line
    centre = u * (2 + u) / (2 * s**2)
    # the pole at 0 stays a standard deviation away from the line; where that moves it the tail is not small
    centre = math.copysign(max(abs(centre), spread), excess)

    def exponent(z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        root = np.sqrt(1 - 2 * z)
        grown = z / (root * (1 + root))  # (s - 1) / 2, and then log(1 + it), keeping the digits of a small z
        real = np.log1p(2 * grown.real + grown.real**2 + grown.imag**2) / 2
        return np.asarray(width * (real + 1j * np.arctan2(grown.imag, 1 + grown.real) - z * (1 + excess) / 2))

    points = 80
    while True:
        z = np.asarray(centre + 1j * spread * _STEP * np.arange(points), dtype=np.complex128)
        values = exponent(z)
        if values[-1].real < values[0].real - 40:
            break
        points *= 2
    terms = (np.exp(values - values[0].real) / z).real
    total = float(terms.sum() - terms[0] / 2)  # the other half of the line is the complex conjugate
    return abs(total) * _STEP * spread / math.pi * math.exp(values[0].real)
