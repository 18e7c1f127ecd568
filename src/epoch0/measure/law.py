"""The gain that each layer should have by its weights: the law of a random tangent through it (Hayou B.1.2).

One more run of the model, in which a layer's operations are walked with the mean square of a random tangent at every
entry: through weights by their squares, through activations by E phi'(sqrt(q) Z)^2 at the measured q, through norms at
the measured statistics. What has no law says so.

Every rule is exact for tangents with uncorrelated entries. Averages over places divide squares by their number. Batch
norm with the statistics of the batch takes two directions out of each channel's tangent, the mean and the signal
itself, and multiplies the rest by gamma^2/(variance + eps); the other norms do the same over their own groups (Yang et
al. 2019).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from epoch0.measure.law_flow import Array, Chain, Flow, NoLaw, Signal, chained, worked_out
from epoch0.tracing import operations
from epoch0.tracing.graph import FunctionCall, Op, Slot
from epoch0.tracing.layers import Layer, stretches
from epoch0.tracing.tape import Change, Tape


@dataclass(frozen=True)
class Law:
    """What the law says about one layer."""

    predicted: float | None  # expected chi, None where there is no law
    error: float  # standard deviation of chi around it that a finite width leaves
    reason: str  # why there is no law; empty where there is one


class Walk:
    """The law of each layer, worked out while the model runs, from what is carried at each tensor still to be used."""

    def __init__(self, tape: Tape, layers: Sequence[Layer]) -> None:
        self.tape, self.examples = tape, len(tape.x)
        self.events = [event for _, _, piece in stretches(tape) for event in piece]
        self.ends = {layer.output for layer in layers}
        self.made_by = {node: event for event in self.events for node in event.outputs}
        self.last_use = {node: place for place, event in enumerate(self.events) for node in event.inputs}
        self.place = {id(event): place for place, event in enumerate(self.events)}
        self.flows: dict[int, Flow | Chain | str] = {}
        self.values: dict[int, Tensor] = {}
        self.found: list[Law] = []

    def changes(self) -> dict[int, Change]:
        """What to do at each tensor of the run, without gradients; nothing is replaced."""
        return {0: partial(self._start, 0), **{node: partial(self._arrive, node) for node in self.made_by}}

    def _arrive(self, node: int, tensor: Tensor) -> None:
        event = self.made_by[node]
        if node not in self.flows:  # carry everything through the operation, or note why that cannot be done
            outputs = event.outputs[: max(event.results, 1)]
            try:
                self.flows.update(zip(outputs, self._through(event), strict=True))
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
            predicted = float(flow.square.double().mean())
            if not math.isfinite(predicted):
                raise NoLaw("numbers overflow")
            self.found.append(Law(predicted, predicted * math.sqrt(flow.variance), ""))
        except NoLaw as reason:
            self.found.append(Law(None, math.nan, str(reason)))

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
                flows = [self._resolved(node) for node in inputs]
                return [added(event, flows, [self.values[node] for node in inputs])]
            raise NoLaw("a product of two signals" if kind in ("product", "quotient") else in_words(name))
        if kind == "join":
            return [joined(event, {node: self._resolved(node) for node in inputs})]
        if one is None:
            raise NoLaw("a product of two signals" if event.meaning.weighted and not event.kind else in_words(name))
        return linear(event, self._resolved(one), self.values[one], self.tape.batch_norm)

    def _link(self, node: int) -> Chain:
        flow = self.flows[node]
        if isinstance(flow, Chain):
            return flow
        assert isinstance(flow, Flow)
        return Chain(node, flow, self.values[node], lambda h: h, "h", "")

    def _resolved(self, node: int) -> Flow:
        """What is carried at a tensor, any function of one number worked out."""
        flow = self.flows[node]
        if isinstance(flow, str):
            raise NoLaw(flow)
        if isinstance(flow, Chain):
            flow = self.flows[node] = worked_out(flow, self.examples)
        return flow


def in_words(name: str) -> str:
    """What an operation is called in a reason."""
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
    bias = given.get("bias")
    if op.name == "linear" or op.kind == "convolution":
        if not isinstance(given["input"], Slot) or not isinstance(given["weight"], Tensor):
            raise NoLaw("weights that are no constants")
        squares = op.with_arguments(bias=None)({op.inputs[0]: flow.square}, torch.square)
    elif op.kind == "linear" and len(call.constants()) == (1 if bias is None else 2) and not call.kwargs:
        squares = call({op.inputs[0]: flow.square}, lambda c: torch.zeros_like(c) if c is bias else c.square())
    else:
        raise NoLaw(op.name if op.kind == "linear" else op.kind)
    fan = op.fan_in or max(1, math.prod(call.constants()[-1].shape[:-1]))
    units, taps = (1, call.constants()[0][0, 0].numel()) if op.kind == "convolution" else (-1, 1)
    roots, gains = frozenset(op.weights), _gains(squares, units)
    return Flow(squares, "gaussian", roots, True, flow.variance, units, fan, taps, gains)


def _gains(squares: Tensor, units: int) -> Tensor | None:
    """Squares of each unit over their mean; None where units are alike."""
    over = [dim for dim in range(squares.dim()) if dim != units % squares.dim()]
    each = squares.double().mean(over, keepdim=True)
    mean = each.mean()
    alike = not bool((each != each.flatten()[0]).any())
    return each / mean if not alike and bool(mean > 0) and bool(mean.isfinite()) else None


def moved(op: Op, flow: Flow, outputs: int) -> list[Flow]:
    """Reshapes, permutations, slices: the same call on the squares."""
    squares = operations.tensors_in(call_of(op)({op.inputs[0]: flow.square.clone()}))
    if len(squares) != outputs:
        raise NoLaw(op.name)
    same = op.meaning.kind == "same"
    units = flow.units if same or (squares[0].dim() == flow.square.dim() and op.name == "getitem") else None
    if flow.units == 1 and op.name == "flatten" and squares[0].dim() == 2 and math.prod(flow.square.shape[2:]) == 1:
        units = 1
    gains = flow.gains if same else None
    return [flow.moved(s, units=units, gains=gains) for s in squares]


def padded(op: Op, flow: Flow) -> Flow:
    """Padding: the tangent of a constant is zero."""
    call, mode = call_of(op), op.given.get("mode", "constant")
    call = op.with_arguments(value=0.0) if mode == "constant" else call
    white = flow.white and mode in ("constant", "circular")
    return flow.moved(call({op.inputs[0]: flow.square}), white=white)


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
    fans = [flow.fan for flow in flows if flow.fan]
    if total and units is not None and fans:  # what is left of their product at finite width
        taps = max(flow.taps for flow in flows)
        variance += 4 * pair[0] * pair[1] / total**2 / (squares.shape[units] ** 2 * taps)
    return Flow(
        squares, signal, a.roots | b.roots, a.white and b.white, variance, units, max(fans, default=0),
        max(flow.taps for flow in flows), None, max(flow.coupling for flow in flows), known, random,
    )  # fmt: skip


def _sum(op: Op, flows: Sequence[Flow], values: Sequence[Tensor]) -> tuple[Signal, Tensor | None, Array | None]:
    """What a sum is: known plus Gaussian is a mixture that keeps its parts apart."""
    kinds = [flow.signal for flow in flows]
    if kinds == ["gaussian", "gaussian"]:
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
    kinds = {flow.signal for flow in every}
    size = [float(flow.square.numel()) for flow in every]
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
    kind = op.meaning.kind
    if kind == "sum":
        shape = call({op.inputs[0]: flow.square}).shape
        white = flow.white and shape == flow.square.shape
        return flow.moved(flow.square.expand(shape), white=white)
    if kind not in ("product", "quotient"):
        raise NoLaw(op.name)
    if kind == "quotient" and not isinstance(call.args[0], Slot):
        raise NoLaw("division by a signal")
    squares = call({op.inputs[0]: flow.square}, torch.square)
    return flow.moved(squares, white=flow.white and squares.shape == flow.square.shape, gains=None)


def call_of(op: Op) -> FunctionCall:
    if op.call is None:
        raise NoLaw(f"{op.name.replace('_', ' ')} that changes a constant")
    return op.call


def averaged(op: Op, flow: Flow) -> Flow:
    """Average pooling and means: the mean of k uncorrelated entries has one k-th of their mean square."""
    if not flow.white:
        raise NoLaw("average of repeated values")
    call = call_of(op)
    squares = call({op.inputs[0]: flow.square})
    if op.name == "sum":
        count = 1.0
    elif op.name == "mean":
        count = flow.square.numel() / squares.numel()
    elif op.name.startswith("adaptive"):
        count = math.prod(flow.square.shape[2:]) / math.prod(squares.shape[2:])
        if any(a % b for a, b in zip(flow.square.shape[2:], squares.shape[2:], strict=True)):
            raise NoLaw("average pooling over windows of different sizes")
    else:
        count = _window(op)
    overlap = False
    if "avg_pool" in op.name and not op.name.startswith("adaptive"):
        widths, stride = _many(op.given["kernel_size"]), op.given.get("stride")
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
    """What an average pool divides by."""
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
            scale = scale.to(x) / (given["running_var"].reshape(channels) + eps)
            return flow.moved(flow.square * scale)
        elif op.name == "batch_norm":
            over = (0, *over)
    else:
        raise NoLaw(op.name.replace("_", " "))
    centred, size = op.name != "rms_norm", math.prod(shape[dim] for dim in over)
    square = _normalised(x.reshape(shape), flow.square.reshape(shape), over, eps, centred).reshape(x.shape)
    # the two directions are as long as others exactly behind a dense layer; else that holds to their own order
    exact = op.name == "batch_norm" and x.dim() == 2 and flow.signal == "gaussian"
    alike = flow.fan if flow.fan and op.name != "batch_norm" else size
    left = 0.0 if exact else (1 / size + 1 / alike) ** 2
    gains = None
    if gamma is not None and op.name in ("batch_norm", "instance_norm"):
        gains = _gains(gamma.double().square().reshape(channels), 1)
    coupling, variance = max(flow.coupling, 1 / size), flow.variance + left
    return flow.moved(square * scale.to(square), gains=gains, coupling=coupling, variance=variance)


def _normalised(x: Tensor, square: Tensor, over: tuple[int, ...], eps: float, centred: bool) -> Tensor:
    """Squares after a normalisation over some dimensions: J = (1/s)(I - 1 1'/n - z z'/n), z the output.

    Entry i of J v has the mean square (1/s^2)[t_i (1 - 2 (1 + z_i^2)/n) + sum_j t_j (1 + z_i z_j)^2 / n^2] when the
    entries of v are uncorrelated with mean squares t; without centring the ones fall away.
    """
    h, t, one = x.double(), square.double(), 1.0 if centred else 0.0
    n = math.prod(x.shape[dim] for dim in over)
    h = h - h.mean(over, keepdim=True) if centred else h
    variance = h.square().mean(over, keepdim=True) + eps
    z = h / variance.sqrt()
    sums = [(t * z**power).sum(over, keepdim=True) for power in range(3)]
    mixed = one * sums[0] + 2 * one * z * sums[1] + z**2 * sums[2]
    after = (t * (1 - 2 * (one + z**2) / n) + mixed / n**2) / variance
    return after.clamp(min=0).to(square.dtype)
