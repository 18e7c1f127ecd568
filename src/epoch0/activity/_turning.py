"""The exact walk on circles: where a network's inputs or weights turn as cos and sin, every break has a closed form.

Inside a piece of a curve ``a cos(angle) + b sin(angle) + c`` on which no neuron changes its linear stretch, every value
in the network is again of that form. So three rows a piece (a, b, c) say everything; a neuron meets a face where a
cosine of known size and phase equals a number (Raghu section 2.1; THEORY 1.3).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.regions.network.pieces import slopes_between
from epoch0.regions.network.steps import Affine, Fold, Program

BLOCK = 1 << 22
"""Numbers of one tensor carried at a time; more pieces go through the rest of the network part by part."""
_ROUNDING = 1e-13  # of a value's size: what is nearer to a face where two pieces meet is on it


@dataclass
class Pieces:
    """Stretches of angle, shape (pieces,) each, on which every value read so far is a cos + b sin + c.

    Attributes:
        low: where each piece begins.
        high: where it ends; less than half a turn later.
        group: the curve it belongs to.
        values: slot -> coefficients of cos, sin and 1, shape (3, pieces, \\*shape).
    """

    low: Tensor
    high: Tensor
    group: Tensor
    values: dict[int, Tensor]

    def take(self, rows: Tensor | slice) -> "Pieces":
        """Some of them."""
        return Pieces(
            self.low[rows], self.high[rows], self.group[rows], {s: v[:, rows] for s, v in self.values.items()}
        )

    def __len__(self) -> int:
        return len(self.low)


@dataclass
class Crossings:
    """Where a layer's elements meet their faces: four columns of the same length.

    Attributes:
        group: the curve.
        angle: on it.
        element: index in the flattened layer.
        face: index of the face.
    """

    group: Tensor
    angle: Tensor
    element: Tensor
    face: Tensor


@dataclass
class Turning:
    """What a walk found.

    Attributes:
        crossings: for each watched layer the blocks of its crossings; the output comes last.
        pieces: pieces that were carried through the network, all layers together: what it cost.
        closest: the smallest distance that decided whether a face is met, as a part of the values' size.
        most: break points after which the walk gives up, or None.
    """

    crossings: dict[int, list[Crossings]] = field(default_factory=dict)
    pieces: int = 0
    closest: float = math.inf
    most: int | None = None
    breaks: int = 0

    def of(self, layer: int) -> Crossings:
        """All crossings of one layer, in no order."""
        blocks = self.crossings[layer]
        return _joined(blocks)


def _joined(parts: Sequence[Crossings]) -> Crossings:
    return Crossings(*(torch.cat([getattr(p, name) for p in parts]) for name in ("group", "angle", "element", "face")))


class TooMany(Exception):
    """More break points than the caller wanted to pay for."""


def turnable(program: Program) -> bool:
    """Whether the walk can follow every step: affine maps and elementwise folds."""
    return all(isinstance(step, Affine | Fold) for step in program.steps)


def start(coefficients: Tensor, turn: float, quarters: int | None = None) -> Pieces:
    """Curves of one span as pieces of at most a quarter turn.

    Args:
        coefficients: of cos, sin and 1 of the input, shape (3, curves, \\*shape), float64.
        turn: the angle at which every curve ends; it begins at 0.
        quarters: equal pieces a curve; by default as few as a quarter turn allows.
    """
    count = quarters or max(1, math.ceil(turn / (math.pi / 2) - 1e-9))
    curves = coefficients.shape[1]
    ends = torch.linspace(0, turn, count + 1, dtype=torch.float64)
    group = torch.arange(curves).repeat_interleave(count)
    return Pieces(ends[:-1].repeat(curves), ends[1:].repeat(curves), group,
                  {0: coefficients.repeat_interleave(count, dim=1)})  # fmt: skip


def turn(
    program: Program, pieces: Pieces, *, layers: bool = True, output: tuple[float, ...] = (), most: int | None = None,
    swept: Mapping[int, Affine] | None = None,
) -> Turning:  # fmt: skip
    """Carry curves through the network and find every crossing.

    Args:
        program: the network; affine steps and folds only.
        pieces: from :func:`start`.
        layers: whether the crossings of the folding layers are kept.
        output: faces of the network's output that are watched.
        most: give up beyond so many break points.
        swept: index of an affine step -> the same step with other weights: its weights are then
            ``W cos(angle) + W' sin(angle)``, its bias stays.

    Returns:
        Crossings by number of the folding layer; those of the output under number ``len(program.folds)``.

    Raises:
        TooMany: more than ``most``.
    """
    found = Turning(most=most)
    folds = len(program.folds)
    found.crossings = {number: [_none()] for number in range(folds + 1)}
    with torch.no_grad():
        _carry(program, pieces, 0, 0, found, layers, output, swept or {})
    return found


def _none() -> Crossings:
    whole = torch.zeros(0, dtype=torch.int64)
    return Crossings(whole, torch.zeros(0, dtype=torch.float64), whole, whole)


def _carry(
    program: Program, pieces: Pieces, index: int, number: int, found: Turning, layers: bool, output: tuple[float, ...],
    swept: Mapping[int, Affine],
) -> None:  # fmt: skip
    """The steps from ``index`` on, for these pieces."""
    last = program.last_uses()
    final = max((i for i, step in enumerate(program.steps) if isinstance(step, Fold)), default=-1)
    for place in range(index, len(program.steps)):
        if not output and place > final:
            return
        step = program.steps[place]
        widest = 3 * max(program.elements[step.output], *(program.elements[slot] for slot in step.inputs))
        if len(pieces) * widest > BLOCK and len(pieces) > 1:
            for part in _split(len(pieces), max(1, BLOCK // (2 * widest))):
                _carry(program, pieces.take(part), place, number, found, layers, output, swept)
            return
        if isinstance(step, Affine):
            found.pieces += len(pieces) if step.weighted else 0
            pieces.values[step.output] = _affine(step, pieces, swept.get(place))
        elif isinstance(step, Fold):
            made, crossings = _cut(pieces, pieces.values[step.inputs[0]], step.faces, found)
            if layers:
                found.crossings[number].append(crossings)
            gone = {slot for slot in last[place] if slot not in step.inputs}
            pieces = _refined(pieces, made, gone)
            if output or place < final:
                pieces.values[step.output] = _folded(step, pieces)
            number += 1
        for slot in last[place]:
            pieces.values.pop(slot, None)
    if output:
        _, crossings = _cut(pieces, pieces.values[program.output], output, found)
        found.crossings[len(program.folds)].append(crossings)


def _split(count: int, size: int) -> Iterator[slice]:
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))


def _affine(step: Affine, pieces: Pieces, other: Affine | None) -> Tensor:
    """Coefficients after an affine step: its bias belongs to the 1 alone."""
    inputs = [pieces.values[slot] for slot in step.inputs]
    count = len(pieces)
    zero = step.run(*(torch.zeros_like(v[0, :1]) for v in inputs)) if step.biased else None
    if other is not None:
        if any(bool((v[:2] != 0).any()) for v in inputs):
            raise InputError(f"the layer '{step.name}' is used more than once; its weights cannot be swept.")
        still = [v[2] for v in inputs]
        a, b = step.run(*still), other.run(*still)
        if zero is None:
            return torch.stack([a, b, torch.zeros_like(a)])
        return torch.stack([a - zero, b - zero, zero.expand_as(a)])
    flat = step.run(*(v.reshape(3 * count, *v.shape[2:]) for v in inputs))
    made = flat.reshape(3, count, *flat.shape[1:])
    if zero is not None:
        made[:2] -= zero
    return made


@dataclass
class _Made:
    """New pieces: of which old one each is a part, and where it begins and ends."""

    parent: Tensor
    low: Tensor
    high: Tensor


def _cut(
    pieces: Pieces, coefficients: Tensor, faces: Sequence[float], found: Turning
) -> tuple[_Made, Crossings]:  # fmt: skip
    """Where elements meet faces, and the pieces between."""
    a, b, c = coefficients.reshape(3, len(pieces), -1)
    low, high = pieces.low[:, None], pieces.high[:, None]
    at_high = torch.addcmul(torch.addcmul(c, a, high.cos()), b, high.sin())
    at_low = torch.addcmul(torch.addcmul(c, a, low.cos()), b, low.sin())
    # neighbours agree on the side of a face where they meet, so that rounding neither loses a crossing nor counts it
    # twice; and there a value within rounding is on the face, as all are where the neurons below have just died
    joined = ((pieces.group[1:] == pieces.group[:-1]) & (pieces.low[1:] == pieces.high[:-1]))[:, None]
    rounding = torch.hypot(a, b).add_(c.abs()).mul_(_ROUNDING)
    rising, falling = b * low.cos() > a * low.sin(), b * high.cos() < a * high.sin()
    turning = rising == falling  # the slope changes its sign: there is one extremum inside, a maximum if it rises first
    if faces and at_high.numel():
        size = float(at_high.square().mean().sqrt()) or 1.0
        found.closest = min(found.closest, *(float((at_high - face).abs().min()) / size for face in faces))
    rows: list[Tensor] = []
    parts: list[Crossings] = []
    for which, face in enumerate(faces):
        above, beyond = at_low - face > rounding, at_high - face > rounding
        above[1:] = torch.where(joined, beyond[:-1], above[1:])
        flip = (above != beyond).nonzero()
        row, element = flip[:, 0], flip[:, 1]
        angle = _roots(a, b, c, face, row, element, beyond[row, element], pieces)
        rows.append(row)
        parts.append(Crossings(pieces.group[row], angle, element, torch.full_like(row, which)))
        pair = (turning & (above == beyond) & (rising != above)).nonzero()
        row, element = pair[:, 0], pair[:, 1]
        top = torch.hypot(a[row, element], b[row, element])
        over = top - (face - c[row, element]).abs()
        met = over > 0
        if len(over):
            found.closest = min(found.closest, float((over.abs() / top.clamp_min(1e-300)).min()))
        row, element = row[met], element[met]
        for up in (True, False):
            angle = _roots(a, b, c, face, row, element, torch.full_like(row, up, dtype=torch.bool), pieces)
            rows.append(row)
            parts.append(Crossings(pieces.group[row], angle, element, torch.full_like(row, which)))
    crossings = _joined(parts)
    found.breaks += len(crossings.angle)
    if found.most is not None and found.breaks > found.most:
        raise TooMany
    return _between(pieces, torch.cat(rows), crossings.angle), crossings


def _roots(
    a: Tensor, b: Tensor, c: Tensor, face: float, row: Tensor, element: Tensor, upwards: Tensor, pieces: Pieces
) -> Tensor:  # fmt: skip
    """The angle inside the piece at which an element goes up or down through its face."""
    first, second, shift = a[row, element], b[row, element], c[row, element]
    size = torch.hypot(first, second).clamp_min(1e-300)
    phase, away = torch.atan2(second, first), torch.acos(((face - shift) / size).clamp(-1.0, 1.0))
    angle = torch.where(upwards, phase - away, phase + away)
    low, high = pieces.low[row], pieces.high[row]
    middle = 0.5 * (low + high)
    angle = middle + torch.remainder(angle - middle + math.pi, 2 * math.pi) - math.pi
    return torch.minimum(torch.maximum(angle, low), high)


def _between(pieces: Pieces, row: Tensor, angle: Tensor) -> _Made:
    """The old pieces cut at the angles."""
    by_angle = torch.argsort(angle, stable=True)
    order = by_angle[torch.argsort(row[by_angle], stable=True)]
    row, angle = row[order], angle[order]
    cuts = torch.bincount(row, minlength=len(pieces))
    parent = torch.arange(len(pieces)).repeat_interleave(cuts + 1)
    low, high = pieces.low[parent], pieces.high[parent]
    place = torch.arange(len(row)) + row  # of the part that ends at each cut: one more part than cuts a piece
    high[place], low[place + 1] = angle, angle
    return _Made(parent, low, high)


def _refined(pieces: Pieces, made: _Made, gone: set[int]) -> Pieces:
    values = {slot: v.index_select(1, made.parent) for slot, v in pieces.values.items() if slot not in gone}
    return Pieces(made.low, made.high, pieces.group[made.parent], values)


def _folded(step: Fold, pieces: Pieces) -> Tensor:
    """Coefficients after the fold, which is affine on every piece: its slope and shift are told at the middle."""
    before = pieces.values[step.inputs[0]]
    shape = (-1, *[1] * (before.dim() - 2))
    middle = (0.5 * (pieces.low + pieces.high)).view(shape)
    at = torch.addcmul(torch.addcmul(before[2], before[0], middle.cos()), before[1], middle.sin())
    place = torch.stack([at > face for face in step.faces]).sum(dim=0)
    value, slope = step.run(at), slopes_between(step, at[:1]).gather(0, place)
    after: Tensor = before * slope
    after[2] += value - slope * at
    return after
