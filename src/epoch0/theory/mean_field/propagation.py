"""Variance, correlation and gradient layer by layer through wide networks of three architectures (Hayou 2021, B.1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from epoch0.activations import Activation
from epoch0.arguments import Density, Depth, Std, Within, checked
from epoch0.errors import InputError
from epoch0.results import Result, counted
from epoch0.theory.checks import Array, continuous
from epoch0.theory.mean_field.correlations import mean_at, pieces


@dataclass(frozen=True)
class Propagation(Result):
    """Variance and correlation of two inputs through a network, and of a gradient on its way back.

    ``q``, (depth + 1,), is the variance of the pre-activation: q[0] as given, q[l] after l layers. ``c`` is the
    correlation of the two inputs and ``gap`` 1 - c with its relative precision, as q, or None. ``chi``, (depth,), is
    the gain of each layer, ``gradient``, as q, the variance of a gradient at the pre-activations of layer l relative to
    that at the end. ``log_gain`` is the log of the product of the gains, ``phase`` "ordered" (it is below -log 10),
    "critical" or "chaotic" (above log 10): by the whole depth, which decides whether it trains.
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
        columns: dict[str, list[Any]] = {"layer": list(range(len(self.q))), "q": self.q.tolist()}
        if self.c is not None:
            columns["c"] = self.c.tolist()
        columns |= {"chi": [*self.chi.tolist(), math.nan], "gradient": self.gradient.tolist()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def __str__(self) -> str:
        depth = len(self.q) - 1
        end = f"q {self.q[0]:.6g} -> {self.q[-1]:.6g}"
        if self.c is not None:
            end += f", c {self.c[0]:.6g} -> {self.c[-1]:.6g}"
        log = self.log_gain / 2
        times = f"{math.exp(log):.4g}" if abs(log) < 700 else f"10^{log / math.log(10):.1f}"
        change = f"a gradient changes by {times} in norm going back"
        return f"{self.architecture}, {counted(depth, 'layer')}: {self.phase}; {end}; {change}"


@checked
def propagate(
    activation: str | Activation | Callable[..., Any],
    weight_std: Std,
    bias_std: Std,
    depth: Depth,
    *,
    q: Std = 1.0,
    c: Annotated[float, Within(-1 - 1e-12, 1 + 1e-12)] | None = None,
    density: Density = 1.0,
    architecture: Literal["dense", "residual", "stable"] = "dense",
) -> Propagation:
    """Carry q and c of a pre-activation through ``depth`` layers, and a gradient back.

    >>> found = propagate("relu", 2**0.5, 0.0, 3, c=0.5)
    >>> found.q, found.c.round(4), found.gradient                                      # shape (4,)
    (array([1., 1., 1., 1.]), array([0.5   , 0.609 , 0.6839, 0.7381]), array([1., 1., 1., 1.]))

    ``"dense"``: q' = bias_std^2 + weight_std^2 E phi^2, also of a convolution all of whose positions have one variance.
    ``"residual"``: y + F(y), so q' = q + bias_std^2 + weight_std^2 E phi^2 and chi = 1 + weight_std^2 E phi'^2.
    ``"stable"``: y + F(y) / sqrt(depth).

    ``depth`` >= 0 counts layers or blocks; ``q`` is the variance of the first pre-activation, ``c`` the correlation
    there of two inputs. An InputError names what is out of range, or the layer where q exceeds float64.

    Source: Hayou et al. 2021, B.1 and appendix H (density).
    """
    rule = continuous(activation)
    share = 1 / max(depth, 1) if architecture == "stable" else 1.0
    skip = 1.0 if architecture in ("residual", "stable") else 0.0
    weight, bias = density * weight_std**2 * share, bias_std**2 * share
    one, none = np.ones(1), np.zeros(1)
    qs, gains = [np.array([float(q)])], []
    gaps = [] if c is None else [np.clip(np.array([1 - float(c)]), 0.0, 2.0)]
    for layer in range(depth):
        now = qs[-1]
        # leaving the range of floats is reported once, below
        with np.errstate(over="ignore", invalid="ignore"):
            gain = skip + weight * mean_at(rule, now, now, one, none, True)
            after = skip * now + bias + weight * mean_at(rule, now, now, one, none, False)
        if not (np.isfinite(after) & np.isfinite(gain)).all():
            raise InputError(f"q overflows float64 in layer {layer + 1}; use fewer layers or a smaller weight_std.")
        gains.append(gain)
        if gaps:
            apart = skip * now * gaps[-1] + weight * _lost(rule, now, gaps[-1])
            gaps.append(np.clip(apart / np.where(after > 0, after, 1.0), 0.0, 2.0))
        qs.append(after)
    chi, gap = np.concatenate([np.zeros(0), *gains]), None if c is None else np.concatenate(gaps)
    with np.errstate(over="ignore", divide="ignore"):  # a gradient that explodes past the largest float is infinite
        gradient = np.append(np.cumprod(chi[::-1])[::-1], 1.0)
        total = float(np.log(chi).sum())
    edge = math.log(10)  # critical: the gradient's variance changes by less than a factor 10 over the depth
    phase = "ordered" if total < -edge else "chaotic" if total > edge else "critical"
    correlation = None if gap is None else 1 - gap
    return Propagation(np.concatenate(qs), correlation, gap, chi, gradient, total, phase, architecture)


def _lost(rule: Activation, q: Array, gap: Array) -> Array:
    """E phi^2 - E phi(h1) phi(h2) at equal variances, without cancellation where the inputs are close."""
    sine, one, none = np.sqrt(gap * (2 - gap)), np.ones_like(q), np.zeros_like(q)
    far = mean_at(rule, q, q, one, none, False) - mean_at(rule, q, q, 1 - gap, sine, False)
    if (close := np.asarray((gap < 1e-3) & (gap > 0))).any():
        # the integral of its slope over the angle (Price's theorem)
        angle, weight = pieces(np.multiply.outer(2 * np.arcsin(np.sqrt(gap[close] / 2)), [0, 1]), 10)
        variance = np.broadcast_to(q[close][:, None], angle.shape)
        slope = mean_at(rule, variance, variance, np.cos(angle), np.sin(angle), True)
        far = np.array(far)
        far[close] = q[close] * (slope * np.sin(angle) * weight).sum(axis=1)
    return np.asarray(np.where(gap > 0, far, 0.0))
