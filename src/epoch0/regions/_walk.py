"""The walk: carry a complex of points through a network and cut it at every fold (DESIGN: one walk, two shapes)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.regions._ahead import affine_rows, carried
from epoch0.regions._complex import Complex, Part
from epoch0.regions._cut import Cut
from epoch0.regions._late import all_plain, late_folds, limit_of, watch_before, way_of
from epoch0.regions._report import Progress, Report
from epoch0.regions._room import grown, room, roomy
from epoch0.regions._sizes import Sizes
from epoch0.regions._spread import Crew, check_workers
from epoch0.regions._steps import Affine, Fold, Largest, Program
from epoch0.regions._watch import Watch

BLOCK = 96 << 20
"""Bytes of the tensors carried at a time: a few times what a processor's cache holds."""
_LARGE = 1 << 22  # numbers: memory for more is fetched from the system and given back every time
_AHEAD = 4.0  # blocks that may be filled at once where that saves multiplying
_LEVELS = 8
"""Blocks that one worker holds together, about: those of the pieces that its piece is a piece of."""
_IDLE = 2
"""Blocks that may lie idle for each worker."""
MEMORY = 2e9
"""Bytes that a partition may take if the user does not say."""


def check_memory(memory: float) -> float:
    """Refuse a memory that is no positive number of bytes."""
    if isinstance(memory, bool) or not memory > 0:
        raise InputError(f"memory={memory!r}; give a positive number of bytes, such as 2e9.")
    return memory


def block(memory: float) -> int:
    """Bytes of the tensors to carry at a time: those of some levels of splitting are held together."""
    return int(max(1.0, min(BLOCK, memory / _LEVELS)))


def crew_for(workers: int, memory: float, progress: Progress | None = None) -> Crew:
    """The threads of a walk: as many as are asked for, if the memory is enough for the blocks of all of them."""
    fitting = max(1, int(memory / (_LEVELS * block(memory))))
    workers = min(check_workers(workers), fitting)
    return Crew(workers, Report(progress), _IDLE * workers * block(memory))


