"""How large the terms are that are added up in each pre-activation: the scale on which zero is decided."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from epoch0.regions._steps import Affine, Fold, Step

RELATIVE = 1e-12
"""A pre-activation below this part of the size of its terms counts as zero; rounding leaves about 1e-16 times depth."""


@dataclass
class Decisions:
    """What the certificate says about the signs.

    Attributes:
        relative: the tolerance, as a part of the size of the terms summed.
        smallest: the smallest |z| that decided a sign, as a part of that size.
        zeros: values taken as zero that were not created as such.
        undecided: elements of the partition left whole because rounding gave a neuron more than two sign changes there.
    """

    relative: float = RELATIVE
    smallest: float = float("inf")
    zeros: int = 0
    undecided: int = 0

    def add(self, other: "Decisions") -> None:
        """Take in the decisions made on another piece."""
        self.smallest = min(self.smallest, other.smallest)
        self.zeros += other.zeros
        self.undecided += other.undecided


@dataclass
class Sizes:
    """Sizes of the terms, carried through the network along with a few sample points of each group.

    A group is a line or a window; its samples do not depend on how the work is split, so neither does any decision. The
    size of a sum of terms is the root of the sum of their squares; after a fold all elements are given the root mean
    square of the layer, whether they are on or off at the samples.

    Attributes:
        values: slot -> the samples' values, shape (samples, ...).
        squares: slot -> sums of squares, shape (groups, ...).
        group: group of each sample.
        infinite: which groups are directions to infinity: for them there are no biases.
    """

    values: dict[int, Tensor]
    squares: dict[int, Tensor]
    group: Tensor
    infinite: Tensor
    groups: int = field(default=0)

    @staticmethod
    def start(samples: Tensor, group: Tensor, infinite: Tensor) -> "Sizes":
        """Sizes of the input: per coordinate, the largest among the samples of the group."""
        sizes = Sizes({0: samples}, {}, group, infinite, len(infinite))
        sizes.squares[0] = sizes._largest(samples.square())
        return sizes

    def _largest(self, values: Tensor) -> Tensor:
        flat = values.reshape(len(values), -1)
        found = torch.zeros(self.groups, flat.shape[1], dtype=flat.dtype, device=flat.device)
        found.scatter_reduce_(0, self.group[:, None].expand_as(flat), flat, "amax")
        return found.reshape(self.groups, *values.shape[1:])

    def copy(self) -> "Sizes":
        """The same sizes for a part of the work."""
        return Sizes(dict(self.values), dict(self.squares), self.group, self.infinite, self.groups)

    def width(self, step: Step) -> int:
        """About how many numbers a step makes of one row: twice its largest input, or what it puts out."""
        inputs = sum(self.values[slot][0].numel() for slot in step.inputs)
        if not isinstance(step, Affine):
            return 2 * inputs
        output: Tensor = step.size(*(self.squares[slot][:1] for slot in step.inputs))
        return output.numel()

    def step(self, step: Step) -> None:
        """Carry everything through one step."""
        if isinstance(step, Affine):
            inputs, squares = [self.values[s] for s in step.inputs], [self.squares[s] for s in step.inputs]
            away = self.infinite[self.group]
            value, square = step.run(*inputs), step.size(*squares)
            if step.biased and bool(self.infinite.any()):
                value, square = value.clone(), square.clone()
                value[away] -= step.run(*(torch.zeros_like(t[:1]) for t in inputs))
                square[self.infinite] -= step.size(*(torch.zeros_like(t[:1]) for t in squares))
            self.values[step.output], self.squares[step.output] = value, square
            return
        before = self.values[step.inputs[0]]
        away = self.infinite[self.group]
        after, mirrored = step.run(before), step.run(-before)
        if bool(away.any()) and isinstance(step, Fold):
            after, mirrored = after.clone(), mirrored.clone()
            after[away], mirrored[away] = step.recession(before[away]), step.recession(-before[away])
        self.values[step.output] = after
        mean = torch.maximum(after.square(), mirrored.square()).reshape(len(after), -1).mean(dim=1)
        largest = self._largest(mean[:, None])
        self.squares[step.output] = largest.reshape(-1, *[1] * (after.dim() - 1)).expand(self.groups, *after.shape[1:])

    def forget(self, slots: set[int]) -> None:
        """Drop what nothing reads any more."""
        for slot in slots:
            self.values.pop(slot, None)
            self.squares.pop(slot, None)


