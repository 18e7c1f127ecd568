"""What a law walk carries: the mean square of a random tangent at every entry, and what is known of the signal there.

A tangent's entries are uncorrelated right after a layer's input and after every weighted operation (in the mean over
the weights), and an elementwise function keeps that; so mean squares are all that has to be carried (Hayou B.1.2).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.theory.mean_field import gaussian_mean
from epoch0.tracing.graph import Op, made_activation

Array = NDArray[np.float64]
Signal = Literal["known", "gaussian", "mixed", "other"]

SAMPLE = 1 << 17  # at most about this many entries are looked at for the spread over units
LOCAL = 32  # with as many units at each place, or more, the variance there decides; else that of the whole example
LIKE = 256  # units with this many weights or more have the same variance, within a percent
FEWEST, A_DECADE = 8, 5  # variances at which a smooth mean is computed; a cubic spline in log q is between them
STEEP = 12.0  # of its logarithm, unless that changes by more from one to the next
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class NoLaw(Exception):
    """An operation has no law; the message is the reason in a few words."""


@dataclass(frozen=True, eq=False)
class Flow:
    """One tensor of the walk."""

    square: Tensor  # mean square of the tangent at each entry, relative to the layer's input; the tensor's own shape
    signal: Signal  # "known": made of the input without weights; "gaussian": by weights; "mixed": a sum of both
    roots: frozenset[str]  # weights, or the input, that the tangent came from last; with other roots it is uncorrelated
    white: bool = True  # whether entries of the tangent are uncorrelated
    variance: float = 0.0  # relative variance that finite width leaves to the mean of ``square``
    units: int | None = None  # dimension of the units (channels), None where a reshape lost it
    fan: int = 0  # weights into one unit of the last weighted operation, 0 before the first
    taps: int = 1  # how many of those come from one unit of its input (the size of a kernel)
    gains: Tensor | None = None  # weights of each unit relative to the mean, as its variance is; None if alike
    coupling: float = 0.0  # one over the number of entries whose mean a norm took out
    known: Tensor | None = None  # the known part of a mixed signal
    random: Array | None = None  # variance of its Gaussian part, shape (examples,) or (1,)

    def moved(self, square: Tensor, **changed: Any) -> "Flow":
        """What is carried after something that moves or scales entries: a mixture loses its parts."""
        signal = "other" if self.signal == "mixed" else self.signal
        return replace(self, square=square, signal=signal, known=None, random=None, **changed)


@dataclass(frozen=True, eq=False)
class Chain:
    """A tensor that is, entry by entry, a function of another: activations, powers, products with itself."""

    base: int  # node of that other tensor
    flow: Flow  # what was carried there
    value: Tensor
    function: Callable[[Tensor], Tensor]
    key: object  # the same for the same function; None if it is another one in each place
    name: str  # of the function
    activation: Activation | None = None  # the activation it is, where that is known already


def through(flow: Flow, value: Tensor, rule: Activation, examples: int) -> Flow:
    """What is carried after an activation: times E phi'(h)^2, h the signal."""
    if flow.signal == "other":
        raise NoLaw("activation of a signal that is neither Gaussian nor given")
    if flow.signal == "known":
        slopes = torch.from_numpy(rule.derivative(value.detach().double().cpu().numpy()) ** 2)
        return replace(flow, square=flow.square * slopes.to(flow.square))
    if not math.isfinite(float(value.detach().double().square().mean())):
        raise NoLaw("numbers overflow")
    if flow.signal == "mixed":
        factor = _mixed_means(flow, rule, examples, value.dim())
    else:
        q = _variances(value, flow.units, examples)
        if flow.gains is not None and not rule.homogeneous and flow.fan < LIKE:
            q = q * np.asarray(flow.gains.double().cpu())
        factor = torch.from_numpy(_means(rule, q))
    after = flow.square * factor.to(flow.square)
    if not bool(after.isfinite().all()):
        raise NoLaw("numbers overflow")
    left = _spread(rule, value, flow, after)
    if not rule.homogeneous:  # sums of few weights, and values normalised with few others, are not quite Gaussian
        left += (flow.fan**-2 if flow.fan else 0.0) + flow.coupling**2
    return replace(flow, square=after, signal="other", variance=flow.variance + left, known=None, random=None)


def _variances(value: Tensor, units: int | None, examples: int) -> Array:
    """Mean square over the units, of each example or of each place; dimensions kept, as 1 where the mean was taken."""
    h = value.detach().double()
    if units is not None and h.shape[units] >= LOCAL and h.dim() > 2:
        q = h.square().mean(units, keepdim=True)
    elif h.dim() > 1 and h.shape[0] == examples:
        q = h.square().mean(tuple(range(1, h.dim())), keepdim=True)
    else:
        q = h.square().mean().reshape((1,) * h.dim())
    return np.asarray(q.cpu())


def _slope(rule: Activation, power: int, q: Array) -> Array:
    """E phi'(sqrt(q) Z)^power for each variance, in the shape of q."""
    if rule.homogeneous and rule.slopes is not None:  # half of the inputs are on each side of the break at 0
        return np.full(q.shape, np.mean(np.power(rule.slopes, power)))
    return np.asarray(gaussian_mean(lambda h: rule.derivative(h) ** power, q, rule.breaks))


