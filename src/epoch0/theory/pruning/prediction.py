"""Predictions before pruning: laws of scores, the density of each layer, when one vanishes (THEORY section 4).

The law of one layer's scores is that of a row factor times a column factor times one of the entry's own. Laws live on a
grid of logarithms, where a product is a sum and a mixture a convolution.

A special case is the first layer of a network that sees white noise, whose weights their gradients follow. The gradient
of a filter w with a ReLU behind it is a sum of inputs x over the places where w.x > 0. Of white noise these have the
mean direction of w, so that the gradient is c w plus noise, and the score W (c W + noise) is closer to a square.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0 import special
from epoch0.results import Result, first_names
from epoch0.theory.checks import Array

LOW, STEP, SIZE = -16.0, 0.02, 1100
GRID: Array = np.asarray(LOW + STEP * np.arange(SIZE), dtype=np.float64)
"""Logarithms at which laws are known, from -16 to 6: scores are in units of their layer's root mean square."""

_ZERO = round(-LOW / STEP)
_PAD = SIZE + 200  # beyond the grid a kernel is what it is at its ends
_HALF_NORMAL = math.sqrt(2 / math.pi)  # E |N| for a standard normal N
_LOG_NORMAL = -(math.log(2) + np.euler_gamma) / 2  # E log |N|
# How much lower a mean logarithm may be than that of a square before it tells nothing: its error with 30 scores.
_UNSURE = 0.3
_NODES = 240  # of the integral over the weight, whose logarithm runs over what has any weight on the grid
_FEWEST, _MOST = 1.0005, 1e6  # of the dimensions of a sphere: two values only, and a normal variable
_ROUNDS = 3
_COARSE = 0.06  # step of log t in the integral for the critical sparsity
_LEAST = -40.0  # log of a probability that no product of it need tell from 0


def histogram(factors: ArrayLike) -> Array:
    """Where factors lie on the grid of logarithms, each shared between its two neighbours; (..., n) to (..., 1100).

    Zeros count nowhere.
    """
    values = np.asarray(factors, dtype=np.float64)
    flat = values.reshape(-1, values.shape[-1])
    row, column = np.nonzero(flat > 0)
    place = np.clip((np.log(flat[row, column]) - LOW) / STEP, 0, SIZE - 1.000001)
    left = place.astype(np.int64)
    share, cells = place - left, row * SIZE + left
    counts = np.bincount(cells, 1 - share, len(flat) * SIZE) + np.bincount(cells + 1, share, len(flat) * SIZE)
    return np.asarray(counts.reshape(*values.shape[:-1], SIZE))


def times(kernel: Array, *histograms: Array) -> Array:
    """The sum of kernel(log t - log of a product of factors) over all products of one factor from each histogram.

    With a tail function as kernel and histograms that sum to 1 that is the tail function of the product.

    The kernel, (1100,), is a function of log t on the grid, constant beyond its ends; counts are (..., 1100).
    """
    padded = np.concatenate([np.full(_PAD, kernel[0]), kernel, np.full(_PAD, kernel[-1])])
    length = 1 << math.ceil(math.log2(len(padded) + SIZE * len(histograms)))
    spectrum: NDArray[Any] = np.fft.rfft(padded, length)
    for counts in histograms:
        spectrum = spectrum * np.fft.rfft(counts, length)
    start = _PAD + _ZERO * len(histograms)
    return np.asarray(np.fft.irfft(spectrum, length)[..., start : start + SIZE])


@dataclass(frozen=True, eq=False)
class ScoreLaw:
    """How the scores of one layer are distributed, in units of ``scale``.

    On the grid, (1100,): ``tail`` is the probability that a score exceeds scale * exp(GRID), ``none_above`` that no
    score of the layer does. ``scale`` is the root mean square of the scores, ``weights`` their number.
    """

    tail: Array
    none_above: Array
    scale: float
    weights: int


