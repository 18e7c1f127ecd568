"""Raghu et al. Figure 1: the boundaries that each layer adds in a square of the input plane.

The paper prints neither its weights nor its biases: here sigma_w = sqrt(2) and the biases have standard deviation 0.3.
"""

from typing import TYPE_CHECKING

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import Claim, exact, increasing
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.hanin_rolnick import layers
from epoch0.papers.hanin_rolnick.layers import Setting
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def claims(setting: Setting, results: Results) -> list[Claim]:
    """The caption of Figure 1, section 2.2 and Theorem 1, on every network."""
    (result,) = results
    bends, cells = np.asarray(result["bends"]), np.asarray(result["cells"])
    straight = int(bends[:, 0].sum())
    bent, concave = int(np.sum(result["bent"])), int(np.sum(result["concave"]))
    corners = int(cells[:, -1].sum())
    mean, error = mean_and_error(cells)
    return [
        exact(
            "the boundaries of the first layer are straight lines", straight == 0,
            f"{straight} bends in {setting.networks} networks of {setting.width} lines", {"bends": straight},
        ),
        exact(
            "those of later layers bend only where they meet boundaries of earlier layers", bent == 0,
            f"{int(bends[:, 1:].sum())} bends, {bent} of them elsewhere",
            {"bends": float(bends[:, 1:].sum()), "elsewhere": bent},
        ),
        exact(
            "every region is convex", concave == 0, f"{corners} regions, {concave} concave corners",
            {"regions": corners, "concave_corners": concave},
        ),
        increasing(
            "each layer adds regions", mean, error, setting.networks,
            [f"layer {layer + 1}" for layer in range(setting.depth)],
        ),
        layers.below_bound(setting, mean, error),
        layers.checks(setting, results),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """The boundaries of the first network: of layer 1, of layers 1 and 2, of all; the newest in full strength."""
    from matplotlib.collections import LineCollection

    (result,) = results
    picture, panels = plots.figure(3.2 * setting.depth, 4.2, columns=setting.depth, sharey=True)
    vertices, edges, owner = (np.asarray(result[name]) for name in ("vertices", "edges", "owner"))
    cells = np.asarray(result["cells"])[0]
    for shown, axes in enumerate(np.atleast_1d(panels)):
        for layer in range(shown + 1):
            lines = list(vertices[edges[owner == layer]])
            newest = layer == shown
            axes.add_collection(
                LineCollection(
                    lines, colors=plots.COLOURS[layer], linewidths=1.8 if newest else 0.9, alpha=1.0 if newest else 0.6,
                    capstyle="round",
                )
            )  # fmt: skip
            if shown == setting.depth - 1:
                axes.plot([], [], color=plots.COLOURS[layer], label=f"neurons of layer {layer + 1}")
        axes.set(xlim=(-setting.half, setting.half), ylim=(-setting.half, setting.half), aspect="equal",
                 xlabel="first input", title=f"layer {shown + 1}: {int(cells[shown])} regions")  # fmt: skip
        axes.grid(False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)
    np.atleast_1d(panels)[0].set_ylabel("second input")
    plots.legend_below(picture, *np.atleast_1d(panels)[-1].get_legend_handles_labels(), columns=3)
    return picture


ARTIFACTS: tuple[OldArtifact, ...] = (
    OldArtifact(
        "raghu/fig1", "Boundaries in the plane of two inputs, layer by layer", "Raghu et al., Figure 1, section 2.2",
        {"quick": Setting(4, 3, 50), "paper": Setting(4, 3, 1000)},
        layers.trials, layers.table, claims, draw, about=layers.about,
    ),
)  # fmt: skip
"""What needs exact regions; the networks of both presets are the paper's, 4 neurons in each of 3 layers."""
