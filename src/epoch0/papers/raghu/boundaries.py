"""Raghu et al. Figure 1: the boundaries that each layer adds in a square of the input plane.

The paper prints neither its weights nor its biases: here sigma_w = sqrt(2) and the biases have standard deviation 0.3.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import Claim, exact, increasing
from epoch0.papers.catalogue import Artifact
from epoch0.papers.hanin_rolnick.layers import ABOUT
from epoch0.papers.hanin_rolnick.planar import PlanarSpec, below_bound, checks, partitions, table
from epoch0.papers.sweep import Found, Sweep, mean_and_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def claims(found: Found) -> list[Claim]:
    """The caption of Figure 1, section 2.2 and Theorem 1, on every network."""
    spec, (result,) = found.sweep.spec, found.one().results
    bends, cells = np.asarray(result["bends"]), np.asarray(result["cells"])
    straight, later = int(bends[:, 0].sum()), int(bends[:, 1:].sum())
    bent, concave = int(np.sum(result["bent"])), int(np.sum(result["concave"]))
    corners = int(cells[:, -1].sum())
    mean, error = mean_and_error(cells)
    return [
        exact("the boundaries of the first layer are straight lines", straight == 0,
              f"{straight} bends in {spec.networks} networks of {spec.width} lines", {"bends": straight}),
        exact("those of later layers bend only where they meet boundaries of earlier layers", bent == 0,
              f"{later} bends, {bent} of them elsewhere", {"bends": float(later), "elsewhere": bent}),
        exact("every region is convex", concave == 0, f"{corners} regions, {concave} concave corners",
              {"regions": corners, "concave_corners": concave}),
        increasing("each layer adds regions", mean, error, spec.networks,
                   [f"layer {i + 1}" for i in range(spec.depth)]),
        below_bound(found),
        checks(found),
    ]  # fmt: skip


def draw(found: Found) -> "Figure":
    """The boundaries of the first network: of layer 1, of layers 1 and 2, of all; the newest in full strength."""
    from matplotlib.collections import LineCollection

    spec, (result,) = found.sweep.spec, found.one().results
    picture, panels = plots.figure(3.2 * spec.depth, 4.2, columns=spec.depth, sharey=True, squeeze=False)
    vertices, edges, owner = (np.asarray(result[name]) for name in ("vertices", "edges", "owner"))
    for shown, axes in enumerate(panels[0]):
        for layer in range(shown + 1):
            newest, lines = layer == shown, list(vertices[edges[owner == layer]])
            axes.add_collection(LineCollection(
                lines, colors=plots.COLOURS[layer], linewidths=1.8 if newest else 0.9, alpha=1.0 if newest else 0.6,
                capstyle="round",
            ))  # fmt: skip
            if shown == spec.depth - 1:
                axes.plot([], [], color=plots.COLOURS[layer], label=f"neurons of layer {layer + 1}")
        axes.set(xlim=(-spec.half, spec.half), ylim=(-spec.half, spec.half), aspect="equal", xlabel="first input",
                 title=f"layer {shown + 1}: {int(result['cells'][0][shown])} regions")  # fmt: skip
        axes.grid(False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)
    panels[0][0].set_ylabel("second input")
    plots.legend_below(picture, *panels[0][-1].get_legend_handles_labels(), columns=3)
    return picture


_QUICK = Sweep(partitions, PlanarSpec(4, 3, math.sqrt(2.0), 0.3, 1.0, networks=50))

ARTIFACTS = (
    Artifact(
        "raghu/fig1", "Boundaries in the plane of two inputs, layer by layer", "Raghu et al., Figure 1, section 2.2",
        {"quick": _QUICK, "paper": _QUICK.but(networks=1000)}, table, claims, draw, ABOUT,
    ),
)  # fmt: skip
"""The networks of both presets are the paper's, 4 neurons in each of 3 layers."""
