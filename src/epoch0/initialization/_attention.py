"""Torch's own attention in blocks that are drawn anew: orthogonal queries, keys, values, and an output of its share.

With inputs of unit size the scores then have unit size, and the softmax neither looks at one place nor at all alike.
"""

import torch
from torch import Tensor

from epoch0.initialization._draw import named, orthogonal
from epoch0.initialization._keep import in_projection
from epoch0.initialization._result import LayerInit
from epoch0.initialization._steps import Plan
from epoch0.tracing.graph import Op
from epoch0.tracing.layers import Layer, events_of
from epoch0.tracing.tape import Tape

_ATTENTION = 2


def draw_attentions(tape: Tape, layers: tuple[Layer, ...], plan: Plan, seed: int) -> tuple[list[LayerInit], list[str]]:
    """Fill the parameters of the attentions of residual blocks that are not kept; biases become 0.

    Args:
        tape: the record; its model's parameters are changed.
        layers: its layers.
        plan: says which blocks stay, and how many there are.
        seed: of the draw.

    Returns:
        A row for each weight, and the names of all parameters that were changed.
    """
    rows, changed = list[LayerInit](), list[str]()
    memory = {p.untyped_storage().data_ptr(): name for name, p in tape.model.named_parameters() if p.numel()}
    for layer in layers:
        if layer.kind == "residual block" and layer.name not in plan.kept:
            for op in events_of(tape, layer):
                more, names = _draw(op, memory, layer.name, 1 / max(plan.blocks, 1), seed)
                rows, changed = rows + more, changed + names
    return rows, changed


def _draw(
    op: Op, memory: dict[int, str], layer: str, share: float, seed: int
) -> tuple[list[LayerInit], list[str]]:
    rows, changed = list[LayerInit](), list[str]()
    if in_projection(op) is None or op.call is None:
        return rows, changed
    for place, parts, gain in ((5, 3, 1.0), (11, 1, share)):
        values = [value.detach() for value in op.call.args[place : place + 2] if isinstance(value, Tensor)]
        names = [memory.get(value.untyped_storage().data_ptr(), "") for value in values]
        if not all(names):
            continue
        weight, size = values[0], values[0].shape[1]
        before = float(weight.double().square().mean().sqrt()) * size**0.5
        source = named(seed, _ATTENTION, names[0])
        weight.copy_(torch.cat([orthogonal(size, size, source) for _ in range(parts)]) * gain**0.5)
        for bias in values[1:]:
            bias.zero_()
        words = "queries, keys and values of unit size" if parts > 1 else "ends a branch"
        rows.append(LayerInit(
            names[0], op.module, layer, "attention", "none", size, 1.0, before, gain**0.5, 0.0, float("nan"), gain,
            None, None, words,
        ))  # fmt: skip
        changed += names
    return rows, changed
