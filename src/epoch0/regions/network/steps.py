"""The steps a traced network is made of, affine ones and those that fold along faces, and what they do on pieces."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Affine:
    """An affine step on tensors whose first dimension runs over points."""

    name: str  #: of the module or of the call
    inputs: tuple[int, ...]  #: slots it reads
    output: int  #: the slot it writes
    run: Callable[..., Tensor]  #: the step itself
    #: from the mean squares of the inputs to the sum of squares of the terms that are added up in each output
    size: Callable[..., Tensor]
    biased: bool = False  #: whether zero does not go to zero
    weighted: bool = False  #: whether it sums many terms, as a matrix product or a convolution
    terms: int = 1  #: how many it sums in each output, about

    @cached_property
    def matrix(self) -> Tensor:
        """Of a dense layer on the CPU: (inputs, outputs)."""
        return self.linear(torch.eye(self.terms, dtype=torch.float64, device="cpu"))

    def constant(self, *rows: Tensor) -> Tensor:
        return self.run(*(torch.zeros_like(t[:1]) for t in rows))

    def linear(self, *rows: Tensor) -> Tensor:
        return self.run(*rows) - self.constant(*rows) if self.biased else self.run(*rows)

    def linear_of_each(self, *rows: Tensor) -> Tensor:
        """The same where the first two dimensions run over points; a first one of 1 is that of the others."""
        several = max(len(t) for t in rows)
        found = self.linear(*(t.expand(several, *t.shape[1:]).flatten(0, 1) for t in rows))
        return found.reshape(several, -1, *found.shape[1:])

    def linear_size(self, *squares: Tensor) -> Tensor:
        found: Tensor = self.size(*squares) - self.size(*(torch.zeros_like(q[:1]) for q in squares))
        return found


@dataclass(frozen=True)
class Fold:
    """An elementwise piecewise linear function: slope changes where an element passes one of the faces."""

    name: str
    inputs: tuple[int]
    output: int
    faces: tuple[float, ...]  #: values of the element at which the slope changes, increasing
    run: Callable[[Tensor], Tensor]
    recession: Callable[[Tensor], Tensor]  #: ``run`` for a direction that goes to infinity, the limit of run(s x) / s

    def slope(self, values: Tensor, above: Sequence[Tensor] | None = None) -> Tensor:
        """The slope at each element; ``above`` says which are above each face, if not by their values alone."""
        place = torch.stack([values > face for face in self.faces] if above is None else list(above)).sum(dim=0)
        return torch.cat(self.slopes(values[:1])).gather(0, place)

    def slopes(self, row: Tensor) -> list[Tensor]:
        """The slopes of all elements below the first face, between each two, and above the last, each as the row."""
        low, high = self.faces[0], self.faces[-1]
        inner = [(a + 0.25 * (b - a), a + 0.5 * (b - a)) for a, b in itertools.pairwise(self.faces)]
        spans = [(low - 2, low - 1), *inner, (high + 1, high + 2)]
        ends = [(self.run(torch.full_like(row, a)), self.run(torch.full_like(row, b))) for a, b in spans]
        return [(last - first) / (b - a) for (first, last), (a, b) in zip(ends, spans, strict=True)]


@dataclass(frozen=True)
class Largest:
    """The largest of some elements: max pooling and its kin; it folds where another element becomes the largest."""

    name: str
    inputs: tuple[int]
    output: int
    windows: Tensor  #: indices into the flat input, shape (outputs, window); short windows repeat their first index
    shape: tuple[int, ...]  #: of one output

    def entries(self, values: Tensor) -> Tensor:
        """The elements of each window, for every point: (points, outputs, window)."""
        return values.reshape(len(values), -1)[:, self.windows]

    def run(self, values: Tensor) -> Tensor:
        return self.entries(values).amax(dim=2).reshape(len(values), *self.shape)

    def parted(self, left: Tensor, right: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
        """Where no entry of some window is the largest on both sides: the window, and the entry; -1 if there is none.
        Inputs are those inside the pieces on both sides, (rows, ...); a difference below a window's limit is zero at a
        corner of a piece. Entries level on a whole side, such as zeros after a ReLU, are all the largest there.
        """
        entries = [self.entries(side) for side in (left, right)]
        top = [side.max(dim=2) for side in entries]
        # a corner beyond the limit lifts the inside by less, but rounding alone never comes near this
        level = [e >= t.values[:, :, None] - 0.03 * limit[:, None] for e, t in zip(entries, top, strict=True)]
        apart = ~(level[0] & level[1]).any(dim=2)
        window = torch.where(apart.any(dim=1), apart.int().argmax(dim=1), -1)
        rows = torch.arange(len(left), device=left.device)
        return window, torch.maximum(top[0].indices, top[1].indices)[rows, window]


Step = Affine | Fold | Largest


@dataclass(frozen=True)
class Program:
    """A network as a list of steps; slot 0 is the input."""

    steps: tuple[Step, ...]  #: in order of execution
    output: int  #: slot of the network's output
    shape: tuple[int, ...]  #: of the input at one point
    elements: tuple[int, ...]  #: number of elements of each slot at one point
    notes: tuple[str, ...] = ()  #: what the user should know about how the model was read

    @property
    def folds(self) -> list[Fold | Largest]:
        return [step for step in self.steps if not isinstance(step, Affine)]

    @property
    def layers(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(step.name for step in self.folds)

    @property
    def sizes(self) -> list[int]:
        """Numbers of elements of what goes into them."""
        return [self.elements[step.inputs[0]] for step in self.folds]

    @property
    def neurons(self) -> int:
        """Number of elements that fold, all layers together; of a maximum, its windows."""
        pairs = zip(self.folds, self.sizes, strict=True)
        return sum(len(step.windows) if isinstance(step, Largest) else size for step, size in pairs)

    @cached_property
    def last_uses(self) -> list[set[int]]:
        """For each step, the slots that nothing reads after it; the output is kept."""
        last = {slot: index for index, step in enumerate(self.steps) for slot in (*step.inputs, step.output)}
        return [{s for s, i in last.items() if i == index and s != self.output} for index in range(len(self.steps))]

    def through(self, *held: dict[int, Any], start: int = 0) -> Iterator[Step]:
        """The steps in order, from one on; after each, what nothing reads any more is taken out of what is held."""
        for step, done in zip(self.steps[start:], self.last_uses[start:], strict=True):
            yield step
            for slots in held:
                for slot in done:
                    slots.pop(slot, None)

    def forward(self, points: Tensor) -> Tensor:
        values = {0: points}
        for step in self.through(values):
            values[step.output] = step.run(*(values[slot] for slot in step.inputs))
        return values[self.output]


_CHUNK = 1 << 22  # numbers of one layer followed at a time
_NOTHING = 1e-14  # a pre-activation below this part of its terms' size at a piece's middle is zero on the whole piece


class Pieces(NamedTuple):
    """What the network does on each piece."""

    slopes: np.ndarray  # derivatives of the outputs along some directions, (directions, pieces, outputs)
    terms: np.ndarray  # size of the terms summed in each output's slope; below 1e-12 of it, two slopes are the same
    patterns: np.ndarray  # which elements are above each face, (pieces, bytes), as a LinePartition has them


def follow(
    program: Program, count: int, inside: Callable[[slice], tuple[Tensor, Tensor]], squares: Sequence[Tensor]
) -> Pieces:
    """Slopes and patterns of so many pieces, all in one group of sizes. For some of them ``inside`` gives points,
    ``(pieces, *shape)``, and directions, (directions, pieces or 1, *shape).
    """
    size = max(1, _CHUNK // max(program.elements))
    parts = [_followed(program, *inside(slice(i, i + size)), squares) for i in range(0, count, size)]
    slopes, terms, patterns = zip(*parts, strict=True)
    return Pieces(np.concatenate(slopes, 1), np.max(terms, 0), np.concatenate(patterns))


@torch.no_grad()
def _followed(program: Program, points: Tensor, directions: Tensor, squares: Sequence[Tensor]) -> list[np.ndarray]:
    values, found = {0: points}, [torch.zeros(len(points), 0, dtype=torch.bool, device=points.device)]
    slopes = {0: directions.expand(len(directions), len(points), *points.shape[1:])}
    terms, sizes = {0: slopes[0].square().amax(dim=(0, 1))[None]}, iter(squares)
    for step in program.through(values, slopes):
        inputs = [values[s] for s in step.inputs]
        values[step.output] = step.run(*inputs)
        if isinstance(step, Affine):
            slopes[step.output] = step.linear_of_each(*(slopes[s] for s in step.inputs))
            terms[step.output] = step.linear_size(*(terms[s] for s in step.inputs))
            continue
        size = next(sizes)[0].reshape(inputs[0].shape[1:])
        if isinstance(step, Fold):
            above = [inputs[0] - face > _NOTHING * (size + face * face).sqrt() for face in step.faces]
            slopes[step.output] = step.slope(inputs[0], above) * slopes[step.inputs[0]]
            found += [one.reshape(len(points), -1) for one in above]
        else:
            top = step.entries(inputs[0]).argmax(dim=2)
            chosen = step.windows.gather(1, top.T).T.expand(len(directions), -1, -1)
            slope = slopes[step.inputs[0]].reshape(len(directions), len(points), -1).gather(2, chosen)
            slopes[step.output] = slope.reshape(len(directions), len(points), *step.shape)
            found.append(torch.nn.functional.one_hot(top, step.windows.shape[1]).reshape(len(points), -1).bool())
        terms[step.output] = slopes[step.output].square().amax(dim=(0, 1))[None]
    slope = slopes[program.output].reshape(len(directions), len(points), -1)
    term = terms[program.output].reshape(-1).sqrt()
    return [slope.cpu().numpy(), term.cpu().numpy(), np.packbits(torch.cat(found, 1).cpu().numpy(), axis=1)]
