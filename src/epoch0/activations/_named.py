"""What an activation is, and the known ones by their usual names and torch's: one entry each."""

import math
import numbers
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import special
from epoch0.arguments import Positive, checked, refuse
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

    name: str  #: its usual name, such as ``"leaky_relu"``
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


@dataclass(frozen=True)
class Known:
    """One entry: how an activation is made, and what it is in torch."""

    make: Callable[..., Activation]  #: makes it; by default with torch's parameters
    reads: Callable[..., Activation | None]  #: from the arguments of torch's function to the activation, or None
    module: str = ""  #: the class of ``torch.nn`` that computes it
    settings: tuple[tuple[str, Any], ...] = ()  #: arguments of that class beside the activation's own parameters
    function: str = ""  #: torch's function; empty if another entry reads that
    aliases: tuple[str, ...] = ()  #: other names of the function
    parameters: tuple[tuple[str, Any], ...] = ()  #: what shapes torch's function, in torch's order, with its defaults
    bounds: tuple[float, float] | None = None  #: the range in which it saturates at both ends
    zero: bool = True  #: whether it is 0 at 0

    def __call__(self) -> Activation:
        """The activation with torch's parameters."""
        return self.make()


KNOWN: dict[str, Known] = {}
"""Name -> the entry of the activation of that name; called, it gives the one with torch's default parameters."""

Maker = Callable[..., Activation]
Maths = Callable[[Array], Any]


def _known(module: str = "", *aliases: str, name: str = "", **fields: Any) -> Callable[[Maker], Maker]:
    """Make an entry of a function that makes an activation; ``fields`` are further fields of :class:`Known`."""

    def enter(make: Maker) -> Maker:
        title = name or make.__name__
        usual: dict[str, Any] = {"reads": make, "module": module, "function": title, "aliases": aliases}
        KNOWN[title] = Known(make, **usual | fields)
        return make

    return enter


@_known("ReLU")
def relu() -> Activation:
    """max(h, 0)."""
    return piecewise("relu", (0.0,), (0.0, 1.0))


@checked
@_known("LeakyReLU", parameters=(("negative_slope", 0.01),))
def leaky_relu(negative_slope: float = 0.01) -> Activation:
    """max(h, 0) + negative_slope * min(h, 0); ``negative_slope`` as in torch."""
    return piecewise("leaky_relu", (0.0,), (float(negative_slope), 1.0), negative_slope=float(negative_slope))


def _read_hardtanh(min_val: float, max_val: float) -> Activation | None:
    return hardtanh(min_val, max_val) if min_val < 0 < max_val else relu6() if (min_val, max_val) == (0, 6) else None


@checked
@_known("Hardtanh", bounds=(-1.0, 1.0), parameters=(("min_val", -1.0), ("max_val", 1.0)), reads=_read_hardtanh)
def hardtanh(minimum: float = -1.0, maximum: float = 1.0) -> Activation:
    """The input h clipped to [minimum, maximum]; an InputError unless minimum < 0 < maximum."""
    if not minimum < 0 < maximum:
        raise InputError(f"hardtanh({minimum!r}, {maximum!r}) is no hard tanh; it needs minimum < 0 < maximum.")
    parameters = {} if (minimum, maximum) == (-1.0, 1.0) else {"min_val": float(minimum), "max_val": float(maximum)}
    return piecewise("hardtanh", (float(minimum), float(maximum)), (0.0, 1.0, 0.0), **parameters)


@_known("Tanh", bounds=(-1.0, 1.0))
def tanh() -> Activation:
    """Hyperbolic tangent."""
    return _smooth("tanh", np.tanh, _tanh_derivative)


def _smooth(
    name: str, function: Maths, derivative: Maths, breaks: tuple[float, ...] = (), parameters: Mapping[str, float] = {}
) -> Activation:
    """An activation that is not piecewise linear, from functions of float64 arrays."""

    def lifted(maths: Maths) -> Callable[[Any], Array]:
        return lambda h: np.asarray(maths(np.asarray(h, dtype=np.float64)))

    return Activation(name, lifted(function), lifted(derivative), breaks, None, tuple(sorted(parameters.items())))


def _tanh_derivative(h: Array) -> Array:
    # 1 / cosh^2 keeps its relative precision in the tails, where 1 - tanh^2 cancels to zero
    return np.asarray(1.0 / np.cosh(np.clip(h, -350.0, 350.0)) ** 2)


