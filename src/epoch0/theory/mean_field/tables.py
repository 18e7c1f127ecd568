"""One activation's covariance map tabulated over angle and variance, for evaluation at many pairs of inputs.

The angle between two inputs is where means over two Gaussian variables are smooth: E phi'(h1) phi'(h2) of a kinked phi
has square roots at c = 1 and -1 but none in the angle (Cho & Saul 2009 is the plainest case: a straight line). The
kernel is the integral of that slope (Price's theorem).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from epoch0.activations import Activation
from epoch0.theory.checks import Array
from epoch0.theory.mean_field.correlations import mean_grid, on_a_line
from epoch0.theory.mean_field.moments import mean_square

# A tabulated slope is within this of the exact one, relative to the largest in the table.
TOLERANCE = 1e-12
_COUNTS = (16, 20, 25, 31, 39, 48, 60, 75, 94, 118, 147, 184, 230, 256)
_LARGEST_RANK = 48


def place_of_gap(gap: Array) -> Array:
    """Where 1 - c lies in [-1, 1], into which the angles in [0, pi] are stretched."""
    angle = np.sqrt(0.5 * gap)
    np.arcsin(angle, out=angle)
    angle *= 4 / math.pi
    angle -= 1
    return angle


def angles(place: Array) -> Array:
    """The angles at places in [-1, 1]."""
    return (place + 1) * (math.pi / 2)


def nodes(count: int) -> Array:
    """Chebyshev points of the first kind in (-1, 1), increasing; shape (count,)."""
    return np.asarray(-np.cos((np.arange(count) + 0.5) * np.pi / count))


@lru_cache(maxsize=64)
def to_coefficients(count: int) -> Array:
    """Matrix from values at :func:`nodes` to Chebyshev coefficients; shape (count, count)."""
    matrix = chebvander(nodes(count), count - 1).T * (2 / count)
    matrix[0] /= 2
    return np.asarray(matrix)


@lru_cache(maxsize=64)
def _gap_matrix(count: int) -> Array:
    """Matrix from H = dK/dc at the nodes to its mean over c in [cos angle_k, 1]; shape (count, count).

    All is positive and nothing cancels, so that nearly equal inputs keep their relative distance.
    """
    t = nodes(count)
    points, weights = np.polynomial.legendre.leggauss(count + 40)
    # from t = -1 (angle 0) to each node
    half = (t[:, None] + 1) / 2
    inner = -1 + half * (points + 1)
    mass = half * weights * np.sin(angles(inner)) * (math.pi / 2)
    total = 2 * np.sin(angles(t) / 2) ** 2
    values = chebvander(inner, count - 1) @ to_coefficients(count)
    return np.asarray((mass[:, :, None] * values).sum(axis=1) / total[:, None])


def _shift(low: float, high: float) -> float:
    """Added to sqrt(q) before its log is taken, so that variances over many decades start on a linear scale."""
    return min(0.1 * math.sqrt(high), 0.3) if low < 1e-6 * high else 0.3 if high == 0 else 0.0


def place(q: Array, low: float, shift: float = 0.0) -> Array:
    """Log of sqrt(q) + shift, counted from the least variance; nearly equal ones keep their difference."""
    start = math.sqrt(low)
    return np.asarray(np.log1p((q - low) / np.maximum(np.sqrt(q) + start, 1e-200) / (start + shift)))


def needed_rank(low: float, high: float) -> int:
    """How many variances a table over [low, high] will need: from the distance to the nearest singularity of log q."""
    shift = _shift(low, high)
    span = math.log((math.sqrt(high) + shift) / (math.sqrt(low) + shift))
    if span < 5e-14:
        return 1
    # kernels are analytic in log q within about 2.5 of the real axis: Chebyshev series fall like rho^-r
    ratio = 2.5 / span
    return max(2, math.ceil(math.log(1e12) / math.log(ratio + math.hypot(ratio, 1.0))))


def variance_grid(low: float, high: float, rank: int, shift: float = 0.0) -> Array:
    """Variances at the Chebyshev nodes of log(sqrt(q) + shift)."""
    root = math.sqrt(low)
    step = (root + shift) * np.expm1((nodes(rank) + 1) / 2 * math.log((math.sqrt(high) + shift) / (root + shift)))
    return np.asarray(low + step * (2 * root + step))


def variance_weights(q: Array, low: float, high: float, rank: int, shift: float = 0.0) -> Array:
    """Interpolation weights of each variance on that grid; (m,) to (m, rank)."""
    if rank == 1:
        return np.ones((len(q), 1))
    # no BLAS here: equal inputs get equal weights, to the last bit, wherever they stand
    values = chebvander(2 * place(q, low, shift) / place(np.array([high]), low, shift) - 1, rank - 1)
    return np.asarray(np.einsum("ik,ka->ia", values, to_coefficients(rank)))


def evaluate_series(coefficients: Array, first: Array, second: Array, t: Array) -> Array:
    """Several series at many pairs: coefficients (s, r, k, n), weights (m1, r), (m2, k), t (m1, m2) to (s, m1, m2)."""
    count, rank, other, terms = coefficients.shape
    if rank == 1 == other:
        powers = chebvander(t.reshape(-1), terms - 1)
        return np.asarray((coefficients.reshape(count, terms) @ powers.T).reshape(count, *t.shape))
    rows = np.tensordot(first, coefficients, axes=(1, 1)).reshape(len(t), count * other, terms)
    parts = (rows @ np.moveaxis(chebvander(t, terms - 1), -1, 1)).reshape(len(t), count, other, -1)
    parts *= second.T
    return np.asarray(parts.sum(axis=2).transpose(1, 0, 2))


@dataclass(frozen=True)
class SlopeTable:
    """H = E phi'(h1) phi'(h2) over variances q1, q2 in [low, high] and every angle, as a Chebyshev series.

    ``grid`` holds the r variances tabulated, ``coefficients``, (2, r, r, n), the series of G = (K(0) - K(angle)) /
    (sqrt(q1 q2) (1 - c)) and of H, ``ratios`` E phi^2 over (q + shift^2), ``values`` phi on a one-dimensional grid with
    Gaussian ``masses``. ``exact`` is the activation where the range reaches 0, near which E phi^2 may vanish: then it
    is summed.
    """

    low: float
    high: float
    shift: float
    grid: Array
    coefficients: Array
    ratios: Array
    values: Array
    masses: Array
    exact: Activation | None = None

    def covers(self, q: Array) -> bool:
        """Whether every variance lies in the range, up to what rounding and a mild extrapolation allow."""
        if math.isinf(self.high):
            return True
        low, high, span = place(np.array([q.min(), q.max(), self.high]), self.low, self.shift)
        slack = 1e-12 + 0.02 * span
        return bool(low >= -slack and high <= span + slack)

    def weights(self, q: Array) -> Array:
        """Interpolation weights of each variance; (m,) to (m, r)."""
        return variance_weights(q, self.low, self.high, len(self.grid), self.shift)

    def mean_square(self, q: Array, weights: Array) -> Array:
        """E phi(sqrt(q) Z)^2 of each variance; (m,) to (m,)."""
        if self.exact is not None:
            return mean_square(self.exact, q)
        return np.asarray((q + self.shift**2) * (np.einsum("ia,a->i", weights, self.ratios)))

    def evaluate(self, first: Array, second: Array, gap: Array) -> tuple[Array, Array]:
        """G and H where rows have weights first (m1, r), columns second (m2, r) and gap = 1 - c is (m1, m2)."""
        mean, slope = evaluate_series(self.coefficients, first, second, place_of_gap(gap))
        return mean, slope


def tabulate(rule: Activation, low: float, high: float) -> SlopeTable:
    """Tabulate the covariance map of an activation over variances in [low, high]; equal for one variance.

    G and H are within :data:`TOLERANCE` of the exact ones, relative to the largest of them: terms are added until their
    decay says so, at most 256 in the angle and 48 variances.
    """
    if rule.homogeneous:
        low, high = 1.0, 1.0
    shift = _shift(low, high)
    count = _angles_needed(rule, np.unique([low, high]))
    rank = min(needed_rank(low, high), _LARGEST_RANK)
    while True:
        grid = variance_grid(low, high, rank, shift)
        coefficients = _series(rule, count, grid)
        largest = np.abs(coefficients).max()
        across = np.tensordot(to_coefficients(rank), coefficients, axes=(1, 1))
        if rank <= 2 or rank == _LARGEST_RANK or np.abs(across[-2:]).max() <= TOLERANCE * largest:
            break
        rank = min(math.ceil(1.4 * rank), _LARGEST_RANK)
    kept = int(np.flatnonzero((np.abs(coefficients) > 0.01 * TOLERANCE * largest).any(axis=(0, 1, 2))).max()) + 1
    values, masses = on_a_line(rule, grid)
    ratios = (values**2 @ masses) / (grid + shift**2)
    if rule.homogeneous:
        low, high = 0.0, math.inf
    coefficients = coefficients[..., : max(kept, 2)]
    exact = rule if shift > 0 and not rule.homogeneous else None
    return SlopeTable(low, high, shift, grid, coefficients, ratios, values, masses, exact)


def _series(rule: Activation, count: int, grid: Array) -> Array:
    """Chebyshev coefficients of G and H; shape (2, r, r, count)."""
    angle = angles(nodes(count))
    slopes = mean_grid(rule, grid, np.cos(angle), np.sin(angle))
    slopes = (slopes + slopes.transpose(0, 2, 1)) / 2
    both = np.stack([np.tensordot(_gap_matrix(count), slopes, axes=1), slopes])
    return np.tensordot(both, to_coefficients(count), axes=(1, 1))


def _angles_needed(rule: Activation, ends: Array) -> int:
    """The least count whose series has died out at the ends of the range of variances."""
    for count in _COUNTS:
        coefficients = np.abs(_series(rule, count, ends))
        if coefficients[..., -3:].max() <= 0.1 * TOLERANCE * coefficients.max():
            return count
    return _COUNTS[-1]
