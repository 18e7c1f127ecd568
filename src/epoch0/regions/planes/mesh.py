"""Vertices, edges and cells of a plane partition: cut in parts, put together again."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


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
    """For each count the numbers from 0 on, so many, one after another."""
    return np.asarray(np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))


def next_around(ends: np.ndarray) -> np.ndarray:
    """For each place in a list of cells the next one around its cell; each begins and ends as ``ends`` says."""
    after: np.ndarray = np.arange(1, ends[-1] + 1)
    after[ends[1:] - 1] = ends[:-1]
    return after


def components(pairs: np.ndarray, count: int) -> np.ndarray:
    """The number of the component in which each of so many nodes is, joined by pairs, (pairs, 2)."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(pairs), dtype=np.int8), pairs.T), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1])


def parts_of(mesh: Mesh, count: int) -> list[Mesh]:
    """Strips of about equally many cells, across the longer side; a strip of a strip is thus a block."""
    cells = len(mesh.ends) - 1
    count = min(count, cells)
    degree = np.diff(mesh.ends)
    first = mesh.half[mesh.ends[:-1]]
    points = mesh.points.numpy()
    along = int(np.ptp(points[:, 1]) > np.ptp(points[:, 0]))
    borders = np.linspace(0, cells, count + 1).astype(np.int64)
    place = points[mesh.edges[first >> 1, first & 1], along]
    order = np.argpartition(place, borders[1:-1]) if count > 1 else np.arange(cells)
    found = []
    for low, high in itertools.pairwise(borders.tolist()):
        mine = np.sort(order[low:high])
        size = degree[mine]
        ends = np.concatenate([[0], np.cumsum(size)])
        half = mesh.half[np.repeat(mesh.ends[mine], size) + within(size)]
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
    """The whole again after its parts were cut, and the number of pieces on which two parts do not agree.

    An edge between two parts was cut in both at the same points; the points of the first part stay.
    """
    points, row = torch.cat([part.points for part in cut]), np.concatenate([part.from_row for part in cut])
    edges = np.concatenate([part.edges + at for part, at in zip(cut, _begins([p.points for p in cut]), strict=True)])
    halves = [part.half + 2 * at for part, at in zip(cut, _begins([p.edges for p in cut]), strict=True)]
    source = np.concatenate([part.from_edge for part in cut])
    same, wrong = _same_pieces(mesh, cut, source, points.numpy()[edges[:, 0]])
    kept = same == np.arange(len(same))
    edge = (np.cumsum(kept) - 1)[same]
    first = np.arange(len(points))
    first[edges[~kept, 0]] = edges[same[~kept], 0]
    new = (row < 0) & (first == np.arange(len(first)))
    vertex = np.where(row < 0, (len(mesh.points) + np.cumsum(new) - 1)[first], row)
    half, source = np.concatenate(halves), source[kept]
    degrees = np.concatenate([np.diff(part.ends) for part in cut])
    return Mesh(
        torch.cat([mesh.points, points[torch.from_numpy(new)]]), vertex[edges[kept]],
        np.concatenate([part.owner for part in cut])[kept], 2 * edge[half >> 1] + (half & 1),
        np.concatenate([[0], np.cumsum(degrees)]), np.concatenate([mesh.from_row, np.full(int(new.sum()), -1)]),
        np.where(source >= 0, mesh.from_edge[source], -1),
    ), wrong  # fmt: skip


def _begins(arrays: Sequence[Any]) -> list[int]:
    """Where each array begins in the concatenation of all."""
    return [0, *itertools.accumulate(map(len, arrays))][:-1]


def _same_pieces(mesh: Mesh, cut: Sequence[Mesh], source: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, int]:
    """For each edge of all parts the first that is the same one, and the number of pieces that only one part has.

    ``source`` is the edge of the whole that each is a piece of, -1 for those made since, ``start`` where it begins.
    """
    part = np.repeat(np.arange(len(cut)), [len(one.edges) for one in cut])
    at = np.flatnonzero(source >= 0)
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
