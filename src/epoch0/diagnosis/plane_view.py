"""One plane through three examples: its cells as plain arrays, and their picture (Hanin-Rolnick Figure 1)."""

import base64
import math
from dataclasses import dataclass
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

    def to_dict(self) -> dict[str, Any]:
        """Its numbers."""
        return {"count": self.count, "share": self.share, "side": self.side}

    def png(self) -> str:
        """The picture as a PNG file, base64: a pattern has the same colour in every picture of the same network."""
        from matplotlib.collections import LineCollection, PolyCollection

        from epoch0 import plots
        from epoch0.regions.colours import pattern_colours

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
        low, high = self.corners.min(axis=0), self.corners.max(axis=0)
        inside = ((self.examples >= low) & (self.examples <= high)).all(axis=1)
        axes.plot(*self.examples[inside].T, "o", color="black", markersize=5, markerfacecolor="white")
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.grid(False)
        return base64.b64encode(plots.png(picture, dpi=130)).decode("ascii")


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
    )  # fmt: skip
