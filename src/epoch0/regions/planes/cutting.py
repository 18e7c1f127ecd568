"""A polygon cut into cells by neurons: vertices, edges and cells, knowing nothing of the network behind the values."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from epoch0.regions.certificate import Decisions
from epoch0.regions.complex import Cut
from epoch0.regions.network.steps import Largest
from epoch0.regions.planes import chords as cuts
from epoch0.regions.planes.mesh import Mesh, joined, parts_of
from epoch0.regions.workers import Budget

Owners = Callable[[np.ndarray], np.ndarray]  # step, element and face of columns


class Plane:
    """A convex polygon partitioned into convex cells; row i of every tensor belongs to vertex i.

    Edge e has the half-edges 2e, from its first to its second vertex, and 2e + 1; cells are to the left of theirs. The
    step ``last`` is only counted, none for -1; the history has the cells after each step that cut.
    """

    unbounded = False

    def __init__(self, mesh: Mesh, budget: Budget, last: int = -1) -> None:
        self.mesh, self.budget, self.last = mesh, budget, last
        self.count = self.before = len(mesh.ends) - 1
        self.history: dict[int, int] = {}
        self.decisions = Decisions()
        self.away = torch.zeros(0, dtype=torch.int64)

    @staticmethod
    def start(corners: Tensor, budget: Budget, last: int = -1) -> "Plane":
        """One cell: the window itself."""
        number = np.arange(len(corners))
        edges = np.stack([number, (number + 1) % len(corners)], axis=1)
        none = np.full((len(corners), 3), -1)
        mesh = Mesh(corners, edges, none, 2 * number, np.array([0, len(corners)]), none[:, 0], none[:, 0])
        return Plane(mesh, budget, last)

    def cut(self, values: Tensor, tolerance: Tensor, step: int, width: int, face: int | None = None) -> Cut | None:
        """Cut every cell along every column that takes both signs in it; as for lines."""

        def owners(column: np.ndarray) -> np.ndarray:
            faces = column // width if face is None else np.full(len(column), face)
            return np.stack([np.full(len(column), step), column % width, faces], axis=1)

        whole = slice(0, values.shape[1])
        return self._cut(values, tolerance[0], whole, self.decisions, owners, step, step == self.last)

    def _cut(
        self, values: Tensor, tolerance: Tensor, some: slice, decisions: Decisions, owners: Owners, step: int,
        counted: bool,
    ) -> Cut | None:  # fmt: skip
        """Cut along some columns; where they are only counted the cells stay as they are."""
        mesh, limit, numbers = self.mesh, tolerance[some].numpy(), values[:, some].numpy()
        signs = cuts.read(numbers, limit, decisions)
        points = cuts.edge_points(mesh.edges, signs, numbers, limit)
        cell_of = np.repeat(np.arange(len(mesh.ends) - 1), np.diff(mesh.ends))
        length = points.per_edge[mesh.half >> 1] + 1
        place = np.cumsum(length) - length
        undecided = decisions.undecided
        found = cuts.chords(
            mesh.half, mesh.ends, cell_of, mesh.edges, signs, points, place,
            len(numbers), numbers.shape[1], decisions,
        )  # fmt: skip
        if not len(found) and not len(points.u):
            return None
        crossing, concurrent = cuts.crossings(found, numbers, points, limit)
        if concurrent:
            decisions.undecided = undecided
            return self._in_halves(values, tolerance, some, decisions, owners, step)
        self._note(step, self.count + len(found) + len(crossing))
        if counted:
            return None
        return self._rebuild(len(numbers), points, found, crossing, cell_of, length, place, some.start, owners, step)

    def _in_halves(
        self, values: Tensor, tolerance: Tensor, some: slice, decisions: Decisions, owners: Owners, step: int
    ) -> Cut | None:
        """Where three chords meet in one point: one half of the columns, then the other, which finds a vertex there."""
        middle, again = (some.start + some.stop) // 2, Decisions()
        first = self._cut(values, tolerance, slice(some.start, middle), again, owners, step, False)
        if first is not None:
            values = first.extended(values, values.new_zeros(1), values.shape[1])
        second = self._cut(values, tolerance, slice(middle, some.stop), again, owners, step, False)
        decisions.undecided += again.undecided
        return second if first is None else first.then(second)

    def _rebuild(
        self, rows: int, points: cuts.EdgePoints, found: cuts.Chords, crossing: cuts.Crossings, cell_of: np.ndarray,
        length: np.ndarray, place: np.ndarray, column: int, owners: Owners, step: int,
    ) -> Cut:  # fmt: skip
        """The mesh with new edges along the chords; ``column`` is the number of the first of those looked at."""
        mesh, old = self.mesh, len(self.mesh.edges)
        touched = np.zeros(len(mesh.ends) - 1, dtype=bool)
        touched[found.cell] = True
        touched[cell_of[length > 1]] = True
        # the pieces of split edges: the first keeps the edge's number, piece i + 1 of an edge starts at its point i
        at = np.flatnonzero(touched[cell_of])
        count = length[at]
        start = np.cumsum(count) - count
        within = np.arange(count.sum()) - np.repeat(start, count)
        half = np.repeat(mesh.half[at], count)
        edge, back = half >> 1, half & 1
        index = np.where(back == 0, within, points.per_edge[edge] - within)
        piece = np.where(index == 0, edge, old + points.first[edge] + index - 1)
        local = np.full(int(length.sum()), -1)
        local[np.repeat(place[at], count) + within] = np.arange(len(half))
        borders = cuts.Pieces(2 * piece + back, np.repeat(cell_of[at], count), local)
        self._split_edges(points, rows)

        new, first = len(mesh.edges), rows + len(points.u)
        inner = cuts.chord_pieces(found, crossing, first)
        elements, bounds = cuts.cycles(cuts.successors(borders, found, crossing, inner))
        ids = 2 * (new + np.arange(len(inner.chord)))
        halves = np.concatenate([borders.half, ids, ids + 1])[elements]
        mesh.edges = np.concatenate([mesh.edges, np.stack([inner.start, inner.stop], axis=1)])
        mesh.owner = np.concatenate([mesh.owner, owners(column + found.column[inner.chord])])
        mesh.from_edge = np.concatenate([mesh.from_edge, np.full(len(ids), -1)])
        mesh.half = np.concatenate([mesh.half[~touched[cell_of]], halves])
        degrees = np.concatenate([np.diff(mesh.ends)[~touched], np.diff(bounds)])
        mesh.ends = np.concatenate([[0], np.cumsum(degrees)])
        self._note(step, len(degrees))

        ends, pair = crossing.first, np.concatenate([crossing.first, crossing.second])
        row = first + np.tile(np.arange(len(crossing)), 2)
        crossed = _between(found.start[ends], found.stop[ends], crossing.share, row, column + found.column[pair])
        cut = _between(points.u, points.v, points.share, points.point + rows, column + points.column).then(crossed)
        mesh.points = cut.extended(mesh.points)
        mesh.from_row = np.concatenate([mesh.from_row, np.full(len(cut), -1)])
        return cut

    def _note(self, step: int, count: int) -> None:
        """Write down how many cells there are now."""
        self.budget.add(count - self.count, step)
        self.count = self.history[step] = count

    def _split_edges(self, points: cuts.EdgePoints, rows: int) -> None:
        """cuts.Pieces of split edges: numbered like the points they start from, after all edges there were."""
        split = np.flatnonzero(points.per_edge)
        number = np.arange(len(points.u))
        following = rows + number + 1
        last = points.first[split] + points.per_edge[split] - 1
        edges = self.mesh.edges
        following[last] = edges[split, 1]
        source = np.repeat(split, points.per_edge[split])
        edges[split, 1] = rows + points.first[split]
        self.mesh.edges = np.concatenate([edges, np.stack([rows + number, following], axis=1)])
        self.mesh.owner = np.concatenate([self.mesh.owner, self.mesh.owner[source]])
        self.mesh.from_edge = np.concatenate([self.mesh.from_edge, self.mesh.from_edge[source]])

    def settle(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """After a maximum: join the cells on both sides of edges where another entry tops the tie."""
        mesh = self.mesh
        mine = np.flatnonzero(mesh.owner[:, 0] == number)
        if not len(mine):
            return None
        cell_of = np.empty(2 * len(mesh.edges), dtype=np.int64)
        cell_of[mesh.half] = np.repeat(np.arange(len(mesh.ends) - 1), np.diff(mesh.ends))
        left, right = (self._inside(values, cell_of[2 * mine + side]) for side in (0, 1))
        window, entry = step.parted(left, right, limit)
        mesh.owner[mine, 1], mesh.owner[mine, 2] = window.numpy(), entry.numpy()
        if bool((window >= 0).all()):
            return None
        false = np.zeros(len(mesh.edges), dtype=bool)
        false[mine[window.numpy() < 0]] = True
        kept = self._remove(false)
        self._note(number, len(mesh.ends) - 1)
        return kept

    def _inside(self, values: Tensor, cells: np.ndarray) -> Tensor:
        """Values in the middle of some cells: the means over their vertices."""
        mesh = self.mesh
        degree = np.diff(mesh.ends)[cells]
        which = np.repeat(np.arange(len(cells)), degree)
        within = np.arange(len(which)) - np.repeat(np.cumsum(degree) - degree, degree)
        half = mesh.half[np.repeat(mesh.ends[cells], degree) + within]
        total = values.new_zeros(len(cells), *values.shape[1:])
        total.index_add_(0, torch.from_numpy(which), values[torch.from_numpy(mesh.edges[half >> 1, half & 1])])
        return total / torch.from_numpy(degree).view(-1, *[1] * (values.dim() - 1))

    def _remove(self, false: np.ndarray) -> Tensor:
        """Take out edges; the vertices that are left, by which all tensors are to be indexed."""
        mesh = self.mesh
        following = np.empty(2 * len(mesh.edges), dtype=np.int64)
        after = np.arange(1, len(mesh.half) + 1)
        after[mesh.ends[1:] - 1] = mesh.ends[:-1]
        following[mesh.half] = mesh.half[after]
        real = mesh.half[~false[mesh.half >> 1]]
        target = following[real]
        while (wrong := false[target >> 1]).any():
            target[wrong] = following[target[wrong] ^ 1]
        local = np.full(2 * len(mesh.edges), -1)
        local[real] = np.arange(len(real))
        elements, mesh.ends = cuts.cycles(local[target])
        number = np.cumsum(~false) - 1
        half = real[elements]
        mesh.half = 2 * number[half >> 1] + (half & 1)
        mesh.edges, mesh.owner, mesh.from_edge = mesh.edges[~false], mesh.owner[~false], mesh.from_edge[~false]
        used = np.zeros(len(mesh.points), dtype=bool)
        used[mesh.edges] = True
        mesh.edges = (np.cumsum(used) - 1)[mesh.edges]
        kept = np.flatnonzero(used)
        mesh.points, mesh.from_row = mesh.points[torch.from_numpy(kept)], mesh.from_row[kept]
        return torch.from_numpy(kept)

    def split(self, parts: int) -> list[tuple["Plane", Tensor]]:
        """Strips of cells with their rows; edges between strips are in both."""
        if self.count < 2:
            return []
        meshes = parts_of(self.mesh, parts)
        return [(Plane(mesh, self.budget, self.last), torch.from_numpy(mesh.from_row)) for mesh in meshes]

    def join(self, parts: Sequence["Plane"]) -> "Plane":
        """The whole of the strips after they were cut."""
        for step in sorted(set().union(*(part.history for part in parts))):
            self.history[step] = sum(part.cells_after(step) for part in parts)
        for part in parts:
            self.decisions.add(part.decisions)
        self.count = sum(part.count for part in parts)
        if self.last < 0:
            self.mesh, wrong = joined(self.mesh, [part.mesh for part in parts])
            self.decisions.undecided += wrong
        return self

    def cells_after(self, step: int) -> int:
        """Number of cells after a step, whether it cut anything or not."""
        earlier = [number for number in self.history if number <= step]
        return self.history[max(earlier)] if earlier else self.before


def _between(u: np.ndarray, v: np.ndarray, share: np.ndarray, row: np.ndarray, column: np.ndarray) -> Cut:
    """Points between u and v, at a share of the way."""
    first, last, near, at, on = (torch.from_numpy(np.ascontiguousarray(a)) for a in (u, v, share, row, column))
    return Cut(first, last, 1 - near, near, at, on)
