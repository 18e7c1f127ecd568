"""Lines and curves in, partitions out: break points with owners, patterns, what is linear (Hanin-Rolnick 2019)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from epoch0.arguments import Positive, Size, checked
from epoch0.curves import Curve, Line
from epoch0.errors import InputError
from epoch0.progress import Progress
from epoch0.regions.certificate import RELATIVE, Certificate, sizes_of
from epoch0.regions.complex import Budget, Lines, Rows
from epoch0.regions.network.steps import Pieces, Program, follow
from epoch0.regions.network.trace import in_float64, trace, trace_for
from epoch0.regions.walk import MEMORY, check_fits, walk
from epoch0.results import Result, counted
from epoch0.tracing.guard import keeping_memory


@dataclass(frozen=True, eq=False)
class LinePartition(Result):
    """Where a network's linear pieces meet along one line.

    Activation regions are the segments on which every neuron keeps its sign; ``count`` counts them. Two neighbours may
    still share one affine map (the neuron that changes has no open way to the output); ``linear_count`` counts maps.
    """

    corners: Tensor  #: the line's points, shape ``(corners, *shape)``; its two ends, or the joints of a polyline
    kind: str  #: "segment", "ray" (from the first point on), "line" (without end) or "curve" (a polyline)
    breakpoints: np.ndarray  #: t where the regions meet, increasing; t is 0 at the first point and 1 at the last
    layers: tuple[str, ...]  #: names of the folding steps, in order
    owner_layer: np.ndarray  #: for each break point the index in ``layers`` of what folds there
    owner_neuron: np.ndarray  #: and the index of the neuron, in the flattened layer (of the window, for max pooling)
    owner_face: np.ndarray  #: and which of its faces (0 for a ReLU; for max pooling the entry of the window)
    per_layer: tuple[int, ...]  #: regions after each folding step
    certificate: Certificate  #: evidence for the count
    notes: tuple[str, ...]  #: further remarks
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
        before, after = self._pieces.slopes
        return np.asarray((np.abs(before[:-1] - after[1:]) > RELATIVE * self._pieces.terms).any(axis=1))

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
        return self._pieces.patterns

    @cached_property
    def _pieces(self) -> Pieces:
        """The network inside each region, with its slopes along the line at the region's end and at its start."""
        breaks = self.breakpoints
        low = 0.0 if self.kind != "line" else min(0.0, *breaks[:1]) - 1.0
        high = 1.0 if self.kind in ("segment", "curve") else max(1.0, *breaks[-1:]) + 1.0
        ends = np.concatenate([[low], breaks, [high]])
        middles = 0.5 * (ends[1:] + ends[:-1])
        if len(breaks):
            ends[0], ends[-1] = breaks[0], breaks[-1]

        def inside(part: slice) -> tuple[Tensor, Tensor]:
            segments = [self._segment(t[part])[0] for t in (ends[1:], ends[:-1])]
            return self.point(middles[part]), torch.stack([self.corners[s + 1] - self.corners[s] for s in segments])

        return follow(self.program, self.count, inside, sizes_of(self.program, sample(self.corners)))

    def point(self, t: ArrayLike) -> Tensor:
        """The points of the line at parameters t, shape ``(len(t), *shape)``."""
        segment, place = self._segment(t)
        start = self.corners[segment]
        return start + (place - segment).view(-1, *[1] * (start.dim() - 1)) * (self.corners[segment + 1] - start)

    def _segment(self, t: ArrayLike) -> tuple[Tensor, Tensor]:
        """From which corner to the next each t is, and where, counted in corners."""
        t = torch.as_tensor(t, dtype=torch.float64, device=self.corners.device).reshape(-1)
        place = t * (len(self.corners) - 1)
        return place.floor().clamp(0, len(self.corners) - 2).long(), place

    def rows(self) -> list[dict[str, Any]]:
        """One row a break point: t, layer, neuron, face, and whether the affine map changes there."""
        parts = zip(self.breakpoints.tolist(), self.owner, self.linear_breaks.tolist(), strict=True)
        return [dict(zip(self.columns, (t, *owner, linear), strict=True)) for t, owner, linear in parts]

    def __str__(self) -> str:
        shape = {"segment": "a segment", "ray": "a ray", "line": "a whole line", "curve": "a polyline"}[self.kind]
        share = self.count / max(1, self.neurons)
        rows = [f"{counted(self.count, 'activation region')} on {shape}, {share:.3f} a neuron"]
        rows += [f"  after {name:<20} {count:>8}" for name, count in zip(self.layers, self.per_layer, strict=True)]
        return "\n".join([*rows, f"  {self.certificate}", *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True, eq=False)
class LinePartitions(Result):
    """Many lines of one network: a sequence of :class:`LinePartition`."""

    lines: tuple[LinePartition, ...]  #: one partition a line

    @property
    def counts(self) -> np.ndarray:
        """Activation regions of each line, shape (lines,)."""
        return np.array([line.count for line in self.lines], dtype=np.int64)

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
        counts = self.counts
        error = counts.std(ddof=1) / len(counts) ** 0.5 if len(counts) > 1 else float("nan")
        neurons = max(1, self.lines[0].neurons)
        head = f"{counted(self.count, 'activation region')} on {counted(len(self), 'line')}"
        mean = f"{counts.mean():.2f} a line (standard error {error:.2f}), {counts.mean() / neurons:.3f} a neuron"
        return f"{head}: {mean}\n  {self.lines[0].certificate}"


def sample(corners: Tensor) -> Tensor:
    """Points that set the scale of values on a line, whatever pieces it is cut into: ``(samples, *shape)``."""
    few = torch.linspace(0, len(corners) - 1, 5, device=corners.device).long()
    ends = corners if len(corners) <= 5 else corners[few]
    return torch.cat([ends, 0.5 * (ends[1:] + ends[:-1])])


def segment_ends(where: Any) -> tuple[Tensor, Tensor] | None:
    """The two ends of a segment, points or batches of them, however it is given; None for what is no segment."""
    if isinstance(where, Line):
        where = (where.x0, where.x1)
    if not isinstance(where, tuple | list) and not (isinstance(where, Tensor) and where.shape[:1] == (2,)):
        return None
    if len(where) != 2:
        raise InputError(f"a segment has two ends, not {len(where)}; give (x0, x1).")
    return two_ends(*where)


def two_ends(x0: Any, x1: Any) -> tuple[Tensor, Tensor]:
    x0, x1 = in_float64("x0", x0), in_float64("x1", x1)
    if x0.shape != x1.shape:
        raise InputError(f"x0 has shape {tuple(x0.shape)} and x1 {tuple(x1.shape)}; they must agree.")
    return x0, x1


@checked
def on_line(
    model: nn.Module,
    x0: Tensor,
    x1: Tensor,
    *,
    kind: str = "segment",
    memory: Positive = MEMORY,
    progress: Progress = None,
) -> LinePartition | LinePartitions:
    """The regions of a network along a line through x0 and x1, or along many lines at once.

    >>> p = on_line(net, x0, x1)                             # net: 64-32-32-10; x0, x1 of shape (64,)
    >>> p.count, p.linear_count, p.breakpoints.shape
    (22, 22, (21,))
    >>> on_line(net, torch.zeros(100, 64), images).counts.shape      # images of shape (100, 64): 100 lines
    (100,)

    Args:
        model: any torch module made of affine and piecewise linear operations: dense, convolutional, residual, with
            batch norm, average and max pooling, relu, leaky_relu, prelu, hardtanh, relu6, abs, clamp; read in float64
            and eval mode.
        x0, x1: where t = 0 and where t = 1, not the same: a point each of the model's input shape, or a batch of them.
        kind: "segment" from x0 to x1, "ray" from x0 through x1 without end, "line" without end on both sides.
        memory: bytes that values and break points may take, about; larger work is split along the lines.
        progress: is called with the part that is done, from 0 to 1, and a text, while the walk runs.

    Raises:
        InputError: if x0 = x1, shapes differ or do not suit the model, values are NaN, or the model has an operation
            that is not piecewise linear (the message names it), or the break points do not fit into the memory.

    Source: Hanin and Rolnick 2019, section 3.1 and Theorem 1.
    """
    if kind not in ("segment", "ray", "line"):
        raise InputError(f"kind={kind!r}; a line is a 'segment', a 'ray' from x0 on, or a whole 'line'.")
    x0, x1 = two_ends(x0, x1)
    program, single = trace_for(model, x0)
    corners = torch.stack([x0, x1], dim=0 if single else 1).to(next(model.parameters()).device)
    corners = corners[None] if single else corners
    same = (corners[:, 0] == corners[:, 1]).reshape(len(corners), -1).all(dim=1)
    if bool(same.any()):
        where = "" if single else f" for line {int(same.nonzero()[0])}"
        raise InputError(f"x0 and x1 are the same point{where}; a line needs two different ones.")
    lines = cut_lines(program, corners, kind, memory, progress)
    return lines[0] if single else LinePartitions(tuple(lines))


@checked
def on_curve(
    model: nn.Module, curve: Curve, *, pieces: Size = 1000, memory: Positive = MEMORY, progress: Progress = None
) -> LinePartition:
    """The regions of a network along a curve, taken as a polyline of many straight pieces.

    >>> p = on_curve(net, epoch0.curves.Arc(x0, x1), pieces=500)        # x0, x1 of shape (64,)
    >>> p.count, p.notes
    (22, ("the polyline is at most 1.2e-05 away from the curve, ...",))

    The other arguments are those of :func:`on_line`; t is the curve's own parameter. The straight pieces are equal in
    t; the distance to the curve falls with the square of their number, and the first note states the largest.

    Source: Raghu et al. 2017, section 2.3.
    """
    curve = curve.to(torch.float64)
    corners = curve.point(torch.linspace(0, 1, pieces + 1, dtype=torch.float64))
    middle = curve.point((torch.arange(pieces, dtype=torch.float64) + 0.5) / pieces)
    away = (middle - 0.5 * (corners[1:] + corners[:-1])).reshape(pieces, -1).norm(dim=1)
    length = (corners[1:] - corners[:-1]).reshape(pieces, -1).norm(dim=1)
    program = trace(model, tuple(corners.shape[1:]))
    note = f"the polyline is at most {float(away.max()):.1e} away from the curve"
    note += f", {float((away / length).max()):.1e} of a piece's length; {pieces} pieces."
    found = cut_lines(program, corners[None].to(next(model.parameters()).device), "curve", memory, progress)[0]
    return replace(found, notes=(note, *found.notes))


_SIZES = 3 << 20  # bytes of the sizes of lines that are cut together: their values shall fit into a cache, about
_BYTES = 250  # of one break point: its place, owner and group, twice while parts are put together, and the result


def cut_lines(program: Program, corners: Tensor, kind: str, memory: float, progress: Progress) -> list[LinePartition]:
    """Partitions of lines given by their corners, shape (lines, corners, *shape)."""
    check_fits(program, memory)
    found, layers = list[LinePartition](), program.layers
    # the sizes of all lines taken at once are held until the last is cut
    at_once = max(1, int(min(_SIZES, memory / 8)) // (16 * (corners[0].numel() + sum(program.sizes))))
    advice = "give more memory, or cut fewer or shorter lines at a time"
    budget = Budget(layers, memory, progress, len(corners), _BYTES, "regions", advice)
    for chunk in corners.split(at_once):
        lines = walked(program, chunk, kind, memory, budget, len(chunk) / len(corners))
        breaks = lines.rows.owner[lines.order, 0] >= 0
        rows = lines.rows.take(lines.order[breaks])
        place, owner, line = (item.cpu().numpy() for item in (rows.t, rows.owner.T.contiguous(), lines.line[breaks]))
        ends = np.searchsorted(line, np.arange(len(chunk) + 1))
        for i, points in enumerate(chunk):
            t, (layer, face, neuron) = place[ends[i] : ends[i + 1]], owner[:, ends[i] : ends[i + 1]]
            per_layer = tuple((1 + np.cumsum(np.bincount(layer, minlength=len(layers)))).tolist())
            certificate = Certificate(RELATIVE, **vars(lines.decisions), ordered=bool((np.diff(t) >= 0).all()))
            where, fields = (points, kind, t, layers, layer, neuron, face), (program.notes, program.neurons, program)
            found.append(LinePartition(*where, per_layer, certificate, *fields))
    budget.advance(1.0, "done")
    return found


@keeping_memory()
def walked(program: Program, corners: Tensor, kind: str, memory: float, budget: Budget, share: float) -> Lines:
    lines, device = len(corners), corners.device
    out, each = corners[:, 1] - corners[:, 0], torch.arange(lines, device=device)
    ways = {"line": [-1, 0, 1], "ray": [0, 1]}.get(kind, [0] * corners.shape[1])
    away, line = torch.tensor(ways, device=device).repeat(lines), each.repeat_interleave(len(ways))
    samples = torch.stack([sample(corner) for corner in corners])
    group, samples = each.repeat_interleave(samples.shape[1]), samples.flatten(0, 1)
    infinite = torch.zeros(lines, dtype=torch.bool, device=device)
    if any(ways):
        points = torch.stack([-out, corners[:, 0], out][-len(ways) :], 1).flatten(0, 1)
        t = torch.where(away == 0, 0.0, away * math.inf).double()
        # directions have sizes of their own, without biases
        samples, group = torch.cat([samples, out]), torch.cat([group, lines + each])
        infinite = torch.cat([infinite, ~infinite])
    else:
        points = corners.flatten(0, 1)
        t = torch.linspace(0, 1, len(ways), dtype=torch.float64, device=device).repeat(lines)
    own = torch.where(away == 0, line, line + lines)
    whole = Lines(line, Rows(t, away, own, torch.full((len(line), 3), -1, device=device)), budget)
    with torch.no_grad():
        return walk(program, whole, {0: points}, sizes_of(program, samples, group, infinite), memory, share=share)
