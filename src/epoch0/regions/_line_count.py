"""Lines and curves in, partitions out: the public functions and the checks of what they are given."""

from typing import Any

import torch
from torch import Tensor, nn

from epoch0.curves import Curve
from epoch0.errors import InputError, check_finite
from epoch0.networks.ensemble import Ensemble
from epoch0.regions._cut_lines import cut_lines
from epoch0.regions._ensemble_lines import cut_ensemble
from epoch0.regions._line_partition import LinePartition, LinePartitions
from epoch0.regions._report import Progress
from epoch0.regions._steps import Program
from epoch0.regions._trace import trace
from epoch0.regions._walk import MEMORY, check_memory


def on_line(
    model: nn.Module | Ensemble, x0: Any, x1: Any, *, kind: str = "segment", memory: float = MEMORY, workers: int = 1,
    progress: Progress | None = None,
) -> LinePartition | LinePartitions:  # fmt: skip
    """The regions of a network along a line through x0 and x1, or along many lines at once.

    >>> p = on_line(net, torch.zeros(784), x)                # x of shape (784,)
    >>> p.count, p.linear_count, p.breakpoints.shape
    (511, 509, (510,))
    >>> on_line(net, zeros, images).counts                   # both of shape (100, 784): 100 lines

    Args:
        model: any torch module made of affine and piecewise linear operations: dense, convolutional, residual, with
            batch norm, average and max pooling, relu, leaky_relu, prelu, hardtanh, relu6, abs, clamp. It is read in
            float64 and evaluation mode and stays as it is. Or many networks at once: an ensemble.
        x0: where t = 0: one point of the model's input shape, or a batch of them.
        x1: where t = 1, of the same shape.
        kind: "segment" from x0 to x1, "ray" from x0 through x1 without end, "line" without end on both sides.
        memory: bytes that values and break points may take, about; larger work is split along the lines.
        workers: threads that work on the pieces; the result is the same to the last bit. Fewer work if the memory is
            not enough for the values that so many hold.
        progress: is called with the part that is done, from 0 to 1, and a text, while the walk runs.

    Returns:
        A LinePartition, or for batches and ensembles LinePartitions; for an ensemble the lines of its first network
        come first, and ``counts`` has shape (networks, lines).

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
    _check_lines(corners, single)
    if isinstance(model, Ensemble):
        return cut_ensemble(model, program, corners, kind, check_memory(memory), workers, progress)
    found = cut_lines(program, corners, kind, (), check_memory(memory), workers, progress)
    return found[0] if single else LinePartitions(tuple(found))


def on_curve(
    model: nn.Module, curve: Any, *, pieces: int = 1000, memory: float = MEMORY, workers: int = 1,
    progress: Progress | None = None,
) -> LinePartition:  # fmt: skip
    """The regions of a network along a curve, taken as a polyline of many straight pieces.

    >>> p = on_curve(net, epoch0.curves.Arc(x0, x1), pieces=500)
    >>> p.count, p.notes
    (733, ('the polyline is at most 3.1e-06 away from the curve, ...',))

    Args:
        model: as for :func:`on_line`.
        curve: any of ``epoch0.curves``; t is the curve's own parameter.
        pieces: straight pieces, equal in t. The distance to the curve falls with the square of their number.
        memory, workers, progress: as for :func:`on_line`.

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
    corners = corners[None].to(_device(model))
    return cut_lines(program, corners, "curve", (note,), check_memory(memory), workers, progress)[0]


def _check_lines(corners: Tensor, single: bool) -> None:
    same = (corners[:, 0] == corners[:, 1]).reshape(len(corners), -1).all(dim=1)
    if bool(same.any()):
        where = "" if single else f" for line {int(same.nonzero()[0])}"
        raise InputError(f"x0 and x1 are the same point{where}; a line needs two different ones.")


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
