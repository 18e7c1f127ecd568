"""Growth of a trajectory's length in one layer and over depth: every bound, and the exact law where there is one.

Conventions, the same in all functions here: ``law`` is the law of one entry of the weight matrix as stored, that is
after a division by sqrt(fan_in); it must be even, and Sparse brings the density alpha. ``width`` is the number of rows,
the fan-out, >= 1. ``activation`` is "relu", or one with a slope each left and right of 0: "leaky_relu", "identity",
"abs". All raise InputError for anything else. Growth is the ratio E||dz'|| / ||dz|| for z' = phi(W z + b) with even
biases, zero included. Fan-in enters only the exact maximum of a sparse law. Layers multiply: functions over depth take
one law for all layers or one a layer, and the number of rows of each.

All of it holds for the length of any fixed curve, however sparse the weights (docs/theory). Price-Tanner section 2.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import special
from epoch0.activations import Activation, get
from epoch0.arguments import Density, Positive, Size, Std, Within, checked
from epoch0.distributions import Gaussian, Law, Sparse
from epoch0.errors import InputError
from epoch0.results import Result, aligned
from epoch0.theory.checks import Array, Number, like

__all__ = ["GrowthBounds", "GrowthLaw", "LayerGrowth", "absolute_moment_constant", "best_lower_bound", "bounds"]
__all__ += ["exact", "expected_subvector_norm", "fourth_moment_lower_bound", "lower_bound"]
__all__ += ["raghu_lower_bound", "raghu_upper_bound", "sparse_maximum", "sparse_minimum", "upper_bound"]

_COLUMNS = ("paper_lower", "lower", "minimum", "exact", "maximum", "upper")
# From here on Stirling's series is exact to rounding.
_STIRLING = 100.0


@checked
def raghu_lower_bound(
    weight_std: Std, bias_std: Std, width: Size, activation: Annotated[str, ("relu", "hardtanh")] = "relu"
) -> float:
    """Raghu's lower bound on the growth of a trajectory's length in one layer of Gaussian weights.

    >>> round(raghu_lower_bound(2.0, 0.0, 784), 6)
    0.999363

    Two steps of the proof do not hold as printed: ``sqrt(m - 3/2) >= sqrt(m/2)`` is used for m = 2 too, and
    (1 - p)^(k-1) is bounded with p <= 1/sigma where a lower bound on p is needed. So this is the paper's number, not a
    certified one (0 where it is negative); for ReLU :func:`exact` is larger at every width.

    ``weight_std`` is sigma_w, a weight's standard deviation times sqrt(width), ``bias_std`` sigma_b, on which ReLU's
    bound does not depend, and ``activation`` "relu" or "hardtanh", whose proof needs weight_std^2 + bias_std^2 >= 1.

    Source: Raghu et al. 2017, Theorem 3 and appendix D, equations (a)-(d).
    """
    root = math.sqrt(width)
    if activation == "relu":
        return max(0.0, weight_std / math.sqrt(2) * (root / math.sqrt(2 * (width + 1)) - math.ldexp(root, -int(width))))
    if (total := math.hypot(weight_std, bias_std)) < 1:
        raise InputError(f"{weight_std=}, {bias_std=} are too small: the proof needs weight_std^2 + bias_std^2 >= 1.")
    kept = weight_std * root / ((2 * math.pi) ** 0.25 * math.sqrt(total * (total * math.sqrt(2 * math.pi) + width - 1)))
    return max(0.0, float(kept - weight_std / total * root * (1 - 1 / total) ** (width - 1)) / math.sqrt(2))


@checked
def raghu_upper_bound(weight_std: Std, width: Size) -> float:
    """Raghu's upper bound for slopes of at most 1 (hard tanh, ReLU): the mean of a chi variable, nothing saturated.

    >>> round(raghu_upper_bound(2.0, 100), 6)
    1.995006

    Source: Raghu et al. 2017, appendix D, equations (2) and (3).
    """
    return float(chi_mean(np.array(float(width)))) * weight_std / math.sqrt(width)


@dataclass(frozen=True)
class LayerGrowth:
    """Bounds and exact values of the expected growth in one layer, or over all of them.

    ``paper_lower`` is Price and Tanner's bound, ``lower`` the better of it and the fourth-moment bound; ``minimum`` and
    ``maximum`` are exact over all directions, where they are known, and ``exact`` where the direction does not matter.
    ``status`` is "exact", "sharp interval" (minimum and maximum of one layer are attained) or "bounded". The product
    over depth has layer 0 and the width of the last layer.
    """

    layer: int
    width: int
    paper_lower: float
    lower: float
    minimum: float | None
    exact: float | None
    maximum: float | None
    upper: float
    status: str


@dataclass(frozen=True)
class GrowthBounds(Result):
    """Growth bounds of every layer of a network; where nothing is known the table has "-".

    >>> print(bounds(e0.Gaussian(2.0).scaled(100**-0.5), [100, 100]))
    layer  width  paper lower     lower   minimum     exact   maximum     upper  status
    1        100     0.797885  1.380131  1.405349  1.405349  1.405349  1.414214  exact
    2        100     0.797885  1.380131  1.405349  1.405349  1.405349  1.414214  exact
    total  2 deep    0.636620  1.904762  1.975006  1.975006  1.975006  2.000000  exact
    """

    activation: str
    layers: tuple[LayerGrowth, ...]

    @property
    def over_depth(self) -> LayerGrowth:
        """The products of the layers' bounds."""
        columns = {name: [getattr(layer, name) for layer in self.layers] for name in _COLUMNS}
        products: dict[str, Any] = {name: None if None in item else math.prod(item) for name, item in columns.items()}
        weakest = max((layer.status for layer in self.layers), key=("exact", "sharp interval", "bounded").index)
        return replace(self.layers[-1], layer=0, status=weakest, **products)

    @property
    def status(self) -> str:
        """The weakest of the layers'."""
        return self.over_depth.status

    def to_dict(self) -> dict[str, Any]:
        plain = {"activation": self.activation, "depth": len(self.layers), "status": self.status}
        over_depth = {name: getattr(self.over_depth, name) for name in _COLUMNS}
        return {**plain, "layers": self.rows(), "over_depth": over_depth}

    def __str__(self) -> str:
        lines = [["layer", "width", *(name.replace("_", " ") for name in _COLUMNS), "status"]]
        names = [(str(row.layer), str(row.width)) for row in self.layers] + [("total", f"{len(self.layers)} deep")]
        for name, row in zip(names, (*self.layers, self.over_depth), strict=True):
            values = [getattr(row, column) for column in _COLUMNS]
            numbers = ("-" if v is None else f"{v:.6f}" if v == 0 or 1e-3 <= v < 1e6 else f"{v:.5e}" for v in values)
            lines.append([*name, *numbers, row.status])
        return "\n".join(aligned(lines, numbers=slice(1, -1)))


