"""Claims: a paper's statement about every setting, decided by means with standard errors in one of four words.

::

    holds               every setting is significant on its own (Holm over the settings, 1 % together)
    holds on the whole  no setting contradicts the claim, and the scores for it are significant on average, at 1 %
    fails               some setting contradicts it, at 1 % over all settings together (Bonferroni)
    undecided           otherwise; ``needed`` samples a setting would decide (90 %), None if nothing points either way

Each word is wrong at most once in a hundred times under the worst case of its null; see docs/claims.md.

``samples`` is the number of independent samples behind each mean (Student's t is used); None says that the errors are
known exactly. An error of zero says that the mean is exact. After one sample the error is NaN and nothing is decided.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from epoch0 import special
from epoch0.arguments import Inside, Positive, checked
from epoch0.errors import InputError
from epoch0.experiments import _evidence as stats
from epoch0.experiments._evidence import CRITICAL, Array, Numbers, Settings
from epoch0.results import Shown

Verdict = Literal["holds", "holds on the whole", "fails", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Names = Sequence[str] | None
Samples = Numbers | None
Figures = dict[str, float]
MORE = 1e-11  # the bound of what is to be more than nothing: an exact zero is not


@dataclass(frozen=True)
class Claim(Shown):
    """A statement and what the measurements say about it.

    >>> print(at_most("growth stays below the bound", [1.30, 1.55], [0.01, 0.01], [1.41, 1.73], samples=100))
    holds: growth stays below the bound (closest is setting 1: 1.3 ± 0.01 against 1.41, ...)

    A check is a statement that is true for every network, such as Euler's relation: it tests the software only.
    """

    text: str  #: the statement
    verdict: Verdict  #: one of VERDICTS
    evidence: str  #: the numbers that decided, in one line
    numbers: Mapping[str, float] = field(default_factory=dict)  #: the same for programs
    needed: int | None = None  #: if undecided, samples a setting that would decide, where known
    check: bool = False  #: whether it cannot fail unless the software is wrong

    def __str__(self) -> str:
        return f"{self.verdict}: {self.text} ({self.evidence})"


@checked
def exact(text: str, holds: bool, evidence: str, numbers: Mapping[str, float] | None = None) -> Claim:
    """A claim about numbers without noise: it holds or fails.

    >>> teeth = 8
    >>> exact("the graph has 2^3 teeth", teeth == 2**3, f"{teeth} teeth", {"teeth": teeth}).verdict
    'holds'
    """
    return Claim(text, "holds" if holds else "fails", evidence, dict(numbers or {}))


@checked
def check(text: str, holds: bool, evidence: str, numbers: Mapping[str, float] | None = None) -> Claim:
    """The same for a statement that is true for every network: it tests the software, and is not counted."""
    return replace(exact(text, holds, evidence, numbers), check=True)


@checked
def at_most(
    text: str, measured: Numbers, errors: Numbers, bounds: Numbers, samples: Samples = None, settings: Names = None
) -> Claim:
    """Every mean is at most its bound.

    >>> at_most("length below the bound", [2.0, 4.1], [0.1, 0.2], [3.0, 6.0], samples=100).verdict
    'holds'

    Args:
        text: the statement.
        measured: means, shape (settings,).
        errors, bounds, samples: standard errors, bounds and independent samples of the means, one each or one for all.
        settings: names of the settings for the evidence.
    """
    return _within(text, stats.settings_of(measured, errors, samples, settings), None, bounds)


@checked
def at_least(
    text: str, measured: Numbers, errors: Numbers, bounds: Numbers, samples: Samples = None, settings: Names = None
) -> Claim:
    """Every mean is at least its bound; arguments as in :func:`at_most`."""
    return _within(text, stats.settings_of(measured, errors, samples, settings), bounds, None)


@checked
def between(
    text: str,
    measured: Numbers,
    errors: Numbers,
    lower: Numbers,
    upper: Numbers,
    samples: Samples = None,
    settings: Names = None,
) -> Claim:
    """Every mean is between its two bounds; other arguments as in :func:`at_most`."""
    return _within(text, stats.settings_of(measured, errors, samples, settings), lower, upper)


@checked
def increasing(text: str, measured: Numbers, errors: Numbers, samples: Samples = None, settings: Names = None) -> Claim:
    """The means grow from each setting to the later ones.

    >>> increasing("grows with depth", [1.0, 1.5, 2.1], 0.1, samples=50).verdict
    'holds'

    The settings that count are the steps from each mean to the next. "Fails" and "holds on the whole" are read from the
    differences of all pairs. The means are taken as independent; if they share random numbers errors are rarer.

    Arguments are as in :func:`at_most`, two settings or more, in their order.
    """
    given = stats.settings_of(measured, errors, samples, settings)
    if len(given.measured) < 2:
        raise InputError("increasing needs two settings or more; there is one.")
    if given.unmeasured:
        return _unmeasured(text)
    pairs = np.array(list(itertools.combinations(range(len(given.measured)), 2))).T
    difference = np.diff(given.measured[pairs], axis=0)[0]
    freedom, scale = (
        stats.welch_freedom(given.errors[pairs], given.samples[pairs]),
        np.abs(given.measured[pairs]).max(0),
    )
    more = difference - MORE * np.where(scale > 0, scale, 1.0)
    favour = stats.scores(more, np.hypot(*given.errors[pairs]), freedom, scale)
    worst, steps = int(np.argmin(favour)), favour[pairs[1] - pairs[0] == 1]
    first, second = (given.shown(int(i)) for i in pairs[:, worst])
    evidence = f"least growth from {first} to {second}, {_score(favour[worst])}"
    return _claim(text, steps, favour, given.samples, evidence, {"least_growth": float(difference[worst])}, pool=favour)


@checked
def equal_within_error(
    text: str,
    measured: Numbers,
    errors: Numbers,
    samples: Samples = None,
    *,
    resolution: Positive = 0.05,
    settings: Names = None,
    groups: Names = None,
    alike: bool = True,
) -> Claim:
    """Several groups have the same mean, in every setting.

    >>> equal_within_error("three laws agree", [[1.41, 1.42, 1.40]], 0.01, samples=100).verdict
    'holds'

    It fails if Welch's test for equal means (a chi-square test that counts the samples behind each error) rejects. A
    setting speaks for it if every difference of two groups is significantly below the resolution (two one-sided tests).

    Other arguments are as in :func:`at_most`.

    Args:
        measured: means, shape (settings, groups), or (groups,) for one setting; two independent groups or more.
        resolution: largest difference of groups that are still equal, relative to the largest mean of a setting.
        groups: their names.
        alike: False for the opposite: the groups differ in every setting. Then the two tests change their sides.

    Source: Welch, "On the comparison of several mean values", Biometrika 38 (1951).
    """
    given = stats.settings_of(np.atleast_2d(measured), errors, samples, settings)
    if given.measured.ndim != 2 or given.measured.shape[1] < 2:
        raise InputError(f"measured has shape {given.measured.shape}; give the means of two groups or more.")
    if given.unmeasured:
        return _unmeasured(text)
    rows, count = given.measured.shape
    if groups is not None and len(groups) != count:
        raise InputError(f"{len(groups)} names for {count} groups; give one each.")
    names, p_values = groups or [f"group {i + 1}" for i in range(count)], stats.welch(given)
    near, coarse = stats.equivalence(given, resolution)
    scale = np.abs(given.measured).max(1)
    gap = np.ptp(given.measured, axis=1) / np.where(scale > 0, scale, 1.0)
    worst = int(np.argmin(p_values if alike else -p_values))
    low, high = (names[int(pick(given.measured[worst]))] for pick in (np.argmin, np.argmax))
    p_value = min(1.0, float(p_values[worst]) * (rows if alike else 1))
    where = f"{'largest' if alike else 'least clear'} disagreement at {given.names[worst]}, {low} and {high}"
    detail = f"{100 * gap[worst]:.2g} %, p = {p_value:.2g}{f' over {rows} settings' * (alike and rows > 1)}"
    known = f"differences are known to {100 * coarse:.2g} %, below {100 * resolution:.3g} % they are none"
    numbers = {"p": p_value, "largest_difference": float(gap.max()), "interval": coarse}
    apart = -special.ndtri(p_values)
    each, against = (near, -apart) if alike else (apart, -near)
    return _claim(text, each, against, given.samples, f"{where}: {detail}; {known}", numbers)


@checked
def better_fit(
    text: str,
    measured: Numbers,
    errors: Numbers,
    better: Numbers,
    worse: Numbers,
    samples: Samples = None,
    *,
    names: tuple[str, str] = ("the first", "the second"),
) -> Claim:
    """One shape fits the means better than another one, each up to a factor of its own.

    >>> alpha = np.linspace(0.1, 0.9, 9)
    >>> better_fit("sqrt(alpha), not alpha", 2.1 * alpha**0.52, 0.01, alpha**0.5, alpha, samples=100).verdict
    'holds'

    Both shapes are joined by ``c * better^(1 - m) * worse^m``, and the mixture m is fitted with its error: 0 is the
    better shape, 1 the worse, and 1/2 is equally far from both. The claim holds if m is significantly below 1/2 and
    fails if it is significantly above. For powers of x, m is the fitted exponent on the scale between the two. Misfits
    widen the error.

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
    mixture, known = stats.slope_of(second - first, np.log(given.measured) - first, weight, inflate=False)
    error = stats.slope_of(second - first, np.log(given.measured) - first, weight)[1]
    misfit = (error / known) ** 2 - 1  # stays with more samples, while the noise goes

    def score(factor: float) -> float:
        spread = known * math.sqrt(1 / factor + misfit)
        freedom = min(len(first) - 2.0, factor * float(given.samples.min()) - 1)
        return float(stats.scores(*(np.array([v]) for v in (0.5 - mixture, spread, freedom, 1.0)))[0])

    favour = score(1.0)
    verdict: Verdict = "holds" if favour > CRITICAL else "fails" if favour < -CRITICAL else "undecided"
    left = (stats.centred(np.log(given.measured) - shape, weight) for shape in (first, second))
    squares = [float((weight * each**2).sum()) for each in left]
    values = [f"{square / (len(first) - 1):.3g}" for square in squares]
    fitted = f"mixture {mixture:.3f} ± {error:.2g} between {names[0]} (0) and {names[1]} (1)"
    evidence = f"{fitted}; chi-square a degree of freedom {values[0]} against {values[1]}"
    numbers = {"mixture": mixture, "error": error, "chi_square_better": squares[0], "chi_square_worse": squares[1]}
    return _said(text, verdict, evidence, numbers, given.samples, lambda of: abs(score(of)) - stats.POWER > CRITICAL)


