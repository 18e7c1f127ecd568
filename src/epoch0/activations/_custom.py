"""A user's own function as an activation: tried, differentiated and searched for break points before it is used.

Torch is loaded when a function is tried.
"""

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.activations._named import KNOWN, Activation, Array
from epoch0.arguments import checked
from epoch0.errors import InputError

_MOST = 200
# Jumps smaller than this part of the function's slope are left to the quadrature, which refines itself.
_JUMP = 1e-6


@checked
def custom(function: Callable[..., Any], breaks: Sequence[float] | None = None, name: str | None = None) -> Activation:
    """An activation from any elementwise function of torch, which differentiates it.

    >>> swish2 = custom(lambda h: h * torch.sigmoid(2 * h), name="swish2")
    >>> round(float(swish2.derivative(0.0)), 6), swish2.breaks
    (0.5, ())
    >>> bent = custom(lambda h: torch.maximum(h, 0.3 * h - 1))
    >>> [round(b, 6) for b in bent.breaks], bent.slopes
    ([-1.428571], (0.3, 1.0))

    The function is tried on points between -10,000 and 10,000, every 0.01 next to 0; what happens within less than
    that it may overlook. Where phi or phi' jumps is found by bisection to 14 digits, so that integrals against the
    Gaussian do not cross a jump; the jumps themselves are not in the derivative. If all pieces are straight, the
    activation has ``slopes`` and gets closed forms. The global random streams are left as they were.

    Args:
        function: phi, elementwise, float64 tensor to the same shape; or a torch module without parameters, which is
            copied. One that torch cannot differentiate is an :class:`Activation` of its own.
        breaks: the points where phi or phi' jumps, if you know them; None: they are searched for.
        name: what to call it; default the function's own name.

    Raises:
        InputError: for a function that cannot be called, returns NaN or infinity (the message says at which h), returns
            another shape or float32, is not elementwise, changes between calls, has a wrong derivative or parameters.
    """
    if isinstance(function, type):
        raise InputError(f"{function.__name__} is a class; give one of its objects, such as {function.__name__}().")
    kept, title = _named_copy(function, name)
    label = f"activation {title!r}"
    with _streams_untouched():
        _check_callable(kept, label)
        phi, slope = _Checked(_values(kept), label), _Checked(_slopes_of(kept), f"the derivative of {label}")
        _check_finite(phi)
        _check_elementwise(phi)
        # a derivative that is wrong nearly everywhere would look like many break points
        _check_derivative(phi, slope, (), allowed=0.2)
        points = _find_breaks(phi, slope, label) if breaks is None else tuple(sorted({*map(float, breaks)}))
        _check_derivative(phi, slope, points)
        jumps = _jumps(phi, slope, points)
        rates = None if jumps else _slopes(slope, points)

    # while it was searched, NaN far out was let pass: exp(h) / (1 + exp(h)) is NaN from 710 on
    phi.strict = slope.strict = True

    def left_slope(h: Any) -> Array:
        at = np.asarray(h, dtype=np.float64)
        for point in points:
            at = np.where(at == point, point - 1e-12 * max(1.0, abs(point)), at)
        return slope(at)

    phi.torch_function = kept
    source = function if isinstance(function, Hashable) else function.__call__  # a bound method has its object's hash
    return Activation(title, phi, left_slope, points, rates, (), source, not jumps)


def _named_copy(function: Any, name: str | None) -> tuple[Any, str]:
    """A copy of the function where it is a module, so that later changes to it have no effect here; and its name."""
    import torch

    module = isinstance(function, torch.nn.Module)
    own = repr(function) if module else str(getattr(function, "__name__", type(function).__name__))
    title = own.replace("<lambda>", "lambda") if name is None else name
    title = f"custom {title}" if title in KNOWN else title
    if module and any(True for _ in function.parameters()):
        raise InputError(f"activation {title!r} has parameters; give a function, as activations.leaky_relu(0.25).")
    return copy.deepcopy(function) if module else function, title


@contextmanager
def _streams_untouched() -> Iterator[None]:
    """Restore the global random states after a user's function was tried, whatever it drew."""
    import torch

    numpys = np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002


def _values(function: Callable[..., Any]) -> Callable[[Array], Any]:
    """A torch function as a numpy function; torch gets a copy of the array."""
    import torch

    def value(h: Array) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            return function(torch.from_numpy(h.copy())).detach().cpu().resolve_conj().numpy()

    return value


def _slopes_of(function: Callable[..., Any]) -> Callable[[Array], Any]:
    """The derivative of a torch function by automatic differentiation; 0 where the graph says nothing."""
    import torch

    def slope(h: Array) -> Any:
        with torch.inference_mode(False), torch.enable_grad():
            leaf = torch.from_numpy(h.copy()).requires_grad_()
            result = function(leaf * 1)  # not the leaf itself: an in-place ReLU may not write there
            if not result.requires_grad:
                return np.zeros(h.shape)
            (gradient,) = torch.autograd.grad(result.sum(), leaf, allow_unused=True)
        if gradient is None:
            return np.zeros(h.shape)
        # where phi is NaN the graph may well say 0
        return gradient.masked_fill(result.detach().isnan(), torch.nan).numpy()

    return slope