@checked
def absolute_moment_constant(law: Law) -> float:
    """The constant M of Theorem 2: E|u . w| >= M ||u|| for every vector u, w of independent entries of ``law``.

    >>> round(absolute_moment_constant(e0.Gaussian(1.0)), 6), round(absolute_moment_constant(e0.Uniform(1.0)), 6)
    (0.797885, 0.353553)

    It is std * sqrt(2/pi) for Gaussian entries, where it is sharp, and E|w| / sqrt(2) for all others, by Khintchine; a
    mask multiplies it by the density.

    Source: Price-Tanner Theorem 2 and the proofs of Corollaries 1-3.
    """
    _check_even(law)
    density, kept = _split(law)
    return density * (kept.std * math.sqrt(2 / math.pi) if isinstance(kept, Gaussian) else kept.mean_abs / math.sqrt(2))


@checked
def lower_bound(law: Law, width: Size, activation: str | Activation = "relu") -> float:
    """Price and Tanner's lower bound: alpha M sqrt(k) / 2.

    >>> law = e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5)
    >>> round(lower_bound(law, 784), 6)
    0.398942

    For other slopes than ReLU's the 1/2 becomes the mean of their absolute values.

    Source: Price-Tanner Theorem 2 and Corollaries 1-3.
    """
    left, right = _slopes(activation)
    return absolute_moment_constant(law) * math.sqrt(width) * (abs(left) + abs(right)) / 2


