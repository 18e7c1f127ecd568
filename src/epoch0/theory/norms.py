"""Norms at initialization: how wide a ReLU network must be to keep them, and their exact law (Arpit-Bengio).

>>> from epoch0.theory import norms
>>> norms.required_width(eps=0.1, delta=0.05), norms.required_width(eps=0.1, delta=0.05, method="paper")
(1919, 4152)

Arguments have one meaning in all functions: ``eps`` is the allowed relative change of the squared norm in a layer and
``delta`` the allowed probability of failure, both in (0, 1); ``samples`` and ``layers`` are numbers of inputs and of
layers, >= 1. ``method`` is "paper" (the bound of its theorems), "chernoff" (the same argument with the best parameter
for each tail) or "exact" (the exact law of a layer). ``direction`` is "forward" (activations; one step back has the
same number, Lemma 5) or "gradient" (both passes: twice as likely to fail; takes the paper's assumption that what comes
back is independent of the weights, and layers of nearly one width). All raise InputError for anything else.

Weights N(0, 2/fan_out), biases zero (Arpit-Bengio section 3). Failure means that in some layer, for some sample, the
squared norm changes by more than a factor 1 +- eps; else after L layers it has changed by (1 - eps)^L to (1 + eps)^L.

Layer l multiplies the squared norm by ``scale_l (2/n_l) chi2_A`` with A ~ Bin(n_l, 1/2), independently of all others,
where its weights are N(0, 2 scale_l / n_l); the paper's have scale 1. docs/norms.md says how the methods are computed.
"""

import bisect
import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import special
from epoch0.arguments import Count, Inside, Positive, Size, checked
from epoch0.errors import InputError
from epoch0.results import Result, aligned, counted
from epoch0.theory.checks import Number, like
from epoch0.theory.growth import GrowthLaw
from epoch0.theory.mean_field.correlations import pieces

__all__ = ["NormRatio", "NormSummary", "chernoff_rate", "failure_probability", "paper_rate", "required_width"]
__all__ += ["required_width_subspace", "summary", "tolerance"]

METHODS = ("paper", "chernoff", "exact")
Method = Annotated[str, METHODS]
Direction = Annotated[str, ("forward", "gradient")]

# exp(-745) is the smallest float
_SMALLEST = 745.0
# An atom at zero has no decaying transform; below exp(-46) = 1e-20 of the tilted law it cannot be seen.
_NO_ATOM = 46.0
# Step of the trapezoidal rule in standard deviations: its error is below exp(-2 pi / 0.15) = 6e-19.
_STEP = 0.15


@checked
def paper_rate(eps: Inside) -> float:
    """Exponent c of the paper's bound: a layer of width m fails with probability at most 2 exp(-m c).

    >>> round(paper_rate(0.1), 7)                                         # eps/4 + log(2 / (1 + sqrt(1 + eps)))
    0.0008886

    Source: Arpit-Bengio Lemma 2 (activations) and Lemma 5 (gradients); about 3 eps^2 / 32.
    """
    # written so that a small eps keeps its digits: sqrt(1 + eps) - 1 = eps / (1 + sqrt(1 + eps))
    return eps / 4 - math.log1p(eps / (2 * (1 + math.sqrt(1 + eps))))


@checked
def chernoff_rate(eps: Inside, tail: Annotated[str, ("upper", "lower")] = "upper") -> float:
    """Best exponent c that Chernoff's method can give: the tail of a layer of width m is at most exp(-m c).

    >>> round(chernoff_rate(0.1), 7), round(chernoff_rate(0.1, "lower"), 7)
    (0.0009451, 0.001063)

    By Cramer's theorem the largest one; about eps^2 / 10. ``tail``: "upper" (>= 1 + eps) or "lower" (<= 1 - eps).

    Source: THEORY 2, "Chernoff with lambda optimised", solved in closed form.
    """
    excess = eps if tail == "upper" else -eps
    return _rate(excess, saddle(excess))


