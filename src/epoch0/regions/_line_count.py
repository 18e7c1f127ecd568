"""Lines in, partitions out: which points to start from, how many lines at once, and what the walk's arrays mean."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.curves import Curve
from epoch0.errors import InputError, check_finite
from epoch0.regions._certificate import Certificate
from epoch0.regions._line import Lines
from epoch0.regions._line_partition import LinePartition, LinePartitions, sample
from epoch0.regions._sizes import Sizes
from epoch0.regions._steps import Program
from epoch0.regions._trace import trace
from epoch0.regions._walk import BLOCK, MEMORY, block, check_memory, walk


def on_line(
    model: nn.Module, x0: Any, x1: Any, *, kind: str = "segment", memory: float = MEMORY
) -> LinePartition | LinePartitions:
    """The regions of a network along a line through x0 and x1, or along many lines at once.

    >>> p = on_line(net, torch.zeros(784), x)                # x of shape (784,)
    >>> p.count, p.linear_count, p.breakpoints.shape
    (511, 509, (510,))
    >>> on_line(net, zeros, images).counts                   # both of shape (100, 784): 100 lines

    Args:
        model: any torch module made of affine and piecewise linear operations: dense, convolutional, residual, with
            batch norm, average and max pooling, relu, leaky_relu, prelu, hardtanh, relu6, abs, clamp. It is read in
            float64 and evaluation mode and stays as it is.
        x0: where t = 0: one point of the model's input shape, or a batch of them.
        x1: where t = 1, of the same shape.
        kind: "segment" from x0 to x1, "ray" from x0 through x1 without end, "line" without end on both sides.
        memory: bytes that the values at break points may take, about; larger work is split along the lines.

    Returns:
        A LinePartition, or for batches LinePartitions.

    Raises:
        InputError: if x0 = x1, shapes differ or do not suit the model, values are NaN, or the model has an operation
            that is not piecewise linear (the message names it).

    Source: Hanin and Rolnick 2019, section 3.1 and Theorem 1.
    """
    if kind not in ("segment", "ray", "line"):
        raise InputError(f"kind={kind!r}; a line is a 'segment', a 'ray' from x0 on, or a whole 'line'.")
    x0, x1 = _tensor("x0", x0), _tensor("x1", x1)
    if x0.shape != x1.shape:
        raise InputError(f"x0 has shape {tuple(x0.shape)} and x1 {tuple(x1.shape)}; they must agree.")
    program, single = _program(model, x0)
    corners = torch.stack([x0, x1], dim=0 if single else 1).to(_device(model))
    corners = corners[None] if single else corners
    same = (corners[:, 0] == corners[:, 1]).reshape(len(corners), -1).all(dim=1)
    if bool(same.any()):
        where = "" if single else f" for line {int(same.nonzero()[0])}"
        raise InputError(f"x0 and x1 are the same point{where}; a line needs two different ones.")
    partitions = cut_lines(program, corners, kind, memory=check_memory(memory))
    return partitions[0] if single else LinePartitions(tuple(partitions))


def on_curve(model: nn.Module, curve: Any, *, pieces: int = 1000, memory: float = MEMORY) -> LinePartition:
    """The regions of a network along a curve, taken as a polyline of many straight pieces.

    >>> p = on_curve(net, epoch0.curves.Arc(x0, x1), pieces=500)
    >>> p.count, p.notes
    (733, ('the polyline is at most 3.1e-06 away from the curve, ...',))

    Args:
        model: as for :func:`on_line`.
        curve: any of ``epoch0.curves``; t is the curve's own parameter.
        pieces: straight pieces, equal in t. The distance to the curve falls with the square of their number.
        memory: as for :func:`on_line`.

    Returns:
        A LinePartition; its first note states the largest distance from the curve.

    Source: Raghu et al. 2017, section 2.3.
    """
    if not isinstance(curve, Curve):
        raise InputError(f"a curve of epoch0.curves is needed, not a {type(curve).__name__}.")
    if isinstance(pieces, bool) or pieces < 1:
        raise InputError(f"pieces={pieces!r}; a polyline has at least one piece.")
    curve = curve.to(torch.float64)
    corners = curve.point(torch.linspace(0, 1, pieces + 1, dtype=torch.float64))
    middle = curve.point((torch.arange(pieces, dtype=torch.float64) + 0.5) / pieces)
    away = (middle - 0.5 * (corners[1:] + corners[:-1])).reshape(pieces, -1).norm(dim=1)
    length = (corners[1:] - corners[:-1]).reshape(pieces, -1).norm(dim=1)
    program, _ = _program(model, corners[0], single=True)
    note = (
        f"the polyline is at most {float(away.max()):.1e} away from the curve, {float((away / length).max()):.1e} of a "
        f"piece's length; {pieces} pieces."
    )
    return cut_lines(program, corners[None].to(_device(model)), "curve", (note,), check_memory(memory))[0]


def cut_lines(
    program: Program, corners: Tensor, kind: str, notes: tuple[str, ...] = (), memory: float = MEMORY
) -> list[LinePartition]:
    """Partitions of lines given by their corners, shape (lines, corners, *shape)."""
    found: list[LinePartition] = []
    # the sizes of all lines taken at once are held until the last is cut
    at_once = max(1, BLOCK // (16 * (corners[0].numel() + sum(program.sizes))))
    for start in range(0, len(corners), at_once):
        found.extend(_partitions(program, corners[start : start + at_once], kind, notes, memory))
    return found


def _walked(program: Program, corners: Tensor, kind: str, memory: float) -> Lines:
    """The lines cut along every fold."""
    lines, per_line = corners.shape[:2]
    device = corners.device
    t = torch.linspace(0, 1, per_line, dtype=torch.float64, device=device).repeat(lines)
    points, away = corners.reshape(lines * per_line, *corners.shape[2:]), torch.zeros_like(t, dtype=torch.int64)
    samples = torch.stack([sample(one) for one in corners])
    group = torch.arange(lines, device=device).repeat_interleave(samples.shape[1])
    samples = samples.reshape(-1, *corners.shape[2:])
    infinite = torch.zeros(lines, dtype=torch.bool, device=device)
    line = torch.arange(lines, device=device).repeat_interleave(per_line)
    own = line.clone()
    if kind in ("ray", "line"):
        out = corners[:, 1] - corners[:, 0]
        backwards = kind == "line"
        ends = [-out, corners[:, 0], out] if backwards else [corners[:, 0], out]
        points = torch.stack(ends, 1).reshape(-1, *out.shape[1:])
        far = math.inf
        t = torch.tensor([-far, 0.0, far] if backwards else [0.0, far], dtype=torch.float64, device=device)
        away = torch.tensor([-1, 0, 1] if backwards else [0, 1], device=device).repeat(lines)
        line = torch.arange(lines, device=device).repeat_interleave(len(t))
        t = t.repeat(lines)
        own = torch.where(away == 0, line, line + lines)  # directions have sizes of their own, without biases
        samples = torch.cat([samples, out])
        group = torch.cat([group, lines + torch.arange(lines, device=device)])
        infinite = torch.cat([infinite, ~infinite])
    complex_ = Lines(line, t, away, own)
    with torch.no_grad():
        sizes = Sizes.measure(program, samples, group, infinite)
        found = walk(program, complex_, {0: points}, sizes, block(memory))
    assert isinstance(found, Lines)
    return found


def _partitions(
    program: Program, corners: Tensor, kind: str, notes: tuple[str, ...], memory: float
) -> list[LinePartition]:
    complex_ = _walked(program, corners, kind, memory)
    breaks = complex_.step[complex_.order] >= 0
    order, line = complex_.order[breaks], complex_.line[breaks].cpu().numpy()
    arrays = [getattr(complex_, name)[order].cpu().numpy() for name in ("t", "step", "element", "face")]
    ends = np.searchsorted(line, np.arange(len(corners) + 1))
    layers = tuple(step.name for step in program.folds)
    found = []
    for i in range(len(corners)):
        t, step, element, face = (one[ends[i] : ends[i + 1]] for one in arrays)
        certificate = Certificate.of(complex_.decisions, ordered=bool((np.diff(t) >= 0).all()))
        per_layer = tuple((1 + np.cumsum(np.bincount(step, minlength=len(layers)))).tolist())
        found.append(LinePartition(
            corners[i], kind, t, layers, step, element, face, per_layer, certificate, (*notes, *program.notes),
            program.neurons, program,
        ))  # fmt: skip
    return found


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _tensor(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise InputError(f"{name} must be a torch tensor, not a {type(value).__name__}.")
    if value.dtype in (torch.float16, torch.bfloat16):
        raise InputError(f"{name} is {value.dtype}, too coarse to say where a line runs; give float32 or float64.")
    check_finite(name, value)
    return value.detach().double()


def _program(model: nn.Module, x: Tensor, single: bool | None = None) -> tuple[Program, bool]:
    """The traced model, and whether x is one point: a batch is tried first, unless x has one dimension only."""
    if single or x.dim() < 2:
        return trace(model, tuple(x.shape)), True
    try:
        return trace(model, tuple(x.shape[1:])), False
    except InputError as error:
        try:
            return trace(model, tuple(x.shape)), True
        except InputError as second:
            raise (second if "does not take points" in str(error) else error) from None
