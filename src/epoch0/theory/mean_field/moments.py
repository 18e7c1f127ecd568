"""Means over one Gaussian variable; the maps of a variance and a perturbation by one wide layer, and by many (B.1).

All maps are made of E phi^2 and E phi'^2 as functions of the variance q. Both are analytic in log q, whatever kinks phi
has, so a spline of degree 7 through 20 points a decade is exact to about ten digits. (Eight where phi oscillates.)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np

from epoch0.activations import Activation, ActivationLike, get
from epoch0.arguments import Density, Depth, Std, Within, checked
from epoch0.errors import InputError, reworded
from epoch0.results import Result, counted
from epoch0.theory.checks import Array, Number, continuous, like
from epoch0.theory.mean_field.correlations import mean_at, pieces

LOWEST, HIGHEST = 1e-12, 1e16
_A_DECADE = 20
_FLOOR = 1e-31
# Beyond 12 standard deviations lies 4e-33 of the mass.
_SDS = 12.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
# times (2 k + 1) / 2 each: the two highest Legendre coefficients that 20 nodes can see
_HIGHEST = np.polynomial.legendre.legvander(_NODES, 19)[:, 18:] * (np.array([37.0, 39.0]) / 2)
# Where those are this small against the whole, the error, which goes with their square, is below rounding.
_ROUGH = 1e-12
_MOST_PANELS = 4000
# the mass within 12 standard deviations differs from 1 by less than rounding
_NORMAL = math.sqrt(2 * math.pi)


@checked
def gaussian_mean(f: Callable[[Any], Any], q: Annotated[Number, Within(0)], breaks: tuple[float, ...] = ()) -> Number:
    """E f(sqrt(q) Z) for a standard normal Z, accurate also where f has kinks or jumps.

    >>> round(gaussian_mean(lambda h: np.maximum(h, 0.0) ** 2, 3.0, breaks=(0.0,)), 12)
    1.5
    >>> gaussian_mean(np.abs, np.array([1.0, 4.0]), breaks=(0.0,)).round(6)          # q shape (2,)
    array([0.797885, 1.595769])

    Gauss-Legendre on panels which end at the breaks and shrink towards them and towards 0; panels on which f is still
    rough are halved, which finds most breaks that are not named. At q = 0 the value is the limit from above: the mean
    of f on both sides of 0. ``f`` works elementwise on float64 arrays; an InputError if it oscillates too fast.
    """
    variances = np.asarray(q, dtype=np.float64)
    flat, tiny = variances.reshape(-1), np.finfo(np.float64).tiny
    with reworded(lambda problem: InputError(f"f fails on an array of float64: {problem}")):
        around = float(np.mean(f(np.array([-tiny, tiny]))))
    result = np.full(flat.shape, around)
    if (positive := flat > 0).any():
        result[positive] = _panel_means(f, np.sqrt(flat[positive]), breaks)
    return like(result.reshape(variances.shape), q)


def _panel_means(f: Callable[[Any], Any], scale: Array, breaks: tuple[float, ...]) -> Array:
    """E f(scale Z) for each scale > 0, shape (m,) to shape (m,)."""
    steps = 2.0 ** np.arange(-2, max(math.ceil(math.log2(max(_SDS * float(scale.max()), 1.0))), 0) + 1)
    around = np.concatenate([-steps, [0.0], steps])
    marks = np.unique(np.concatenate([point + around for point in {0.0, *breaks}]))
    # in units of standard deviations, shape (m, edges); marks out of range fold onto the ends, as empty panels
    with np.errstate(over="ignore"):
        inner = np.clip(marks / scale[:, None], -_SDS, _SDS)
    outer = np.broadcast_to(np.linspace(-_SDS, _SDS, 33), (len(scale), 33))
    edges = np.sort(np.concatenate([inner, outer], axis=1), axis=1)
    row, panel = np.nonzero(edges[:, 1:] > edges[:, :-1])
    low, high = edges[row, panel], edges[row, panel + 1]
    total, size = np.zeros(len(scale)), np.zeros(len(scale))  # the integral, and that of the absolute value
    evaluated = len(row)
    while True:
        part, weight, rough = _panels(f, scale[row], low, high)
        size += np.bincount(row, weight, len(scale))
        # rough: the integrand needs more than 20 nodes here, as at a kink that nobody named, or where it oscillates
        split = rough > _ROUGH * size[row]
        total += np.bincount(row, np.where(split, 0.0, part), len(scale))
        if not split.any():
            return total
        size -= np.bincount(row, np.where(split, weight, 0.0), len(scale))
        row, low, high = (np.repeat(values[split], 2) for values in (row, low, high))
        middle = (low + high) / 2
        low[1::2], high[::2] = middle[1::2], middle[::2]
        evaluated += len(row)
        if evaluated > _MOST_PANELS * len(scale):
            text = f"the Gaussian mean does not converge at q={float(scale[row[0]] ** 2):.6g}"
            raise InputError(f"{text}: it oscillates too fast there, or jumps at too many points.")


def _panels(f: Callable[[Any], Any], scale: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """The integral over each panel, that of the absolute value, and an estimate of the error of 20 nodes."""
    half = (high - low)[:, None] / 2
    z = (low + high)[:, None] / 2 + half * _NODES
    mass = half * _WEIGHTS * np.exp(-0.5 * z**2) / _NORMAL
    with np.errstate(over="ignore", invalid="ignore"):  # exp(h)^2 for a huge q is infinity, and so is its mean
        values = np.asarray(f(z * scale[:, None]), dtype=np.float64) * mass
        return values.sum(axis=1), np.abs(values).sum(axis=1), np.abs(values @ _HIGHEST).sum(axis=1)


def mean_square(rule: Activation, q: Number) -> Number:
    """E phi(sqrt(q) Z)^2."""
    return gaussian_mean(lambda h: rule.function(h) ** 2, q, rule.breaks)


def mean_slope(rule: Activation, q: Number) -> Number:
    """E phi'(sqrt(q) Z)^2."""
    return gaussian_mean(lambda h: rule.derivative(h) ** 2, q, rule.breaks)


