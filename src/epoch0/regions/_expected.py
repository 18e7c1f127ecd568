"""About how many cells a window will have, from a few segments in it: said before a long walk begins."""

import math

import torch

from epoch0.regions._cut_lines import cut_lines
from epoch0.regions._steps import Program
from epoch0.regions._windows import Window
from epoch0.seeds import generator

_SEGMENTS = 12


def expected_cells(program: Program, window: Window, memory: float) -> float:
    """An estimate of the number of cells, within a factor of two or so where boundaries run in all directions.

    >>> expected_cells(program, window, 2e9)                 # a window of 262,431 cells
    256000.0

    Boundaries that random segments meet p times a unit of length have length pi p / 2 a unit of area. If they ran in
    independent directions, they would cross one another pi p^2 / 4 times a unit of area; and a window with x crossings
    and b ends of boundaries on its border has 1 + x + b / 2 cells.

    Args:
        program: the network.
        window: where.
        memory: bytes for the walk along the segments.

    Source: Santalo 1976, Integral Geometry and Geometric Probability, sections 3.2 and 4.3, and Euler's relation.
    """
    weights = -torch.rand(2 * _SEGMENTS, len(window.polygon), generator=generator(0), dtype=torch.float64).log()
    ends = (weights / weights.sum(dim=1, keepdim=True)) @ window.polygon
    ends = ends.view(_SEGMENTS, 2, 2)
    length = float((ends[:, 1] - ends[:, 0]).norm(dim=1).sum())
    found = cut_lines(program, torch.stack([window.points(pair) for pair in ends]), "segment", memory=memory)
    met = sum(line.count - 1 for line in found) / length
    perimeter = float((window.polygon.roll(-1, 0) - window.polygon).norm(dim=1).sum())
    return 1.0 + math.pi / 4 * met * met * window.area + 0.5 * met * perimeter
