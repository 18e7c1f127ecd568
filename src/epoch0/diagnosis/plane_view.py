"""One plane through three examples: its cells as plain arrays, and their picture (Hanin-Rolnick Figure 1)."""

import base64
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.regions import PlanePartition, on_plane, through

CELLS = 200
"""About how many cells a picture shows: the square through the examples is made smaller until it has no more."""

MOST_CELLS = 1500
"""A picture with more cells is not drawn."""

MEMORY = 2e7
"""Bytes for the cells of a picture: the count stops at 50,000 cells, whatever was expected."""


@dataclass(frozen=True, eq=False)
class PlaneView:
    """The cells of a square in input space.

    Attributes:
        count: activation regions in it.
        share: its side, as a share of that of the square around the circle through the three examples.
        side: its side, in units of the input.
        corners: coordinates of the corners of all cells, one cell after another, (corners, 2).
        ends: where each cell begins in ``corners``, and the end, (count + 1,).
        patterns: which neurons are on in each cell, packed bits, (count, bytes).
        borders: ends of the edges between cells, (edges, 2, 2).
        layer: index of the layer that folds at each of them.
        layers: names of the layers.
        examples: coordinates of the three examples, (3, 2).
        outline: corners of the square, counter-clockwise, (4, 2); cells at its border may reach out of it.
    """

    count: int
    share: float
    side: float
    corners: np.ndarray
    ends: np.ndarray
    patterns: np.ndarray
    borders: np.ndarray
    layer: np.ndarray
    layers: tuple[str, ...]
    examples: np.ndarray
    outline: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Its numbers."""
        return {"count": self.count, "share": self.share, "side": self.side}

    def png(self) -> str:
        """The picture as a PNG file, base64: a pattern has the same colour in every picture of the same network."""
        from matplotlib.collections import LineCollection, PolyCollection

        from epoch0 import plots
        from epoch0.regions import pattern_colours

        picture, axes = plots.figure(4.4, 4.4)
        colours = pattern_colours(self.patterns)
        cells = np.split(self.corners, self.ends[1:-1])
        axes.add_collection(PolyCollection(cells, facecolors=colours, edgecolors=colours, linewidths=0.2))
        width = float(np.clip(20.0 / max(1, self.count) ** 0.5, 0.25, 1.0))
        early, late = np.array([0.0, 0.20, 0.36]), np.array([0.84, 0.37, 0.0])
        for index in range(len(self.layers)):
            mine = self.borders[self.layer == index]
            share = index / max(1, len(self.layers) - 1)
            axes.add_collection(LineCollection(list(mine), colors=[(1 - share) * early + share * late],
                                               linewidths=width))  # fmt: skip
        low, high = self.outline.min(axis=0), self.outline.max(axis=0)
        inside = ((self.examples >= low) & (self.examples <= high)).all(axis=1)
        axes.plot(*self.examples[inside].T, "o", color="black", markersize=5, markerfacecolor="white")
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.grid(False)
        return base64.b64encode(plots.png(picture, dpi=130)).decode("ascii")

    def middle(self, share: float) -> "PlaneView":
        """The middle of the square, that part of its side: the cells that reach into it.

        Args:
            share: in (0, 1].
        """
        centre = self.outline.mean(axis=0)
        outline = centre + share * (self.outline - centre)
        inside = np.flatnonzero(_reach_into(self.corners, self.ends, outline))
        cells = [self.corners[self.ends[i] : self.ends[i + 1]] for i in inside]
        ends = np.concatenate([[0], np.cumsum([len(cell) for cell in cells])])
        return replace(
            self, count=len(cells), share=share * self.share, side=share * self.side, corners=np.concatenate(cells),
            ends=ends, patterns=self.patterns[inside], outline=outline,
        )  # fmt: skip


def same_square(one: PlaneView, other: PlaneView) -> tuple[PlaneView, PlaneView] | None:
    """Two views of one square, the smaller of the two; None if they are not around the same examples."""
    small = min(one.side, other.side)
    first, second = (view.examples - view.outline.mean(axis=0) for view in (one, other))
    if not np.allclose(first, second, rtol=0.0, atol=1e-9 * float(np.abs(first).max())):
        return None
    shown = [view.middle(small / view.side) if view.side > small else view for view in (one, other)]
    return shown[0], shown[1]


def _reach_into(corners: np.ndarray, ends: np.ndarray, outline: np.ndarray) -> np.ndarray:
    """Which convex cells share more than a border with a convex outline: no side of either keeps them apart.

    Args:
        corners: of all cells, counter-clockwise, (corners, 2).
        ends: where each cell begins in ``corners``, and the end, (cells + 1,).
        outline: corners, counter-clockwise, (corners, 2).
    """
    cell = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    following = np.arange(1, len(corners) + 1)
    following[ends[1:] - 1] = ends[:-1]
    apart = np.zeros(len(ends) - 1, dtype=bool)
    beyond = _left_of(corners, corners[following], outline).max(axis=1) <= 0
    np.logical_or.at(apart, cell, beyond)
    sides = _left_of(outline, np.roll(outline, -1, axis=0), corners)  # (sides, corners)
    return ~apart & ~(np.maximum.reduceat(sides, ends[:-1], axis=1) <= 0).any(axis=0)


def _left_of(start: np.ndarray, end: np.ndarray, points: np.ndarray) -> np.ndarray:
    """How far to the left of each edge the points are, times its length, (edges, points); rounding counts as zero."""
    along, away = (end - start)[:, None], points[None] - start[:, None]
    turn = along[..., 0] * away[..., 1] - along[..., 1] * away[..., 0]
    size = float(np.abs(points).max() + np.abs(start).max())
    return np.asarray(np.where(np.abs(turn) > 1e-12 * size * size, turn, 0.0))


def look(model: nn.Module, three: Tensor, density: float) -> tuple[PlaneView | None, str]:
    """The square through three examples, made smaller where it would have too many cells; or why there is none.

    Where a line meets ``density`` borders in a unit of length and they lie in all directions alike, a square of side s
    has about pi / 4 (density s)^2 cells; it is counted again after it was cut.

    Args:
        model: the network.
        three: examples, (3, *shape), float64; fewer give no plane.
        density: break points on a line in a unit of length.
    """
    if len(three) < 3:
        return None, "a plane needs three examples"
    try:
        full = 0.5 * float((through(*three)[1] - through(*three)[0]).norm())
        share = min(1.0, math.sqrt(CELLS * 4 / math.pi) / max(density * 2 * full, 1e-300))
        for _ in range(2):
            found = on_plane(model, through(*three, margin=share), memory=MEMORY)
            if found.count <= MOST_CELLS:
                return _view(found, three, share, 2 * full * share), ""
            share *= math.sqrt(CELLS / found.count)
    except InputError as problem:
        return None, str(problem)
    return None, f"too many cells to draw: {found.count:,}"


def _view(found: PlanePartition, three: Tensor, share: float, side: float) -> PlaneView:
    axes = found.window.axes.reshape(2, -1)
    examples = (three.cpu() - found.window.origin).reshape(3, -1) @ axes.T
    inner = found.owner_layer >= 0
    with torch.no_grad():
        patterns = found.patterns
    return PlaneView(
        found.count, share, side, found.vertices[found.cell_vertices], found.cell_ends, patterns,
        found.vertices[found.edges[inner]], found.owner_layer[inner], found.layers, examples.numpy(),
        found.window.polygon.cpu().numpy(),
    )  # fmt: skip
