"""Magnitude pruning of layers of unequal variance: Proposition 4 as printed and corrected, and its limit (Hayou, E)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from epoch0.errors import InputError
from epoch0.theory.pruning.checks import check_count, check_sparsity, of_layers
from epoch0.theory.pruning.prediction import PredictedDensity, predict
from epoch0.theory.pruning.score_law import entry_tail, score_law
from epoch0.theory.pruning.survival import Layers

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True)
class MagnitudeBound:
    """Proposition 4 for one ratio of scales.

    Attributes:
        value: the bound on E[s_cr], without its error term.
        x: the x of the proposition where the bound is least: below it, the bound supposes that the layer stays.
        eps: the epsilon that belongs to it.
        ratio: of the standard deviations that the formula was used with.
        vacuous: whether it is above 1, so that it says nothing.
    """

    value: float
    x: float
    eps: float
    ratio: float
    vacuous: bool


def magnitude_bound(gamma: float, weights: int, *, paper: bool = False) -> MagnitudeBound:
    """Upper bound on the critical sparsity of magnitude pruning where one layer of many has smaller weights.

    >>> [round(magnitude_bound(g, 10_000).value, 3) for g in (2, 5, 10)]
    [0.996, 0.935, 0.812]
    >>> [round(magnitude_bound(g, 10_000, paper=True).value, 3) for g in (2, 5, 10)]
    [0.961, 0.598, 0.327]

    The layers' variances are sigma_w^2 / (alpha_l N), so their standard deviations differ by the square root of the
    paper's gamma; the proposition has gamma itself in that place. Table 7 prints 5.77, 0.81 and 0.72 for 2, 5 and 10,
    which is neither.

    No grid: with x = P(abs(Z) <= z) the condition on x is that log P(abs(Z) > r z) / log P(abs(Z) > z), which grows
    with z from r to r^2, exceeds r^(2 - eps); so each z belongs to one eps, and the bound is minimized over z.

    Args:
        gamma: variance of the other layers' weights over that of the weakest layer's, > 1.
        weights: number of weights of the weakest layer (zeta N^2).
        paper: whether to take gamma as the ratio of standard deviations, as printed.

    Returns:
        A :class:`MagnitudeBound`.

    Raises:
        InputError: for gamma <= 1 or no weights.

    Source: Hayou et al. 2021, appendix E, Proposition 4.
    """
    from scipy.optimize import minimize_scalar

    ratio = _ratio(gamma, paper)
    check_count("weights", weights)
    depths = np.linspace(1e-6, 12.0, 4001)
    start = int(np.argmin(_bound_at(depths, ratio, weights)))
    low, high = depths[max(start - 1, 0)], depths[min(start + 1, len(depths) - 1)]
    best = minimize_scalar(
        lambda z: float(_bound_at(np.array([z]), ratio, weights)[0]), bounds=(low, high), method="bounded",
        options={"xatol": 1e-12},
    )  # fmt: skip
    z = np.array([float(best.x)])
    power = float(_log_outside(ratio * z)[0] / _log_outside(z)[0])
    value = float(_bound_at(z, ratio, weights)[0])
    eps = 2 - math.log(power) / math.log(ratio)
    return MagnitudeBound(value, float(-np.expm1(_log_outside(z))[0]), eps, ratio, value > 1)


def magnitude_limit(gamma: float, weights: int, *, paper: bool = False) -> float:
    """Expected critical sparsity of magnitude pruning when one layer is weaker than infinitely many others.

    >>> [round(magnitude_limit(g, 10_000), 3) for g in (2, 5, 10)]
    [0.995, 0.925, 0.794]

    The threshold at sparsity x is the x-quantile of the other layers' weights, and the weak layer stays while one of
    its M weights exceeds it: the integral of 1 - (1 - P(abs(Z) > r Q_x))^M over x, here over the quantile itself.

    Args:
        gamma: variance of the other layers' weights over that of the weakest layer's, > 1.
        weights: M, number of weights of that layer.
        paper: whether to take gamma as the ratio of standard deviations, as printed.

    Raises:
        InputError: for gamma <= 1 or no weights.

    Source: beyond Hayou et al. 2021, appendix E, which bounds it.
    """
    ratio = _ratio(gamma, paper)
    check_count("weights", weights)
    edges = np.linspace(0.0, 40.0, 801)
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    z = middle[:, None] + half[:, None] * _NODES
    with np.errstate(divide="ignore"):
        stays = -np.expm1(weights * np.log1p(-np.exp(_log_outside(ratio * z))))
    density = math.sqrt(2 / math.pi) * np.exp(-0.5 * z**2)
    return float((half * ((stays * density) @ _WEIGHTS)).sum())


def magnitude_density(
    weight_std: ArrayLike, weights: Sequence[int], sparsity: float, *, names: Sequence[str] | None = None
) -> PredictedDensity:
    """What magnitude pruning is expected to leave of each layer of normal weights, at any depth.

    >>> found = magnitude_density([5**-0.5] + [1.0] * 99, [10_000] * 100, sparsity=0.9)
    >>> round(found.critical_sparsity, 3), found.at_risk
    (0.926, ['1'])

    Args:
        weight_std: standard deviation of the weights of each layer, shape (layers,); not times sqrt(fan_in).
        weights: number of weights of each layer.
        sparsity: fraction of all weights removed, in [0, 1).
        names: of the layers; by default "1", "2", ...

    Returns:
        A :class:`~epoch0.theory.pruning.PredictedDensity`; its standard deviation is over drawings of the weights.

    Raises:
        InputError: if an argument is out of its range.

    Source: Hayou et al. 2021, appendix E, where only the limit of infinite depth is bounded.
    """
    check_sparsity(sparsity)
    if not len(weights):
        raise InputError("weights holds no layer; give the number of weights of each.")
    for count in weights:
        check_count("a number of weights", count)
    stds = of_layers("weight_std", weight_std, len(weights))
    entry = entry_tail(1.0)
    laws = {count: score_law(entry, np.ones(1), np.ones(int(count))) for count in set(weights)}
    with np.errstate(divide="ignore"):
        layers = Layers([laws[count] for count in weights], np.log(stds)[None], np.asarray(weights, dtype=np.float64))
    labels = [str(layer + 1) for layer in range(len(weights))] if names is None else list(names)
    return predict(layers, labels, sparsity, "magnitudes of normal weights")


def _ratio(gamma: float, paper: bool) -> float:
    if isinstance(gamma, bool) or not (math.isfinite(gamma) and gamma > 1):
        raise InputError(
            f"gamma={gamma!r} must be above 1: how many times the other layers' variance is that of the weakest."
        )
    return float(gamma) if paper else math.sqrt(gamma)


def _log_outside(z: Array) -> Array:
    """Logarithm of P(abs(Z) > z) for z >= 0, far into the tail."""
    return np.asarray(math.log(2) + log_ndtr(-z))


def _bound_at(z: Array, ratio: float, weights: int) -> Array:
    """The bound x + M/(1 + a) (1 - x)^(1 + a) at x = P(abs(Z) <= z), a such that (1 - x)^a = P(abs(Z) > r z)."""
    outside, inner = _log_outside(z), _log_outside(ratio * z)
    return np.asarray(-np.expm1(outside) + weights / (1 + inner / outside) * np.exp(outside + inner))
