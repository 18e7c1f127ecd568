"""The rows of a checkup: each layer with what is carried to it and what it does alone, and its parts under it."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from epoch0.diagnosis.result import LayerCheckup, PartCheckup
from epoch0.diagnosis.verdict import COLLAPSED, SATURATED, CumulativeGain, Signs, cumulative_gain, estimate_phase
from epoch0.measure.gain import Gain, gain_status, joined_gains, measure_gains
from epoch0.measure.passes import Signals, Travel, signals
from epoch0.tracing.graph import FunctionCall, Op
from epoch0.tracing.layers import Layer, NamedLayer, average_pools, averaged_over, labelled, layer_names, layers, places
from epoch0.tracing.operations import Calls
from epoch0.tracing.sizes import sum_of_squares
from epoch0.tracing.tape import Change, Tape, together

SPARED = ("activation", "sum", "concatenation")  # places that are no part worth a row
STEEP = 0.5  # share of the whole change of a carried norm from which one layer is to blame for it


@dataclass(frozen=True)
class Row:
    """What was measured of one layer beside its gain."""

    weights: tuple[str, ...]
    weighted: tuple[str, ...]  # where its weighted operations are
    nonlinear: bool  # whether it has a nonlinearity
    kind: str
    pool: float
    output: int  # its node
    shape: tuple[int, ...]
    after: Signals
    parts: tuple[tuple[PartCheckup, int, tuple[str, ...]], ...]  # without the size of a step; its node and weights


@dataclass(frozen=True)
class Piece:
    """Measurements of consecutive layers, and what they say of the whole model; :meth:`kept` makes the rows."""

    gains: Gain
    rows: tuple[Row, ...]
    before: Signals
    integers: bool  # whether signals start at what is made of integers

    @cached_property
    def states(self) -> list[Signals]:
        """The batch at the input and after each layer."""
        return [self.before, *(row.after for row in self.rows)]

    @cached_property
    def chi(self) -> list[tuple[float, float]]:
        """The gain of each layer that counts and its error: both ways' mean, without averages (docs/initialize)."""
        pairs = [(row.pool, gain) for row, gain in zip(self.rows, self.gains.layers, strict=True)]
        errors = [pool * math.hypot(gain.forward_error, gain.backward_error) / 2 for pool, gain in pairs]
        return [(pool * (g.forward + g.backward) / 2, error) for (pool, g), error in zip(pairs, errors, strict=True)]

    @cached_property
    def statuses(self) -> list[str]:
        """One word a layer, as :func:`epoch0.gain` defines them."""
        return [self._status(*item, after) for item, after in zip(self.chi, self.states[1:], strict=True)]

    @cached_property
    def signs(self) -> Signs:
        """What the layers say about the whole."""
        rows = self.gains.layers
        tangents = [math.sqrt(row.tangent) for row in rows[:-1]]
        if self.integers:  # what is made of integers has no size of its own: growth is that beside the signal
            sizes = [state.size for state in self.states[1:-1]]
            tangents = [t / size if size > 0 else 0.0 for t, size in zip(tangents, sizes, strict=True)]
        at_fault: dict[str, Any] = {
            key: tuple(row.name for row, status in zip(rows, self.statuses, strict=True) if status == word)
            for key, word in (("overflowing", "overflows"), ("collapsed", "collapsed"), ("saturated", "saturated"))
        }
        unlike = [state.dissimilarity for state in self.states[: len(rows)] if not math.isnan(state.dissimilarity)]
        seen = zip(rows[:-1], self.states[1:], self.statuses, strict=False)
        back = cumulative_gain([row.gradient for row in rows[:-1]][::-1])
        return Signs(
            forward=cumulative_gain(tangents),
            # a gradient that is zero at a readout of zeros has nothing to be compared with
            backward=CumulativeGain(0.0, back.layers) if math.isnan(back.log_gain) else back,
            input_size=self.states[0].size if not self.integers else 1.0,  # made of integers: its size is its own
            output_size=self.states[-1].size,
            dissimilarity=unlike[-1] if unlike else math.nan,
            dead=tuple(row.name for row, state, status in seen if state.dead == 1 or status == "dead"),
            **at_fault,
        )

    def _status(self, gain: float, error: float, after: Signals) -> str:
        status = gain_status(gain, error, depth=len(self.rows))
        if not math.isfinite(after.size):
            return "overflows"
        if status in ("dead", "overflows"):
            return status
        # alike, though they were not at the input
        if after.dissimilarity < min(COLLAPSED, 0.1 * self.states[0].dissimilarity):
            return "collapsed"
        return "saturated" if after.saturated >= SATURATED else status

    def kept(self, updates: Mapping[str, float], rate: float) -> dict[str, Any]:
        """The fields of a checkup that come from the layers, with the steps at this rate."""

        def update(weights: Sequence[str]) -> float | None:  # a bias moves by more than its size, and may
            own = [name for name in weights if name in updates and "bias" not in name.rpartition(".")[2]]
            return max((updates[name] * rate for name in own), default=None)

        same = ("name", "forward_error", "backward_error", "predicted", "predicted_error", "agreement", "gradient")
        layers = [
            LayerCheckup(
                **{key: getattr(gain, key) for key in same},
                kind=row.kind,
                shape_out=tuple(row.shape),
                norm_in=self.states[i].size,
                norm_out=row.after.size,
                forward_gain=gain.forward,
                backward_gain=gain.backward,
                averaged=row.pool,
                tangent=math.sqrt(gain.tangent),
                update=update(row.weights),
                dissimilarity=None if math.isnan(row.after.dissimilarity) else row.after.dissimilarity,
                dead_units=row.after.dead,
                saturated=None if math.isnan(row.after.saturated) else row.after.saturated,
                status=self.statuses[i],
                parts=tuple(replace(p, update=update(of)) for p, _, of in row.parts if len(row.parts) > 1),
            )
            for i, (gain, row) in enumerate(zip(self.gains.layers, self.rows, strict=True))
        ]
        nonlinear = [item for item, row in zip(self.chi, self.rows, strict=True) if row.nonlinear]
        phase = estimate_phase([gain for gain, _ in nonlinear], [error for _, error in nonlinear])._asdict()
        carried = {"backward": self.signs.backward, "forward": self.signs.forward}
        return {"layers": tuple(layers), "input_gradient": self.gains.input_gradient, **carried, **phase}


