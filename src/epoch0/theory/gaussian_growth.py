"""Exact growth of a tangent through layers of Gaussian weights (beyond Price-Tanner): of one, and its law over depth.

The sign of a pre-activation is a fair coin, independent of the size of its derivative, so that for rows w_i and a unit
direction u the squared growth is a sum of independent terms ``slope_i^2 (w_i . u)^2``. One layer, dense or sparse, is
the mean of the square root of such a sum. A dense ReLU layer of k rows N(0, std^2) stretches every tangent by
``std * chi_A`` with A ~ Bin(k, 1/2), independently of all layers before it. The logarithm of a product has the product
of the characteristic functions, which are closed forms, so its distribution function is one short Fourier series.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from epoch0 import special
from epoch0.arguments import Positive, Size, Within, checked
from epoch0.errors import InputError
from epoch0.theory.checks import Array, Number, like

# exp(-42) = 6e-19: what is left out of the range, on either side
_NEGLIGIBLE = 42.0
# From here on Stirling's series is exact to rounding.
_STIRLING = 100.0


def binomial(trials: int, probability: float) -> tuple[Array, Array]:
    """The counts of a binomial law that matter (all but 1e-20 of the mass), and their probabilities, of one shape."""
    if probability == 1.0:
        return np.array([float(trials)]), np.ones(1)
    mean = trials * probability
    room = 9.5 * math.sqrt(mean * (1 - probability)) + 40.0
    counts = np.arange(max(0, math.floor(mean - room)), min(trials, math.ceil(mean + room)) + 1, dtype=np.float64)
    # the ratios of neighbours keep the digits that differences of log-gammas of large numbers would lose
    steps = np.log((trials - counts[:-1]) / (counts[:-1] + 1)) + math.log(probability) - math.log1p(-probability)
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    mass = np.exp(logs - logs.max())
    return counts, mass / mass.sum()


def chi_mean(degrees: Array) -> Array:
    """Mean of a chi variable: sqrt(2) Gamma((a + 1)/2) / Gamma(a/2), and 0 for a = 0."""
    return np.asarray(math.sqrt(2.0) * special.poch(np.asarray(degrees, dtype=np.float64) / 2, 0.5))


@functools.lru_cache(maxsize=1024)  # networks repeat their widths
def binomial_chi_mean(width: int, probability: float) -> float:
    """E chi_A with A ~ Bin(width, probability): the growth through ``width`` unit Gaussian rows, each on by a coin."""
    counts, mass = binomial(width, probability)
    return float(mass @ chi_mean(counts))


def mean_root_of_sum(terms: int, lost: Callable[[Array], Array], typical: float) -> float:
    """E sqrt(X_1 + ... + X_terms) for independent copies of a variable X >= 0 known by its Laplace transform.

    ``E sqrt(S) = (1 / (2 sqrt(pi))) * integral_0^inf (1 - E exp(-s S)) s^(-3/2) ds``; with s = exp(t) the integrand is
    analytic around the real line and decays like exp(-|t|/2), so that the trapezoidal rule is exact to rounding.
    ``lost`` takes s to 1 - E exp(-s X) without cancellation at small s; ``typical`` is the size of the sum.
    """
    step = 0.25
    t = np.arange(-76.0, 76.0 + step / 2, step)
    s = np.exp(t) / typical
    with np.errstate(divide="ignore"):  # 1 - E exp(-sX) rounds to 1 where X cannot vanish: log(0), and exp gives 0
        gone = -np.expm1(terms * np.log1p(-lost(s)))
    return float(step * np.sum(gone * np.exp(-t / 2)) * math.sqrt(typical) / (2 * math.sqrt(math.pi)))


def one_hot_mean(width: int, density: float, slopes: tuple[float, float]) -> float:
    """Growth of a one-hot direction through rows of unit Gaussians kept with ``density``; at 1 of every direction."""
    if 0.0 in slopes:
        return max(map(abs, slopes)) * binomial_chi_mean(width, density / 2)
    if abs(slopes[0]) == abs(slopes[1]):
        return abs(slopes[0]) * binomial_chi_mean(width, density)
    return mean_root_of_sum(width, lambda s: density * _lost(s, slopes), width * density * _second(slopes))


@functools.lru_cache(maxsize=256)
def flat_mean(width: int, fan_in: int, density: float, slopes: tuple[float, float]) -> float:
    """Growth of a flat direction (all fan_in entries equal) through rows of unit Gaussians kept with ``density``.

    Given that a row keeps n of its entries, (w . u)^2 is n/fan_in times a squared standard normal.
    """
    counts, mass = binomial(fan_in, density)

    def lost(s: Array) -> Array:
        return np.array([mass @ _lost(value * counts / fan_in, slopes) for value in s])

    return mean_root_of_sum(width, lost, width * density * _second(slopes))


def _lost(s: Array, slopes: tuple[float, float]) -> Array:
    """1 - E exp(-s (slope N)^2) for a standard normal N and a slope that is a fair coin's."""
    return np.asarray(sum(-0.5 * np.expm1(-0.5 * np.log1p(2 * slope**2 * s)) for slope in slopes if slope))