@checked
def linear(
    text: str,
    x: Numbers,
    measured: Numbers,
    errors: Numbers,
    samples: Samples = None,
    *,
    least_r2: Inside = 0.99,
    rising: bool = False,
) -> Claim:
    """The means lie on a straight line over x that is not level.

    >>> linear("log length is linear in depth", [1, 2, 3, 4], [0.5, 1.01, 1.49, 2.0], 0.02, samples=100).verdict
    'holds'

    It is decided by the share of the variance of the true means that a line (weighted by the errors) explains: it holds
    if even the least share that the noise allows is ``least_r2``, and fails if the largest one is less. The residuals'
    noncentral chi-square, their quadratic term and the slope bound that share.

    Other arguments are as in :func:`at_most`.

    Args:
        x: places, shape (points,), three different ones or more.
        least_r2: share of the variance the line must explain, in (0, 1).
        rising: whether a line that falls is against the claim.
    """
    given = stats.settings_of(measured, errors, samples, None)
    places = stats.fitting("x", x, given)
    if len(np.unique(places)) < 3:
        raise InputError(f"linear needs three different places or more; x is {places.tolist()}.")
    if given.unmeasured:
        return _unmeasured(text)
    weight = stats.weights(given.errors, np.full(len(places), max(float(np.abs(given.measured).max()), 1e-300)))
    slope, error = stats.slope_of(places, given.measured, weight, inflate=False)
    straight = stats.centred(given.measured - slope * places, weight)
    found = stats.LineFit(slope / error, float((weight * straight**2).sum()), stats.curvature(places, straight, weight))
    fewest, freedom = float(given.samples.min()), len(places) - 2  # the fewest samples: cautious for all

    def word(fit: stats.LineFit, factor: float = 1.0) -> tuple[Verdict, float, float]:
        fit = fit.of_freedom(factor * fewest - 1)
        low, high = fit.explained(freedom)
        against = (rising and fit.slope < -stats.LINE) or high < least_r2
        enough = low >= least_r2 and (fit.slope > 0 or not rising)
        return "fails" if against else "holds" if enough else "undecided", low, high

    def decides(factor: float) -> bool:
        ends = (("fails", -1), ("holds", 1))
        return any(word(found.expected(factor, freedom, sign), factor)[0] == said for said, sign in ends)

    verdict, low, high = word(found)
    share = f"R² = {found.r2:.4f}, between {low:.4f} and {high:.4f} (asked {least_r2:g})"
    evidence = f"{share}, slope {slope:.4g} ± {error:.2g}, curvature {abs(found.bend):.1f} standard errors"
    numbers = {"r2": found.r2, "r2_low": low, "r2_high": high, "slope": slope, "slope_error": error}
    return _said(text, verdict, evidence, numbers, given.samples, decides)


