"""Hayou Table 6 drawn as a table: the winner of every setting, measured and from the printed tables."""

import textwrap
from typing import TYPE_CHECKING

from epoch0 import plots
from epoch0.papers.catalogue import Results
from epoch0.papers.hayou.accuracy import gather
from epoch0.papers.hayou.accuracy_winners import Winner, WinnersSetting, measured_winner, printed_winners
from epoch0.papers.hayou.published import COMPETITION
from epoch0.papers.hayou.recipe import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OURS = ("sbp-sr", "eoc-rescaling")

Grid = dict[str, dict[float, tuple[Winner, str]]]
"""Row -> sparsity -> winner, and what Table 6 prints ("" if nothing)."""


def draw(setting: WinnersSetting, results: Results) -> "Figure":
    """Two tables: what was measured, and what the printed tables give."""
    measured: Grid = {
        panel.title: {sparsity: (measured_winner(cells, sparsity), "") for sparsity in panel.sparsities}
        for panel, cells in zip(setting.panels, gather(setting.panels, results), strict=True)
    }
    printed: Grid = {}
    for (data, network, sparsity), (word, found) in printed_winners().items():
        printed.setdefault(f"{network}, {data}", {})[sparsity] = found, word
    heights = [len(measured) + 0.6, len(printed) + 0.6]
    picture, axes = plots.figure(
        9.6, 0.52 * sum(heights) + 1.6, mosaic=[["measured"], ["printed"]], height_ratios=heights
    )
    _table(axes["measured"], measured, "measured here: the best method, and those within one sd of it")
    _table(axes["printed"], printed, "from Tables 2, 3 and 5 as printed; red frames: Table 6 says otherwise")
    _legend(picture)
    return picture


def _table(axes: "Axes", grid: Grid, title: str) -> None:
    from matplotlib.patches import Rectangle

    columns = sorted({sparsity for row in grid.values() for sparsity in row})
    for y, row in enumerate(grid.values()):
        for x, sparsity in enumerate(columns):
            if sparsity not in row:
                axes.text(x, y, "-", ha="center", va="center", color=plots.BOUND)
                continue
            found, word = row[sparsity]
            colour, alpha = _fill(found)
            box = (x - 0.48, y - 0.46), 0.96, 0.92
            axes.add_patch(Rectangle(*box, facecolor=colour, alpha=alpha, linewidth=0))
            differs = bool(word) and word != found.as_printed
            if differs:
                axes.add_patch(Rectangle(*box, fill=False, edgecolor="#B00020", linewidth=1.4))
            text = "\n".join(textwrap.wrap(found.label, 34)[:2])
            if differs:
                text += f"\nTable 6: {'no clear winner' if word == COMPETITION else METHODS[word].label}"
            axes.text(x, y, text, ha="center", va="center", fontsize=6.6)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(grid) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), [f"{100 * sparsity:.4g}" for sparsity in columns])
    axes.set_yticks(range(len(grid)), list(grid))
    axes.set_xlabel("sparsity (%)")
    axes.tick_params(length=0)
    axes.grid(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_title(title, fontsize=9, loc="left")


def _fill(found: Winner) -> tuple[str, float]:
    mine = [method for method in (found.best, *found.tied) if method in _OURS]
    if found.tied:
        return (plots.COLOURS[0] if mine else plots.COLOURS[4]), 0.14 if mine else 0.16
    return (plots.COLOURS[0] if mine else plots.COLOURS[4]), 0.5 if mine else 0.55


def _legend(picture: "Figure") -> None:
    from matplotlib.patches import Patch

    blue, orange = plots.COLOURS[0], plots.COLOURS[4]
    handles = [
        Patch(facecolor=blue, alpha=0.5, label="the paper's method alone"),
        Patch(facecolor=blue, alpha=0.14, label="tie with the paper's method"),
        Patch(facecolor=orange, alpha=0.16, label="tie without it"),
        Patch(facecolor=orange, alpha=0.55, label="another alone"),
    ]
    plots.legend_below(picture, handles=handles, columns=4)
