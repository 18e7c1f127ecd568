"""Critical sparsity by the bounds of the paper, printed and corrected, and limits (Hayou 2021, Theorem 1, Prop. 4)."""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from epoch0 import special
from epoch0.arguments import Count, Inside, Size, Sparsity, Variance, Within, checked
from epoch0.errors import InputError
from epoch0.theory.checks import Array, of_layers
from epoch0.theory.mean_field.correlations import pieces
from epoch0.theory.pruning.prediction import Layers, PredictedDensity, entry_tail, predict, score_law


@checked
def ordered_bound(chi: Inside, depth: Size, width: Size, *, paper: bool = False) -> float:
    """Upper bound on the expected critical sparsity of SNIP in the ordered phase, without its error term.

    >>> kappa = math.exp(-8 * 0.2)                                            # chi at kappa = 0.2
    >>> round(ordered_bound(kappa, 100, 100), 3), round(ordered_bound(kappa, 100, 100, paper=True), 3)
    (0.62, 0.275)

    It is (1 + log(kappa L N^2) / kappa) / L with kappa = abs(log chi) / 8; above 1 it says nothing, and it is infinite
    where kappa L N^2 is below 1, as the proof does not hold there. The error term, O(1/(kappa^2 sqrt(L N^2))), has no
    stated constant. The proof needs the natural logarithm; the paper's example, "27 % at kappa = 0.2", is the formula
    with log base 10, which ``paper`` takes. It holds for bias_std > 0 only, and lies about eight times above what is
    measured (docs/pruning); :func:`predicted_density` comes within 5 %. ``depth`` is L, ``width`` N.

    Source: Hayou et al. 2021, Theorem 1.
    """
    kappa = abs(math.log(chi)) / 8
    inside = kappa * depth * width**2
    logarithm = math.log10(inside) if paper else math.log(inside)
    return (1 + logarithm / kappa) / depth if inside >= 1 else math.inf


@checked
def magnitude_bound(gamma: Annotated[float, Within(above=1)], weights: Count, *, paper: bool = False) -> float:
    """Upper bound on the critical sparsity of magnitude pruning where one layer of many has smaller weights.

    >>> [round(magnitude_bound(g, 10_000), 3) for g in (2, 5, 10)]
    [0.996, 0.935, 0.812]
    >>> [round(magnitude_bound(g, 10_000, paper=True), 3) for g in (2, 5, 10)]
    [0.961, 0.598, 0.327]

    The layers' standard deviations differ by the square root of the paper's gamma; the proposition has gamma in that
    place, and Table 7 neither (docs/pruning). ``gamma`` is the variance of the other layers' weights over that of the
    weakest layer's, > 1, ``weights`` the number of weights of that layer (zeta N^2); ``paper`` takes gamma as the ratio
    of standard deviations, as printed.

    Source: Hayou et al. 2021, appendix E, Proposition 4.
    """
    from scipy.optimize import minimize_scalar

    about = (gamma if paper else math.sqrt(gamma), weights)
    depths = np.linspace(1e-6, 12.0, 4001)
    start = int(np.argmin(_bound_at(depths, *about)))
    ends = (depths[max(start - 1, 0)], depths[min(start + 1, len(depths) - 1)])
    return float(minimize_scalar(_bound_at, args=about, bounds=ends, method="bounded", options={"xatol": 1e-12}).fun)


@checked
def magnitude_limit(gamma: Annotated[float, Within(above=1)], weights: Count) -> float:
    """Expected critical sparsity of magnitude pruning when one layer is weaker than infinitely many others.

    >>> [round(magnitude_limit(g, 10_000), 3) for g in (2, 5, 10)]
    [0.995, 0.925, 0.794]

    The threshold at sparsity x is the x-quantile of the other layers' weights, and the weak layer stays while one of
    its M weights exceeds it: the integral of 1 - (1 - P(abs(Z) > r Q_x))^M over x, here over the quantile itself.

    Arguments as for :func:`magnitude_bound`.

    Source: beyond Hayou et al. 2021, appendix E, which bounds it.
    """
    z, mass = pieces(np.linspace(0.0, 40.0, 801), 20)
    with np.errstate(divide="ignore"):
        stays = -np.expm1(weights * np.log1p(-np.exp(_log_outside(math.sqrt(gamma) * z))))
    return math.sqrt(2 / math.pi) * float((mass * stays * np.exp(-0.5 * z**2)).sum())


@checked
def magnitude_density(weight_std: Variance, weights: Sequence[Count], sparsity: Sparsity) -> PredictedDensity:
    """What magnitude pruning is expected to leave of each layer of normal weights, at any depth.

    >>> found = magnitude_density([5**-0.5] + [1.0] * 99, [10_000] * 100, sparsity=0.9)
    >>> round(found.critical_sparsity, 3), found.at_risk
    (0.926, ['1'])

    Standard deviations (not times sqrt(fan_in)) and numbers of weights are one a layer; the layers' names are "1", "2",
    ... The standard deviation of the prediction is over drawings of the weights.

    Source: Hayou et al. 2021, appendix E, where only the limit of infinite depth is bounded.
    """
    if not len(weights):
        raise InputError("weights holds no layer; give the number of weights of each.")
    stds = of_layers("weight_std", weight_std, len(weights))
    entry = entry_tail(1.0)
    laws = {count: score_law(entry, np.ones(1), np.ones(int(count))) for count in set(weights)}
    with np.errstate(divide="ignore"):
        layers = Layers([laws[count] for count in weights], np.log(stds)[None], np.asarray(weights, dtype=np.float64))
    return predict(layers, sparsity, "magnitudes of normal weights")


def _log_outside(z: Array | float) -> Array:
    """Logarithm of P(abs(Z) > z) for z >= 0, far into the tail."""
    return np.asarray(math.log(2) + special.log_ndtr(-z))


def _bound_at(z: Array | float, ratio: float, weights: int) -> Array:
    """The bound x + M/(1 + a) (1 - x)^(1 + a) at x = P(abs(Z) <= z), a such that (1 - x)^a = P(abs(Z) > r z)."""
    outside, inner = _log_outside(z), _log_outside(ratio * z)
    return np.asarray(-np.expm1(outside) + weights / (1 + inner / outside) * np.exp(outside + inner))
