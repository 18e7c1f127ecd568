"""E phi^2 and E phi'^2 of an activation as functions of the variance q, tabulated once: all maps are made of these two.

Both are analytic in log q, whatever kinks phi has, so a spline of degree 7 through 20 points a decade is exact to
about ten digits. (Eight where the quadrature itself ends, for a phi that oscillates.)
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.theory.mean_field.gaussian import gaussian_mean

Array = NDArray[np.float64]

LOWEST, HIGHEST = 1e-12, 1e16
_A_DECADE = 20
_FLOOR = 1e-31


class Moments:
    """The two moments of one activation.

    >>> moments_of(get("relu")).square(np.array([1.0, 4.0])).round(9)              # shape (2,)
    array([0.5, 2. ])

    Attributes:
        activation: whose moments they are.
        top: the largest variance they are known for; above it phi^2 overflows or oscillates too fast, or q is 1e16.
        at_zero: the square of phi at 0.
        slope_at_zero: the mean of phi'^2 on both sides of 0.
        increasing: whether E phi^2 increases with q; then so does the variance map, and q moves one way only.
    """

    def __init__(self, activation: Activation) -> None:
        from scipy.interpolate import make_interp_spline

        self.activation = activation
        q, square, slope = _table(activation)
        self.top = float(q[-1])
        self.at_zero = self.exact_square(0.0)
        self.slope_at_zero = self.exact_slope(0.0)
        self.increasing = bool((np.diff(square) >= -1e-7 * square[1:]).all())
        logarithm = np.log(q)
        self._square = make_interp_spline(logarithm, np.log(np.maximum(square, _FLOOR)), k=7)
        self._slope = make_interp_spline(logarithm, np.log(np.maximum(slope, _FLOOR)), k=7)
        self._tables: dict[int, tuple[Array, Array, Array]] = {}

    def square(self, q: Array) -> Array:
        """E phi(sqrt(q) Z)^2 to about ten digits; q of any shape, between 0 and top."""
        inside = np.exp(self._square(np.log(np.clip(q, LOWEST, self.top))))
        below = self.at_zero + np.maximum(np.exp(self._square(math.log(LOWEST))) - self.at_zero, 0.0) * (q / LOWEST)
        return np.asarray(np.where(q < LOWEST, below, inside))

    def slope(self, q: Array) -> Array:
        """E phi'(sqrt(q) Z)^2 to about ten digits; q of any shape, between 0 and top."""
        return np.asarray(np.exp(self._slope(np.log(np.clip(q, LOWEST, self.top)))))

    def exact_square(self, q: float) -> float:
        """E phi(sqrt(q) Z)^2 by quadrature."""
        return gaussian_mean(lambda h: self.activation.function(h) ** 2, q, self.activation.breaks)

    def exact_slope(self, q: float) -> float:
        """E phi'(sqrt(q) Z)^2 by quadrature."""
        return gaussian_mean(lambda h: self.activation.derivative(h) ** 2, q, self.activation.breaks)

    @property
    def slope_far(self) -> float:
        """E phi'^2 in the limit of large q; infinity if it grows without bound."""
        last, before = self.slope(np.array([self.top, self.top / 10]))
        return math.inf if last > 1.5 * before else float(last)

    def square_rate(self, q: float) -> float:
        """The derivative of E phi(sqrt(q) Z)^2 by q; at 0 its limit, for a phi that vanishes there.

        By parts it is E phi^2 (Z^2 - 1) / (2 q): no second derivative is needed, and a phi with jumps is no exception.
        """
        if q == 0:
            return self.slope_at_zero
        function = self.activation.function
        # a constant has mean 0 against Z^2 - 1; taking it out keeps the digits when q is small
        constant = float(np.asarray(function(np.zeros(1))).reshape(-1)[0]) ** 2
        return gaussian_mean(
            lambda h: (function(h) ** 2 - constant) * (h**2 / q - 1) / (2 * q), q, self.activation.breaks
        )

    def table(self, decade: int) -> tuple[Array, Array, Array]:
        """Variances from LOWEST to top with that many to a decade, 1 among them, and the two moments there."""
        if decade not in self._tables:
            q = np.asarray(10.0 ** (np.arange(-12 * decade, round(math.log10(self.top)) * decade + 1) / decade))
            self._tables[decade] = q, self.square(q), self.slope(q)
        return self._tables[decade]


def _table(activation: Activation) -> tuple[Array, Array, Array]:
    """Variances and the two moments there, decade by decade up to where they can no longer be computed."""
    square: Callable[[Any], Any] = lambda h: activation.function(h) ** 2  # noqa: E731
    slope: Callable[[Any], Any] = lambda h: activation.derivative(h) ** 2  # noqa: E731
    parts: list[tuple[Array, Array, Array]] = []
    for decade in range(round(math.log10(LOWEST)), round(math.log10(HIGHEST))):
        q = 10.0 ** (decade + np.arange(1 if parts else 0, _A_DECADE + 1) / _A_DECADE)
        try:
            both = (gaussian_mean(square, q, activation.breaks), gaussian_mean(slope, q, activation.breaks))
        except InputError:
            if decade < 1:
                raise
            break
        if not (np.isfinite(both).all() and np.max(both[0]) < 1e200):
            break
        parts.append((q, *both))
    q, first, second = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return q, first, second


@lru_cache(maxsize=64)
def moments_of(activation: Activation) -> Moments:
    """The moments of an activation, made once.

    Args:
        activation: any activation.

    Raises:
        InputError: if its Gaussian means cannot be computed even for q up to 10.
    """
    return Moments(activation)
