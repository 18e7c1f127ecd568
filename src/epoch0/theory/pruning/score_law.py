"""The law of one layer's scores: a row factor times a column factor times one of the entry's own (THEORY section 4)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincc, erfc, gammaln, ndtr

from epoch0.errors import InputError
from epoch0.theory.pruning.following import fit, following_tail
from epoch0.theory.pruning.log_grid import GRID, STEP, histogram, times

Array = NDArray[np.float64]

HALF_NORMAL = math.sqrt(2 / math.pi)
"""Mean of |N| for a standard normal N."""

_FEWEST, _MOST = 1.0005, 1e6  # of the dimensions of a sphere: two values only, and a normal variable
_ROUNDS = 3
_LEAST = -40.0  # log of a probability that no product of it need tell from 0


@dataclass(frozen=True, eq=False)
class ScoreLaw:
    """How the scores of one layer are distributed, in units of ``scale``.

    Attributes:
        tail: probability that a score exceeds scale * exp(GRID); shape (1100,).
        none_above: probability that no score of the layer does; shape (1100,).
        scale: root mean square of the scores.
        weights: number of scores.
    """

    tail: Array
    none_above: Array
    scale: float
    weights: int


def score_law(entry: Array, rows: ArrayLike, columns: ArrayLike, scale: float = 1.0) -> ScoreLaw:
    """The law of S_ij = scale * rows_i * columns_j * X_ij with independent X, given its rows and columns.

    >>> law = score_law(entry_tail(1.0), np.ones(50), np.ones(100))              # |N(0, 1)| of 50 x 100 weights
    >>> float(np.interp(0.0, GRID, law.tail).round(3))                           # P(|N| > 1)
    0.317

    The largest score depends on what rows and columns share, so it is not that of independent scores.

    Args:
        entry: tail of X, on the grid: P(X > exp(GRID)); from :func:`entry_tail` or :func:`entry_of_mean`.
        rows: factors of the rows, >= 0, shape (n_out,), or (draws, n_out) for several drawings to average over.
        columns: of the columns, (n_in,) or (draws, n_in).
        scale: > 0.

    Source: beyond Hayou et al. 2021, who bound the largest score; one convolution of logarithms for each side.
    """
    counts = [np.atleast_2d(histogram(factors)) for factors in (rows, columns)]
    sizes = [np.shape(factors)[-1] for factors in (rows, columns)]
    tail = times(entry, *(one.mean(axis=0) / size for one, size in zip(counts, sizes, strict=True)))
    with np.errstate(divide="ignore"):
        stays_below = np.maximum(np.log1p(-np.minimum(entry, 1.0)), _LEAST)
    none = np.exp(np.minimum(times(stays_below, *counts), 0.0)).mean(axis=0)
    # rounding of the convolution, 1e-16 of its largest term, must not make a chance rise where it falls
    tail = np.minimum.accumulate(np.clip(tail, 0.0, 1.0))
    return ScoreLaw(tail, np.maximum.accumulate(none), scale, sizes[0] * sizes[1])


def entry_tail(shared: float, weights: str = "normal") -> Array:
    """Tail of X = |W| |sqrt(shared) + sqrt(1 - shared) N|: a weight times what its row's gradient does not explain.

    Args:
        shared: share of the gradient's variance that rows and columns explain, in [0, 1]: 1 where all examples look
            alike, so that the gradient is a product, near 0 where it is a sum over many different examples.
        weights: ``"normal"``, or ``"one"`` for a score without the weight in it.

    Returns:
        P(X > exp(GRID)), shape (1100,).
    """
    t = np.exp(GRID)
    if shared >= 1:
        return np.asarray(erfc(t / math.sqrt(2)) if weights == "normal" else (t < 1).astype(np.float64))
    if weights != "normal":
        return _offset_tail(t, shared)
    return _product(entry_tail(1.0), _offset_tail(np.exp(GRID[:-1] + STEP / 2), shared))


def entry_of_mean(mean: float, log_mean: float | None = None) -> Array:
    """Tail of the X of mean square 1 whose mean is given: the moments that a layer shows decide its shape.

    From 1 to sqrt(2/pi) = 0.80 it is a coordinate of a random point on a sphere (of two points, ..., to |N|: what is
    left of a normal factor when it is divided by the root mean square of few; uniform weights lie between, on the
    sphere in three dimensions). From there to 2/pi = 0.64 it is :func:`entry_tail`, from |W| to |W N|. Below, that
    times a log-normal factor, or with a gradient that follows the weight as far as the mean logarithm asks for it:
    |W (rho W + sqrt(1 - rho^2) N)|, which is a square at rho = 1.

    Args:
        mean: E X / sqrt(E X^2), in (0, 1].
        log_mean: E log X - log(E X^2) / 2; only looked at where the mean is below 2/pi.

    Returns:
        P(X > exp(GRID)), shape (1100,).

    Raises:
        InputError: if it is no such mean.
    """
    from scipy.optimize import brentq

    if not 0 < mean <= 1 + 1e-9:
        raise InputError(f"mean={mean!r} is no mean of a variable >= 0 of mean square 1; it lies in (0, 1].")
    t = np.exp(GRID)
    if mean >= _sphere_mean(_FEWEST):
        return np.asarray((t < 1).astype(np.float64))
    if mean > _sphere_mean(_MOST):
        size = float(brentq(lambda n: _sphere_mean(n) - mean, _FEWEST, _MOST))
        return np.asarray(betaincc(0.5, (size - 1) / 2, np.minimum(t * t / size, 1.0)))
    if mean >= HALF_NORMAL**2:
        return entry_tail(float(brentq(lambda k: HALF_NORMAL * _offset_mean(k) - mean, 0.0, 1.0)))
    correlation, spread = 0.0, math.sqrt(-2 * math.log(mean / HALF_NORMAL**2))
    if log_mean is not None:
        correlation, spread = fit(mean, log_mean)
    tail = following_tail(correlation) if correlation > 0 else entry_tail(0.0)
    if spread < STEP:
        return tail
    return _product(tail, ndtr(-(GRID[:-1] + STEP / 2 + spread**2) / spread))


def _product(tail: Array, edges: Array) -> Array:
    """The tail of a product with a factor whose tail is known between the points of the grid, shape (1099,)."""
    cells = -np.diff(edges, prepend=1.0, append=0.0)  # beyond the grid: at its ends
    return np.clip(times(tail, cells), 0.0, 1.0)


def _offset_tail(t: Array, shared: float) -> Array:
    """P(|sqrt(k) + sqrt(1 - k) N| > t)."""
    root, rest = math.sqrt(shared), math.sqrt(2 * (1 - shared))
    return np.asarray((erfc((t - root) / rest) + erfc((t + root) / rest)) / 2)


def _sphere_mean(size: float) -> float:
    """Mean of |X_1| for a random point X on the sphere of radius sqrt(n) in n dimensions."""
    logarithm = 0.5 * math.log(size / math.pi) + float(gammaln(size / 2) - gammaln((size + 1) / 2))
    return math.exp(logarithm)


def _offset_mean(shared: float) -> float:
    """Mean of |sqrt(k) + sqrt(1 - k) N|."""
    root, rest = math.sqrt(shared), math.sqrt(max(1 - shared, 1e-300))
    return rest * HALF_NORMAL * math.exp(-0.5 * (root / rest) ** 2) + root * math.erf(root / rest / math.sqrt(2))


def law_of_moments(
    row_squares: ArrayLike, column_squares: ArrayLike, mean: float, zeros: float = 0.0, log_mean: float | None = None
) -> ScoreLaw:
    """The law of a layer's scores from their mean squares in each row and column, their mean and that of their logs.

    >>> scores = np.abs(np.random.default_rng(0).standard_normal((60, 80)))
    >>> law = law_of_moments((scores**2).mean(1), (scores**2).mean(0), float(scores.mean()))    # (60,), (80,)
    >>> float(np.interp(0.0, GRID, law.tail).round(2))                   # P(|N| > 1) is 0.317
    0.33

    S_ij = s sqrt(r_i c_j) X_ij, where r and c are the rows' and columns' mean squares over the whole one s^2, less the
    noise of means over few entries, and the shape of X gives the mean; see :func:`entry_of_mean`.

    Args:
        row_squares: mean square of the scores of each row, shape (n_out,).
        column_squares: of each column, shape (n_in,).
        mean: of all scores.
        zeros: fraction of scores that are exactly 0 among the rows and columns that are not all 0, in [0, 1).
        log_mean: mean of the logarithms of those that are not; None: as for weights that know nothing of their
            gradients.

    Raises:
        InputError: if they cannot belong to one matrix of scores >= 0.
    """
    rows, columns = (np.asarray(a, dtype=np.float64) for a in (row_squares, column_squares))
    for side in (rows, columns):
        if side.ndim != 1 or not len(side) or not (np.isfinite(side) & (side >= 0)).all():
            raise InputError("row_squares and column_squares must be lists of finite numbers >= 0.")
    total = float(rows.mean())
    if not math.isclose(total, float(columns.mean()), rel_tol=1e-3):
        raise InputError(
            f"the rows' mean square is {total:.6g} and the columns' {float(columns.mean()):.6g}; of one layer's scores "
            "they are equal."
        )
    if not (0 <= zeros < 1 and mean >= 0 and (mean > 0) == (total > 0)):
        raise InputError(
            f"mean={mean!r}, zeros={zeros!r}, mean square {total:.6g}: the mean must be >= 0, and 0 only with the mean "
            "square, and the fraction of zeros in [0, 1)."
        )
    if total == 0:
        return ScoreLaw(np.zeros(len(GRID)), np.ones(len(GRID)), 0.0, len(rows) * len(columns))
    share = 1 - zeros
    ratio = mean / math.sqrt(total * share)
    row, column = shown = rows / total, columns / total
    logs = None if log_mean is None else log_mean - 0.5 * math.log(total / share)
    entry = _entry(ratio, row, column, logs)
    for _ in range(_ROUNDS):  # the noise depends on the entries, and they on what is left to explain
        excess = _kurtosis(entry) / share - 1
        noise = [excess * float((other**2).mean()) / len(other) for other in (column, row)]
        row, column = (_without_noise(one, of_it) for one, of_it in zip(shown, noise, strict=True))
        entry = _entry(ratio, row, column, logs)
    if zeros > 0:  # what is not 0 has the mean square 1 / share
        entry = share * np.interp(GRID + 0.5 * math.log(share), GRID, entry)
    return score_law(entry, np.sqrt(row), np.sqrt(column), math.sqrt(total))


def _entry(ratio: float, row: Array, column: Array, logs: float | None) -> Array:
    """The law of what is left of a score without its row's and its column's factor."""
    mean = min(ratio / float(np.sqrt(row).mean() * np.sqrt(column).mean()), 1.0)
    if logs is None:
        return entry_of_mean(mean)
    return entry_of_mean(mean, logs - sum(0.5 * float(np.log(side[side > 0]).mean()) for side in (row, column)))


def _kurtosis(entry: Array) -> float:
    """E X^4 / (E X^2)^2 from the tail of X."""
    t = np.exp(GRID)
    square, fourth = (float((power * t**power * entry).sum() * STEP) for power in (2, 4))
    return fourth / square**2


def _without_noise(squares: Array, noise: float) -> Array:
    """Mean squares of rows with their logarithms drawn together by what few entries a row make them vary.

    Args:
        squares: mean square of each row, of mean 1; shape (n,).
        noise: their relative variance for rows that are alike.
    """
    live = squares > 0
    logarithms = np.log(squares[live])
    spread, middle = float(logarithms.var()), float(logarithms.mean())
    kept = math.sqrt(max(1 - math.log1p(noise) / spread, 0.0)) if spread > 0 else 0.0
    result = np.zeros_like(squares)
    result[live] = np.exp(middle + (logarithms - middle) * kept)
    return np.asarray(result / result.mean())
