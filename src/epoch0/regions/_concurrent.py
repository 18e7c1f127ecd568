"""A cell in which three or more chords meet in one point: cut by one chord after another, by signs with a tolerance."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Split:
    """What became of a cell.

    Attributes:
        polygons: vertices of each part, counter-clockwise; from ``new`` on they are crossings made here.
        crossings: for each of them a chord it is on, where on it, and all chords through it.
        owners: (smaller vertex, larger vertex) -> chord, for all inner edges.
        failed: chords left out because rounding gave a part more than two changes of sign.
    """

    polygons: list[list[int]]
    crossings: list[tuple[int, float, list[int]]] = field(default_factory=list)
    owners: dict[tuple[int, int], int] = field(default_factory=dict)
    failed: int = 0


def split(border: list[int], ends: list[tuple[int, int]], values: np.ndarray, tolerance: np.ndarray, new: int) -> Split:
    """Cut one convex cell by chords, all between points of its border.

    Args:
        border: vertices round the cell, counter-clockwise.
        ends: for each chord the places of its two ends in ``border``.
        values: of every chord's column at every border vertex, shape (len(border), chords).
        tolerance: for every chord.
        new: number of the first new vertex.
    """
    values = values.copy()
    for chord, (low, high) in enumerate(ends):  # the ends decide where the signs change, rounding does not
        inside = np.zeros(len(border), dtype=bool)
        inside[low + 1 : high] = True
        sign = 1.0 if values[inside, chord].sum() >= values[~inside, chord].sum() else -1.0
        values[:, chord] = np.abs(values[:, chord]) * np.where(inside, sign, -sign)
        values[[low, high], chord] = 0.0
    rows = dict(zip(border, values, strict=True))
    result = Split([list(border)])
    for chord, (low, high) in enumerate(ends):
        start, stop = values[low], values[high]
        made: dict[tuple[int, int], int] = {}
        parts: list[list[int]] = []
        for polygon in result.polygons:
            signs = np.sign([rows[vertex][chord] for vertex in polygon])
            if not ((signs > 0).any() and (signs < 0).any()):
                parts.append(polygon)
                continue
            walked: list[int] = []
            for vertex, following in zip(polygon, polygon[1:] + polygon[:1], strict=True):
                walked.append(vertex)
                if rows[vertex][chord] * rows[following][chord] >= 0:
                    continue
                edge = (min(vertex, following), max(vertex, following))
                if edge not in made:
                    owner = result.owners[edge]
                    a, b = abs(start[owner]), abs(stop[owner])
                    share = a / (a + b) if a + b > 0 else 0.5
                    row = (1 - share) * start + share * stop
                    row[np.abs(row) <= tolerance] = 0.0
                    row[[owner, chord]] = 0.0
                    made[edge] = vertex_id = new + len(result.crossings)
                    rows[vertex_id] = row
                    result.crossings.append((chord, share, np.flatnonzero(row == 0).tolist()))
                    for end in edge:
                        result.owners[min(end, vertex_id), max(end, vertex_id)] = owner
                walked.append(made[edge])
            zero = [i for i, vertex in enumerate(walked) if rows[vertex][chord] == 0]
            if len(zero) != 2:
                result.failed += 1
                parts.append(walked)
                continue
            i, k = zero
            parts += [walked[i : k + 1], walked[k:] + walked[: i + 1]]
            result.owners[min(walked[i], walked[k]), max(walked[i], walked[k])] = chord
        result.polygons = parts
    return result