@checked
def failure_probability(
    eps: Inside,
    widths: Count | Sequence[Count],
    samples: Count = 1,
    method: Method = "exact",
    direction: Direction = "forward",
    layers: Count = 1,
) -> float:
    """Probability, or a bound on it, that some layer changes some sample's squared norm by more than eps.

    >>> round(failure_probability(0.1, 1919), 5)                          # one layer, one sample, exact
    0.04997
    >>> round(failure_probability(0.1, [2000] * 10, samples=5), 3)        # ten layers, five samples
    1.0

    For one sample it is 1 - prod(1 - p_l) over the layers; samples share the weights, and their chances are added, so
    that the exact method's is a bound too, but for one sample, forward. ``widths`` is the number of units of each
    layer, or one width for all ``layers``.

    Source: Arpit-Bengio Theorem 1 (forward), Theorem 3 (gradient); THEORY 2 for the exact law.
    """
    sizes = Counter({widths: layers}) if isinstance(widths, int) else Counter(widths)  # how many layers have each
    if not sizes:
        raise InputError("widths holds no layer; give the number of units of one layer or more.")
    if not isinstance(widths, int) and layers not in (1, len(widths)):
        raise InputError(f"{len(widths)} widths and layers={layers}; give layers only with one width for all of them.")
    if method == "exact":
        chances = [(layer_failure(size, eps), times) for size, times in sizes.items()]
        certain = any(chance == 1.0 for chance, _ in chances)
        one = 1.0 if certain else -math.expm1(math.fsum(times * math.log1p(-chance) for chance, times in chances))
    else:
        rates = [paper_rate(eps)] * 2 if method == "paper" else [chernoff_rate(eps, t) for t in ("upper", "lower")]
        one = math.fsum(times * math.exp(-size * rate) for size, times in sizes.items() for rate in rates)
    return min(1.0, samples * one * (1 if direction == "forward" else 2))


