"""Mean-field maps of one wide layer: the gain chi and the variance map (Hayou et al. 2021, B.1)."""

import math
from typing import overload

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation, get
from epoch0.errors import InputError
from epoch0.theory.mean_field.gaussian import gaussian_mean

Array = NDArray[np.float64]


@overload
def chi(activation: str | Activation, weight_std: float, q: float, density: float = ...) -> float: ...
@overload
def chi(activation: str | Activation, weight_std: float, q: Array, density: float = ...) -> Array: ...
def chi(activation: str | Activation, weight_std: float, q: float | Array, density: float = 1.0) -> float | Array:
    """Gain of a wide layer: density * weight_std^2 * E phi'(sqrt(q) Z)^2, the mean squared stretch of a perturbation.

    >>> chi("relu", 2.0, 1.0)                       # any q: ReLU has no scale
    2.0
    >>> round(chi("tanh", 1.700796 ** 0.5, 0.512079), 5)              # on the edge of chaos
    1.0

    Args:
        activation: a name such as "tanh", or an Activation.
        weight_std: sigma_w, the standard deviation of a kept weight times sqrt(fan_in); >= 0.
        q: variance of the pre-activation, >= 0; a number or an array.
        density: fraction of the weights kept (alpha), in (0, 1].

    Returns:
        A float, or an array of the shape of q.

    Raises:
        InputError: for an unknown activation, or a weight_std, q or density out of its range.

    Source: Hayou et al. 2021, B.1.2 (printed with phi for phi', a misprint) and appendix H (density).
    """
    rule = get(activation)
    _check_scale("weight_std", weight_std)
    if not 0 < density <= 1:
        raise InputError(f"density={density!r} is no density; it is the fraction of weights kept (alpha), in (0, 1].")
    return density * weight_std**2 * gaussian_mean(lambda h: rule.derivative(h) ** 2, q, rule.breaks)


@overload
def variance_map(activation: str | Activation, weight_std: float, bias_std: float, q: float) -> float: ...
@overload
def variance_map(activation: str | Activation, weight_std: float, bias_std: float, q: Array) -> Array: ...
def variance_map(
    activation: str | Activation, weight_std: float, bias_std: float, q: float | Array
) -> float | Array:
    """Variance of the next pre-activation: bias_std^2 + weight_std^2 * E phi(sqrt(q) Z)^2.

    >>> round(variance_map("relu", 2.0 ** 0.5, 0.5, 3.0), 6)
    3.25

    Args:
        activation: a name such as "tanh", or an Activation.
        weight_std: sigma_w, the standard deviation of a weight times sqrt(fan_in); >= 0.
        bias_std: sigma_b, the standard deviation of a bias; >= 0.
        q: variance of the pre-activation, >= 0; a number or an array.

    Returns:
        A float, or an array of the shape of q.

    Raises:
        InputError: for an unknown activation, or a weight_std, bias_std or q out of its range.

    Source: Hayou et al. 2021, B.1.
    """
    rule = get(activation)
    _check_scale("weight_std", weight_std)
    _check_scale("bias_std", bias_std)
    return bias_std**2 + weight_std**2 * gaussian_mean(lambda h: rule.function(h) ** 2, q, rule.breaks)


def _check_scale(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name}={value!r} is no standard deviation; it must be finite and >= 0.")
