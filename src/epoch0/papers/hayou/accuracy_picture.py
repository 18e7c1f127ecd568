"""Hayou's accuracy tables drawn: accuracy against sparsity, one panel a network; printed values as open markers."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from epoch0 import plots
from epoch0.papers.catalogue import Results
from epoch0.papers.hayou.accuracy import Cells, Panel, Setting, gather
from epoch0.papers.hayou.published import PUBLISHED, Printed
from epoch0.papers.hayou.recipe import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {
    "sbp-sr": 0, "eoc-rescaling": 0, "snip": 1, "grasp": 2, "synflow": 3, "magnitude": 4, "random": 5, "obd": 6,
    "grasp-sr": 7, "force": 4,
}  # fmt: skip
"""Colour and marker of each method, the same in every table."""

_WIDEST = 3
"""Panels side by side."""

_PRINTED_RUNS = 3
"""Behind each printed standard deviation."""


def draw(setting: Setting, results: Results) -> "Figure":
    """What was measured; below it the paper's own panels, where others stand in for them."""
    measured = gather(setting.panels, results)
    apart = [] if any(panel.printed for panel in setting.panels) else list(PUBLISHED.get(setting.table, ()))
    columns = max(_columns(len(setting.panels)), _columns(len(apart)))
    upper, lower = -(-len(setting.panels) // columns), -(-len(apart) // columns)
    size = (3.4 * columns + 0.6, 2.7 * (upper + lower) + 0.9)
    picture, grid = plots.figure(*size, upper + lower, columns, squeeze=False)
    for panel, cells, axes in zip(setting.panels, measured, grid[:upper].flat, strict=False):
        _measured(axes, panel, cells)
    for block, axes in zip(apart, grid[upper:].flat, strict=False):
        _printed(axes, block)
    for axes in [*grid[:upper].flat[len(setting.panels) :], *grid[upper:].flat[len(apart) :]]:
        axes.remove()
    for row in grid:
        row[0].set_ylabel("test accuracy (%)")
    _legend(picture, setting.panels, apart)
    return picture


def _columns(panels: int) -> int:
    """Beside each other, so that no row is emptier than it needs to be: four panels are two and two."""
    return -(-panels // -(-panels // _WIDEST)) if panels else 0


def _measured(axes: "Axes", panel: Panel, cells: Cells) -> None:
    pruned = _in_order(panel.methods)
    for place, method in enumerate(pruned):
        mine = [cells[method, sparsity] for sparsity in panel.sparsities]
        x = np.arange(len(mine)) + _beside(place, len(pruned))
        look = LOOKS[method]
        plots.points(axes, x.tolist(), [c.mean for c in mine], [c.error for c in mine], look, METHODS[method].label,
                     linestyle="-", linewidth=0.6)  # fmt: skip
        entries = [(at, cell.printed) for at, cell in zip(x.tolist(), mine, strict=True) if cell.printed is not None]
        if entries:
            spread = [0.0 if entry.sd is None else entry.sd / _PRINTED_RUNS**0.5 for _, entry in entries]
            places = [at + 0.35 / max(len(pruned), 1) for at, _ in entries]
            plots.points(axes, places, [entry.value for _, entry in entries], spread, look, "", markerfacecolor="none",
                         alpha=0.8)  # fmt: skip
    if "none" in panel.methods:
        axes.axhline(cells["none", 0.0].mean, color=plots.BOUND, linestyle="--", linewidth=1.0, zorder=1)
    chance = next(iter(cells.values())).chance
    _finish(axes, panel.title, panel.sparsities, chance, min(cell.mean for cell in cells.values()))


def _printed(axes: "Axes", block: Printed) -> None:
    pruned = _in_order(block.rows)
    for place, method in enumerate(pruned):
        row = block.rows[method]
        x = np.arange(len(row)) + _beside(place, len(pruned))
        spread = [0.0 if entry.sd is None else entry.sd / _PRINTED_RUNS**0.5 for entry in row]
        plots.points(axes, x.tolist(), [entry.value for entry in row], spread, LOOKS[method], "",
                     markerfacecolor="none", linestyle="-", linewidth=0.6)  # fmt: skip
    if "none" in block.rows:
        axes.axhline(block.rows["none"][0].value, color=plots.BOUND, linestyle="--", linewidth=1.0, zorder=1)
    tanh = "" if block.activation == "relu" else f", {block.activation}"
    lowest = min(entry.value for row in block.rows.values() for entry in row)
    _finish(axes, f"as printed: {block.network}{tanh}, {block.data}", block.sparsities, None, lowest)


def _in_order(methods: Iterable[str]) -> list[str]:
    """Those that prune, from left to right as in the legend."""
    return [method for method in METHODS if method in set(methods) and method != "none"]


def _beside(place: int, count: int) -> float:
    """Methods beside each other, not on top."""
    return min(0.6, 0.15 * count) * ((place + 0.5) / count - 0.5)


def _finish(axes: "Axes", title: str, sparsities: tuple[float, ...], chance: float | None, lowest: float) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xticks(range(len(sparsities)), [f"{100 * sparsity:.4g}" for sparsity in sparsities])
    axes.set_xlim(-0.5, len(sparsities) - 0.5)
    axes.set_xlabel("sparsity (%)")
    axes.grid(False, axis="x")
    if lowest < 40:
        axes.set_ylim(0, 102)
        if chance is not None:
            axes.axhline(chance, color=plots.BOUND, linestyle=":", linewidth=1.2, zorder=1)


def _legend(picture: "Figure", panels: Sequence[Panel], apart: Sequence[Printed]) -> None:
    """Every method once, then what lines and open markers mean."""
    from matplotlib.lines import Line2D

    shown = [method for method in METHODS if any(method in panel.methods for panel in panels)]
    shown += [m for m in METHODS if m not in shown and any(m in block.rows for block in apart)]
    handles = [
        Line2D([], [], color=plots.COLOURS[LOOKS[m]], marker=plots.MARKERS[LOOKS[m]], linewidth=0.6,
               label=METHODS[m].label)
        for m in shown
        if m != "none"
    ]  # fmt: skip
    if "none" in shown:
        handles.append(Line2D([], [], color=plots.BOUND, linestyle="--", linewidth=1.0, label="not pruned"))
    handles.append(Line2D([], [], color=plots.BOUND, linestyle=":", linewidth=1.2, label="chance"))
    if apart or any(panel.printed for panel in panels):
        handles.append(
            Line2D([], [], marker="o", markerfacecolor="none", linestyle="none", color=plots.BOUND,
                   label="as printed (open)")
        )  # fmt: skip
    plots.legend_below(picture, handles=handles, columns=6)
