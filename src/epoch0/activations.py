"""Nonlinearities as data: function, derivative and, where they are piecewise linear, break points and slopes.

Everything here is numpy in float64; ``networks.nonlinearities`` turns an activation into a torch module and back.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError, suggest

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Activation:
    """One nonlinearity phi.

    >>> relu = get("relu")
    >>> relu.function(np.array([-1.0, 2.0])), relu.breaks, relu.slopes           # shape (2,)
    (array([0., 2.]), (0.0,), (0.0, 1.0))

    Two activations are equal when their name and parameters are.

    Attributes:
        name: the field's word for it, such as ``"leaky_relu"``.
        function: phi, elementwise, float64 array of any shape to the same shape.
        derivative: phi', likewise; at a break point it is the slope on the left.
        breaks: points where a piecewise-linear phi changes its slope, increasing; also the kinks of a smooth one.
        slopes: slope of each of the ``len(breaks) + 1`` pieces, left to right; None if phi is not piecewise linear.
        parameters: the numbers that shape it, as torch names them, such as ``(("negative_slope", 0.01),)``.
    """

    name: str
    function: Callable[[Any], Array] = field(compare=False, repr=False)
    derivative: Callable[[Any], Array] = field(compare=False, repr=False)
    breaks: tuple[float, ...] = field(default=(), compare=False, repr=False)
    slopes: tuple[float, ...] | None = field(default=None, compare=False, repr=False)
    parameters: tuple[tuple[str, float], ...] = ()

    @property
    def piecewise_linear(self) -> bool:
        """Whether phi is linear between its break points."""
        return self.slopes is not None

    @property
    def homogeneous(self) -> bool:
        """Whether phi(c h) = c phi(h) for every c > 0: then rescaling a layer rescales what follows exactly."""
        return self.slopes is not None and self.breaks in ((), (0.0,)) and not self.function(np.zeros(1)).any()


def _piecewise(name: str, breaks: tuple[float, ...], slopes: tuple[float, ...], **parameters: float) -> Activation:
    """A continuous piecewise-linear activation through the origin, from its break points and slopes."""
    points, rates = np.asarray(breaks), np.asarray(slopes)

    def unshifted(h: Any) -> Any:
        value = rates[0] * h
        for point, step in zip(points, np.diff(rates), strict=True):
            value = value + step * np.maximum(h - point, 0.0)
        return value

    offset = unshifted(np.zeros(1))[0]

    def function(h: Any) -> Array:
        return np.asarray(unshifted(np.asarray(h, dtype=np.float64)) - offset)

    def derivative(h: Any) -> Array:
        return np.asarray(rates[np.searchsorted(points, np.asarray(h, dtype=np.float64), side="left")])

    return Activation(name, function, derivative, breaks, slopes, tuple(sorted(parameters.items())))


def relu() -> Activation:
    """max(h, 0)."""
    return _piecewise("relu", (0.0,), (0.0, 1.0))


def leaky_relu(negative_slope: float = 0.01) -> Activation:
    """max(h, 0) + negative_slope * min(h, 0); ``negative_slope`` as in torch."""
    return _piecewise("leaky_relu", (0.0,), (float(negative_slope), 1.0), negative_slope=float(negative_slope))


def hardtanh(minimum: float = -1.0, maximum: float = 1.0) -> Activation:
    """The input h clipped to [minimum, maximum].

    Raises:
        InputError: unless minimum < 0 < maximum, so that the identity piece passes through the origin.
    """
    if not minimum < 0 < maximum:
        raise InputError(f"hardtanh({minimum!r}, {maximum!r}) is no hard tanh; it needs minimum < 0 < maximum.")
    parameters = {} if (minimum, maximum) == (-1.0, 1.0) else {"min_val": float(minimum), "max_val": float(maximum)}
    return _piecewise("hardtanh", (float(minimum), float(maximum)), (0.0, 1.0, 0.0), **parameters)


def identity() -> Activation:
    """No nonlinearity: h itself."""
    return _piecewise("identity", (), (1.0,))


def tanh() -> Activation:
    """Hyperbolic tangent."""
    return Activation("tanh", lambda h: np.tanh(np.asarray(h, dtype=np.float64)), _tanh_derivative)


def _tanh_derivative(h: Any) -> Array:
    # 1 / cosh^2 keeps its relative precision in the tails, where 1 - tanh^2 cancels to zero
    return np.asarray(1.0 / np.cosh(np.clip(np.asarray(h, dtype=np.float64), -350.0, 350.0)) ** 2)


def erf() -> Activation:
    """The error function 2/sqrt(pi) * integral_0^h exp(-t^2) dt."""
    from scipy.special import erf as error_function

    def derivative(h: Any) -> Array:
        return np.asarray(2.0 / math.sqrt(math.pi) * np.exp(-(np.asarray(h, dtype=np.float64) ** 2)))

    return Activation("erf", lambda h: np.asarray(error_function(np.asarray(h, dtype=np.float64))), derivative)


def elu(alpha: float = 1.0) -> Activation:
    """Equal to h for h > 0, alpha * (exp(h) - 1) below; ``alpha`` as in torch (a scale, not a density)."""

    def function(h: Any) -> Array:
        h = np.asarray(h, dtype=np.float64)
        return np.asarray(np.where(h > 0, h, alpha * np.expm1(np.minimum(h, 0.0))))

    def derivative(h: Any) -> Array:
        h = np.asarray(h, dtype=np.float64)
        return np.asarray(np.where(h > 0, 1.0, alpha * np.exp(np.minimum(h, 0.0))))

    return Activation("elu", function, derivative, (0.0,), None, (("alpha", float(alpha)),))


def gelu() -> Activation:
    """The product h * Phi(h), with the exact normal distribution function Phi."""
    from scipy.special import ndtr

    def derivative(h: Any) -> Array:
        h = np.asarray(h, dtype=np.float64)
        return np.asarray(ndtr(h) + h * np.exp(-0.5 * h**2) / math.sqrt(2 * math.pi))

    def function(h: Any) -> Array:
        h = np.asarray(h, dtype=np.float64)
        return np.asarray(h * ndtr(h))

    return Activation("gelu", function, derivative)


def silu() -> Activation:
    """The product h * sigmoid(h), also called swish."""
    from scipy.special import expit

    def function(h: Any) -> Array:
        h = np.asarray(h, dtype=np.float64)
        return np.asarray(h * expit(h))

    def derivative(h: Any) -> Array:
        h = np.asarray(h, dtype=np.float64)
        sigmoid = expit(h)
        return np.asarray(sigmoid * (1.0 + h * expit(-h)))

    return Activation("silu", function, derivative)


KNOWN: dict[str, Callable[[], Activation]] = {
    "relu": relu,
    "leaky_relu": leaky_relu,
    "hardtanh": hardtanh,
    "tanh": tanh,
    "erf": erf,
    "elu": elu,
    "gelu": gelu,
    "silu": silu,
    "identity": identity,
}


def get(activation: "str | Activation") -> Activation:
    """The activation of that name; an :class:`Activation` is handed back as it is.

    >>> get("hardtanh").breaks
    (-1.0, 1.0)

    Raises:
        InputError: if there is no rule for that name; the message lists the names.
    """
    if isinstance(activation, Activation):
        return activation
    if activation not in KNOWN:
        raise InputError(
            f"no rule for activation {activation!r}; known are {', '.join(KNOWN)}.{suggest(str(activation), KNOWN)}"
        )
    return KNOWN[activation]()