@_known(bounds=(-1.0, 1.0))
def erf() -> Activation:
    """The error function 2/sqrt(pi) * integral_0^h exp(-t^2) dt."""
    return _smooth("erf", lambda h: special.erf(h), lambda h: 2.0 / math.sqrt(math.pi) * np.exp(-(h**2)))


@checked
@_known("ELU", parameters=(("alpha", 1.0),))
def elu(alpha: float = 1.0) -> Activation:
    """Equal to h for h > 0, alpha * (exp(h) - 1) below; ``alpha`` as in torch (a scale, not a density)."""
    return _exponential("elu", 1.0, float(alpha), 1.0, alpha=float(alpha))


@_known(
    "GELU",
    parameters=(("approximate", "none"),),
    reads=lambda approximate: gelu() if approximate == "none" else gelu_tanh(),
)
def gelu() -> Activation:
    """The product h * Phi(h), with the exact normal distribution function Phi."""
    root = math.sqrt(2 * math.pi)
    return _smooth("gelu", lambda h: h * special.ndtr(h), lambda h: special.ndtr(h) + h * np.exp(-0.5 * h**2) / root)


@_known("SiLU")
def silu() -> Activation:
    """The product h * sigmoid(h), also called swish."""
    return _smooth("silu", lambda h: h * special.expit(h), lambda h: special.expit(h) * (1.0 + h * special.expit(-h)))


@_known("Identity", function="")
def identity() -> Activation:
    """No nonlinearity: h itself."""
    return piecewise("identity", (), (1.0,))


@_known("GELU", function="", settings=(("approximate", "tanh"),))
def gelu_tanh() -> Activation:
    """The tanh approximation of GELU, torch's ``GELU(approximate="tanh")``."""
    scale, cubic = math.sqrt(2 / math.pi), 0.044715

    def inner(h: Array) -> Array:
        # beyond 50 the tanh is 1 to the last bit; the clip keeps the cube finite
        h = np.clip(h, -50.0, 50.0)
        return np.asarray(scale * (h + cubic * h**3))

    def derivative(h: Array) -> Array:
        u, slope = inner(h), scale * (1 + 3 * cubic * np.clip(h, -50.0, 50.0) ** 2)
        return np.asarray(0.5 * (1 + np.tanh(u)) + 0.5 * h * _tanh_derivative(u) * slope)

    return _smooth("gelu_tanh", lambda h: 0.5 * h * (1 + np.tanh(inner(h))), derivative)


@_known("SELU")
def selu() -> Activation:
    """ELU with the scale and the alpha that make mean 0 and variance 1 a fixed point of wide layers."""
    return _exponential("selu", 1.0507009873554804934193349852946, 1.6732632423543772848170429916717, 1.0)


@checked
@_known("CELU", parameters=(("alpha", 1.0),), reads=lambda alpha: celu(alpha) if alpha > 0 else None)  # type: ignore[has-type]
def celu(alpha: Positive = 1.0) -> Activation:
    """Equal to h for h > 0, alpha * (exp(h / alpha) - 1) below, smooth for every ``alpha`` > 0; as in torch."""
    return _exponential("celu", 1.0, float(alpha), float(alpha), alpha=float(alpha))


def _exponential(name: str, scale: float, depth: float, width: float, **parameters: float) -> Activation:
    """The ELU family: scale * h for h > 0, scale * depth * (exp(h / width) - 1) below."""

    def function(h: Array) -> Array:
        return np.asarray(scale * np.where(h > 0, h, depth * np.expm1(np.minimum(h, 0.0) / width)))

    def derivative(h: Array) -> Array:
        return np.asarray(scale * np.where(h > 0, 1.0, depth / width * np.exp(np.minimum(h, 0.0) / width)))

    return _smooth(name, function, derivative, (0.0,), parameters)


@_known("Sigmoid", "expit", bounds=(0.0, 1.0), zero=False)
def sigmoid() -> Activation:
    """The logistic function 1 / (1 + exp(-h))."""
    return _smooth("sigmoid", lambda h: special.expit(h), lambda h: special.expit(h) * special.expit(-h))


def _read_softplus(beta: float, threshold: float) -> Activation | None:
    # torch goes over to the line h above threshold / beta; at 20 that is below 3e-9
    return softplus(float(beta)) if beta > 0 and threshold >= 20 else None