def _check_callable(function: Callable[..., Any], label: str) -> None:
    import torch

    try:
        with torch.inference_mode(False), torch.enable_grad():
            # with a gradient wanted, numpy functions refuse a tensor instead of silently taking its values
            result = function(torch.tensor([-0.5, 0.25, 1.5], dtype=torch.float64, requires_grad=True) * 1)
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"returned {type(result).__name__}, no tensor")
    except Exception as error:  # of the user
        wanted = "It must take a float64 tensor of torch and return one of its shape"
        hint = "of numpy functions make activations.Activation(name, function, derivative)"
        raise InputError(f"{label} cannot be called: {type(error).__name__}: {error}. {wanted}; {hint}.") from error


class _Checked:
    """A user's function on arrays of any shape, with its answer checked: same shape, real, float64, no NaN."""

    def __init__(self, plain: Callable[[Array], Any], what: str) -> None:
        self.plain, self.what = plain, what
        self.strict = False  # whether NaN is refused; not while break points are searched for far out
        self.torch_function: Callable[..., Any] | None = None  # the one behind it, of a phi

    def __call__(self, h: Any) -> Array:
        points = np.asarray(h, dtype=np.float64)
        flat = points.reshape(-1)
        try:
            value = np.asarray(self.plain(flat))
        except Exception as error:  # of the user
            raise InputError(f"{self.what} cannot take {flat.shape}: {type(error).__name__}: {error}.") from error
        if value.shape != flat.shape:
            raise InputError(f"{self.what} returns shape {value.shape} for {flat.shape}; it must keep the shape.")
        if value.dtype.kind not in "fiub" or (value.dtype.kind == "f" and value.dtype.itemsize < 8):
            raise InputError(f"{self.what} returns {value.dtype} for float64 input; it must compute in float64.")
        value = value.astype(np.float64)
        if self.strict and (bad := np.isnan(value)).any():
            raise InputError(f"{self.what} returns NaN at h={float(flat[bad][0]):.6g}; it must be finite for every h.")
        return value.reshape(points.shape)


def _check_finite(phi: _Checked) -> None:
    h = np.concatenate([np.linspace(-100, 100, 2001), _scan_points()])
    h = h[np.abs(h) <= 100]
    h = h[np.argsort(np.abs(h), kind="stable")]
    value = phi(h)
    if (bad := ~np.isfinite(value)).any():
        raise InputError(f"{phi.what} returns {value[bad][0]} at h={float(h[bad][0]):.6g}; it must be finite.")


def _check_elementwise(phi: _Checked) -> None:
    h = np.linspace(-6.1, 5.3, 97)
    value = phi(h)

    def differs(other: Array) -> bool:
        return not np.allclose(other, value, rtol=1e-9, atol=1e-12)

    if differs(phi(h)):
        raise InputError(f"{phi.what} gives another value when called again; put the module into eval mode.")
    order = np.argsort(np.sin(1000 * h))
    if differs(phi(h[order])[np.argsort(order)]) or differs(phi(np.concatenate([h, 9 * h - 20]))[: len(h)]):
        raise InputError(f"{phi.what} is not elementwise, as a normalization or a softmax; give one that is.")


def _check_derivative(phi: _Checked, slope: _Checked, breaks: tuple[float, ...], allowed: float = 0) -> None:
    h, step = np.linspace(-8.03, 8.01, 403), 1e-5
    for point in breaks:
        h = h[np.abs(h - point) > 2 * step]
    coarse, expected = ((phi(h + item) - phi(h - item)) / (2 * item) for item in (step, step / 4))
    value, allowance = slope(h), 1e-4 * (1e-3 + np.abs(expected).max()) + 2 * np.abs(expected - coarse)
    if (bad := ~np.isfinite(value) | (np.abs(value - expected) > allowance)).mean() > allowed:
        where = f"at h={float(h[bad][0]):.6g} it is {float(value[bad][0]):.6g}, differences of phi give"
        raise InputError(f"{slope.what} by autograd is wrong: {where} {float(expected[bad][0]):.6g}.")


def _slopes(slope: _Checked, breaks: tuple[float, ...]) -> tuple[float, ...] | None:
    """The slopes of a piecewise-linear function; None for any other."""
    edges, rates = np.array([-1e4, *breaks, 1e4]), []
    for low, high in pairwise(edges):
        margin, inside = 1e-9 * max(1.0, abs(low), abs(high)), _scan_points()
        inside = np.concatenate([inside[(inside > low) & (inside < high)], np.linspace(low + margin, high - margin, 9)])
        found = slope(inside)
        if not np.isfinite(found).all() or np.ptp(found) > 1e-12 * np.abs(found).max():
            return None
        rates.append(float(found[0]))
    return tuple(rates)


