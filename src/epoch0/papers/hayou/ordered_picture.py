"""Hayou's Theorem 1 drawn: critical sparsity against chi, with the bound and the sharper prediction."""

import math
from typing import TYPE_CHECKING

import numpy as np

from epoch0 import plots
from epoch0.papers.catalogue import Results
from epoch0.papers.hayou.ordered import (
    PAPER_BOUND,
    PAPER_KAPPA,
    PAPER_MEASURED,
    Setting,
    bound,
    sharper,
    table,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS = 14
"""Gains at which the curves are computed."""


def draw(setting: Setting, results: Results) -> "Figure":
    """Measured with error bars; the prediction with its spread over networks; the bound where it says something."""
    rows = table(setting, results)
    picture, axes = plots.figure(7.2, 5.0)
    grid = np.unique(np.concatenate([np.linspace(min(setting.chis), max(setting.chis), _POINTS), setting.chis]))
    mean, spread = np.transpose(
        [sharper(float(x), setting.bias_std, setting.depth, setting.width, setting.examples) for x in grid]
    )
    axes.fill_between(
        grid, np.maximum(mean - 2 * spread, 1e-3), np.minimum(mean + 2 * spread, 1.0), color="#cccccc", zorder=0.9,
        label="its spread over networks (two sd)", linewidth=0,
    )  # fmt: skip
    plots.curve(axes, grid.tolist(), mean.tolist(), 0, "sharper prediction (mean field)")
    fine = np.linspace(min(0.01, *setting.chis), 0.999, 400)
    for paper, line, label in (
        (False, "--", "Theorem 1 (natural logarithm)"), (True, ":", "... with log base 10, as in the paper's example"),
    ):  # fmt: skip
        values = np.array([bound(setting, float(x), paper=paper) for x in fine])
        inside = values <= 1
        axes.plot(fine[inside], values[inside], color=plots.BOUND, linestyle=line, label=label, zorder=1.4)
    biased = [row for row in rows if row["bias_std"]]
    bare = [row for row in rows if not row["bias_std"]]
    for index, mine, label, face in (
        (0, biased, rf"measured, $\sigma_b={setting.bias_std:g}$", None),
        (1, bare, r"measured, $\sigma_b=0$: nothing collapses", "none"),
    ):
        plots.points(
            axes, [row["chi"] for row in mine], [row["critical_sparsity"] for row in mine],
            [row["critical_sparsity_error"] for row in mine], index, label, markerfacecolor=face,
        )  # fmt: skip
    gain = math.exp(-8 * PAPER_KAPPA)
    axes.plot(
        [gain], [PAPER_MEASURED], "x", color="black", markersize=8, linestyle="none",
        label=rf"printed for $\kappa=0.2$: measured {100 * PAPER_MEASURED:g} %",
    )  # fmt: skip
    axes.plot(
        [gain], [PAPER_BOUND], "+", color="black", markersize=10, linestyle="none",
        label=rf"printed for $\kappa=0.2$: bound {100 * PAPER_BOUND:g} %",
    )  # fmt: skip
    axes.set_yscale("log")
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel=r"gain of a layer, $\chi$", ylabel=r"critical sparsity $s_{cr}$", xlim=(0, 1.01), ylim=(0.02, 1.35))
    axes.legend(loc="lower right", fontsize=8)
    return picture