def score_law(entry: Array, rows: ArrayLike, columns: ArrayLike, scale: float = 1.0) -> ScoreLaw:
    """The law of S_ij = scale * rows_i * columns_j * X_ij with independent X, given its rows and columns.

    The largest score depends on what rows and columns share, so it is not that of independent scores.

    ``entry`` is the tail of X on the grid, P(X > exp(GRID)). Factors of rows, (n_out,), and of columns, (n_in,), are >=
    0; with a leading axis they are several drawings to average over.

    Source: beyond Hayou et al. 2021, who bound the largest score; one convolution of logarithms for each side.
    """
    counts = [np.atleast_2d(histogram(factors)) for factors in (rows, columns)]
    sizes = [np.shape(factors)[-1] for factors in (rows, columns)]
    tail = times(entry, *(item.mean(axis=0) / size for item, size in zip(counts, sizes, strict=True)))
    with np.errstate(divide="ignore"):
        stays_below = np.maximum(np.log1p(-np.minimum(entry, 1.0)), _LEAST)
    none = np.exp(np.minimum(times(stays_below, *counts), 0.0)).mean(axis=0)
    # rounding of the convolution, 1e-16 of its largest term, must not make a chance rise where it falls
    tail = np.minimum.accumulate(np.clip(tail, 0.0, 1.0))
    return ScoreLaw(tail, np.maximum.accumulate(none), scale, sizes[0] * sizes[1])


def entry_tail(shared: float) -> Array:
    """Tail of X = |W| |sqrt(shared) + sqrt(1 - shared) N|: a weight times what its row's gradient does not explain.

    ``shared`` is the share of the gradient's variance that rows and columns explain: 1 where all examples look alike,
    so that the gradient is a product, near 0 where it is a sum over many different examples.
    """
    if shared >= 1:
        return np.asarray(special.erfc(np.exp(GRID) / math.sqrt(2)))
    t, root, rest = np.exp(GRID[:-1] + STEP / 2), math.sqrt(shared), math.sqrt(2 * (1 - shared))
    return _product(entry_tail(1.0), (special.erfc((t - root) / rest) + special.erfc((t + root) / rest)) / 2)


def entry_of_mean(mean: float, log_mean: float = -math.inf) -> Array:
    """Tail of the X of mean square 1 whose mean is given: the moments that a layer shows decide its shape.

    From 1 to sqrt(2/pi) = 0.80 it is a coordinate of a random point on a sphere (of two points, ..., to |N|: what is
    left of a normal factor when it is divided by the root mean square of few; uniform weights lie between, on the
    sphere in three dimensions). From there to 2/pi = 0.64 it is :func:`entry_tail`, from |W| to |W N|. Below, that
    times a log-normal factor, or with a gradient that follows the weight as far as the mean logarithm asks for it:
    |W (rho W + sqrt(1 - rho^2) N)|, which is a square at rho = 1.

    ``mean`` is E X / sqrt(E X^2), in (0, 1], ``log_mean`` E log X - log(E X^2) / 2; read where the mean is below 2/pi.
    """
    from scipy.optimize import brentq

    t = np.exp(GRID)
    if mean >= _sphere_mean(_FEWEST):
        return np.asarray((t < 1).astype(np.float64))
    if mean > _sphere_mean(_MOST):
        size = float(brentq(lambda n: _sphere_mean(n) - mean, _FEWEST, _MOST))
        return np.asarray(special.betaincc(0.5, (size - 1) / 2, np.minimum(t * t / size, 1.0)))
    if mean >= _HALF_NORMAL**2:
        return entry_tail(float(brentq(lambda k: _HALF_NORMAL * _offset_mean(k) - mean, 0.0, 1.0)))
    correlation, spread = fit(mean, log_mean)
    tail = following_tail(correlation) if correlation > 0 else entry_tail(0.0)
    return tail if spread < STEP else _product(tail, special.ndtr(-(GRID[:-1] + STEP / 2 + spread**2) / spread))