@checked
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
    return stats.slope_of(np.log(places), np.log(given.measured), weight)


def _within(text: str, given: Settings, lower: Numbers | None, upper: Numbers | None) -> Claim:
    if given.unmeasured:
        return _unmeasured(text)
    sides: list[tuple[Array, Array]] = []
    for name, bounds, sign in (("lower", lower, 1.0), ("upper", upper, -1.0)):
        if bounds is not None:
            limits = stats.fitting(f"{name} bounds", bounds, given)
            margin, scale = sign * (given.measured - limits), np.maximum(np.abs(given.measured), np.abs(limits))
            sides.append((stats.scores(margin, given.errors, given.samples - 1, scale), limits))
    both = np.stack([favour for favour, _ in sides])  # (sides, settings)
    favour = both.min(0)
    worst = int(np.argmin(favour))
    limit = sides[int(np.argmin(both[:, worst]))][1][worst]
    which = f"{'closest' if favour[worst] > 0 else 'furthest out'} is {given.shown(worst)} against {limit:.4g}"
    numbers = {"worst_measured": float(given.measured[worst]), "worst_bound": float(limit)}
    return _claim(text, favour, both, given.samples, f"{which}, {_score(favour[worst])} inside", numbers)


def _claim(
    text: str, favour: Array, every: Array, samples: Array, evidence: str, numbers: Figures, pool: Array | None = None
) -> Claim:
    """The rule of this module on normal scores: of each setting for the claim, and of all that may contradict it."""
    pool = favour if pool is None else pool
    together, alone = stats.pooled(pool), stats.holm(favour)
    scored = {"worst_score": float(every.min()), "pooled_score": together}
    numbers = {**numbers, **scored, "settings": favour.size, "significant": alone}
    speaks: Verdict = "holds" if alone == favour.size else "holds on the whole" if together > CRITICAL else "undecided"
    verdict: Verdict = "fails" if every.min() < -stats.bonferroni(every.size) else speaks
    if favour.size > 1:
        evidence += f"; {alone} of {favour.size} settings significant on their own, pooled {_score(together)}"
    return _said(text, verdict, evidence, numbers, samples, partial(stats.would_decide, pool, every))


def _said(
    text: str, verdict: Verdict, evidence: str, numbers: Figures, samples: Array, decides: Callable[[float], bool]
) -> Claim:
    """The claim; if it is undecided with the samples that would decide, by so many times those that there are."""
    largest = float(np.where(np.isfinite(samples), samples, 0.0).max())
    if verdict != "undecided" or not largest:  # no hint where nobody knows how many samples there were
        return Claim(text, verdict, evidence, numbers)
    factors = [2.0 ** (step / 4) for step in range(1, 81)]  # up to a million, in steps of 19 %
    if (first := bisect.bisect_left(factors, True, key=decides)) == len(factors):
        return Claim(text, verdict, evidence, numbers)
    needed = math.ceil(factors[first] * largest)
    return Claim(text, verdict, f"{evidence}; {needed} samples a setting would decide", numbers, needed)


def _unmeasured(text: str) -> Claim:
    return Claim(text, "undecided", "a standard error needs at least 2 samples a setting", {}, 2)


def _score(score: float) -> str:
    return f"{score:+.1f} standard errors" if math.isfinite(score) else "exactly"
