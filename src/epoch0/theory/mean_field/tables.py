"""One activation's covariance map tabulated over angle and variance, for evaluation at many pairs of inputs.

E phi'(h1) phi'(h2) of a kinked phi has square roots at c = 1 and -1 but none in the angle (docs/kernels).
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from epoch0.activations import Activation
from epoch0.theory.checks import Array
from epoch0.theory.mean_field.correlations import mean_at, mean_grid, on_a_line
from epoch0.theory.mean_field.moments import mean_square

# A tabulated slope is within this of the exact one, relative to the largest in the table.
TOLERANCE = 1e-12
_COUNTS = (16, 20, 25, 31, 39, 48, 60, 75, 94, 118, 147, 184, 230, 256)
_LARGEST_RANK = 48
# variances and angles of a table where kinks let the series fall slowly
_ROUGH = (8, 48)


@dataclass(frozen=True)
class Angles:
    """A variable t in [-1, 1] for the angle in [0, pi], finer near both ends.

    Angles much above ``width`` from an end are spread on a log scale; infinite for a plain linear scale. A network
    whose pre-activations are large bends within about 1/sqrt(q) of 0 and pi.
    """

    width: float

    @staticmethod
    def of(rule: Activation, high: float) -> "Angles":
        return Angles(math.inf if high < 3 or rule.homogeneous else 1 / math.sqrt(high))

    @property
    def _reach(self) -> float:
        """The largest difference of the two arcsinhs that t stands for: t is that difference over this."""
        return math.asinh(math.pi / self.width)

    def of_gap(self, gap: Array) -> Array:
        angle = np.sqrt(0.5 * gap)
        np.arcsin(angle, out=angle)
        angle *= 2
        if np.isinf(self.width):
            return np.asarray(angle * (2 / math.pi) - 1)
        return np.asarray((np.arcsinh(angle / self.width) - np.arcsinh((math.pi - angle) / self.width)) / self._reach)

    def slope(self, angle: Array) -> Array:  # by t
        if np.isinf(self.width):
            return np.full(angle.shape, math.pi / 2)
        return np.asarray(self._reach / (1 / np.hypot(angle, self.width) + 1 / np.hypot(math.pi - angle, self.width)))

    def to_angle(self, t: Array) -> Array:
        if np.isinf(self.width):
            return np.asarray((t + 1) * (math.pi / 2))
        # the sinhs of the two have the sum pi / width, which gives the sum of the two
        difference = t * self._reach
        total = 2 * np.arcsinh(math.pi / (2 * self.width * np.cosh(difference / 2)))
        return np.asarray(self.width * np.sinh(np.maximum(total + difference, 0.0) / 2))


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
def _gap_matrix(angles: Angles, count: int) -> Array:
    """Matrix from H = dK/dc at the nodes to its mean over c in [cos angle_k, 1], all positive; shape (count, count)."""
    t = nodes(count)
    points, weights = np.polynomial.legendre.leggauss(count + 40)
    # from t = -1 (angle 0) to each node
    half = (t[:, None] + 1) / 2
    inner = -1 + half * (points + 1)
    angle = angles.to_angle(inner)
    mass, total = half * weights * np.sin(angle) * angles.slope(angle), 2 * np.sin(angles.to_angle(t) / 2) ** 2
    values = chebvander(inner, count - 1) @ to_coefficients(count)
    return np.asarray((mass[:, :, None] * values).sum(axis=1) / total[:, None])


def _shift(low: float, high: float) -> float:
    """Added to sqrt(q) before its log is taken, so that variances over many decades start on a linear scale."""
    return min(0.1 * math.sqrt(high), 0.3) if low < 1e-6 * high else 0.3 if high == 0 else 0.0


def needed_rank(low: float, high: float) -> int:
    """How many variances a table over [low, high] will need: from the distance to the nearest singularity of log q."""
    shift = _shift(low, high)
    if (span := math.log((math.sqrt(high) + shift) / (math.sqrt(low) + shift))) < 5e-14:
        return 1
    # kernels are analytic in log q within about 2.5 of the real axis: Chebyshev series fall like rho^-r
    ratio = 2.5 / span
    return max(2, math.ceil(math.log(1e12) / math.log(ratio + math.hypot(ratio, 1.0))))


@dataclass(frozen=True)
class Variances:
    """Variances in [low, high], of which ``rank`` are tabulated: at the Chebyshev nodes of log(sqrt(q) + shift)."""

    low: float
    high: float
    rank: int
    shift: float = 0.0

    def place(self, q: Array) -> Array:
        """Log of sqrt(q) + shift, counted from the least variance; nearly equal ones keep their difference."""
        start = math.sqrt(self.low)
        return np.asarray(np.log1p((q - self.low) / np.maximum(np.sqrt(q) + start, 1e-200) / (start + self.shift)))

    @cached_property
    def grid(self) -> Array:
        root, shift = math.sqrt(self.low), self.shift
        span = math.log((math.sqrt(self.high) + shift) / (root + shift))
        step = (root + shift) * np.expm1((nodes(self.rank) + 1) / 2 * span)
        return np.asarray(self.low + step * (2 * root + step))

    def weights(self, q: Array) -> Array:
        """Interpolation weights of each variance on that grid; (m,) to (m, rank)."""
        if self.rank == 1:
            return np.ones((len(q), 1))
        # no BLAS here: equal inputs get equal weights, to the last bit, wherever they stand
        values = chebvander(2 * self.place(q) / self.place(np.array([self.high])) - 1, self.rank - 1)
        return np.asarray(np.einsum("ik,ka->ia", values, to_coefficients(self.rank)))

    def covers(self, low: float, high: float) -> bool:
        """Whether these lie in the range, up to what rounding and a mild extrapolation allow."""
        least, most, span = self.place(np.array([low, high, self.high]))
        slack = 1e-12 + 0.02 * span
        return bool(least >= -slack and most <= span + slack)


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

    ``coefficients``, (2, r, r, n), are the series of G = (K(0) - K(angle)) / (sqrt(q1 q2) (1 - c)) and of H, ``ratios``
    E phi^2 over q (where the range does not reach 0), ``values`` phi on a one-dimensional grid with Gaussian
    ``masses``. ``error`` is that of H relative to its largest value, measured where kinks let the series fall slowly.
    """

    rule: Activation
    angles: Angles
    variances: Variances
    coefficients: Array
    ratios: Array
    values: Array
    masses: Array
    error: float = TOLERANCE

    def mean_square(self, q: Array, weights: Array) -> Array:
        """E phi(sqrt(q) Z)^2 of each variance; (m,) to (m,)."""
        if self.variances.shift > 0:  # the range reaches 0, near which E phi^2 may vanish
            return mean_square(self.rule, q)
        return np.asarray(q * np.einsum("ia,a->i", weights, self.ratios))

    def evaluate(self, first: Array, second: Array, gap: Array) -> tuple[Array, Array]:
        """G and H where rows have weights first (m1, r), columns second (m2, r) and gap = 1 - c is (m1, m2)."""
        mean, slope = evaluate_series(self.coefficients, first, second, self.angles.of_gap(gap))
        return mean, slope