@checked
def fourth_moment_lower_bound(
    law: Law, width: Size, fourth_power_sum: Density | None = None, activation: str | Activation = "relu"
) -> float:
    """A lower bound of order sqrt(alpha): sqrt(k Var/2) / sqrt(1 + (5 + 2 kappa sum u^4)/k), by Hoelder's inequality.

    >>> law = e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5)
    >>> round(fourth_moment_lower_bound(law, 784), 5)
    0.99306

    kappa is the law's excess kurtosis, mask included; ``fourth_power_sum`` of the direction is in (0, 1]; None: worst.

    Source: THEORY 1.2 (F5); E S^(1/2) >= (E S)^(3/2) / (E S^2)^(1/2) for the squared growth S.
    """
    _check_even(law)
    left, right = _slopes(activation)
    second = (left**2 + right**2) / 2
    if law.variance == 0 or second == 0:
        return 0.0
    kurtosis = law.excess_kurtosis
    shape = max(kurtosis, 0.0) if fourth_power_sum is None else kurtosis * fourth_power_sum
    spread = (3 + shape) * (left**4 + right**4) / 2 / second**2 - 1
    return math.sqrt(width * law.variance * second / (1 + spread / width))


@checked
def best_lower_bound(law: Law, width: Size, activation: str | Activation = "relu") -> float:
    """The larger of :func:`lower_bound` and :func:`fourth_moment_lower_bound`; the first wins at width 1 and 2.

    >>> best_lower_bound(e0.Gaussian(2**0.5), 1) == lower_bound(e0.Gaussian(2**0.5), 1)
    True

    Source: Price-Tanner Theorem 2; THEORY 1.2.
    """
    return max(lower_bound(law, width, activation), fourth_moment_lower_bound(law, width, activation=activation))


@checked
def upper_bound(law: Law, width: Size, activation: str | Activation = "relu") -> float:
    """The upper bound that matches: the square root of the exact second moment, sqrt((a^2 + 1)/2 * k * Var).

    >>> round(upper_bound(e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5), 784), 6)
    1.0

    Source: THEORY 1.2 (F2), Jensen's inequality.
    """
    _check_even(law)
    return math.sqrt(_second(_slopes(activation)) * width * law.variance)


@checked
def exact(law: Law, width: Size, activation: str | Activation = "relu") -> float:
    """The expected growth of dense Gaussian weights in any direction: std * E chi_A with A ~ Bin(k, 1/2).

    >>> round(exact(e0.Gaussian(2.0).scaled(784**-0.5), 784), 6)
    1.413086

    A sparse law is refused: there growth depends on the direction.

    Source: THEORY 1.2 (F3).
    """
    density, std = _gaussian(law)
    if density != 1.0:
        raise InputError(f"{law!r} is sparse: growth depends on direction; see sparse_minimum and sparse_maximum.")
    return std * one_hot_mean(width, 1.0, _slopes(activation))


@checked
def sparse_minimum(law: Law, width: Size, activation: str | Activation = "relu") -> float:
    """The least expected growth of sparse Gaussian weights over all directions; a one-hot direction attains it.

    >>> round(sparse_minimum(e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5), 784), 6)
    0.998244

    Source: THEORY 1.2 (F4): growth is a symmetric concave function of the squared direction.
    """
    density, std = _gaussian(law)
    return std * one_hot_mean(width, density, _slopes(activation))


