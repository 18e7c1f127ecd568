"""The exact walk on circles: where a network's inputs or weights turn as cos and sin, every break has a closed form.

Inside a piece of a curve ``a cos(angle) + b sin(angle) + c`` on which no neuron leaves its linear piece, every value is
again of that form; a neuron meets a face where a cosine of known size and phase equals a number (Raghu section 2.1).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.regions.network.steps import Affine, Fold, Program

EXACT_UP_TO = 4096  # neurons times inputs up to which "auto" walks circles; above, halving is cheaper
MOST = 200_000  # break points at which "auto" turns to halving steps
_BLOCK = 1 << 22  # numbers of one tensor carried at a time; more pieces go through the rest of the network in parts
_ROUNDING = 1e-13  # of a value's size: what is nearer to a face where two pieces meet is on it


class TooMany(Exception):
    """More break points than the caller allowed."""


class Crossings(NamedTuple):
    """Where a layer's elements meet their faces: curve, angle, index in the flattened layer, index of the face."""

    group: Tensor
    angle: Tensor
    element: Tensor
    face: Tensor


def turnable(program: Program | None) -> TypeGuard[Program]:
    return program is not None and all(isinstance(step, Affine | Fold) for step in program.steps)


def turn(
    program: Program,
    coefficients: Tensor,
    span: float,
    *,
    output: tuple[float, ...] = (),
    most: float = math.inf,
    swept: Mapping[int, Affine] | None = None,
) -> tuple[list[Crossings], float]:
    """Carry curves through a network of affine steps and folds and find every crossing of each folding layer.

    The coefficients are those of cos, sin and 1 of the input, shape (3, curves, \\*shape), float64; every curve ends at
    the angle ``span``. With faces of the ``output`` its crossings are watched, too, and come last. Beyond ``most``
    break points it gives up with :class:`TooMany`. The affine steps ``swept``, by their index, have the weights
    ``W cos(angle) + W' sin(angle)``, W' those of the step that is given. Also gives the smallest distance that decided
    whether a face is met, as a part of the values' size.
    """
    quarters = max(1, math.ceil(span / (math.pi / 2) - 1e-9))
    ends, curves = torch.linspace(0, span, quarters + 1, dtype=torch.float64), coefficients.shape[1]
    group = torch.arange(curves).repeat_interleave(quarters)
    values = {0: coefficients.repeat_interleave(quarters, dim=1)}
    none = Crossings(group[:0], ends[:0], group[:0], group[:0])
    walk = _Walk(program, output, most, swept or {}, [[none] for _ in range(len(program.folds) + 1)])
    with torch.no_grad():
        walk.carry(_Pieces(ends[:-1].repeat(curves), ends[1:].repeat(curves), group, values), 0, 0)
    return [Crossings(*map(torch.cat, zip(*blocks, strict=True))) for blocks in walk.crossings], walk.closest


@dataclass
class _Pieces:
    """Intervals of angle, each less than half a turn, on which every value read so far is a cos + b sin + c."""

    low: Tensor
    high: Tensor
    group: Tensor  # the curve each belongs to
    values: dict[int, Tensor]  # slot -> coefficients of cos, sin and 1, shape (3, pieces, *shape)

    def take(self, rows: slice) -> "_Pieces":
        values = {slot: v[:, rows] for slot, v in self.values.items()}
        return _Pieces(self.low[rows], self.high[rows], self.group[rows], values)

    def __len__(self) -> int:
        return len(self.low)


