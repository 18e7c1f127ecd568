"""The size of the terms in each pre-activation, by which zero is decided, and what vouches for the decisions."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from epoch0.regions.network.steps import Affine, Fold, Program
from epoch0.results import Shown

RELATIVE = 1e-12
"""A pre-activation below this part of the size of its terms counts as zero; rounding leaves about 1e-16 times depth."""
_BLOCK = 1 << 16  # values looked at together: they stay in the cache


@dataclass
class Decisions:
    """What the certificate says about the signs; see its fields."""

    smallest: float = float("inf")
    zeros: int = 0
    undecided: int = 0

    def signs(self, values: Tensor, tolerance: Tensor, group: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Which values, (rows, columns), are positive, and which are zero, None if that is nowhere.

        Those below the tolerance of their row's group, (groups, columns), are zero; the smallest that is not is noted.
        Without groups there is one.
        """
        positive, zero = values > 0.0, None
        largest = 1.0 / tolerance.amax(dim=0).clamp_min(1e-300)
        smallest = self.smallest / RELATIVE  # as a multiple of the tolerance
        some = max(1, _BLOCK // values.shape[1]) if values.device.type == "cpu" else len(values)
        for start in range(0, len(values), some):
            here = slice(start, start + some)
            ratio = values[here].abs().mul_(largest)
            if (closest := float(ratio.amin())) > max(1.0, smallest):
                continue  # nothing here decides more narrowly, by whatever group
            if group is not None:
                ratio = values[here].abs().div_(tolerance[group[here]].clamp_min(1e-300))
                closest = float(ratio.amin())
            if closest <= 1.0:
                zero = torch.zeros_like(positive) if zero is None else zero
                zero[here] = tiny = ratio <= 1.0
                self.zeros += int(tiny.sum())
                closest = float(ratio.masked_fill_(tiny, torch.inf).amin())
            smallest = min(smallest, closest)
        self.smallest = smallest * RELATIVE
        return positive if zero is None else positive & ~zero, zero

    def add(self, other: "Decisions") -> None:
        self.smallest = min(self.smallest, other.smallest)
        self.zeros += other.zeros
        self.undecided += other.undecided


@torch.no_grad()
def sizes_of(
    program: Program, samples: Tensor, group: Tensor | None = None, infinite: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Sizes of the terms of every pre-activation: for each folding step their sums of squares, (groups, elements).

    They are found from a few sample points, ``(samples, *shape)``, of each group, a line or a window; no decision
    depends on how the work is split, as the samples do not. The size of a sum of terms is the root of the sum of their
    squares; after a fold all elements are given the root mean square of the layer, whether they are on or off at the
    samples. Each sample has a group, all one by default, and each group may be infinite: a direction to infinity, for
    which there are no biases.
    """
    if group is None or infinite is None:
        group = torch.zeros(len(samples), dtype=torch.int64, device=samples.device)
        infinite = group[:1] > 0
    groups, away, found = len(infinite), infinite[group], []

    def largest(values: Tensor) -> Tensor:
        """Per group, among its samples."""
        top = values.new_zeros(groups, *values.shape[1:])
        return top.scatter_reduce_(0, group.view(-1, *[1] * (values.dim() - 1)).expand_as(values), values, "amax")

    values, squares = {0: samples}, {0: largest(samples.square())}
    for step in program.through(values, squares):
        inputs, before = [values[s] for s in step.inputs], [squares[s] for s in step.inputs]
        if isinstance(step, Affine):
            value, square = step.run(*inputs), step.size(*before)
            if step.biased and bool(infinite.any()):
                value, square = value.clone(), square.clone()
                value[away], square[infinite] = step.linear(*inputs)[away], step.linear_size(*before)[infinite]
        else:
            found.append(before[0].reshape(groups, -1).contiguous())
            value, mirrored = step.run(inputs[0]), step.run(-inputs[0])
            if isinstance(step, Fold) and bool(away.any()):
                value, mirrored = value.clone(), mirrored.clone()
                value[away], mirrored[away] = step.recession(inputs[0][away]), step.recession(-inputs[0][away])
            mean = torch.maximum(value.square(), mirrored.square()).reshape(len(value), -1).mean(dim=1)
            square = largest(mean).reshape(-1, *[1] * (value.dim() - 1)).expand(groups, *value.shape[1:])
        values[step.output], squares[step.output] = value, square
    return tuple(found)


@dataclass(frozen=True)
class Certificate(Shown):
    """Evidence that comes with every partition."""

    tolerance: float  #: a pre-activation below this part of the size of the terms summed in it counted as zero
    smallest: float  #: the smallest pre-activation that decided a sign, as a part of that size
    zeros: int  #: pre-activations at existing points that counted as zero, boundaries that meet in one point
    #: pieces left whole because rounding hid where a neuron changes its sign; 0 unless something is wrong
    undecided: int
    ordered: bool | None = None  #: whether the break points of a line increase (None for a plane)
    euler: int | None = None  #: vertices - edges + cells of a plane partition, which is 1 (None for a line)
    measure_error: float | None = None  #: total length or area of the pieces against the whole, relative
    distinct: bool | None = None  #: whether all patterns differ (None where they were not compared)

    @property
    def holds(self) -> bool:
        """Whether every identity that was looked at holds and every piece was decided."""
        length = self.measure_error is None or abs(self.measure_error) < 1e-9
        topology = self.ordered is not False and self.euler in (None, 1) and self.distinct is not False
        return self.undecided == 0 and topology and length

    def to_dict(self) -> dict[str, float | int | bool | None]:
        return {**asdict(self), "holds": self.holds}

    def __str__(self) -> str:
        words = [
            f"closest decision |z| = {self.smallest:.1e} of its terms, tolerance {self.tolerance:.0e}",
            f"{self.zeros} met exactly" if self.zeros else "none met exactly",
        ]
        if self.ordered is not None:
            words.append("break points in order" if self.ordered else "break points NOT in order")
        if self.euler is not None:
            words.append(f"vertices - edges + cells = {self.euler}")
        if self.measure_error is not None:
            words.append(f"sizes add up to the whole within {self.measure_error:.0e}")
        if self.distinct is not None:
            words.append("patterns distinct" if self.distinct else "patterns NOT distinct")
        if self.undecided:
            words.append(f"{self.undecided} pieces UNDECIDED")
        return "; ".join(words)
