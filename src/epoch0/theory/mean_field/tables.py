"""One activation's covariance map tabulated over angle and variance, for evaluation at many pairs of inputs."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.theory.mean_field.angle_grids import Angles, basis, gap_matrix, nodes, to_coefficients
from epoch0.theory.mean_field.correlations import mean_at, mean_grid, on_a_line
from epoch0.theory.mean_field.gaussian import gaussian_mean

Array = NDArray[np.float64]

# A tabulated slope is within this of the exact one, relative to the largest in the table.
TOLERANCE = 1e-12
_COUNTS = (16, 20, 25, 31, 39, 48, 60, 75, 94, 118, 147, 184, 230, 256)
_LARGEST_RANK = 48
# variances and angles of a table where kinks let the series fall slowly
_ROUGH = (8, 48)
# sums of powers may be this many times larger than their total: three digits of sixteen
_CANCELLING = 1000.0


@dataclass(frozen=True)
class SlopeTable:
    """H = E phi'(h1) phi'(h2) over variances q1, q2 in a range and every angle, as a Chebyshev series.

    >>> table = tabulate(get("tanh"), 0.5, 0.6)
    >>> row = table.weights(np.array([0.55]))
    >>> gap, slope = table.evaluate(row, row, np.array([[0.1]]))                        # distance 1 - c = 0.1
    >>> slope.round(6), pair_mean("tanh", 0.55, 0.55, 0.9, derivative=True).round(6)
    (array([[0.538056]]), array(0.538056))

    Attributes:
        angles: the scale of the angle.
        low: least variance covered.
        high: largest variance covered.
        shift: added to sqrt(q) before its log is taken, so that 0 is covered.
        grid: the r variances tabulated.
        coefficients: shape (2, r, r, n): of G = (K(0) - K(angle)) / (sqrt(q1 q2) (1 - c)) and of H.
        powers: the same series in powers of t where their sums do not cancel, else ``coefficients`` again.
        monomial: which of the two ``powers`` holds.
        ratios: E phi^2 over (q + shift^2) at the r variances; shape (r,).
        values: phi at the r variances on a one-dimensional grid; shape (r, points).
        masses: Gaussian masses of that grid; shape (points,).
        error: of H, relative to its largest value: measured where kinks let the series fall slowly.
        exact: the activation itself where the range reaches 0, near which E phi^2 may vanish: it is then summed.
    """

    angles: Angles
    low: float
    high: float
    shift: float
    grid: Array
    coefficients: Array
    powers: Array
    monomial: bool
    ratios: Array
    values: Array
    masses: Array
    error: float = TOLERANCE
    exact: Activation | None = None

    @property
    def rank(self) -> int:
        """How many variances were tabulated."""
        return int(self.coefficients.shape[1])

    def covers(self, q: Array) -> bool:
        """Whether every variance lies in the range, up to what rounding and a mild extrapolation allow."""
        if math.isinf(self.high):
            return True
        span = self._place(np.array([self.high]))[0]
        slack = 1e-12 + 0.02 * span
        low, high = self._place(np.array([q.min(), q.max()]))
        return bool(low >= -slack and high <= span + slack)

    def _place(self, q: Array) -> Array:
        """Log of sqrt(q) + shift, counted from the least variance; nearly equal ones keep their difference."""
        return place(q, self.low, self.shift)

    def weights(self, q: Array) -> Array:
        """Interpolation weights of each variance; (m,) to (m, r)."""
        if self.rank == 1:
            return np.ones((len(q), 1))
        span = self._place(np.array([self.high]))[0]
        # no BLAS here: equal inputs get equal weights, to the last bit, wherever they stand
        values = basis(2 * self._place(q) / span - 1, self.rank)
        return np.asarray(np.einsum("ik,ka->ia", values, to_coefficients(self.rank)))

    def mean_square(self, q: Array, weights: Array) -> Array:
        """E phi(sqrt(q) Z)^2 of each variance; (m,) to (m,)."""
        rule = self.exact
        if rule is not None:
            return gaussian_mean(lambda h: rule.function(h) ** 2, q, rule.breaks)
        return np.asarray((q + self.shift**2) * (np.einsum("ia,a->i", weights, self.ratios)))

    def evaluate(self, first: Array, second: Array, gap: Array) -> tuple[Array, Array]:
        """G and H where rows have weights first (m1, r), columns second (m2, r) and gap = 1 - c is (m1, m2)."""
        rows, columns = gap.shape
        t = np.sqrt(0.5 * gap)
        np.arcsin(t, out=t)
        t *= 2
        t = self.angles.to_unit(t)
        if self.rank == 1:
            both = polynomials(self.powers.reshape(2, -1), t.reshape(1, -1), self.monomial)
            return both[0, 0].reshape(gap.shape), both[0, 1].reshape(gap.shape)
        series = np.tensordot(first, self.coefficients, axes=(1, 1))
        series = series.reshape(rows, 2 * self.rank, -1)
        parts = (series @ powers_of(t, series.shape[-1], monomial=False)).reshape(rows, 2, self.rank, columns)
        parts *= second.T
        summed = parts.sum(axis=2)
        return summed[:, 0], summed[:, 1]


def polynomials(series: Array, t: Array, monomial: bool) -> Array:
    """Several series of one row's t; (rows, m, n) or (m, n) coefficients and (rows, columns) to (rows, m, columns)."""
    count = series.shape[-1]
    if monomial:
        # sums of a few powers by one product of matrices, those summed by Horner's rule: few passes over memory
        few = math.ceil(math.sqrt(count))
        chunks = -(-count // few)
        padded = np.zeros((*series.shape[:-1], few * chunks))
        padded[..., :count] = series
        many = series.shape[-2]
        # the chunks of all series, chunk by chunk
        padded = np.moveaxis(padded.reshape(*series.shape[:-1], chunks, few), -2, -3)
        powers = powers_of(t, few, monomial=True)
        sums = padded.reshape(*series.shape[:-2], chunks * many, few) @ powers
        step = (powers[:, -1] * t)[:, None]
        total = sums[:, -many:]
        for k in range(chunks - 2, -1, -1):
            total *= step
            total += sums[:, k * many : (k + 1) * many]
        return np.asarray(total)
    return np.asarray(series @ powers_of(t, count, monomial=False))


def powers_of(t: Array, count: int, monomial: bool) -> Array:
    """1, t, t^2, ... or Chebyshev's T_0, T_1, T_2, ...; (rows, columns) to (rows, count, columns)."""
    result = np.empty((len(t), count, t.shape[1]))
    result[:, 0] = 1.0
    if count > 1:
        result[:, 1] = t
    double = t if monomial else 2 * t
    for k in range(2, count):
        np.multiply(double, result[:, k - 1], out=result[:, k])
        if not monomial:
            result[:, k] -= result[:, k - 2]
    return result


def place(q: Array, low: float, shift: float) -> Array:
    """Log of sqrt(q) + shift, counted from the least variance; nearly equal ones keep their difference."""
    start = math.sqrt(low)
    return np.asarray(np.log1p((q - low) / np.maximum(np.sqrt(q) + start, 1e-200) / (start + shift)))


def needed_rank(low: float, high: float, shift: float = 0.0) -> int:
    """How many variances a table over [low, high] will need: from the distance to the nearest singularity of log q."""
    span = math.log((math.sqrt(high) + shift) / (math.sqrt(low) + shift))
    if span < 5e-14:
        return 1
    # kernels are analytic in log q within about 2.5 of the real axis: Chebyshev series fall like rho^-r
    ratio = 2.5 / span
    return max(2, math.ceil(math.log(1e12) / math.log(ratio + math.hypot(ratio, 1.0))))


def tabulate(rule: Activation, low: float, high: float, folded: bool = False) -> SlopeTable:
    """Tabulate the covariance map of an activation.

    Args:
        rule: the activation.
        low: least variance, >= 0.
        high: largest variance, finite; equal to low for one variance.
        folded: whether angles beyond pi/2 are never asked for (phi odd or even).

    Returns:
        A table whose G and H are within :data:`TOLERANCE` of the exact ones, relative to the largest of them (checked
        by the decay of the series: terms are added until it is reached, at most 256 in the angle and 48 variances).
    """
    if rule.homogeneous:
        low, high = 1.0, 1.0
    # kinks that pass each other where variances differ: no series falls fast, and many terms take minutes
    rough = high > low and any(rule.breaks)
    # variances spread over many decades start at 0 or near it: a scale that is linear there
    shift = min(0.1 * math.sqrt(high), 0.3) if low < 1e-6 * high else 0.3 if high == 0 else 0.0
    end = math.pi / 2 if folded else math.pi
    width = math.inf if high < 3 or rule.homogeneous else 1 / math.sqrt(high)
    angles = Angles(end, width)
    count = _ROUGH[1] if rough else _angles_needed(rule, angles, np.unique([low, high]))
    most = _ROUGH[0] if rough else _LARGEST_RANK
    rank = min(needed_rank(low, high, shift), most)
    while True:
        span = math.log((math.sqrt(high) + shift) / (math.sqrt(low) + shift))
        step = (math.sqrt(low) + shift) * np.expm1((nodes(rank) + 1) / 2 * span)
        grid = low + step * (2 * math.sqrt(low) + step)
        coefficients = _series(rule, angles, count, grid)
        largest = np.abs(coefficients).max()
        across = np.tensordot(to_coefficients(rank), coefficients, axes=(1, 1))
        if rank <= 2 or rank == most or np.abs(across[-2:]).max() <= TOLERANCE * largest:
            break
        rank = min(math.ceil(1.4 * rank), most)
    kept = int(np.flatnonzero((np.abs(coefficients) > 0.01 * TOLERANCE * largest).any(axis=(0, 1, 2))).max()) + 1
    values, masses = on_a_line(rule, grid)
    ratios = (values**2 @ masses) / (grid + shift**2)
    if rule.homogeneous:
        low, high = 0.0, math.inf
    coefficients = coefficients[..., : max(kept, 2)]
    powers = coefficients @ to_powers(coefficients.shape[-1])
    monomial = bool(np.abs(powers).sum(axis=-1).max() < _CANCELLING * largest)
    table = SlopeTable(
        angles, low, high, shift, grid, coefficients, powers if monomial else coefficients, monomial, ratios, values,
        masses,
    )  # fmt: skip
    if shift > 0 and not rule.homogeneous:
        table = replace(table, exact=rule)
    return replace(table, error=_measured(rule, table)) if rough else table


def _measured(rule: Activation, table: SlopeTable) -> float:
    """The largest error of H at a few places between the nodes, relative to its largest value."""
    q = table.low + (table.high - table.low) * np.array([0.03, 0.37, 0.61, 0.98])
    gap = np.broadcast_to(np.array([[1e-4, 0.01, 0.3, 0.8]]), (4, 4))
    weights = table.weights(q)
    found = table.evaluate(weights, weights, gap)[1]
    first, second = np.broadcast_to(q[:, None], (4, 4)), np.broadcast_to(q, (4, 4))
    exact = mean_at(rule, first, second, 1 - gap, np.sqrt(gap * (2 - gap)), True)
    return max(float(np.abs(found - exact).max() / np.abs(exact).max()), TOLERANCE)


@lru_cache(maxsize=64)
def to_powers(count: int) -> Array:
    """Matrix from Chebyshev coefficients to those of powers; row k holds T_k, shape (count, count)."""
    matrix = np.zeros((count, count))
    for k in range(count):
        matrix[k, : k + 1] = np.polynomial.chebyshev.cheb2poly(np.eye(count)[k, : k + 1])
    return matrix


def _series(rule: Activation, angles: Angles, count: int, grid: Array) -> Array:
    """Chebyshev coefficients of G and H; shape (2, r, r, count)."""
    angle = angles.to_angle(nodes(count))
    slopes = mean_grid(rule, grid, np.cos(angle), np.sin(angle))
    slopes = (slopes + slopes.transpose(0, 2, 1)) / 2
    both = np.stack([np.tensordot(gap_matrix(angles, count), slopes, axes=1), slopes])
    return np.moveaxis(np.tensordot(both, to_coefficients(count), axes=(1, 1)), -1, -1)


def _angles_needed(rule: Activation, angles: Angles, ends: Array) -> int:
    """The least count whose series has died out at the ends of the range of variances."""
    for count in _COUNTS:
        coefficients = np.abs(_series(rule, angles, count, ends))
        if coefficients[..., -3:].max() <= 0.1 * TOLERANCE * coefficients.max():
            return count
    return _COUNTS[-1]
