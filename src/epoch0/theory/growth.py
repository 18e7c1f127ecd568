"""Growth of a trajectory's length in one layer and over depth: every bound, and the exact law where there is one.

Conventions, the same in all functions here: ``law`` is the law of one entry of the weight matrix as stored, that is
after a division by sqrt(fan_in); ``width`` is the number of rows, the fan-out. Growth is the ratio E||dz'|| / ||dz||
for z' = phi(W z + b) with even biases, zero included. Fan-in enters only the exact maximum of a sparse law. Straight
trajectories are as good as curves: the sign of a pre-activation is a fair coin, independent of the size of its
derivative. Layers multiply.

All of it holds for the length of any fixed curve, however sparse the weights: where a pre-activation stays 0 along a
piece its derivative is 0 too, so that ties occur at isolated points only. At such a point (no bias, and a tangent that
leaves the support of z, as at z = e_1, dz = e_2) a single tangent can grow far less, and even the papers' bound fails.

Price-Tanner section 2 (the lower bound) and THEORY 1.2 (all the rest).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from epoch0.activations import Activation, get
from epoch0.distributions import Gaussian, Law, Sparse
from epoch0.errors import InputError
from epoch0.theory.gaussian_growth import check_width, flat_mean, one_hot_mean
from epoch0.theory.growth_bounds import GrowthBounds, LayerGrowth
from epoch0.theory.product_law import GrowthLaw
from epoch0.theory.raghu import raghu_lower_bound, raghu_upper_bound
from epoch0.theory.subvectors import expected_subvector_norm

__all__ = [
    "GrowthBounds",
    "GrowthLaw",
    "LayerGrowth",
    "absolute_moment_constant",
    "best_lower_bound",
    "bounds",
    "exact",
    "expected_subvector_norm",
    "fourth_moment_lower_bound",
    "law_over_depth",
    "lower_bound",
    "over_depth",
    "raghu_lower_bound",
    "raghu_upper_bound",
    "sparse_maximum",
    "sparse_minimum",
    "upper_bound",
]


def absolute_moment_constant(law: Law) -> float:
    """The constant M of Theorem 2: E|u . w| >= M ||u|| for every vector u, w of independent entries of ``law``.

    >>> round(absolute_moment_constant(e0.Gaussian(1.0)), 6), round(absolute_moment_constant(e0.Uniform(1.0)), 6)
    (0.797885, 0.353553)

    It is std * sqrt(2/pi) for Gaussian entries, where it is sharp, and E|w| / sqrt(2) for all others, by Khintchine's
    inequality; a mask multiplies it by the density.

    Args:
        law: an even law.

    Raises:
        InputError: if the law is not even, or has no first moment.

    Source: Price-Tanner Theorem 2 and the proofs of Corollaries 1-3.
    """
    _check_even(law)
    density, kept = _split(law)
    constant = kept.std * math.sqrt(2 / math.pi) if isinstance(kept, Gaussian) else kept.mean_abs / math.sqrt(2)
    return density * constant


def lower_bound(law: Law, width: int, activation: str | Activation = "relu") -> float:
    """Price and Tanner's lower bound: alpha M sqrt(k) / 2.

    >>> law = e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5)
    >>> round(lower_bound(law, 784), 6)
    0.398942

    Args:
        law: law of one entry as stored, even; Sparse brings the density alpha.
        width: number of rows, >= 1.
        activation: "relu", or one with a slope each left and right of 0: the 1/2 becomes their mean absolute value.

    Returns:
        A factor that the expected growth is at least.

    Raises:
        InputError: for a law that is not even, a width below 1, or another activation.

    Source: Price-Tanner Theorem 2 and Corollaries 1-3.
    """
    left, right = _slopes(activation)
    check_width(width)
    return absolute_moment_constant(law) * math.sqrt(width) * (abs(left) + abs(right)) / 2


def fourth_moment_lower_bound(
    law: Law, width: int, fourth_power_sum: float | None = None, activation: str | Activation = "relu"
) -> float:
    """A lower bound of order sqrt(alpha): sqrt(k Var/2) / sqrt(1 + (5 + 2 kappa sum u^4)/k), by Hoelder's inequality.

    >>> law = e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5)
    >>> round(fourth_moment_lower_bound(law, 784), 5)
    0.99306

    Args:
        law: law of one entry as stored, even, with a fourth moment; kappa is its excess kurtosis, mask included.
        width: number of rows, >= 1.
        fourth_power_sum: sum of the fourth powers of the unit direction, in (0, 1]; None for the worst direction.
        activation: "relu", or one with a slope each left and right of 0.

    Returns:
        A factor that the expected growth is at least.

    Raises:
        InputError: for a law that is not even or has no fourth moment, a width below 1, another activation, or a
            fourth_power_sum outside (0, 1].

    Source: THEORY 1.2 (F5); E S^(1/2) >= (E S)^(3/2) / (E S^2)^(1/2) for the squared growth S.
    """
    _check_even(law)
    left, right = _slopes(activation)
    check_width(width)
    if fourth_power_sum is not None and not 0 < fourth_power_sum <= 1:
        raise InputError(f"fourth_power_sum={fourth_power_sum!r} is of no unit vector; it lies in (0, 1].")
    second = (left**2 + right**2) / 2
    if law.variance == 0 or second == 0:
        return 0.0
    kurtosis = law.excess_kurtosis
    shape = max(kurtosis, 0.0) if fourth_power_sum is None else kurtosis * fourth_power_sum
    spread = (3 + shape) * (left**4 + right**4) / 2 / second**2 - 1
    return math.sqrt(width * law.variance * second / (1 + spread / width))


def best_lower_bound(law: Law, width: int, activation: str | Activation = "relu") -> float:
    """The larger of :func:`lower_bound` and :func:`fourth_moment_lower_bound`; the first wins at width 1 and 2.

    >>> best_lower_bound(e0.Gaussian(2**0.5), 1) == lower_bound(e0.Gaussian(2**0.5), 1)
    True

    Args, Raises: as there.

    Source: Price-Tanner Theorem 2; THEORY 1.2.
    """
    return max(lower_bound(law, width, activation), fourth_moment_lower_bound(law, width, activation=activation))


def upper_bound(law: Law, width: int, activation: str | Activation = "relu") -> float:
    """The upper bound that matches: the square root of the exact second moment, sqrt((a^2 + 1)/2 * k * Var).

    >>> round(upper_bound(e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5), 784), 6)
    1.0

    Args:
        law: law of one entry as stored, even; the variance includes the mask.
        width: number of rows, >= 1.
        activation: "relu" (a = 0), "leaky_relu" or "identity" (a = 1).

    Returns:
        A factor that the expected growth is at most, for any direction.

    Raises:
        InputError: for a law that is not even, a width below 1, or another activation.

    Source: THEORY 1.2 (F2), Jensen's inequality.
    """
    _check_even(law)
    left, right = _slopes(activation)
    check_width(width)
    return math.sqrt((left**2 + right**2) / 2 * width * law.variance)


def exact(law: Law, width: int, activation: str | Activation = "relu") -> float:
    """The expected growth of dense Gaussian weights in any direction: std * E chi_A with A ~ Bin(k, 1/2).

    >>> round(exact(e0.Gaussian(2.0).scaled(784**-0.5), 784), 6)
    1.413086

    Args:
        law: Gaussian, the law of one entry as stored.
        width: number of rows, >= 1.
        activation: "relu", or one with a slope each left and right of 0.

    Raises:
        InputError: if the law is not a dense Gaussian, the width is below 1, or for another activation.

    Source: THEORY 1.2 (F3).
    """
    density, std = _gaussian(law)
    if density != 1.0:
        raise InputError(
            f"exact: {law!r} is sparse, so growth depends on the direction; use sparse_minimum and sparse_maximum."
        )
    check_width(width)
    return std * one_hot_mean(width, 1.0, _slopes(activation))


def sparse_minimum(law: Law, width: int, activation: str | Activation = "relu") -> float:
    """The least expected growth of sparse Gaussian weights over all directions; a one-hot direction attains it.

    >>> round(sparse_minimum(e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5), 784), 6)
    0.998244

    Args:
        law: Gaussian, or Sparse over one; the law of one entry as stored.
        width: number of rows, >= 1.
        activation: "relu", or one with a slope each left and right of 0.

    Raises:
        InputError: if the kept entries are not Gaussian, the width is below 1, or for another activation.

    Source: THEORY 1.2 (F4): growth is a symmetric concave function of the squared direction.
    """
    density, std = _gaussian(law)
    check_width(width)
    return std * one_hot_mean(width, density, _slopes(activation))


def sparse_maximum(law: Law, width: int, fan_in: int | None = None, activation: str | Activation = "relu") -> float:
    """The largest expected growth of sparse Gaussian weights over all directions; a flat direction attains it.

    >>> round(sparse_maximum(e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5), 784), 6)
    0.999201

    Args:
        law: Gaussian, or Sparse over one; the law of one entry as stored.
        width: number of rows, >= 1.
        fan_in: number of columns, over which the flat direction spreads; the width if not given.
        activation: "relu", or one with a slope each left and right of 0.

    Raises:
        InputError: if the kept entries are not Gaussian, width or fan_in is below 1, or for another activation.

    Source: THEORY 1.2 (F4).
    """
    density, std = _gaussian(law)
    check_width(width)
    fan_in = width if fan_in is None else fan_in
    check_width(fan_in, "fan_in")
    slopes = _slopes(activation)
    return std * (one_hot_mean(width, 1.0, slopes) if density == 1.0 else flat_mean(width, fan_in, density, slopes))


def over_depth(rule: Callable[[Law, int], float], law: Law | Sequence[Law], widths: int | Sequence[int]) -> float:
    """The product of one rule over all layers: expected growth, and every bound on it, multiplies over depth.

    >>> laws = [e0.Gaussian(2.0).scaled(784**-0.5), e0.Sparse(e0.Uniform(1.0), 0.5)]
    >>> round(over_depth(upper_bound, laws, [784, 12]), 6)
    1.414214

    Args:
        rule: a function of a law and a width, such as :func:`lower_bound`.
        law: law of one entry as stored, for all layers, or a sequence of one law a layer.
        widths: number of rows of each layer, or of the only one.

    Raises:
        InputError: if there is not one law a layer, and whatever the rule refuses.

    Source: Price-Tanner, the remark after Theorem 2; THEORY 1.2 for the rest.
    """
    sizes = _sizes(widths)
    return math.prod(rule(entry, size) for entry, size in zip(_one_each(law, sizes), sizes, strict=True))


def bounds(
    law: Law | Sequence[Law],
    widths: int | Sequence[int],
    activation: str | Activation = "relu",
    fan_in: int | None = None,
) -> GrowthBounds:
    """Everything known about the growth in each layer, and its product over depth.

    >>> table = bounds(e0.Sparse(e0.Gaussian(2.0), 0.5).scaled(784**-0.5), [784] * 10)
    >>> table.status, round(table.rows[0].minimum, 4), round(table.over_depth.maximum, 4)
    ('sharp interval', 0.9982, 0.992)

    Args:
        law: law of one entry as stored, for all layers, or a sequence of one law a layer.
        widths: number of rows of each layer, or of the only one.
        activation: "relu", or one with a slope each left and right of 0.
        fan_in: number of inputs of the first layer; its width if not given.

    Returns:
        GrowthBounds with one row a layer.

    Raises:
        InputError: for a law that is not even, a width below 1, another activation, or not one law a layer.
    """
    sizes = _sizes(widths)
    laws = _one_each(law, sizes)
    rows: list[LayerGrowth] = []
    before = sizes[0] if fan_in is None else fan_in
    check_width(before, "fan_in")
    for layer, (entry, width) in enumerate(zip(laws, sizes, strict=True), start=1):
        density, kept = _split(entry)
        minimum = expected = maximum = None
        status = "bounded"
        if isinstance(kept, Gaussian):
            minimum = sparse_minimum(entry, width, activation)
            maximum = sparse_maximum(entry, width, before, activation)
            expected, status = (minimum, "exact") if density == 1.0 else (None, "sharp interval")
        rows.append(
            LayerGrowth(
                layer=layer,
                width=int(width),
                paper_lower=lower_bound(entry, width, activation),
                lower=best_lower_bound(entry, width, activation),
                minimum=minimum,
                exact=expected,
                maximum=maximum,
                upper=upper_bound(entry, width, activation),
                status=status,
            )
        )
        before = width
    return GrowthBounds(get(activation).name, tuple(rows))


def law_over_depth(law: Law | Sequence[Law], widths: int | Sequence[int]) -> GrowthLaw:
    """The exact law of the growth of a tangent through dense Gaussian ReLU layers.

    >>> law = law_over_depth(e0.Gaussian(2.0).scaled(100**-0.5), [100] * 10)
    >>> round(law.mean, 3), round(law.log_std, 3)
    (30.05, 0.36)

    Args:
        law: Gaussian law of one entry as stored, for all layers, or a sequence of one law a layer.
        widths: number of rows of each layer, or of the only one.

    Raises:
        InputError: if a law is not a dense Gaussian of positive std, a width is below 1, or not one law a layer.

    Source: THEORY 1.2 (F3).
    """
    sizes = _sizes(widths)
    stds = []
    for entry in _one_each(law, sizes):
        density, std = _gaussian(entry)
        if density != 1.0:
            raise InputError(f"law_over_depth: {entry!r} is sparse; only the law of dense Gaussian weights is known.")
        stds.append(std)
    return GrowthLaw(tuple(int(size) for size in sizes), tuple(stds))


def _sizes(widths: int | Sequence[int]) -> list[int]:
    return [widths] if isinstance(widths, int | np.integer) else list(widths)


def _one_each(law: Law | Sequence[Law], sizes: Sequence[int]) -> list[Law]:
    laws = [law] * len(sizes) if isinstance(law, Law) else list(law)
    if not sizes or len(laws) != len(sizes):
        raise InputError(
            f"{len(laws)} laws for {len(sizes)} widths; give one law, or one for each width (one or more)."
        )
    for size in sizes:
        check_width(size)
    return laws


def _split(law: Law) -> tuple[float, Law]:
    """Density, and the law of an entry that is kept."""
    return (law.density, law.law) if isinstance(law, Sparse) else (1.0, law)


def _gaussian(law: Law) -> tuple[float, float]:
    """Density and standard deviation of a Gaussian or sparse Gaussian law."""
    density, kept = _split(law)
    if not isinstance(kept, Gaussian):
        raise InputError(
            f"{law!r} has no exact growth, only Gaussian entries do; best_lower_bound and upper_bound take any."
        )
    return density, kept.std


def _check_even(law: Law) -> None:
    if not law.even:
        raise InputError(f"{law!r} is not even; the growth bounds need a law that is symmetric about zero.")


def _slopes(activation: str | Activation) -> tuple[float, float]:
    """Slope left and right of zero of an activation that is linear on either side and passes through the origin."""
    rule = get(activation)
    if rule.slopes is None or not rule.homogeneous:
        raise InputError(
            f"activation {rule.name!r} has no growth bound here; relu, leaky_relu and identity do. For the wide limit "
            "of any activation see epoch0.theory.mean_field.chi."
        )
    return rule.slopes[0], rule.slopes[-1]