def following_tail(correlation: float) -> Array:
    """Tail of X = |U V| / sqrt(1 + 2 rho^2) for standard normal U and V with this correlation; E X^2 = 1."""
    t = np.exp(GRID) * math.sqrt(1 + 2 * correlation**2)
    if (rest := math.sqrt(max(1 - correlation**2, 0.0))) < 1e-6:
        return np.asarray(special.erfc(np.sqrt(t / 2)))
    u = np.exp(np.linspace(-14.0, 2.2, _NODES))  # |U| up to 9; below 1e-6 lies no mass
    mass = np.exp(-(u**2) / 2) * u
    mass /= mass.sum()
    up, down = ((t[:, None] / u + sign * correlation * u) / (rest * math.sqrt(2)) for sign in (1, -1))
    return np.asarray((special.erfc(up) + special.erfc(down)) @ mass / 2)


def following_moments(correlation: float) -> tuple[float, float]:
    """E X and E log X of that X."""
    size = math.sqrt(1 + 2 * correlation**2)
    mean = 2 / math.pi * (math.sqrt(max(1 - correlation**2, 0.0)) + correlation * math.asin(correlation))
    return mean / size, 2 * _LOG_NORMAL - math.log(size)


def fit(mean: float, log_mean: float) -> tuple[float, float]:
    """The correlation and the spread at which X exp(spread Z) / exp(spread^2) has this mean and mean logarithm.

    A spread lowers the mean by a factor exp(-spread^2 / 2) and the mean logarithm by spread^2; a correlation lowers the
    logarithm by more. Where they ask for less spread than none, the logarithm decides. One that is lower than a square
    has it comes from units that hardly ever answer, and tells nothing: then the mean decides alone.
    """
    from scipy.optimize import brentq

    def by_mean(correlation: float) -> float:
        return max(-2 * math.log(mean / following_moments(correlation)[0]), 0.0)

    def spread_square(correlation: float) -> float:
        return following_moments(correlation)[1] - log_mean

    def excess(correlation: float) -> float:
        return following_moments(correlation)[0] * math.exp(-spread_square(correlation) / 2) - mean

    if excess(1.0) <= 0:
        best = 1.0 if log_mean > following_moments(1.0)[1] - by_mean(1.0) - _UNSURE else 0.0
        return best, math.sqrt(by_mean(best))
    best = 0.0 if excess(0.0) >= 0 else float(brentq(excess, 0.0, 1.0))
    if spread_square(best) <= 0:
        return (0.0 if spread_square(0.0) <= 0 else float(brentq(spread_square, 0.0, 1.0))), 0.0
    return best, math.sqrt(spread_square(best))


def _product(tail: Array, edges: Array) -> Array:
    """The tail of a product with a factor whose tail is known between the points of the grid, shape (1099,)."""
    return np.clip(times(tail, -np.diff(edges, prepend=1.0, append=0.0)), 0.0, 1.0)  # beyond the grid: at its ends


def _sphere_mean(size: float) -> float:
    """Mean of |X_1| for a random point X on the sphere of radius sqrt(n) in n dimensions."""
    return math.exp(0.5 * math.log(size / math.pi) + float(special.gammaln(size / 2) - special.gammaln((size + 1) / 2)))


def _offset_mean(shared: float) -> float:
    """Mean of |sqrt(k) + sqrt(1 - k) N|."""
    root, rest = math.sqrt(shared), math.sqrt(max(1 - shared, 1e-300))
    return rest * _HALF_NORMAL * math.exp(-0.5 * (root / rest) ** 2) + root * math.erf(root / rest / math.sqrt(2))