def _jumps(phi: _Checked, slope: _Checked, breaks: tuple[float, ...]) -> bool:
    """Whether phi itself, not only its slope, jumps at one of the breaks."""
    points = np.array(breaks)
    margin = 1e-9 * np.maximum(1.0, np.abs(points))
    gaps = np.abs(phi(points + margin) - phi(points - margin))
    steepest = 1 + np.maximum(np.abs(slope(points + margin)), np.abs(slope(points - margin)))
    return bool((gaps > 4 * margin * steepest).any())


def _scan_points() -> Array:
    """Where a function is evaluated: every 0.01 out to 12, then ever wider out to 10,000; never on a round number."""
    near, far = np.arange(-1200, 1200) * 0.01 + 0.00317, np.geomspace(12.0031, 1e4, 400)
    return np.concatenate([-far[::-1], near, far])


def _find_breaks(function: Callable[[Any], Array], derivative: Callable[[Any], Array], label: str) -> tuple[float, ...]:
    """The points where phi or phi' jumps, to about 14 digits, increasing; more than 200 are an error."""

    def look(h: Array) -> Array:
        """Value and slope at the points, shape (2, n); what is not finite counts as a huge number."""
        return np.nan_to_num(np.stack([function(h), derivative(h)]), nan=1e300, posinf=1e300, neginf=-1e300)

    marks = _scan_points()
    left, right = marks[:-1], marks[1:]
    found: list[float] = []
    while len(left):
        low, high = _close_in(look, left, right)
        found.extend([_round_between(float(a), float(b)) for a, b in zip(low, high, strict=True)])
        if len(found) > _MOST:
            text = f"{label} has more than {_MOST} break points between -10,000 and 10,000"
            raise InputError(f"{text}, or a derivative without bound; give the break points: breaks=(...).")
        # an interval may hold more than one: look again on both sides of each
        owner, gap = np.searchsorted(left, low, side="right") - 1, 4 * (high - low)
        left, right = np.concatenate([left[owner], high + gap]), np.concatenate([low - gap, right[owner]])
        order = np.argsort(left)
        left, right = left[order], right[order]
        keep = right > left
        left, right = left[keep], right[keep]
    return tuple(sorted(set(found)))


def _close_in(look: Callable[[Array], Array], left: Array, right: Array) -> tuple[Array, Array]:
    """Halve every interval again and again, keeping the half that bends more, until only jumps still bend."""
    low, high = left, right
    at_low, at_high = look(low), look(high)
    keep = _bend(low, at_low, high, at_high)[1]
    for _ in range(64):
        low, high, at_low, at_high = low[keep], high[keep], at_low[:, keep], at_high[:, keep]
        if not len(low) or (high - low <= 2e-14 * np.maximum(1.0, np.abs(low))).all():
            break
        middle = (low + high) / 2
        at_middle = look(middle)
        first, first_keep = _bend(low, at_low, middle, at_middle)
        second, second_keep = _bend(middle, at_middle, high, at_high)
        goes_left = first >= second
        low, high = np.where(goes_left, low, middle), np.where(goes_left, middle, high)
        at_low, at_high = np.where(goes_left, at_low, at_middle), np.where(goes_left, at_middle, at_high)
        keep = np.where(goes_left, first_keep, second_keep)
    # what is smooth bends a thousand times as much over a thousand times the width; a jump stays what it is
    wide = 500 * (high - low)
    around = _bend(low - wide, look(low - wide), high + wide, look(high + wide))[0]
    jumps = _bend(low, at_low, high, at_high)[0] > around / 4
    return low[jumps], high[jumps]


def _bend(low: Array, at_low: Array, high: Array, at_high: Array) -> tuple[Array, NDArray[np.bool_]]:
    """How much phi bends or jumps over each interval, and whether that is more than rounding error."""
    with np.errstate(all="ignore"):
        width, kink = high - low, np.abs(at_high[1] - at_low[1])
        jump = np.abs(at_high[0] - at_low[0] - width * (at_high[1] + at_low[1]) / 2)
        slope = 1e-3 + np.maximum(np.abs(at_high[1]), np.abs(at_low[1]))
        noise = 1e-12 * (np.abs(at_high[0]) + np.abs(at_low[0]))
        return kink + jump, (kink > _JUMP * slope) | (jump > _JUMP * slope + noise)


def _round_between(low: float, high: float) -> float:
    """The roundest number in the interval, give or take rounding, so that a break at 0.5 is 0.5."""
    middle, slack = (low + high) / 2, 2 * (high - low)
    for digits in range(13):
        if abs(round(middle, digits) - middle) <= slack:
            return round(middle, digits) + 0.0
    return middle
