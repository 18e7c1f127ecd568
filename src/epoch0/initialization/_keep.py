"""What stays as it is: residual blocks that are sound as they came, zeros that are meant, and what feeds them.

A norm in a block already does what the weights' scale would, and a branch that starts at zero is a choice (Fixup,
SkipInit, zero gamma, LoRA): drawing such a block anew was never measured to help, and it loses what its author chose.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from epoch0.initialization._steps import Step
from epoch0.initialization.follow import PRODUCTS
from epoch0.tracing.graph import Op
from epoch0.tracing.layers import Branch, Layer
from epoch0.tracing.tape import Change, Tape

SMALLEST, LARGEST = 1e-3, 1e4
"""Variance over examples of a sound branch over that of its shortcut: 3 percent to 100 times its size (a small
embedding, which the first blocks of a pre-norm transformer drown)."""

SHARPEST = 5.0
"""Standard deviation of attention scores beyond which a softmax looks at one place only."""

LOUDEST = 4.0
"""Size of the outputs that is left alone in a readout that is kept."""


def keep(tape: Tape, layers: tuple[Layer, ...], blocks: Mapping[str, Branch], steps: list[Step]) -> frozenset[str]:
    """Give the steps that are to stay the reason why.

    Args:
        tape: the record of the model as it came.
        layers: its layers.
        blocks: the branch of each residual block, by the layer's name.
        steps: gain their reasons; those with masks are never kept.

    Returns:
        Names of the blocks that stay.
    """
    made_by = {node: op for op in tape.ops for node in op.outputs}
    attends = [op for op in tape.ops if op.name == "scaled_dot_product_attention" and len(op.inputs) > 2]
    scaled = {name: _before_scale(found.node, made_by) for name, found in blocks.items()}
    sizes, spread = _sizes(tape, [
        *scaled.values(), *(node for found in blocks.values() for node in (found.node, found.shortcut)),
        *(node for step in steps for node in (step.site.op.inputs[0], step.site.op.outputs[0])), tape.output,
        *(node for op in attends for node in op.inputs[:2]),
    ])  # fmt: skip
    sharp = {} if not blocks else _scores(tape)
    for op in attends:
        sharp[op.index] = math.sqrt(sizes[op.inputs[0]] * sizes[op.inputs[1]])
    masked = {step.layer.name for step in steps if step.site.mask is not None}
    kept = list[str]()
    for layer in layers:
        if layer.name not in blocks or layer.name in masked:
            continue
        found = blocks[layer.name]
        ratio = spread[scaled[layer.name]] / max(spread[found.shortcut], 1e-30)
        ops = tape.ops[tape.nodes[layer.input].op + 1 : tape.nodes[layer.output].op + 1]
        places = 1.0
        if any("attention" in op.name or op.name == "softmax" for op in ops):
            # what differs from place to place averages out in attention that is not sharp, and comes back in training
            places = math.prod(tape.nodes[found.node].shape[:-1]) / len(tape.x)
        lost = ratio * places < SMALLEST
        normed = layer.has_norm or any(op.name == "rsqrt" for op in ops)  # a norm that is written out
        reason = ""
        if sizes[found.node] == 0:
            reason = "kept: its branch starts at zero, which is meant"
        elif normed and not lost and ratio <= LARGEST and all(sharp.get(op.index, 0.0) < SHARPEST for op in ops):
            reason = "kept: a norm sets the size of this block, and its branch is neither lost nor too large"
        if reason:
            kept.append(layer.name)
        for step in steps:
            step.kept = reason if step.layer is layer else step.kept
    for step in steps:
        before, after = (sizes[node] for node in (step.site.op.inputs[0], step.site.op.outputs[0]))
        if step.kept or step.layer.name in blocks or step.site.mask is not None:
            continue
        if step.last and before > 0 and not bool(step.site.original.any()):
            step.kept = "kept: the readout starts at zero, which is meant"
        elif kept and after > 1e-6 and (sizes[tape.output] < LOUDEST**2 or not step.last):
            step.kept = "kept: it feeds blocks that are kept, or reads them, at a sound size"
    return frozenset(kept)


def _before_scale(node: int, made_by: Mapping[int, Op]) -> int:
    """The node in front of learnt factors, one for each channel, that end a branch."""
    while (op := made_by.get(node)) is not None and op.meaning.kind in PRODUCTS and op.weights and len(op.inputs) == 1:
        node = op.inputs[0]
    return node


def _sizes(tape: Tape, nodes: list[int]) -> tuple[dict[int, float], dict[int, float]]:
    """Mean square of these tensors, and of what in them differs from example to example."""
    sizes, spread = dict[int, float](), dict[int, float]()

    def look(node: int) -> Change:
        def change(tensor: Tensor) -> None:
            values = tensor.double()
            sizes[node] = float(values.square().mean())
            spread[node] = float((values - values.mean(0)).square().mean()) if len(values) > 1 else sizes[node]

        return change

    with torch.no_grad():
        tape.run(tape.x, {node: look(node) for node in nodes})
    return sizes, spread


def _scores(tape: Tape) -> dict[int, float]:
    """Standard deviation of the attention scores that each attention makes, by the operation's index."""
    found: dict[int, float] = {}
    ops = {op.inputs[0]: op for op in tape.ops if op.kind == "attention"}

    def look(op: Op) -> Change:
        def change(tensor: Tensor) -> None:
            weight = in_projection(op)
            if weight is not None:
                q, k, _ = F.linear(tensor.double(), weight.double()).chunk(3, -1)
                found[op.index] = float((q.square().mean() * k.square().mean()).sqrt())

        return change

    with torch.no_grad():
        tape.run(tape.x, {node: look(op) for node, op in ops.items()})
    return found


def in_projection(op: Op) -> Tensor | None:
    """The stacked weights of queries, keys and values of torch's own attention on one sequence; None for any other."""
    if op.call is None or op.call.function is not F.multi_head_attention_forward or len(op.inputs) != 1:
        return None
    weight = op.call.args[5] if len(op.call.args) > 11 else None
    return weight.detach() if isinstance(weight, Tensor) and weight.shape[0] == 3 * weight.shape[1] else None
