"""The exact law of how a ReLU network at initialization changes a norm, through any number of layers (Arpit-Bengio).

The paper bounds the chance that ``||f(x)||^2 / ||x||^2`` leaves an interval. For Gaussian weights the law itself is
known: layer l multiplies the squared norm by ``scale_l (2/n_l) chi2_A`` with A ~ Bin(n_l, 1/2), independently of all
others, where its weights are N(0, 2 scale_l / n_l). He's initialization by fan-out, the paper's, has scale 1.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np

from epoch0.arguments import Count, Inside, Positive, Size, checked
from epoch0.errors import InputError
from epoch0.theory.checks import Number, like
from epoch0.theory.gaussian_growth import GrowthLaw
from epoch0.theory.mean_field.correlations import pieces

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

        ``init`` is "he" (variance 2/fan_out, the paper's), "he_fan_in" (2/fan_in, the usual Kaiming initialization) or
        "glorot" (2/(fan_in + fan_out)).
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
        depth = len(variances)
        if depth < 2 or layer > depth:
            told = f"layer={layer!r} of {depth} cannot be used: it is a layer of the network, from 1"
            raise InputError(f"{told}, and with one layer only the ratio is exactly 1.")
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
        return math.sqrt(self.variance)

    @property
    def zero_probability(self) -> float:
        """Chance that some layer is off altogether, so that the ratio is 0."""
        return self.norm.zero_probability

    def cdf(self, x: Number) -> Number:
        """Probability that the ratio is at most x, to about 1e-13; a number or an array of any shape."""
        ratios = np.asarray(x, dtype=np.float64)
        found = self.norm.cdf(np.where(ratios < 0, -1.0, np.sqrt(np.maximum(ratios, 0.0))))
        return like(found, x)

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