@checked
def sparse_maximum(law: Law, width: Size, fan_in: Size | None = None, activation: str | Activation = "relu") -> float:
    """The largest expected growth of sparse Gaussian weights over all directions; a flat direction attains it.

    >>> round(sparse_maximum(e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5), 784), 6)
    0.999201

    It spreads over ``fan_in`` columns; as many as rows if not given.

    Source: THEORY 1.2 (F4).
    """
    density, std = _gaussian(law)
    fan_in, slopes = fan_in or width, _slopes(activation)
    return std * (one_hot_mean(width, 1.0, slopes) if density == 1.0 else flat_mean(width, fan_in, density, slopes))


@checked
def bounds(
    law: Law | Sequence[Law],
    widths: Size | Sequence[Size],
    activation: str | Activation = "relu",
    fan_in: Size | None = None,
) -> GrowthBounds:
    """Everything known about the growth in each layer, and its product over depth; fan_in is the first layer's.

    >>> table = bounds(e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5), [784] * 10)
    >>> table.status, round(table.layers[0].minimum, 4), round(table.over_depth.maximum, 4)
    ('sharp interval', 0.9982, 0.992)
    """
    sizes = [widths] if isinstance(widths, int) else list(widths)
    laws = [law] * len(sizes) if isinstance(law, Law) else list(law)
    if not sizes or len(laws) != len(sizes):
        raise InputError(f"{len(laws)} laws for {len(sizes)} widths; give one law, or one for each width, one or more.")
    rows: list[LayerGrowth] = []
    inputs = [fan_in or sizes[0], *sizes[:-1]]
    for layer, (entry, width, before) in enumerate(zip(laws, sizes, inputs, strict=True), start=1):
        density, kept = _split(entry)
        minimum = expected = maximum = None
        status = "bounded"
        if isinstance(kept, Gaussian):
            minimum = sparse_minimum(entry, width, activation)
            maximum = sparse_maximum(entry, width, before, activation)
            expected, status = (minimum, "exact") if density == 1.0 else (None, "sharp interval")
        least, best = lower_bound(entry, width, activation), best_lower_bound(entry, width, activation)
        most = upper_bound(entry, width, activation)
        rows.append(LayerGrowth(layer, width, least, best, minimum, expected, maximum, most, status))
    return GrowthBounds(get(activation).name, tuple(rows))


@checked
def expected_subvector_norm(
    direction: Annotated[str, ("one-hot", "flat", "sphere")], density: Density, size: Size
) -> float:
    """E||u_S|| for a unit vector u and a random set S that keeps each entry with probability ``density``.

    >>> expected_subvector_norm("one-hot", 0.25, 100), round(expected_subvector_norm("flat", 0.25, 100), 4)
    (0.25, 0.4981)

    ``direction`` is "one-hot" (the density: what the paper's bound, linear in alpha, must allow for), "flat" (all
    entries equal, about its square root) or "sphere" (uniform on the unit sphere), ``size`` the number of entries of u.

    Source: Price-Tanner appendix B; on the sphere the squared norm of n of N entries is Beta(n/2, (N - n)/2).
    """
    if direction == "one-hot":
        return float(density)
    counts, mass = binomial(size, density)
    if direction == "flat":
        return float(mass @ np.sqrt(counts / size))
    return float(mass @ chi_mean(counts) / chi_mean(np.array(float(size))))


def _split(law: Law) -> tuple[float, Law]:
    """Density, and the law of an entry that is kept."""
    return (law.density, law.law) if isinstance(law, Sparse) else (1.0, law)


def _gaussian(law: Law) -> tuple[float, float]:
    """Density and standard deviation of a Gaussian or sparse Gaussian law."""
    density, kept = _split(law)
    if not isinstance(kept, Gaussian):
        raise InputError(f"{law!r} has no exact growth, only Gaussians do; see best_lower_bound and upper_bound.")
    return density, kept.std


def _check_even(law: Law) -> None:
    if not law.even:
        raise InputError(f"{law!r} is not even; the growth bounds need a law that is symmetric about zero.")