def _second(slopes: tuple[float, float]) -> float:
    return (slopes[0] ** 2 + slopes[1] ** 2) / 2


@checked
@dataclass(frozen=True)
class GrowthLaw:
    """Law of ||dz_d|| / ||dz_0||, the growth of one tangent through d dense Gaussian ReLU layers.

    >>> law = GrowthLaw((100, 100), (0.2, 0.2))                 # two layers of width 100, sigma_w = 2
    >>> round(law.mean, 6), round(law.std, 4), round(law.quantile(0.5), 3)
    (1.975006, 0.3152, 1.96)

    The expected length of a whole trajectory grows by :attr:`mean` too; its spread over networks is at most
    :attr:`std`. ``stds`` are the standard deviations of an entry of each layer's matrix as stored, > 0.
    Source: THEORY 1.2, the exact law of a dense Gaussian layer.
    """

    widths: tuple[Size, ...]
    stds: tuple[Positive, ...]
    _layers: "Counter[int]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.widths) != len(self.stds) or not self.widths:
            raise InputError(f"{len(self.widths)} widths and {len(self.stds)} stds; give one of each for every layer.")
        object.__setattr__(self, "_layers", Counter(self.widths))

    @property
    def mean(self) -> float:
        """Expected growth: the product of the layers' means."""
        return _exp(self._log_of_mean)

    @property
    def std(self) -> float:
        # 1 + variance/mean^2 of the product is the product of the layers'; expm1 keeps the digits of a narrow law
        spread = sum(n * math.log(k / 2 / binomial_chi_mean(k, 0.5) ** 2) for k, n in self._layers.items())
        excess = math.log(math.expm1(spread)) if spread < 700 else spread
        return _exp(self._log_of_mean + excess / 2)

    @property
    def zero_probability(self) -> float:
        """Probability that a layer is off altogether, so that nothing is left of the tangent."""
        return abs(math.expm1(sum(n * math.log1p(-(0.5**k)) for k, n in self._layers.items())))

    @property
    def log_mean(self) -> float:
        """Mean of the logarithm of the growth, given that it is not zero."""
        return self._log_scale + sum(n * _log_moments(k)[0] for k, n in self._layers.items())

    @property
    def log_std(self) -> float:
        """Standard deviation of the logarithm of the growth, given that it is not zero; about sqrt(5/4 sum 1/k)."""
        return math.sqrt(sum(n * _log_moments(k)[1] for k, n in self._layers.items()))

    @property
    def _log_of_mean(self) -> float:
        return self._log_scale + sum(n * math.log(binomial_chi_mean(k, 0.5)) for k, n in self._layers.items())

    @property
    def _log_scale(self) -> float:
        return math.fsum(math.log(std) for std in self.stds)

    def cdf(self, x: Number) -> Number:
        """Probability that the growth is at most x, to about 1e-13; a number or an array of any shape.

        >>> GrowthLaw((1,), (1.0,)).cdf(np.array([0.0, 1.0])).round(6)      # half a chance of 0, else |N(0, 1)|
        array([0.5     , 0.841345])
        """
        growths = np.asarray(x, dtype=np.float64)
        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(growths, 0.0))
        zero = self.zero_probability
        below = np.where(growths < 0, 0.0, zero + (1 - zero) * self._log_cdf(np.asarray(logs)))
        return like(below, x)

    @property
    def support(self) -> tuple[float, float]:
        """The range that holds every growth but 0 and two tails of less than 1e-18 each."""
        start, length, _ = self._series
        return math.exp(start), _exp(start + length)

    def quantile(self, p: Annotated[Number, Within(above=0, below=1)]) -> Number:
        """The growth below which a fraction p, in (0, 1), of the networks lies; 0 for p <= :attr:`zero_probability`."""
        chances = np.asarray(p, dtype=np.float64)
        zero = self.zero_probability
        wanted = np.clip((chances - zero) / max(1 - zero, np.finfo(np.float64).tiny), 0.0, 1.0)
        start, length, _ = self._series
        low, high = np.full(chances.shape, start), np.full(chances.shape, start + length)
        for _ in range(64):
            middle = np.asarray((low + high) / 2)
            below = self._log_cdf(middle) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        values = np.where(chances <= zero, 0.0, np.exp(high))
        return like(values, p)

    @functools.cached_property
    def _series(self) -> tuple[float, float, NDArray[np.complex128]]:
        """Start and length of the range of the log growth, and the characteristic function at 2 pi n / length."""
        rates = np.geomspace(0.1, max(2.0, 20.0 / self.log_std), 60).tolist()
        right = min(self._reach(rate) for rate in rates)
        left = min(self._reach(-rate) for rate in [0.3, 0.6, 0.9, *rates])
        start, length = self.log_mean - left, left + right
        count = 32
        while True:
            frequencies = 2j * math.pi * np.arange(1, count + 1) / length
            values = np.ones(count, dtype=np.complex128)
            for width, times in self._layers.items():
                values *= np.array([np.exp(_log_moment(width, power)) for power in frequencies]) ** times
            values *= np.exp(frequencies * self.log_mean)
            # a whole quarter, so that a zero of the function cannot end the series early
            if np.abs(values[-count // 4 :]).max() < 1e-17 or count >= 1 << 16:
                return start, length, values
            count *= 2

    def _reach(self, rate: float) -> float:
        """How far from its mean the tail of the log growth on the side of ``rate`` is below exp(-42), by Chernoff."""
        total = _NEGLIGIBLE
        for width, times in self._layers.items():
            lowest = _positive_counts(width)[0][0]
            if rate <= -lowest or (lowest > 2 * _STIRLING and rate < -lowest / 2):
                return math.inf
            total += times * _log_moment(width, rate).real
        return total / abs(rate)

    def _log_cdf(self, logs: Array) -> Array:
        """Distribution function of the log growth given that it is not zero, shape of ``logs`` to the same."""
        start, length, values = self._series
        inside = np.asarray(np.clip(logs, start, start + length))
        factors = values / (-1j * math.pi * np.arange(1, len(values) + 1))
        series = (inside - start) / length + self._waves(inside, factors) - self._waves(np.array(start), factors)
        series = np.where(logs >= start + length, 1.0, np.where(logs <= start, 0.0, series))
        return np.asarray(np.clip(series, 0.0, 1.0))

    def _waves(self, logs: Array, factors: NDArray[np.complex128]) -> Array:
        """``Re sum_n factors_n exp(-2 pi i n y / length)`` at every log growth y, shape of ``logs`` to the same."""
        start, length, _ = self._series
        orders = 2 * math.pi * np.arange(1, len(factors) + 1) / length
        turned = factors * np.exp(-1j * orders * start)
        found = (logs - start).ravel()
        block = max(1, 1_000_000 // len(orders))  # so that many y do not fill the memory
        for first in range(0, found.size, block):
            some = slice(first, first + block)
            found[some] = (np.exp(-1j * np.multiply.outer(found[some], orders)) @ turned).real
        return np.asarray(found.reshape(logs.shape))


def _exp(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 709 else math.inf


@functools.lru_cache(maxsize=64)
def _positive_counts(width: int) -> tuple[Array, Array]:
    """Counts >= 1 of rows that are on, and their probabilities given that there is one."""
    counts, mass = binomial(width, 0.5)
    on = counts > 0
    return counts[on], mass[on] / mass[on].sum()


def _log_moment(width: int, power: complex) -> complex:
    """Logarithm of E[(chi_A / c)^power | A >= 1]; log c is the mean of log chi_A, the power's real part is > -1."""
    counts, mass = _positive_counts(width)
    half, shift = counts / 2, power / 2
    if half[0] > _STIRLING:
        # log-gammas of large numbers cancel; Stirling's series written for their difference does not
        top = half + shift
        logs = (top - 0.5) * np.log1p(shift / half) - shift + (1 / top - 1 / half) / 12 - (top**-3 - half**-3) / 360
        logs = logs + shift * (np.log(2 * half) - 2 * _log_moments(width)[0])
    else:
        scale = math.log(2) - 2 * _log_moments(width)[0]
        logs = special.loggamma(half + shift) - special.gammaln(half) + shift * scale
    largest = logs.real.max()
    return complex(largest + np.log(mass @ np.exp(logs - largest)))


@functools.lru_cache(maxsize=64)
def _log_moments(width: int) -> tuple[float, float]:
    """Mean and variance of log chi_A given A >= 1, A ~ Bin(width, 1/2)."""
    counts, mass = _positive_counts(width)
    centres = (math.log(2) + special.digamma(counts / 2)) / 2
    mean = float(mass @ centres)
    return mean, float(mass @ ((centres - mean) ** 2 + special.polygamma(1, counts / 2) / 4))
