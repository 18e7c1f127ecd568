"""Heat maps of accuracy over depth and sparsity, as in Hayou Figures 3 and 5."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


def draw(
    depths: Sequence[int], sparsities: Sequence[float], accuracy: Array, trainable: Array, dead: Array, chance: float
) -> "Figure":
    """One panel; all panels of both figures share the scale of colours, 0 to 100 %.

    Args:
        depths: increasing.
        sparsities: increasing, fractions.
        accuracy: means, (depths, sparsities).
        trainable: share of the networks that count as trainable, same shape; cells below one half are crossed.
        dead: mean number of layers that keep nothing, same shape.
        chance: share of the most frequent class.
    """
    from matplotlib.lines import Line2D

    picture, axes = plots.figure(max(6.2, 1.9 + 0.62 * len(sparsities)), 1.3 + 0.5 * len(depths))
    image = axes.imshow(100 * accuracy, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=100)
    axes.grid(visible=False)
    axes.set_xticks(range(len(sparsities)), [f"{100 * s:g}" for s in sparsities])
    axes.set_yticks(range(len(depths)), [str(depth) for depth in depths])
    axes.set(xlabel="weights pruned (%)", ylabel="depth")
    for i in range(len(depths)):
        for j in range(len(sparsities)):
            # black on light, white on dark
            colour = "black" if accuracy[i, j] > 0.55 else "white"
            axes.text(j, i + 0.12, f"{100 * accuracy[i, j]:.0f}", ha="center", va="center", color=colour, fontsize=9)
            if dead[i, j] > 0:
                words = f"{dead[i, j]:.2g} dead"
                axes.text(j, i - 0.25, words, ha="center", va="center", color=colour, fontsize=6.5)
            if trainable[i, j] < 0.5:
                axes.plot(j + 0.36, i + 0.32, marker="x", color=colour, markersize=4.5, markeredgewidth=1.2)
    bar = picture.colorbar(image, ax=axes, pad=0.02)
    bar.set_label("test accuracy (%)")
    bar.ax.axhline(100 * chance, color="white", linewidth=1.2)
    handles = [Line2D([], [], linestyle="none", label="white line on the scale: chance")]
    if (trainable < 0.5).any():
        handles.insert(0, Line2D([], [], marker="x", linestyle="none", color="black", label="does not train"))
    if (dead > 0).any():
        handles.append(Line2D([], [], linestyle="none", label="dead: layers that keep nothing"))
    plots.legend_below(picture, handles=handles, loc="outside lower left", handletextpad=0.2, frameon=False, columns=3)
    return picture