def check_room(program: Program, memory: float) -> None:
    """Refuse a memory that the values at three points alone would fill, however the work is split."""
    alive, most, where = {0}, 0, ""
    for step, done in zip(program.steps, program.last_uses(), strict=True):
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
    program: Program, complex_: Complex, values: dict[int, Tensor], sizes: Sizes, most: int = BLOCK,
    crew: Crew | None = None, start: int = 0, number: int = 0, share: float = 1.0,
    late: Mapping[int, Fold] | None = None,
) -> Complex:  # fmt: skip
    """Cut the complex along every fold of the network.

    Where the tensors of all rows together would be larger than a block, the complex is split in parts that go through
    the rest of the network one after another, or side by side: no work is done twice, and no decision depends on how it
    is split or who does it.

    Args:
        program: the network.
        complex_: the partition; it is refined in place.
        values: slot -> values at its rows, (rows, ...); at the start slot 0 holds the input points, directions for
            rows at infinity.
        sizes: of the terms in every folding step.
        most: bytes of the tensors carried at a time.
        crew: who does the parts; the caller alone by default.
        start: step to begin with.
        number: number of the first folding step from there on.
        share: the part of the whole work that this is.
        late: slots that hold what goes into a fold, as all who read them fold it on the way; found out by default.

    Returns:
        The partition.
    """
    crew = crew or Crew()
    late = late_folds(program, complex_, values[0]) if late is None else late
    folds, last_uses, left = len(program.folds), program.last_uses(), program.work_left

    def divided(parts: Sequence[Part], gather: Callable[[Part], dict[int, Tensor]], index: int, number: int) -> Complex:
        rest = share * left[index] / left[start] / sum(len(rows) for _, rows in parts)

        def carried(part: Part) -> Complex:
            return walk(program, part[0], gather(part), sizes, most, crew, index, number, rest * len(part[1]), late)

        whole: Complex = complex_.join(crew.map(carried, parts))
        return whole

    made = -1  # an affine step whose output is there already
    seen: Watch | None = None  # has looked at what the step before has made
    for index, step in enumerate(program.steps[start:], start):
        crew.check()
        rows = len(next(iter(values.values())))
        final = number + 1 == folds and not isinstance(step, Affine)  # makes no values any more
        slots = tuple(values) if final or step.output in late else (*values, step.output)
        if index != made and (parts := _parts(complex_, _bytes(program, rows, slots) / most)):
            return divided(parts, partial(_taken, values), index, number)
        if index == made:
            pass
        elif isinstance(step, Affine):
            inputs = [values[s] for s in step.inputs]
            if step.streamed is not None and all_plain(complex_, inputs[0]):
                seen = watch_before(program, index, complex_, rows, sizes, number)
                values[step.output] = step.streamed(inputs, way_of(step, late, seen))
            else:
                values[step.output] = apply(step, inputs, complex_)
        elif number + 1 == folds:
            _fold_last(step, complex_, values, sizes.squares[number], number, seen)
            crew.report.advance(share * left[index] / left[start], f"layer {folds} of {folds}")
            break
        elif isinstance(step, Fold):
            source, done = step.inputs[0], last_uses[index]
            cut = _cut(step, complex_, values[source], sizes.squares[number], number, seen)
            seen = None
            following = program.steps[index + 1]
            kept = (*(values.keys() - done), following.output)
            kept = kept if step.output in late and source not in done else (*kept, step.output)
            added = 0 if cut is None else len(cut)
            wanted = _bytes(program, rows + added, kept) / most
            ahead = None
            if cut is not None and wanted < _AHEAD:
                others = [s for s in following.inputs[1:] if s in values]
                with_them = [values[s] for s in others], [late.get(s) for s in others]
                ahead = carried(step, following, cut, values[source], *with_them)
            if ahead is None and cut is not None and (parts := _parts(complex_, wanted)):
                # the tensors of all rows are never made
                gather = partial(_gathered, step, cut, values, done, step.output in late)
                return divided(parts, gather, index + 1, number + 1)
            if cut is None or ahead is None or step.output not in last_uses[index + 1]:
                (_keep if step.output in late else _fold)(step, complex_, values, cut, done)
            else:
                _extend(values, cut, {source} & done)
            if ahead is not None:
                values[following.output], made = ahead, index + 1
            number += 1
        else:
            _largest(step, complex_, values, sizes.squares[number], number)
            number += 1
        for slot in last_uses[index]:
            values.pop(slot, None)
        done_here = share * (left[index] - left[index + 1]) / left[start]
        crew.report.advance(done_here, f"layer {min(number + 1, folds)} of {folds}")
    return complex_


def _parts(complex_: Complex, wanted: float) -> Sequence[Part]:
    """Parts of about a block each; none where all fits into one, or nothing can be divided."""
    parts = complex_.split(min(64, int(wanted) + 1)) if wanted > 1 else ()
    return parts if len(parts) > 1 else ()


def _bytes(program: Program, rows: int, slots: Sequence[int]) -> int:
    """Bytes of the tensors of some slots."""
    return 8 * rows * sum(program.elements[slot] for slot in slots)


def apply(step: Affine, inputs: list[Tensor], complex_: Complex) -> Tensor:
    """An affine step on the rows; directions to infinity feel no bias."""
    network = complex_.network
    if network is None and step.weighted and inputs[0].device.type == "cpu" and inputs[0].numel() > _LARGE:
        found = affine_rows(step.run, inputs)
    else:
        found = step.many(inputs, network)
    if step.biased and complex_.unbounded:
        found = found.clone()
        away = (complex_.away != 0).nonzero()[:, 0]
        some = None if network is None else network[away]
        found[away] -= step.many([torch.zeros_like(t[away]) for t in inputs], some)
    return found


def _fold_last(
    step: Fold | Largest, complex_: Complex, values: dict[int, Tensor], square: Tensor, number: int,
    seen: Watch | None,
) -> None:  # fmt: skip
    """Cut along the last fold: nothing reads the values after it."""
    if isinstance(step, Fold):
        _cut(step, complex_, values[step.inputs[0]], square, number, seen)
    else:
        _largest(step, complex_, values, square, number)