@checked
def chi(activation: ActivationLike, weight_std: Std, q: Number, density: Density = 1.0) -> Number:
    """Gain of a wide layer: density * weight_std^2 * E phi'(sqrt(q) Z)^2, the mean squared growth of a perturbation.

    >>> chi("relu", 2.0, 1.0)                       # any q: ReLU has no scale
    2.0
    >>> round(chi("tanh", 1.700796 ** 0.5, 0.512079), 5)              # on the edge of chaos
    1.0

    Source: Hayou et al. 2021, B.1.2 (printed with phi for phi', a misprint) and appendix H (density).
    """
    return density * weight_std**2 * mean_slope(get(activation), q)


@checked
def variance_map(
    activation: ActivationLike, weight_std: Std, bias_std: Std, q: Number, density: Density = 1.0
) -> Number:
    """Variance of the next pre-activation: bias_std^2 + density * weight_std^2 * E phi(sqrt(q) Z)^2.

    >>> round(variance_map("relu", 2.0 ** 0.5, 0.5, 3.0), 6)
    3.25

    Source: Hayou et al. 2021, B.1 and appendix H (density).
    """
    return bias_std**2 + density * weight_std**2 * mean_square(get(activation), q)


class Moments:
    """The two moments of one activation for variances up to ``top``, where phi^2 overflows or oscillates too fast.

    ``at_zero`` is the square of phi at 0, ``slope_at_zero`` the mean of phi'^2 on both sides of it.
    """

    def __init__(self, activation: Activation) -> None:
        from scipy.interpolate import make_interp_spline

        self.activation = activation
        q, square, slope = _table(activation)
        self.top = float(q[-1])
        self.at_zero = mean_square(activation, 0.0)
        self.slope_at_zero = mean_slope(activation, 0.0)
        logarithm = np.log(q)
        self._square = make_interp_spline(logarithm, np.log(np.maximum(square, _FLOOR)), k=7)
        self._slope = make_interp_spline(logarithm, np.log(np.maximum(slope, _FLOOR)), k=7)
        self._tables: dict[int, tuple[Array, Array, Array]] = {}

    def square(self, q: Array) -> Array:
        """E phi(sqrt(q) Z)^2 to about ten digits; q of any shape, between 0 and top."""
        inside = np.exp(self._square(np.log(np.clip(q, LOWEST, self.top))))
        below = self.at_zero + np.maximum(np.exp(self._square(math.log(LOWEST))) - self.at_zero, 0.0) * (q / LOWEST)
        return np.asarray(np.where(q < LOWEST, below, inside))

    def slope(self, q: Array) -> Array:
        """E phi'(sqrt(q) Z)^2 to about ten digits; q of any shape, between 0 and top."""
        return np.asarray(np.exp(self._slope(np.log(np.clip(q, LOWEST, self.top)))))

    @property
    def slope_far(self) -> float:
        """E phi'^2 in the limit of large q; infinity if it grows without bound."""
        last, before = self.slope(np.array([self.top, self.top / 10]))
        return math.inf if last > 1.5 * before else float(last)

    def square_rate(self, q: float) -> float:
        """The derivative of E phi(sqrt(q) Z)^2 by q; at 0 its limit, for a phi that vanishes there.

        By parts it is E phi^2 (Z^2 - 1) / (2 q): no second derivative is needed, and a phi with jumps is no exception.
        """
        if q == 0:
            return self.slope_at_zero
        function = self.activation.function
        # a constant has mean 0 against Z^2 - 1; taking it out keeps the digits when q is small
        constant, breaks = float(np.asarray(function(np.zeros(1))).reshape(-1)[0]) ** 2, self.activation.breaks
        return gaussian_mean(lambda h: (function(h) ** 2 - constant) * (h**2 / q - 1) / (2 * q), q, breaks)

    def table(self, decade: int) -> tuple[Array, Array, Array]:
        """Variances from LOWEST to top with that many to a decade, 1 among them, and the two moments there."""
        if decade not in self._tables:
            q = np.asarray(10.0 ** (np.arange(-12 * decade, round(math.log10(self.top)) * decade + 1) / decade))
            self._tables[decade] = q, self.square(q), self.slope(q)
        return self._tables[decade]


