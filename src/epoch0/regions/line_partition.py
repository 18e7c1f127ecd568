"""The partition of a line into regions: break points with owners, patterns, and what is linear (Hanin-Rolnick)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from epoch0.regions.certificate import RELATIVE, Certificate, Sizes
from epoch0.regions.network.pieces import Pieces, follow
from epoch0.regions.network.steps import Program
from epoch0.results import Result

_CHUNK = 1 << 26  # numbers of one tensor held at a time


@dataclass(frozen=True, eq=False)
class LinePartition(Result):
    """Where a network's linear pieces meet along one line.

    Activation regions are the stretches on which every neuron keeps its sign; ``count`` counts them. Two neighbours may
    still share one affine map (the neuron that changes has no open way to the output); ``linear_count`` counts the
    stretches with different maps, so it is never larger.
    """

    corners: Tensor  #: the line's points, shape ``(corners, *shape)``; its two ends, or the joints of a polyline
    kind: str  #: "segment", "ray" (from the first point on), "line" (without end) or "curve" (a polyline)
    breakpoints: np.ndarray  #: t where the regions meet, increasing; t is 0 at the first point and 1 at the last
    layers: tuple[str, ...]  #: names of the folding steps, in order
    owner_layer: np.ndarray  #: for each break point the index in ``layers`` of what folds there
    owner_neuron: np.ndarray  #: and the index of the neuron, in the flattened layer (of the window, for max pooling)
    owner_face: np.ndarray  #: and which of its faces (0 for a ReLU; for max pooling the entry of the window)
    per_layer: tuple[int, ...]  #: regions after each folding step
    certificate: Certificate  #: what vouches for the count
    notes: tuple[str, ...]  #: what else should be known
    neurons: int  #: number of elements that fold, all layers together
    program: Program = field(repr=False)

    columns: ClassVar = ("t", "layer", "neuron", "face", "linear")

    @property
    def count(self) -> int:
        """Number of activation regions."""
        return len(self.breakpoints) + 1

    @property
    def owner(self) -> list[tuple[str, int, int]]:
        """Layer name, neuron and face of each break point."""
        columns = (self.owner_layer.tolist(), self.owner_neuron.tolist(), self.owner_face.tolist())
        return [(self.layers[step], neuron, face) for step, neuron, face in zip(*columns, strict=True)]

    @cached_property
    def linear_breaks(self) -> np.ndarray:
        """For each break point, whether the affine map changes there, shape (breaks,)."""
        if not len(self.breakpoints):
            return np.zeros(0, dtype=bool)
        inside, breaks = self._inside(), self.breakpoints
        changes: list[np.ndarray] = []
        for start, stop in self._chunks():  # neighbouring chunks share a piece
            t = inside[start:stop]
            right, left = self.direction(breaks[start : stop - 1]), self.direction(breaks[start : stop - 1])
            directions = torch.stack([torch.cat([right, right[-1:]]), torch.cat([left[:1], left])])
            found = self._follow(t, directions, False)
            jump = (found.slopes[0, :-1] - found.slopes[1, 1:]).abs() > RELATIVE * found.terms
            changes.append(jump.any(dim=1).cpu().numpy())
        return np.concatenate(changes)

    @cached_property
    def linear_count(self) -> int:
        """Number of linear regions along the line: neighbours with one affine map count once."""
        return 1 + int(self.linear_breaks.sum())

    @cached_property
    def patterns(self) -> np.ndarray:
        """Which elements are above each face, region by region: bits packed into bytes, shape (count, bytes).

        Columns run over the layers, within a layer over its faces, within a face over its elements; a maximum has one
        column for every window and entry, set for the largest. ``numpy.unpackbits(patterns, axis=1)`` gives the bits.
        """
        parts = []
        for start, stop in self._chunks(overlap=0):
            t = self._inside()[start:stop]
            found = self._follow(t, torch.zeros_like(self.corners[:1])[None], True)
            parts.append(found.packed())
        return np.concatenate(parts)

    def point(self, t: ArrayLike) -> Tensor:
        """The points of the line at parameters t, shape ``(len(t), *shape)``."""
        t = torch.as_tensor(t, dtype=torch.float64, device=self.corners.device).reshape(-1)
        stretch, place = self._stretch(t)
        shape = (-1,) + (1,) * (self.corners.dim() - 1)
        start = self.corners[stretch]
        return start + (place - stretch).view(shape) * (self.corners[stretch + 1] - start)

    def direction(self, t: ArrayLike) -> Tensor:
        """The direction of the stretch that holds t, from one corner to the next, shape ``(len(t), *shape)``."""
        t = torch.as_tensor(t, dtype=torch.float64, device=self.corners.device).reshape(-1)
        stretch, _ = self._stretch(t)
        return self.corners[stretch + 1] - self.corners[stretch]

    def _stretch(self, t: Tensor) -> tuple[Tensor, Tensor]:
        place = t * (len(self.corners) - 1)
        return place.floor().clamp(0, len(self.corners) - 2).long(), place

    def _inside(self) -> np.ndarray:
        """A parameter inside each region."""
        breaks = self.breakpoints
        low = 0.0 if self.kind != "line" else min(0.0, breaks[0] if len(breaks) else 0.0) - 1.0
        high = 1.0 if self.kind in ("segment", "curve") else max(1.0, breaks[-1] if len(breaks) else 1.0) + 1.0
        ends = np.concatenate([[low], breaks, [high]])
        inside: np.ndarray = 0.5 * (ends[1:] + ends[:-1])
        return inside

    def _chunks(self, overlap: int = 1) -> Iterator[tuple[int, int]]:
        size = max(2, _CHUNK // max(1, 4 * max((*self.program.sizes, self.corners[0].numel()))))
        for start in range(0, self.count - overlap, size - overlap):
            yield start, min(start + size, self.count)

    def _follow(self, t: np.ndarray, directions: Tensor, patterns: bool) -> Pieces:
        with torch.no_grad():
            return follow(self.program, self.point(t), directions, self._sizes, patterns=patterns)

    @cached_property
    def _sizes(self) -> Sizes:
        samples = sample(self.corners)
        group = torch.zeros(len(samples), dtype=torch.int64, device=samples.device)
        with torch.no_grad():
            return Sizes.measure(self.program, samples, group, group[:1] > 0)

    def rows(self) -> list[dict[str, Any]]:
        """One row a break point: t, layer, neuron, face, and whether the affine map changes there."""
        parts = zip(self.breakpoints.tolist(), self.owner, self.linear_breaks.tolist(), strict=True)
        return [dict(zip(self.columns, (t, *owner, linear), strict=True)) for t, owner, linear in parts]

    def __str__(self) -> str:
        what = {"segment": "a segment", "ray": "a ray", "line": "a whole line", "curve": "a polyline"}[self.kind]
        rows = [f"{self.count} activation regions on {what}, {self.count / max(1, self.neurons):.3f} a neuron"]
        rows += [f"  after {name:<20} {count:>8}" for name, count in zip(self.layers, self.per_layer, strict=True)]
        return "\n".join([*rows, f"  {self.certificate}", *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True, eq=False)
class LinePartitions(Result):
    """Many lines of one network, or of all networks of an ensemble: a sequence of :class:`LinePartition`."""

    lines: tuple[LinePartition, ...]  #: one partition a line; of an ensemble those of its first network first
    networks: int | None = None  #: number of networks of an ensemble, None for lines of one network

    @property
    def counts(self) -> np.ndarray:
        """Activation regions of each line, shape (lines,), of an ensemble (networks, lines)."""
        found = np.array([line.count for line in self.lines], dtype=np.int64)
        return found if self.networks is None else found.reshape(self.networks, -1)

    @property
    def count(self) -> int:
        """Activation regions of all lines together."""
        return int(self.counts.sum())

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> LinePartition:
        return self.lines[index]

    def __iter__(self) -> Iterator[LinePartition]:
        return iter(self.lines)

    def rows(self) -> list[dict[str, Any]]:
        """One row a line: its count, and the smallest decision of its certificate."""
        lines = enumerate(self.lines)
        return [{"line": i, "count": line.count, "smallest": line.certificate.smallest} for i, line in lines]

    def __str__(self) -> str:
        counts = self.counts.reshape(-1)
        error = counts.std(ddof=1) / len(counts) ** 0.5 if len(counts) > 1 else float("nan")
        neurons = max(1, self.lines[0].neurons)
        return (
            f"{self.count} activation regions on {len(self)} lines: {counts.mean():.2f} a line (standard error "
            f"{error:.2f}), {counts.mean() / neurons:.3f} a neuron\n  {self.lines[0].certificate}"
        )


def sample(corners: Tensor) -> Tensor:
    """Points by which the sizes on a line are told, whatever pieces it is cut into: ``(samples, *shape)``."""
    few = torch.linspace(0, len(corners) - 1, 5, device=corners.device).long()
    ends = corners if len(corners) <= 5 else corners[few]
    return torch.cat([ends, 0.5 * (ends[1:] + ends[:-1])])
