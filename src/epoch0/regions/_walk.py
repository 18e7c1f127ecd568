"""The walk: carry a complex of points through a network and cut it at every fold (DESIGN: one walk, two shapes)."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from epoch0.regions._cut import Cut
from epoch0.regions._sizes import Decisions, Sizes
from epoch0.regions._steps import Affine, Fold, Largest, Program


@runtime_checkable
class Complex(Protocol):
    """What the walk needs of a line or plane partition."""

    decisions: Decisions
    away: Tensor
    unbounded: bool

    def cut(self, values: Tensor, tolerance: Tensor, step: int, width: int, face: int | None = None) -> Cut | None:
        """Cut wherever a column of values changes its sign."""
        ...

    def settle(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """Take back what a maximum cut where no window has a tie; the rows kept, if any went."""
        ...


def walk(
    program: Program, complex_: Complex, points: Tensor, sizes: Sizes, after: Callable[[int], None] | None = None
) -> None:
    """Cut the complex along every fold of the network.

    Args:
        program: the network.
        complex_: the partition; it is refined in place.
        points: input points of its rows, shape (rows, *shape); rows at infinity hold directions.
        sizes: at the input.
        after: called with the number of each folding step once it has cut.
    """
    values, number, folds = {0: points}, 0, len(program.folds)
    for step, done in zip(program.steps, program.last_uses(), strict=True):
        sizes.step(step)
        if isinstance(step, Affine):
            values[step.output] = apply(step, [values[s] for s in step.inputs], complex_)
        else:
            last = number + 1 == folds
            if isinstance(step, Fold):
                _fold(step, complex_, values, sizes, number, done, last)
            else:
                _largest(step, complex_, values, sizes, number, last)
            if after:
                after(number)
            number += 1
            if last:
                return
        for slot in done:
            values.pop(slot, None)
        sizes.forget(done)


def apply(step: Affine, inputs: list[Tensor], complex_: Complex) -> Tensor:
    """An affine step on the rows; directions to infinity feel no bias."""
    found = step.run(*inputs)
    if step.biased and complex_.unbounded:
        found = found.clone()
        found[complex_.away != 0] -= step.run(*(torch.zeros_like(t[:1]) for t in inputs))
    return found


def _fold(
    step: Fold, complex_: Complex, values: dict[int, Tensor], sizes: Sizes, number: int, done: set[int], last: bool
) -> None:
    source = step.inputs[0]
    before = values[source]
    flat = before.reshape(len(before), -1)
    width = flat.shape[1]
    square = sizes.squares[source].reshape(sizes.groups, -1)
    faces, limits = [], []
    for face in step.faces:
        faces.append(flat if face == 0.0 else _shifted(flat, face, complex_))
        limits.append((square + face * face).sqrt_() * complex_.decisions.relative)
    columns = faces[0] if len(faces) == 1 else torch.cat(faces, 1)
    limit = limits[0].contiguous() if len(faces) == 1 else torch.cat(limits, 1)
    cut = complex_.cut(columns, limit, number, width)
    if last:
        return
    added = 0 if cut is None else len(cut)
    folded = before.new_empty(len(before) + added, *before.shape[1:])
    _run(step, before, complex_.away[: len(before)] if complex_.unbounded else None, folded[: len(before)])
    if cut is not None:
        fresh = cut.rows(before, torch.tensor(step.faces, dtype=flat.dtype, device=flat.device), width)
        _run(step, fresh, None, folded[len(before) :])
        if source not in done:
            values[source] = torch.cat([before, fresh])
        _extend(values, cut, {source, *done})
    values[step.output] = folded


def _shifted(flat: Tensor, face: float, complex_: Complex) -> Tensor:
    shifted = flat - face
    if complex_.unbounded:
        away = complex_.away != 0
        shifted[away] = flat[away]
    return shifted


def _run(step: Fold, before: Tensor, away: Tensor | None, out: Tensor) -> None:
    if step.into is not None:
        step.into(before, out)
    else:
        out.copy_(step.run(before))
    if away is not None and bool((far := away != 0).any()):
        out[far] = step.recession(before[far])


def _extend(values: dict[int, Tensor], cut: Cut, skip: set[int]) -> None:
    for slot in values.keys() - skip:
        values[slot] = torch.cat([values[slot], cut.rows(values[slot])])


def _largest(
    step: Largest, complex_: Complex, values: dict[int, Tensor], sizes: Sizes, number: int, last: bool
) -> None:
    """One element of every window after another; cuts at ties that a later element tops are taken back at the end."""
    source, windows = step.inputs[0], step.windows
    square = sizes.squares[source].reshape(sizes.groups, -1)[:, windows]
    limit = (2 * square.amax(dim=2)).sqrt_() * complex_.decisions.relative
    start = len(values[source])
    flat = values[source].reshape(start, -1)
    values[step.output] = flat[:, windows[:, 0]]
    for entry in range(1, windows.shape[1]):
        flat = values[source].reshape(len(values[source]), -1)
        challenger = flat[:, windows[:, entry]]
        cut = complex_.cut(challenger - values[step.output], limit, number, len(windows), entry)
        if cut is not None:
            challenger = torch.cat([challenger, cut.rows(challenger)])
            _extend(values, cut, set())
        values[step.output] = torch.maximum(values[step.output], challenger)
    if len(values[source]) > start and windows.shape[1] > 2:
        kept = complex_.settle(step, number, values[source], limit.amax(dim=0))
        for slot in values if kept is not None else ():
            values[slot] = values[slot][kept]
    if not last:
        values[step.output] = values[step.output].reshape(-1, *step.shape)
