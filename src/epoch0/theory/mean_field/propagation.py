"""Variance, correlation and gradient layer by layer through wide networks of four architectures (Hayou 2021, B.1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0.activations import Activation, get
from epoch0.arguments import Correlation, Density, Depth, Std, Variance, checked
from epoch0.errors import InputError
from epoch0.results import Result
from epoch0.theory.checks import check_continuous
from epoch0.theory.mean_field.correlations import mean_at

Array = NDArray[np.float64]
ARCHITECTURES = ("dense", "convolutional", "residual", "stable")

CRITICAL_FACTOR = 10.0
"""A network counts as critical while the gradient's variance changes by less than this over the depth."""

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(10)


@dataclass(frozen=True)
class Propagation(Result):
    """What happens to two inputs on their way through a network, and to a gradient on its way back.

    ``q``, (depth + 1, ...), is the variance of the pre-activation: q[0] as given, q[l] after l layers; for
    "convolutional" the positions follow. ``c`` is the correlation of the two inputs and ``gap`` 1 - c with its relative
    precision, as q, or None. ``chi``, (depth, ...), is the gain of each layer, ``gradient``, as q, the variance of a
    gradient at the pre-activations of layer l relative to that at the end. ``log_gain`` is the log of the product of
    the gains (for positions: of the mean of gradient[0]), ``phase`` "ordered" (it is below -log 10), "critical" or
    "chaotic" (above log 10): by the whole depth, which decides whether it trains.
    """

    q: Array
    c: Array | None
    gap: Array | None
    chi: Array
    gradient: Array
    log_gain: float
    phase: str
    architecture: str

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer, from 0 on; means over positions."""

        def mean(one: Array) -> list[float]:
            return [float(layer.mean()) for layer in one]

        columns: dict[str, list[Any]] = {"layer": list(range(len(self.q))), "q": mean(self.q)}
        if self.c is not None:
            columns["c"] = mean(self.c)
        columns |= {"chi": [*mean(self.chi), math.nan], "gradient": mean(self.gradient)}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def __str__(self) -> str:
        depth = len(self.q) - 1
        end = f"q {float(np.mean(self.q[0])):.6g} -> {float(np.mean(self.q[-1])):.6g}"
        if self.c is not None:
            end += f", c {float(np.mean(self.c[0])):.6g} -> {float(np.mean(self.c[-1])):.6g}"
        return (
            f"{self.architecture}, {depth} layers: {self.phase}; {end}; a gradient changes by "
            f"{math.exp(min(self.log_gain / 2, 700.0)):.4g} in norm going back"
        )


@checked
def propagate(
    activation: str | Activation | Callable[..., Any],
    weight_std: Std,
    bias_std: Std,
    depth: Depth,
    *,
    q: Variance = 1.0,
    c: Correlation | None = None,
    density: Density = 1.0,
    architecture: Literal["dense", "convolutional", "residual", "stable"] = "dense",
    kernel_size: int | tuple[int, ...] | None = None,
) -> Propagation:
    """Carry q and c of a pre-activation through ``depth`` layers, and a gradient back.

    >>> found = propagate("relu", 2**0.5, 0.0, 3, c=0.5)
    >>> found.q, found.c.round(4), found.gradient                                      # shape (4,)
    (array([1., 1., 1., 1.]), array([0.5   , 0.609 , 0.6839, 0.7381]), array([1., 1., 1., 1.]))

    ``"dense"``: q' = bias_std^2 + weight_std^2 E phi^2. ``"convolutional"``: the same averaged over the window of a
    circular convolution, position by position (both inputs have the variances q). ``"residual"``: y + F(y), so q' = q
    + bias_std^2 + weight_std^2 E phi^2 and chi = 1 + weight_std^2 E phi'^2. ``"stable"``: y + F(y) / sqrt(depth).

    ``depth`` >= 0 counts layers or blocks; ``q`` is the variance of the first pre-activation, for "convolutional" over
    positions (1-D or 2-D), ``c`` the correlation there of two inputs, and ``kernel_size`` the odd width of the window,
    one number or one a direction. An InputError names what is out of range, or the layer where q exceeds float64.

    Source: Hayou et al. 2021, B.1 and appendix H (density); the convolution as in Xiao et al. 2018.
    """
    rule = get(activation)
    check_continuous(rule)
    start, gap = _start(q, c, architecture)
    positions = architecture == "convolutional"
    widths = _window(kernel_size, start.ndim, architecture)
    share = 1 / max(depth, 1) if architecture == "stable" else 1.0
    skip = 1.0 if architecture in ("residual", "stable") else 0.0
    weight, bias = density * weight_std**2 * share, bias_std**2 * share
    qs, gaps, gains = [start], [gap], []
    for layer in range(depth):
        now, apart = qs[-1], gaps[-1]
        one, none = np.ones_like(now), np.zeros_like(now)
        # leaving the range of floats is said once, in words, below
        with np.errstate(over="ignore", invalid="ignore"):
            gain = skip + weight * mean_at(rule, now, now, one, none, True)
            after = skip * now + bias + weight * _averaged(mean_at(rule, now, now, one, none, False), widths)
        if not (np.isfinite(after) & np.isfinite(gain)).all():
            raise InputError(f"q overflows float64 in layer {layer + 1}; use fewer layers or a smaller weight_std.")
        gains.append(gain)
        if apart is not None:
            apart = skip * now * apart + weight * _averaged(_lost(rule, now, apart), widths)
            gaps.append(np.clip(apart / np.where(after > 0, after, 1.0), 0.0, 2.0))
        else:
            gaps.append(None)
        qs.append(after)
    back = [np.ones_like(start)]
    with np.errstate(over="ignore"):  # a gradient that explodes past the largest float is infinite
        for gain in reversed(gains):
            straight = skip * back[-1] if skip else 0.0
            back.append((gain - skip) * _averaged(back[-1], widths) + straight)
    gradient = np.stack(back[::-1])
    chi = np.stack(gains) if gains else np.zeros((0, *start.shape))
    with np.errstate(divide="ignore"):
        total = float(np.log(gradient[0].mean()) if positions else np.log(chi).sum())
    edge = math.log(CRITICAL_FACTOR)
    phase = "ordered" if total < -edge else "chaotic" if total > edge else "critical"
    found = [np.stack(qs), chi, gradient] + ([] if c is None else [np.stack([one for one in gaps if one is not None])])
    # a network without positions was carried as one of a single position
    variances, chi, gradient, *apart_too = found if positions else [one[:, 0] for one in found]
    kept = apart_too[0] if apart_too else None
    correlation = None if kept is None else 1 - kept
    return Propagation(variances, correlation, kept, chi, gradient, total, phase, architecture)


def _start(q: ArrayLike, c: ArrayLike | None, architecture: str) -> tuple[Array, Array | None]:
    """The first variances and gaps, of one shape."""
    start = np.asarray(q, dtype=np.float64)
    if not start.size:
        raise InputError(f"q has shape {start.shape}; give one variance or more.")
    if c is None:
        shape, gap = start.shape, None
    else:
        gap = np.asarray(1 - np.asarray(c, dtype=np.float64))
        try:
            shape = np.broadcast_shapes(start.shape, gap.shape)
        except ValueError:
            raise InputError(f"q of shape {start.shape} and c of shape {gap.shape} do not go together.") from None
        gap = np.asarray(np.clip(np.broadcast_to(gap, shape), 0.0, 2.0))
    if architecture == "convolutional":
        if len(shape) not in (1, 2):
            raise InputError(f"q and c of shape {shape}; a convolutional network needs one or two axes of positions.")
    elif shape:
        raise InputError(f"q and c of shape {shape}; only architecture='convolutional' has positions, give numbers.")
    else:
        shape, gap = (1,), None if gap is None else gap.reshape(1)
    return np.array(np.broadcast_to(start, shape)), gap


def _window(kernel_size: int | tuple[int, ...] | None, directions: int, architecture: str) -> tuple[int, ...]:
    """Width of the window in each direction; nothing for networks without positions."""
    if architecture != "convolutional":
        if kernel_size is not None:
            raise InputError(f"kernel_size={kernel_size!r} has no meaning for architecture={architecture!r}.")
        return ()
    widths = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * directions
    odd = (w for w in widths if isinstance(w, int) and not isinstance(w, bool))
    found = tuple(width for width in odd if width > 0 and width % 2 == 1)
    if len(found) != directions or len(widths) != directions:
        raise InputError(f"kernel_size={kernel_size!r}; it must be an odd number >= 1, or one for each direction.")
    return found


def _averaged(values: Array, widths: tuple[int, ...]) -> Array:
    """Mean over the circular window around each position."""
    for axis, width in enumerate(widths):
        steps = range(-(width // 2), width // 2 + 1)
        values = np.mean([np.roll(values, step, axis) for step in steps], axis=0)
    return values


def _lost(rule: Activation, q: Array, gap: Array) -> Array:
    """E phi^2 - E phi(h1) phi(h2) at equal variances, without cancellation where the inputs are close."""
    sine, one, none = np.sqrt(gap * (2 - gap)), np.ones_like(q), np.zeros_like(q)
    far = mean_at(rule, q, q, one, none, False) - mean_at(rule, q, q, 1 - gap, sine, False)
    close = np.asarray((gap < 1e-3) & (gap > 0))
    if close.any():
        # the integral of its slope over the angle (Price's theorem)
        angle = _angle(gap[close])[:, None] * (_POINTS + 1) / 2
        variance = np.broadcast_to(q[close][:, None], angle.shape)
        slope = mean_at(rule, variance, variance, np.cos(angle), np.sin(angle), True)
        far = np.array(far)
        far[close] = q[close] * (slope * np.sin(angle) * _WEIGHTS / 2).sum(axis=1) * _angle(gap[close])
    return np.asarray(np.where(gap > 0, far, 0.0))


def _angle(gap: Array) -> Array:
    """The angle between two inputs, from 1 - c."""
    return np.asarray(2 * np.arcsin(np.sqrt(gap / 2)))
