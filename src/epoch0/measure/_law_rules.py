"""How one operation changes the mean square of a random tangent: weights, norms, pools, sums, reshapes (Hayou B.1).

Every rule is exact for tangents with uncorrelated entries. Batch norm with the statistics of the batch takes two
directions out of each channel's tangent, the mean and the signal itself, and multiplies the rest by
gamma^2/(variance + eps).
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from epoch0.measure import _ops
from epoch0.measure._graph import Call, Op, Slot
from epoch0.measure._law_flow import Array, Flow, NoLaw, Signal

PRODUCTS = frozenset({"linear", "matmul", "mm", "bmm", "mv", "einsum"})
"""Weighted operations that are sums of a weight times an entry and nothing else, beside convolutions."""

MOVES = frozenset({
    *_ops.RESHAPES, "permute", "transpose", "t", "T", "mT", "H", "movedim", "moveaxis", "swapaxes", "swapdims", "flip",
    "fliplr", "flipud", "roll", "rot90", "getitem", "select", "narrow", "chunk", "split", "tensor_split", "unbind",
    "index_select", "view_as", "reshape_as", "ravel", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "detach",
    "identity", "float", "double", "type", "type_as", "atleast_1d", "atleast_2d", "alias",
})  # fmt: skip
"""Operations that carry entries to other places and change none."""

REPEATS = frozenset({"expand", "expand_as", "repeat", "tile", "repeat_interleave", "broadcast_to"})
JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})

Values = Mapping[int, Tensor]


def weighted(op: Op, flow: Flow) -> Flow:
    """Linear map or convolution: the tangent's squares through the squared weights."""
    call = _call(op)
    if op.name == "linear" or op.name.startswith("conv"):
        squares = _without_bias(call)({op.inputs[0]: flow.square}, torch.square)
    elif op.name in PRODUCTS and len(call.constants()) == 1:
        squares = call({op.inputs[0]: flow.square}, torch.square)
    elif op.name in ("addmm", "baddbmm", "addmv") and isinstance(call.args[0], Tensor) and len(call.args) == 3:
        offset = call.args[0]
        squares = call({op.inputs[0]: flow.square}, lambda c: c.square() if c is not offset else torch.zeros_like(c))
        if call.kwargs:
            raise NoLaw(op.name)
    else:
        raise NoLaw(op.kind if op.kind in ("attention", "recurrent", "bilinear") else op.name)
    fan = op.fan_in or max(1, math.prod(call.constants()[-1].shape[:-1]))
    units, taps = 1 if op.kind == "convolution" else -1, 1
    if op.kind == "convolution":
        weight = call.constants()[0]
        taps = weight[0, 0].numel()
    return Flow(
        squares, "gaussian", frozenset(op.weights), True, flow.variance, units, fan, taps, _gains(squares, units)
    )


def _gains(squares: Tensor, units: int) -> Tensor | None:
    over = [dim for dim in range(squares.dim()) if dim != units % squares.dim()]
    each = squares.double().mean(over, keepdim=True)
    mean = each.mean()
    return each / mean if bool(mean > 0) and bool(mean.isfinite()) else None


def _without_bias(call: Call) -> Call:
    """The call with no bias, wherever it was given; the bias is no part of a tangent."""
    if len(call.args) < 2 or not isinstance(call.args[0], Slot) or not isinstance(call.args[1], Tensor):
        raise NoLaw("weights that are no constants")
    kwargs = {key: value for key, value in call.kwargs.items() if key != "bias"}
    return Call(call.function, (*call.args[:2], *([None] if len(call.args) > 2 else []), *call.args[3:]), kwargs)


def moved(op: Op, flow: Flow, outputs: int) -> list[Flow]:
    """Reshapes, permutations, slices: the same call on the squares."""
    squares = _ops.tensors_in(_call(op)({op.inputs[0]: flow.square.clone()}))
    if len(squares) != outputs:
        raise NoLaw(op.name)
    same = op.name in ("contiguous", "clone", "to", "float", "double", "type", "type_as", "detach", "identity")
    units = flow.units if same or (squares[0].dim() == flow.square.dim() and op.name == "getitem") else None
    if flow.units == 1 and op.name == "flatten" and squares[0].dim() == 2 and _one_place(flow.square):
        units = 1
    gains = flow.gains if same else None
    return [
        replace(flow, square=s, units=units, gains=gains, known=None, random=None, signal=_kept(flow)) for s in squares
    ]


