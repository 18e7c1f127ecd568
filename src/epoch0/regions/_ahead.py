"""New points carried through a fold and the matrix product after it at once, without multiplying (on the CPU).

Along a segment on which the input of a fold is linear, the output of an affine step after the fold is linear but for a
bend wherever an element passes a face. With its values at the two ends, and the columns of the matrix as the bends'
weights, its value at a new point is a sum of a few rows; multiplying would take as many as the fold has elements.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from epoch0.regions._bends import Bends
from epoch0.regions._cut import Cut
from epoch0.regions._pieces import slopes_between
from epoch0.regions._room import room
from epoch0.regions._steps import Affine, Fold, Step

_BLOCK = 1 << 19  # numbers made at a time: they stay in the cache
_WORTH = 8.0  # adding a row takes as long as so many of the terms of a product


def carried(
    step: Fold, following: Step, cut: Cut, before: Tensor, others: Sequence[Tensor] = (),
    folds: Sequence[Fold | None] = (),
) -> Tensor | None:  # fmt: skip
    """What an affine step after a fold makes of all rows, those of the cut too; None if it is better to multiply.

    Args:
        step: the fold.
        following: the step after it.
        cut: its new rows.
        before: what goes into the fold at the old rows.
        others: what else goes into the step after it, at the old rows: they are straight between those.
        folds: of each of these, what folds it first, if anything does.
    """
    if not isinstance(following, Affine) or not following.weighted:
        return None
    if following.inputs[0] != step.output or step.output in following.inputs[1:]:
        return None
    rows, elements = len(before), before[0].numel()
    if cut.bends is None or len(cut) < elements or before.device.type != "cpu":
        return None
    found = cut.bends(len(cut) * max(2.0, elements / _WORTH))
    if found is None:
        return None
    others = [one if fold is None else fold.run(one) for one, fold in itertools.zip_longest(others, folds)]
    ahead = affine_rows(lambda some, *more: following.run(step.run(some), *more), [before, *others], len(cut))
    flat, columns = ahead.view(len(ahead), -1), response(following, before[:1], others).numpy()
    jump = jumps(step, before[:1])
    place = rows
    for part, bent in zip((cut, cut.second), found, strict=True):
        if part is not None and len(part.u):
            add_bends(flat[place : place + len(part.u)], flat[:place], part, bent, jump, columns)
            place += len(part.u)
    return ahead


def add_bends(
    out: Tensor, values: Tensor, cut: Cut, bent: Bends, jump: np.ndarray, columns: np.ndarray
) -> None:  # fmt: skip
    """Fill ``out``, row i at share b[i] from row u[i] to row v[i] of ``values``, bends included.

    Args:
        out: (points, outputs).
        values: rows that are known, (rows, outputs).
        cut: the points.
        bent: their bends.
        jump: change of slope at each column of the fold.
        columns: what the affine step makes of each element, (elements, outputs).
    """
    from scipy.sparse import csr_matrix

    known, made, elements = values.numpy(), out.numpy(), len(columns)
    ends = torch.stack([cut.u, cut.v], dim=1).view(-1).numpy()
    parts = torch.stack([cut.a, cut.b], dim=1).view(-1).numpy()
    weight, column = bent.weight * jump[bent.column], bent.column % elements
    size = max(1, _BLOCK // max(1, out.shape[1]))
    for first in range(0, len(made), size):
        last = min(first + size, len(made))
        two = slice(2 * first, 2 * last)
        straight = csr_matrix(
            (parts[two], ends[two], np.arange(0, 2 * (last - first) + 1, 2)), shape=(last - first, len(known))
        )
        low, high = bent.start[first], bent.start[last]
        pulled = csr_matrix(
            (weight[low:high], column[low:high], bent.start[first : last + 1] - low), shape=(last - first, elements)
        )
        np.add(straight @ known, pulled @ columns, out=made[first:last])


def jumps(step: Fold, row: Tensor) -> np.ndarray:
    """Change of slope at each column of a fold: face by face, element by element."""
    return slopes_between(step, row).diff(dim=0).reshape(-1).numpy()


def response(step: Affine, row: Tensor, others: Sequence[Tensor] = ()) -> Tensor:
    """What an affine step makes of each element of its first input, (elements, outputs).

    Args:
        step: whose response it is.
        row: one row of that input.
        others: the other inputs, for their shapes.
    """
    unit = torch.eye(row.numel(), dtype=row.dtype, device=row.device).view(-1, *row.shape[1:])
    nothing = [torch.zeros_like(one[:1]) for one in others]
    found = affine_rows(step.run, [unit, *(one.expand(len(unit), *one.shape[1:]) for one in nothing)])
    return (found - step.run(torch.zeros_like(row), *nothing)).reshape(row.numel(), -1)


def affine_rows(run: Callable[..., Tensor], inputs: list[Tensor], more: int = 0) -> Tensor:
    """A step on many rows, some at a time: intermediate results stay in the cache.

    Args:
        run: the step.
        inputs: its inputs.
        more: rows to leave free at the end.
    """
    rows = len(inputs[0])
    size = max(64, _BLOCK // max(1, max(t[0].numel() for t in inputs)))
    if rows <= size and not more:
        return run(*inputs)
    first = run(*(t[:size] for t in inputs))
    found = room((rows + more, *first.shape[1:]), first)
    found[: len(first)] = first
    for start in range(size, rows, size):
        found[start : min(start + size, rows)] = run(*(t[start : start + size] for t in inputs))
    return found