def _means(rule: Activation, q: Array) -> Array:
    """E phi'(sqrt(q) Z)^2 for each variance, in the shape of q."""
    if rule.homogeneous or q.size <= FEWEST:
        return _slope(rule, 2, q)
    low, high = float(q.min()), float(q.max())
    start = max(low, 1e-12 * high)
    top = float(_slope(rule, 2, np.array(high)))  # where phi oscillates too fast, or overflows, it does so here
    if not high > 0 or high / start < 1 + 1e-9 or not math.isfinite(top):
        return np.full(q.shape, top)
    grid = np.geomspace(start, high, FEWEST + math.ceil(A_DECADE * math.log10(high / start)))
    from scipy.interpolate import make_interp_spline

    at, means = np.log(grid), _slope(rule, 2, grid)
    wanted = np.log(np.maximum(q, start))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(means)
        steep = not np.abs(np.diff(logs)).max() < STEEP  # a mean that rises from nothing, near which a spline swings
    if steep:
        return np.asarray(np.maximum(make_interp_spline(at, means)(wanted), 0.0))
    return np.asarray(np.exp(make_interp_spline(at, logs)(wanted)))


def _mixed_means(flow: Flow, rule: Activation, examples: int, dims: int) -> Tensor:
    """E phi'(k + sqrt(q) Z)^2 averaged over the known entries k of each example."""
    assert flow.known is not None and flow.random is not None
    known = flow.known.detach().double()
    rows = examples if known.shape[0] == examples else 1
    flat = known.reshape(rows, -1)
    keep = max(1, flat.shape[1] * rows * len(_NODES) // (16 * SAMPLE))
    k = np.asarray(flat[:, ::keep].cpu())
    scale = np.sqrt(np.broadcast_to(flow.random, (rows,)))[:, None]
    if rule.slopes is not None:
        from scipy.special import ndtr

        with np.errstate(divide="ignore", invalid="ignore"):
            edges = [ndtr(np.where(scale > 0, (b - k) / scale, np.where(k > b, -np.inf, np.inf))) for b in rule.breaks]
        levels = [np.zeros_like(k), *edges, np.ones_like(k)]
        means = sum(s**2 * (b - a) for s, a, b in zip(rule.slopes, levels[:-1], levels[1:], strict=True))
        factor = np.asarray(means).mean(axis=1)
    else:
        factor = np.zeros(rows)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            factor += weight * (rule.derivative(k + scale * node) ** 2).mean(axis=1)
    return torch.from_numpy(factor).reshape(rows, *[1] * (dims - 1))


def _by_unit(value: Tensor, units: int | None) -> Array:
    """Entries as (units, places and examples), places thinned out evenly; units in the last dimension if unknown."""
    flat = value.detach().movedim(-1 if units is None else units, 0).flatten(1) if value.dim() > 1 else value[None]
    keep = max(1, flat.numel() // SAMPLE)
    return np.asarray(flat[:, ::keep].double().cpu())


def _spread(rule: Activation, value: Tensor, before: Flow, after: Tensor) -> float:
    """Relative variance of the mean over units of phi'(h)^2 times what came in, from how units differ from their law.

    One unit more is counted that differs as much as single entries do, here or in the law, so that few units are not
    taken for alike; and all units do where it is not known which entries belong to one.
    """
    values, squares, law = (_by_unit(tensor, before.units) for tensor in (value, before.square, after))
    if not law.mean() > 0:
        return 0.0
    rest = rule.derivative(values) ** 2 * squares - law
    q, count = float((values**2).mean()), len(rest)
    fourth, second = (float(_slope(rule, power, np.array(q))) for power in (4, 2))
    entries = max(float(rest.var()), (fourth - second**2) * float(squares.mean()) ** 2)
    units = float(rest.mean(axis=1).var()) * count if before.units is not None else count * entries
    return (units + entries) / count**2 / float(law.mean()) ** 2


def chained(event: Op, links: Sequence[Chain]) -> Chain | None:
    """The output of an operation as a function of one number of an earlier tensor; None if it is no such function."""
    if event.call is None or event.results != 1:
        return None
    base, of_its_own = links[0], event.name == "prelu" or event.call.key is None
    if any(link.base != base.base for link in links) or (event.rule is None and of_its_own):
        return None
    call, parts = event.call, dict(zip(event.inputs, (link.function for link in links), strict=True))

    def function(h: Tensor) -> Tensor:
        result: Tensor = call({node: part(h.clone()) for node, part in parts.items()})
        return result

    alone = len(links) == 1 and not base.name
    order = tuple(event.inputs.index(slot.node) for slot in call.slots)  # a - b is not b - a
    key = (event.rule, call.key, order, *(link.key for link in links))
    name = event.name if alone or not base.name else f"{base.name}, {event.name}"
    return replace(base, function=function, key=key, name=name, activation=event.rule if alone else None)


def worked_out(chain: Chain, examples: int) -> Flow:
    """What is carried after a function of one number."""
    rule, flow = chain.activation or made_activation(chain.name, chain.key, chain.function), chain.flow
    if rule is None:
        raise NoLaw(f"{chain.name.replace('_', ' ')} is no activation that a mean can be taken of")
    if rule.homogeneous and rule.slopes is not None and len(rule.slopes) == 1:  # multiplication by a number
        factor = rule.slopes[0]
        random = None if flow.random is None else flow.random * factor**2
        known = None if flow.known is None else flow.known * factor
        return replace(flow, square=flow.square * factor**2, known=known, random=random)
    try:
        return through(flow, chain.value, rule, examples)
    except InputError as error:
        raise NoLaw(f"{chain.name.replace('_', ' ')} has no mean square slope here") from error