def _slopes(activation: str | Activation) -> tuple[float, float]:
    """Slope left and right of zero of an activation that is linear on either side and passes through the origin."""
    if (rule := get(activation)).slopes is None or not rule.homogeneous:
        raise InputError(f"{rule.name!r} has no growth bound; relu, leaky_relu and identity do. See mean_field.chi.")
    return rule.slopes[0], rule.slopes[-1]


def binomial(trials: int, probability: float) -> tuple[Array, Array]:
    """The counts of a binomial law that matter (all but 1e-20 of the mass), and their probabilities, of one shape."""
    if probability == 1.0:
        return np.array([float(trials)]), np.ones(1)
    mean = trials * probability
    margin = 9.5 * math.sqrt(mean * (1 - probability)) + 40.0
    counts = np.arange(max(0, math.floor(mean - margin)), min(trials, math.ceil(mean + margin)) + 1, dtype=np.float64)
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
        """Standard deviation of the growth."""
        # 1 + variance/mean^2 of the product is the product of the layers'; expm1 keeps the digits of a narrow law
        spread = sum(n * math.log(k / 2 / binomial_chi_mean(k, 0.5) ** 2) for k, n in self._layers.items())
        return _exp(self._log_of_mean + (math.log(math.expm1(spread)) if spread < 700 else spread) / 2)

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
        return like(np.where(growths < 0, 0.0, zero + (1 - zero) * self._log_cdf(np.asarray(logs))), x)

    @property
    def support(self) -> tuple[float, float]:
        """The range that holds every growth but 0 and two tails of less than 1e-18 each."""
        start, length, _ = self._series
        return math.exp(start), _exp(start + length)

    def quantile(self, p: Annotated[Number, Within(above=0, below=1)]) -> Number:
        """The growth below which a fraction p, in (0, 1), of the networks lies; 0 for p <= :attr:`zero_probability`."""
        chances, zero = np.asarray(p, dtype=np.float64), self.zero_probability
        wanted = np.clip((chances - zero) / max(1 - zero, np.finfo(np.float64).tiny), 0.0, 1.0)
        start, length, _ = self._series
        low, high = np.full(chances.shape, start), np.full(chances.shape, start + length)
        for _ in range(64):
            middle = np.asarray((low + high) / 2)
            below = self._log_cdf(middle) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return like(np.where(chances <= zero, 0.0, np.exp(high)), p)

    @functools.cached_property
    def _series(self) -> tuple[float, float, NDArray[np.complex128]]:
        """Start and length of the range of the log growth, and the characteristic function at 2 pi n / length."""
        rates = np.geomspace(0.1, max(2.0, 20.0 / self.log_std), 60).tolist()
        right = min(self._reach(rate) for rate in rates)
        left = min(self._reach(-rate) for rate in [0.3, 0.6, 0.9, *rates])
        start, length = self.log_mean - left, left + right
        count = 32
        while True:
            frequencies, values = 2j * math.pi * np.arange(1, count + 1) / length, np.ones(count, dtype=np.complex128)
            for width, times in self._layers.items():
                values *= np.array([np.exp(_log_moment(width, power)) for power in frequencies]) ** times
            values *= np.exp(frequencies * self.log_mean)
            # a whole quarter, so that a zero of the function cannot end the series early
            if np.abs(values[-count // 4 :]).max() < 1e-17 or count >= 1 << 16:
                return start, length, values
            count *= 2

    def _reach(self, rate: float) -> float:
        """How far from its mean the tail of the log growth on the side of ``rate`` is below exp(-42), by Chernoff."""
        total = 42.0  # exp(-42) = 6e-19: what is left out of the range, on either side
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
        turned, found = factors * np.exp(-1j * orders * start), (logs - start).ravel()
        block = max(1, 1_000_000 // len(orders))  # so that many y do not fill the memory
        for first in range(0, found.size, block):
            block_rows = slice(first, first + block)
            found[block_rows] = (np.exp(-1j * np.multiply.outer(found[block_rows], orders)) @ turned).real
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
