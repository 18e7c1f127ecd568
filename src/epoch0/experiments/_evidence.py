"""The statistics under the claims: scores that are normal when a claim just holds, fits, samples that would decide."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, chdtri, fdtrc, ndtri, stdtr, stdtrit

from epoch0.errors import InputError, check_finite

FALSE_ALARM = 0.01
"""Probability, over all settings of a claim together, that a true claim comes out as "fails"."""
CRITICAL = float(-ndtri(FALSE_ALARM))
CAP = 2 * CRITICAL
"""What one setting can add to the pooled evidence: half of the settings must speak for a claim, not one of them."""
_POWER = float(-ndtri(0.1))  # "would decide" means: with probability 90 %, if things are as they look
_ROUNDING = 1e-12  # relative size of a difference that is none
_NO_ERROR = 1e-15  # relative size of a standard error that is none

Array = np.ndarray[Any, np.dtype[np.float64]]
Numbers = Any
"""A float or anything numpy reads as an array of floats."""


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
        """One setting with its name, mean and error."""
        return f"{self.names[index]}: {self.measured[index]:.4g} ± {self.errors[index]:.2g}"


def settings_of(measured: Numbers, errors: Numbers, samples: Numbers, names: Sequence[str] | None) -> Settings:
    """Check and align what was measured."""
    check_finite("measured", measured)
    values = np.atleast_1d(np.asarray(measured, dtype=np.float64))
    if values.size == 0:
        raise InputError("measured is empty; a claim is about one setting or more.")
    try:
        spread = np.array(np.broadcast_to(np.asarray(errors, dtype=np.float64), values.shape))
        counts = math.inf if samples is None else samples
        number = np.array(np.broadcast_to(np.asarray(counts, dtype=np.float64), values.shape))
    except ValueError as error:
        raise InputError(f"errors or samples do not fit measured, which has shape {values.shape}: {error}.") from error
    if (spread < 0).any() or np.isinf(spread).any():
        raise InputError(f"errors are {spread.tolist()}; a standard error is finite and not negative.")
    if ((number < 2) & (spread > 0)).any() or (number < 1).any():
        raise InputError(
            f"samples are {number.tolist()}; a standard error needs 2 samples or more (None: the errors are exact)."
        )
    labels = tuple(names) if names is not None else tuple(f"setting {i + 1}" for i in range(len(values)))
    if len(labels) != len(values):
        raise InputError(f"{len(labels)} names for {len(values)} settings; give one each.")
    return Settings(values, spread, np.where(spread == 0, np.inf, number), labels)


def scores(differences: Array, errors: Array, freedom: Array, scale: Array) -> Array:
    """Differences in standard errors, as normal scores: exactly normal at a true difference of zero and normal data.

    Differences are positive where the claim is right; freedom is that of the errors, infinite where they are known. The
    scale is the size of what was subtracted, to tell a difference from rounding.
    """
    exact = errors <= _NO_ERROR * scale
    ratio = np.divide(differences, errors, out=np.zeros_like(differences), where=~exact)
    known = np.isinf(freedom)
    tail = stdtr(np.where(known, 1.0, freedom), -np.abs(ratio))
    normal = np.where(known, np.abs(ratio), -ndtri(np.maximum(tail, 1e-300)))
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
    return np.asarray(np.where(known, ndtri(probability), stdtrit(np.where(known, 1.0, freedom), probability)))


def bonferroni(comparisons: int) -> float:
    """The score which any of so many comparisons exceeds by chance with at most the false-alarm probability."""
    return float(-ndtri(FALSE_ALARM / comparisons))


def pooled(favour: Array) -> float:
    """The evidence of all settings together, normal or less spread at a true difference of zero everywhere.

    The mean of scores is used, not their sum over the root of their number: settings often share random numbers, and
    a mean of normal scores is never wider than one of them, however they depend on each other.
    """
    return float(np.minimum(favour, CAP).mean())


def samples_needed(samples: Array, decided: Callable[[float], bool]) -> int | None:
    """Samples a setting that would decide; None if no number would, or it is unknown how many there were."""
    largest = float(np.where(np.isfinite(samples), samples, 0.0).max())
    factors = [2.0 ** (step / 4) for step in range(1, 81)] if largest > 0 else []  # up to a million, in steps of 19 %
    return next((math.ceil(factor * largest) for factor in factors if decided(factor)), None)


def scores_decide(favour: Array, comparisons: int) -> Callable[[float], bool]:
    """Whether scores as these would decide a claim, either way, from that many times the samples."""

    def decided(factor: float) -> bool:
        grown = np.where(np.isfinite(favour), favour * math.sqrt(factor), favour)
        return bool((grown + _POWER).min() < -bonferroni(comparisons)) or pooled(grown - _POWER) > CRITICAL

    return decided


def chi_square_shows(excess: float, freedom: int, level: float) -> bool:
    """Whether a chi-square whose mean exceeds its freedom by that much is likely to be significant at a level."""
    spread = math.sqrt(2 * freedom + 4 * excess)
    return freedom + excess - _POWER * spread > float(chdtri(freedom, level))


def grows_past(score: float, error_floor: float, factor: float) -> bool:
    """Whether a score passes the critical value from that many times the samples.

    The error floor is the variance that more samples do not remove, in units of that which they do.
    """
    shrunk = math.sqrt((1 / factor + error_floor) / (1 + error_floor))
    return abs(score) / shrunk - _POWER > CRITICAL


def fitting(name: str, values: Numbers, given: Settings) -> Array:
    """One value for each setting."""
    check_finite(name, values)
    array = np.asarray(values, dtype=np.float64)
    if array.shape not in ((), given.measured.shape):
        raise InputError(f"{name} have shape {array.shape}; give one, or one for each of {given.measured.shape}.")
    return np.array(np.broadcast_to(array, given.measured.shape))


def weights(errors: Array, scale: Array) -> Array:
    """1 / error^2; exact values are given the error of rounding."""
    return np.asarray(np.maximum(errors, 1e-12 * scale) ** -2.0)


def centred(values: Array, weights: Array) -> Array:
    """The values less their weighted mean."""
    return np.asarray(values - np.average(values, weights=weights))


def slope_of(x: Array, y: Array, weights: Array, inflate: bool = True) -> tuple[float, float, float]:
    """Weighted straight line: slope, its error, and by how much the misfit exceeds the noise, in units of the noise."""
    x, y = centred(x, weights), centred(y, weights)
    width = float((weights * x**2).sum())
    if width <= 1e-20 * float(weights.sum()):
        raise InputError("the two shapes, or all places, are the same; nothing distinguishes them.")
    slope = float((weights * x * y).sum()) / width
    misfit = float((weights * (y - slope * x) ** 2).sum()) / (len(x) - 2)
    return slope, math.sqrt(max(1.0, misfit if inflate else 1.0) / width), max(0.0, misfit - 1.0)


def curvature(x: Array, residuals: Array, weights: Array) -> float:
    """The quadratic term of what a straight line left over, in its standard errors."""
    bent = centred(x**2, weights)
    bent = bent - slope_of(x, bent, weights)[0] * centred(x, weights)
    return float((weights * bent * residuals).sum() * (weights * bent**2).sum() ** -0.5)


def line_decides(residual: float, total: float, count: int, least_r2: float) -> Callable[[float], bool]:
    """Whether the chi-squares about a line and about the mean would decide for or against the line."""

    def decided(factor: float) -> bool:
        about_line = max(0.0, residual - (count - 2)) * factor
        about_mean = max(0.0, total - (count - 1)) * factor
        if about_mean == 0:
            return False
        straight = (about_line + count - 2) / (about_mean + count - 1) <= 1 - least_r2
        return straight or chi_square_shows(about_line, count - 2, FALSE_ALARM / 2)

    return decided


def chi_square_p(value: float, freedom: int, error_freedom: float) -> float:
    """Tail probability of a chi-square of so much freedom, whose errors have a freedom of their own."""
    if math.isinf(error_freedom):
        return float(chdtrc(freedom, value))
    return float(fdtrc(freedom, error_freedom, value / freedom))


def coarseness(given: Settings) -> float:
    """Half-width of the widest 99 % interval of a difference of two groups, relative to its setting's largest mean."""
    pairs = np.array(list(itertools.combinations(range(given.measured.shape[1]), 2))).T
    errors, samples = (np.moveaxis(a[:, pairs], 1, 0) for a in (given.errors, given.samples))  # (2, settings, pairs)
    half = (t_quantile(welch_freedom(errors, samples), 0.995) * np.hypot(*errors)).max(1)
    scale = np.abs(given.measured).max(1)
    unlimited = np.where(half > 0, np.inf, 0.0)
    return float(np.divide(half, scale, out=unlimited, where=scale > 0).max())


def welch(given: Settings) -> tuple[Array, Array]:
    """Welch's statistic times its numerator's freedom (a chi-square for many samples) and p, one a setting."""
    scale = np.maximum(np.abs(given.measured).max(1, keepdims=True), 1e-300)
    count = given.measured.shape[1]
    weight = weights(given.errors, np.broadcast_to(scale, given.errors.shape))
    total = weight.sum(1, keepdims=True)
    mean = (weight * given.measured).sum(1, keepdims=True) / total
    between_groups = (weight * (given.measured - mean) ** 2).sum(1) / (count - 1)
    spread = np.asarray(((1 - weight / total) ** 2 / np.maximum(given.samples - 1, 1)).sum(1))
    statistic = between_groups / (1 + 2 * (count - 2) / (count**2 - 1) * spread)
    known = spread == 0
    freedom = (count**2 - 1) / np.where(known, 1.0, 3 * spread)
    p_values = np.where(known, chdtrc(count - 1, statistic * (count - 1)), fdtrc(count - 1, freedom, statistic))
    return statistic * (count - 1), p_values
