"""Where a model is measured and what stands there, with its kind: layers with weights, pools, norms, activations."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import nn

from epoch0.tracing.graph import Op, use
from epoch0.tracing.tape import Tape

_OTHER = {"average": "pooling", "largest": "pooling", "join": "concatenation", "mixing": "attention"}


@dataclass(frozen=True)
class Place:
    """One layer in order of execution.

    Attributes:
        name: qualified name of its module, or ``"block.relu()"`` for a call in the forward of ``block``.
        kind: ``"linear"``, ``"convolution"``, ``"pooling"``, ``"batch norm"``, ``"activation"``, ``"sum"``, ...
        node: of the record, whose tensor is measured.
    """

    name: str
    kind: str
    node: int


def labelled(record: Tape, *, joined: bool, own: Mapping[type[nn.Module], str]) -> tuple[Place, ...]:
    """Every layer of a recorded model with its kind.

    Args:
        record: of the model.
        joined: whether an activation belongs to the linear map or convolution right before it, which is then measured
            behind the activation and keeps its own name and kind; it does if nothing else uses what is between them.
        own: classes of modules that are layers as a whole, and their kinds.
    """
    modules = dict(record.model.named_modules())
    whole = {path: own[type(module)] for path, module in modules.items() if type(module) in own}
    found = [Place(tap.name, whole[path], tap.node) for path in whole for tap in record.modules.get(path, ())]
    activations = {tap.node: tap.name for tap in record.nonlinearities}
    uses = Counter(node for op in record.ops for node in set(op.inputs))
    behind: dict[int, int] = {}  # node, place in found of the weighted layer that it is the output of
    count: Counter[str] = Counter()
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
                found.append(Place(activations[node], "activation", node))
        elif kind := _kind(op, record):
            if op.kind in ("linear", "convolution"):
                behind[node] = len(found)
            name = _name(op, modules)
            count[name] += 1
            found.append(Place(use(name, count[name]), kind, node))
    return tuple(sorted(found, key=lambda place: place.node))


def _kind(op: Op, record: Tape) -> str:
    """What an operation is called in a figure; empty for one that is no layer."""
    if op.kind:
        return op.kind
    kind = op.meaning.kind
    if kind == "norm":
        return op.name.replace("_", " ")
    if kind == "sum":
        return "sum" if len(set(op.inputs)) > 1 else ""
    if kind in ("average", "largest") and "pool" not in op.name and not _smaller(op, record):
        return ""
    return "pooling" if "pool" in op.name else _OTHER.get(kind, "")


def _smaller(op: Op, record: Tape) -> bool:
    """Whether a mean or a maximum was taken within each example."""
    before, after = record.nodes[op.inputs[0]].shape, record.nodes[op.outputs[0]].shape
    return before[:1] == after[:1] and len(before) > 1 and before != after


def _name(op: Op, modules: Mapping[str, nn.Module]) -> str:
    parts = {name for name, _ in modules[op.module].named_children()} - {"parametrizations"}  # a pruned layer is one
    if op.module and not parts:
        return op.module
    return f"{op.module}.{op.name}()" if op.module else f"{op.name}()"
