"""What comes after a weighted operation: its activation, found by tracing, then pools and norms (Hayou et al. B.1).

An activation may be one call or several: ``h * sigmoid(h)`` and ``1.5 * relu(h)`` are functions of one number too.
"""

from collections import defaultdict
from dataclasses import dataclass

from torch import Tensor

from epoch0.activations import Activation
from epoch0.measure.law import in_words
from epoch0.tracing.graph import Op, made_activation
from epoch0.tracing.layers import needed
from epoch0.tracing.operations import MOVES
from epoch0.tracing.tape import Tape

PRODUCTS = ("product", "quotient")  # kinds of operations that scale, by a number or by another signal


@dataclass(frozen=True)
class Follow:
    """What happens to the output of a weighted operation before the next weights."""

    activation: Activation | None  # the function of one number that is applied to it; None if nothing is
    end: int  # node behind the activation, or behind the operation itself
    trail: tuple[Op, ...]  # the linear operations behind it, in order, up to the first that is not
    averages: tuple[Op, ...]  # the averages over places before the next weights that are not in the trail
    norm: bool  # whether a norm follows before the next weights: then the scale of the weights does not matter
    no_law: str  # what follows and has a gain that is only known by measuring, in words; else empty
    gate: bool  # whether the result is multiplied with another signal
    bias: str  # the parameter of a bias that is added by an operation of its own; empty if there is none
    biased: int  # node behind that addition, else the output of the operation


class Follower:
    """Walks a record from the output of a weighted operation on."""

    def __init__(self, tape: Tape) -> None:
        self.tape, self.events = tape, needed(tape)
        self.users: dict[int, list[Op]] = defaultdict(list)
        for event in self.events:
            for node in event.inputs:
                self.users[node].append(event)

    def only_user(self, node: int) -> Op | None:
        users = self.users[node]
        return users[0] if len(users) == 1 and node != self.tape.output else None

    def follow(self, start: int) -> Follow:
        """What happens to this tensor before the next weights, or before several operations use it."""
        node, bias, biased = start, "", start
        activation: Activation | None = None
        active = norm = False
        trail, averages, reasons, linear = list[Op](), list[Op](), list[str](), True
        while True:
            if not active and (found := self._region(node)) is not None:
                (node, activation, name), active = found, True
                if activation is None:
                    reasons.append(name)
            op = self.only_user(node)
            if op is None or op.kind or op.index < 0 or len(op.inputs) != 1 or op.results != 1:
                reasons += ["code that cannot be followed"] if op is not None and op.index < 0 else []
                break
            known, passed = only_moves(op), False
            if op.meaning.kind == "norm":
                norm = True
            elif not active and not bias and node == start and _is_bias(op):
                bias, biased, passed = op.weights[0], op.outputs[0], True
            elif is_linear(op):
                known = active or not self._activation_ahead(op.outputs[0])
                reasons += [] if known else [in_words(op.name)]
            elif not known:
                reasons.append(in_words(op.name))
            linear = linear and (known or passed)
            if linear and active == (activation is not None) and not passed:
                trail.append(op)
            elif is_average(op):
                averages.append(op)
            node = op.outputs[0]
        gate = any(user.meaning.kind in PRODUCTS and len(user.inputs) > 1 for user in self.users[node])
        return Follow(
            activation, node, tuple(trail), tuple(averages), norm, reasons[0] if reasons else "", gate, bias, biased
        )

    def _activation_ahead(self, node: int) -> bool:
        """Whether an activation comes before the next weights."""
        while self._region(node) is None:
            op = self.only_user(node)
            if op is None or op.kind or len(op.inputs) != 1:
                return False
            node = op.outputs[0]
        return True

    def _region(self, start: int) -> tuple[int, Activation | None, str] | None:
        """The longest function of one number from here on: the node behind it, the activation, its name."""
        nodes, steps = {start}, list[Op]()
        for event in self.events:
            if event.index > self.tape.nodes[start].op and self._pointwise(event, nodes, start):
                nodes.add(event.outputs[0])
                steps.append(event)
        for last in reversed(steps):
            wanted, inside = {last.outputs[0]}, list[Op]()
            for op in reversed(steps):
                if op.outputs[0] in wanted:
                    inside.insert(0, op)
                    wanted.update(op.inputs)
            kept = {start, *(op.outputs[0] for op in inside)} - {last.outputs[0]}
            if self.tape.output not in kept and all(user in inside for node in kept for user in self.users[node]):
                return last.outputs[0], *_activation(start, last, inside)
        return None

    def _pointwise(self, op: Op, nodes: set[int], start: int) -> bool:
        if not op.inputs or not set(op.inputs) <= nodes or op.call is None or op.cut or op.results != 1:
            return False
        same = self.tape.nodes[op.outputs[0]].shape == self.tape.nodes[start].shape
        return same and (op.elementwise or op.meaning.arithmetic) and (op.call.key is not None or op.rule is not None)


def _activation(start: int, last: Op, inside: list[Op]) -> tuple[Activation | None, str]:
    """The composition of these operations as one activation, and its name."""
    name = ", ".join(op.name for op in inside)
    if len(inside) == 1 and last.elementwise:
        return last.activation, name
    places = {start: 0, **{op.outputs[0]: place + 1 for place, op in enumerate(inside)}}
    calls = [(op, op.call) for op in inside if op.call is not None]
    key = tuple((c.key or (op.name, op.rule), tuple(places[slot.node] for slot in c.slots)) for op, c in calls)

    def function(h: Tensor) -> Tensor:
        values = {start: h}
        for op, call in calls:
            # cloned: a step may change its argument in place
            values[op.outputs[0]] = call({node: values[node].clone() for node in op.inputs})
        return values[last.outputs[0]]

    return made_activation(name, key, function), name


def only_moves(op: Op) -> bool:
    """Whether this carries entries to other places and changes none."""
    return op.meaning.kind in MOVES or op.meaning.kind == "repeat"


def is_average(op: Op) -> bool:
    return op.call is not None and op.meaning.kind == "average"


def is_linear(op: Op) -> bool:
    """Whether this is an average, a sum over places, a padding or a multiplication by one number."""
    linear = op.meaning.kind in ("average", "resample", "pad") or op.name == "sum"
    return op.call is not None and (linear or is_scaling(op))


def is_scaling(op: Op) -> bool:
    call = op.call
    return call is not None and op.meaning.kind in PRODUCTS and len(call.slots) == 1 and call.key is not None


def _is_bias(op: Op) -> bool:
    return op.name == "add" and len(op.weights) == 1 and op.call is not None and len(op.call.constants()) == 1
