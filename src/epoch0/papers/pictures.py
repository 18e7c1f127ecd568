"""What pictures of tables share: points with errors, curves, bands, one line for each value of a column."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from epoch0 import plots
from epoch0.papers.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # matplotlib is loaded when something is drawn
    Axes = Figure = Any


def points(
    axes: Axes, table: Table, x: str | plots.Numbers, y: str, index: int, label: str, scale: float = 1.0, **more: Any
) -> None:
    """Means of a column, times ``scale``, with error bars of two standard errors; ``x`` is a column, or places."""
    places = table.column(x) if isinstance(x, str) else x
    plots.points(axes, places, scale * table.column(y), scale * table.column(f"{y}_error"), index, label, **more)


def curve(axes: Axes, table: Table, x: str, y: str, index: int, label: str = "", **more: Any) -> None:
    """A computed column as a line."""
    plots.curve(axes, table.column(x), table.column(y), index, label, **more)


def band(axes: Axes, table: Table, x: str, low: str, high: str, label: str, **more: Any) -> None:
    """What lies between two computed columns, in grey."""
    options: dict[str, Any] = {"color": "#cccccc", "edgecolor": "#aaaaaa", "linewidth": 0.6, "zorder": 1.0, **more}
    axes.fill_between(*table.of(x, low, high), label=label, **options)


def lines(
    axes: Axes, table: Table, x: str, y: str, by: str, label: str | Callable[[Any], str] = "{:g}", **more: Any
) -> None:
    """One line of means with error bars for each value of a column."""
    for index, (value, rows) in enumerate(table.by(by)):
        told = label.format(value) if isinstance(label, str) else label(value)
        points(axes, rows, x, y, index, told, **{"linestyle": "-", "linewidth": 1.0, **more})


def ticks(axes: Axes, values: Sequence[Any], axis: str = "x", scale: str | None = None) -> None:
    """Exactly these ticks, perhaps on a logarithmic axis."""
    if scale:
        axes.set(**{f"{axis}scale": scale})
    getattr(axes, f"set_{axis}ticks")(list(values), [f"{one:g}" for one in values])
    axes.minorticks_off()


def epochs(axes: Axes, last: float) -> None:
    """Epochs from 0 on, logarithmic from 1 on."""
    axes.set_xscale("symlog", linthresh=1.0)
    ticks(axes, [0, 1, *[tick for tick in (2, 5, 10, 20, 50) if tick < last], last])
    axes.set(xlabel="epoch (logarithmic from 1 on)", xlim=(-0.05, None))