def _cut(
    step: Fold, complex_: Complex, before: Tensor, square: Tensor, number: int, seen: Watch | None
) -> Cut | None:  # fmt: skip
    """Cut along every face of a fold; ``before`` is what goes into it, ``seen`` has looked at it."""
    flat = before.reshape(len(before), -1)
    faces, limits = [], []
    for face in step.faces:
        faces.append(flat if face == 0.0 else _shifted(flat, face, complex_))
        limits.append(limit_of(square, face, complex_))
    columns = faces[0] if len(faces) == 1 else torch.cat(faces, 1)
    limit = limits[0].contiguous() if len(faces) == 1 else torch.cat(limits, 1)
    return complex_.cut(columns, limit, number, flat.shape[1], seen=seen)


def _fold(step: Fold, complex_: Complex, values: dict[int, Tensor], cut: Cut | None, done: set[int]) -> None:
    """Fold the old rows and those of a cut; the other slots get the new rows too."""
    source = step.inputs[0]
    before = values[source]
    added = 0 if cut is None else len(cut)
    folded = room((len(before) + added, *before.shape[1:]), before)
    _run(step, before, complex_.away[: len(before)] if complex_.unbounded else None, folded[: len(before)])
    if cut is not None:
        fresh = cut.rows(before, *_faces(step, before))
        _run(step, fresh, None, folded[len(before) :])
        if source not in done:
            values[source] = _joined(before, fresh)
        _extend(values, cut, {source, *done})
    values[step.output] = folded


def _keep(step: Fold, complex_: Complex, values: dict[int, Tensor], cut: Cut | None, done: set[int]) -> None:
    """As :func:`_fold`, but whoever reads the fold's output folds it on the way: it gets what is to be folded."""
    source = step.inputs[0]
    whole = before = values[source]
    if cut is not None:
        whole = _longer(before, cut, *_faces(step, before))
        _extend(values, cut, {source, *done})
    if source not in done:
        values[source] = whole
    values[step.output] = whole


def _taken(values: dict[int, Tensor], part: Part) -> dict[int, Tensor]:
    """The rows of a part."""
    rows, found = part[1], {}
    for slot, tensor in values.items():
        found[slot] = torch.index_select(tensor, 0, rows, out=roomy((len(rows), *tensor.shape[1:]), tensor))
    return found


def _gathered(
    step: Fold, cut: Cut, values: dict[int, Tensor], done: set[int], late: bool, part: Part
) -> dict[int, Tensor]:  # fmt: skip
    """As :func:`_fold`, for some rows only, old and new: the tensors of all are never there at once."""
    complex_, rows = part
    source = step.inputs[0]
    some = {slot: cut.take(tensor, rows) for slot, tensor in values.items() if slot not in {source, *done}}
    before = cut.take(values[source], rows, *_faces(step, values[source]))
    if source not in done:
        some[source] = before
    if late:
        some[step.output] = before
        return some
    folded = room(tuple(before.shape), before) if source not in done or complex_.unbounded else before
    _run(step, before, complex_.away if complex_.unbounded else None, folded)
    some[step.output] = folded
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


def _run(step: Fold, before: Tensor, away: Tensor | None, out: Tensor) -> None:
    if step.into is not None:
        step.into(before, out)
    else:
        out.copy_(step.run(before))
    if away is not None and bool((far := away != 0).any()):
        out[far] = step.recession(before[far])


def _extend(values: dict[int, Tensor], cut: Cut, skip: set[int]) -> None:
    longer: dict[int, tuple[Tensor, Tensor]] = {}  # several slots may hold the same
    for slot in values.keys() - skip:
        old = values[slot]
        if id(old) not in longer:
            longer[id(old)] = old, _longer(old, cut)
        values[slot] = longer[id(old)][1]


def _longer(old: Tensor, cut: Cut, faces: Tensor | None = None, width: int = 1) -> Tensor:
    """The old rows and those of a cut."""
    found = grown(old, len(cut))
    cut.rows(old, faces, width, found[len(old) :])
    return found


def _joined(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old, new], out=room((len(old) + len(new), *old.shape[1:]), old))


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
            challenger = torch.cat([challenger, cut.rows(challenger)])
            _extend(values, cut, set())
        values[step.output] = torch.maximum(values[step.output], challenger)
    if len(values[source]) > start and windows.shape[1] > 2:
        kept = complex_.settle(step, number, values[source], limit.amax(dim=0))
        for slot in values if kept is not None else ():
            values[slot] = values[slot][kept]
    values[step.output] = values[step.output].reshape(-1, *step.shape)
