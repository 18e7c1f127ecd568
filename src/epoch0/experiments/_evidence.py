"""The statistics under the claims: scores that are normal when a claim just holds, fits, samples that would decide."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from epoch0 import special
from epoch0.errors import InputError, check_finite

FALSE_ALARM = 0.01  # probability, over all settings of a claim together, of a word that is wrong
CRITICAL = -NormalDist().inv_cdf(FALSE_ALARM)
CAP = 2 * CRITICAL  # what one setting can add to the pooled evidence: half of them must speak for a claim, not one
# the same for each of the four bounds that decide about a line: on its slope, residuals, curvature and direction
LINE = -NormalDist().inv_cdf(FALSE_ALARM / 4)
POWER = -NormalDist().inv_cdf(0.1)  # "would decide" means: with probability 90 %, if things are as they look
_ROUNDING = 1e-12  # relative size of a difference that is none
_NO_ERROR = 1e-15  # relative size of a standard error that is none

Array = np.ndarray[Any, np.dtype[np.float64]]
Numbers = Annotated[ArrayLike, None]  # what numpy reads as a float or an array of floats; NaN is what was not measured


@dataclass(frozen=True)
class Settings:
    """Means with standard errors over the settings of an experiment, checked; arrays of one shape."""

    measured: Array
    errors: Array
    samples: Array  # infinite where the errors are known exactly or zero
    names: tuple[str, ...]  # one for each entry of the first dimension

    @property
    def unmeasured(self) -> bool:
        """Whether some standard error is missing, as it is after a single sample."""
        return bool(np.isnan(self.errors).any())

    def shown(self, index: int) -> str:
        return f"{self.names[index]}: {self.measured[index]:.4g} ± {self.errors[index]:.2g}"


def settings_of(measured: Numbers, errors: Numbers, samples: Numbers | None, names: Sequence[str] | None) -> Settings:
    check_finite("measured", measured)
    if samples is not None:
        check_finite("samples", samples)
    if (values := np.atleast_1d(np.asarray(measured, dtype=np.float64))).size == 0:
        raise InputError("measured is empty; a claim is about one setting or more.")
    try:
        pair = (errors, math.inf if samples is None else samples)
        spread, number = (np.array(np.broadcast_to(np.asarray(a, np.float64), values.shape)) for a in pair)
    except ValueError as error:
        raise InputError(f"errors or samples do not fit measured, which has shape {values.shape}: {error}.") from error
    if (spread < 0).any() or np.isinf(spread).any():
        raise InputError(f"errors are {spread.tolist()}; a standard error is finite and not negative.")
    if ((number < 2) & (spread > 0)).any() or (number < 1).any():
        raise InputError(f"samples are {number.tolist()}; errors need 2 samples or more (None: exact).")
    if len(labels := tuple(names or (f"setting {i + 1}" for i in range(len(values))))) != len(values):
        raise InputError(f"{len(labels)} names for {len(values)} settings; give one each.")
    return Settings(values, spread, np.where(spread == 0, np.inf, number), labels)


def scores(differences: Array, errors: Array, freedom: Array, scale: Array) -> Array:
    """Differences in standard errors, as normal scores: exactly normal at a true difference of zero and normal data.
    Differences are positive where the claim is right; freedom is that of the errors, infinite where they are known. The
    scale is the size of what was subtracted, to tell a difference from rounding.
    """
    exact = errors <= _NO_ERROR * scale
    ratio, known = np.divide(differences, errors, out=np.zeros_like(differences), where=~exact), np.isinf(freedom)
    tail = special.stdtr(np.where(known, 1.0, freedom), -np.abs(ratio))
    normal = np.where(known, np.abs(ratio), -special.ndtri(np.maximum(tail, 1e-300)))
    sure = np.where(differences >= -_ROUNDING * scale, np.inf, -np.inf)
    return np.asarray(np.where(exact, sure, np.copysign(normal, ratio)))


def welch_freedom(errors: Array, samples: Array) -> Array:
    """Degrees of freedom of a difference of two means (Welch-Satterthwaite); both arguments of shape (2, pairs)."""
    squares = errors**2
    denominator = (squares**2 / (samples - 1)).sum(0)
    unlimited = np.full(denominator.shape, np.inf)
    return np.asarray(np.divide(squares.sum(0) ** 2, denominator, out=unlimited, where=denominator > 0))


def t_quantile(freedom: Array, probability: float) -> Array:
    """Quantile of Student's t, of the normal law where the freedom is infinite."""
    known = np.isinf(freedom)
    students = special.stdtrit(np.where(known, 1.0, freedom), probability)
    return np.asarray(np.where(known, special.ndtri(probability), students))


