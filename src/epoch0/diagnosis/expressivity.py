"""Linear regions in a checkup: on lines between examples, and on a plane through three (Hanin-Rolnick section 3)."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.diagnosis.plane_view import PlaneView, look
from epoch0.errors import InputError
from epoch0.regions import LinePartition, LinePartitions, on_line
from epoch0.seeds import numpy_generator
from epoch0.theory.regions import line_breaks
from epoch0.tracing.tape import Tape

MOST_LINES = 6
"""Segments looked at where they cost little."""

SHARE = 5.0
"""What the segments may cost, in forward passes of the batch for each random direction."""

SHARE_OF_TWO = 12.0
"""The same where two segments are all there will be; where they would cost more there are none."""

CHEAP = 5e8
"""Multiplications that two segments may always cost: a fraction of a second, also where the batch is tiny."""

STREAM = 0x7265
"""Name of the random stream that pairs the examples."""

_QUIET = {"flatten", "reshape", "view", "dropout", "contiguous", "squeeze", "unsqueeze", "alias", "identity"}


@dataclass(frozen=True)
class LayerRegions:
    """Break points that one layer adds to a segment.

    Attributes:
        name: of the module, or of the call where no module makes it.
        neurons: elements that fold.
        breaks: mean number of break points on a segment.
        error: its standard error over the segments, None with one segment.
        expected: what a random network with weights and biases of these sizes has on the same segments, None where
            that is not known.
    """

    name: str
    neurons: int
    breaks: float
    error: float | None
    expected: float | None


@dataclass(frozen=True)
class Regions:
    """How many linear regions a network has where its data is.

    >>> found = checkup(net, x, regions=True).regions           # x of shape (100, 64)
    >>> round(found.per_neuron, 2), round(found.expected_per_neuron, 2)
    (0.33, 0.35)

    Attributes:
        lines: number of segments, each from one example of the batch to another.
        neurons: elements that fold, all layers together.
        count: mean number of activation regions on a segment: one more than the break points.
        error: its standard error over the segments, None with one segment.
        expected: what theory expects on the same segments, None where it does not apply.
        layers: one row for each step that folds, in order.
        plane: the square through three examples, None if there is none.
        plane_reason: why there is none; else empty.
    """

    lines: int
    neurons: int
    count: float
    error: float | None
    expected: float | None
    layers: tuple[LayerRegions, ...]
    plane: PlaneView | None = field(default=None, repr=False, compare=False)
    plane_reason: str = ""

    @property
    def per_neuron(self) -> float:
        """Regions on a segment for each neuron."""
        return self.count / self.neurons

    @property
    def error_per_neuron(self) -> float | None:
        """Its standard error."""
        return None if self.error is None else self.error / self.neurons

    @property
    def expected_per_neuron(self) -> float | None:
        """What theory expects."""
        return None if self.expected is None else self.expected / self.neurons

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; of the plane its numbers, not its cells."""
        return {
            "lines": self.lines,
            "neurons": self.neurons,
            "count": self.count,
            "error": self.error,
            "expected": self.expected,
            "per_neuron": self.per_neuron,
            "error_per_neuron": self.error_per_neuron,
            "expected_per_neuron": self.expected_per_neuron,
            "layers": [vars(layer).copy() for layer in self.layers],
            "plane": None if self.plane is None else self.plane.to_dict(),
            "plane_reason": self.plane_reason,
        }


@dataclass(frozen=True)
class Plan:
    """What the record of a forward pass says about counting regions.

    Attributes:
        lines: segments that may be looked at; 0 for none.
        reason: why none.
        hold_statistics: whether batch norm is to use the statistics of this batch.
        random: for each folding layer the variance of its pre-activation, as a + b |x|^2 / inputs, in a random dense
            network with weights and biases of these sizes; empty unless the network is a plain dense one.
    """

    lines: int
    reason: str
    hold_statistics: bool
    random: tuple[tuple[float, float], ...] = ()