@checked
@_known("Softplus", parameters=(("beta", 1.0), ("threshold", 20.0)), reads=_read_softplus, zero=False)
def softplus(beta: Positive = 1.0) -> Activation:
    """The smooth ReLU log(1 + exp(beta h)) / beta; ``beta`` > 0 as in torch."""
    own = {} if beta == 1 else {"beta": float(beta)}
    return _smooth("softplus", lambda h: np.logaddexp(0.0, beta * h) / beta, lambda h: special.expit(beta * h), (), own)


@_known("Softsign", bounds=(-1.0, 1.0))
def softsign() -> Activation:
    """The quotient h / (1 + abs(h))."""
    return _smooth("softsign", lambda h: h / (1 + np.abs(h)), lambda h: 1 / (1 + np.abs(h)) ** 2, (0.0,))


@_known("Mish")
def mish() -> Activation:
    """The product h * tanh(softplus(h))."""

    def derivative(h: Array) -> Array:
        soft = np.logaddexp(0.0, h)
        return np.asarray(np.tanh(soft) + h * _tanh_derivative(soft) * special.expit(h))

    return _smooth("mish", lambda h: h * np.tanh(np.logaddexp(0.0, h)), derivative)


@_known("ReLU6")
def relu6() -> Activation:
    """The input h clipped to [0, 6]."""
    return piecewise("relu6", (0.0, 6.0), (0.0, 1.0, 0.0))


@_known("", "absolute", name="abs")
def absolute() -> Activation:
    """The absolute value; its name is ``"abs"``."""
    return piecewise("abs", (0.0,), (-1.0, 1.0))


@_known("Hardsigmoid", bounds=(0.0, 1.0))
def hardsigmoid() -> Activation:
    """The line (h + 3) / 6 clipped to [0, 1]."""
    return piecewise("hardsigmoid", (-3.0, 3.0), (0.0, 1 / 6, 0.0), at_zero=0.5)


@_known("Hardswish")
def hardswish() -> Activation:
    """The product h * hardsigmoid(h)."""

    def derivative(h: Array) -> Array:
        return np.asarray(np.where(h <= -3, 0.0, np.where(h <= 3, h / 3 + 0.5, 1.0)))

    return _smooth("hardswish", lambda h: h * np.clip((h + 3) / 6, 0.0, 1.0), derivative, (-3.0, 3.0))


@_known()
def sin() -> Activation:
    """The sine."""
    return _smooth("sin", np.sin, np.cos)


@checked
def known_call(function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Activation | None:
    """The known activation that a call of torch's function of this name computes, or None; the input is left out.

    >>> known_call("leaky_relu", (0.2,), {}).parameters
    (('negative_slope', 0.2),)
    """
    entry = next((entry for entry in KNOWN.values() if function and function in (entry.function, *entry.aliases)), None)
    if entry is None:
        return None
    given = {**kwargs, **{name: value for (name, _), value in zip(entry.parameters, args, strict=False)}}
    for name, usual in entry.parameters:
        kind = str if isinstance(usual, str) else numbers.Real
        if not isinstance(value := given.setdefault(name, usual), kind):
            raise refuse(name, value, "a text" if kind is str else "a number")
    return entry.reads(**{name: given[name] for name, _ in entry.parameters})


@checked
def known_module(module: object) -> Activation | None:
    """The known activation that a torch module (or one of ours) computes, or None."""
    kind = type(module)
    if kind.__module__ == "epoch0.networks.nonlinearities" and kind.__name__ == "Function":
        return known_call(module.name, (), {})  # type: ignore[attr-defined]
    for entry in KNOWN.values() if kind.__module__.startswith("torch.nn.modules.") else ():
        if entry.module == kind.__name__:
            return entry.reads(**{name: getattr(module, name) for name, _ in entry.parameters})
    return None


@checked
def known_function(function: Callable[..., Any]) -> Activation | None:
    """The known activation that a function of torch, numpy or scipy computes with its default arguments, or None."""
    name = getattr(function, "__name__", "").removeprefix("special_")
    libraries = ("torch", "torch.nn.functional", "torch.special", "numpy", "scipy.special")
    theirs = any(getattr(sys.modules.get(library), name, None) is function for library in libraries)
    return known_call(name, (), {}) if theirs and name else None
