"""Chebyshev grids in the angle between two inputs, and the integral that turns the slope of a kernel into the kernel.

The angle is where means over two Gaussian variables are smooth: E phi'(h1) phi'(h2) of a kinked phi has square roots at
c = 1 and -1 but none in the angle (Cho & Saul 2009 is the plainest case: a straight line).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Angles:
    """A variable t in [-1, 1] for the angle in [0, end], finer near 0 (and near pi if that is the end).

    >>> Angles(np.pi, np.inf).to_angle(np.array([-1.0, 0.0, 1.0])).round(4)            # shape (3,)
    array([0.    , 1.5708, 3.1416])

    Attributes:
        end: largest angle, pi/2 or pi.
        width: angles much above it are spread on a log scale; infinite for a plain linear scale. A network whose
            pre-activations are large bends within about 1/sqrt(q) of 0 and pi.
    """

    end: float
    width: float

    @property
    def _two_sided(self) -> bool:
        return self.end > 2.0

    def _raw(self, angle: Array) -> Array:
        bent = np.asarray(np.arcsinh(angle / self.width))
        return np.asarray(bent - np.arcsinh((self.end - angle) / self.width)) if self._two_sided else bent

    def to_unit(self, angle: Array) -> Array:
        """The variable t of each angle; any shape."""
        if np.isinf(self.width):
            return np.asarray(angle * (2 / self.end) - 1)
        low, high = self._raw(np.array([0.0, self.end]))
        return np.asarray((self._raw(angle) - low) * (2 / (high - low)) - 1)

    def slope(self, angle: Array) -> Array:
        """The derivative of the angle with respect to t."""
        if np.isinf(self.width):
            return np.full(angle.shape, self.end / 2)
        low, high = self._raw(np.array([0.0, self.end]))
        return np.asarray((high - low) / 2 / self._rate(angle))

    def _rate(self, angle: Array) -> Array:
        rate = np.asarray(1 / np.hypot(angle, self.width))
        return np.asarray(rate + 1 / np.hypot(self.end - angle, self.width)) if self._two_sided else rate

    def to_angle(self, t: Array) -> Array:
        """The angle of each t in [-1, 1]; any shape."""
        if np.isinf(self.width):
            return np.asarray((t + 1) * (self.end / 2))
        low, high = self._raw(np.array([0.0, self.end]))
        raw = low + (t + 1) * ((high - low) / 2)
        if not self._two_sided:
            return np.asarray(self.width * np.sinh(raw))
        # the two ends mirror each other: solve on the lower half by Newton's method
        mirrored = raw > 0
        raw = -np.abs(raw)
        angle = np.clip(self.width * np.sinh(raw - low), 0.0, self.end / 2)
        for _ in range(60):
            step = (self._raw(angle) - raw) / self._rate(angle)
            angle = np.clip(angle - step, 0.0, self.end / 2)
            if np.abs(step).max(initial=0.0) < 1e-15 * self.end:
                break
        return np.asarray(np.where(mirrored, self.end - angle, angle))


def nodes(count: int) -> Array:
    """Chebyshev points of the first kind in (-1, 1), increasing; shape (count,)."""
    return np.asarray(-np.cos((np.arange(count) + 0.5) * np.pi / count))


def basis(t: Array, count: int) -> Array:
    """T_0(t) to T_(count-1)(t); shape (..., count)."""
    return np.asarray(np.polynomial.chebyshev.chebvander(t, count - 1))


@lru_cache(maxsize=64)
def to_coefficients(count: int) -> Array:
    """Matrix from values at :func:`nodes` to Chebyshev coefficients; shape (count, count)."""
    matrix = basis(nodes(count), count).T * (2 / count)
    matrix[0] /= 2
    return np.asarray(matrix)


@lru_cache(maxsize=64)
def gap_matrix(angles: Angles, count: int) -> Array:
    """Matrix from the slope of a kernel at the nodes to its mean slope from c = 1 down; shape (count, count).

    Row k holds the weights of (K(0) - K(angle_k)) / (1 - cos angle_k) = mean of H over c in [cos angle_k, 1], where
    H = dK/dc. All is positive and nothing cancels, so that nearly equal inputs keep their relative distance.
    """
    t = nodes(count)
    points, weights = np.polynomial.legendre.leggauss(count + 40)
    # from t = -1 (angle 0) to each node
    half = (t[:, None] + 1) / 2
    inner = -1 + half * (points + 1)
    angle = angles.to_angle(inner)
    mass = half * weights * np.sin(angle) * angles.slope(angle)
    total = 2 * np.sin(angles.to_angle(t) / 2) ** 2
    values = basis(inner, count) @ to_coefficients(count)
    return np.asarray((mass[:, :, None] * values).sum(axis=1) / total[:, None])
