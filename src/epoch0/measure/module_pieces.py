"""Tangents and chords of a curve through any one module (THEORY section 1.2b; Raghu section 2.3)."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.measure.pieces import Array, Pieces, row_norms
from epoch0.tracing.call import Forward
from epoch0.tracing.forward_derivatives import jvp
from epoch0.tracing.guard import unchanged
from epoch0.tracing.tape import Tape, tape

# Numbers held at once: the chosen tensors of the points of a curve that go through the model together (64 MB).
_BUDGET = 16_000_000
# More points at once than this are no faster.
_AT_MOST = 1024


def module_pieces(
    module: nn.Module,
    curve: Curve,
    layers: Sequence[str] | None,
    method: Literal["tangents", "chords"],
    points: int,
    offset: float,
    batch_norm: Literal["train", "eval"],
    forward: Forward | None = None,
) -> Pieces:
    """The pieces of the curve at the input and each layer of one module.

    Args:
        module: any module.
        curve: its points have the shape of one input.
        layers: names, default the nonlinearities.
        method: tangents at ``points`` values of t, or ``points`` chords.
        points: how many.
        offset: of the grid of tangents, in [0, 1).
        batch_norm: with ``"train"`` all points go through the module at once, and their statistics are held fixed.
        forward: another way of calling it.
    """
    grid = (torch.arange(points, dtype=torch.float64) + offset) / points
    if method == "chords":
        grid = torch.linspace(0, 1, points + 1, dtype=torch.float64)
    recorded = tape(module, curve.point(grid[:2]), forward=forward, batch_norm=batch_norm)
    with recorded as record, torch.no_grad():
        names, nodes = places(record, layers)
        if record.x.dtype == torch.float64 and curve.dtype != torch.float64:
            curve = curve.to(torch.float64)  # points rounded to float32 would make fine chords ragged
        at_once = _points_at_once(record, nodes)
        if shares_statistics(record):
            at_once = len(grid)
            # each point moves alone: with the derivative of the statistics all points would move at once
            record = replace(record, hold_statistics=True)
        if method == "tangents":
            found = [_tangents(record, nodes, curve, some) for some in grid.split(at_once)]
            return Pieces(names, np.concatenate(found)[None], None, record.x.dtype)
        fine, coarse = _chords(record, nodes, curve, grid, at_once)
        return Pieces(names, fine[None], coarse[None], record.x.dtype)


def places(record: Tape, layers: Sequence[str] | None) -> tuple[tuple[str, ...], list[int]]:
    """Names of the layers in order of execution, and the nodes of the input and the layers.

    Raises:
        InputError: for an unknown name, or without a nonlinearity when no layers are named.
    """
    taps = sorted({tap.name: tap for tap in record.taps(layers)}.values(), key=lambda tap: tap.node)
    if not taps:
        known = ", ".join(repr(name) for name in record.modules if name)
        raise InputError(
            "the model has no elementwise nonlinearity, so there is no default layer to measure; "
            f"name some with layers=[...]: {known or 'it has no named modules either'}."
        )
    return tuple(tap.name for tap in taps), [0, *(tap.node for tap in taps)]


def shares_statistics(record: Tape) -> bool:
    """Whether the points of a batch meet in the statistics of a batch norm."""
    norms = [part for part in record.model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    without = any(part.running_mean is None for part in norms)
    return record.has_batch_norm and (record.batch_norm == "train" or without)


def in_dtype(module: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """The module itself if it has that dtype (or None is asked for), else a copy that does."""
    if dtype is None or all(p.dtype == dtype for p in module.parameters() if p.is_floating_point()):
        return module
    try:
        with unchanged(module):
            return copy.deepcopy(module).to(dtype)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"the model {type(module).__name__} cannot be copied to measure it in {dtype} ({error}); "
            "convert it yourself and leave dtype out."
        ) from error


def _points_at_once(record: Tape, nodes: list[int]) -> int:
    """As many points as fit the budget, even so that chunks of chords pair up."""
    examples = record.nodes[0].shape[0]
    kept = sum(np.prod(record.nodes[node].shape) for node in nodes)
    widest = max(np.prod(node.shape) for node in record.nodes)
    return max(2, min(_AT_MOST, int(_BUDGET * examples / (2 * kept + 6 * widest))) // 2 * 2)


def _tangents(record: Tape, nodes: list[int], curve: Curve, t: Tensor) -> Array:
    """|dz/dt| at the nodes, shape (points, nodes)."""
    x, dx = curve.point(t).to(record.x), curve.tangent(t).to(record.x)
    return row_norms(jvp(lambda z: record.values(z, nodes), (x,), (dx,))[1])


def _chords(record: Tape, nodes: list[int], curve: Curve, grid: Tensor, at_once: int) -> tuple[Array, Array]:
    """Distances between neighbours, and between every second point: shapes (chords, nodes), (chords / 2, nodes)."""
    fine, coarse = [], []
    for start in range(0, len(grid) - 1, at_once):  # neighbouring chunks share a point, so that no chord is missing
        x = curve.point(grid[start : start + at_once + 1]).to(record.x)
        found = [value.flatten(1) for value in record.values(x, nodes)]
        fine.append(row_norms([value.diff(dim=0) for value in found]))
        coarse.append(row_norms([_every_second(value).diff(dim=0) for value in found]))
    return np.concatenate(fine), np.concatenate(coarse)


def _every_second(values: Tensor) -> Tensor:
    """Rows 0, 2, 4, ... and the last."""
    return values[::2] if len(values) % 2 else torch.cat([values[::2], values[-1:]])
