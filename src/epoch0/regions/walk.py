"""The walk: carry a complex of points through a network and cut it at every fold (DESIGN: one walk, two shapes)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.regions.certificate import Sizes
from epoch0.regions.complex import Cut, empty
from epoch0.regions.line_cutting import Lines
from epoch0.regions.network.steps import Affine, Fold, Largest, Program
from epoch0.regions.planes.cutting import Plane
from epoch0.regions.workers import Progress, Report, ThreadPool

Complex = TypeVar("Complex", bound=Lines | Plane)  # a partition: its rows are points, whose values the walk carries
Part = tuple[Any, Tensor]  # of a partition, and the rows it has there

BLOCK = 96 << 20
"""Bytes of the tensors carried at a time: a few times what a processor's cache holds."""
_LEVELS = 8
"""Blocks that one worker holds together, about: those of the pieces that its piece is a piece of."""
_PIECES = 16
"""Parts that the whole is divided in at least, once it is: for the threads."""
_CACHE = 1 << 17
"""Numbers that a step reads at a time: they stay in the cache."""
MEMORY = 2e9
"""Bytes that a partition may take if the user does not say."""


def block(memory: float) -> int:
    """Bytes of the tensors to carry at a time: those of some levels of splitting are held together."""
    return int(max(1.0, min(BLOCK, memory / _LEVELS)))


def pool_for(workers: int, memory: float, progress: Progress | None = None) -> ThreadPool:
    """The threads of a walk: as many as are asked for, if the memory is enough for the blocks of all of them."""
    fitting = max(1, int(memory / (_LEVELS * block(memory))))
    return ThreadPool(min(workers, fitting), Report(progress))


def check_room(program: Program, memory: float) -> None:
    """Refuse a memory that the values at three points alone would fill, however the work is split."""
    alive, most, where = {0}, 0, ""
    for step, done in zip(program.steps, program.last_uses, strict=True):
        alive.add(step.output)
        size = _bytes(program, 3, tuple(alive))
        if size > most:
            most, where = size, step.name
        alive -= done
    if most > memory:
        raise InputError(
            f"memory={memory:.3g} bytes; at layer '{where}' the values at three points alone take {most:.3g}, and a "
            f"walk holds a few pieces of that size. Give at least {_LEVELS * most:.1g}."
        )


def walk(
    program: Program, complex_: Complex, values: dict[int, Tensor], sizes: Sizes, most: int, pool: ThreadPool,
    start: int = 0, number: int = 0, share: float = 1.0,
) -> Complex:  # fmt: skip
    """Cut the complex along every fold of the network.

    Where the tensors of all rows together would be larger than a block, the complex is split in parts that go through
    the rest of the network one after another, or side by side: no work is done twice, and no decision depends on how it
    is split or who does it.

    The complex is refined in place. The values by slot have the shape (rows, ...); at the start slot 0 holds the input
    points, directions for rows at infinity. ``most`` are the bytes of tensors carried at a time, ``start`` is the step
    to begin with, ``number`` that of the first fold from there on, ``share`` the part of the whole work.
    """
    folds, last_uses, left = len(program.folds), program.last_uses, program.work_left

    def divided(parts: Sequence[Part], gather: Callable[[Part], dict[int, Tensor]], index: int, number: int) -> Complex:
        rest = share * left[index] / left[start] / sum(len(rows) for _, rows in parts)

        def carried(part: Part) -> Any:
            return walk(program, part[0], gather(part), sizes, most, pool, index, number, rest * len(part[1]))

        return cast(Complex, complex_.join(pool.map(carried, parts)))

    for index, step in enumerate(program.steps[start:], start):
        pool.check()
        done, rows = last_uses[index], len(next(iter(values.values())))
        final = number + 1 == folds and not isinstance(step, Affine)  # makes no values any more
        slots = tuple(values) if final else (*values, step.output)
        if parts := _parts(complex_, _bytes(program, rows, slots) / most, start == 0):
            return divided(parts, partial(_taken, values), index, number)
        if isinstance(step, Affine):
            values[step.output] = apply(step, [values[s] for s in step.inputs], complex_)
        elif isinstance(step, Largest):
            _largest(step, complex_, values, sizes.squares[number], number)
        else:
            cut = _cut(step, complex_, values[step.inputs[0]], sizes.squares[number], number)
            if not final:
                kept = (*(values.keys() - done), step.output, program.steps[index + 1].output)
                wanted = _bytes(program, rows + (0 if cut is None else len(cut)), kept) / most
                if cut is not None and (parts := _parts(complex_, wanted, start == 0)):
                    # the tensors of all rows are never made
                    gather = partial(_gathered, step, cut, values, done)
                    return divided(parts, gather, index + 1, number + 1)
                _fold(step, complex_, values, cut, done)
        if final:
            pool.report.advance(share * left[index] / left[start], f"layer {folds} of {folds}")
            break
        number += not isinstance(step, Affine)
        for slot in done:
            values.pop(slot, None)
        done_here = share * (left[index] - left[index + 1]) / left[start]
        pool.report.advance(done_here, f"layer {min(number + 1, folds)} of {folds}")
    return complex_


def _parts(complex_: Complex, wanted: float, whole: bool) -> Sequence[Part]:
    """Parts of about a block each, if not smaller; none where all fits into one, or nothing can be divided."""
    parts = complex_.split(min(64, max(int(wanted) + 1, _PIECES if whole else 2))) if wanted > 1 else ()
    return parts if len(parts) > 1 else ()


