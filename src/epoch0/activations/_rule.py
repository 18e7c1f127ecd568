"""What an activation is: a function, its derivative and, where it is piecewise linear, its break points and slopes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.arguments import checked
from epoch0.errors import InputError

Array = NDArray[np.float64]


@checked
@dataclass(frozen=True)
class Activation:
    """One nonlinearity phi.

    >>> relu = get("relu")
    >>> relu.function(np.array([-1.0, 2.0])), relu.breaks, relu.slopes           # shape (2,)
    (array([0., 2.]), (0.0,), (0.0, 1.0))

    Two are equal when their name and parameters are; those of :func:`custom` when made from the same function.
    """

    name: str  #: the field's word for it, such as ``"leaky_relu"``
    #: phi, elementwise, float64 array of any shape to the same shape
    function: Callable[[Any], Array] = field(compare=False, repr=False)
    #: phi', likewise; at a break point it is the slope on the left
    derivative: Callable[[Any], Array] = field(compare=False, repr=False)
    #: points where a piecewise-linear phi changes its slope, increasing; also the kinks of a smooth one
    breaks: tuple[float, ...] = field(default=(), compare=False, repr=False)
    #: slope of each of the ``len(breaks) + 1`` pieces, left to right; None if phi is not piecewise linear
    slopes: tuple[float, ...] | None = field(default=None, compare=False, repr=False)
    parameters: tuple[tuple[str, float], ...] = ()  #: the numbers that shape it, as torch names them
    #: the function or module that a custom activation was made from; None for the known ones
    source: Any = field(default=None, repr=False)
    #: whether phi has no jumps; where it has, chi is what a gradient sees and not how far inputs part
    continuous: bool = field(default=True, compare=False, repr=False)

    @property
    def homogeneous(self) -> bool:
        """Whether phi(c h) = c phi(h) for every c > 0: then rescaling a layer rescales what follows exactly."""
        return self.slopes is not None and self.breaks in ((), (0.0,)) and not self.function(np.zeros(1)).any()


@checked
def piecewise(
    name: str, breaks: tuple[float, ...], slopes: tuple[float, ...], at_zero: float = 0.0, **parameters: float
) -> Activation:
    """A continuous piecewise-linear activation from its break points, its slopes and its value at 0."""
    points, rates = np.asarray(breaks), np.asarray(slopes)
    if len(rates) != len(points) + 1 or (np.diff(points) <= 0).any():
        raise InputError(f"breaks={breaks!r}, slopes={slopes!r}: give breaks in rising order, and one slope more.")

    def unshifted(h: Any) -> Any:
        value = rates[0] * h
        for point, step in zip(points, np.diff(rates), strict=True):
            value = value + step * np.maximum(h - point, 0.0)
        return value

    offset = unshifted(np.zeros(1))[0] - at_zero

    def function(h: Any) -> Array:
        return np.asarray(unshifted(np.asarray(h, dtype=np.float64)) - offset)

    def derivative(h: Any) -> Array:
        return np.asarray(rates[np.searchsorted(points, np.asarray(h, dtype=np.float64), side="left")])

    return Activation(name, function, derivative, breaks, slopes, tuple(sorted(parameters.items())))