def measured(record: Tape, directions: int, seed: int, travel: Travel | None = None, gradients: bool = True) -> Piece:
    """Measure the layers of a record; of a piece of a model with what came from the piece before it."""
    found = layers(record)
    labels = [p for p in labelled(record, joined=False, own={}) if p.kind not in SPARED]
    inside = [[p for p in labels if layer.input < p.node <= layer.output] for layer in found]
    nodes, ops = [p.node for within in inside for p in within], {op.outputs[0]: op for op in record.ops if op.outputs}
    few = 1 if directions == 2 else directions  # examples and units are averaged over all the same
    travel = travel or Travel(directions, few, seed)
    alone, look = _alone([ops[node] for node in nodes], travel.alone, record.batch_norm)
    states, passing = signals(record, found)
    given = dict[str, Any](looks=together(passing, look), travel=travel, gradients=gradients)
    gains, carried = measure_gains(record, found, directions, seed, nodes, **given)
    seen, pools = states(), average_pools(record)

    def part(place: NamedLayer) -> tuple[PartCheckup, int, tuple[str, ...]]:
        node, (tangent, gradient, square) = place.node, carried[place.node]
        shape, sizes = tuple(record.nodes[node].shape[1:]), (math.sqrt(square), alone.get(node), math.sqrt(tangent))
        return PartCheckup(place.name, place.kind, shape, *sizes, gradient, update=None), node, ops[node].weights

    rows = [
        Row(
            weights=layer.weights,
            weighted=places(layer.events),
            nonlinear=layer.nonlinearities > 0,
            kind=kind(layer),
            pool=averaged_over(pools, layer),
            output=layer.output,
            shape=tuple(record.nodes[layer.output].shape[1:]),
            after=after,
            parts=tuple(map(part, within)),
        )
        for layer, within, after in zip(found, inside, seen[1:], strict=True)
    ]
    return Piece(gains, tuple(rows), seen[0], record.start >= 0)