def _bytes(program: Program, rows: int, slots: Sequence[int]) -> int:
    """Bytes of the tensors of some slots."""
    return 8 * rows * sum(program.elements[slot] for slot in slots)


def apply(step: Affine, inputs: list[Tensor], complex_: Complex) -> Tensor:
    """An affine step on the rows, some at a time; directions to infinity feel no bias."""
    rows = len(inputs[0])
    size = max(1, max(t[0].numel() for t in inputs))
    # a dense layer reads all its weights again for each block of rows, and those of a wide one are not in the cache
    some = max(512 if step.terms >= size else 16, _CACHE // size)
    if not step.weighted or rows <= some:
        found = step.run(*inputs)
    else:
        first = step.run(*(t[:some] for t in inputs))
        found = empty((rows, *first.shape[1:]), first)
        found[:some] = first
        for start in range(some, rows, some):
            found[start : start + some] = step.run(*(t[start : start + some] for t in inputs))
    if step.biased and complex_.unbounded:
        found = found.clone()
        away = (complex_.away != 0).nonzero()[:, 0]
        found[away] -= step.run(*(torch.zeros_like(t[away]) for t in inputs))
    return found


def _cut(step: Fold, complex_: Complex, before: Tensor, square: Tensor, number: int) -> Cut | None:
    """Cut along every face of a fold; ``before`` is what goes into it."""
    flat = before.reshape(len(before), -1)
    faces, limits = [], []
    for face in step.faces:
        faces.append(flat if face == 0.0 else _shifted(flat, face, complex_))
        limits.append((square + face * face).sqrt_() * complex_.decisions.relative)
    columns = faces[0] if len(faces) == 1 else torch.cat(faces, 1)
    limit = limits[0].contiguous() if len(faces) == 1 else torch.cat(limits, 1)
    return complex_.cut(columns, limit, number, flat.shape[1])


def _fold(step: Fold, complex_: Complex, values: dict[int, Tensor], cut: Cut | None, done: set[int]) -> None:
    """Fold the old rows and those of a cut; the other slots get the new rows too."""
    source = step.inputs[0]
    before = values[source]
    if cut is not None:
        before = cut.extended(before, *_faces(step, before))
        for slot in values.keys() - {source, *done}:
            values[slot] = cut.extended(values[slot])
    in_place = cut is not None and source in done  # nobody else has that memory
    values[source] = before
    values[step.output] = _run(step, before, complex_, in_place)


def _taken(values: dict[int, Tensor], part: Part) -> dict[int, Tensor]:
    """The rows of a part."""
    return {slot: tensor.index_select(0, part[1]) for slot, tensor in values.items()}


def _gathered(step: Fold, cut: Cut, values: dict[int, Tensor], done: set[int], part: Part) -> dict[int, Tensor]:
    """As :func:`_fold`, for some rows only, old and new: the tensors of all are never there at once."""
    complex_, rows = part
    source = step.inputs[0]
    some = {slot: cut.take(tensor, rows) for slot, tensor in values.items() if slot not in {source, *done}}
    before = cut.take(values[source], rows, *_faces(step, values[source]))
    if source not in done:
        some[source] = before
    some[step.output] = _run(step, before, complex_, source in done)
    return some


def _faces(step: Fold, before: Tensor) -> tuple[Tensor, int]:
    """Values of a fold's faces, and the elements of a row."""
    return torch.tensor(step.faces, dtype=before.dtype, device=before.device), before[0].numel()


def _shifted(flat: Tensor, face: float, complex_: Complex) -> Tensor:
    shifted = flat - face
    if complex_.unbounded:
        away = complex_.away != 0
        shifted[away] = flat[away]
    return shifted


def _run(step: Fold, before: Tensor, complex_: Complex, in_place: bool) -> Tensor:
    away = (complex_.away != 0).nonzero()[:, 0] if complex_.unbounded else None
    directions = None if away is None else before[away]
    found, some = before if in_place else empty(tuple(before.shape), before), max(1, _CACHE // before[0].numel())
    for start in range(0, len(before), some):
        found[start : start + some] = step.run(before[start : start + some])
    if away is not None and directions is not None and len(away):
        found[away] = step.recession(directions)
    return found


def _largest(step: Largest, complex_: Complex, values: dict[int, Tensor], square: Tensor, number: int) -> None:
    """One element of every window after another; cuts at ties that a later element tops are taken back at the end."""
    source, windows = step.inputs[0], step.windows
    limit = (2 * square[:, windows].amax(dim=2)).sqrt_() * complex_.decisions.relative
    start = len(values[source])
    flat = values[source].reshape(start, -1)
    values[step.output] = flat[:, windows[:, 0]]
    for entry in range(1, windows.shape[1]):
        flat = values[source].reshape(len(values[source]), -1)
        challenger = flat[:, windows[:, entry]]
        cut = complex_.cut(challenger - values[step.output], limit, number, len(windows), entry)
        if cut is not None:
            challenger = cut.extended(challenger)
            for slot, tensor in values.items():
                values[slot] = cut.extended(tensor)
        values[step.output] = torch.maximum(values[step.output], challenger)
    if len(values[source]) > start and windows.shape[1] > 2:
        kept = complex_.settle(step, number, values[source], limit.amax(dim=0))
        for slot in values if kept is not None else ():
            values[slot] = values[slot][kept]
    values[step.output] = values[step.output].reshape(-1, *step.shape)