def bonferroni(comparisons: int) -> float:
    """The score that any of the comparisons exceeds by chance with at most the false-alarm probability."""
    return float(-special.ndtri(FALSE_ALARM / comparisons))


def holm(favour: Array) -> int:
    """How many settings are significant on their own, the false-alarm probability divided over all (Holm)."""
    p_values = np.sort(special.ndtr(-favour))
    return int(np.argmin(np.append(p_values <= FALSE_ALARM / np.arange(len(p_values), 0, -1), False)))


def pooled(favour: Array) -> float:
    """The evidence of all settings together: the mean of their scores, none above a cap. If the true scores are zero on
    average it is normal or less spread, however the settings depend on each other: they often share random numbers, so
    that their sum over the root of their number would be wider.
    """
    return float(np.minimum(favour, CAP).mean())


def would_decide(pool: Array, every: Array, factor: float) -> bool:
    """Whether scores as these would decide a claim, either way, from that many times the samples."""
    scaled, against = (scores * math.sqrt(factor) for scores in (pool, every))
    return bool(against.min() + POWER < -bonferroni(every.size)) or pooled(scaled - POWER) > CRITICAL


def fitting(name: str, values: Numbers, given: Settings) -> Array:
    check_finite(name, values)
    if (array := np.asarray(values, dtype=np.float64)).shape not in ((), given.measured.shape):
        raise InputError(f"{name} have shape {array.shape}; give one, or one for each of {given.measured.shape}.")
    return np.array(np.broadcast_to(array, given.measured.shape))


def weights(errors: Array, scale: Array) -> Array:
    """1 / error^2; exact values are given the error of rounding."""
    found = np.asarray(np.maximum(errors, 1e-12 * scale) ** -2.0)
    if not (found > 0).all() or not np.isfinite(found.sum()):
        raise InputError(f"errors from {errors.min():.3g} to {errors.max():.3g} cannot weigh the means; rescale them.")
    return found


def centred(values: Array, weights: Array) -> Array:
    return np.asarray(values - np.average(values, weights=weights))


def slope_of(x: Array, y: Array, weights: Array, inflate: bool = True) -> tuple[float, float]:
    """Weighted straight line: slope and its error, which grows by the misfit if that exceeds the noise."""
    x, y = centred(x, weights), centred(y, weights)
    width = float((weights * x**2).sum())
    if np.ptp(x) <= 1e-10 or width == 0:
        raise InputError("the two shapes, or all places, are the same; nothing distinguishes them.")
    slope = float((weights * x * y).sum()) / width
    misfit = float((weights * (y - slope * x) ** 2).sum()) / (len(x) - 2)
    return slope, math.sqrt(max(1.0, misfit if inflate else 1.0) / width)


def curvature(x: Array, residuals: Array, weights: Array) -> float:
    """The quadratic term of what a straight line left over, in its standard errors."""
    square = centred(x**2, weights)
    square = square - slope_of(x, square, weights)[0] * centred(x, weights)
    return float((weights * square * residuals).sum() * (weights * square**2).sum() ** -0.5)


