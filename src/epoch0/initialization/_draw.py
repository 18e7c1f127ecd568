"""Weights of unit scale, sum of squares exact: drawn from a seed by the parameter's name, or those that are there.

The scale of a layer is set afterwards, so that a draw with one seed differs by factors only (THEORY section 3). Torch's
own attention gets orthogonal queries, keys, values, and an output of its share: with inputs of unit size the scores
then have unit size, and the softmax neither looks at one place nor at all alike.
"""

import math
import zlib

import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.initialization._keep import in_projection
from epoch0.initialization._steps import Plan, Step
from epoch0.initialization.result import LayerInit
from epoch0.initialization.sites import MATRIX
from epoch0.seeds import generator
from epoch0.tracing.graph import Op
from epoch0.tracing.layers import Layer, events_of
from epoch0.tracing.tape import Tape

KINDS = ("mirrored", "gaussian", "uniform", "orthogonal", "keep")

_WEIGHTS, _BIASES = 0, 1


def named(seed: int, stream: int, name: str) -> torch.Generator:
    """The random stream of a parameter: the same whatever other parameters the model has."""
    return generator(seed, stream, zlib.crc32(name.encode()))


def draw_weights(step: Step, weights: str, seed: int) -> None:
    """Fill a parameter so that the kept weights' mean square times fan_in is exactly 1.

    Args:
        step: the view of its site is filled.
        weights: the law; ``"keep"`` rescales what is there.
        seed: of the draw.

    Raises:
        InputError: if what is there is zero everywhere.
    """
    site = step.site
    if weights == "keep":
        fresh = site.original.clone()
        if site.mask is None and bool((fresh == 0).any()):
            site.mask = fresh != 0  # weights that are zero were pruned
    else:
        fresh = _fresh(step, weights, named(seed, _WEIGHTS, site.name))
    kept = fresh if site.mask is None else fresh * site.mask
    squares = float(kept.double().square().sum())
    if not squares > 0:
        raise InputError(
            f"'{site.name}' holds only zeros where it is kept, and weights='keep' has nothing to rescale; "
            "draw fresh weights: weights='gaussian'."
        )
    scale = math.sqrt(site.view.numel() * site.density / site.fan_in / squares) / site.factor
    # weights that the model masks itself keep a value behind the mask
    site.view.copy_((kept if site.direct else fresh).double() * scale)


def draw_biases(name: str, shape: torch.Size, pairs: bool, seed: int) -> Tensor:
    """Standard normal biases, float64; opposite in pairs."""
    biases = torch.randn(shape, generator=named(seed, _BIASES, name), dtype=torch.float64)
    return torch.cat([half := biases[: shape[0] // 2], -half]) if pairs else biases


def _fresh(step: Step, weights: str, source: torch.Generator) -> Tensor:
    site, shape = step.site, step.site.view.shape
    if weights == "gaussian":
        return torch.randn(shape, generator=source, dtype=torch.float64).to(site.view.device)
    if weights == "uniform":
        return torch.rand(shape, generator=source, dtype=torch.float64).mul(2).sub(1).to(site.view.device)
    groups, places, turned = site.groups, shape[2:], True
    if site.op.name in MATRIX:
        groups, columns, rows, places = math.prod(shape[:-2]), shape[-2], shape[-1], shape[:0]
    elif "transpose" in site.op.name:
        columns, rows = shape[0] // groups, shape[1]
    else:
        rows, columns, turned = shape[0] // groups, shape[1], False
    # of pairs only one half is drawn, and the other is its opposite
    rows, columns = rows // (2 if step.half else 1), columns // (2 if step.paired else 1)
    each = torch.stack([orthogonal(rows, columns * math.prod(places), source) for _ in range(groups)])
    each = each.reshape(groups, rows, columns, *places)
    each = torch.cat([each, -each], 2) if step.paired else each
    each = torch.cat([each, -each], 1) if step.half else each
    return (each.transpose(1, 2) if turned else each).reshape(shape).to(site.view.device)


def orthogonal(rows: int, columns: int, source: torch.Generator) -> Tensor:
    """Orthonormal rows, or columns where there are more rows than columns; uniformly distributed."""
    gaussian = torch.randn(max(rows, columns), min(rows, columns), generator=source, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    q = torch.as_tensor(q * r.diagonal().sign())
    return q if rows >= columns else q.T


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


def _draw(op: Op, memory: dict[int, str], layer: str, share: float, seed: int) -> tuple[list[LayerInit], list[str]]:
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
