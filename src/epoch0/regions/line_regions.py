"""Lines and curves in, partitions out: the public functions, their checks, and lines of many networks at once."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.arguments import Layers, Positive, Size, checked
from epoch0.curves import Curve
from epoch0.errors import InputError, check_finite
from epoch0.networks.ensemble import Ensemble
from epoch0.regions.certificate import Certificate, Sizes
from epoch0.regions.line_cutting import Lines
from epoch0.regions.line_partition import LinePartition, LinePartitions, sample
from epoch0.regions.network.steps import Program
from epoch0.regions.network.trace import trace
from epoch0.regions.walk import MEMORY, block, check_room, pool_for, walk
from epoch0.regions.workers import Budget, Progress, ThreadPool


@checked
def on_line(
    model: nn.Module | Ensemble, x0: Tensor, x1: Tensor, *, kind: str = "segment", memory: Positive = MEMORY,
    workers: Layers = 1, progress: Progress | None = None,
) -> LinePartition | LinePartitions:  # fmt: skip
    """The regions of a network along a line through x0 and x1, or along many lines at once.

    >>> p = on_line(net, x0, x1)                             # net: 64-32-32-10; x0, x1 of shape (64,)
    >>> p.count, p.linear_count, p.breakpoints.shape
    (22, 22, (21,))
    >>> on_line(net, torch.zeros(100, 64), images).counts.shape      # images of shape (100, 64): 100 lines
    (100,)

    Args:
        model: any torch module made of affine and piecewise linear operations: dense, convolutional, residual, with
            batch norm, average and max pooling, relu, leaky_relu, prelu, hardtanh, relu6, abs, clamp. It is read in
            float64 and evaluation mode and stays as it is. Or many networks at once: an ensemble.
        x0, x1: where t = 0 and where t = 1: one point each of the model's input shape, or a batch of them.
        kind: "segment" from x0 to x1, "ray" from x0 through x1 without end, "line" without end on both sides.
        memory: bytes that values and break points may take, about; larger work is split along the lines.
        workers: threads that work on the pieces; the result is the same to the last bit. Fewer work if the memory is
            not enough for the values that so many hold.
        progress: is called with the part that is done, from 0 to 1, and a text, while the walk runs.

    For an ensemble the lines of its first network come first, and ``counts`` has shape (networks, lines).

    Raises:
        InputError: if x0 = x1, shapes differ or do not suit the model, values are NaN, or the model has an operation
            that is not piecewise linear (the message names it), or there are more break points than fit into the
            memory.

    Source: Hanin and Rolnick 2019, section 3.1 and Theorem 1.
    """
    if kind not in ("segment", "ray", "line"):
        raise InputError(f"kind={kind!r}; a line is a 'segment', a 'ray' from x0 on, or a whole 'line'.")
    x0, x1 = _tensor("x0", x0), _tensor("x1", x1)
    if x0.shape != x1.shape:
        raise InputError(f"x0 has shape {tuple(x0.shape)} and x1 {tuple(x1.shape)}; they must agree.")
    one = model[0] if isinstance(model, Ensemble) else model
    program, single = _program(one, x0)
    corners = torch.stack([x0, x1], dim=0 if single else 1).to(_device(one))
    corners = corners[None] if single else corners
    same = (corners[:, 0] == corners[:, 1]).reshape(len(corners), -1).all(dim=1)
    if bool(same.any()):
        where = "" if single else f" for line {int(same.nonzero()[0])}"
        raise InputError(f"x0 and x1 are the same point{where}; a line needs two different ones.")
    if isinstance(model, Ensemble):
        lines, count = list[LinePartition](), len(model)
        for i, net in enumerate(model):
            told = None if progress is None else partial(_told, progress, i, count)
            lines += cut_lines(trace(net, program.shape), corners, kind, (), memory, workers, told)
        return LinePartitions(tuple(lines), count)
    found = cut_lines(program, corners, kind, (), memory, workers, progress)
    return found[0] if single else LinePartitions(tuple(found))


@checked
def on_curve(
    model: nn.Module, curve: Curve, *, pieces: Size = 1000, memory: Positive = MEMORY, workers: Layers = 1,
    progress: Progress | None = None,
) -> LinePartition:  # fmt: skip
    """The regions of a network along a curve, taken as a polyline of many straight pieces.

    >>> p = on_curve(net, epoch0.curves.Arc(x0, x1), pieces=500)        # x0, x1 of shape (64,)
    >>> p.count, p.notes
    (22, ("the polyline is at most 1.2e-05 away from the curve, ...",))

    The other arguments are those of :func:`on_line`; t is the curve's own parameter. The straight pieces are equal in
    t; the distance to the curve falls with the square of their number, and the first note states the largest.

    Source: Raghu et al. 2017, section 2.3.
    """
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
    corners = corners[None].to(_device(model))
    return cut_lines(program, corners, "curve", (note,), memory, workers, progress)[0]


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


_SIZES = 48 << 20  # bytes of the sizes of lines that are cut together
_BYTES = 250  # of one break point: its place, owner and group, twice while parts are put together, and the result


def cut_lines(
    program: Program, corners: Tensor, kind: str, notes: tuple[str, ...] = (), memory: float = MEMORY,
    workers: int = 1, progress: Progress | None = None,
) -> list[LinePartition]:  # fmt: skip
    """Partitions of lines given by their corners, shape (lines, corners, *shape)."""
    check_room(program, memory)
    found: list[LinePartition] = []
    # the sizes of all lines taken at once are held until the last is cut
    at_once = max(1, int(min(_SIZES, memory / 8)) // (16 * (corners[0].numel() + sum(program.sizes))))
    advice = "give more memory, or cut fewer or shorter lines at a time"
    budget = Budget(tuple(step.name for step in program.folds), memory, len(corners), _BYTES, "regions", advice)
    with pool_for(workers, memory, progress) as pool:
        for part in corners.split(at_once):
            share = len(part) / len(corners)
            found.extend(partitions(program, part, kind, notes, memory, pool, budget, share))
        pool.report.finish(f"{budget.cells} regions")
    return found


def _told(progress: Progress, network: int, networks: int, done: float, what: str) -> None:
    progress((network + done) / networks, what)


def walked(
    program: Program, corners: Tensor, kind: str, memory: float, pool: ThreadPool, budget: Budget, share: float
) -> Lines:  # fmt: skip
    """The lines cut along every fold."""
    lines, per_line = corners.shape[:2]
    device = corners.device
    t = torch.linspace(0, 1, per_line, dtype=torch.float64, device=device).repeat(lines)
    points, away = corners.reshape(lines * per_line, *corners.shape[2:]), torch.zeros_like(t, dtype=torch.int64)
    samples = torch.stack([sample(one) for one in corners])
    group = torch.arange(lines, device=device).repeat_interleave(samples.shape[1])
    samples = samples.reshape(-1, *corners.shape[2:])
    infinite = torch.zeros(lines, dtype=torch.bool, device=device)
    own = line = torch.arange(lines, device=device).repeat_interleave(per_line)
    if kind in ("ray", "line"):
        out = corners[:, 1] - corners[:, 0]
        backwards = kind == "line"
        ends = [-out, corners[:, 0], out] if backwards else [corners[:, 0], out]
        points = torch.stack(ends, 1).reshape(-1, *out.shape[1:])
        ways = torch.tensor([-1, 0, 1] if backwards else [0, 1], device=device)
        away = ways.repeat(lines)
        t = torch.where(away == 0, 0.0, away * math.inf).double()
        line = torch.arange(lines, device=device).repeat_interleave(len(ways))
        own = torch.where(away == 0, line, line + lines)  # directions have sizes of their own, without biases
        samples = torch.cat([samples, out])
        group = torch.cat([group, lines + torch.arange(lines, device=device)])
        infinite = torch.cat([infinite, ~infinite])
    complex_ = Lines(line, t, away, own, budget)
    with torch.no_grad():
        sizes = Sizes.measure(program, samples, group, infinite)
        found = walk(program, complex_, {0: points}, sizes, block(memory), pool, share=share)
    return found


def partitions(
    program: Program, corners: Tensor, kind: str, notes: tuple[str, ...], memory: float, pool: ThreadPool,
    budget: Budget, share: float,
) -> list[LinePartition]:  # fmt: skip
    """Partitions of lines that are cut together."""
    complex_ = walked(program, corners, kind, memory, pool, budget, share)
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
        where, said = (corners[i], kind, t, layers, step, element, face), (*notes, *program.notes)
        found.append(LinePartition(*where, per_layer, certificate, said, program.neurons, program))
    return found
