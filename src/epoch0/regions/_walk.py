"""The walk: carry a complex of points through a network and cut it at every fold (DESIGN: one walk, two shapes)."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.regions._cut import Cut
from epoch0.regions._sizes import Decisions, Sizes
from epoch0.regions._steps import Affine, Fold, Largest, Program, Step

BLOCK = 48 << 20
"""Bytes of the tensors carried at a time: a few times what a processor's cache holds."""
MEMORY = 2e9
"""Bytes that a partition may take if the user does not say."""


def check_memory(memory: float) -> float:
    """Refuse a memory that is no positive number of bytes."""
    if isinstance(memory, bool) or not memory > 0:
        raise InputError(f"memory={memory!r}; give a positive number of bytes, such as 2e9.")
    return memory


def block(memory: float) -> int:
    """Bytes of the tensors to carry at a time: those of some levels of splitting are held together."""
    return int(max(1.0, min(BLOCK, memory / 8)))


@runtime_checkable
class Complex(Protocol):
    """What the walk needs of a line or plane partition."""

    decisions: Decisions
    away: Tensor
    unbounded: bool

    @property
    def network(self) -> Tensor | None:
        """Network of each row, where there are many."""
        ...

    def cut(self, values: Tensor, tolerance: Tensor, step: int, width: int, face: int | None = None) -> Cut | None:
        """Cut wherever a column of values changes its sign."""
        ...

    def settle(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """Take back what a maximum cut where no window has a tie; the rows kept, if any went."""
        ...

    def split(self, parts: int) -> Sequence[tuple[Any, Tensor]]:
        """Parts that can be cut independently, with their rows here; none if it cannot be split."""
        ...

    def join(self, parts: Sequence[Any]) -> Any:
        """The whole, made of its parts after they were cut."""
        ...


def walk(
    program: Program, complex_: Complex, values: dict[int, Tensor], sizes: Sizes, most: int = BLOCK, start: int = 0,
    number: int = 0,
) -> Complex:  # fmt: skip
    """Cut the complex along every fold of the network.

    Where the tensors of all rows together would be larger than a block, the complex is split in parts that go through
    the rest of the network one after another: no work is done twice, and no decision depends on how it is split.

    Args:
        program: the network.
        complex_: the partition; it is refined in place.
        values: slot -> values at its rows, (rows, ...); at the start slot 0 holds the input points, directions for
            rows at infinity.
        sizes: of the terms in every folding step.
        most: bytes of the tensors carried at a time.
        start: step to begin with.
        number: number of the first folding step from there on.

    Returns:
        The partition.
    """
    folds, last_uses = len(program.folds), program.last_uses()
    for index, step in enumerate(program.steps[start:], start):
        wanted = _bytes(program, values, step) / most
        if wanted > 1 and len(parts := complex_.split(min(64, int(wanted) + 1))) > 1:
            done = []
            for part, rows in parts:
                some = {slot: tensor[rows] for slot, tensor in values.items()}
                done.append(walk(program, part, some, sizes, most, index, number))
            whole: Complex = complex_.join(done)
            return whole
        if isinstance(step, Affine):
            values[step.output] = apply(step, [values[s] for s in step.inputs], complex_)
        else:
            last = number + 1 == folds
            square = sizes.squares[number]
            if isinstance(step, Fold):
                _fold(step, complex_, values, square, number, last_uses[index], last)
            else:
                _largest(step, complex_, values, square, number, last)
            number += 1
            if last:
                break
        for slot in last_uses[index]:
            values.pop(slot, None)
    return complex_


def _bytes(program: Program, values: dict[int, Tensor], step: Step) -> int:
    """Bytes of all tensors alive while the step runs, but for the rows that a fold adds."""
    rows = len(next(iter(values.values())))
    return 8 * rows * sum(program.elements[slot] for slot in (*values, step.output))


def apply(step: Affine, inputs: list[Tensor], complex_: Complex) -> Tensor:
    """An affine step on the rows; directions to infinity feel no bias."""
    network = complex_.network
    found = step.many(inputs, network)
    if step.biased and complex_.unbounded:
        found = found.clone()
        away = (complex_.away != 0).nonzero()[:, 0]
        some = None if network is None else network[away]
        found[away] -= step.many([torch.zeros_like(t[away]) for t in inputs], some)
    return found


def _fold(
    step: Fold, complex_: Complex, values: dict[int, Tensor], square: Tensor, number: int, done: set[int], last: bool
) -> None:
    source = step.inputs[0]
    before = values[source]
    flat = before.reshape(len(before), -1)
    width = flat.shape[1]
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
    step: Largest, complex_: Complex, values: dict[int, Tensor], square: Tensor, number: int, last: bool
) -> None:
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
            challenger = torch.cat([challenger, cut.rows(challenger)])
            _extend(values, cut, set())
        values[step.output] = torch.maximum(values[step.output], challenger)
    if len(values[source]) > start and windows.shape[1] > 2:
        kept = complex_.settle(step, number, values[source], limit.amax(dim=0))
        for slot in values if kept is not None else ():
            values[slot] = values[slot][kept]
    if not last:
        values[step.output] = values[step.output].reshape(-1, *step.shape)
