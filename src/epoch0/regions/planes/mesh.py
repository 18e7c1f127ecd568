"""Vertices, edges and cells of a plane partition: cut in parts, put together again, freed of false corners."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass
class Mesh:
    """Vertices, edges and cells of a partition, or of a part of one."""

    points: Tensor  # coordinates of the vertices, (vertices, 2)
    edges: np.ndarray  # (edges, 2)
    owner: np.ndarray  # step, element and face that made each edge, (edges, 3); -1 on the window's border
    half: np.ndarray  # half-edges of all cells, cell by cell
    ends: np.ndarray  # where each cell starts in ``half``, and the end
    from_row: np.ndarray  # of each vertex, its number in the whole this is a part of, -1 for those made since
    from_edge: np.ndarray  # of each edge, the edge of the whole that it is a piece of, -1 for those made since


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
        half = mesh.half[np.repeat(mesh.ends[mine] - ends[:-1], size) + np.arange(ends[-1])]
        edges, edge = _used(half >> 1, len(mesh.edges))
        rows, vertex = _used(mesh.edges[edges], len(mesh.points))
        points_here = mesh.points.index_select(0, torch.from_numpy(rows))
        found.append(Mesh(points_here, vertex, mesh.owner[edges], 2 * edge + (half & 1), ends, rows, edges))
    return found


def _used(numbers: np.ndarray, below: int) -> tuple[np.ndarray, np.ndarray]:
    """The different ones of some numbers in order, and the place of each number among them."""
    mark = np.zeros(below, dtype=bool)
    mark[numbers] = True
    return np.flatnonzero(mark), (np.cumsum(mark) - 1)[numbers]


def joined(mesh: Mesh, cut: Sequence[Mesh]) -> tuple[Mesh, int]:
    """The whole again after its parts were cut, and the number of edges on which two parts do not agree.

    An edge between two parts was cut in both at the same points; the points of the first part stay.
    """
    seams = _Seams(mesh, cut)
    rows, known = len(mesh.points), 0
    points, edges, owners, halves, degrees, origins = [mesh.points], [], [], [], [], []
    for part in cut:
        old, edge_map, again, vertex = seams.match(part)
        added = np.ones(len(part.edges), dtype=bool)
        added[old] = False
        edge_number = known + np.cumsum(added) - 1
        edge_number[old] = edge_map
        vertex_number = part.from_row.copy()
        vertex_number[again] = vertex
        new = np.flatnonzero(vertex_number < 0)
        vertex_number[new] = rows + np.arange(len(new))
        seams.note(part, edge_number, vertex_number)
        rows += len(new)
        known += int(added.sum())
        points.append(part.points.index_select(0, torch.from_numpy(new)))
        edges.append(vertex_number[part.edges[added]])
        owners.append(part.owner[added])
        origins.append(part.from_edge[added])
        halves.append(2 * edge_number[part.half >> 1] + (part.half & 1))
        degrees.append(np.diff(part.ends))
    origin = np.concatenate(origins)
    whole = Mesh(
        torch.cat(points), np.concatenate(edges), np.concatenate(owners), np.concatenate(halves),
        np.concatenate([[0], np.cumsum(np.concatenate(degrees))]),
        np.concatenate([mesh.from_row, np.full(rows - len(mesh.points), -1)]),
        np.where(origin >= 0, mesh.from_edge[origin], -1),
    )  # fmt: skip
    return whole, seams.wrong


class _Seams:
    """The edges of a whole that are in two parts, and their pieces in the part that came first."""

    def __init__(self, mesh: Mesh, cut: Sequence[Mesh]) -> None:
        uses = np.zeros(len(mesh.edges) + 1, dtype=np.int8)  # the last for edges that are of no edge of the whole
        for part in cut:
            mine = np.zeros(len(uses), dtype=bool)
            mine[part.from_edge] = True
            uses += mine
        self.shared = uses > 1
        self.shared[-1] = False
        self.corner = mesh.points.numpy()[mesh.edges[:, 0]]
        self.first = np.full(len(mesh.edges), -1)  # of each shared edge, its first piece in the lists
        self.count = np.zeros(len(mesh.edges), dtype=np.int64)
        self.edge, self.vertex = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self.wrong = 0
        self.fresh: tuple[np.ndarray, np.ndarray] = self.edge, self.edge

    def match(self, part: Mesh) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Pieces that are there already with their numbers in the whole, and the vertices on them with theirs."""
        at = np.flatnonzero(self.shared[part.from_edge])
        source = part.from_edge[at]
        away = np.abs(part.points.numpy()[part.edges[at, 0]] - self.corner[source]).sum(axis=1)
        order = np.lexsort((away, source))
        at, source = at[order], source[order]
        pieces = np.bincount(source, minlength=len(self.count))
        rank = np.arange(len(at)) - (np.cumsum(pieces) - pieces)[source]
        there = self.count[source] > 0
        differ = there & (pieces[source] != self.count[source])
        self.wrong += len(np.unique(source[differ]))
        there &= ~differ
        self.fresh = at[~there], source[~there]
        old, listed = at[there], (self.first[source] + rank)[there]
        inner = rank[there] > 0
        return old, self.edge[listed], part.edges[old[inner], 0], self.vertex[listed[inner]]

    def note(self, part: Mesh, edge_number: np.ndarray, vertex_number: np.ndarray) -> None:
        """Remember the pieces that came with the part matched last."""
        at, source = self.fresh
        begin = np.flatnonzero(np.diff(source, prepend=-1))
        self.first[source[begin]] = len(self.edge) + begin
        self.count[source[begin]] = np.diff(np.append(begin, len(source)))
        self.edge = np.concatenate([self.edge, edge_number[at]])
        self.vertex = np.concatenate([self.vertex, vertex_number[part.edges[at, 0]]])