def joined(pieces: Sequence[Piece], model: str) -> Piece:
    """The pieces of a model as one, its layers named as in the whole."""
    rows = tuple(row for piece in pieces for row in piece.rows)
    names = layer_names([row.weighted for row in rows], model)
    return replace(pieces[0], gains=joined_gains([piece.gains for piece in pieces], names), rows=rows)


def to_blame(rows: Sequence[LayerCheckup], cause: str, signs: Signs) -> tuple[str, str] | None:
    """The layer that does most harm, with the reason; None where none does most of it."""
    plain = {
        "overflow": (signs.overflowing, "its numbers are the first that are not finite"),
        "no gradient": (signs.dead, "it gives zero for every example"),
        "collapsed": (signs.collapsed, "after it all examples look alike"),
        "saturated": (signs.saturated, "most of its values are saturated"),
    }
    names, text = plain.get(cause, ((), ""))
    if names:
        return names[0], text
    if cause not in ("vanishing", "exploding") or len(rows) < 3:
        return None
    back = abs(signs.backward.orders) >= abs(signs.forward.orders)
    norms = [row.gradient if back else row.tangent for row in rows]
    steps = [
        (math.log(item / other if back else other / item), row.name)
        for item, other, row in zip(norms, norms[1:], rows[1:], strict=False)
        if item > 0 and other > 0 and math.isfinite(item) and math.isfinite(other)
    ]
    wanted = [pair for pair in steps if (pair[0] < 0) == (cause == "vanishing")]
    size, name = max(wanted, key=lambda pair: abs(pair[0]), default=(0.0, ""))
    if not wanted or abs(size) < STEEP * abs(sum(step for step, _ in wanted)):
        return None
    quantity = "gradients" if back else "differences between inputs"
    return name, f"{quantity} change by a factor of {math.exp(size):.2g} in it, more than in all others together"


def _alone(ops: Sequence[Op], source: torch.Generator, batch_norm: str) -> tuple[dict[int, float], dict[int, Change]]:
    """Mean squared growth of a random tangent in each operation with one input, and a hook to measure it."""
    calls: dict[int, list[tuple[int, FunctionCall, FunctionCall | None]]] = {}
    for op in ops:
        if op.call is not None and len(op.inputs) == 1:
            calls.setdefault(op.inputs[0], []).append((op.outputs[0], op.call, op.linear_part))
    found: dict[int, float] = {}

    def look(node: int, tensor: Tensor) -> None:
        v = torch.randn(tensor.shape, generator=source, dtype=tensor.dtype).to(tensor.device)
        for output, call, linear in calls[node]:
            with suppress(RuntimeError), forward_ad.dual_level(), Calls(batch_norm):  # no forward derivative, no number
                made = linear({node: v}) if linear else call({node: forward_ad.make_dual(tensor.detach(), v)})
                tangent = made if linear else forward_ad.unpack_dual(made).tangent if isinstance(made, Tensor) else None
                if tangent is not None:
                    found[output] = sum_of_squares(tangent) / tangent.numel() / (sum_of_squares(v) / v.numel())

    return found, {node: partial(look, node) for node in calls}


def kind(layer: Layer) -> str:
    """A layer's operations in order, each named once: "convolution, batch norm, relu"."""
    words: dict[str, int] = {}
    for op in layer.events:
        word = op.kind or (op.name.replace("rms", "RMS").replace("_", " ") if op.meaning.kind == "norm" else "")
        if op.elementwise:
            word = op.name.replace("_", " ")
        elif "pool" in op.name:
            word = "max pool" if "max" in op.name else "average pool"
        if word:
            words[word] = words.get(word, 0) + 1
    parts = ", ".join(word if count == 1 else f"{count} {word}s" for word, count in words.items())
    return f"{layer.kind}: {parts}" if layer.kind in ("residual block", "block") and parts else parts or layer.kind
