"""Pictures of plane partitions: colours that stay with a pattern, boundaries by layer (Hanin-Rolnick Figure 1)."""

from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0 import plots
from epoch0.arguments import checked
from epoch0.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(partition: Any, axes: Any = None, *, fill: bool = True, boundaries: bool = True) -> "Figure":
    """Draw the cells of a PlanePartition as its ``plot`` says."""
    from matplotlib.collections import LineCollection, PolyCollection

    p = partition
    picture, axes = plots.figure(6.0, 5.6) if axes is None else (axes.figure, axes)
    if fill:
        corners = np.split(p.vertices[p.cell_vertices], p.cell_ends[1:-1])
        colours = pattern_colours(p.patterns)
        axes.add_collection(
            PolyCollection(corners, facecolors=colours, edgecolors=colours, linewidths=0.2, rasterized=True)
        )
    if boundaries:
        width = float(np.clip(40.0 / max(1, p.count) ** 0.5, 0.15, 1.0))
        for layer, name in enumerate(p.layers):
            mine = p.owner_layer == layer
            if mine.any():
                lines = p.vertices[p.edges[mine]]
                colour = plots.COLOURS[layer % len(plots.COLOURS)]
                axes.add_collection(LineCollection(lines, colors=colour, linewidths=width, rasterized=p.count > 20_000))
                axes.plot([], [], color=colour, label=f"{name} ({len(np.unique(p.owner_neuron[mine]))} neurons)")
    low, high = p.window.polygon.min(dim=0).values.numpy(), p.window.polygon.max(dim=0).values.numpy()
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xlabel="along the first axis",
             ylabel="along the second axis", title=f"{p.count:,} activation regions")  # fmt: skip
    axes.grid(False)
    if boundaries and p.layers:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False)
    return picture


@checked
def pattern_colours(patterns: np.ndarray) -> np.ndarray:
    """A light colour for each pattern that depends on its bits alone.

    >>> p = regions.on_plane(net, regions.through(*images[:3]))
    >>> p.patterns.shape, pattern_colours(p.patterns).shape
    ((258, 8), (258, 3))

    Each byte of the pattern adds its own multiple to a sum, and the sum's bits choose hue, strength and brightness, so
    a cell keeps its colour between training steps as long as its pattern survives.

    Packed bits of shape (patterns, bytes) become red, green and blue between 0 and 1, shape (patterns, 3).

    Raises:
        InputError: if the patterns are no table of whole numbers.

    Source: pictures as in Hanin and Rolnick 2019, Figures 1 and 8; the rule for the colours is ours.
    """
    if patterns.ndim != 2 or patterns.dtype.kind not in "ui":
        raise InputError(
            f"patterns are {patterns.dtype} of shape {patterns.shape}; give packed bits of shape (patterns, bytes), "
            "such as the attribute patterns of a partition."
        )
    from matplotlib.colors import hsv_to_rgb

    weights = np.random.Generator(np.random.PCG64(0)).integers(1, 2**63, patterns.shape[1], dtype=np.uint64)
    mixed = np.empty(len(patterns), dtype=np.uint64)
    for start in range(0, len(patterns), 1 << 14):
        part = patterns[start : start + (1 << 14)].astype(np.uint64) + np.uint64(1)
        mixed[start : start + (1 << 14)] = (part * (weights | np.uint64(1))).sum(axis=1, dtype=np.uint64)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    parts = [((mixed >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(float) / 65535 for shift in (0, 16, 32)]
    return np.asarray(hsv_to_rgb(np.stack([parts[0], 0.12 + 0.33 * parts[1], 0.84 + 0.16 * parts[2]], axis=1)))
