"""Layers of any model: the segments between tensors that every path from input to output shares (THEORY section 0).

Only there is the gain of a segment a number of its own and the product over segments the gain of the whole, so a
residual block is one layer, and so is a U-Net with a skip from its first to its last resolution.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import torch
from torch import nn

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.tracing.graph import Op, use
from epoch0.tracing.operations import NONLINEAR
from epoch0.tracing.tape import Tape


@dataclass(frozen=True)
class Layer:
    """One segment of the model between two tensors that all paths share."""

    name: str  # qualified name of the weighted module, or what several have in common
    # ``"linear"``, ``"convolution"``, ``"attention"``, ..., ``"residual block"`` where paths are added up, ``"block"``
    # for several weighted operations or none
    kind: str
    input: int  # node it starts from
    output: int  # node it ends with
    weights: tuple[str, ...]  # the parameters of its weighted operations, by qualified name
    weighted: int  # how many weighted operations it has
    activation: Activation | None  # its only nonlinearity, None if there is none, more than one, or no rule for it
    pre_activation: int | None  # node that goes into it, None likewise
    nonlinearities: int  # how many nonlinear operations it has
    has_norm: bool  # whether batch, layer or another norm is in it
    events: tuple[Op, ...] = field(repr=False)  # its operations, in order


@dataclass(frozen=True)
class Branch:
    """The sum at the end of a residual block."""

    node: int  # what is added to the shortcut: the summand with more weighted operations behind it
    shortcut: int  # the other summand
    total: int  # the sum
    weighted: int  # how many weighted operations of the block are behind the branch
    beside: int  # how many are behind the shortcut; 0 where it is the identity or nearly so


def needed(tape: Tape) -> list[Op]:
    """The events that the output is computed from, in order."""
    wanted, events = {tape.output}, []
    for event in reversed(tape.events):
        if any(node in wanted and tape.nodes[node].depends for node in event.outputs):
            events.append(event)
            wanted.update(node for node in event.inputs if tape.nodes[node].depends)
    return events[::-1]


def segments(tape: Tape) -> list[tuple[int, int, list[Op]]]:
    """The model cut at every tensor that all paths go through: start node, end node and events of each piece. Right
    after such an event exactly one tensor that the output depends on is still to be used.
    """
    events = needed(tape)
    last_use = {node: place for place, event in enumerate(events) for node in event.inputs if tape.nodes[node].depends}
    last_use[tape.output] = len(events)
    alive, pieces, start, piece = {0}, [], 0, list[Op]()
    for place, event in enumerate(events):
        piece.append(event)
        alive.update(node for node in event.outputs if last_use.get(node, -1) > place)
        alive.difference_update(node for node in event.inputs if last_use.get(node) == place)
        if len(alive) == 1 and tape.nodes[(node := next(iter(alive)))].real and node != start:
            pieces.append((start, node, piece))
            start, piece = node, []
    return pieces


def layers(tape: Tape) -> tuple[Layer, ...]:
    """The layers of a recorded model, in order; their gains multiply to that of the model.

    >>> from epoch0.tracing.tape import tape
    >>> with tape(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), x) as record:
    ...     [layer.name for layer in layers(record)]
    ['0', '2']

    A new layer starts where a weighted operation does; what has no weights of that kind (activation, norm, pool,
    reshape) belongs to the layer before it, and at the beginning to the first layer.
    """
    groups: list[list[tuple[int, int, list[Op]]]] = []
    for piece in segments(tape):
        if not groups or (any(op.kind for op in piece[2]) and any(op.kind for p in groups[-1] for op in p[2])):
            groups.append([])
        groups[-1].append(piece)
    if not groups:
        text = "no signal from the inputs arrives at the outputs: the forward detaches them, or makes others of them"
        raise InputError(f"{text}. For derivatives by the inputs use a clone: x = x.clone().requires_grad_().")
    own = [places([op for piece in group for op in piece[2]]) for group in groups]
    names = layer_names(own, type(tape.model).__name__)
    return tuple(_layer(name, group) for name, group in zip(names, groups, strict=True))


def branch(layer: Layer) -> Branch | None:
    """The branch of a residual block, by its last sum of two; None if there is none."""

    def weighted_behind(node: int) -> int:
        behind, count = {node}, 0
        for event in reversed(layer.events):
            if not behind.isdisjoint(event.outputs):
                behind.update(event.inputs)
                count += bool(event.kind)
        return count

    if not (sums := [event for event in layer.events if event.meaning.kind == "sum" and len(event.inputs) == 2]):
        return None
    first, second = sums[-1].inputs
    counts = weighted_behind(first), weighted_behind(second)
    if counts[1] > counts[0]:
        first, second, counts = second, first, counts[::-1]
    return Branch(first, second, sums[-1].outputs[0], *counts)


def _layer(name: str, group: list[tuple[int, int, list[Op]]]) -> Layer:
    ops = tuple(op for _, _, piece in group for op in piece)
    weighted = [op for op in ops if op.kind]
    nonlinear = [op for op in ops if op.meaning.kind in NONLINEAR]
    one = nonlinear[0] if len(nonlinear) == 1 and nonlinear[0].elementwise else None
    around = [op for _, _, piece in group if any(op.kind for op in piece) for op in piece]
    joined = any(op.meaning.kind == "sum" and len(op.inputs) > 1 for op in around)
    kind = "residual block" if joined else weighted[0].kind if len(weighted) == 1 else "block"
    weights = tuple(dict.fromkeys(weight for op in weighted for weight in op.weights))
    activation, before = (one.activation, one.inputs[0]) if one else (None, None)
    learnt, has_norm = (weights, len(weighted)), any(op.meaning.kind == "norm" for op in ops)
    return Layer(name, kind, group[0][0], group[-1][1], *learnt, activation, before, len(nonlinear), has_norm, ops)


def places(ops: Sequence[Op]) -> tuple[str, ...]:
    """Where weighted operations are, for people: their modules, or the parameter of one called by the model itself."""
    named = (op.module or op.weights[0].removesuffix(".weight").removesuffix(".bias") for op in ops if op.kind)
    return tuple(dict.fromkeys(named))


def layer_names(places: Sequence[Sequence[str]], model: str) -> list[str]:
    """A unique name a layer: its weighted module, else the path its modules share, else the first and last of them."""
    names: list[str] = []
    for index, own in enumerate(places):
        if not own:
            names.append(model)
            continue
        steps = zip(*(path.split(".") for path in own), strict=False)
        shared = ".".join(step[0] for step in takewhile(lambda step: len(set(step)) == 1, steps))
        others = [place for other, paths in enumerate(places) if other != index for place in paths]
        elsewhere = not shared or any(f"{place}.".startswith(f"{shared}.") for place in others)
        names.append(f"{own[0]} … {own[-1]}" if len(own) > 1 and elsewhere else shared)
    uses: Counter[str] = Counter()
    return [use(name, uses) for name in names]


def require_nonlinearity(tape: Tape) -> None:
    """Refuse a model without a nonlinear operation whose output is affine along the line through the input."""
    if tape.nonlinearities or any(op.meaning.kind in NONLINEAR for op in needed(tape)):
        return
    with torch.no_grad():
        zero, one, two = [tape.run(tape.x * factor).double() for factor in (0.0, 1.0, 2.0)]
    if float((two - 2 * one + zero).norm()) <= 1e-4 * float((one - zero).norm()):
        raise InputError(f"{type(tape.model).__name__} has no nonlinearity: it is one affine map. Put one in between.")


_OTHER = {"average": "pooling", "largest": "pooling", "join": "concatenation", "mixing": "attention"}


@dataclass(frozen=True)
class NamedLayer:
    """One layer in order of execution."""

    name: str  # qualified name of its module, or ``"block.relu()"`` for a call in the forward of ``block``
    kind: str  # ``"linear"``, ``"convolution"``, ``"pooling"``, ``"batch norm"``, ``"activation"``, ``"sum"``,
    node: int  # of the record, whose tensor is measured


def labelled(record: Tape, *, joined: bool, own: Mapping[type[nn.Module], str]) -> tuple[NamedLayer, ...]:
    """Every layer of a recorded model with its kind; an activation ``joined`` to the weights before it is no layer."""
    modules = dict(record.model.named_modules())
    whole = {path: own[type(module)] for path, module in modules.items() if type(module) in own}
    found = [NamedLayer(tap.name, whole[path], tap.node) for path in whole for tap in record.modules.get(path, ())]
    activations = {tap.node: tap.name for tap in record.nonlinearities}
    uses = Counter(node for op in record.ops for node in set(op.inputs))
    behind: dict[int, int] = {}  # node, place in found of the weighted layer that it is the output of
    named: Counter[str] = Counter()
    for op in record.ops:
        if not op.outputs or any(op.module == path or op.module.startswith(path + ".") for path in whole):
            continue
        node, source = op.outputs[0], behind.get(op.inputs[0]) if len(op.inputs) == 1 else None
        free = source is not None and uses[op.inputs[0]] == 1
        if not (record.nodes[node].depends and record.nodes[node].real):
            continue
        if op.meaning.kind in ("same", "reshape") and free and source is not None:
            behind[node] = source
        elif node in activations:
            if joined and free and source is not None:
                found[source] = replace(found[source], node=node)
            else:
                found.append(NamedLayer(activations[node], "activation", node))
        elif kind := _kind(op, record):
            if op.kind in ("linear", "convolution"):
                behind[node] = len(found)
            # a module that has none inside, a pruned one too
            whole_one = not {name for name, _ in modules[op.module].named_children()} - {"parametrizations"}
            name = op.module if op.module and whole_one else f"{op.module}.{op.name}()".removeprefix(".")
            found.append(NamedLayer(use(name, named), kind, node))
    return tuple(sorted(found, key=lambda place: place.node))


def _kind(op: Op, record: Tape) -> str:
    """The kind of an operation for figures; empty for one that is no layer."""
    if op.kind:
        return op.kind
    if (kind := op.meaning.kind) == "norm":
        return op.name.replace("_", " ")
    if kind == "sum":
        return "sum" if len(set(op.inputs)) > 1 else ""
    before, after = record.nodes[op.inputs[0]].shape, record.nodes[op.outputs[0]].shape
    within = before[:1] == after[:1] and len(before) > 1 and before != after  # a mean or maximum of each example
    if kind in ("average", "largest") and "pool" not in op.name and not within:
        return ""
    return "pooling" if "pool" in op.name else _OTHER.get(kind, "")


def average_pools(record: Tape) -> list[tuple[int, int, float]]:
    """Average pools on the main path (none within a branch): the nodes before and after, how many places it is over."""
    size = {node.index: math.prod(node.shape) for node in record.nodes}
    return [
        (start, end, size[start] / size[end])
        for start, end, events in segments(record)
        if len(events) == 1 and ("avg_pool" in events[0].name or events[0].name == "mean")
    ]


def averaged_over(pools: list[tuple[int, int, float]], layer: Layer) -> float:
    """How many places the average pools of a layer take the mean over, 1 without."""
    return math.prod((places for start, _, places in pools if layer.input <= start < layer.output), start=1.0)
