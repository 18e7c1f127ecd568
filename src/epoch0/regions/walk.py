"""The walk: carry a complex of points through a network and cut it at every fold (DESIGN: one walk, two shapes)."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.regions.certificate import RELATIVE
from epoch0.regions.complex import Cut, Lines
from epoch0.regions.network.steps import Affine, Fold, Largest, Program
from epoch0.regions.planes.cutting import Plane

Complex = TypeVar("Complex", bound=Lines | Plane)  # a partition: its rows are points, whose values the walk carries
Part = tuple[Any, Tensor]  # of a partition, and the rows it has there
Values = dict[int, Tensor]  # of the slots of a program

BLOCK = 24 << 20  # bytes of the tensors carried at a time: about what a processor's cache holds
LEVELS = 8  # blocks that are held together, about: those of the pieces that a piece is a piece of
_HAT = 5  # what an element costs that is added for a bend, in those of a product
_CACHE = 1 << 17  # numbers that a step reads at a time: they stay in the cache
MEMORY = 2e9  # bytes that a partition may take if the user does not say


def check_fits(program: Program, memory: float) -> None:
    """Refuse a memory that the values at three points alone would fill, however the work is split."""
    alive, most, where = {0}, 0, ""
    for step, done in zip(program.steps, program.last_uses, strict=True):
        alive.add(step.output)
        if (size := _bytes(program, 3, tuple(alive))) > most:
            most, where = size, step.name
        alive -= done
    if most > memory:
        text = f"memory={memory:.3g} bytes; at layer '{where}' the values at three points alone take {most:.3g}"
        raise InputError(f"{text}, and a walk holds a few pieces of that size. Give at least {LEVELS * most:.1g}.")


def walk(
    program: Program,
    complex_: Complex,
    values: Values,
    sizes: Sequence[Tensor],
    memory: float,
    start: int = 0,
    number: int = 0,
    share: float = 1.0,
) -> Complex:
    """Cut the complex along every fold of the network.

    Where the tensors of all rows together would be larger than a block, the complex is split in parts that go through
    the rest of the network one after another: no work is done twice, and no decision depends on how it is split.

    The complex is refined in place. The values by slot have the shape (rows, ...); at the start slot 0 holds the input
    points, directions for rows at infinity. Of the ``memory`` in bytes a block takes a part: those of some levels of
    splitting are held together. ``start`` is the step to begin with, ``number`` that of the first fold from there on,
    ``share`` the part of the whole work.
    """
    folds, last_uses, advance = len(program.folds), program.last_uses, complex_.budget.advance
    step_share, most = share / (len(program.steps) - start), int(max(1.0, min(BLOCK, memory / LEVELS)))

    def divided(parts: Sequence[Part], gather: Callable[[Part], Values], index: int, number: int) -> Complex:
        rest = step_share * (len(program.steps) - index) / sum(len(rows) for _, rows in parts)
        cut = [walk(program, p[0], gather(p), sizes, memory, index, number, rest * len(p[1])) for p in parts]
        return cast(Complex, complex_.join(cut))

    for index, step in enumerate(program.steps[start:], start):
        done, rows = last_uses[index], len(next(iter(values.values())))
        final = number + 1 == folds and not isinstance(step, Affine)  # makes no values any more
        slots = tuple(values) if final or step.output in values else (*values, step.output)
        if parts := _parts(complex_, _bytes(program, rows, slots) / most):
            return divided(parts, partial(_taken, values), index, number)
        if step.output in values:
            pass  # made with the fold before it
        elif isinstance(step, Affine):
            values[step.output] = _apply(step, [values[s] for s in step.inputs], complex_)
        elif isinstance(step, Largest):
            _largest(step, complex_, values, sizes[number], number)
        else:
            cut = _cut(step, complex_, values[step.inputs[0]], sizes[number], number)
            if not final:
                kept = (*(values.keys() - done), step.output, program.steps[index + 1].output)
                wanted = _bytes(program, rows + (0 if cut is None else len(cut)), kept) / most
                hats = _behind(program, index, cut, values, complex_)
                if cut is not None and (parts := _parts(complex_, wanted)):
                    # the tensors of all rows are never made
                    return divided(parts, partial(_folded, step, cut, values, done, hats), index + 1, number + 1)
                values = _folded(step, cut, values, done, hats, (complex_, None))
        if final:
            advance(step_share * (len(program.steps) - index), f"layer {folds} of {folds}")
            break
        number += not isinstance(step, Affine)
        for slot in done:
            values.pop(slot, None)
        advance(step_share, f"layer {min(number + 1, folds)} of {folds}")
    return complex_


def _parts(complex_: Complex, wanted: float) -> Sequence[Part]:
    """Parts of about a block each, if not smaller; none where all fits into one, or nothing can be divided."""
    parts = complex_.split(min(64, int(wanted) + 1)) if wanted > 1 else ()
    return parts if len(parts) > 1 else ()


def _bytes(program: Program, rows: int, slots: Sequence[int]) -> int:
    return 8 * rows * sum(program.elements[slot] for slot in slots)


def _apply(step: Affine, inputs: list[Tensor], complex_: Complex, fold: Any = lambda rows: rows) -> Tensor:
    """An affine step behind a fold, some rows at a time if they are weighed; directions to infinity feel no bias."""
    size = max(1, max(t[0].numel() for t in inputs))
    # a dense layer reads all its weights again for each block of rows, and those of a wide one are not in the cache
    some = max(512 if step.terms >= size else 16, _CACHE // size) if step.weighted else len(inputs[0])
    parts = zip(*(t.split(max(1, some)) for t in inputs), strict=True)
    found = torch.cat([step.run(*map(fold, part)) for part in parts])
    if step.biased and (away := complex_.infinite) is not None:
        found = found.clone()
        found[away] -= step.constant(*inputs)
    return found


def _cut(step: Fold, complex_: Complex, before: Tensor, square: Tensor, number: int) -> Cut | None:
    """Cut along every face of a fold; ``before`` is what goes into it."""
    flat = before.reshape(len(before), -1)
    faces, limits = [], []
    for face in step.faces:
        shifted = flat if face == 0.0 else flat - face
        if face and (away := complex_.infinite) is not None:
            shifted[away] = flat[away]
        faces.append(shifted)
        limits.append((square + face * face).sqrt_() * RELATIVE)
    columns, limit = (one[0] if len(one) == 1 else torch.cat(one, 1) for one in (faces, limits))
    owners = _owners(number, range(len(step.faces)), flat.shape[1], flat.device)
    return complex_.cut(columns, limit.contiguous(), number, owners)


def _owners(number: int, faces: Sequence[int], width: int, device: torch.device) -> Tensor:
    """Step, face and element of each column, face after face: (columns, 3)."""
    step, face = (torch.tensor(one, device=device) for one in ([number], [*faces]))
    return torch.cartesian_prod(step, face, torch.arange(width, device=device))


def _taken(values: Values, part: Part) -> Values:
    return {slot: tensor.index_select(0, part[1]) for slot, tensor in values.items()}


def _behind(program: Program, index: int, cut: Cut | None, values: Values, complex_: Complex) -> Values:
    """The values of the dense layer behind a fold at the rows before its cut, and the hats that a cut needs of them.
    The new rows then cost no product: on a segment the layer bends only where a column of the fold passes zero.
    """
    fold, layer = program.steps[index : index + 2]
    if cut is None or not isinstance(fold, Fold) or not isinstance(layer, Affine) or layer.inputs != (fold.output,):
        return {}
    before = values[fold.inputs[0]]
    dense = layer.weighted and before.dim() == 2 and layer.terms == before.shape[1]
    if not dense or fold.output not in program.last_uses[index + 1] or _HAT * cut.bends > len(cut) * before.shape[1]:
        return {}
    values[layer.output] = _apply(layer, [before], complex_, fold.run)
    bends = (below - above for below, above in itertools.pairwise(fold.slopes(before[:1])))
    return {layer.output: torch.cat([bend.T * layer.matrix for bend in bends])}


def _folded(
    step: Fold, cut: Cut | None, values: Values, done: set[int], hats: Values, part: tuple[Complex, Tensor | None]
) -> Values:
    """What is kept after a fold, and the fold of it: of all rows, old ones and those of a cut, or of some of them."""
    (complex_, rows), source = part, step.inputs[0]
    found = {slot: tensor for slot, tensor in values.items() if slot not in done or (slot == source and not hats)}
    if cut is not None:
        found = {slot: cut.take(tensor, rows, hats.get(slot)) for slot, tensor in found.items()}
    if hats:
        return found
    before = found[source] if source not in done else found.pop(source)
    found[step.output] = step.run(before)
    if (away := complex_.infinite) is not None:
        found[step.output][away] = step.recession(before[away])
    return found


def _largest(step: Largest, complex_: Complex, values: Values, square: Tensor, number: int) -> None:
    """One element of every window after another; cuts at ties that a later element tops are taken back at the end."""
    source, windows = step.inputs[0], step.windows
    limit, start = (2 * square[:, windows].amax(dim=2)).sqrt_() * RELATIVE, len(values[source])
    flat = values[source].reshape(start, -1)
    values[step.output] = flat[:, windows[:, 0]]
    for entry in range(1, windows.shape[1]):
        flat = values[source].reshape(len(values[source]), -1)
        challenger, owners = flat[:, windows[:, entry]], _owners(number, [entry], len(windows), flat.device)
        if (cut := complex_.cut(challenger - values[step.output], limit, number, owners)) is not None:
            challenger = cut.take(challenger)
            for slot, tensor in values.items():
                values[slot] = cut.take(tensor)
        values[step.output] = torch.maximum(values[step.output], challenger)
    if len(values[source]) > start and windows.shape[1] > 2:
        kept = complex_.drop_ties(step, number, values[source], limit.amax(dim=0))
        for slot in values if kept is not None else ():
            values[slot] = values[slot][kept]
    values[step.output] = values[step.output].reshape(-1, *step.shape)
