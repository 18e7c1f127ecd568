"""The picture of trajectory length through training: layers on x, one line a step (Raghu Figures 8, 10 and 18)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTTED = {"pooling": "#666666", "batch norm": "#0072B2", "trajectory regularization": "#D55E00"}
"""Kinds of layers that are marked by a dotted line, and its colour."""


def draw_lengths(
    axes: "Axes", steps: Sequence[int], layers: Sequence[str], kinds: Sequence[str], lengths: Any, errors: Any = None,
    bar: bool = True,
) -> None:  # fmt: skip
    """Draw into axes of a constrained layout: one line a step in the colour of the step, dots at pools and norms.

    >>> from matplotlib.figure import Figure
    >>> axes = Figure(layout="constrained").subplots()
    >>> draw_lengths(axes, [0, 100], ["0", "2"], ["linear", "linear"], np.ones((2, 3)))

    Lengths and their standard errors have the shape (measurements, layers + 1), the input first; a number that is not
    finite or not above 0 is left out.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.ticker import LogFormatter

    values = np.asarray(lengths, dtype=float)
    shown = np.where(np.isfinite(values) & (values > 0), values, np.nan)
    colours = [colormaps["viridis"](at) for at in np.linspace(0, 0.92, max(2, len(steps)))][: len(steps)]
    x = np.arange(values.shape[1])
    for index, colour in enumerate(colours):
        bars = None if errors is None else 2 * np.nan_to_num(np.asarray(errors, dtype=float)[index])
        axes.errorbar(x, shown[index], yerr=bars, color=colour, marker="o", markersize=3, linewidth=1.2, elinewidth=0.7)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.set_xticks(x, ["input", *layers], rotation=90 if len(layers) > 12 else 45, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", labelsize=7.5 if len(layers) > 24 else 8.5)
    axes.set_xlabel("layer")
    axes.set_ylabel("trajectory length")
    for kind, colour in DOTTED.items():
        places = [place for place, other in enumerate(kinds, start=1) if other == kind]
        for number, place in enumerate(places):
            label = kind if number == 0 else None
            axes.axvline(place, color=colour, linestyle=":", linewidth=1.3, zorder=0.8, label=label)
    if any(kind in DOTTED for kind in kinds):
        axes.legend(loc="best", title="layers that are dotted")
    if not bar or not colours:
        return
    edges = np.arange(len(steps) + 1)
    scale = ScalarMappable(BoundaryNorm(edges, len(steps)), ListedColormap(colours))
    side = axes.figure.colorbar(scale, ax=axes, label="training step", pad=0.02)
    some = np.unique(np.linspace(0, len(steps) - 1, min(9, len(steps))).round().astype(int))
    side.set_ticks([place + 0.5 for place in some], labels=[str(steps[place]) for place in some])
    side.minorticks_off()