@checked
def required_width(
    eps: Inside,
    delta: Inside,
    samples: Count = 1,
    layers: Count = 1,
    method: Method = "exact",
    direction: Direction = "forward",
) -> int:
    """The least width, the same for all layers, at which norms are kept within eps with probability 1 - delta.

    >>> [required_width(0.1, 0.05, method=method) for method in ("paper", "chernoff", "exact")]
    [4152, 3698, 1919]

    The failure probability falls as the width grows (the exact one by computation, for every width up to 2,500).

    Source: Arpit-Bengio Theorems 1 and 3 solved for the width; THEORY 2, the table.
    """

    def enough(width: int) -> bool:
        return failure_probability(eps, width, samples, method, direction, layers) <= delta

    width = 1
    while not enough(width):
        width *= 2
    return bisect.bisect_left(range(width), True, lo=width // 2 + 1, key=enough)


@checked
def tolerance(
    width: Count,
    delta: Inside,
    samples: Count = 1,
    layers: Count = 1,
    method: Method = "exact",
    direction: Direction = "forward",
) -> float:
    """The least eps that a width keeps with probability 1 - delta, correct to rounding and on the safe side of it.

    >>> [round(tolerance(500, 0.05, method=method), 4) for method in ("paper", "chernoff", "exact")]
    [0.3026, 0.2741, 0.1956]

    An InputError also if no eps below 1 is kept; the message names the width that it takes.

    Source: Arpit-Bengio section 4.2, the predicted curve of Figure 2.
    """

    def failure(eps: float) -> float:
        return failure_probability(eps, width, samples, method, direction, layers)

    low, high = 0.0, math.nextafter(1.0, 0.0)
    if failure(high) > delta:
        text = f"width={width} keeps no tolerance below 1 with probability 1 - delta = {1 - delta:g}"
        needed = required_width(high, delta, samples, layers, method, direction)
        raise InputError(f"{text} ({method}, {samples=}, {layers=}); it takes a width of at least {needed}.")
    while True:
        middle = (low + high) / 2
        if middle in (low, high) or high - low < 1e-15 * high:
            return high
        low, high = (low, middle) if failure(middle) <= delta else (middle, high)


@checked
def required_width_subspace(eps: Inside, delta: Inside, dimension: Count, layers: Count = 1) -> int:
    """The width at which one layer keeps the norm of **every** input of a subspace at once (Theorem 2, one layer).

    >>> required_width_subspace(0.2, 0.05, dimension=1)
    19368

    ``eps`` is of the norm itself (not of its square), ``dimension`` d that of the subspace. More layers are refused.

    Source: Arpit-Bengio Lemma 3, which is Theorem 2 with one layer.
    """
    if layers > 1:
        text = f"layers={layers}: the bound over a subspace is proved for one layer only. The proof of Theorem 2 takes "
        text += "the outputs of a ReLU layer to lie in a subspace of the inputs' dimension again; they do not "
        text += "(inputs of 2 dimensions leave a layer of 400 units with rank above 300)"
        raise InputError(f"{text}. Use layers=1, or required_width with a finite number of samples.")
    return math.ceil(subspace_width(eps, delta, dimension, layers))


def subspace_width(eps: float, delta: float, dimension: int, layers: int) -> float:
    """Equation (11) as printed, for any number of layers."""
    spacing, third = min(eps / (3 * math.sqrt(dimension)), math.sqrt(eps) / (math.sqrt(3) * dimension)), eps / 3
    rate = eps / 12 - math.log1p(third / (2 * (1 + math.sqrt(1 + third))))
    return (dimension * math.log(2 / spacing) + math.log(4 * layers / delta)) / rate


@dataclass(frozen=True)
class NormSummary(Result):
    """The least width by each method.

    >>> print(summary(eps=0.1, delta=0.05, layers=10))
    Width for 10 ReLU layers to keep the squared norm of 1 input within a factor 1 ± 0.1 in each,
    with probability at least 0.95 (forward):
    method    width  to exact  failure
    paper      6743      1.72   0.0500
    chernoff   6029      1.53   0.0500
    exact      3928      1.00   0.0500

    ``widths`` and ``failures`` are by method: the least width, and the failure probability there, just below delta.
    """

    eps: float
    delta: float
    samples: int
    layers: int
    direction: str
    widths: dict[str, int]
    failures: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        return [{"method": m, "width": width, "failure": self.failures[m]} for m, width in self.widths.items()]

    def __str__(self) -> str:
        cells, least = [["method", "width", "to exact", "failure"]], self.widths["exact"]
        cells += [[m, str(n), f"{n / least:.2f}", f"{self.failures[m]:.4f}"] for m, n in self.widths.items()]
        layers, inputs = counted(self.layers, "ReLU layer"), counted(self.samples, "input")
        head = f"Width for {layers} to keep the squared norm of {inputs} within a factor 1 ± {self.eps:g} in each,"
        likely = f"with probability at least {1 - self.delta:g} ({self.direction}):"
        return "\n".join([head, likely, *aligned(cells, numbers=slice(1, None))])


@checked
def summary(
    eps: Inside, delta: Inside, samples: Count = 1, layers: Count = 1, direction: Direction = "forward"
) -> NormSummary:
    """The least width by the paper, by the best Chernoff bound and by the exact law, side by side.

    >>> summary(eps=0.1, delta=0.05).widths
    {'paper': 4152, 'chernoff': 3698, 'exact': 1919}
    """
    widths = {method: required_width(eps, delta, samples, layers, method, direction) for method in METHODS}
    failures = {m: failure_probability(eps, width, samples, m, direction, layers) for m, width in widths.items()}
    return NormSummary(eps, delta, samples, layers, direction, widths, failures)


def saddle(excess: float) -> float:
    """Best lambda for the tail beyond the ratio t = 1 + excess, as u = s - 1: the root of 2 (1 + u)^3 = t (2 + u)."""
    # Newton from the right of the only root above -1, where the cubic is convex: it comes down without a detour. In u
    # and not in s, so that a small excess keeps its digits.
    u = 2 * excess / 5 if excess > 0 else 0.0
    for _ in range(100):
        step = (((2 * u + 6) * u + 5 - excess) * u - 2 * excess) / ((6 * u + 12) * u + 5 - excess)
        u -= step
        if abs(step) <= 1e-16 * abs(u):
            break
    return u


def _rate(excess: float, u: float) -> float:
    """Chernoff's exponent at the ratio 1 + excess for the lambda of ``u``."""
    return (1 + excess) / 4 * u * (2 + u) / (1 + u) ** 2 - math.log1p(u / 2)


def layer_failure(width: int, eps: float) -> float:
    """P(the ratio is outside [1 - eps, 1 + eps]) of one layer; a layer that is all off counts."""
    return min(1.0, tail(width, eps) + tail(width, -eps))


def tail(width: int, excess: float) -> float:
    """P(ratio > 1 + excess) for an excess in (0, 1), P(ratio < 1 + excess) for one in (-1, 0)."""
    u = saddle(excess)
    if width * _rate(excess, u) > _SMALLEST:
        return 0.0
    # the atom has weight 2^-m in the law and (1 + s)^-m in the one that is tilted to the saddle point
    if width * math.log1p(1 + u) > _NO_ATOM and width > 256:
        return _by_contour(width, excess, u)
    return _by_sum(width, excess)


def _by_sum(width: int, excess: float) -> float:
    """The mixture of chi-square tails, term by term."""
    on = np.arange(width + 1.0)
    logs = -special.gammaln(on + 1) - special.gammaln(width - on + 1)
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    return float(mass @ (special.gammaincc if excess > 0 else special.gammainc)(on / 2, width * (1 + excess) / 4))


def _by_contour(width: int, excess: float, u: float) -> float:
    """``1/(2 pi i) int exp(m (K(z) - z t/2)) / z dz`` along a vertical line, K(z) = log((1 + (1 - 2z)^(-1/2)) / 2)."""
    s = 1 + u
    spread = 1 / math.sqrt(width * s**5 * (3 + 2 * s) / (1 + s) ** 2)  # of the integrand along the line
    centre = u * (2 + u) / (2 * s**2)
    # the pole at 0 stays a standard deviation away from the line; where that moves it the tail is not small
    centre = math.copysign(max(abs(centre), spread), excess)

    def exponent(z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        root = np.sqrt(1 - 2 * z)
        half = z / (root * (1 + root))  # (s - 1) / 2, and then log(1 + it), keeping the digits of a small z
        real = np.log1p(2 * half.real + half.real**2 + half.imag**2) / 2
        return np.asarray(width * (real + 1j * np.arctan2(half.imag, 1 + half.real) - z * (1 + excess) / 2))

    points = 80
    while True:
        z = np.asarray(centre + 1j * spread * _STEP * np.arange(points), dtype=np.complex128)
        if (values := exponent(z))[-1].real < values[0].real - 40:
            break
        points *= 2
    terms = (np.exp(values - values[0].real) / z).real
    total = float(terms.sum() - terms[0] / 2)  # the other half of the line is the complex conjugate
    return abs(total) * _STEP * spread / math.pi * math.exp(values[0].real)


# Variance of a weight by (fan_in, fan_out); the paper's is "he".
_VARIANCE = {
    "he": lambda fan_in, fan_out: 2 / fan_out,
    "he_fan_in": lambda fan_in, fan_out: 2 / fan_in,
    "glorot": lambda fan_in, fan_out: 2 / (fan_in + fan_out),
}
Init = Annotated[str, tuple(_VARIANCE)]


@checked
@dataclass(frozen=True)
class NormRatio:
    """Law of ``||h_L||^2 / ||x||^2`` for one input x of a ReLU network of L layers with Gaussian weights and no biases.

    >>> law = NormRatio((100,) * 10)                             # ten layers of width 100, weights N(0, 2/100)
    >>> law.mean, round(law.variance, 6), round(law.quantile(0.5), 4)
    (1.0, 0.628895, 0.784)
    >>> low, high = law.interval(0.95)                           # 95 % of networks have a ratio between these
    >>> round(low, 4), round(high, 4)
    (0.1831, 3.0874)

    ``scales`` are the variances of each layer's weights over He's 2/n, > 0; ones if not given.

    Source: THEORY 2, the exact law.
    """

    widths: tuple[Size, ...]
    scales: tuple[Positive, ...] = ()

    def __post_init__(self) -> None:
        if not self.widths:
            raise InputError("widths holds no layer; give the number of units of one layer or more.")
        if not self.scales:
            object.__setattr__(self, "scales", (1.0,) * len(self.widths))
        elif len(self.scales) != len(self.widths):
            raise InputError(f"{len(self.widths)} widths and {len(self.scales)} scales; give one of each for a layer.")

    @classmethod
    @checked
    def forward(cls, sizes: Sequence[Size], init: Init = "he") -> "NormRatio":
        """Law of the activations' ratio ``||h_L||^2 / ||x||^2`` of a network of given sizes: of inputs, of each layer.

        >>> NormRatio.forward([500, 100, 100], init="glorot").mean      # scales 100/600 and 100/200
        0.0833...

        ``init`` is "he" (variance 2/fan_out, the paper's), "he_fan_in" (2/fan_in, Kaiming) or "glorot" (2/(fan_in +
        fan_out)).
        """
        return cls._of(sizes[1:], _variances(sizes, init))

    @classmethod
    @checked
    def gradient(cls, sizes: Sequence[Size], layer: Count, init: Init = "he") -> "NormRatio":
        """Law of ``||dl/dW^layer||^2 / (||delta||^2 ||x||^2)``, delta = dl/da^L at the last pre-activation.

        >>> NormRatio.gradient([500, 100, 200, 300], layer=1).mean      # 100/300: the widths' ratio
        0.333...

        It is the norm of the activations below times that of what comes back from above: L - 1 independent factors,
        with the paper's assumption that what comes back is independent of the weights that it passes. Sizes, three or
        more, and ``init`` are as in :meth:`forward`; delta has the size of the last, and layers count from 1.

        Source: Arpit-Bengio equations (19) and (20), Lemma 5.
        """
        variances = _variances(sizes, init)
        if (depth := len(variances)) < 2 or layer > depth:
            raise InputError(f"layer={layer!r} of {depth}: give 1 to {depth}; of a single one the ratio is exactly 1.")
        # unit i of layer l is scaled by its row of W^l going forward, by its column of W^(l+1) coming back
        return cls._of(sizes[1:-1], [variances[at] if at + 1 < layer else variances[at + 1] for at in range(depth - 1)])

    @classmethod
    def _of(cls, widths: Sequence[int], variances: Sequence[float]) -> "NormRatio":
        return cls(tuple(int(n) for n in widths), tuple(n * one / 2 for n, one in zip(widths, variances, strict=True)))

    @functools.cached_property
    def norm(self) -> GrowthLaw:
        """Law of the ratio of the norms themselves, the square root."""
        stds = tuple(math.sqrt(2 * scale / n) for n, scale in zip(self.widths, self.scales, strict=True))
        return GrowthLaw(self.widths, stds)

    @property
    def mean(self) -> float:
        """Expected ratio: the product of the scales, exactly."""
        return math.prod(self.scales)

    @property
    def variance(self) -> float:
        """Variance of the ratio: mean^2 (prod (1 + 5/n_l) - 1)."""
        spread = math.fsum(math.log1p(5 / n) for n in self.widths)
        return self.mean**2 * math.expm1(spread) if spread < 709 else math.inf

    @property
    def std(self) -> float:
        """Standard deviation of the ratio."""
        return math.sqrt(self.variance)

    @property
    def zero_probability(self) -> float:
        """Chance that some layer is off altogether, so that the ratio is 0."""
        return self.norm.zero_probability

    def cdf(self, x: Number) -> Number:
        """Probability that the ratio is at most x, to about 1e-13; a number or an array of any shape."""
        ratios = np.asarray(x, dtype=np.float64)
        return like(self.norm.cdf(np.where(ratios < 0, -1.0, np.sqrt(np.maximum(ratios, 0.0)))), x)

    def quantile(self, p: Number) -> Number:
        """The ratio below which a fraction p, in (0, 1), of the networks lies; 0 for p <= :attr:`zero_probability`."""
        return like(np.asarray(self.norm.quantile(p)) ** 2, p)

    @checked
    def interval(self, level: Inside = 0.95) -> tuple[float, float]:
        """The range that holds the ratio with probability ``level``, with tails of one probability."""
        ends = self.quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
        return float(ends[0]), float(ends[1])

    @property
    def mean_distortion(self) -> float:
        """Expected distortion ``|1 - ||h_L|| / ||x|| |``, of the norms and not of their squares (equation 25)."""
        law = self.norm
        low, high = law.support
        # E|1 - g| = E g - 1 + 2 E max(1 - g, 0), and the last is the integral of the distribution function up to 1
        if low >= 1:
            return law.mean - 1 + 2 * law.zero_probability
        top = min(high, 1.0)
        # in the logarithm the law is smooth and its width known; pieces of a standard deviation, 16 points each
        ends = np.linspace(math.log(low), math.log(top), 2 + math.ceil(math.log(top / low) / law.log_std))
        logs, weights = pieces(ends, 16)
        points = np.exp(logs)
        inside = float(np.sum(weights * points * law.cdf(points)))
        return law.mean - 1 + 2 * (law.zero_probability * low + inside + (1 - top))


def _variances(sizes: Sequence[int], init: str) -> list[float]:
    if len(sizes) < 2:
        raise InputError(f"sizes={list(sizes)!r} holds no layer; give the number of inputs and of units of each layer.")
    return [_VARIANCE[init](fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]
