"""How far inputs are from the nearest boundary between regions (Hanin and Rolnick 2019, section 3.2).

Values and Jacobians of all neurons are carried forward, many inputs at once, through a layer in one matrix product.
Before the first fold Jacobians are the same for every input: a wide one is rotated so that few coordinates carry all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.arguments import checked
from epoch0.errors import InputError
from epoch0.regions.certificate import RELATIVE
from epoch0.regions.network.steps import Affine, Fold, Program
from epoch0.regions.network.trace import in_float64, trace_for
from epoch0.results import Result, counted


@dataclass(frozen=True, eq=False)
class Distances(Result):
    """Distance of each input from the boundary of its activation region, and which neuron folds there."""

    distance: np.ndarray  #: Euclidean distance to the nearest boundary, (examples,); infinite where nothing folds
    layers: tuple[str, ...]  #: names of the folding steps, in order
    #: for each example the index in ``layers`` of what folds at the nearest boundary; -1 if none does
    owner_layer: np.ndarray
    owner_neuron: np.ndarray  #: and the index of the neuron, in the flattened layer (of the window, for max pooling)
    #: and which of its faces (0 for a ReLU; for max pooling the entry of the window that draws level)
    owner_face: np.ndarray
    neurons: int  #: number of elements that fold, all layers together
    notes: tuple[str, ...]  #: further remarks

    @property
    def owner(self) -> list[tuple[str, int, int] | None]:
        """Layer name, neuron and face of the boundary nearest to each example; None if there is none."""
        columns = (self.owner_layer.tolist(), self.owner_neuron.tolist(), self.owner_face.tolist())
        return [(self.layers[i], j, face) if i >= 0 else None for i, j, face in zip(*columns, strict=True)]

    @property
    def mean(self) -> float:
        """Mean over the examples."""
        return float(self.distance.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean over independent examples; NaN for one example, or where a distance is infinite."""
        known = len(self.distance) > 1 and np.isfinite(self.distance).all()
        return float(self.distance.std(ddof=1) / len(self) ** 0.5) if known else float("nan")

    def __len__(self) -> int:
        return len(self.distance)

    def rows(self) -> list[dict[str, Any]]:
        """One row an example: distance, layer, neuron, face."""
        owners, names = zip(self.distance.tolist(), self.owner, strict=True), ("distance", "layer", "neuron", "face")
        return [dict(zip(names, (away, *(owner or (None, -1, -1))), strict=True)) for away, owner in owners]

    def __str__(self) -> str:
        low, middle, high = np.quantile(self.distance, [0.0, 0.5, 1.0], method="nearest")  # may be infinite
        mean = f"mean {self.mean:.4g} (standard error {self.standard_error:.1g})"
        spread = f"{mean}, median {middle:.4g}, from {low:.4g} to {high:.4g}"
        rows = [f"distance to the nearest boundary of {counted(len(self), 'example')}: {spread}"]
        rows.append(f"  times {self.neurons} neurons: {self.mean * self.neurons:.4g}")
        rows += [f"  nearest in {n:<20} {int((self.owner_layer == i).sum()):>8}" for i, n in enumerate(self.layers)]
        return "\n".join([*rows, *(f"  note: {note}" for note in self.notes)])


