"""New cells from chords: which half-edge follows which."""

from dataclasses import dataclass

import numpy as np

from epoch0.regions.planes.chords import Chords, Crossings


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
