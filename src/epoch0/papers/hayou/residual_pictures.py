"""Hayou Figures 2 and 4 drawn: share kept of each layer, ResNet and Stable ResNet."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.papers.catalogue import Results
from epoch0.papers.hayou.residual import Pair, Setting, gather, sections
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINEAR = 0.1
"""Percent, below which the axis is linear, so that 0 has a place."""

_MIDDLE = 1
"""Place of the sparsity that Figure 2 shows."""


def draw_modes(setting: Setting, results: Results) -> "Figure":
    """Figure 2: one panel for each mode of batch norm, at the middle sparsity."""
    pairs = gather(setting, results)
    picture, axes = plots.figure(9.0, 4.4, 1, len(pairs), sharey=True)
    for place, pair in enumerate(pairs):
        panel = np.atleast_1d(axes)[place]
        _layers(panel, pair, setting, _MIDDLE, label=place == 0)
        panel.set_title(f"batch norm in {pair.mode} mode, {100 * setting.spec.sparsities[_MIDDLE]:g} % pruned")
    return _finished(picture, np.atleast_2d(axes))


def draw_activations(setting: Setting, results: Results) -> "Figure":
    """Figure 4: a row for each activation, a column for each sparsity."""
    pairs = gather(setting, results)
    columns = len(setting.spec.sparsities)
    picture, axes = plots.figure(10.5, 6.2, len(pairs), columns, sharey=True, sharex=True)
    axes = np.reshape(axes, (len(pairs), columns))
    for row, pair in enumerate(pairs):
        for column, sparsity in enumerate(setting.spec.sparsities):
            _layers(axes[row, column], pair, setting, column, label=row == column == 0)
            axes[row, column].set_title(f"{pair.activation}, {100 * sparsity:g} % pruned")
    return _finished(picture, axes)


def _layers(axes: "Axes", pair: Pair, setting: Setting, sparsity: int, *, label: bool) -> None:
    places = np.arange(1, len(pair.names) + 1)
    shortcuts = np.array(["downsample" in name for name in pair.names])
    for index, (name, densities) in enumerate((("ResNet", pair.plain), ("Stable ResNet", pair.stable))):
        mean, error = (100 * value for value in mean_and_error(densities[:, sparsity]))
        beside = places + 0.2 * (index - 0.5)
        line = {"markersize": 3.2, "linestyle": "-", "linewidth": 0.7}
        alone = {"markersize": 5.5, "markerfacecolor": "none"}
        for chosen, words, style in ((~shortcuts, name, line), (shortcuts, f"{name}, 1x1 shortcuts", alone)):
            x, y, spread = (values[chosen].tolist() for values in (beside, mean, error))
            plots.points(axes, x, y, spread, index, words if label else "", elinewidth=0.8, capsize=1.5, **style)
    for section in list(sections(pair.names).values())[1:]:
        axes.axvline(section[0] + 0.5, color="#999999", linewidth=0.7, linestyle="--", zorder=0.8)


def _finished(picture: "Figure", axes: "NDArray[Any]") -> "Figure":
    for panel in axes.flat:
        panel.set_yscale("symlog", linthresh=_LINEAR, linscale=0.4)
        panel.set_ylim(-0.02, 130)
        panel.set_yticks([0, 0.1, 1, 10, 100], ["0", "0.1", "1", "10", "100"])
        panel.minorticks_off()
    for panel in axes[-1]:
        panel.set_xlabel("layer, in order of execution")
    for panel in axes[:, 0]:
        panel.set_ylabel("weights kept (%)")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    plots.legend_below(picture, handles, labels, columns=4)
    return picture
