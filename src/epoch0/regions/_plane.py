"""A polygon cut into cells by neurons: vertices, edges and cells, knowing nothing of the network behind the values."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from epoch0.regions import _concurrent
from epoch0.regions._chords import Chords, Crossings, EdgePoints, chords, crossings, edge_points
from epoch0.regions._cut import Cut
from epoch0.regions._rebuild import Pieces, chord_pieces, cycles, successors
from epoch0.regions._signs import read
from epoch0.regions._sizes import Decisions
from epoch0.regions._steps import Largest


class Plane:
    """A convex polygon partitioned into convex cells; row i of every tensor belongs to vertex i.

    Edge e has the half-edges 2e, from its first to its second vertex, and 2e + 1; cells are to the left of theirs.

    Attributes:
        points: coordinates of the vertices in the plane, (vertices, 2).
        edges: (edges, 2).
        step, element, face: what made each edge; -1 on the window's border.
        half: half-edges of all cells, counter-clockwise, cell by cell.
        ends: where each cell starts in ``half``, and the end.
        count: number of cells, also where the last cut was only counted.
        last: number of the step that is only counted, -1 for none.
        history: cells after each step that cut.
    """

    unbounded = False

    def __init__(self, corners: Tensor, last: int = -1) -> None:
        count = len(corners)
        self.points = corners
        self.edges = np.stack([np.arange(count), (np.arange(count) + 1) % count], axis=1)
        self.step, self.element, self.face = (np.full(count, -1) for _ in range(3))
        self.half, self.ends = 2 * np.arange(count), np.array([0, count])
        self.count, self.last = 1, last
        self.history: dict[int, int] = {}
        self.decisions = Decisions()
        self.away = torch.zeros(0, dtype=torch.int64)

    def cut(self, values: Tensor, tolerance: Tensor, step: int, width: int, face: int | None = None) -> Cut | None:
        """Cut every cell along every column that takes both signs in it; as for lines."""
        signs = read(values, tolerance[0], self.decisions)
        limit, numbers = tolerance[0].numpy(), values.numpy()
        points = edge_points(self.edges, signs, numbers, limit)
        cell_of = np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))
        length = points.per_edge[self.half >> 1] + 1
        place = np.cumsum(length) - length
        found = chords(
            self.half, self.ends, cell_of, self.edges, signs, points, place,
            len(numbers), numbers.shape[1], self.decisions,
        )  # fmt: skip
        if not len(found) and not len(points.u):
            return None
        crossing, concurrent = crossings(found, numbers, points, limit)
        if not len(concurrent):
            self.count += len(found) + len(crossing)
            self.history[step] = self.count
            if step == self.last:
                return None
        keep = ~np.isin(found.cell, concurrent) if len(concurrent) else None
        slow = None if keep is None else _take(found, ~keep)
        if keep is not None:
            found, crossing = _without(found, crossing, keep)
        return self._rebuild(numbers, limit, points, found, crossing, slow, cell_of, length, place, step, width, face)

    def _rebuild(
        self, values: np.ndarray, limit: np.ndarray, points: EdgePoints, found: Chords, crossing: Crossings,
        slow: Chords | None, cell_of: np.ndarray, length: np.ndarray, place: np.ndarray, step: int, width: int,
        face: int | None,
    ) -> Cut:  # fmt: skip
        rows, old = len(values), len(self.edges)
        touched = np.zeros(len(self.ends) - 1, dtype=bool)
        touched[found.cell] = True
        touched[cell_of[length > 1]] = True
        slow_cells = np.unique(slow.cell) if slow is not None else np.zeros(0, dtype=np.int64)
        touched[slow_cells] = True
        # the pieces of split edges: the first keeps the edge's number, piece i + 1 of an edge starts at its point i
        at = np.flatnonzero(touched[cell_of])
        count = length[at]
        start = np.cumsum(count) - count
        within = np.arange(count.sum()) - np.repeat(start, count)
        half = np.repeat(self.half[at], count)
        edge, back = half >> 1, half & 1
        index = np.where(back == 0, within, points.per_edge[edge] - within)
        piece = np.where(index == 0, edge, old + points.first[edge] + index - 1)
        local = np.full(int(length.sum()), -1)
        local[np.repeat(place[at], count) + within] = np.arange(len(half))
        borders = Pieces(2 * piece + back, np.repeat(cell_of[at], count), local)
        self._split_edges(points, rows)

        fast = borders
        if len(slow_cells):
            mask = ~np.isin(borders.cell, slow_cells)
            moved = np.where(mask, np.cumsum(mask) - 1, -1)
            shifted = np.where(local >= 0, moved[local], -1)
            fast = Pieces(borders.half[mask], borders.cell[mask], shifted)
        new = len(self.edges)
        inner = chord_pieces(found, crossing, rows + len(points.u))
        following = successors(fast, found, crossing, inner)
        ids = 2 * (new + np.arange(len(inner.chord)))
        elements, ends = cycles(following)
        halves = np.concatenate([fast.half, ids, ids + 1])[elements]
        self._add_edges(np.stack([inner.start, inner.stop], axis=1), found.column[inner.chord], step, width, face)

        kept = ~touched[cell_of]
        self.half = np.concatenate([self.half[kept], halves])
        degrees = np.concatenate([np.diff(self.ends)[~touched], np.diff(ends)])
        second = [
            found.start[crossing.first], found.stop[crossing.first], crossing.share_first,
            np.concatenate([np.arange(len(crossing))] * 2),
            np.concatenate([found.column[crossing.first], found.column[crossing.second]]),
        ]  # fmt: skip
        if slow is not None:
            degrees = self._slowly(slow, values, limit, points, borders, second, degrees, rows, step, width, face)
        self.ends = np.concatenate([[0], np.cumsum(degrees)])
        self.count = self.history[step] = len(degrees)
        u, v, share, row, column = second
        first = rows + len(points.u)
        more = _cut(u, v, share, row + first, column)
        cut = replace(_cut(points.u, points.v, points.share, points.point + rows, points.column), second=more)
        self.points = torch.cat([self.points, cut.rows(self.points)])
        return cut

    def _split_edges(self, points: EdgePoints, rows: int) -> None:
        """Pieces of split edges: numbered like the points they start from, after all edges there were."""
        split = np.flatnonzero(points.per_edge)
        number = np.arange(len(points.u))
        following = rows + number + 1
        last = points.first[split] + points.per_edge[split] - 1
        following[last] = self.edges[split, 1]
        source = np.repeat(split, points.per_edge[split])
        self.edges[split, 1] = rows + points.first[split]
        self.edges = np.concatenate([self.edges, np.stack([rows + number, following], axis=1)])
        for name in ("step", "element", "face"):
            owner = getattr(self, name)
            setattr(self, name, np.concatenate([owner, owner[source]]))

    def _add_edges(self, edges: np.ndarray, column: np.ndarray, step: int, width: int, face: int | None) -> None:
        self.edges = np.concatenate([self.edges, edges])
        self.step = np.concatenate([self.step, np.full(len(edges), step)])
        self.element = np.concatenate([self.element, column % width])
        self.face = np.concatenate([self.face, column // width if face is None else np.full(len(edges), face)])

    def _slowly(
        self, slow: Chords, values: np.ndarray, limit: np.ndarray, points: EdgePoints, borders: Pieces,
        second: list[np.ndarray], degrees: np.ndarray, rows: int, step: int, width: int, face: int | None,
    ) -> np.ndarray:  # fmt: skip
        """Cut the cells where three chords meet one by one; adds to the half-edges, edges and combinations of rows."""
        halves: list[int] = []
        sizes: list[int] = []
        for cell in np.unique(slow.cell):
            mine = _take(slow, slow.cell == cell)
            pieces = np.flatnonzero(borders.cell == cell)
            half = borders.half[pieces]
            border = self.edges[half >> 1, half & 1].tolist()
            ends = [(int(borders.local[a] - pieces[0]), int(borders.local[b] - pieces[0]))
                    for a, b in zip(mine.low, mine.high, strict=True)]  # fmt: skip
            new = rows + len(points.u) + len(second[0])
            around = _values(border, mine.column, values, points)
            parts = _concurrent.split(border, ends, around, limit[mine.column], new)
            self.decisions.undecided += parts.failed
            on = [c[0] for c in parts.crossings]
            base = len(second[0])
            second[0] = np.concatenate([second[0], mine.start[on]])
            second[1] = np.concatenate([second[1], mine.stop[on]])
            second[2] = np.concatenate([second[2], [c[1] for c in parts.crossings]])
            through = [(base + i, chord) for i, c in enumerate(parts.crossings) for chord in c[2]]
            second[3] = np.concatenate([second[3], np.array([i for i, _ in through], dtype=np.int64)])
            second[4] = np.concatenate([second[4], mine.column[[chord for _, chord in through]]])
            known = {(a, b): int(h) for a, b, h in zip(border, border[1:] + border[:1], half, strict=True)}
            made: list[tuple[int, int]] = []
            owners: list[int] = []
            for polygon in parts.polygons:
                for a, b in zip(polygon, polygon[1:] + polygon[:1], strict=True):
                    if (a, b) not in known:
                        number = 2 * (len(self.edges) + len(made))
                        known[a, b], known[b, a] = number, number + 1
                        made.append((a, b))
                        owners.append(parts.owners[min(a, b), max(a, b)])
                    halves.append(known[a, b])
                sizes.append(len(polygon))
            if made:
                self._add_edges(np.array(made), mine.column[owners], step, width, face)
        self.half = np.concatenate([self.half, np.array(halves, dtype=np.int64)])
        return np.concatenate([degrees, np.array(sizes, dtype=np.int64)])

    def settle(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """After a maximum: join the cells on both sides of edges where another entry tops the tie."""
        mine = np.flatnonzero(self.step == number)
        if not len(mine):
            return None
        ends = torch.from_numpy(self.edges[mine])
        window, entry = step.ties(0.5 * (values[ends[:, 0]] + values[ends[:, 1]]), limit)
        self.element[mine], self.face[mine] = window.numpy(), entry.numpy()
        if bool((window >= 0).all()):
            return None
        false = np.zeros(len(self.edges), dtype=bool)
        false[mine[window.numpy() < 0]] = True
        kept = self._join(false)
        self.history[number] = self.count
        return kept

    def split(self, parts: int) -> list[tuple["Plane", Tensor]]:
        return []

    def join(self, parts: Sequence["Plane"]) -> "Plane":
        return self

    def _join(self, false: np.ndarray) -> Tensor:
        """Take out edges; the vertices that are left, by which all tensors are to be indexed."""
        degree = np.diff(self.ends)
        following = np.empty(2 * len(self.edges), dtype=np.int64)
        after = np.arange(1, len(self.half) + 1)
        after[self.ends[1:] - 1] = self.ends[:-1]
        following[self.half] = self.half[after]
        real = self.half[~false[self.half >> 1]]
        target = following[real]
        while (wrong := false[target >> 1]).any():
            target[wrong] = following[target[wrong] ^ 1]
        local = np.full(2 * len(self.edges), -1)
        local[real] = np.arange(len(real))
        elements, self.ends = cycles(local[target])
        number = np.cumsum(~false) - 1
        half = real[elements]
        self.half = 2 * number[half >> 1] + (half & 1)
        self.edges = self.edges[~false]
        for name in ("step", "element", "face"):
            setattr(self, name, getattr(self, name)[~false])
        used = np.zeros(len(self.points), dtype=bool)
        used[self.edges] = True
        self.edges = (np.cumsum(used) - 1)[self.edges]
        self.count = len(self.ends) - 1
        kept = torch.from_numpy(np.flatnonzero(used))
        self.points = self.points[kept]
        assert degree.sum() >= len(self.half)
        return kept


def _cut(u: np.ndarray, v: np.ndarray, share: np.ndarray, row: np.ndarray, column: np.ndarray) -> Cut:
    """Points between u and v, at a share of the way."""
    first, last, near, at, on = (torch.from_numpy(np.ascontiguousarray(a)) for a in (u, v, share, row, column))
    return Cut(first, last, 1 - near, near, at, on)


def _take(found: Chords, mask: np.ndarray) -> Chords:
    return Chords(*(getattr(found, n)[mask] for n in ("cell", "low", "high", "column", "start", "stop")))


def _without(found: Chords, crossing: Crossings, keep: np.ndarray) -> tuple[Chords, Crossings]:
    """Only the chords to keep and their crossings."""
    number, good = np.cumsum(keep) - 1, keep[crossing.first]
    left = Crossings(
        number[crossing.first[good]], number[crossing.second[good]], crossing.share_first[good],
        crossing.share_second[good],
    )  # fmt: skip
    return _take(found, keep), left


def _values(border: list[int], columns: np.ndarray, values: np.ndarray, points: EdgePoints) -> np.ndarray:
    """Values of some columns at the vertices round a cell, some of which are new points on edges."""
    vertex = np.array(border)
    new = vertex >= len(values)
    result = values[np.where(new, 0, vertex)][:, columns]
    point = vertex[new] - len(values)
    share = points.share[point][:, None]
    result[new] = (1 - share) * values[points.u[point]][:, columns] + share * values[points.v[point]][:, columns]
    return result
