"""What pictures of tables share: points with errors, curves, bands, one line for each value of a column, heat maps."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.papers.sweep import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # matplotlib is loaded when something is drawn
    Axes = Figure = Any


def points(axes: Axes, table: Table, x: str, y: str, index: int, label: str, scale: float = 1.0, **more: Any) -> None:
    """Means of a column, times ``scale``, with error bars of two standard errors."""
    values, errors = scale * table.column(y), scale * table.column(f"{y}_error")
    plots.points(axes, table.column(x).tolist(), values.tolist(), errors.tolist(), index, label, **more)


def curve(axes: Axes, table: Table, x: str, y: str, index: int, label: str = "", **more: Any) -> None:
    """A computed column as a line."""
    plots.curve(axes, table.column(x).tolist(), table.column(y).tolist(), index, label, **more)


def band(axes: Axes, table: Table, x: str, low: str, high: str, label: str, **more: Any) -> None:
    """What lies between two computed columns, in grey."""
    options: dict[str, Any] = {"color": "#cccccc", "edgecolor": "#aaaaaa", "linewidth": 0.6, "zorder": 1.0, **more}
    axes.fill_between(*table.of(x, low, high), label=label, **options)


def lines(
    axes: Axes, table: Table, x: str, y: str, by: str, label: str | Callable[[Any], str] = "{:g}",
    bounds: Sequence[str] = (), scale: float = 1.0, **more: Any,
) -> None:  # fmt: skip
    """One line of means with error bars for each value of a column, and computed bounds dashed in its colour."""
    for index, (value, rows) in enumerate(table.by(by)):
        told = label.format(value) if isinstance(label, str) else label(value)
        points(axes, rows, x, y, index, told, scale, **{"linestyle": "-", "linewidth": 1.0, **more})
        for bound in bounds:
            curve(axes, rows, x, bound, index, linestyle="--", linewidth=0.9)


def ticks(axes: Axes, values: Sequence[Any], axis: str = "x", scale: str | None = None) -> None:
    """Exactly these ticks, perhaps on a logarithmic axis."""
    if scale:
        axes.set(**{f"{axis}scale": scale})
    getattr(axes, f"set_{axis}ticks")(list(values), [f"{one:g}" for one in values])
    axes.minorticks_off()


def heat(
    axes: Axes, values: NDArray[np.float64], x: Sequence[str], y: Sequence[str], low: float, high: float,
    text: str = "{:.0f}",
) -> Any:  # fmt: skip
    """A heat map, shape (y, x), with its numbers in the cells; returns the image, for a colour bar."""
    image = axes.imshow(values, origin="lower", aspect="auto", cmap="cividis", vmin=low, vmax=high)
    axes.grid(visible=False)
    axes.set_xticks(range(len(x)), list(x))
    axes.set_yticks(range(len(y)), list(y))
    for (row, column), value in np.ndenumerate(values):
        colour = "black" if value > low + 0.55 * (high - low) else "white"  # black on light, white on dark
        axes.text(column, row, text.format(value), ha="center", va="center", color=colour, fontsize=9)
    return image
