"""How Raghu Figures 8, 9, 10 and 18 are drawn: a quantity against the layers of a network, one line a training step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

_ENDS = (0.02, 0.85)
"""Of the colour map: dark is early; its lightest colours cannot be seen on white."""


def through_layers(
    axes: "Axes", steps: Array, mean: Array, error: Array, names: Sequence[str], kinds: Sequence[str]
) -> None:
    """One line a step from dark to light; grey bands behind pools, dotted lines into batch norms as in Figure 10.

    Args:
        axes: where.
        steps: shape (S,).
        mean: shape (S, layers).
        error: standard errors, same shape.
        names: of the layers.
        kinds: of the layers.
    """
    from matplotlib import colormaps

    x = np.arange(1.0, len(names) + 1)
    colours = colormaps["viridis"](np.linspace(*_ENDS, len(steps)))
    normed = [place for place, kind in enumerate(kinds) if kind == "batch norm"]
    for place, step in enumerate(steps):
        beside = 0.06 * (place - (len(steps) - 1) / 2)  # so that bars do not hide each other
        plots.points(
            axes, (x + beside).tolist(), mean[place].tolist(), error[place].tolist(), place, f"{int(step):,}",
            color=colours[place], linestyle="none" if normed else "-", linewidth=1.2, markersize=3.6, capsize=1.5,
        )  # fmt: skip
        if normed:
            for end in range(1, len(names)):
                part = slice(end - 1, end + 1)
                dotted = ":" if end in normed else "-"
                axes.plot(
                    x[part], mean[place, part], dotted, color=colours[place], linewidth=1.6 if end in normed else 1.0
                )
    for place, kind in enumerate(kinds):
        if kind == "pooling":
            axes.axvspan(place + 0.6, place + 1.4, color="#e8e8e8", zorder=0)
    turned = any(len(name) > 2 for name in names)
    axes.set_xticks(x, names, rotation=40 if turned else 0, ha="right" if turned else "center")
    axes.set_xlabel("layer")


def plain_log(axes: "Axes") -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5 of each power of ten."""
    from matplotlib import ticker

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, place: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
