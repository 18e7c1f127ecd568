"""Growth of a trajectory's length in one layer and over depth: every bound, and the exact law where there is one.

Conventions, the same in all functions here: ``law`` is the law of one entry of the weight matrix as stored, that is
after a division by sqrt(fan_in); it must be even, and Sparse brings the density alpha. ``width`` is the number of rows,
the fan-out, >= 1. ``activation`` is "relu", or one with a slope each left and right of 0: "leaky_relu", "identity",
"abs". All raise InputError for anything else. Growth is the ratio E||dz'|| / ||dz|| for z' = phi(W z + b) with even
biases, zero included. Fan-in enters only the exact maximum of a sparse law. Layers multiply: functions over depth take
one law for all layers or one a layer, and the number of rows of each.

All of it holds for the length of any fixed curve, straight or not, however sparse the weights: the sign of a
pre-activation is a fair coin, independent of the size of its derivative, and ties occur at isolated points only. At
such a point (no bias, and a tangent that leaves the support of z, as at z = e_1, dz = e_2) a single tangent can grow
far less, and even the papers' bound fails.

Price-Tanner section 2 (the lower bound) and THEORY 1.2 (all the rest).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from epoch0.activations import Activation, get
from epoch0.arguments import Density, Size, Std, checked
from epoch0.distributions import Gaussian, Law, Sparse
from epoch0.errors import InputError
from epoch0.results import Result, aligned
from epoch0.theory.gaussian_growth import GrowthLaw, binomial, chi_mean, flat_mean, one_hot_mean

__all__ = ["GrowthBounds", "GrowthLaw", "LayerGrowth", "absolute_moment_constant", "best_lower_bound", "bounds"]
__all__ += ["exact", "expected_subvector_norm", "fourth_moment_lower_bound", "lower_bound"]
__all__ += ["raghu_lower_bound", "raghu_upper_bound", "sparse_maximum", "sparse_minimum", "upper_bound"]

_COLUMNS = ("paper_lower", "lower", "minimum", "exact", "maximum", "upper")
_STATUS = ("exact", "sharp interval", "bounded")


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
        bracket = root / math.sqrt(2 * (width + 1)) - math.ldexp(root, -int(width))
        return max(0.0, weight_std / math.sqrt(2) * bracket)
    total = math.hypot(weight_std, bias_std)
    if total < 1:
        told = f"weight_std={weight_std!r}, bias_std={bias_std!r} are too small for the hard-tanh proof"
        raise InputError(f"{told}, which needs weight_std^2 + bias_std^2 >= 1.")
    kept = weight_std * root / ((2 * math.pi) ** 0.25 * math.sqrt(total * (total * math.sqrt(2 * math.pi) + width - 1)))
    lost = float(weight_std / total * root * (1 - 1 / total) ** (width - 1))
    return max(0.0, float(kept - lost) / math.sqrt(2))


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
    """What is known about the expected growth in one layer, or over all of them.

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
        columns = {name: [getattr(layer, name) for layer in self.layers] for name in _COLUMNS}
        products: dict[str, Any] = {name: None if None in one else math.prod(one) for name, one in columns.items()}
        weakest = max((layer.status for layer in self.layers), key=_STATUS.index)
        return replace(self.layers[-1], layer=0, status=weakest, **products)

    @property
    def status(self) -> str:
        """The weakest of the layers'."""
        return self.over_depth.status

    def to_dict(self) -> dict[str, Any]:
        told = {"activation": self.activation, "depth": len(self.layers), "status": self.status}
        over_depth = {name: getattr(self.over_depth, name) for name in _COLUMNS}
        return {**told, "layers": self.rows(), "over_depth": over_depth}

    def __str__(self) -> str:
        lines = [["layer", "width", *(name.replace("_", " ") for name in _COLUMNS), "status"]]
        names = [(str(row.layer), str(row.width)) for row in self.layers] + [("total", f"{len(self.layers)} deep")]
        for name, row in zip(names, (*self.layers, self.over_depth), strict=True):
            values = [getattr(row, column) for column in _COLUMNS]
            lines.append([*name, *("-" if value is None else _number(value) for value in values), row.status])
        return "\n".join(aligned(lines, numbers=slice(1, -1)))


@checked
def absolute_moment_constant(law: Law) -> float:
    """The constant M of Theorem 2: E|u . w| >= M ||u|| for every vector u, w of independent entries of ``law``.

    >>> round(absolute_moment_constant(e0.Gaussian(1.0)), 6), round(absolute_moment_constant(e0.Uniform(1.0)), 6)
    (0.797885, 0.353553)

    It is std * sqrt(2/pi) for Gaussian entries, where it is sharp, and E|w| / sqrt(2) for all others, by Khintchine's
    inequality; a mask multiplies it by the density.

    Source: Price-Tanner Theorem 2 and the proofs of Corollaries 1-3.
    """
    _check_even(law)
    density, kept = _split(law)
    constant = kept.std * math.sqrt(2 / math.pi) if isinstance(kept, Gaussian) else kept.mean_abs / math.sqrt(2)
    return density * constant


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

    kappa is the excess kurtosis of the law, mask included; ``fourth_power_sum`` is that of the unit direction, in
    (0, 1], or None for the worst direction.

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
    left, right = _slopes(activation)
    return math.sqrt((left**2 + right**2) / 2 * width * law.variance)


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
        told = f"exact: {law!r} is sparse, so growth depends on the direction"
        raise InputError(f"{told}; use sparse_minimum and sparse_maximum.")
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
    fan_in = fan_in or width
    slopes = _slopes(activation)
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
        told = f"{len(laws)} laws for {len(sizes)} widths"
        raise InputError(f"{told}; give one law, or one for each width (one or more).")
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
        told = f"{law!r} has no exact growth, only Gaussian entries do"
        raise InputError(f"{told}; best_lower_bound and upper_bound take any.")
    return density, kept.std


def _check_even(law: Law) -> None:
    if not law.even:
        raise InputError(f"{law!r} is not even; the growth bounds need a law that is symmetric about zero.")


def _slopes(activation: str | Activation) -> tuple[float, float]:
    """Slope left and right of zero of an activation that is linear on either side and passes through the origin."""
    rule = get(activation)
    if rule.slopes is None or not rule.homogeneous:
        told = f"activation {rule.name!r} has no growth bound here; relu, leaky_relu and identity do"
        raise InputError(f"{told}. For the wide limit of any activation see epoch0.theory.mean_field.chi.")
    return rule.slopes[0], rule.slopes[-1]


def _number(value: float) -> str:
    return f"{value:.6f}" if value == 0 or 1e-3 <= value < 1e6 else f"{value:.5e}"