def _table(activation: Activation) -> tuple[Array, Array, Array]:
    """Variances and the two moments there, decade by decade up to where they can no longer be computed."""
    parts: list[tuple[Array, Array, Array]] = []
    for decade in range(round(math.log10(LOWEST)), round(math.log10(HIGHEST))):
        q = 10.0 ** (decade + np.arange(1 if parts else 0, _A_DECADE + 1) / _A_DECADE)
        try:
            both = (mean_square(activation, q), mean_slope(activation, q))
        except InputError:
            if decade < 1:
                raise
            break
        if not (np.isfinite(both).all() and np.max(both[0]) < 1e200):
            break
        parts.append((q, *both))
    if not parts:
        raise InputError(f"{activation.name}: the means of its square or of its derivative's are not finite.")
    q, first, second = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return q, first, second


@lru_cache(maxsize=64)
def moments_of(activation: Activation) -> Moments:
    """The moments of an activation, made once; an InputError if they cannot be computed even for q up to 10."""
    return Moments(activation)


@dataclass(frozen=True)
class Propagation(Result):
    """Variance and correlation of two inputs through a network, and of a gradient on its way back.

    ``q``, (depth + 1,), is the variance of the pre-activation: q[0] as given, q[l] after l layers. ``c`` is the
    correlation of the two inputs and ``gap`` 1 - c with its relative precision, as q, or None. ``chi``, (depth,), is
    the gain of each layer, ``gradient``, as q, the variance of a gradient at the pre-activations of layer l relative to
    that at the end. ``log_gain`` is the log of the product of the gains, ``phase`` "ordered" (it is below -log 10),
    "critical" or "chaotic" (above log 10): by the whole depth, which decides whether it trains.
    """

    q: Array
    c: Array | None
    gap: Array | None
    chi: Array
    gradient: Array
    log_gain: float
    phase: str
    architecture: str

    def rows(self) -> list[dict[str, Any]]:
        columns: dict[str, list[Any]] = {"layer": list(range(len(self.q))), "q": self.q.tolist()}
        if self.c is not None:
            columns["c"] = self.c.tolist()
        columns |= {"chi": [*self.chi.tolist(), math.nan], "gradient": self.gradient.tolist()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def __str__(self) -> str:
        depth, end = len(self.q) - 1, f"q {self.q[0]:.6g} -> {self.q[-1]:.6g}"
        if self.c is not None:
            end += f", c {self.c[0]:.6g} -> {self.c[-1]:.6g}"
        log = self.log_gain / 2
        times = f"{math.exp(log):.4g}" if abs(log) < 700 else f"10^{log / math.log(10):.1f}"
        change = f"a gradient changes by {times} in norm going back"
        return f"{self.architecture}, {counted(depth, 'layer')}: {self.phase}; {end}; {change}"


@checked
def propagate(
    activation: str | Activation | Callable[..., Any],
    weight_std: Std,
    bias_std: Std,
    depth: Depth,
    *,
    q: Std = 1.0,
    c: Annotated[float, Within(-1 - 1e-12, 1 + 1e-12)] | None = None,
    density: Density = 1.0,
    architecture: Literal["dense", "residual", "stable"] = "dense",
) -> Propagation:
    """Carry q and c of a pre-activation through ``depth`` layers, and a gradient back.

    >>> found = propagate("relu", 2**0.5, 0.0, 3, c=0.5)
    >>> found.q, found.c.round(4), found.gradient                                      # shape (4,)
    (array([1., 1., 1., 1.]), array([0.5   , 0.609 , 0.6839, 0.7381]), array([1., 1., 1., 1.]))

    ``"dense"``: q' = bias_std^2 + weight_std^2 E phi^2, also of a convolution all of whose positions have one variance.
    ``"residual"``: y + F(y), so q' = q + bias_std^2 + weight_std^2 E phi^2 and chi = 1 + weight_std^2 E phi'^2.
    ``"stable"``: y + F(y) / sqrt(depth).

    ``depth`` >= 0 counts layers or blocks; ``q`` is the variance of the first pre-activation, ``c`` the correlation
    there of two inputs. An InputError names what is out of range, or the layer where q exceeds float64.

    Source: Hayou et al. 2021, B.1 and appendix H (density).
    """
    rule, share = continuous(activation), 1 / max(depth, 1) if architecture == "stable" else 1.0
    skip = 1.0 if architecture in ("residual", "stable") else 0.0
    weight, bias = density * weight_std**2 * share, bias_std**2 * share
    one, none = np.ones(1), np.zeros(1)
    qs, gains = [np.array([float(q)])], list[Array]()
    gaps = [] if c is None else [np.clip(np.array([1 - float(c)]), 0.0, 2.0)]
    seen: dict[tuple[float, ...], list[Array]] = {}  # at a fixed point, or between two floats beside it, layers repeat
    for layer in range(depth):
        now, state = qs[-1], tuple(float(column[-1][0]) for column in (qs, gaps) if column)
        if state not in seen:
            # leaving the range of floats is reported once, below
            with np.errstate(over="ignore", invalid="ignore"):
                gain = skip + weight * mean_at(rule, now, now, one, none, True)
                after = skip * now + bias + weight * mean_at(rule, now, now, one, none, False)
            if not (np.isfinite(after) & np.isfinite(gain)).all():
                raise InputError(f"q overflows float64 in layer {layer + 1}; use fewer layers or a smaller weight_std.")
            seen[state] = [gain, after]
            if gaps:
                apart = skip * now * gaps[-1] + weight * _lost(rule, now, gaps[-1])
                seen[state].append(np.clip(apart / np.where(after > 0, after, 1.0), 0.0, 2.0))
        for column, value in zip((gains, qs, gaps), seen[state], strict=False):
            column.append(value)
    chi, gap = np.concatenate([np.zeros(0), *gains]), None if c is None else np.concatenate(gaps)
    with np.errstate(over="ignore", divide="ignore"):  # a gradient that explodes past the largest float is infinite
        gradient, total = np.append(np.cumprod(chi[::-1])[::-1], 1.0), float(np.log(chi).sum())
    edge = math.log(10)  # critical: the gradient's variance changes by less than a factor 10 over the depth
    phase = "ordered" if total < -edge else "chaotic" if total > edge else "critical"
    correlation = None if gap is None else 1 - gap
    return Propagation(np.concatenate(qs), correlation, gap, chi, gradient, total, phase, architecture)


def _lost(rule: Activation, q: Array, gap: Array) -> Array:
    """E phi^2 - E phi(h1) phi(h2) at equal variances, without cancellation where the inputs are close."""
    sine, one, none = np.sqrt(gap * (2 - gap)), np.ones_like(q), np.zeros_like(q)
    far = mean_at(rule, q, q, one, none, False) - mean_at(rule, q, q, 1 - gap, sine, False)
    if (close := np.asarray((gap < 1e-3) & (gap > 0))).any():
        # the integral of its slope over the angle (Price's theorem)
        angle, weight = pieces(np.multiply.outer(2 * np.arcsin(np.sqrt(gap[close] / 2)), [0, 1]), 10)
        variance = np.broadcast_to(q[close][:, None], angle.shape)
        slope, far = mean_at(rule, variance, variance, np.cos(angle), np.sin(angle), True), np.array(far)
        far[close] = q[close] * (slope * np.sin(angle) * weight).sum(axis=1)
    return np.asarray(np.where(gap > 0, far, 0.0))
