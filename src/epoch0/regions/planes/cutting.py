"""A polygon cut into cells by neurons: vertices, edges and cells, independent of the network behind the values.

Signs at vertices give points on edges, these the chords of cells, and chords with their crossings the new cells. A
plane can be cut in parts that are put together again.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epoch0.regions.certificate import Decisions
from epoch0.regions.complex import Budget, Cut, Flips
from epoch0.regions.network.steps import Largest


@dataclass
class Mesh:
    """Vertices, edges and cells of a partition, or of a part of one."""

    points: Tensor  # coordinates of the vertices, (vertices, 2)
    edges: np.ndarray  # (edges, 2)
    owner: np.ndarray  # step, face and element that made each edge, (edges, 3); -1 on the window's border
    half: np.ndarray  # half-edges of all cells, cell by cell
    ends: np.ndarray  # where each cell starts in ``half``, and the end
    from_row: np.ndarray  # of each vertex, its number in the whole this is a part of, -1 for those made since
    from_edge: np.ndarray  # of each edge, the edge of the whole that it is a piece of, -1 for those made since

    def add_edges(self, edges: np.ndarray, owner: np.ndarray, from_edge: np.ndarray) -> None:
        """More edges, behind those there are."""
        self.edges = np.concatenate([self.edges, edges])
        self.owner = np.concatenate([self.owner, owner])
        self.from_edge = np.concatenate([self.from_edge, from_edge])


def within(counts: np.ndarray) -> np.ndarray:
    """The numbers from 0 to below each count, one count after another."""
    return np.asarray(np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))


def next_around(ends: np.ndarray) -> np.ndarray:
    """For each place in a list of cells the next one around its cell; each begins and ends as ``ends`` says."""
    after: np.ndarray = np.arange(1, ends[-1] + 1)
    after[ends[1:] - 1] = ends[:-1]
    return after


def components(pairs: np.ndarray, count: int) -> np.ndarray:
    """The connected component of each of ``count`` nodes that are joined by pairs, (pairs, 2)."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(pairs), dtype=np.int8), pairs.T), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1])


def parts_of(mesh: Mesh, count: int) -> list[Mesh]:
    """Strips of about equally many cells, across the longer side; a strip of a strip is thus a block."""
    cells = len(mesh.ends) - 1
    count, degree = min(count, cells), np.diff(mesh.ends)
    first, points = mesh.half[mesh.ends[:-1]], mesh.points.numpy()
    along = int(np.ptp(points[:, 1]) > np.ptp(points[:, 0]))
    borders = np.linspace(0, cells, count + 1).astype(np.int64)
    place = points[mesh.edges[first >> 1, first & 1], along]
    order, found = np.argpartition(place, borders[1:-1]) if count > 1 else np.arange(cells), []
    for low, high in itertools.pairwise(borders.tolist()):
        members = np.sort(order[low:high])
        size = degree[members]
        ends = np.concatenate([[0], np.cumsum(size)])
        half = mesh.half[np.repeat(mesh.ends[members], size) + within(size)]
        edges, edge = used(half >> 1, len(mesh.edges))
        rows, vertex = used(mesh.edges[edges], len(mesh.points))
        points_here = mesh.points.index_select(0, torch.from_numpy(rows))
        found.append(Mesh(points_here, vertex, mesh.owner[edges], 2 * edge + (half & 1), ends, rows, edges))
    return found


def used(numbers: np.ndarray, below: int) -> tuple[np.ndarray, np.ndarray]:
    """The different ones of some numbers in order, and the place of each number among them."""
    mark = np.zeros(below, dtype=bool)
    mark[numbers] = True
    return np.flatnonzero(mark), (np.cumsum(mark) - 1)[numbers]


