"""The gain that each layer should have by its weights: the law of a random tangent through it (Hayou B.1.2).

One more run of the model, in which a layer's operations are walked with the mean square of a random tangent at every
entry: through weights by their squares, through activations by E phi'(sqrt(q) Z)^2 at the measured q, through norms at
the measured statistics. What has no law says so.

Every rule is exact for tangents with uncorrelated entries, as they are right after a layer's input and after every
weighted operation (in the mean over the weights), which elementwise functions keep. Batch norm with the statistics of
the batch takes two directions out of each channel's tangent, the mean and the signal itself, and multiplies the rest by
gamma^2/(variance + eps); the other norms do so over their groups (Yang et al. 2019).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.theory.checks import Array
from epoch0.theory.mean_field import gaussian_mean
from epoch0.tracing import operations
from epoch0.tracing.graph import FunctionCall, Op, Slot, made_activation
from epoch0.tracing.layers import Layer, segments
from epoch0.tracing.tape import Change, Tape

Signal = Literal["known", "gaussian", "mixed", "other"]

SAMPLE = 1 << 17  # at most about this many entries are looked at for the spread over units
LOCAL = 32  # with as many units at each place, or more, the variance there decides; else that of the whole example
LIKE = 256  # units with this many weights or more have the same variance, within a percent
FEWEST, A_DECADE = 8, 8  # variances at which a smooth mean is computed; a cubic spline in log q is between them
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class NoLaw(Exception):
    """An operation has no law; the message is the reason in a few words."""


@dataclass(frozen=True, eq=False)
class Flow:
    """A random tangent at one tensor of the walk."""

    square: Tensor  # mean square of the tangent at each entry, relative to the layer's input; the tensor's own shape
    signal: Signal  # "known": made of the input without weights; "gaussian": by weights; "mixed": a sum of both
    roots: frozenset[str]  # weights, or the input, that the tangent came from last; with other roots it is uncorrelated
    white: bool = True  # whether entries of the tangent are uncorrelated
    variance: float = 0.0  # relative variance that finite width leaves to the mean of ``square``
    units: int | None = None  # dimension of the units (channels), None where a reshape lost it
    fan: int = 0  # weights into one unit of the last weighted operation, 0 before the first
    taps: int = 1  # how many of those come from one unit of its input (the size of a kernel)
    gains: Tensor | None = None  # weights of each unit relative to the mean, as its variance is; None if equal
    coupling: float = 0.0  # one over the number of entries whose mean a norm took out
    known: Tensor | None = None  # the known part of a mixed signal
    random: Array | None = None  # variance of its Gaussian part, shape (examples,) or (1,)

    def moved(self, square: Tensor, **changed: Any) -> "Flow":
        """The flow after an operation that moves or scales entries: a mixture loses its parts."""
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
    """The flow after an activation: times E phi'(h)^2, h the signal."""
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
    over = tuple(range(1 if h.dim() > 1 and h.shape[0] == examples else 0, h.dim()))
    if units is not None and h.shape[units] >= LOCAL and h.dim() > 2:
        over = (units,)
    return np.asarray(h.square().mean(over, keepdim=True).cpu())


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

    spline = make_interp_spline(np.log(grid), _slope(rule, 2, grid))
    return np.asarray(np.maximum(spline(np.log(np.maximum(q, start))), 0.0))