@dataclass
class _Walk:
    """One walk through a network, and what it has found so far."""

    program: Program
    output: tuple[float, ...]
    most: float
    swept: Mapping[int, Affine]
    crossings: list[list[Crossings]]  # of each layer, block by block
    closest: float = math.inf
    breaks: int = 0

    def carry(self, pieces: _Pieces, index: int, layer: int) -> None:
        """The steps from ``index`` on, for these pieces; the next fold is number ``layer``."""
        program, last = self.program, self.program.last_uses
        for place in range(index, len(program.steps)):
            if layer == len(program.folds) and not self.output:
                return
            step = program.steps[place]
            widest = 3 * max(program.elements[slot] for slot in (step.output, *step.inputs))
            if len(pieces) * widest > _BLOCK and len(pieces) > 1:
                size = max(1, _BLOCK // (2 * widest))
                for begin in range(0, len(pieces), size):
                    self.carry(pieces.take(slice(begin, begin + size)), place, layer)
                return
            if isinstance(step, Affine):
                pieces.values[step.output] = _affine(step, pieces, self.swept.get(place))
            elif isinstance(step, Fold):
                row, crossings = self.cut(pieces, pieces.values[step.inputs[0]], step.faces, layer)
                gone = {slot for slot in last[place] if slot not in step.inputs}
                pieces = _between(pieces, row, crossings.angle, gone)
                layer += 1
                if layer < len(program.folds) or self.output:
                    pieces.values[step.output] = _folded(step, pieces)
            for slot in last[place]:
                pieces.values.pop(slot, None)
        if self.output:
            self.cut(pieces, pieces.values[program.output], self.output, layer)

    def cut(self, pieces: _Pieces, values: Tensor, faces: Sequence[float], layer: int) -> tuple[Tensor, Crossings]:
        """Where elements of a layer meet faces, and in which piece."""
        a, b, c = values.reshape(3, len(pieces), -1)
        low, high = pieces.low[:, None], pieces.high[:, None]
        at_low, at_high = _at(a, b, c, low), _at(a, b, c, high)
        # neighbours agree on the side of a face where they meet, so that rounding neither loses a crossing nor counts
        # it twice; and there a value within rounding is on the face, as all are where the neurons below have just died
        joined = ((pieces.group[1:] == pieces.group[:-1]) & (pieces.low[1:] == pieces.high[:-1]))[:, None]
        rounding = torch.hypot(a, b).add_(c.abs()).mul_(_ROUNDING)
        rising, falling = b * low.cos() > a * low.sin(), b * high.cos() < a * high.sin()
        turning = rising == falling  # the slope changes its sign: one extremum inside, a maximum if it rises first
        size = (float(at_high.square().mean().sqrt()) if at_high.numel() else 0.0) or 1.0
        parts = []
        for which, face in enumerate(faces):
            if at_high.numel():
                self.closest = min(self.closest, float((at_high - face).abs().min()) / size)
            above, beyond = at_low - face > rounding, at_high - face > rounding
            above[1:] = torch.where(joined, beyond[:-1], above[1:])
            once = (above != beyond).nonzero(as_tuple=True)
            row, element = twice = (turning & (above == beyond) & (rising != above)).nonzero(as_tuple=True)
            top = torch.hypot(a[twice], b[twice])
            if len(over := top - (face - c[twice]).abs()):
                self.closest = min(self.closest, float((over.abs() / top.clamp_min(1e-300)).min()))
            row, element = row[over > 0], element[over > 0]
            up = torch.ones(len(row), dtype=torch.bool)  # on its way to the extremum and back
            for rows, elements, upwards in ((*once, beyond[once]), (row, element, up), (row, element, ~up)):
                place = (rows, elements)
                angle = _roots(a[place], b[place], c[place] - face, upwards, pieces.low[rows], pieces.high[rows])
                parts.append((rows, angle, elements, torch.full_like(rows, which)))
        row, *columns = (torch.cat(column) for column in zip(*parts, strict=True))
        crossings = Crossings(pieces.group[row], *columns)
        self.breaks += len(row)
        if self.breaks > self.most:
            raise TooMany
        self.crossings[layer].append(crossings)
        return row, crossings


def _at(a: Tensor, b: Tensor, c: Tensor, angle: Tensor) -> Tensor:
    return torch.addcmul(torch.addcmul(c, a, angle.cos()), b, angle.sin())


def _affine(step: Affine, pieces: _Pieces, other: Affine | None) -> Tensor:
    """Coefficients after an affine step: its bias belongs to the 1 alone."""
    inputs, count = [pieces.values[slot] for slot in step.inputs], len(pieces)
    if other is not None:
        if any(bool((v[:2] != 0).any()) for v in inputs):
            raise InputError(f"the layer '{step.name}' is used more than once; its weights cannot be swept.")
        still = [v[2] for v in inputs]
        a, b, zero = step.run(*still), other.run(*still), step.constant(*still)
        return torch.stack([a - zero, b - zero, zero.expand_as(a)])
    flat = step.run(*(v.reshape(3 * count, *v.shape[2:]) for v in inputs))
    made = flat.reshape(3, count, *flat.shape[1:])
    if step.biased:
        made[:2] -= step.constant(*(v[0] for v in inputs))
    return made


def _roots(a: Tensor, b: Tensor, c: Tensor, upwards: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The angle between two others at which a cos + b sin + c goes up or down through 0."""
    phase, away = torch.atan2(b, a), torch.acos((-c / torch.hypot(a, b).clamp_min(1e-300)).clamp(-1.0, 1.0))
    angle, middle = torch.where(upwards, phase - away, phase + away), 0.5 * (low + high)
    angle = middle + torch.remainder(angle - middle + math.pi, 2 * math.pi) - math.pi
    return torch.minimum(torch.maximum(angle, low), high)


def _between(pieces: _Pieces, row: Tensor, angle: Tensor, gone: set[int]) -> _Pieces:
    """The pieces cut at the angles, without the slots that are gone."""
    by_angle = torch.argsort(angle, stable=True)
    order = by_angle[torch.argsort(row[by_angle], stable=True)]
    row, angle = row[order], angle[order]
    parent = torch.arange(len(pieces)).repeat_interleave(torch.bincount(row, minlength=len(pieces)) + 1)
    low, high = pieces.low[parent], pieces.high[parent]
    place = torch.arange(len(row)) + row  # of the part that ends at each cut: one more part than cuts a piece
    high[place], low[place + 1] = angle, angle
    values = {slot: v.index_select(1, parent) for slot, v in pieces.values.items() if slot not in gone}
    return _Pieces(low, high, pieces.group[parent], values)


def _folded(step: Fold, pieces: _Pieces) -> Tensor:
    """Coefficients after the fold, which is affine on every piece: its slope and shift are taken at the middle."""
    before = pieces.values[step.inputs[0]]
    at = _at(before[0], before[1], before[2], (0.5 * (pieces.low + pieces.high)).view(-1, *[1] * (before.dim() - 2)))
    slope = step.slope(at)
    after: Tensor = before * slope
    after[2] += step.run(at) - slope * at
    return after
