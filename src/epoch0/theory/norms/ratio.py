"""The exact law of how a ReLU network at initialization changes a norm, through any number of layers (Arpit-Bengio).

The paper bounds the chance that ``||f(x)||^2 / ||x||^2`` leaves an interval. For Gaussian weights the law itself is
known: layer l multiplies the squared norm by ``scale_l (2/n_l) chi2_A`` with A ~ Bin(n_l, 1/2), independently of all
others, where its weights are N(0, 2 scale_l / n_l). He's initialization by fan-out, the paper's, has scale 1.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError
from epoch0.theory.gaussian_growth import check_width
from epoch0.theory.norms.checks import check_count
from epoch0.theory.norms.distortion import distortion_quantile, mean_distortion
from epoch0.theory.norms.scales import forward_scales, gradient_scales
from epoch0.theory.product_law import GrowthLaw

Array = NDArray[np.float64]

# The quantiles of the law are accurate to about 1e-13 in probability.
_RAREST = 1e-11


@dataclass(frozen=True)
class NormRatio:
    """Law of ``||h_L||^2 / ||x||^2`` for one input x of a ReLU network of L layers with Gaussian weights and no biases.

    >>> law = NormRatio((100,) * 10)                             # ten layers of width 100, weights N(0, 2/100)
    >>> law.mean, round(law.variance, 6), round(law.quantile(0.5), 4)
    (1.0, 0.628895, 0.784)
    >>> low, high = law.interval(0.95)                           # 95 % of networks have a ratio between these
    >>> round(low, 4), round(high, 4)
    (0.1831, 3.0874)

    Attributes:
        widths: number of units of each layer.
        scales: variance of the weights of each layer over He's 2/n, > 0; ones if not given.

    Source: THEORY 2, the exact law.
    """

    widths: tuple[int, ...]
    scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.widths:
            raise InputError("widths holds no layer; give the number of units of one layer or more.")
        for width in self.widths:
            check_width(width)
        if not self.scales:
            object.__setattr__(self, "scales", (1.0,) * len(self.widths))
        if len(self.scales) != len(self.widths):
            raise InputError(f"{len(self.widths)} widths and {len(self.scales)} scales; give one of each for a layer.")
        if not all(scale > 0 and math.isfinite(scale) for scale in self.scales):
            raise InputError(f"scales={self.scales!r} cannot be used; each layer needs a finite scale > 0.")

    @classmethod
    def forward(cls, sizes: Sequence[int], init: str = "he") -> "NormRatio":
        """Law of the activations' ratio ``||h_L||^2 / ||x||^2`` of a network of given sizes.

        >>> NormRatio.forward([500, 100, 100], init="glorot").mean      # scales 100/600 and 100/200
        0.0833...

        Args:
            sizes: number of inputs, then of units of every layer.
            init: "he" (variance 2/fan_out, the paper's), "he_fan_in" (2/fan_in, the usual Kaiming initialization)
                or "glorot" (2/(fan_in + fan_out)).

        Raises:
            InputError: for fewer than two sizes, a size below 1 or an unknown init.
        """
        return cls(tuple(int(size) for size in sizes[1:]), forward_scales(sizes, init))

    @classmethod
    def gradient(cls, sizes: Sequence[int], layer: int, init: str = "he") -> "NormRatio":
        """Law of ``||dl/dW^layer||^2 / (||delta||^2 ||x||^2)``, delta = dl/da^L at the last pre-activation.

        >>> NormRatio.gradient([500, 100, 200, 300], layer=1).mean      # 100/300: the widths' ratio
        0.333...

        The gradient's norm is that of the activations below times that of what comes back from above, so that the
        layers below give their forward factor and the others the one of the backward pass: L - 1 independent factors.
        It takes the paper's assumption that what comes back is independent of the weights that it passes.

        Args:
            sizes: number of inputs, then of units of every layer; delta has the size of the last.
            layer: 1 for the first, up to L.
            init: as in :meth:`forward`.

        Raises:
            InputError: for fewer than three sizes (with one layer the ratio is 1), a size below 1, a layer that is
                not there or an unknown init.

        Source: Arpit-Bengio equations (19) and (20), Lemma 5.
        """
        return cls(tuple(int(size) for size in sizes[1:-1]), gradient_scales(sizes, layer, init))

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

    @overload
    def cdf(self, x: float) -> float: ...
    @overload
    def cdf(self, x: Array) -> Array: ...
    def cdf(self, x: float | Array) -> float | Array:
        """Probability that the ratio is at most x.

        Args:
            x: ratios of squared norms, a number or an array of any shape.

        Returns:
            A float, or an array of the shape of x; accurate to about 1e-13.
        """
        ratios = np.asarray(x, dtype=np.float64)
        found = self.norm.cdf(np.where(ratios < 0, -1.0, np.sqrt(np.maximum(ratios, 0.0))))
        return float(found) if ratios.ndim == 0 else found

    @overload
    def pdf(self, x: float) -> float: ...
    @overload
    def pdf(self, x: Array) -> Array: ...
    def pdf(self, x: float | Array) -> float | Array:
        """Density of the ratio at x > 0; the chance of exactly 0 is :attr:`zero_probability` and not part of it.

        Args:
            x: ratios of squared norms, a number or an array of any shape; 0 is returned at x <= 0.

        Returns:
            A float, or an array of the shape of x; x times it is accurate to about 1e-13.
        """
        ratios = np.asarray(x, dtype=np.float64)
        roots = np.sqrt(np.maximum(ratios, 0.0))
        found = np.asarray(self.norm.pdf(roots)) / np.where(roots > 0, 2 * roots, 1.0)
        return float(found) if ratios.ndim == 0 else found

    @overload
    def quantile(self, p: float) -> float: ...
    @overload
    def quantile(self, p: Array) -> Array: ...
    def quantile(self, p: float | Array) -> float | Array:
        """The ratio below which a fraction p of the networks lies; 0 where p is at most :attr:`zero_probability`.

        Args:
            p: probabilities in (0, 1), a number or an array of any shape.

        Returns:
            A float, or an array of the shape of p.

        Raises:
            InputError: if a probability is outside (0, 1).
        """
        roots = self.norm.quantile(p)
        return roots**2

    def interval(self, level: float = 0.95, samples: int = 1) -> tuple[float, float]:
        """The range that holds the ratios of all samples of a network with probability ``level``, or more.

        Each tail has probability (1 - level)/2 for one sample. Samples share the weights, so that for several the
        tails are divided by their number (a union bound: right for any inputs, however alike).

        Args:
            level: probability, in (0, 1).
            samples: number of inputs, >= 1.

        Returns:
            The lower and the upper end.

        Raises:
            InputError: for a level outside (0, 1), samples below 1, or a tail below 1e-11.
        """
        if not 0 < level < 1:
            raise InputError(f"level={level!r} is no probability; it lies strictly between 0 and 1, such as 0.95.")
        check_count("samples", samples)
        rest = (1 - level) / (2 * samples)
        if rest < _RAREST:
            raise InputError(
                f"level={level!r} for samples={samples!r} leaves {rest:.1e} for a tail; the law is computed down to "
                f"{_RAREST:g}, so use a lower level or fewer samples."
            )
        ends = self.quantile(np.array([rest, 1 - rest]))
        return float(ends[0]), float(ends[1])

    @property
    def mean_distortion(self) -> float:
        """Expected ``|1 - ||h_L|| / ||x|| |``, of the norms and not of their squares (equation 25)."""
        return mean_distortion(self.norm)

    def distortion_quantile(self, p: float) -> float:
        """The distortion ``|1 - ||h_L|| / ||x|| |`` of the norms that a fraction p of the networks stays below.

        Args:
            p: in (0, 1).

        Raises:
            InputError: for a p outside (0, 1).
        """
        return distortion_quantile(self.norm, p)

    def sample(self, n: int, seed: int = 0) -> Array:
        """Independent ratios, one a network.

        Args:
            n: how many, >= 0.
            seed: names the stream, >= 0.

        Returns:
            Array of shape (n,).
        """
        return np.asarray(self.norm.sample(n, seed) ** 2)
