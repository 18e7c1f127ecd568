"""The common style of all pictures: colours and markers that everyone can distinguish, labelled axes, error bars."""

import functools
import io
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0.results import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # matplotlib is loaded when something is drawn
    Axes = Figure = Any

Numbers = Sequence[float] | NDArray[Any]
Mosaic = Sequence[Sequence[str]] | None
Rows = Any  # a table: ``column(name)`` is an array, ``by(name)`` gives each value of a column with its rows

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A5195")
"""Okabe and Ito's colours for all kinds of colour vision, those with enough contrast on white first."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
BOUND = "#666666"  # the grey of bounds


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings for the pictures drawn inside, and the caller's own again afterwards."""
    import matplotlib

    own = Path(__file__).with_name("pictures.mplstyle")
    with matplotlib.rc_context(matplotlib.rc_params_from_file(own, use_default_template=False)):
        yield


def figure(
    width: float = 6.4, height: float = 4.2, rows: int = 1, columns: int = 1, mosaic: Mosaic = None, **shared: Any
) -> "tuple[Figure, Any]":
    """A figure with its own canvas, so that the caller's pyplot session never sees it.

    >>> picture, axes = figure(rows=1, columns=2)
    >>> axes.shape
    (2,)

    In inches. Its axes are one, an array of them, or a dict by name with a ``mosaic``: names of panels in a grid, of
    which one that fills several cells is one large panel. ``shared`` is ``sharex`` and the like.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Figure

    with style():
        picture = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(picture)
        if mosaic is not None:
            return picture, picture.subplot_mosaic([list(row) for row in mosaic], **shared)
        return picture, picture.subplots(rows, columns, **shared)


def drawn(
    width: float, height: float, legend: int | str = 0, **shared: Any
) -> Callable[[Callable[..., None]], Callable[..., Figure]]:
    """Makes of a function that draws on axes, its last argument, one that returns a whole :func:`figure`.

    ``legend`` is the place of one in all axes; or how many columns one below has, of what the first axes show.
    """

    def decorated(draw: Callable[..., None]) -> Callable[..., Figure]:
        @functools.wraps(draw)
        def whole(*given: Any) -> Figure:
            picture, axes = figure(width, height, **shared)
            draw(*given, axes)
            each = np.ravel(axes)
            for item in each if isinstance(legend, str) else ():
                item.legend(loc=legend)
            if isinstance(legend, int) and legend:
                legend_below(picture, *each[0].get_legend_handles_labels(), columns=legend)
            return picture

        return whole

    return decorated


def points(axes: Axes, x: Numbers, y: Numbers, error: Numbers, index: int, label: str, **more: Any) -> None:
    """Measured points with error bars of two standard errors, in the colour and marker of that index."""
    look = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "linestyle": "none"}
    bars: dict[str, Any] = {"capsize": 2.5, "elinewidth": 1.0, "label": label}
    axes.errorbar(x, y, yerr=2 * np.asarray(error), **(bars | look | more))


def curve(axes: Axes, x: Numbers, y: Numbers, index: int, label: str = "", **more: Any) -> None:
    """A computed curve: a line without markers in the colour and dashes of that index.

    Measured points of the same index go on top of it.
    """
    options: dict[str, Any] = {"color": COLOURS[index % len(COLOURS)], "zorder": 1.5, "label": label or None, **more}
    axes.plot(x, y, **options)


def means(
    axes: Axes, table: Rows, x: str | Numbers, y: str, index: int, label: str, scale: float = 1.0, **more: Any
) -> None:
    """Means of a column, times ``scale``, with error bars of two standard errors; ``x`` is a column, or places."""
    places = table.column(x) if isinstance(x, str) else x
    points(axes, places, scale * table.column(y), scale * table.column(f"{y}_error"), index, label, **more)


def column(axes: Axes, table: Rows, x: str, y: str, index: int, label: str = "", **more: Any) -> None:
    curve(axes, table.column(x), table.column(y), index, label, **more)


def band(axes: Axes, table: Rows, x: str, low: str, high: str, label: str, **more: Any) -> None:
    """The band between two computed columns, in grey."""
    options: dict[str, Any] = {"color": "#cccccc", "edgecolor": "#aaaaaa", "linewidth": 0.6, "zorder": 1.0, **more}
    axes.fill_between(*(table.column(name) for name in (x, low, high)), label=label, **options)


def lines(
    axes: Axes,
    table: Rows,
    x: str,
    y: str,
    by: str,
    label: str | Callable[[Any], str],
    computed: Mapping[str, str] | None = None,
    **more: Any,
) -> None:
    """One line of means with error bars for each value of a column; with their dashes, columns ``computed``."""
    for index, (value, rows) in enumerate(table.by(by)):
        text = label.format(value) if isinstance(label, str) else label(value)
        means(axes, rows, x, y, index, text, **{"linestyle": "-", "linewidth": 1.0, **more})
        for name, dashes in (computed or {}).items():
            column(axes, rows, x, name, index, linestyle=dashes)


def ticks(axes: Axes, values: Sequence[Any], axis: str = "x", scale: str | None = None) -> None:
    """Exactly these ticks, perhaps on a logarithmic axis."""
    if scale:
        axes.set(**{f"{axis}scale": scale})
    getattr(axes, f"set_{axis}ticks")(list(values), [f"{value:g}" for value in values])
    axes.minorticks_off()


def epochs(axes: Axes, last: float) -> None:
    """Epochs from 0 on, logarithmic from 1 on."""
    axes.set_xscale("symlog", linthresh=1.0)
    ticks(axes, [0, 1, *[tick for tick in (2, 5, 10, 20, 50) if tick < 0.8 * last], last])
    axes.set(xlabel="epoch (logarithmic from 1 on)", xlim=(-0.05, None))


def heading(picture: Figure, *texts: str) -> None:
    """A heading above all panels: what is shown, and the setting; long lines are broken."""
    lines = [line for text in texts for line in textwrap.wrap(text, int(picture.get_figwidth() * 14))]
    picture.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=9.5, linespacing=1.3)


def table(axes: Axes, grid: Grid, fills: Mapping[tuple[int, int], str], letters: int = 30) -> None:
    """A table in the place of axes; ``fills`` colours cells by row and column. Brackets go to a line of their own."""
    from matplotlib.transforms import Bbox

    def broken(cell: str) -> str:
        front, bracket, rest = cell.partition(" (")
        lines = textwrap.wrap(front, letters if cell != grid.title else 90)
        return "\n".join([*lines, *([f"({rest}"] if bracket else [])])

    cells, names = [[broken(cell) for cell in row] for row in grid.rows.values()], list(grid.rows)
    looks: dict[str, Any] = {"cellLoc": "center", "bbox": Bbox.unit()}
    drawn = axes.table(cells, rowLabels=names, colLabels=list(grid.columns), **looks)
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(7.5)
    for (row, column), cell in drawn.get_celld().items():
        cell.set(edgecolor="#bbbbbb", linewidth=0.5, facecolor=fills.get((row - 1, column), "none"))
    axes.set_axis_off()
    axes.set_title(broken(grid.title), fontsize=9, loc="left")
    axes.figure.get_layout_engine().set(w_pad=0.12)  # type: ignore[union-attr, call-arg]


def tables(grids: Sequence[Grid], apart: Collection[str] = ()) -> Figure:
    """Tables beside and below each other; the highest number of a column is shaded, rows ``apart`` left aside."""
    wide = max(len(grid.columns) for grid in grids)
    across = min(3 if wide < 5 else 2, len(grids), max(2, -(-len(grids) // 2)))
    parts = [grids[first : first + across] for first in range(0, len(grids), across)]
    tall = [[sum(1 + any("(" in c for c in cells) for cells in grid.rows.values()) for grid in part] for part in parts]
    heights = [1.2 + max(each) for each in tall]
    longest = max(len(name) for grid in grids for name in grid.rows)
    width = max(3.9, 1.1 + 0.9 * wide + 0.065 * max(longest - 15, 0)) * across + 0.6
    height = 0.2 * sum(heights) + 0.45 * len(parts) + 0.9
    picture, places = figure(width, height, len(parts), across, squeeze=False, height_ratios=heights)
    for axes in places.flat[len(grids) :]:
        axes.remove()
    for axes, grid in zip(places.flat, grids, strict=False):
        table(axes, grid, dict.fromkeys(grid.best(apart), f"{COLOURS[0]}33"))
    picture.supxlabel("shaded: the best of a column" + f"; apart: {', '.join(apart)}" * bool(apart), fontsize=8)
    return picture


def legend_below(picture: Figure, *entries: Any, columns: int, **more: Any) -> None:
    """One legend for all panels, below them, in as many columns as fit.

    ``entries`` are what matplotlib's ``Figure.legend`` takes: nothing, or handles and labels.
    """
    options = {"loc": "outside lower center", **more}
    for count in range(columns, 0, -1):
        legend = picture.legend(*entries, ncols=count, **options)
        if count == 1 or legend.get_window_extent().width <= picture.bbox.width:
            return
        legend.remove()


def png(picture: Figure, dpi: int = 150) -> bytes:
    """The picture as a PNG file's bytes; the same picture gives the same bytes."""
    content = io.BytesIO()
    with style():
        picture.savefig(content, format="png", dpi=dpi, metadata={"Software": "epoch0"})
    return content.getvalue()
