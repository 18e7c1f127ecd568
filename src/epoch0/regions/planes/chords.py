"""Where neurons cut the cells of a plane: signs at vertices, points on edges, chords, crossings, and the new cells."""

from dataclasses import dataclass

import numpy as np

from epoch0.regions.certificate import Decisions

_BLOCK = 1 << 16  # values looked at together: they stay in the cache


@dataclass(frozen=True)
class Signs:
    """Signs of every column at every row."""

    positive: np.ndarray  # above the tolerance, (rows, columns)
    zero: np.ndarray | None  # counts as zero; None if that is nowhere


def read(values: np.ndarray, limit: np.ndarray, decisions: Decisions) -> Signs:
    """Signs of values (rows, columns) by a limit for every column; the closest decision goes to ``decisions``."""
    rows, columns = values.shape
    positive, zero = values > 0.0, None
    some, scale = max(1, _BLOCK // max(1, columns)), 1.0 / np.maximum(limit, 1e-300)
    for start in range(0, rows, some):
        ratio = np.abs(values[start : start + some]) * scale
        if float(ratio.min(initial=np.inf)) <= 1.0:
            zero = np.zeros_like(positive) if zero is None else zero
            zero[start : start + some] = here = ratio <= 1.0
            decisions.zeros += int(here.sum())
            ratio[here] = np.inf
        decisions.smallest = min(decisions.smallest, float(ratio.min(initial=np.inf)) * decisions.relative)
    return Signs(positive if zero is None else positive & ~zero, zero)


@dataclass(frozen=True)
class EdgePoints:
    """New points on edges; point i of an edge is i-th from its first vertex, points are numbered edge by edge."""

    u: np.ndarray  # vertices of the point's edge
    v: np.ndarray
    share: np.ndarray  # where it lies between them
    per_edge: np.ndarray  # number of points of each edge
    first: np.ndarray  # number of the first point of each edge
    edge: np.ndarray  # each crossing of an edge by a column: the edge, the column, the point
    column: np.ndarray
    point: np.ndarray
    merged: bool  # whether a point has several columns


def _changes(edges: np.ndarray, signs: Signs) -> tuple[np.ndarray, np.ndarray]:
    """Edges and columns with opposite signs at the ends, in order: eight columns at a time, as few edges are cut."""
    bits = np.packbits(signs.positive, axis=1)
    change = bits[edges[:, 0]] ^ bits[edges[:, 1]]
    if signs.zero is not None:
        zero = np.packbits(signs.zero, axis=1)
        change &= ~(zero[edges[:, 0]] | zero[edges[:, 1]])
    place = np.flatnonzero(change.ravel() != 0)
    found = np.flatnonzero(np.unpackbits(change.ravel()[place]).view(bool))
    edge, byte = np.divmod(place[found >> 3], change.shape[1])
    return edge, 8 * byte + (found & 7)


def edge_points(edges: np.ndarray, signs: Signs, values: np.ndarray, tolerance: np.ndarray) -> EdgePoints:
    """Cut the edges where a column has opposite signs at their ends."""
    edge, column = _changes(edges, signs)
    at_u, at_v = values[edges[edge, 0], column], values[edges[edge, 1], column]
    share = at_u / (at_u - at_v)
    order = np.lexsort((share, edge))
    edge, column, share, at_u, at_v = edge[order], column[order], share[order], at_u[order], at_v[order]
    # two crossings are one point if either column is zero, by its tolerance, at the other's crossing
    rise = at_v - at_u
    of_second, of_first = at_u[1:] + share[:-1] * rise[1:], at_u[:-1] + share[1:] * rise[:-1]
    same = (np.abs(of_second) <= tolerance[column[1:]]) | (np.abs(of_first) <= tolerance[column[:-1]])
    same &= edge[1:] == edge[:-1]
    fresh = np.ones(len(edge), dtype=bool)
    fresh[1:] = ~same
    point = np.cumsum(fresh) - 1
    lead = np.flatnonzero(fresh)
    per_edge = np.bincount(edge[lead], minlength=len(edges))
    first = np.cumsum(per_edge) - per_edge
    return EdgePoints(
        edges[edge[lead], 0], edges[edge[lead], 1], share[lead], per_edge, first, edge, column, point, bool(same.any())
    )


@dataclass(frozen=True)
class Chords:
    """Straight cuts across cells, sorted by cell and first end."""

    cell: np.ndarray
    low: np.ndarray  # places of the ends along the borders of all cells, low < high
    high: np.ndarray
    column: np.ndarray  # the column that is zero on it
    start: np.ndarray  # vertices at the ends; behind those there are, new points on edges
    stop: np.ndarray

    def __len__(self) -> int:
        return len(self.cell)


def chords(
    half: np.ndarray, ends: np.ndarray, cell_of: np.ndarray, edges: np.ndarray, signs: Signs, points: EdgePoints,
    place: np.ndarray, rows: int, columns: int, decisions: Decisions,
) -> Chords:  # fmt: skip
    """The chord of every column in every cell where it takes both signs.

    ``half``, ``ends`` and ``edges`` are the mesh's; ``cell_of`` and ``place`` say for each half-edge its cell, and the
    place of its start along the borders, new points counted. There are so many rows (vertices) and columns.
    """
    met = np.bincount(points.edge, minlength=len(edges))
    start = np.cumsum(met) - met
    cut = np.flatnonzero(met[half >> 1])
    edge = half[cut] >> 1
    count = met[edge]
    at, edge = np.repeat(cut, count), np.repeat(edge, count)
    index = np.repeat(start[half[cut] >> 1] - np.cumsum(count) + count, count) + np.arange(len(at))
    point = points.point[index]
    rank = point - points.first[edge]
    offset = np.where(half[at] & 1, points.per_edge[edge] - rank, rank + 1)
    key, where, vertex = cell_of[at] * columns + points.column[index], place[at] + offset, rows + point
    if signs.zero is not None:
        key, where, vertex = _through_vertices(
            half, ends, cell_of, edges, signs, key, where, vertex, place, columns, decisions
        )
    order = np.argsort(key, kind="stable")  # quick, as cells come in order
    key, where, vertex = key[order], where[order], vertex[order]
    if len(key) % 2 or (key[::2] != key[1::2]).any():
        key, where, vertex = _pairs_only(key, where, vertex, decisions)
    first, second = where[::2], where[1::2]
    swap = first > second
    low, high = np.where(swap, second, first), np.where(swap, first, second)
    start, stop = np.where(swap, vertex[1::2], vertex[::2]), np.where(swap, vertex[::2], vertex[1::2])
    cell, column = key[::2] // columns, key[::2] % columns
    if points.merged or signs.zero is not None:
        order = np.lexsort((column, high, low))
        keep = np.ones(len(order), dtype=bool)
        keep[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
        order = order[keep]
    else:
        order = np.argsort(low, kind="stable")  # places grow from cell to cell, so this sorts by cell too
    return Chords(cell[order], low[order], high[order], column[order], start[order], stop[order])


def _pairs_only(
    key: np.ndarray, where: np.ndarray, vertex: np.ndarray, decisions: Decisions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Leave out columns that do not meet a cell's border exactly twice: rounding hides where they run."""
    _, back, count = np.unique(key, return_inverse=True, return_counts=True)
    good = count[back] == 2
    decisions.undecided += int((count != 2).sum())
    return key[good], where[good], vertex[good]


def _through_vertices(
    half: np.ndarray, ends: np.ndarray, cell_of: np.ndarray, edges: np.ndarray, signs: Signs, key: np.ndarray,
    where: np.ndarray, vertex: np.ndarray, place: np.ndarray, columns: int, decisions: Decisions,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Add the ends of chords that start in a vertex where their column is zero."""
    assert signs.zero is not None
    start = edges[half >> 1, half & 1]
    touched = np.asarray(signs.zero.any(axis=1))
    cells = np.unique(cell_of[touched[start]])
    extra: list[tuple[int, int, int]] = []
    dropped: set[int] = set()
    for cell in cells.tolist():
        at = np.arange(ends[cell], ends[cell + 1])
        positive, zero = signs.positive[start[at]], signs.zero[start[at]]
        signed = positive.astype(int) - ~(positive | zero)
        mixed = positive.any(axis=0) & (signed < 0).any(axis=0) & zero.any(axis=0)
        for column in np.flatnonzero(mixed).tolist():
            sign = signed[:, column]
            found = _sign_changes(sign)
            if len(found) != 2:
                decisions.undecided += 1
                dropped.add(cell * columns + column)
                continue
            for local in found:
                if sign[local] == 0:
                    pos = int(at[local])
                    extra.append((cell * columns + column, int(place[pos]), int(start[pos])))
    if dropped:
        good = ~np.isin(key, list(dropped))
        key, where, vertex = key[good], where[good], vertex[good]
    if extra:
        more = np.array(extra, dtype=np.int64)
        key, where, vertex = (np.concatenate([a, more[:, i]]) for i, a in enumerate((key, where, vertex)))
    return key, where, vertex


def _sign_changes(sign: np.ndarray) -> list[int]:
    """Around a cell: the vertex of each change of sign if it has sign zero, else the last vertex before the change."""
    nonzero = np.flatnonzero(sign)
    found = []
    for first, second in zip(nonzero, np.roll(nonzero, -1), strict=True):
        if sign[first] != sign[second]:
            between = (second - first) % len(sign) - 1
            found.append(int((first + 1) % len(sign)) if between else int(first))
    return found


@dataclass(frozen=True)
class Crossings:
    """Pairs of chords that cross inside a cell: the first starts first along the border."""

    first: np.ndarray
    second: np.ndarray
    share: np.ndarray  # where they cross, from the low end of the first
    at_first: np.ndarray  # where the crossing is in ``chord``, once for each of its chords
    at_second: np.ndarray
    chord: np.ndarray  # sorted by chord and place on it

    def __len__(self) -> int:
        return len(self.first)


def crossings(found: Chords, values: np.ndarray, points: EdgePoints, tolerance: np.ndarray) -> tuple[Crossings, bool]:
    """All crossings of chords, and whether three chords meet in one point anywhere, by the tolerance."""
    count = len(found)
    later = np.searchsorted(found.cell, found.cell, side="right") - np.arange(count) - 1
    first = np.repeat(np.arange(count), later)
    second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later)
    low = found.low[second]
    cross = (low < found.high[first]) & (found.high[second] > found.high[first]) & (low > found.low[first])
    first, second = first[cross], second[cross]
    rows = len(values)

    def at(vertex: np.ndarray, column: np.ndarray) -> np.ndarray:
        new = vertex >= rows
        result = values[np.where(new, 0, vertex), column]
        point = vertex[new] - rows
        u, v, c, share = points.u[point], points.v[point], column[new], points.share[point]
        result[new] = (1 - share) * values[u, c] + share * values[v, c]
        return np.asarray(result)

    across_first, across_second = found.column[second], found.column[first]
    start_first, stop_first = at(found.start[first], across_first), at(found.stop[first], across_first)
    start_second, stop_second = at(found.start[second], across_second), at(found.stop[second], across_second)
    share_first, share_second = _share(start_first, stop_first), _share(start_second, stop_second)
    # along every chord, neighbouring crossings: is either other chord's column zero at the other crossing?
    chord, share = np.concatenate([first, second]), np.concatenate([share_first, share_second])
    order = np.lexsort((share, chord))
    chord, share = chord[order], share[order]
    start = np.concatenate([start_first, start_second])[order]
    stop = np.concatenate([stop_first, stop_second])[order]
    column = np.concatenate([across_first, across_second])[order]
    limit = tolerance[column]
    rise = stop - start
    close = np.abs(start[1:] + share[:-1] * rise[1:]) <= limit[1:]
    close |= np.abs(start[:-1] + share[1:] * rise[:-1]) <= limit[:-1]
    close &= chord[1:] == chord[:-1]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    whole = Crossings(first, second, share_first, place[: len(first)], place[len(first) :], chord)
    return whole, bool(close.any())


def _share(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    a, b = np.abs(start), np.abs(stop)
    total = a + b
    return np.where(total > 0, a / np.where(total > 0, total, 1.0), 0.5)


@dataclass(frozen=True)
class Pieces:
    """Pieces of the borders of the cells to be rebuilt, counter-clockwise, cell by cell."""

    half: np.ndarray
    cell: np.ndarray
    local: np.ndarray  # number of the piece that starts at each place along all borders, -1 elsewhere


@dataclass(frozen=True)
class ChordPieces:
    """Chords cut at their crossings."""

    chord: np.ndarray
    start: np.ndarray  # vertices of each piece
    stop: np.ndarray
    first: np.ndarray  # number of the first piece of each chord
    place_first: np.ndarray  # for each crossing, how many come before it on its two chords
    place_second: np.ndarray


def chord_pieces(chords: Chords, crossings: Crossings, vertex: int) -> ChordPieces:
    """Cut the chords at their crossings, whose vertices are numbered from ``vertex`` on."""
    count, total = len(chords), len(crossings)
    along = np.bincount(crossings.chord, minlength=count)
    before = np.cumsum(along) - along
    place = np.arange(2 * total) - before[crossings.chord]
    first = before + np.arange(count)  # a chord has one piece more than crossings
    pieces = total * 2 + count
    start, stop = np.empty(pieces, dtype=np.int64), np.empty(pieces, dtype=np.int64)
    start[first], stop[first + along] = chords.start, chords.stop
    places = place[crossings.at_first], place[crossings.at_second]
    number = vertex + np.arange(total)
    for chord, at in zip((crossings.first, crossings.second), places, strict=True):
        inner = first[chord] + at
        stop[inner], start[inner + 1] = number, number
    return ChordPieces(np.repeat(np.arange(count), along + 1), start, stop, first, *places)


def successors(borders: Pieces, chords: Chords, crossings: Crossings, pieces: ChordPieces) -> np.ndarray:
    """For each half-edge the next one around its cell: border pieces, then chord pieces forward, then backward.

    At a border point the walk round a cell turns into the chord that is leftmost; at a crossing it turns left.
    """
    border, inner = len(borders.half), len(pieces.chord)
    following = np.empty(border + 2 * inner, dtype=np.int64)
    if not border:
        return following
    starts = np.flatnonzero(np.diff(borders.cell, prepend=-1))
    stops = np.append(starts[1:], border) - 1
    following[:border] = np.arange(1, border + 1)
    following[stops] = starts
    previous = np.arange(-1, border - 1)
    previous[starts] = stops
    length = np.repeat(stops - starts + 1, stops - starts + 1)

    forward, backward = border, border + inner
    last = np.append(pieces.first[1:], inner) - 1
    low, high = borders.local[chords.low], borders.local[chords.high]
    point, other = np.concatenate([low, high]), np.concatenate([high, low])
    out = np.concatenate([forward + pieces.first, backward + last])
    into = np.concatenate([backward + pieces.first, forward + last])
    before = (other - point) % length[point]
    order = np.argsort(point * (length.max() + 1) - before, kind="stable")
    point, out, into = point[order], out[order], into[order]
    fresh = np.diff(point, prepend=-1) != 0
    following[previous[point[fresh]]] = out[fresh]
    again = np.flatnonzero(~fresh)
    following[into[again - 1]] = out[again]
    final = np.append(fresh[1:], True)[: len(point)]
    following[into[final]] = point[final]

    one, two = pieces.first[crossings.first] + pieces.place_first, pieces.first[crossings.second] + pieces.place_second
    following[forward + one] = forward + two + 1
    following[forward + two] = backward + one
    following[backward + one + 1] = backward + two
    following[backward + two + 1] = forward + one + 1
    return following


def cycles(following: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cycles of a permutation: elements cycle by cycle, and where each starts, with the end."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    count = len(following)
    graph = csr_matrix((np.ones(count, dtype=np.int8), following, np.arange(count + 1)), shape=(count, count))
    number, label = connected_components(graph, directed=True, connection="strong")
    heads = np.empty(number, dtype=np.int64)  # the first element of each cycle
    heads[label[::-1]] = np.arange(count)[::-1]
    heads.sort()
    # walk along all cycles at once, one step a round
    found: list[tuple[np.ndarray, np.ndarray]] = []
    active, current = np.arange(number), heads
    while len(active):
        found.append((active, current))
        current = following[current]
        going = current != heads[active]
        active, current = active[going], current[going]
    degree = np.zeros(number, dtype=np.int64)
    for active, _ in found:
        degree[active] += 1
    ends = np.concatenate([[0], np.cumsum(degree)])
    elements = np.empty(count, dtype=np.int64)
    for step, (active, current) in enumerate(found):
        elements[ends[active] + step] = current
    return elements, ends
