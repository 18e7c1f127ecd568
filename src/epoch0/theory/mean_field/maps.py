"""Mean-field maps of one wide layer: the gain chi and the variance map (Hayou et al. 2021, B.1)."""

from typing import overload

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import ActivationLike, get
from epoch0.theory.mean_field._arguments import check_density, check_scales, check_std
from epoch0.theory.mean_field.gaussian import gaussian_mean

Array = NDArray[np.float64]


@overload
def chi(activation: ActivationLike, weight_std: float, q: float, density: float = ...) -> float: ...
@overload
def chi(activation: ActivationLike, weight_std: float, q: Array, density: float = ...) -> Array: ...
def chi(activation: ActivationLike, weight_std: float, q: float | Array, density: float = 1.0) -> float | Array:
    """Gain of a wide layer: density * weight_std^2 * E phi'(sqrt(q) Z)^2, the mean squared stretch of a perturbation.

    >>> chi("relu", 2.0, 1.0)                       # any q: ReLU has no scale
    2.0
    >>> round(chi("tanh", 1.700796 ** 0.5, 0.512079), 5)              # on the edge of chaos
    1.0

    Args:
        activation: a name such as "tanh", an Activation, or a numpy or torch function.
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
    check_std("weight_std", weight_std)
    check_density(density)
    return density * weight_std**2 * gaussian_mean(lambda h: rule.derivative(h) ** 2, q, rule.breaks)


@overload
def variance_map(
    activation: ActivationLike, weight_std: float, bias_std: float, q: float, density: float = ...
) -> float: ...
@overload
def variance_map(
    activation: ActivationLike, weight_std: float, bias_std: float, q: Array, density: float = ...
) -> Array: ...
def variance_map(
    activation: ActivationLike, weight_std: float, bias_std: float, q: float | Array, density: float = 1.0
) -> float | Array:
    """Variance of the next pre-activation: bias_std^2 + density * weight_std^2 * E phi(sqrt(q) Z)^2.

    >>> round(variance_map("relu", 2.0 ** 0.5, 0.5, 3.0), 6)
    3.25

    Args:
        activation: a name such as "tanh", an Activation, or a numpy or torch function.
        weight_std: sigma_w, the standard deviation of a kept weight times sqrt(fan_in); >= 0.
        bias_std: sigma_b, the standard deviation of a bias; >= 0.
        q: variance of the pre-activation, >= 0; a number or an array.
        density: fraction of the weights kept (alpha), in (0, 1].

    Returns:
        A float, or an array of the shape of q.

    Raises:
        InputError: for an unknown activation, or a weight_std, bias_std, q or density out of its range.

    Source: Hayou et al. 2021, B.1 and appendix H (density).
    """
    rule = get(activation)
    check_scales(weight_std, bias_std, density)
    return bias_std**2 + density * weight_std**2 * gaussian_mean(lambda h: rule.function(h) ** 2, q, rule.breaks)