def _one_place(square: Tensor) -> bool:
    return math.prod(square.shape[2:]) == 1


def _kept(flow: Flow) -> Signal:
    return "other" if flow.signal == "mixed" else flow.signal


def repeated(op: Op, flow: Flow) -> Flow:
    """Copies of entries: squares are copied too, but entries are no longer uncorrelated."""
    call = _call(op)
    if op.name == "interpolate" and _ops.argument(call.args, dict(call.kwargs), 3, "mode", "nearest") != "nearest":
        raise NoLaw("interpolation")
    squares = call({op.inputs[0]: flow.square})
    return replace(flow, square=squares, white=False, gains=None, known=None, random=None, signal=_kept(flow))


def padded(op: Op, flow: Flow) -> Flow:
    """Padding: the tangent of a constant is zero."""
    call = _call(op)
    kwargs = dict(call.kwargs)
    mode = _ops.argument(call.args, kwargs, 2, "mode", "constant")
    if mode == "constant":
        call = Call(call.function, call.args[:2], {k: v for k, v in kwargs.items() if k == "pad"})
    squares, white = call({op.inputs[0]: flow.square}), flow.white and mode in ("constant", "circular")
    return replace(flow, square=squares, white=white, known=None, random=None, signal=_kept(flow))


def averaged(op: Op, flow: Flow) -> Flow:
    """Average pooling and means: the mean of k uncorrelated entries has one k-th of their mean square."""
    if not flow.white:
        raise NoLaw("average of repeated values")
    call = _call(op)
    squares = call({op.inputs[0]: flow.square})
    ones = call({op.inputs[0]: torch.ones_like(flow.square[:1])}) if "pool" in op.name else None
    if op.name == "sum":
        count: Tensor | float = 1.0
    elif op.name == "mean":
        count = flow.square.numel() / squares.numel()
    elif op.name.startswith("adaptive"):
        count = math.prod(flow.square.shape[2:]) / math.prod(squares.shape[2:])
        if any(a % b for a, b in zip(flow.square.shape[2:], squares.shape[2:], strict=True)):
            raise NoLaw("average pooling over windows of different sizes")
    else:
        assert ones is not None
        count = _window(call, op.name, ones)
    overlap = "avg_pool" in op.name and not op.name.startswith("adaptive") and _overlaps(call)
    same = squares.dim() == flow.square.dim()
    units = flow.units if same or (flow.units == 1 and squares.dim() == 2) else None
    signal: Signal = flow.signal if flow.signal in ("gaussian", "known") else "other"
    entries = flow.square.numel() / squares.numel()
    left = (entries * flow.coupling) ** 2  # entries share the mean that a norm took out,
    if flow.taps > 1 and flow.units is not None:  # and neighbours share weights
        left += 2 * flow.taps / (flow.square.shape[flow.units] * flow.fan)
    return replace(
        flow, square=squares / count, white=not overlap, variance=flow.variance + left, units=units, signal=signal,
        gains=flow.gains if same else None, known=None, random=None,
    )  # fmt: skip


def _pool_arguments(call: Call) -> dict[str, Any]:
    names = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    return {**dict(zip(names, call.args, strict=False)), **dict(call.kwargs)}


def _window(call: Call, name: str, ones: Tensor) -> Tensor | float:
    """What an average pool divides by."""
    given = _pool_arguments(call)
    if given.get("divisor_override"):
        return float(given["divisor_override"])
    size = given["kernel_size"]
    dims = int(name[-2])
    full = math.prod(size) if isinstance(size, tuple | list) and len(size) > 1 else _one(size) ** dims
    if given.get("ceil_mode") or (_any(given.get("padding", 0)) and not given.get("count_include_pad", True)):
        raise NoLaw("average pooling over windows of different sizes")
    return float(full)


def _one(size: Any) -> int:
    return int(size[0] if isinstance(size, tuple | list) else size)


def _any(size: Any) -> bool:
    return any(size) if isinstance(size, tuple | list) else bool(size)


