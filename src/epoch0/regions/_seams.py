"""A plane partition in parts that are cut one after another, and the whole put together again without a seam."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass
class Mesh:
    """Vertices, edges and cells of a partition, or of a part of one.

    Attributes:
        points: coordinates of the vertices, (vertices, 2).
        edges: (edges, 2).
        owner: step, element and face that made each edge, (edges, 3); -1 on the window's border.
        half: half-edges of all cells, cell by cell.
        ends: where each cell starts in ``half``, and the end.
        from_row: for each vertex its number in the whole this is a part of, -1 for those made since.
        from_edge: for each edge the edge of the whole that it is a piece of, -1 for those made since.
    """

    points: Tensor
    edges: np.ndarray
    owner: np.ndarray
    half: np.ndarray
    ends: np.ndarray
    from_row: np.ndarray
    from_edge: np.ndarray


def parts(mesh: Mesh, count: int) -> list[Mesh]:
    """Strips of about equally many cells, across the longer side; a strip of a strip is thus a block."""
    cells = len(mesh.ends) - 1
    degree = np.diff(mesh.ends)
    corner = mesh.edges[mesh.half[mesh.ends[:-1]] >> 1, mesh.half[mesh.ends[:-1]] & 1]
    points = mesh.points.numpy()
    along = int(np.ptp(points[:, 1]) > np.ptp(points[:, 0]))
    order = np.argsort(points[corner, along], kind="stable")
    found = []
    for mine in np.array_split(order, min(count, cells)):
        size = degree[mine]
        ends = np.concatenate([[0], np.cumsum(size)])
        half = mesh.half[np.repeat(mesh.ends[mine] - ends[:-1], size) + np.arange(ends[-1])]
        edges, local = np.unique(half >> 1, return_inverse=True)
        rows, vertex = np.unique(mesh.edges[edges], return_inverse=True)
        found.append(Mesh(
            mesh.points[torch.from_numpy(rows)], vertex.reshape(-1, 2), mesh.owner[edges], 2 * local + (half & 1), ends,
            rows, edges,
        ))  # fmt: skip
    return found


def joined(mesh: Mesh, cut: Sequence[Mesh]) -> tuple[Mesh, int]:
    """The whole again after its parts were cut, and the number of edges on which two parts do not agree.

    An edge between two parts was cut in both at the same points; the points of the first part stay.

    Args:
        mesh: the whole before.
        cut: its parts, cut.
    """
    rows, wrong = len(mesh.points), 0
    first, count = np.full(len(mesh.edges), -1), np.zeros(len(mesh.edges), dtype=np.int64)
    points, edges, owners, halves, degrees, origins = [mesh.points], [], [], [], [], []
    start_of = np.zeros(0, dtype=np.int64)  # of each edge of the whole, its first vertex
    for part in cut:
        at = np.flatnonzero(part.from_edge >= 0)
        source = part.from_edge[at]
        corner = mesh.points[torch.from_numpy(mesh.edges[source, 0])].numpy()
        away = np.abs(part.points.numpy()[part.edges[at, 0]] - corner).sum(axis=1)
        order = np.lexsort((away, source))
        at, source = at[order], source[order]
        pieces = np.bincount(source, minlength=len(count))
        begin = np.cumsum(pieces) - pieces
        rank = np.arange(len(at)) - begin[source]
        fresh = count[source] == 0
        differ = ~fresh & (pieces[source] != count[source])
        wrong += len(np.unique(source[differ]))
        fresh |= differ

        edge_map = np.full(len(part.edges), -1)
        known = len(start_of)
        edge_map[at[fresh]] = known + np.arange(fresh.sum())
        edge_map[at[~fresh]] = first[source[~fresh]] + rank[~fresh]
        inner = np.flatnonzero(part.from_edge < 0)
        edge_map[inner] = known + fresh.sum() + np.arange(len(inner))

        vertex_map = part.from_row.copy()
        old = at[~fresh & (rank > 0)]
        vertex_map[part.edges[old, 0]] = start_of[edge_map[old]]
        new = np.flatnonzero(vertex_map < 0)
        vertex_map[new] = rows + np.arange(len(new))
        rows += len(new)

        added = np.concatenate([at[fresh], inner])
        mine = vertex_map[part.edges[added]]
        starts = fresh & (rank == 0)
        first[source[starts]] = edge_map[at[starts]]
        count[source[starts]] = pieces[source[starts]]
        start_of = np.concatenate([start_of, mine[:, 0]])
        points.append(part.points[torch.from_numpy(new)])
        edges.append(mine)
        owners.append(part.owner[added])
        origins.append(part.from_edge[added])
        halves.append(2 * edge_map[part.half >> 1] + (part.half & 1))
        degrees.append(np.diff(part.ends))
    origin = np.concatenate(origins)
    whole = Mesh(
        torch.cat(points), np.concatenate(edges), np.concatenate(owners), np.concatenate(halves),
        np.concatenate([[0], np.cumsum(np.concatenate(degrees))]),
        np.concatenate([mesh.from_row, np.full(rows - len(mesh.points), -1)]),
        np.where(origin >= 0, mesh.from_edge[origin], -1),
    )  # fmt: skip
    return whole, wrong
