"""The common style of all pictures: colours and markers that everyone can tell apart, labelled axes, error bars."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A5195")
"""Okabe and Ito's colours for all kinds of colour vision, those with enough contrast on white first."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
BOUND = "#666666"
"""The grey of bounds."""

_STYLE: dict[str, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "figure.constrained_layout.use": True,
    "mathtext.fontset": "cm",
}


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings for the pictures drawn inside, and the caller's own again afterwards."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def figure(width: float = 6.4, height: float = 4.2, rows: int = 1, columns: int = 1, **shared: Any) -> "tuple[Figure, Any]":
    """A figure with its own canvas, so that the caller's pyplot session never sees it.

    >>> picture, axes = figure(rows=1, columns=2)
    >>> axes.shape
    (2,)

    Args:
        width: inches.
        height: inches.
        rows: rows of panels.
        columns: columns of panels.
        shared: ``sharex`` and the like, as for matplotlib's ``Figure.subplots``.

    Returns:
        The figure and its axes: one, or an array of them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style():
        picture = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(picture)
        axes = picture.subplots(rows, columns, **shared)
    return picture, axes


def points(
    axes: "Axes", x: Sequence[float], y: Sequence[float], error: Sequence[float], index: int, label: str, **more: Any
) -> None:
    """Measured points with error bars of two standard errors, in the colour and marker of that index."""
    options: dict[str, Any] = {
        "color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "linestyle": "none",
        "capsize": 2.5, "elinewidth": 1.0, "label": label, **more,
    }  # fmt: skip
    axes.errorbar(x, y, yerr=[2 * e for e in error], **options)


def save(picture: "Figure", path: Path) -> None:
    """Write the picture as PNG (or what the ending says), whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    try:
        with style():
            picture.savefig(temporary, format=path.suffix.lstrip("."), metadata={"Software": "epoch0"})
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