def tabulate(rule: Activation, low: float, high: float) -> SlopeTable:
    """Tabulate the covariance map of an activation over variances in [low, high]; equal for one variance.

    G and H are within :data:`TOLERANCE` of the exact ones, relative to the largest of them: terms are added until their
    decay says so, at most 256 in the angle and 48 variances.
    """
    if rule.homogeneous:
        low, high = 1.0, 1.0
    # kinks that pass each other where variances differ: no series falls fast, and many terms take minutes
    rough = high > low and any(rule.breaks)
    shift, angles = _shift(low, high), Angles.of(rule, high)
    count = _ROUGH[1] if rough else _angles_needed(rule, angles, np.unique([low, high]))
    most = _ROUGH[0] if rough else _LARGEST_RANK
    rank = min(needed_rank(low, high), most)
    while True:
        variances = Variances(low, high, rank, shift)
        coefficients = _series(rule, angles, count, variances.grid)
        largest = np.abs(coefficients).max()
        across = np.tensordot(to_coefficients(rank), coefficients, axes=(1, 1))
        if rank <= 2 or rank == most or np.abs(across[-2:]).max() <= TOLERANCE * largest:
            break
        rank = min(math.ceil(1.4 * rank), most)
    kept = int(np.flatnonzero((np.abs(coefficients) > 0.01 * TOLERANCE * largest).any(axis=(0, 1, 2))).max()) + 1
    values, masses = on_a_line(rule, variances.grid)
    ratios = (values**2 @ masses) / (variances.grid + shift**2)
    table = SlopeTable(rule, angles, variances, coefficients[..., : max(kept, 2)], ratios, values, masses)
    return replace(table, error=_measured(table)) if rough else table


def _measured(table: SlopeTable) -> float:
    """The largest error of H at a few places between the nodes, relative to its largest value."""
    low, high = table.variances.low, table.variances.high
    q = low + (high - low) * np.array([0.03, 0.37, 0.61, 0.98])
    gap, weights = np.broadcast_to(np.array([[1e-4, 0.01, 0.3, 0.8]]), (4, 4)), table.variances.weights(q)
    found = table.evaluate(weights, weights, gap)[1]
    first, second = np.broadcast_to(q[:, None], (4, 4)), np.broadcast_to(q, (4, 4))
    exact = mean_at(table.rule, first, second, 1 - gap, np.sqrt(gap * (2 - gap)), True)
    return max(float(np.abs(found - exact).max() / np.abs(exact).max()), TOLERANCE)


def _series(rule: Activation, angles: Angles, count: int, grid: Array) -> Array:
    """Chebyshev coefficients of G and H; shape (2, r, r, count)."""
    angle = angles.to_angle(nodes(count))
    slopes = mean_grid(rule, grid, np.cos(angle), np.sin(angle))
    slopes = (slopes + slopes.transpose(0, 2, 1)) / 2
    both = np.stack([np.tensordot(_gap_matrix(angles, count), slopes, axes=1), slopes])
    return np.tensordot(both, to_coefficients(count), axes=(1, 1))


def _angles_needed(rule: Activation, angles: Angles, ends: Array) -> int:
    """The least count whose series has died out at the ends of the range of variances."""
    for count in _COUNTS:
        coefficients = np.abs(_series(rule, angles, count, ends))
        if coefficients[..., -3:].max() <= 0.1 * TOLERANCE * coefficients.max():
            return count
    return _COUNTS[-1]