def _overlaps(call: Call) -> bool:
    given = _pool_arguments(call)
    size, stride = given["kernel_size"], given.get("stride")
    if stride is None or stride in ((), []):
        return False
    pairs = zip(_many(size), _many(stride), strict=False)
    return any(step < width for width, step in pairs)


def _many(size: Any) -> Sequence[int]:
    return size if isinstance(size, tuple | list) else (size,) * 3


def normed(op: Op, flow: Flow, value: Tensor, batch_norm: str) -> Flow:
    """Batch, instance, layer, group and RMS norm at the measured statistics."""
    call = _call(op)
    try:
        bound = inspect.signature(call.function).bind(*call.args, **call.kwargs)
    except (TypeError, ValueError) as error:
        raise NoLaw(op.name.replace("_", " ")) from error
    bound.apply_defaults()
    given = bound.arguments
    if not flow.white and op.name != "batch_norm":
        raise NoLaw(f"{op.name.replace('_', ' ')} of repeated values")
    x, gamma = value.detach(), given.get("weight")
    eps = given.get("eps")
    eps = torch.finfo(x.dtype).eps if eps is None else float(eps)
    channels = [1, -1, *[1] * (x.dim() - 2)]
    if op.name in ("batch_norm", "instance_norm"):
        running = given["running_mean"] is not None and given["running_var"] is not None
        scale = torch.ones(()) if gamma is None else gamma.square().reshape(channels)
        if batch_norm == "eval" and running:
            scale = scale.to(x) / (given["running_var"].reshape(channels) + eps)
            return replace(_after_norm(flow), square=flow.square * scale)
        if op.name == "batch_norm":
            square = _grouped(x, flow.square, lambda t: t.transpose(0, 1).flatten(1), lambda t: (
                t.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)), eps)  # fmt: skip
        else:
            square = _grouped(x, flow.square, lambda t: t.flatten(2), lambda t: t.reshape(x.shape), eps)
    elif op.name == "group_norm":
        groups = int(given["num_groups"])
        scale = torch.ones(()) if gamma is None else gamma.square().reshape(channels)
        square = _grouped(
            x, flow.square, lambda t: t.reshape(x.shape[0], groups, -1), lambda t: t.reshape(x.shape), eps
        )
    elif op.name in ("layer_norm", "rms_norm"):
        last = len(given["normalized_shape"])
        scale = torch.ones(()) if gamma is None else gamma.square()
        square = _grouped(
            x, flow.square, lambda t: t.flatten(-last), lambda t: t.reshape(x.shape), eps, op.name == "layer_norm"
        )
    else:
        raise NoLaw(op.name.replace("_", " "))
    size = x.numel() // x.shape[1] if op.name == "batch_norm" else _group_size(op.name, x, given)
    # the two directions are as long as others exactly behind a dense layer; else that holds to their own order
    exact = op.name == "batch_norm" and x.dim() == 2 and flow.signal == "gaussian"
    alike = flow.fan if flow.fan and op.name != "batch_norm" else size
    left = 0.0 if exact else (1 / size + 1 / alike) ** 2
    gains = _relative(gamma, channels) if op.name in ("batch_norm", "instance_norm") else None
    after = replace(_after_norm(flow), gains=gains, coupling=max(flow.coupling, 1 / size))
    return replace(after, square=square * scale.to(square), variance=flow.variance + left)


