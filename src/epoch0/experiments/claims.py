"""Claims: a paper's statement as a predicate on measured numbers, which holds, fails, or is undecided.

Every decider is given means with standard errors. Its rule::

    fails      some setting contradicts the claim, at 1 % over all settings together (Bonferroni): a claim that is true,
               however narrowly, is called false at most once in a hundred times
    holds      no setting contradicts it, and the evidence for it, pooled over the settings, is significant at 1 %
    undecided  otherwise; ``needed`` is the number of samples a setting that would decide with probability 90 % if
               means and spreads are as they look, or None if nothing points either way

``samples`` is the number of independent samples behind each mean (Student's t is used); None says that the errors are
known exactly. An error of zero says that the mean is exact. After one sample the error is NaN and nothing is decided.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import chdtrc, stdtr

from epoch0.errors import InputError
from epoch0.experiments import _evidence as stats
from epoch0.experiments._evidence import CRITICAL, FALSE_ALARM, Array, Numbers, Settings

Verdict = Literal["holds", "fails", "undecided"]
Decides = Callable[[float], bool]
Names = Sequence[str] | None


@dataclass(frozen=True)
class Claim:
    """A statement and what the measurements say about it.

    >>> print(at_most("growth stays below the bound", [1.30, 1.55], [0.01, 0.01], [1.41, 1.73], samples=100))
    holds: growth stays below the bound (closest is setting 1: 1.3 ± 0.01 against 1.41, ...)
    """

    text: str  #: the statement
    verdict: Verdict  #: "holds", "fails" or "undecided"
    evidence: str  #: the numbers that decided, in one line
    numbers: Mapping[str, float] = field(default_factory=dict)  #: the same for programs
    needed: int | None = None  #: if undecided, samples a setting that would decide, when that can be told

    def __str__(self) -> str:
        return f"{self.verdict}: {self.text} ({self.evidence})"


def exact(text: str, holds: bool, evidence: str, numbers: Mapping[str, float] | None = None) -> Claim:
    """A claim about numbers without noise: it holds or fails.

    >>> teeth = 8
    >>> exact("the graph has 2^3 teeth", teeth == 2**3, f"{teeth} teeth", {"teeth": teeth}).verdict
    'holds'
    """
    return Claim(text, "holds" if holds else "fails", evidence, dict(numbers or {}))


def at_most(
    text: str, measured: Numbers, errors: Numbers, bounds: Numbers, samples: Numbers = None, settings: Names = None
) -> Claim:
    """Every mean is at most its bound.

    >>> at_most("length below the bound", [2.0, 4.1], [0.1, 0.2], [3.0, 6.0], samples=100).verdict
    'holds'

    Args:
        text: the statement.
        measured: means, shape (settings,).
        errors, bounds, samples: standard errors, bounds and independent samples of the means, one each or one for all.
        settings: names of the settings for the evidence.

    Raises:
        InputError: if something is not finite or shapes do not fit.
    """
    return _within(text, stats.settings_of(measured, errors, samples, settings), None, bounds)


def at_least(
    text: str, measured: Numbers, errors: Numbers, bounds: Numbers, samples: Numbers = None, settings: Names = None
) -> Claim:
    """Every mean is at least its bound; arguments as in :func:`at_most`."""
    return _within(text, stats.settings_of(measured, errors, samples, settings), bounds, None)


def between(
    text: str,
    measured: Numbers,
    errors: Numbers,
    lower: Numbers,
    upper: Numbers,
    samples: Numbers = None,
    settings: Names = None,
) -> Claim:
    """Every mean is between its two bounds; other arguments as in :func:`at_most`."""
    return _within(text, stats.settings_of(measured, errors, samples, settings), lower, upper)


def increasing(text: str, measured: Numbers, errors: Numbers, samples: Numbers = None, settings: Names = None) -> Claim:
    """The means grow from each setting to the later ones.

    >>> increasing("grows with depth", [1.0, 1.5, 2.1], 0.1, samples=50).verdict
    'holds'

    It fails if any later mean is significantly below an earlier one, and holds if none is and the differences of all
    pairs, pooled, are significantly positive; a stretch that stays level does not contradict it. The means are taken as
    independent; if they share random numbers the false-alarm rate is lower than 1 %.

    Arguments are as in :func:`at_most`, two settings or more, in their order.
    """
    given = stats.settings_of(measured, errors, samples, settings)
    if len(given.measured) < 2:
        raise InputError("increasing needs two settings or more; there is one.")
    if given.unmeasured:
        return _unmeasured(text)
    pairs = np.array(list(itertools.combinations(range(len(given.measured)), 2))).T
    difference = np.diff(given.measured[pairs], axis=0)[0]
    error = np.hypot(*given.errors[pairs])
    freedom = stats.welch_freedom(given.errors[pairs], given.samples[pairs])
    favour = stats.scores(difference, error, freedom, np.abs(given.measured[pairs]).max(0))
    worst = int(np.argmin(favour))
    first, second = (given.shown(int(i)) for i in pairs[:, worst])
    evidence = f"least growth from {first} to {second}, {_score(favour[worst])}; pooled {_score(stats.pooled(favour))}"
    return _claim(text, favour, len(favour), given.samples, evidence, {"least_growth": float(difference[worst])})


def equal_within_error(
    text: str,
    measured: Numbers,
    errors: Numbers,
    samples: Numbers = None,
    *,
    resolution: float = 0.05,
    settings: Names = None,
    groups: Names = None,
) -> Claim:
    """Several groups have the same mean, in every setting.

    >>> equal_within_error("three laws agree", [[1.41, 1.42, 1.40]], 0.01, samples=100).verdict
    'holds'

    It fails if Welch's test for equal means (a chi-square test that counts the samples behind each error) rejects at
    1 % over all settings. It holds if not and a difference larger than the resolution would have been seen.

    Other arguments are as in :func:`at_most`.

    Args:
        measured: means, shape (settings, groups), or (groups,) for one setting; two independent groups or more.
        resolution: relative to the largest mean of a setting: the half-width of the 99 % interval of every difference
            must be below it.
        groups: their names.

    Source: Welch, "On the comparison of several mean values", Biometrika 38 (1951).
    """
    given = stats.settings_of(np.atleast_2d(measured), errors, samples, settings)
    if given.measured.ndim != 2 or given.measured.shape[1] < 2:
        raise InputError(f"measured has shape {given.measured.shape}; equal_within_error compares two groups or more.")
    if given.unmeasured:
        return _unmeasured(text)
    rows, count = given.measured.shape
    names = tuple(groups) if groups is not None else tuple(f"group {i + 1}" for i in range(count))
    statistic, p_values = stats.welch(given)
    scale = np.abs(given.measured).max(1)
    coarse = stats.coarseness(given)
    gap = np.ptp(given.measured, axis=1) / np.where(scale > 0, scale, 1.0)
    worst = int(np.argmin(p_values))
    low, high = (names[int(pick(given.measured[worst]))] for pick in (np.argmin, np.argmax))
    p_value = min(1.0, float(p_values[worst]) * rows)
    verdict: Verdict = "fails" if p_value < FALSE_ALARM else "holds" if coarse <= resolution else "undecided"

    def decided(factor: float) -> bool:
        excess = max(0.0, float(statistic.max()) - (count - 1)) * factor
        return coarse / math.sqrt(factor) <= resolution or stats.chi_square_shows(excess, count - 1, FALSE_ALARM / rows)

    evidence = (
        f"largest disagreement at {given.names[worst]}, {low} and {high}: {100 * gap[worst]:.2g} %, p = {p_value:.2g} "
        f"over {rows} setting{'s' * (rows > 1)}; differences above {100 * coarse:.2g} % would show"
    )
    numbers = {"p": p_value, "largest_difference": float(gap.max()), "resolution": coarse}
    return _told(text, verdict, evidence, numbers, given.samples, decided)


def better_fit(
    text: str,
    measured: Numbers,
    errors: Numbers,
    better: Numbers,
    worse: Numbers,
    samples: Numbers = None,
    *,
    names: tuple[str, str] = ("the first", "the second"),
) -> Claim:
    """One shape fits the means better than another one, each up to a factor of its own.

    >>> alpha = np.linspace(0.1, 0.9, 9)
    >>> better_fit("sqrt(alpha), not alpha", 2.1 * alpha**0.52, 0.01, alpha**0.5, alpha, samples=100).verdict
    'holds'

    Both shapes are joined by ``c * better^(1 - m) * worse^m``, and the mixture m is fitted with its error: 0 is the
    better shape, 1 the worse, and 1/2 is equally far from both. The claim holds if m is significantly below 1/2 and
    fails if it is significantly above. For powers of x, m is the fitted exponent on the scale between the two. If
    neither shape fits, the error grows by the misfit.

    Other arguments are as in :func:`at_most`; three points or more, all values positive.

    Args:
        better, worse: the shape that is claimed, and the other one, shape (points,).
        names: what to call the two shapes.
    """
    given = stats.settings_of(measured, errors, samples, None)
    shapes = [stats.fitting("better", better, given), stats.fitting("worse", worse, given)]
    if len(given.measured) < 3 or min(float(a.min()) for a in (given.measured, *shapes)) <= 0:
        raise InputError("better_fit needs three points or more, all measured and predicted values positive.")
    if given.unmeasured:
        return _unmeasured(text)
    first, second = (np.log(shape) for shape in shapes)
    weight = stats.weights(given.errors / given.measured, np.ones_like(first))
    mixture, error, misfit = stats.slope_of(second - first, np.log(given.measured) - first, weight)
    freedom = len(first) - 2
    favour = float(stats.scores(*(np.array([v]) for v in (0.5 - mixture, error, float(freedom), 1.0)))[0])
    verdict: Verdict = "holds" if favour > CRITICAL else "fails" if favour < -CRITICAL else "undecided"
    squares = [float((weight * stats.centred(np.log(given.measured) - a, weight) ** 2).sum()) for a in (first, second)]
    evidence = (
        f"mixture {mixture:.3f} ± {error:.2g} between {names[0]} (0) and {names[1]} (1); "
        f"chi-square a degree of freedom {squares[0] / (freedom + 1):.3g} against {squares[1] / (freedom + 1):.3g}"
    )
    numbers = {"mixture": mixture, "error": error, "chi_square_better": squares[0], "chi_square_worse": squares[1]}
    return _told(text, verdict, evidence, numbers, given.samples, lambda f: stats.grows_past(favour, misfit, f))


def linear(
    text: str, x: Numbers, measured: Numbers, errors: Numbers, samples: Numbers = None, *, least_r2: float = 0.99
) -> Claim:
    """The means lie on a straight line over x that is not level.

    >>> linear("log length is linear in depth", [1, 2, 3, 4], [0.5, 1.01, 1.49, 2.0], 0.02, samples=100).verdict
    'holds'

    A line (weighted by the errors) that explains the share ``least_r2`` of the variance, with a significant slope,
    holds: a curvature that is significant but small does not refute it, and is told. It fails if the line explains less
    and that is not noise: the chi-square of its residuals or a quadratic term is significant (1 % together).

    Positively correlated errors make "fails" rarer than 1 %. Other arguments are as in :func:`at_most`.

    Args:
        x: places, shape (points,), three different ones or more.
        least_r2: share of the variance the line must explain, in (0, 1).
    """
    given = stats.settings_of(measured, errors, samples, None)
    places = stats.fitting("x", x, given)
    if len(np.unique(places)) < 3:
        raise InputError(f"linear needs three different places or more; x is {places.tolist()}.")
    if given.unmeasured:
        return _unmeasured(text)
    count = len(places)
    weight = stats.weights(given.errors, np.full(count, max(float(np.abs(given.measured).max()), 1e-300)))
    slope, slope_error, _ = stats.slope_of(places, given.measured, weight, inflate=False)
    straight = stats.centred(given.measured - slope * places, weight)
    residual = float((weight * straight**2).sum())
    total = float((weight * stats.centred(given.measured, weight) ** 2).sum())
    r2 = 1 - residual / total if total > 0 else 0.0
    bend = stats.curvature(places, straight, weight)
    freedom = float(given.samples.min()) - 1  # the fewest samples behind any error: cautious for all of them
    p_curved = 2 * float(stdtr(freedom, -abs(bend))) if math.isfinite(freedom) else float(chdtrc(1, bend**2))
    p_rough = stats.chi_square_p(residual, count - 2, freedom)
    departs = min(p_curved, p_rough) < FALSE_ALARM / 2
    steep = abs(slope) / slope_error > stats.t_quantile(np.array(freedom), 1 - FALSE_ALARM / 2)
    explains = r2 >= least_r2
    verdict: Verdict = "fails" if departs and not explains else "holds" if explains and steep else "undecided"

    evidence = (
        f"R² = {r2:.4f} (asked {least_r2:g}), slope {slope:.4g} ± {slope_error:.2g}, curvature {abs(bend):.1f} "
        f"standard errors, p = {min(1.0, 2 * min(p_curved, p_rough)):.2g} for a straight line"
    )
    numbers = {"r2": r2, "slope": slope, "slope_error": slope_error, "curvature": bend, "p": min(p_curved, p_rough)}
    return _told(text, verdict, evidence, numbers, given.samples, stats.line_decides(residual, total, count, least_r2))


def fitted_exponent(x: Numbers, measured: Numbers, errors: Numbers) -> tuple[float, float]:
    """The exponent p of ``c * x^p`` through the means, and its standard error (grown by the misfit, if there is one).

    >>> exponent, error = fitted_exponent([1, 2, 4, 8], [3.0, 6.0, 12.0, 24.0], 0.1)
    >>> round(exponent, 6)
    1.0

    Places and means are positive, of shape (points,), three or more.
    """
    given = stats.settings_of(measured, errors, None, None)
    places = stats.fitting("x", x, given)
    if len(places) < 3 or places.min() <= 0 or given.measured.min() <= 0 or given.unmeasured:
        raise InputError("fitted_exponent needs three points or more, positive in x and measured, with their errors.")
    weight = stats.weights(given.errors / given.measured, np.ones_like(places))
    exponent, error, _ = stats.slope_of(np.log(places), np.log(given.measured), weight)
    return exponent, error


def _within(text: str, given: Settings, lower: Numbers | None, upper: Numbers | None) -> Claim:
    """Every mean on the right side of one bound or two."""
    if given.unmeasured:
        return _unmeasured(text)
    sides: list[tuple[Array, Array]] = []
    for name, bounds, sign in (("lower", lower, 1.0), ("upper", upper, -1.0)):
        if bounds is not None:
            limits = stats.fitting(f"{name} bounds", bounds, given)
            margin = sign * (given.measured - limits)
            scale = np.maximum(np.abs(given.measured), np.abs(limits))
            sides.append((stats.scores(margin, given.errors, given.samples - 1, scale), limits))
    both = np.stack([favour for favour, _ in sides])  # (sides, settings)
    favour = both.min(0)
    worst = int(np.argmin(favour))
    limit = sides[int(np.argmin(both[:, worst]))][1][worst]
    which = f"{'closest' if favour[worst] > 0 else 'furthest out'} is {given.shown(worst)} against {limit:.4g}"
    evidence = f"{which}, {_score(favour[worst])} inside; pooled {_score(stats.pooled(favour))}"
    numbers = {"worst_measured": float(given.measured[worst]), "worst_bound": float(limit)}
    return _claim(text, favour, both.size, given.samples, evidence, numbers)


def _claim(
    text: str, favour: Array, comparisons: int, samples: Array, evidence: str, numbers: dict[str, float]
) -> Claim:
    """The rule of this module on normal scores in favour of a claim."""
    together = stats.pooled(favour)
    numbers = {**numbers, "worst_score": float(favour.min()), "pooled_score": together}
    against = favour.min() < -stats.bonferroni(comparisons)
    verdict: Verdict = "fails" if against else "holds" if together > CRITICAL else "undecided"
    return _told(text, verdict, evidence, numbers, samples, stats.scores_decide(favour, comparisons))


def _told(
    text: str, verdict: Verdict, evidence: str, numbers: dict[str, float], samples: Array, decided: Decides
) -> Claim:
    """A claim that says, if it is undecided, how many samples would decide."""
    if verdict != "undecided":
        return Claim(text, verdict, evidence, numbers)
    needed = stats.samples_needed(samples, decided)
    hint = f"; {needed} samples a setting would decide" if needed else ""
    return Claim(text, verdict, evidence + hint, numbers, needed)


def _unmeasured(text: str) -> Claim:
    return Claim(text, "undecided", "a standard error needs at least 2 samples a setting", {}, 2)


def _score(score: float) -> str:
    """A score in words."""
    return f"{score:+.1f} standard errors" if math.isfinite(score) else "exactly"