@dataclass(frozen=True)
class LineFit:
    """A straight line through means: slope and quadratic residual term in standard errors; chi-square of residuals."""

    slope: float
    residual: float
    bend: float

    @property
    def r2(self) -> float:
        """Share of the weighted squares that the line explains."""
        total = self.slope**2 + self.residual
        return self.slope**2 / total if total > 0 else 0.0

    def of_freedom(self, freedom: float) -> "LineFit":
        """In errors of that freedom, for which bounds are wider than for known ones."""
        factor = float(t_quantile(np.array(freedom), 1 - FALSE_ALARM / 4)) / LINE
        return LineFit(self.slope / factor, self.residual / factor**2, self.bend / factor)

    def expected(self, factor: float, freedom: int, sign: int) -> "LineFit":
        """From so many times the samples, if it is as it looks: with 90 % it is less bent (sign 1), or more (-1). What
        the noise adds to the squares of slope, residuals and curvature is taken off before they grow.
        """
        steep, rest, bend = (
            factor * max(square - noise, 0.0)
            for square, noise in ((self.slope**2, 1), (self.residual, freedom), (self.bend**2, 1))
        )
        slope = math.copysign(max(math.sqrt(steep) - sign * POWER, 0.0), self.slope)
        residual = freedom + rest + sign * POWER * math.sqrt(2 * freedom + 4 * rest)
        return LineFit(slope, max(residual, 0.0), max(math.sqrt(bend) + sign * POWER, 0.0))

    def explained(self, freedom: int) -> tuple[float, float]:
        """The least and the largest share of the variance of the true means that the line may explain. The
        noncentralities of slope and residuals are bounded, each at a quarter of the false-alarm probability.
        """
        steep, root, quarter = abs(self.slope), math.sqrt(self.residual), FALSE_ALARM / 4
        slopes = max(steep - LINE, 0.0) ** 2, (steep + LINE) ** 2
        least, most = max(root - LINE, 0.0) ** 2, (root + LINE) ** 2
        if root < 30:  # above, the two are nearly the same
            found = max(self.residual, 1e-9)
            least, most = (float(special.chndtrinc(found, freedom, p)) for p in (1 - quarter, quarter))
        bends = max(least, max(abs(self.bend) - LINE, 0.0) ** 2), max(most, self.residual)
        low, high = (a / (a + b) if a + b > 0 else 0.0 for a, b in zip(slopes, bends[::-1], strict=True))
        return low, high


def equivalence(given: Settings, resolution: float) -> tuple[Array, float]:
    """How clearly all groups of a setting differ by less than the resolution, a score each; the widest 99 % interval.
    Both are relative to the largest mean of the setting.
    """
    pairs = np.array(list(itertools.combinations(range(given.measured.shape[1]), 2))).T
    means, errors, samples = (np.moveaxis(a[:, pairs], 1, 0) for a in (given.measured, given.errors, given.samples))
    scale = np.abs(given.measured).max(1, keepdims=True)
    error = np.hypot(*errors)  # (settings, pairs)
    freedom, margin = welch_freedom(errors, samples), resolution * scale - np.abs(means[0] - means[1])
    near = scores(margin, error, freedom, np.broadcast_to(scale, margin.shape)).min(1)
    half = (t_quantile(freedom, 0.995) * error).max(1)
    return near, float(np.divide(half, scale[:, 0], out=np.where(half > 0, np.inf, 0.0), where=scale[:, 0] > 0).max())


def welch(given: Settings) -> Array:
    """Welch's test for equal means: the p-value of each setting."""
    scale, count = np.maximum(np.abs(given.measured).max(1, keepdims=True), 1e-300), given.measured.shape[1]
    weight = weights(given.errors, np.broadcast_to(scale, given.errors.shape))
    total = weight.sum(1, keepdims=True)
    mean = (weight * given.measured).sum(1, keepdims=True) / total
    between_groups = (weight * (given.measured - mean) ** 2).sum(1) / (count - 1)
    spread = np.asarray(((1 - weight / total) ** 2 / np.maximum(given.samples - 1, 1)).sum(1))
    statistic, known = between_groups / (1 + 2 * (count - 2) / (count**2 - 1) * spread), spread == 0
    freedom = (count**2 - 1) / np.where(known, 1.0, 3 * spread)
    normal = special.chdtrc(count - 1, statistic * (count - 1))
    return np.asarray(np.where(known, normal, special.fdtrc(count - 1, freedom, statistic)))