def joined(mesh: Mesh, cut: Sequence[Mesh]) -> tuple[Mesh, int]:
    """The whole again after its parts were cut, and the number of pieces on which two parts do not agree. An edge
    between two parts was cut in both at the same points; the points of the first part stay.
    """
    points, row = torch.cat([part.points for part in cut]), np.concatenate([part.from_row for part in cut])
    edges = np.concatenate([part.edges + at for part, at in zip(cut, _begins([p.points for p in cut]), strict=True)])
    halves = [part.half + 2 * at for part, at in zip(cut, _begins([p.edges for p in cut]), strict=True)]
    source = np.concatenate([part.from_edge for part in cut])
    same, wrong = _same_pieces(mesh, cut, source, points.numpy()[edges[:, 0]])
    kept = same == np.arange(len(same))
    edge, first = (np.cumsum(kept) - 1)[same], np.arange(len(points))
    first[edges[~kept, 0]] = edges[same[~kept], 0]
    new = (row < 0) & (first == np.arange(len(first)))
    vertex = np.where(row < 0, (len(mesh.points) + np.cumsum(new) - 1)[first], row)
    half, source = np.concatenate(halves), source[kept]
    degrees = np.concatenate([np.diff(part.ends) for part in cut])
    owner, ends = np.concatenate([part.owner for part in cut])[kept], np.concatenate([[0], np.cumsum(degrees)])
    made = torch.cat([mesh.points, points[torch.from_numpy(new)]]), vertex[edges[kept]], owner
    from_row = np.concatenate([mesh.from_row, np.full(int(new.sum()), -1)])
    from_edge = np.where(source >= 0, mesh.from_edge[source], -1)
    return Mesh(*made, 2 * edge[half >> 1] + (half & 1), ends, from_row, from_edge), wrong


def _begins(arrays: Sequence[Any]) -> list[int]:
    """Where each array begins in the concatenation of all."""
    return [0, *itertools.accumulate(map(len, arrays))][:-1]


def _same_pieces(mesh: Mesh, cut: Sequence[Mesh], source: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, int]:
    """For each edge of all parts the first that is the same one, and the number of pieces that only one part has.
    ``source`` is the edge of the whole that each is a piece of, -1 for those made since, ``start`` where it begins.
    """
    part, at = np.repeat(np.arange(len(cut)), [len(item.edges) for item in cut]), np.flatnonzero(source >= 0)
    low, high = np.empty((2, len(mesh.edges)), dtype=np.int64)
    low[source[at[::-1]]], high[source[at]] = part[at[::-1]], part[at]  # the first and the last part that has it
    at = at[(low != high)[source[at]]]
    away = np.abs(start[at] - mesh.points.numpy()[mesh.edges[source[at], 0]]).sum(axis=1)
    at = at[np.lexsort((away, part[at], source[at]))]
    run = np.flatnonzero((np.diff(source[at], prepend=-1) != 0) | (np.diff(part[at], prepend=-1) != 0))
    place = within(np.diff(np.append(run, len(at))))  # of each piece along its edge
    key = source[at] * (place.max(initial=0) + 1) + place
    _, first, inverse, times = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    same = np.arange(len(source))
    same[at] = at[first[inverse]]
    return same, int((times != 2).sum())  # an edge has a cell on either side


