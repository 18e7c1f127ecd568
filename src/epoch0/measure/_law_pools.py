"""Averages of a random tangent over places: pools, means and sums, whose squares shrink with the places (THEORY 0)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from epoch0.measure._law_flow import Flow, NoLaw, Signal
from epoch0.measure._law_rules import call_of
from epoch0.tracing.graph import Op


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
    overlap = "avg_pool" in op.name and not op.name.startswith("adaptive") and _overlaps(op)
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


def _window(op: Op) -> float:
    """What an average pool divides by."""
    given = op.given
    if given.get("divisor_override"):
        return float(given["divisor_override"])
    size = given["kernel_size"]
    full = math.prod(size) if isinstance(size, tuple | list) and len(size) > 1 else _many(size)[0] ** int(op.name[-2])
    if given.get("ceil_mode") or (any(_many(given.get("padding", 0))) and not given.get("count_include_pad", True)):
        raise NoLaw("average pooling over windows of different sizes")
    return float(full)


def _overlaps(op: Op) -> bool:
    stride = op.given.get("stride")
    if stride is None or stride in ((), []):
        return False
    return any(step < width for width, step in zip(_many(op.given["kernel_size"]), _many(stride), strict=False))


def _many(size: Any) -> Sequence[int]:
    return size if isinstance(size, tuple | list) else (size,) * 3