def _relative(gamma: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    if gamma is None or not bool((gamma != gamma[0]).any()):
        return None
    squares = gamma.double().square()
    return (squares / squares.mean()).reshape(*shape)


def _group_size(name: str, x: Tensor, given: Mapping[str, Any]) -> int:
    if name == "instance_norm":
        return max(1, math.prod(x.shape[2:]))
    if name == "group_norm":
        return max(1, math.prod(x.shape[1:]) // int(given["num_groups"]))
    return math.prod(given["normalized_shape"])


def _after_norm(flow: Flow) -> Flow:
    return replace(flow, signal=_kept(flow), known=None, random=None)


def _grouped(
    x: Tensor, square: Tensor, group: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor], eps: float,
    centred: bool = True,
) -> Tensor:  # fmt: skip
    """Squares after a normalisation over the last dimension of ``group``: J = (1/s)(I - 1 1'/n - z z'/n), z the output.

    Entry i of J v has the mean square (1/s^2)[t_i (1 - 2 (1 + z_i^2)/n) + sum_j t_j (1 + z_i z_j)^2 / n^2] when the
    entries of v are uncorrelated with mean squares t; without centring the ones fall away.
    """
    h, t = group(x.double()), group(square).double()
    n, one = h.shape[-1], 1.0 if centred else 0.0
    h = h - h.mean(-1, keepdim=True) if centred else h
    variance = h.square().mean(-1, keepdim=True) + eps
    z = h / variance.sqrt()
    sums = [(t * z**power).sum(-1, keepdim=True) for power in range(3)]
    mixed = one * sums[0] + 2 * one * z * sums[1] + z**2 * sums[2]
    after = (t * (1 - 2 * (one + z**2) / n) + mixed / n**2) / variance
    return back(after.clamp(min=0).to(square.dtype))


def added(op: Op, flows: Sequence[Flow], values: Sequence[Tensor]) -> Flow:
    """A sum of two tensors whose tangents are uncorrelated: squares add."""
    a, b = flows
    if a.roots & b.roots:
        raise NoLaw("a sum of two functions of one signal")
    call = _call(op)
    alpha = call.kwargs.get("alpha", 1)
    second = b.square * float(alpha) ** 2 if isinstance(alpha, int | float) else b.square
    squares = a.square + second
    signal, known, random = _sum(flows, values, float(alpha))
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


def _sum(flows: Sequence[Flow], values: Sequence[Tensor], alpha: float) -> tuple[Signal, Tensor | None, Array | None]:
    """What a sum is: known plus Gaussian is a mixture that keeps its parts apart."""
    kinds = [flow.signal for flow in flows]
    if kinds == ["gaussian", "gaussian"]:
        return "gaussian", None, None
    given = next((i for i, kind in enumerate(kinds) if kind in ("known", "mixed")), None)
    if given is None or kinds[1 - given] != "gaussian" or values[0].shape != values[1].shape:
        return "other", None, None
    scales = (1.0, alpha)
    base, noise = flows[given], values[1 - given].detach().double() * scales[1 - given]
    q = noise.flatten(1).square().mean(1) if noise.dim() > 1 else noise.square().mean().reshape(1)
    known = values[given] if base.signal == "known" else base.known
    random = q.cpu().numpy() + (0.0 if base.random is None else base.random * scales[given] ** 2)
    return "mixed", None if known is None else known.detach() * scales[given], random


def joined(op: Op, flows: Mapping[int, Flow]) -> Flow:
    """Concatenation: squares side by side."""
    squares = _call(op)({node: flow.square for node, flow in flows.items()}, torch.zeros_like)
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


def overwritten(op: Op, flows: Mapping[int, Flow]) -> Flow:
    """A statement that puts a constant, or another tensor, in some places."""
    target, places, put = _call(op).args
    if not isinstance(target, Slot):
        raise NoLaw("a constant that is written to")
    flow = flows[target.node]
    squares = flow.square.clone()
    squares[places] = flows[put.node].square if isinstance(put, Slot) else 0.0
    every = list(flows.values())
    roots = frozenset[str]().union(*(one.roots for one in every))
    signal: Signal = "known" if all(one.signal == "known" for one in every) else "other"
    return replace(flow, square=squares, roots=roots, signal=signal, gains=None, known=None, random=None)


def scaled(op: Op, flow: Flow) -> Flow:
    """Multiplied, divided or shifted by a constant of each place."""
    call = _call(op)
    if op.name in ("add", "sub", "rsub"):
        shape = call({op.inputs[0]: flow.square}).shape
        white = flow.white and shape == flow.square.shape
        return replace(
            flow, square=flow.square.expand(shape), white=white, signal=_kept(flow), known=None, random=None
        )
    if op.name not in ("mul", "div", "true_divide", "truediv", "multiply", "divide"):
        raise NoLaw(op.name)
    if op.name != "mul" and not isinstance(call.args[0], Slot):
        raise NoLaw("division by a signal")
    squares = call({op.inputs[0]: flow.square}, torch.square)
    white = flow.white and squares.shape == flow.square.shape
    return replace(flow, square=squares, white=white, gains=None, signal=_kept(flow), known=None, random=None)


def _call(op: Op) -> Call:
    if op.call is None:
        raise NoLaw(f"{op.name.replace('_', ' ')} that changes a constant")
    return op.call
