"""The picture of Raghu Figures 7 and 17: training and test accuracy against epochs, one line a trained layer."""

from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0 import plots
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(setting: Any, results: Results) -> "Figure":
    """Two panels; colours from dark to bright as the trained layer moves up.

    Args:
        setting: with ``layers`` and ``runs``, results in the order layers, runs.
        results: with ``train`` and ``test``.
    """
    from matplotlib import colormaps

    picture, panels = plots.figure(10.0, 4.6, columns=2, sharey=True)
    colours = colormaps["viridis"](np.linspace(0.0, 0.9, len(setting.layers)))
    for axes, split, title in zip(panels, ("train", "test"), ("training accuracy", "test accuracy"), strict=True):
        each = np.array([np.asarray(result[split], dtype=np.float64) for result in results])
        each = each.reshape(len(setting.layers), setting.runs, -1)
        for place, layer in enumerate(setting.layers):
            mean, error = mean_and_error(each[place])
            epochs = np.arange(len(mean))
            axes.plot(epochs, mean, color=colours[place], marker=plots.MARKERS[place % len(plots.MARKERS)],
                      markevery=(place, max(1, len(mean) // 6)), label=f"hidden layer {layer + 1}")  # fmt: skip
            if setting.runs > 1:
                low, high = mean - 2 * error, mean + 2 * error
                axes.fill_between(epochs, low, high, color=colours[place], alpha=0.2, linewidth=0)
        axes.set(xlabel="epoch", title=title)
    ends = np.concatenate([np.asarray(result[split])[1:] for result in results for split in ("train", "test")])
    panels[0].set(ylabel="accuracy", ylim=(max(0.0, float(np.quantile(ends, 0.02)) - 0.05), 1.01))
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", title="trained alone")
    return picture
