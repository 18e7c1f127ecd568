"""A user's own function as an activation: tried, differentiated and searched for break points before it is used."""

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from epoch0.activations import _calls
from epoch0.activations._breaks import find_breaks, scan_points
from epoch0.activations._named import KNOWN
from epoch0.activations._rule import Activation, Array
from epoch0.errors import InputError


def custom(
    function: Callable[..., Any],
    derivative: Callable[..., Any] | None = None,
    breaks: Sequence[float] | None = None,
    name: str | None = None,
) -> Activation:
    """An activation from any elementwise function.

    >>> swish2 = custom(lambda h: h * torch.sigmoid(2 * h), name="swish2")           # torch: autograd differentiates
    >>> round(float(swish2.derivative(0.0)), 6), swish2.breaks
    (0.5, ())
    >>> bent = custom(lambda h: np.maximum(h, 0.3 * h - 1), lambda h: np.where(h > -1 / 0.7, 1.0, 0.3))      # numpy
    >>> [round(b, 6) for b in bent.breaks], bent.slopes
    ([-1.428571], (0.3, 1.0))

    The function is tried on points between -10,000 and 10,000, every 0.01 next to 0; what happens within less than
    that it may overlook. Where phi or phi' jumps is found by bisection to 14 digits; that integrals against the
    Gaussian do not cross a jump is what makes them exact. If all pieces are straight, the activation knows its slopes
    and gets closed forms where there are any. The global random streams are left as they were.

    Args:
        function: phi, elementwise: of numpy (float64 array to the same shape), of torch (float64 tensor to the same
            shape), or a torch module without parameters, which is copied.
        derivative: phi', of numpy or torch; needed only for a function that torch cannot differentiate.
        breaks: the points where phi or phi' jumps, if you know them; None: they are searched for.
        name: what to call it; default the function's own name.

    Returns:
        An :class:`Activation` whose function and derivative work on float64 arrays of any shape. Between the jumps of a
        phi that is not continuous the derivative is that of the pieces; the jumps themselves are not in it.

    Raises:
        InputError: for a function that cannot be called, returns NaN or infinity (the message says at which h), returns
            another shape or float32, is not elementwise, gives another value when called again, whose derivative is
            missing or wrong, or a module with parameters.
    """
    if not callable(function):
        raise InputError(f"function={function!r} is no function; give a numpy or torch function, or a torch module.")
    if isinstance(function, type):
        raise InputError(f"{function.__name__} is a class; give one of its objects, such as {function.__name__}().")
    title = _title(function, name)
    what = f"activation {title!r}"
    kept = _frozen(function, what)
    with _StreamsUntouched():
        plain, in_torch = _calls.face(kept, what, torch_first=derivative is None)
        phi = _calls.Face(plain, what)
        _check_finite(phi, what)
        _check_elementwise(phi, what)
        slope = _slope(kept, derivative, in_torch, what)
        # a derivative that is wrong nearly everywhere would look like a heap of break points
        _check_derivative(phi, slope, (), what, given=derivative is not None, allowed=0.2)
        points = find_breaks(phi, slope, what) if breaks is None else _given(breaks)
        _check_derivative(phi, slope, points, what, given=derivative is not None)
        rates = _slopes(phi, slope, points)

    # while it was searched, NaN far out was let pass: exp(h) / (1 + exp(h)) is NaN from 710 on
    phi.strict = slope.strict = True

    def left_slope(h: Any) -> Array:
        at = np.asarray(h, dtype=np.float64)
        for point in points:
            at = np.where(at == point, point - 1e-12 * max(1.0, abs(point)), at)
        return slope(at)

    if in_torch:
        phi.torch_function = kept
    return Activation(title, phi, left_slope, points, rates, (), _hashable(function), not _jumps(phi, slope, points))


def _title(function: Any, name: str | None) -> str:
    if name is not None:
        if name in KNOWN:
            raise InputError(f"name={name!r} is the name of a known activation; give yours another one.")
        return str(name)
    own = repr(function) if _calls.is_module(function) else str(getattr(function, "__name__", type(function).__name__))
    return f"custom {own}" if own in KNOWN else own.replace("<lambda>", "lambda")


class _ByIdentity:
    """Stands for an object that cannot be hashed; equal to another stand-in of the same object."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)


def _hashable(function: Any) -> Any:
    try:
        hash(function)
    except TypeError:
        return _ByIdentity(function)
    return function


def _frozen(function: Any, what: str) -> Any:
    """The function; of a module a copy, so that what is later done to the module changes nothing here."""
    if not _calls.is_module(function):
        return function
    if any(True for _ in function.parameters()):
        raise InputError(
            f"{what} has parameters; an activation has none. Give a function with their values in it, such as "
            "activations.leaky_relu(0.25) for an nn.PReLU."
        )
    return copy.deepcopy(function)


class _StreamsUntouched:
    """Whatever a user's function draws while it is tried, the global random streams are afterwards as before."""

    def __enter__(self) -> None:
        import sys

        torch = sys.modules.get("torch")
        self.torch = None if torch is None else (torch, torch.get_rng_state())
        self.numpy = np.random.get_state()  # noqa: NPY002

    def __exit__(self, *error: object) -> None:
        np.random.set_state(self.numpy)  # noqa: NPY002
        if self.torch is not None:
            self.torch[0].set_rng_state(self.torch[1])