def plan(record: Tape, directions: int) -> Plan:
    """Whether the network has linear regions and how many segments cost no more than the rest of the checkup.

    A segment has about a break point for every second neuron, and each passes on average half of the layers: a
    quarter of the neurons times a forward pass of one example.

    Args:
        record: of a forward pass.
        directions: random directions of the checkup.
    """
    hold = record.has_batch_norm and record.batch_norm == "train"
    neurons = 0
    for op in record.ops:
        if op.elementwise:
            rule = op.activation
            if rule is not None and not rule.piecewise_linear and not rule.breaks:
                return Plan(0, f"smooth: no linear regions ({rule.name})", hold)
            neurons += math.prod(record.nodes[op.outputs[0]].shape[1:])
        elif "max_pool" in op.name:
            neurons += math.prod(record.nodes[op.inputs[0]].shape[1:])
    if record.x.shape[0] < 2:
        return Plan(0, "a segment needs two examples", hold)
    if not record.x.is_floating_point():
        return Plan(0, f"the inputs are {record.x.dtype}: there is no line between them", hold)
    passes = record.x.shape[0] * directions
    lines = min(MOST_LINES, record.x.shape[0] // 2, int(SHARE * passes / max(1.0, neurons / 4)))
    if lines < 2:
        if neurons / 2 > SHARE_OF_TWO * passes and neurons / 2 * _work(record) > CHEAP:
            return Plan(0, f"too large: {neurons:,} neurons would take longer than the rest of the checkup", hold)
        lines = min(2, record.x.shape[0] // 2)
    return Plan(lines, "", hold, _random(record))


def _work(record: Tape) -> float:
    """Multiplications of a forward pass of one example."""
    return float(sum(op.fan_in * math.prod(record.nodes[op.outputs[0]].shape[1:]) for op in record.ops if op.kind))


def _random(record: Tape) -> tuple[tuple[float, float], ...]:
    """The variances of a plain dense network's pre-activations, layer by layer; empty if it is none."""
    node, a, b, half = 0, 0.0, 1.0, 1.0
    found: list[tuple[float, float]] = []
    linear = False
    for op in record.ops:
        if op.inputs != (node,) or not op.outputs:
            return ()
        node = op.outputs[-1]
        if op.kind == "linear" and op.fan_in and op.gain > 0 and not linear and len(record.nodes[node].shape) == 2:
            biases = [p for name in op.weights if (p := record.model.get_parameter(name)).dim() == 1]
            shift = sum(float(p.detach().double().square().mean()) for p in biases)
            a, b, linear = shift + op.gain * half * a, op.gain * half * b, True
        elif op.elementwise and linear and (rule := op.activation) is not None:
            if rule.breaks != (0.0,) or rule.slopes is None or not rule.homogeneous:
                return ()
            found.append((a, b))
            half, linear = (rule.slopes[0] ** 2 + rule.slopes[1] ** 2) / 2, False
        elif op.kind or op.elementwise or op.name not in _QUIET:
            return ()
    return tuple(found) if node == record.output else ()


def count_regions(net: nn.Module, x: Tensor, planned: Plan, seed: int) -> tuple[Regions | None, str]:
    """Regions on segments between examples and on a plane through three; or why there are none. It never fails.

    Args:
        net: the model; it stays as it is.
        x: the batch, (examples, ...).
        planned: see :func:`plan`.
        seed: of the pairs of examples.

    Returns:
        The regions and "", or None and the reason.
    """
    if not planned.lines:
        return None, planned.reason
    try:
        model = _held(net, x) if planned.hold_statistics else net
        return _count(model, x.detach(), planned, seed), ""
    except InputError as problem:
        return None, str(problem)
    except Exception as problem:  # whatever else a model may do, the rest of its checkup stands
        return None, f"the model could not be cut: {type(problem).__name__}: {problem}"


def _held(net: nn.Module, x: Tensor) -> nn.Module:
    """A copy whose batch norms have the statistics of this batch as their running ones."""
    model = copy.deepcopy(net).eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
            module.momentum = 1.0
    with torch.no_grad():
        model(x)
    return model.eval()


def _count(model: nn.Module, x: Tensor, planned: Plan, seed: int) -> Regions:
    order = numpy_generator(seed, STREAM).permutation(len(x)).tolist()
    pairs = list(zip(order[: planned.lines], order[planned.lines : 2 * planned.lines], strict=True))
    pairs = [(i, j) for i, j in pairs if not torch.equal(x[i], x[j])]
    if not pairs:
        raise InputError("the examples are all the same, so there is no segment between them")
    starts, ends = (x[[pair[side] for pair in pairs]].double() for side in (0, 1))
    found = on_line(model, starts, ends)
    assert isinstance(found, LinePartitions)
    one = found[0]
    if not one.neurons:
        raise InputError("nothing in the network folds: it is one affine map")
    sizes = _sizes(one)
    breaks = np.stack([np.bincount(line.owner_layer, minlength=len(one.layers)) for line in found])
    expected = _expected(planned.random, sizes, starts, ends)
    layers = tuple(
        LayerRegions(name, sizes[i], float(breaks[:, i].mean()), _error(breaks[:, i]),
                     None if expected is None else float(expected[i]))
        for i, name in enumerate(one.layers)
    )  # fmt: skip
    count = float(found.counts.mean())
    length = float((ends - starts).flatten(1).norm(dim=1).mean())
    plane, why = look(model, x[order[:3]].double(), (count - 1) / length)
    return Regions(
        len(pairs), one.neurons, count, _error(found.counts),
        None if expected is None else 1.0 + float(expected.sum()), layers, plane, why,
    )  # fmt: skip


def _sizes(one: LinePartition) -> list[int]:
    """Neurons of each folding step; of a maximum its windows."""
    windows = [getattr(step, "windows", None) for step in one.program.folds]
    return [size if w is None else len(w) for w, size in zip(windows, one.program.sizes, strict=True)]


def _expected(
    random: Sequence[tuple[float, float]], sizes: Sequence[int], starts: Tensor, ends: Tensor
) -> np.ndarray | None:
    """Expected break points of each layer, mean over the segments; None where there is no theory."""
    if not random or len(random) != len(sizes) or not all(math.isfinite(a) and 1e-280 < b < 1e280 for a, b in random):
        return None
    x0, x1 = (side.flatten(1).cpu().numpy() for side in (starts, ends))
    per_layer = [
        line_breaks([size], x0, x1, weight_std=math.sqrt(b), bias_std=math.sqrt(a)).mean()
        for size, (a, b) in zip(sizes, random, strict=True)
    ]
    return np.array(per_layer)


def _error(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