def law_of_moments(
    row_squares: ArrayLike, column_squares: ArrayLike, mean: float, zeros: float = 0.0, log_mean: float = -math.inf
) -> ScoreLaw:
    """The law of a layer's scores from their mean squares in each row and column, their mean and that of their logs.

    S_ij = s sqrt(r_i c_j) X_ij, where r and c are the rows' and columns' mean squares over the whole one s^2, less the
    noise of means over few entries, and the shape of X gives the mean; see :func:`entry_of_mean`.

    Mean squares are of each row, (n_out,), and column, (n_in,); ``zeros`` is the fraction of exact zeros among those
    that are not all 0, ``log_mean`` the mean logarithm of the others; -inf: weights independent of gradients.
    """
    rows, columns = (np.asarray(a, dtype=np.float64) for a in (row_squares, column_squares))
    if (total := float(rows.mean())) == 0:
        return ScoreLaw(np.zeros(len(GRID)), np.ones(len(GRID)), 0.0, len(rows) * len(columns))
    share = 1 - zeros
    ratio = mean / math.sqrt(total * share)
    row, column = shown = rows / total, columns / total
    logs = log_mean - 0.5 * math.log(total / share)
    entry = _entry(ratio, row, column, logs)
    for _ in range(_ROUNDS):  # the noise depends on the entries, and they on what is left to explain
        square, fourth = (float((k * np.exp(k * GRID) * entry).sum() * STEP) for k in (2, 4))
        noise = [(fourth / square**2 / share - 1) * float((k**2).mean()) / len(k) for k in (column, row)]
        row, column = (_without_noise(item, of_it) for item, of_it in zip(shown, noise, strict=True))
        entry = _entry(ratio, row, column, logs)
    if zeros > 0:  # what is not 0 has the mean square 1 / share
        entry = share * np.interp(GRID + 0.5 * math.log(share), GRID, entry)
    return score_law(entry, np.sqrt(row), np.sqrt(column), math.sqrt(total))


def _entry(ratio: float, row: Array, column: Array, logs: float) -> Array:
    """The law of a score divided by its row's and its column's factor."""
    mean = min(ratio / float(np.sqrt(row).mean() * np.sqrt(column).mean()), 1.0)
    return entry_of_mean(mean, logs - sum(0.5 * float(np.log(side[side > 0]).mean()) for side in (row, column)))


def _without_noise(squares: Array, noise: float) -> Array:
    """Mean squares of rows less the relative variance ``noise`` that few entries a row add to equal rows."""
    live = squares > 0
    logarithms = np.log(squares[live])
    spread, middle = float(logarithms.var()), float(logarithms.mean())
    kept = math.sqrt(max(1 - math.log1p(noise) / spread, 0.0)) if spread > 0 else 0.0
    result = np.zeros_like(squares)
    result[live] = np.exp(middle + (logarithms - middle) * kept)
    return np.asarray(result / result.mean())


@dataclass(frozen=True)
class LayerDensity:
    """Expected density of one layer under a global threshold.

    Expected fraction kept, the probability that nothing is, and the mean square of the scores over the last layer's.
    """

    layer: str
    weights: int
    density: float
    vanishes: float
    mean_square: float


