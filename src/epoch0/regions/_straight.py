"""Vertices in the middle of a straight edge, left over where pieces of a maximum were joined, taken out of a mesh."""

from dataclasses import replace

import numpy as np
import torch

from epoch0.regions._seams import Mesh

_BEND = 1e-9  # of the mesh's width: a vertex farther from the line between its neighbours is a corner


def straightened(mesh: Mesh, corners: int) -> Mesh:
    """The mesh without vertices at which two edges of one step meet in a straight line, and nothing else does.

    Args:
        mesh: a whole mesh.
        corners: how many of its first vertices are the window's corners, which stay.
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