class Plane:
    """A convex polygon partitioned into convex cells; row i of every tensor belongs to vertex i. Edge e has the
    half-edges 2e, from its first to its second vertex, and 2e + 1; cells are to the left of theirs. The step ``last``
    is only counted, none for -1; the history has the cells after each step that cut.
    """

    infinite = None

    def __init__(self, mesh: Mesh, budget: Budget, last: int = -1) -> None:
        self.mesh, self.budget, self.last = mesh, budget, last
        self.count = self.before = len(mesh.ends) - 1
        self.history: dict[int, int] = {}
        self.decisions = Decisions()

    @staticmethod
    def start(corners: Tensor, budget: Budget, last: int = -1) -> "Plane":
        number = np.arange(len(corners))
        edges, none = np.stack([number, (number + 1) % len(corners)], axis=1), np.full((len(corners), 3), -1)
        mesh = Mesh(corners, edges, none, 2 * number, np.array([0, len(corners)]), none[:, 0], none[:, 0])
        return Plane(mesh, budget, last)

    def cut(
        self,
        values: Tensor,
        tolerance: Tensor,
        step: int,
        owners: Tensor,
        columns: slice | None = None,
        decisions: Decisions | None = None,
    ) -> Cut | None:
        """Cut every cell along every column, or some, that takes both signs in it; as for lines."""
        chosen, decisions = columns or slice(0, values.shape[1]), decisions or self.decisions
        undecided = decisions.undecided
        found = Arrangement(self.mesh, values[:, chosen], tolerance[0, chosen], decisions)
        if not len(found.cell) and not len(found.u):
            return None
        if found.cross():  # in one point: one half of the columns, then the other, which finds a vertex there
            middle, again = (chosen.start + chosen.stop) // 2, Decisions()
            first = self.cut(values, tolerance, step, owners, slice(chosen.start, middle), again)
            if first is not None:
                values = first.take(values)
            second = self.cut(values, tolerance, step, owners, slice(middle, chosen.stop), again)
            decisions.undecided = undecided + again.undecided
            both = second if first is None else first if second is None else first.then(second)
            return None if both is None else replace(both, flips=None)  # each half of the columns knows its own
        self._note(step, self.count + len(found.cell) + len(found.one))
        if step == self.last and columns is None:  # only counted
            return None
        cut = found.rebuild(owners.numpy(), chosen.start)
        self._note(step, len(self.mesh.ends) - 1)
        return cut

    def _note(self, step: int, count: int) -> None:
        self.budget.add(count - self.count, step)
        self.count = self.history[step] = count

    def drop_ties(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """After a maximum: join the cells on both sides of edges where another entry tops the tie."""
        mesh = self.mesh
        if not len(members := np.flatnonzero(mesh.owner[:, 0] == number)):
            return None
        cell_of = np.empty(2 * len(mesh.edges), dtype=np.int64)
        cell_of[mesh.half] = np.repeat(np.arange(len(mesh.ends) - 1), np.diff(mesh.ends))
        left, right = (self._inside(values, cell_of[2 * members + side]) for side in (0, 1))
        window, entry = step.parted(left, right, limit)
        mesh.owner[members, 1:] = torch.stack([entry, window], 1).numpy()
        if bool((window >= 0).all()):
            return None
        false = np.zeros(len(mesh.edges), dtype=bool)
        false[members[window.numpy() < 0]] = True
        kept = self._remove(false)
        self._note(number, len(mesh.ends) - 1)
        return kept

    def _inside(self, values: Tensor, cells: np.ndarray) -> Tensor:
        """Values in the middle of some cells: the means over their vertices."""
        mesh = self.mesh
        degree = np.diff(mesh.ends)[cells]
        which = np.repeat(np.arange(len(cells)), degree)
        half = mesh.half[np.repeat(mesh.ends[cells], degree) + within(degree)]
        total = values.new_zeros(len(cells), *values.shape[1:])
        total.index_add_(0, torch.from_numpy(which), values[torch.from_numpy(mesh.edges[half >> 1, half & 1])])
        return total / torch.from_numpy(degree).view(-1, *[1] * (values.dim() - 1))

    def _remove(self, false: np.ndarray) -> Tensor:
        """Take out edges; the vertices that are left, by which all tensors are to be indexed."""
        mesh = self.mesh
        following = np.empty(2 * len(mesh.edges), dtype=np.int64)
        following[mesh.half] = mesh.half[next_around(mesh.ends)]
        real = mesh.half[~false[mesh.half >> 1]]
        target = following[real]
        while (wrong := false[target >> 1]).any():
            target[wrong] = following[target[wrong] ^ 1]
        local = np.full(2 * len(mesh.edges), -1)
        local[real] = np.arange(len(real))
        elements, mesh.ends = cycles(local[target])
        number, half = np.cumsum(~false) - 1, real[elements]
        mesh.half = 2 * number[half >> 1] + (half & 1)
        mesh.edges, mesh.owner, mesh.from_edge = mesh.edges[~false], mesh.owner[~false], mesh.from_edge[~false]
        rows, mesh.edges = used(mesh.edges, len(mesh.points))
        kept = torch.from_numpy(rows)
        mesh.points, mesh.from_row = mesh.points[kept], mesh.from_row[rows]
        return kept

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


class Arrangement:
    """The chords along which the columns of some values, (rows, columns), cut the cells of a mesh. A column is zero
    below its limit. New points are numbered behind the rows: those on edges edge by edge and from the first vertex of
    each, then the crossings of chords. Places run along all cells' borders, new points too.
    """

    def __init__(self, mesh: Mesh, values: Tensor, limit: Tensor, decisions: Decisions) -> None:
        self.mesh, self.values, self.limit, self.decisions = mesh, values.numpy(), limit.numpy(), decisions
        self.rows, self.columns = values.shape
        positive, zero = decisions.signs(values, limit[None], None)
        self.positive, self.zero = positive.numpy(), None if zero is None else zero.numpy()
        self._meet_edges()
        self.cell_of = np.repeat(np.arange(len(mesh.ends) - 1), np.diff(mesh.ends))  # of each half-edge
        self.length = self.per_edge[mesh.half >> 1] + 1  # into how many pieces it is cut
        self.place = np.cumsum(self.length) - self.length  # of its start
        self._draw_chords()

    def _meet_edges(self) -> None:
        """Cut the edges where a column has opposite signs at their ends."""
        first, second = self.mesh.edges.T
        change = self.positive[first] ^ self.positive[second]
        if self.zero is not None:
            change &= ~(self.zero[first] | self.zero[second])
        edge, column = np.divmod(np.flatnonzero(change), self.columns)
        u, v = self.mesh.edges[edge].T
        at_u, at_v = self.values[u, column], self.values[v, column]
        share = at_u / (at_u - at_v)
        order = np.lexsort((share, edge))
        edge, column, u, v, share, at_u, at_v = (item[order] for item in (edge, column, u, v, share, at_u, at_v))
        # two crossings are one point if either column is zero, by its limit, at the other's crossing
        rise, limit = at_v - at_u, self.limit[column]
        same = np.abs(at_u[1:] + share[:-1] * rise[1:]) <= limit[1:]
        same |= np.abs(at_u[:-1] + share[1:] * rise[:-1]) <= limit[:-1]
        same &= edge[1:] == edge[:-1]
        fresh = np.ones(len(edge), dtype=bool)
        fresh[1:] = ~same
        self.edge, self.column, self.point = edge, column, np.cumsum(fresh) - 1  # of each crossing of an edge
        self.on_edges, self.edge_of_point = (column, at_u, at_v), edge[fresh]
        self.u, self.v, self.share = u[fresh], v[fresh], share[fresh]  # of each point: its edge, and where on it
        self.per_edge = np.bincount(edge[fresh], minlength=len(self.mesh.edges))
        self.first = np.cumsum(self.per_edge) - self.per_edge  # the first point of each edge

    def _draw_chords(self) -> None:
        """The chord of every column in every cell where it takes both signs, sorted by cell and first end."""
        half, met = self.mesh.half, np.bincount(self.edge, minlength=len(self.mesh.edges))
        cut = np.flatnonzero(met[half >> 1])
        count = met[half[cut] >> 1]
        at = np.repeat(cut, count)
        edge = half[at] >> 1
        index = (np.cumsum(met) - met)[edge] + within(count)
        point = self.point[index]
        rank = point - self.first[edge]
        offset = np.where(half[at] & 1, self.per_edge[edge] - rank, rank + 1)
        ends = self.cell_of[at] * self.columns + self.column[index], self.place[at] + offset, self.rows + point
        key, where, vertex = ends if self.zero is None else self._through_vertices(*ends)
        order = np.argsort(key, kind="stable")  # quick, as cells come in order
        key, where, vertex = key[order], where[order], vertex[order]
        if len(key) % 2 or (key[::2] != key[1::2]).any():  # rounding hides where a column runs
            _, back, count = np.unique(key, return_inverse=True, return_counts=True)
            self.decisions.undecided += int((count != 2).sum())
            key, where, vertex = (item[count[back] == 2] for item in (key, where, vertex))
        backward = where[::2] > where[1::2]
        low, high = np.sort(where.reshape(-1, 2), axis=1).T
        start, stop = np.where(backward, (vertex[1::2], vertex[::2]), (vertex[::2], vertex[1::2]))
        cell, column = np.divmod(key[::2], self.columns)
        order = np.lexsort((column, high, low))  # places grow from cell to cell, so this sorts by cell too
        keep = np.ones(len(order), dtype=bool)
        keep[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
        self.whole = self.zero is None and bool(keep.all())  # two columns on one chord have one of them
        order = order[keep]
        # places and vertices of its ends, low < high, and the column that is zero on it
        chords = (item[order] for item in (cell, low, high, start, stop, column))
        self.cell, self.low, self.high, self.start, self.stop, self.zero_on = chords

    def _through_vertices(self, key: np.ndarray, where: np.ndarray, vertex: np.ndarray) -> tuple[np.ndarray, ...]:
        """Add the ends of chords that start in a vertex where their column is zero."""
        assert self.zero is not None
        start, touched = self.mesh.edges[self.mesh.half >> 1, self.mesh.half & 1], np.asarray(self.zero.any(axis=1))
        extra: list[tuple[int, int, int]] = []
        dropped: list[int] = []
        for cell in np.unique(self.cell_of[touched[start]]).tolist():
            at = np.arange(self.mesh.ends[cell], self.mesh.ends[cell + 1])
            positive, zero = self.positive[start[at]], self.zero[start[at]]
            signed = positive.astype(int) - ~(positive | zero)
            for column in np.flatnonzero(positive.any(axis=0) & (signed < 0).any(axis=0) & zero.any(axis=0)).tolist():
                sign, number = signed[:, column], cell * self.columns + column
                nonzero = np.flatnonzero(sign)
                last = nonzero[sign[nonzero] != np.roll(sign[nonzero], -1)]  # before each change of sign
                if len(last) != 2:
                    self.decisions.undecided += 1
                    dropped.append(number)
                    continue
                following = (last + 1) % len(sign)
                extra += [(number, self.place[i], start[i]) for i in at[following[sign[following] == 0]]]
        good = ~np.isin(key, dropped)
        ends = zip((key, where, vertex), np.array(extra, dtype=np.int64).reshape(-1, 3).T, strict=True)
        return tuple(np.concatenate([old[good], new]) for old, new in ends)

    def cross(self) -> bool:
        """Find all crossings of chords; whether three chords meet in one point anywhere, by the limit."""
        count = len(self.cell)
        later = np.searchsorted(self.cell, self.cell, side="right") - np.arange(count) - 1
        one = np.repeat(np.arange(count), later)
        two = one + 1 + within(later)
        low = self.low[two]
        cross = (low < self.high[one]) & (self.high[two] > self.high[one]) & (low > self.low[one])
        one, two = one[cross], two[cross]
        chord, column = np.concatenate([one, two]), self.zero_on[np.concatenate([two, one])]
        start, stop = self._at(self.start[chord], column), self._at(self.stop[chord], column)
        a, total = np.abs(start), np.abs(start) + np.abs(stop)
        share = np.where(total > 0, a / np.where(total > 0, total, 1.0), 0.5)
        self.one, self.two, self.share_of_one = one, two, share[: len(one)]  # two chords, the first starts first
        order = np.lexsort((share, chord))
        self.along = np.bincount(chord, minlength=count)  # crossings of each chord
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = within(self.along)
        self.rank_on_one, self.rank_on_two = rank[: len(one)], rank[len(one) :]
        # along every chord, neighbouring crossings: is either other chord's column zero at the other crossing?
        chord, share, start, rise = chord[order], share[order], start[order], (stop - start)[order]
        self.on_chords = column[order], start, stop[order]
        limit = self.limit[column[order]]
        close = np.abs(start[1:] + share[:-1] * rise[1:]) <= limit[1:]
        close |= np.abs(start[:-1] + share[1:] * rise[:-1]) <= limit[:-1]
        return bool((close & (chord[1:] == chord[:-1])).any())

    def _at(self, vertex: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Values at vertices, old ones and points on edges."""
        new = vertex >= self.rows
        result = self.values[np.where(new, 0, vertex), column]
        point, c = vertex[new] - self.rows, column[new]
        u, v, share = self.u[point], self.v[point], self.share[point]
        result[new] = (1 - share) * self.values[u, c] + share * self.values[v, c]
        return np.asarray(result)

    def rebuild(self, owners: np.ndarray, column: int) -> Cut:
        """Make the chords edges of the mesh; ``column`` is the number, among the owners, of the first one looked at."""
        mesh, old = self.mesh, len(self.mesh.edges)
        touched = np.zeros(len(mesh.ends) - 1, dtype=bool)
        touched[self.cell] = True
        touched[self.cell_of[self.length > 1]] = True
        # the pieces of split edges: the first keeps the edge's number, piece i + 1 of an edge starts at its point i
        at = np.flatnonzero(touched[self.cell_of])
        count = self.length[at]
        inside, half = within(count), np.repeat(mesh.half[at], count)
        edge, back = half >> 1, half & 1
        index = np.where(back == 0, inside, self.per_edge[edge] - inside)
        piece = np.where(index == 0, edge, old + self.first[edge] + index - 1)
        self.local = np.full(int(self.length.sum()), -1)  # the piece of a border that starts at each place
        self.local[np.repeat(self.place[at], count) + inside] = np.arange(len(half))
        degrees = np.bincount(self.cell_of[at], weights=count).astype(np.int64)
        self._split_edges()

        chord, start, stop = self._chord_pieces()
        elements, bounds = cycles(self._successors(np.concatenate([[0], np.cumsum(degrees[degrees > 0])]), len(chord)))
        ids = 2 * (len(mesh.edges) + np.arange(len(chord)))
        halves = np.concatenate([2 * piece + back, ids, ids + 1])[elements]
        mesh.add_edges(np.stack([start, stop], axis=1), owners[column + self.zero_on[chord]], np.full(len(chord), -1))
        mesh.half = np.concatenate([mesh.half[~touched[self.cell_of]], halves])
        mesh.ends = np.concatenate([[0], np.cumsum(np.append(np.diff(mesh.ends)[~touched], np.diff(bounds)))])

        one, met = self.one, np.bincount(self.edge, minlength=old)
        on_edges = _flips(*self.on_edges, met, self.edge_of_point) if self.whole else None
        on_chords = _flips(*self.on_chords, self.along, one) if self.whole else None
        cut = _between(self.u, self.v, self.share, on_edges)
        cut = cut.then(_between(self.start[one], self.stop[one], self.share_of_one, on_chords))
        mesh.points = cut.take(mesh.points)
        mesh.from_row = np.concatenate([mesh.from_row, np.full(len(cut), -1)])
        return cut

    def _split_edges(self) -> None:
        """New pieces of edges are numbered like the points they start from, after all edges there were."""
        mesh, number = self.mesh, self.rows + np.arange(len(self.u))
        split, following = np.flatnonzero(self.per_edge), number + 1
        following[self.first[split] + self.per_edge[split] - 1] = mesh.edges[split, 1]
        mesh.edges[split, 1] = self.rows + self.first[split]
        source = np.repeat(split, self.per_edge[split])
        mesh.add_edges(np.stack([number, following], axis=1), mesh.owner[source], mesh.from_edge[source])

    def _chord_pieces(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The chords cut at their crossings: the chord of each piece, and its vertices."""
        chord = np.repeat(np.arange(len(self.cell)), self.along + 1)  # one piece more than crossings
        self.piece = np.cumsum(self.along + 1) - self.along - 1  # the first of each chord
        start, stop = np.empty((2, len(chord)), dtype=np.int64)
        start[self.piece], stop[self.piece + self.along] = self.start, self.stop
        number = self.rows + len(self.u) + np.arange(len(self.one))
        for crossed, rank in ((self.one, self.rank_on_one), (self.two, self.rank_on_two)):
            inner = self.piece[crossed] + rank
            stop[inner], start[inner + 1] = number, number
        return chord, start, stop

    def _successors(self, ends: np.ndarray, inner: int) -> np.ndarray:
        """For each half-edge the next one around its cell: border pieces, then chord pieces forward, then backward. The
        border pieces of each cell end as ``ends`` says, and there are so many inner pieces. At a border point the walk
        round a cell turns into the chord that is leftmost; at a crossing it turns left.
        """
        border = int(ends[-1])
        forward, backward = border, border + inner
        following = np.empty(border + 2 * inner, dtype=np.int64)
        following[:border] = next_around(ends)
        previous = np.empty(border, dtype=np.int64)
        previous[following[:border]] = np.arange(border)
        length = np.repeat(np.diff(ends), np.diff(ends))

        last = self.piece + self.along
        low, high = self.local[self.low], self.local[self.high]
        point, other = np.concatenate([low, high]), np.concatenate([high, low])
        out = np.concatenate([forward + self.piece, backward + last])
        into = np.concatenate([backward + self.piece, forward + last])
        order = np.argsort(point * (length.max() + 1) - (other - point) % length[point], kind="stable")
        point, out, into = point[order], out[order], into[order]
        fresh = np.diff(point, prepend=-1) != 0
        following[previous[point[fresh]]] = out[fresh]
        again = np.flatnonzero(~fresh)
        following[into[again - 1]] = out[again]
        final = np.append(fresh[1:], True)[: len(point)]
        following[into[final]] = point[final]

        one, two = self.piece[self.one] + self.rank_on_one, self.piece[self.two] + self.rank_on_two
        following[forward + one] = forward + two + 1
        following[forward + two] = backward + one
        following[backward + one + 1] = backward + two
        following[backward + two + 1] = forward + one + 1
        return following


def _between(u: np.ndarray, v: np.ndarray, share: np.ndarray, flips: Flips | None) -> Cut:
    """Points between u and v, at a share of the way."""
    first, last, near = (torch.from_numpy(np.ascontiguousarray(a)) for a in (u, v, share))
    return Cut(first, last, 1 - near, near, flips=flips)


def _flips(column: np.ndarray, at_u: np.ndarray, at_v: np.ndarray, count: np.ndarray, segment: np.ndarray) -> Flips:
    """What passes zero on segments, so many on each; ``segment`` is that of each new point."""
    first = np.cumsum(count) - count
    return Flips(*map(torch.from_numpy, (column, np.abs(at_u), np.abs(at_v), first[segment], count[segment])))


def cycles(following: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cycles of a permutation: elements cycle by cycle, and where each starts, with the end."""
    head, ahead = np.arange(len(following)), following
    while ((first := np.minimum(head, head[ahead])) != head).any():  # of twice as many elements a round
        head, ahead = first, ahead[ahead]
    current, degree = np.unique(head, return_counts=True)  # the first element of each cycle, and how many it has
    ends, elements = np.concatenate([[0], np.cumsum(degree)]), np.empty_like(following)
    active, step = np.arange(len(degree)), 0
    while len(active):  # walk along all cycles at once, one step a round
        elements[ends[active] + step] = current
        step += 1
        going = degree[active] > step
        active, current = active[going], following[current[going]]
    return elements, ends