def _mixed_means(flow: Flow, rule: Activation, examples: int, dims: int) -> Tensor:
    """E phi'(k + sqrt(q) Z)^2 averaged over the known entries k of each example."""
    assert flow.known is not None and flow.random is not None
    known = flow.known.detach().double()
    rows = examples if known.shape[0] == examples else 1
    flat = known.reshape(rows, -1)
    k = np.asarray(flat[:, :: max(1, flat.shape[1] * rows * len(_NODES) // (16 * SAMPLE))].cpu())
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
    return np.asarray(flat[:, :: max(1, flat.numel() // SAMPLE)].double().cpu())


def _spread(rule: Activation, value: Tensor, before: Flow, after: Tensor) -> float:
    """Relative variance of the mean over units of phi'(h)^2 times what came in, from how units differ from their law.
    One unit more is counted that differs as much as single entries do, here or in the law, so that few units are not
    taken for equal; and all units do where it is not known which entries belong to one.
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


def flow_after(chain: Chain, examples: int) -> Flow:
    """The flow after a function of one number."""
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


@dataclass(frozen=True)
class PredictedGain:
    """What the law says about one layer."""

    predicted: float | None  # expected chi, None where there is no law
    error: float  # standard deviation of chi around it that a finite width leaves
    reason: str  # why there is no law; empty where there is one


class Walk:
    """The law of each layer, worked out while the model runs, from what is carried at each tensor still to be used."""

    def __init__(self, tape: Tape, layers: Sequence[Layer]) -> None:
        self.tape, self.examples = tape, len(tape.x)
        self.events = [event for _, _, piece in segments(tape) for event in piece]
        self.ends = {layer.output for layer in layers}
        self.made_by = {node: event for event in self.events for node in event.outputs}
        self.last_use = {node: place for place, event in enumerate(self.events) for node in event.inputs}
        self.place = {id(event): place for place, event in enumerate(self.events)}
        self.flows: dict[int, Flow | Chain | str] = {}
        self.values: dict[int, Tensor] = {}
        self.found: list[PredictedGain] = []

    def changes(self) -> dict[int, Change]:
        """Hooks for each tensor of the run, without gradients; nothing is replaced."""
        return {0: partial(self._start, 0), **{node: partial(self._arrive, node) for node in self.made_by}}

    def _arrive(self, node: int, tensor: Tensor) -> None:
        event = self.made_by[node]
        if node not in self.flows:  # carry everything through the operation, or note why that cannot be done
            outputs = event.outputs[: max(event.results, 1)]
            try:
                if len(flows := self._through(event)) != len(outputs):  # results of which some do not depend on it
                    raise NoLaw(in_words(event.name))
                self.flows.update(zip(outputs, flows, strict=True))
            except NoLaw as reason:
                self.flows.update(dict.fromkeys(outputs, str(reason)))
            self.flows.update(dict.fromkeys(event.outputs[len(outputs) :], "a tensor changed under another name"))
        if node in self.ends:
            self._finish(node)
            self._start(node, tensor)
        else:
            self.values[node] = tensor.clone() if node in self.tape.overwritten else tensor
        place = self.place[id(event)]
        for used in [n for n in self.values if self.last_use.get(n, -1) <= place]:
            del self.values[used]
            if used not in self.ends:
                self.flows[used] = ""

    def _start(self, node: int, tensor: Tensor) -> None:
        self.flows = {node: Flow(torch.ones_like(tensor), "known", frozenset({"input"}))}
        self.values = {node: tensor.clone() if node in self.tape.overwritten else tensor}

    def _finish(self, node: int) -> None:
        try:
            flow = self._resolved(node)
            if not math.isfinite(predicted := float(flow.square.double().mean())):
                raise NoLaw("numbers overflow")
            self.found.append(PredictedGain(predicted, predicted * math.sqrt(flow.variance), ""))
        except NoLaw as reason:
            self.found.append(PredictedGain(None, math.nan, str(reason)))

    def _through(self, event: Op) -> Sequence[Flow | Chain]:
        name, inputs = event.name, event.inputs
        for node in inputs:
            if isinstance(reason := self.flows.get(node, "a tensor of another layer"), str):
                raise NoLaw(reason)
        if event.index < 0:
            raise NoLaw(f"code that cannot be followed ({name})")
        one, kind = inputs[0] if len(inputs) == 1 else None, event.meaning.kind
        if event.meaning.elementwise or event.meaning.arithmetic:
            links = [self._link(node) for node in inputs]
            base = self.tape.nodes[links[0].base].shape
            if self.tape.nodes[event.outputs[0]].shape == base and (chain := chained(event, links)) is not None:
                return [chain]
            if one is not None:
                if name == "prelu":
                    raise NoLaw("a slope for each channel")
                return [scaled(event, self._resolved(one))]
            if kind == "sum" and len(inputs) == 2:
                return [added(event, [self._resolved(node) for node in inputs], [self.values[node] for node in inputs])]
            raise NoLaw("a product of two signals" if kind in ("product", "quotient") else in_words(name))
        if kind == "join":
            return [joined(event, {node: self._resolved(node) for node in inputs})]
        if one is None:
            raise NoLaw("a product of two signals" if event.meaning.weighted and not event.kind else in_words(name))
        return linear(event, self._resolved(one), self.values[one], self.tape.batch_norm)

    def _link(self, node: int) -> Chain:
        if isinstance(flow := self.flows[node], Chain):
            return flow
        assert isinstance(flow, Flow)
        return Chain(node, flow, self.values[node], lambda h: h, "h", "")

    def _resolved(self, node: int) -> Flow:
        """The flow at a tensor, any function of one number resolved."""
        if isinstance(flow := self.flows[node], str):
            raise NoLaw(flow)
        if isinstance(flow, Chain):
            flow = self.flows[node] = flow_after(flow, self.examples)
        return flow


def in_words(name: str) -> str:
    """The name of an operation in a reason."""
    if name in ("multi_head_attention_forward", "scaled_dot_product_attention"):
        return "attention"
    return "max pool" if "max_pool" in name else "indexing" if name == "getitem" else name.replace("_", " ")


def linear(op: Op, flow: Flow, value: Tensor, batch_norm: str) -> Sequence[Flow]:
    """An operation on one tensor that is linear, or linear at measured statistics; ``value`` is the tensor."""
    kind = op.meaning.kind
    if op.kind:
        return [weighted(op, flow)]
    if kind == "norm":
        return [normed(op, flow, value, batch_norm)]
    if kind in operations.MOVES:
        return moved(op, flow, max(op.results, 1))
    if kind in ("repeat", "resample"):  # squares are copied too, but entries are no longer uncorrelated
        call = call_of(op)
        if kind == "resample" and op.given.get("mode", "nearest") != "nearest":
            raise NoLaw("interpolation")
        return [flow.moved(call({op.inputs[0]: flow.square}), white=False, gains=None)]
    if kind == "pad":
        return [padded(op, flow)]
    if kind == "average" or op.name == "sum":
        return [averaged(op, flow)]
    raise NoLaw(in_words(op.name))


def weighted(op: Op, flow: Flow) -> Flow:
    """Linear map or convolution: the tangent's squares through the squared weights."""
    call, given = call_of(op), op.given
    bias, weight = given.get("bias"), given.get("weight")
    if any(constant.is_complex() for constant in call.constants()):
        raise NoLaw("complex weights")
    if op.name == "linear" or op.kind == "convolution":
        if not isinstance(given["input"], Slot) or not isinstance(weight, Tensor):
            raise NoLaw("weights that are no constants")
        across = "conv_transpose" in op.name
        fan = weight.shape[0] // given.get("groups", 1) * weight[0, 0].numel() if across else weight[0].numel()
        squares = op.with_arguments(bias=None)({op.inputs[0]: flow.square}, torch.square)
    elif op.kind == "linear" and len(call.constants()) == (1 if bias is None else 2) and not call.kwargs:
        squares = call({op.inputs[0]: flow.square}, lambda c: torch.zeros_like(c) if c is bias else c.square())
        last = call.constants()[-1]
        stack = op.name in ("matmul", "mm") and last is weight and last.dim() > 1  # of matrices, perhaps
        fan = last.shape[-2] if stack else math.prod(last.shape[:-1])
    else:
        raise NoLaw(op.name if op.kind == "linear" else op.kind)
    units, taps = (1, call.constants()[0][0, 0].numel()) if op.kind == "convolution" else (-1, 1)
    roots, gains = frozenset(op.weights), _gains(squares, units)
    return Flow(squares, "gaussian", roots, True, flow.variance, units, max(fan, 1), taps, gains)


def _gains(squares: Tensor, units: int) -> Tensor | None:
    """Squares of each unit over their mean; None where units are equal."""
    each = squares.double().mean([dim for dim in range(squares.dim()) if dim != units % squares.dim()], keepdim=True)
    mean, equal = each.mean(), not bool((each != each.flatten()[0]).any())
    return each / mean if not equal and bool(mean > 0) and bool(mean.isfinite()) else None


def moved(op: Op, flow: Flow, outputs: int) -> list[Flow]:
    """Reshapes, permutations, slices: the same call on the squares."""
    if len(squares := operations.tensors_in(call_of(op)({op.inputs[0]: flow.square.clone()}))) != outputs:
        raise NoLaw(op.name)
    same = op.meaning.kind == "same"
    units = flow.units if same or (squares[0].dim() == flow.square.dim() and op.name == "getitem") else None
    if flow.units == 1 and op.name == "flatten" and squares[0].dim() == 2 and math.prod(flow.square.shape[2:]) == 1:
        units = 1
    return [flow.moved(s, units=units, gains=flow.gains if same else None) for s in squares]


def padded(op: Op, flow: Flow) -> Flow:
    """Padding: the tangent of a constant is zero."""
    call, mode = call_of(op), op.given.get("mode", "constant")
    call = op.with_arguments(value=0.0) if mode == "constant" else call
    return flow.moved(call({op.inputs[0]: flow.square}), white=flow.white and mode in ("constant", "circular"))


def added(op: Op, flows: Sequence[Flow], values: Sequence[Tensor]) -> Flow:
    """A sum of two tensors whose tangents are uncorrelated: squares add."""
    a, b = flows
    if a.roots & b.roots:
        raise NoLaw("a sum of two functions of one signal")
    if "alpha" in call_of(op).kwargs:
        raise NoLaw("a sum with a factor of its own")
    squares = a.square + b.square
    signal, known, random = _sum(op, flows, values)
    pair = [float(flow.square.double().mean()) for flow in flows]
    total = sum(pair)
    variance = sum(flow.variance * part**2 for flow, part in zip(flows, pair, strict=True)) / total**2 if total else 0.0
    units = a.units if a.units is not None and squares.shape == a.square.shape else b.units
    fans, taps = [flow.fan for flow in flows if flow.fan], max(flow.taps for flow in flows)
    if total and units is not None and fans:  # what is left of their product at finite width
        variance += 4 * pair[0] * pair[1] / total**2 / (squares.shape[units] ** 2 * taps)
    both = squares, signal, a.roots | b.roots, a.white and b.white, variance, units
    return Flow(*both, max(fans, default=0), taps, None, max(flow.coupling for flow in flows), known, random)


def _sum(op: Op, flows: Sequence[Flow], values: Sequence[Tensor]) -> tuple[Signal, Tensor | None, Array | None]:
    """The signal of a sum: known plus Gaussian is a mixture that keeps its parts apart."""
    if (kinds := [flow.signal for flow in flows]) == ["gaussian", "gaussian"]:
        return "gaussian", None, None
    given = next((i for i, kind in enumerate(kinds) if kind in ("known", "mixed")), None)
    if given is None or kinds[1 - given] != "gaussian" or values[0].shape != values[1].shape:
        return "other", None, None
    base, noise = flows[given], values[1 - given].detach().double()
    q = noise.flatten(1).square().mean(1) if noise.dim() > 1 else noise.square().mean().reshape(1)
    known = values[given] if base.signal == "known" else base.known
    random = q.cpu().numpy() + (0.0 if base.random is None else base.random)
    known = -known if known is not None and given == 1 and op.name in ("sub", "subtract") else known
    return "mixed", None if known is None else known.detach(), random


def joined(op: Op, flows: Mapping[int, Flow]) -> Flow:
    """Concatenation: squares side by side."""
    squares = call_of(op)({node: flow.square for node, flow in flows.items()}, torch.zeros_like)
    every = list(flows.values())
    kinds, size = {flow.signal for flow in every}, [float(flow.square.numel()) for flow in every]
    variance = sum(flow.variance * n**2 for flow, n in zip(every, size, strict=True)) / sum(size) ** 2
    roots = frozenset[str]().union(*(flow.roots for flow in every))
    distinct = sum(len(flow.roots) for flow in every) == len(roots)
    units = every[0].units if len({flow.units for flow in every}) == 1 else None
    white, coupling = distinct and all(flow.white for flow in every), max(flow.coupling for flow in every)
    signal: Signal = "known" if kinds == {"known"} else "other"
    return Flow(squares, signal, roots, white, variance, units, coupling=coupling)


def scaled(op: Op, flow: Flow) -> Flow:
    """Multiplied, divided or shifted by a constant of each place."""
    call = call_of(op)
    if (kind := op.meaning.kind) == "sum":
        shape = call({op.inputs[0]: flow.square}).shape
        return flow.moved(flow.square.expand(shape), white=flow.white and shape == flow.square.shape)
    if kind not in ("product", "quotient"):
        raise NoLaw(op.name)
    if kind == "quotient" and not isinstance(call.args[0], Slot):
        raise NoLaw("division by a signal")
    squares = call({op.inputs[0]: flow.square}, torch.square)
    return flow.moved(squares, white=flow.white and squares.shape == flow.square.shape, gains=None)


def call_of(op: Op) -> FunctionCall:
    """The call that was recorded; what changes a constant in place has none."""
    if op.call is None:
        raise NoLaw(f"{op.name.replace('_', ' ')} that changes a constant")
    return op.call


def averaged(op: Op, flow: Flow) -> Flow:
    """Average pooling and means: the mean of k uncorrelated entries has one k-th of their mean square."""
    if not flow.white:
        raise NoLaw("average of repeated values")
    squares, overlap = call_of(op)({op.inputs[0]: flow.square}), False
    if op.name == "sum":
        count = 1.0
    elif op.name == "mean":
        count = flow.square.numel() / squares.numel()
    elif op.name.startswith("adaptive"):
        count = math.prod(flow.square.shape[2:]) / math.prod(squares.shape[2:])
        if any(a % b for a, b in zip(flow.square.shape[2:], squares.shape[2:], strict=True)):
            raise NoLaw("average pooling over windows of different sizes")
    else:
        count, widths, stride = _window(op), _many(op.given["kernel_size"]), op.given.get("stride")
        steps = widths if stride is None else _many(stride)
        overlap = any(step < width for width, step in zip(widths, steps, strict=False))
    same = squares.dim() == flow.square.dim()
    units = flow.units if same or (flow.units == 1 and squares.dim() == 2) else None
    entries = flow.square.numel() / squares.numel()
    left = (entries * flow.coupling) ** 2  # entries share the mean that a norm took out,
    if flow.taps > 1 and flow.units is not None:  # and neighbours share weights
        left += 2 * flow.taps / (flow.square.shape[flow.units] * flow.fan)
    gains, variance = flow.gains if same else None, flow.variance + left
    return flow.moved(squares / count, white=not overlap, variance=variance, units=units, gains=gains)


def _window(op: Op) -> float:
    """The number that an average pool divides by."""
    given = op.given
    fewer = any(_many(given.get("padding", 0))) and not given.get("count_include_pad", True)
    if given.get("ceil_mode") or given.get("divisor_override") or fewer:
        raise NoLaw("average pooling over windows of different sizes")
    return float(math.prod(_many(given["kernel_size"])[: int(op.name[-2])]))


def _many(size: Any) -> Sequence[int]:
    return (tuple(size) if isinstance(size, tuple | list) else (size,)) * 3


def normed(op: Op, flow: Flow, value: Tensor, batch_norm: str) -> Flow:
    """Batch, instance, layer, group and RMS norm at the measured statistics."""
    call_of(op)
    given = op.given
    if not flow.white and op.name != "batch_norm":
        raise NoLaw(f"{op.name.replace('_', ' ')} of repeated values")
    x, gamma = value.detach(), given.get("weight")
    usual = torch.finfo(x.dtype).eps if op.name == "rms_norm" else 1e-5
    eps = usual if given.get("eps") is None else float(given["eps"])
    channels, over, shape = [1, -1, *[1] * (x.dim() - 2)], tuple(range(2, x.dim())), x.shape
    scale = torch.ones(()) if gamma is None else gamma.square()
    if op.name in ("layer_norm", "rms_norm"):
        over = tuple(range(-len(given["normalized_shape"]), 0))
    elif op.name in ("batch_norm", "instance_norm", "group_norm"):
        scale = scale if gamma is None else scale.reshape(channels)
        if op.name == "group_norm":
            over, shape = (2,), x.reshape(len(x), int(given["num_groups"]), -1).shape
        elif batch_norm == "eval" and given.get("running_mean") is not None and given.get("running_var") is not None:
            return flow.moved(flow.square * (scale.to(x) / (given["running_var"].reshape(channels) + eps)))
        elif op.name == "batch_norm":
            over = (0, *over)
    else:
        raise NoLaw(op.name.replace("_", " "))
    centred, size = op.name != "rms_norm", math.prod(shape[dim] for dim in over)
    square = _normalised(x.reshape(shape), flow.square.reshape(shape), over, eps, centred).reshape(x.shape)
    # the two directions are as long as others exactly behind a dense layer; else that holds to their own order
    exact = op.name == "batch_norm" and x.dim() == 2 and flow.signal == "gaussian"
    left = 0.0 if exact else (1 / size + 1 / (flow.fan if flow.fan and op.name != "batch_norm" else size)) ** 2
    gains = None
    if gamma is not None and op.name in ("batch_norm", "instance_norm"):
        gains = _gains(gamma.double().square().reshape(channels), 1)
    coupling, variance = max(flow.coupling, 1 / size), flow.variance + left
    return flow.moved(square * scale.to(square), gains=gains, coupling=coupling, variance=variance)


def _normalised(x: Tensor, square: Tensor, over: tuple[int, ...], eps: float, centred: bool) -> Tensor:
    """Squares after a normalisation over some dimensions: J = (1/s)(I - 1 1'/n - z z'/n), z the output. Entry i of J v
    has the mean square (1/s^2)[t_i (1 - 2 (1 + z_i^2)/n) + sum_j t_j (1 + z_i z_j)^2 / n^2] when the entries of v are
    uncorrelated with mean squares t; without centring the ones fall away.
    """
    h, t, one = x.double(), square.double(), 1.0 if centred else 0.0
    n = math.prod(x.shape[dim] for dim in over)
    h = h - h.mean(over, keepdim=True) if centred else h
    variance = h.square().mean(over, keepdim=True) + eps
    z = h / variance.sqrt()
    sums = [(t * z**power).sum(over, keepdim=True) for power in range(3)]
    mixed = one * sums[0] + 2 * one * z * sums[1] + z**2 * sums[2]
    return ((t * (1 - 2 * (one + z**2) / n) + mixed / n**2) / variance).clamp(min=0).to(square.dtype)