@checked
def distance(model: nn.Module, x: Tensor) -> Distances:
    """The exact distance of each example to the nearest boundary of a linear region.

    >>> d = distance(net, images)                             # net: 64-32-32-10, images: (100, 64)
    >>> d.distance.shape, d.owner[0]
    ((100,), ('1', 30, 0))
    >>> round(d.mean * d.neurons, 1)                          # about constant over architectures at initialization
    1.2

    Inside its own region every pre-activation z is an affine function of the input, so the plane on which neuron z
    folds is ``|z - face| / ||grad z||`` away, and the nearest of these planes is reached before any other: the least of
    these numbers is exact. The boundary is that of activation regions; where the nearest neuron has no open way to the
    output, the network's function does not change there.

    Args:
        model: as for :func:`epoch0.regions.on_line`.
        x: examples, shape ``(examples, *shape)``, or one example of the model's input shape.

    Raises:
        InputError: if x does not suit the model or holds NaN, or an operation is not piecewise linear.

    Source: Hanin and Rolnick 2019, section 2.2 (the exact formula of the distance) and Figure 6.
    """
    x = in_float64("x", x)
    if x.numel() == 0:
        raise InputError(f"x has shape {tuple(x.shape)}: there is no example in it.")
    program, single = trace_for(model, x)
    points = (x[None] if single else x).to(next(model.parameters()).device)
    nearest, owner = np.full(len(points), np.inf), np.full((3, len(points)), -1, dtype=np.int64)
    with torch.no_grad():
        for start, found in faces(program, points):
            for number, away in enumerate(found):
                flat, width = away.reshape(len(away), -1), away.shape[2]
                value, place = (part.cpu().numpy() for part in flat.min(dim=1))
                rows = start + np.flatnonzero(value < nearest[start : start + len(value)])
                nearest[rows], place = value[rows - start], place[rows - start]
                owner[:, rows] = np.stack([np.full(len(rows), number), place % width, place // width])
    return Distances(nearest, program.layers, owner[0], owner[1], owner[2], program.neurons, program.notes)


_CACHE = 1 << 20  # float64 numbers of one layer's Jacobians carried at a time: about what a processor's cache holds
_SCALE = 2.0**60  # Jacobians are carried this much larger: a bias that is added and taken away again leaves no trace


def faces(program: Program, points: Tensor, memory: int = _CACHE) -> Iterator[tuple[int, list[Tensor]]]:
    """For each block of inputs its first number, and distances (inputs, faces, elements); ``memory`` limits it."""
    prefix = _Prefix(program, points.device, memory)
    widest = max((*program.sizes, prefix.width, 1))
    block = max(1, memory // (widest * min(prefix.directions, max(1, memory // widest))))
    part = max(1, min(prefix.directions, memory // (widest * block)))
    for start in range(0, len(points), block):
        run = _Block(program, points[start : start + block])
        for first in range(0, prefix.directions, part):
            run.carry(prefix.tangents(first, min(first + part, prefix.directions)), prefix.end)
        yield start, run.distances()


class _Prefix:
    """The affine steps before the first fold, whose Jacobian is the same at every input."""

    def __init__(self, program: Program, device: torch.device, memory: int) -> None:
        self.program, self.device = program, device
        steps = program.steps
        self.end = next((i for i, step in enumerate(steps) if not isinstance(step, Affine)), len(steps))
        written = {0, *(step.output for step in steps[: self.end])}
        self.slots = sorted({s for step in steps[self.end :] for s in step.inputs} & written)
        self.directions = torch.Size(program.shape).numel()
        self.shapes = dict[int, torch.Size]()
        self.width = self._rows(0, 1).shape[1]
        self._rotated: Tensor | None = None
        if 0 < self.width < self.directions:
            # the triangular factor of the Jacobian: the same lengths and angles in fewer coordinates
            rows = max(self.width, memory // max(self.width, max(program.shape, default=1)))
            factor = torch.zeros(0, self.width, dtype=torch.float64, device=device)
            for start in range(0, self.directions, rows):
                part = self._rows(start, min(start + rows, self.directions))
                factor = torch.linalg.qr(torch.cat([factor, part]), mode="r").R
            self._rotated, self.directions = factor, len(factor)

    def _rows(self, start: int, stop: int) -> Tensor:
        """Rows start..stop of the Jacobians of all slots, side by side."""
        basis = torch.zeros(stop - start, self.directions, dtype=torch.float64, device=self.device)
        basis[torch.arange(stop - start), torch.arange(start, stop)] = _SCALE
        found = {0: basis.reshape(stop - start, *self.program.shape)}
        for step, done in zip(self.program.steps[: self.end], self.program.last_uses, strict=False):
            if isinstance(step, Affine):  # all of these are
                found[step.output] = step.linear(*(found[s] for s in step.inputs))
            for slot in done - set(self.slots):
                found.pop(slot, None)
        self.shapes = {slot: found[slot].shape[1:] for slot in self.slots}
        return torch.cat([basis[:, :0], *(found[slot].flatten(1) for slot in self.slots)], 1)

    def tangents(self, start: int, stop: int) -> dict[int, Tensor]:
        """Rows start..stop of the Jacobians, slot by slot: (1, directions, *shape)."""
        rows = self._rows(start, stop) if self._rotated is None else self._rotated[start:stop]
        parts = rows.split([shape.numel() for shape in self.shapes.values()], 1)
        return {s: part.reshape(1, stop - start, *self.shapes[s]) for s, part in zip(self.slots, parts, strict=True)}


class _Block:
    """Some inputs: their values at every fold, and squared lengths of gradients, summed as directions come in."""

    def __init__(self, program: Program, points: Tensor) -> None:
        self.program, self.points = program, points
        self.gaps: list[Tensor] = []
        self.slopes: list[Tensor] = []  # of a fold, shape (inputs, 1, *shape); of a maximum, the index of the largest
        self.squares: list[Tensor] = []
        self.own: list[Tensor] = []  # squared gradients of what a fold hands on, before its slope
        values = {0: points}
        for step in program.through(values):
            inputs = [values[s] for s in step.inputs]
            values[step.output] = step.run(*inputs)
            if isinstance(step, Affine):
                continue
            flat = inputs[0].reshape(len(points), 1, -1)
            if isinstance(step, Fold):
                self.slopes.append(step.slope(inputs[0])[:, None])
                self.gaps.append(torch.cat([(flat - face).abs() for face in step.faces], 1))
                self.squares.append(torch.zeros_like(flat))
                self.own.append(self.squares[-1])
            else:
                entries = step.entries(inputs[0])
                largest, top = entries.max(dim=2)
                self.slopes.append(step.windows.gather(1, top.T).T)
                self.gaps.append((largest[:, :, None] - entries).transpose(1, 2))
                self.squares.append(torch.zeros_like(self.gaps[-1]))
                self.own.append(torch.zeros_like(largest[:, None]))

    def carry(self, tangents: dict[int, Tensor], begin: int) -> None:
        """Take some directions from the first fold to the last, adding to the squares of the gradients."""
        number, count = 0, len(self.points)
        for step in self.program.through(tangents, start=begin):
            if number == len(self.slopes):
                return
            if isinstance(step, Affine):
                tangents[step.output] = step.linear_of_each(*(tangents[s] for s in step.inputs))
            else:
                before = tangents[step.inputs[0]]
                flat = before.reshape(*before.shape[:2], -1)
                if isinstance(step, Fold):
                    self.squares[number] += flat.square().sum(dim=1, keepdim=True)
                    tangents[step.output] = before * self.slopes[number]
                else:
                    chosen = self.slopes[number][:, None].expand(count, flat.shape[1], -1)
                    top = flat.expand(count, *flat.shape[1:]).gather(2, chosen)
                    self.own[number] += top.square().sum(dim=1, keepdim=True)
                    for entry in range(step.windows.shape[1]):
                        self.squares[number][:, entry] += (top - flat[:, :, step.windows[:, entry]]).square().sum(dim=1)
                    tangents[step.output] = top.reshape(*top.shape[:2], *step.shape)
                number += 1

    def distances(self) -> list[Tensor]:
        """Gaps over lengths of gradients; a length that is nothing beside the terms it is summed from: infinite."""
        found = []
        for gap, square, limit in zip(self.gaps, self.squares, self._limits(), strict=True):
            slope = torch.where(square > limit * (RELATIVE * RELATIVE), square, 0.0).sqrt_() / _SCALE
            found.append(torch.where(slope > 0, gap / slope, torch.inf))
        return found

    def _limits(self) -> list[Tensor]:
        """Squared sizes of the terms that each gradient is a sum of."""
        squares = {0: torch.full_like(self.points, _SCALE * _SCALE)}
        limits: list[Tensor] = []
        for step in self.program.through(squares):
            inputs = [squares[s] for s in step.inputs]
            if isinstance(step, Affine):
                squares[step.output] = step.linear_size(*inputs)
                continue
            number, flat = len(limits), inputs[0].flatten(1)
            if isinstance(step, Fold):
                limits.append(flat[:, None])
                squares[step.output] = self.own[number].reshape(inputs[0].shape) * self.slopes[number][:, 0].square()
            else:
                limits.append(step.entries(flat).transpose(1, 2) + flat.gather(1, self.slopes[number])[:, None])
                squares[step.output] = self.own[number].reshape(-1, *step.shape)
        return limits