def _check_finite(phi: _calls.Face, what: str) -> None:
    h = np.concatenate([np.linspace(-100, 100, 2001), scan_points()])
    h = h[np.abs(h) <= 100]
    h = h[np.argsort(np.abs(h), kind="stable")]
    value = phi(h)
    bad = ~np.isfinite(value)
    if bad.any():
        raise InputError(f"{what} returns {value[bad][0]} at h={float(h[bad][0]):.6g}; it must be finite for every h.")


def _check_elementwise(phi: _calls.Face, what: str) -> None:
    h = np.linspace(-6.1, 5.3, 97)
    value = phi(h)

    def differs(other: Array) -> bool:
        return not np.allclose(other, value, rtol=1e-9, atol=1e-12)

    if differs(phi(h)):
        raise InputError(
            f"{what} gives another value when it is called again with the same input; dropout or RReLU in training "
            "mode? Put the module into eval mode."
        )
    order = np.argsort(np.sin(1000 * h))
    if differs(phi(h[order])[np.argsort(order)]) or differs(phi(np.concatenate([h, 9 * h - 20]))[: len(h)]):
        raise InputError(
            f"{what} is not elementwise: its value at a point depends on the other points or on the position. A "
            "normalization or a softmax is no activation in this sense."
        )


def _slope(function: Any, derivative: Callable[..., Any] | None, in_torch: bool, what: str) -> _calls.Face:
    if derivative is not None:
        plain, _ = _calls.face(derivative, f"the derivative of {what}", torch_first=False)
        return _calls.Face(plain, f"the derivative of {what}")
    if in_torch:
        return _calls.Face(_calls.torch_slope(function), f"the derivative of {what}")
    raise InputError(
        f"{what} is a numpy function without a derivative; give derivative=..., or write it with torch, which "
        "differentiates it."
    )


def _given(breaks: Sequence[float]) -> tuple[float, ...]:
    points = sorted({float(point) for point in breaks})
    if not np.isfinite(points).all():
        raise InputError(f"breaks={tuple(breaks)!r} must be finite numbers.")
    return tuple(points)


def _check_derivative(
    phi: _calls.Face, slope: _calls.Face, breaks: tuple[float, ...], what: str, given: bool,
    allowed: float = 0.0,
) -> None:  # fmt: skip
    h = np.linspace(-8.03, 8.01, 403)
    step = 1e-5
    for point in breaks:
        h = h[np.abs(h - point) > 2 * step]
    coarse, expected = ((phi(h + one) - phi(h - one)) / (2 * one) for one in (step, step / 4))
    value = slope(h)
    allowance = 1e-4 * (1e-3 + np.abs(expected).max()) + 2 * np.abs(expected - coarse)
    bad = ~np.isfinite(value) | (np.abs(value - expected) > allowance)
    if bad.mean() > allowed:
        where = f"at h={float(h[bad][0]):.6g} it is {float(value[bad][0]):.6g}, differences of phi give"
        remedy = "" if given else " Give derivative=... yourself if torch cannot differentiate the function."
        raise InputError(f"the derivative of {what} is wrong: {where} {float(expected[bad][0]):.6g}.{remedy}")


def _slopes(phi: _calls.Face, slope: _calls.Face, breaks: tuple[float, ...]) -> tuple[float, ...] | None:
    """The slopes of a continuous piecewise-linear function; None for any other."""
    edges = np.array([-1e4, *breaks, 1e4])
    rates = []
    for low, high in pairwise(edges):
        margin = 1e-9 * max(1.0, abs(low), abs(high))
        inside = scan_points()
        inside = np.concatenate([inside[(inside > low) & (inside < high)], np.linspace(low + margin, high - margin, 9)])
        found = slope(inside)
        if not np.isfinite(found).all() or np.ptp(found) > 1e-12 * np.abs(found).max():
            return None
        rates.append(float(found[0]))
    return None if _jumps(phi, slope, breaks) else tuple(rates)


def _jumps(phi: _calls.Face, slope: _calls.Face, breaks: tuple[float, ...]) -> bool:
    """Whether phi itself, not only its slope, jumps at one of the breaks."""
    points = np.array(breaks)
    margin = 1e-9 * np.maximum(1.0, np.abs(points))
    gaps = np.abs(phi(points + margin) - phi(points - margin))
    steepest = 1 + np.maximum(np.abs(slope(points + margin)), np.abs(slope(points - margin)))
    return bool((gaps > 4 * margin * steepest).any())
