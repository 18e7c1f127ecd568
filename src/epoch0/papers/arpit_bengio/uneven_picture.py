"""Arpit-Bengio Figure 3 drawn: one network for each variation as in the paper, and how the spread grows with it."""

from typing import TYPE_CHECKING

import numpy as np

from epoch0 import plots
from epoch0.papers.arpit_bengio.uneven import Setting, exact_band, gather
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_SHOWN = 30
"""Networks that are drawn for each variation."""


def draw(setting: Setting, results: Results) -> "Figure":
    """One panel a variation: the first network's ratio at each layer in its exact band; right: the spread."""
    found = gather(setting, results)
    names = [varied.name for varied in found]
    picture, panels = plots.figure(10.0, 4.2, mosaic=[[*names, "spread"]], width_ratios=[*[1.25] * len(names), 1.0])
    layers = list(range(1, setting.depth + 1))
    top = 0.0
    for index, varied in enumerate(found):
        axes = panels[varied.name]
        exact = [exact_band(setting, varied.variation, 0, layer) for layer in layers]
        axes.fill_between(
            layers, [one.low for one in exact], [one.high for one in exact], color="#cccccc", edgecolor="#aaaaaa",
            linewidth=0.6, label="law under independence for its widths: 95 % band", zorder=1.0,
        )  # fmt: skip
        for one in varied.ratio[1:_SHOWN]:
            axes.plot(layers, one, color=plots.COLOURS[index], alpha=0.25, linewidth=0.5, zorder=1.2)
        middle = [one.mean for one in exact]
        axes.plot(layers, middle, "k--", linewidth=1.0, zorder=1.6, label="mean of that law")
        axes.errorbar(
            layers, varied.ratio[0], yerr=varied.std_over_inputs[0], color=plots.COLOURS[index],
            marker=plots.MARKERS[index], linestyle="-", linewidth=0.8, capsize=2.0, elinewidth=0.8, markersize=3.5,
            label="one network: mean and std over inputs",
        )  # fmt: skip
        axes.plot([], [], color="#777777", linewidth=0.7, label="other networks")
        axes.set(title=f"$v = {varied.variation}$", xlabel="layer $l$", xticks=range(1, setting.depth + 1, 3))
        axes.set_ylabel(r"$\|\partial W^l\|_F\,/\,(\|\delta\|\,\|x\|)$" if index == 0 else "")
        top = max(top, float(varied.ratio.max()), max(one.high for one in exact))
    for index, name in enumerate(names):
        panels[name].set_ylim(0, 1.05 * top)
        panels[name].tick_params(labelleft=index == 0)
    _spread(panels["spread"], setting, results)
    handles, labels = panels[names[0]].get_legend_handles_labels()
    plots.legend_below(picture, handles, labels, columns=4)
    return picture


def _spread(axes: "Axes", setting: Setting, results: Results) -> None:
    """Three measures of spread against v, over networks."""
    for index, (label, of) in enumerate(
        (
            ("from 1 (rms)", lambda varied: np.sqrt(varied.off_one)),
            ("between layers (std)", lambda varied: varied.ratio.std(axis=1)),
            ("between inputs (std)", lambda varied: varied.std_over_inputs.mean(1)),
        )
    ):
        values = [mean_and_error(of(varied)) for varied in gather(setting, results)]
        plots.points(
            axes, setting.variations, [mean for mean, _ in values], [error for _, error in values], index + 3, label,
            linestyle=":", linewidth=0.8,
        )  # fmt: skip
    axes.set(title="spread of the ratio", xlabel="width variation $v$", xticks=setting.variations)
    axes.set_ylim(0, 1.5 * axes.get_ylim()[1])
    axes.legend(loc="upper left")