@dataclass(frozen=True)
class PredictedDensity(Result):
    """Expected densities after pruning by a global threshold.

    >>> found = e0.theory.pruning.predicted_density("tanh", 0.8041, 0.3, [100] * 101, sparsity=0.3)
    >>> found.at_risk[:3], round(found.critical_sparsity, 2)
    (['1', '2', '3'], 0.15)

    ``critical_sparsity`` is the expected smallest sparsity at which some layer is fully removed; what its standard
    deviation is over, and what the prediction rests on, is said in ``basis``.
    """

    sparsity: float
    layers: tuple[LayerDensity, ...]
    critical_sparsity: float
    critical_sparsity_sd: float
    basis: str

    @property
    def density(self) -> dict[str, float]:
        """Expected fraction kept, by layer."""
        return {row.layer: row.density for row in self.layers}

    @property
    def at_risk(self) -> list[str]:
        """Layers that vanish with a probability above 5 %, in the order of the layers."""
        return [row.layer for row in self.layers if row.vanishes > 0.05]

    def to_dict(self) -> dict[str, Any]:
        dead = sum(row.vanishes for row in self.layers)
        return asdict(self) | {"layers": self.rows(), "at_risk": self.at_risk, "expected_dead": dead}

    def __str__(self) -> str:
        size = max(len("layer"), *(len(row.layer) for row in self.layers))
        risk = f"at risk: {first_names(self.at_risk, 6)}" if self.at_risk else "no layer is at risk"
        critical = f"{self.critical_sparsity:.4g} (sd {self.critical_sparsity_sd:.2g})"
        head = f"sparsity {self.sparsity:g} ({self.basis}): a layer is expected to vanish from {critical} on; {risk}"
        lines = [head, f"{'layer':{size}}  {'weights':>9}  {'density':>7}  {'vanishes':>8}  {'m_l/m_L':>9}"]
        lines += [
            f"{row.layer:{size}}  {row.weights:>9,}  {row.density:>7.4f}  {row.vanishes:>8.3f}  {row.mean_square:>9.3g}"
            for row in self.layers
        ]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Layers:
    """Laws of the scores of a network's layers, and how their scales vary.

    ``log_scales``, (networks, layers), is the logarithm of each layer's scale in several networks, minus infinity where
    all scores are 0; ``weights``, (layers,), the number of weights of each layer.
    """

    laws: Sequence[ScoreLaw]
    log_scales: Array
    weights: Array

    def thresholds(self, sparsity: float) -> Array:
        """Logarithm of the threshold that removes this fraction of all weights, in each network; shape (networks,)."""
        finite = self.log_scales[np.isfinite(self.log_scales)]
        low = np.full(len(self.log_scales), finite.min() + LOW)
        high = np.full(len(self.log_scales), finite.max() + GRID[-1])
        for _ in range(60):
            middle = (low + high) / 2
            more = self.at("tail", middle) @ self.weights / self.weights.sum() > 1 - sparsity
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return np.asarray((low + high) / 2)

    def at(self, column: str, log_t: Array, networks: int | slice = slice(None)) -> Array:
        """Each layer's "tail" or "none_above" at thresholds, of one network or one of each; (m,) to (m, layers)."""
        beyond = 0.0 if column == "tail" else 1.0
        each = zip(self.laws, self.log_scales[networks].T, strict=True)
        return np.stack([np.interp(log_t - scale, GRID, getattr(law, column), right=beyond) for law, scale in each], 1)

    def critical_sparsity(self) -> tuple[float, float]:
        """Mean and standard deviation of the smallest sparsity at which some layer is fully removed.

        Each layer's largest score has its law; the first to go has the least; the sparsity is the fraction below it.
        """
        if not np.isfinite(self.log_scales).all():
            return 0.0, 0.0
        least = self.log_scales.min(axis=1)
        # the largest score of the weakest layer is not above its grid, and of a layer of one weight not far below
        steps = np.arange(-LOW + GRID[-1], step=_COARSE) + LOW
        first, second = np.empty(len(least)), np.empty(len(least))
        for network in range(len(least)):
            tails, nones = (self.at(column, least[network] + steps, network) for column in ("tail", "none_above"))
            removed = 1 - tails @ self.weights / self.weights.sum()
            with np.errstate(divide="ignore"):
                alive = np.exp(np.log1p(-nones).sum(axis=1))
            alive[-1] = 0.0
            # the integral of s over the law of t, of which 1 - alive is the distribution function
            chance = np.diff(1 - alive, prepend=0.0)
            between = np.concatenate([removed[:1], (removed[1:] + removed[:-1]) / 2])
            first[network], second[network] = chance @ between, chance @ between**2
        mean = float(first.mean())
        return mean, math.sqrt(max(float(second.mean()) - mean**2, 0.0))


def predict(layers: Layers, sparsity: float, basis: str, names: Sequence[str] = ()) -> PredictedDensity:
    """The prediction for one sparsity, averaged over the networks in ``layers``; names are "1", "2", ... by default."""
    names = names or [str(layer + 1) for layer in range(len(layers.laws))]
    log_t = layers.thresholds(sparsity)
    density, gone = layers.at("tail", log_t).mean(axis=0), layers.at("none_above", log_t).mean(axis=0)
    mean, sd = layers.critical_sparsity()
    # the median network: a mean of lognormal scales would speak of the rarest
    squares = 2 * np.median(layers.log_scales, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        relative = np.exp(squares - squares[-1])
    columns = zip(names, layers.weights, density, gone, relative, strict=True)
    rows = tuple(LayerDensity(name, int(count), *map(float, numbers)) for name, count, *numbers in columns)
    return PredictedDensity(float(sparsity), rows, mean, sd, basis)