_BEND = 1e-9  # of the mesh's width: a vertex farther from the line between its neighbours is a corner


def straightened(mesh: Mesh, corners: int) -> Mesh:
    """The mesh without vertices at which two edges of one step meet in a straight line, and nothing else does.

    So many of its first vertices are the window's corners, which stay.
    """
    points = mesh.points.numpy()
    removed = np.bincount(mesh.edges.ravel(), minlength=len(points)) == 2
    removed[:corners] = False
    number = np.flatnonzero(removed)
    if not len(number):
        return mesh
    flat = mesh.edges.ravel()
    at = np.flatnonzero(removed[flat])  # edge e has the ends 2 e and 2 e + 1
    ends = at[np.argsort(flat[at], kind="stable")].reshape(-1, 2)
    others = points[flat[ends ^ 1]]
    along, aside = others[:, 1] - others[:, 0], points[number] - others[:, 0]
    away = np.abs(along[:, 0] * aside[:, 1] - along[:, 1] * aside[:, 0])
    straight = away <= _BEND * float(np.ptp(points, axis=0).max()) * np.linalg.norm(along, axis=1)
    first, second = ends.T >> 1
    straight &= mesh.owner[first, 0] == mesh.owner[second, 0]
    removed[number[~straight]] = False
    return _without(mesh, removed, first[straight], second[straight])


def _without(mesh: Mesh, removed: np.ndarray, first: np.ndarray, second: np.ndarray) -> Mesh:
    """Take out vertices, each between a first and a second edge that become one."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    count = len(mesh.edges)
    graph = coo_matrix((np.ones(len(first), dtype=np.int8), (first, second)), shape=(count, count))
    _, label = connected_components(graph, directed=False)
    start = mesh.edges[mesh.half >> 1, mesh.half & 1]
    kept = ~removed[start]
    ends = np.concatenate([[0], np.cumsum(kept)])[mesh.ends]
    start, half = start[kept], mesh.half[kept]
    after = np.arange(1, len(start) + 1)
    after[ends[1:] - 1] = ends[:-1]
    _, at, merged = np.unique(label[half >> 1], return_index=True, return_inverse=True)
    edges = np.stack([start[at], start[after[at]]], axis=1)
    back = start != edges[merged, 0]
    stay = np.flatnonzero(~removed)
    return replace(
        mesh, points=mesh.points[torch.from_numpy(stay)], edges=(np.cumsum(~removed) - 1)[edges],
        owner=mesh.owner[half[at] >> 1], half=2 * merged + back, ends=ends, from_row=mesh.from_row[stay],
        from_edge=mesh.from_edge[half[at] >> 1],
    )  # fmt: skip
