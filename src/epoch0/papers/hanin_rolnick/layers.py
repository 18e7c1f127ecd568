"""Hanin-Rolnick Figure 2: the regions of a network with two inputs, layer by layer, and its graph."""

import math

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import Claim, exact, increasing
from epoch0.papers.catalogue import Artifact
from epoch0.papers.hanin_rolnick.planar import EXACT, PlanarSpec, below_bound, checks, partitions, table
from epoch0.papers.pictures import Figure
from epoch0.papers.sweep import Found, Sweep, mean_and_error


def claims(found: Found) -> list[Claim]:
    """The caption of Figure 2, on every network, and the free checks of a partition."""
    (result,), networks = found.one().results, found.sweep["networks"]
    cells, parents = np.asarray(result["cells"]), np.asarray(result["parents"])
    mean, error = mean_and_error(cells)
    moved = float(np.max(result["moved"]))
    wrong = int((cells != parents).any(axis=1).sum())
    return [
        exact("each layer only subdivides: every final cell comes from one cell of each layer before", wrong == 0,
              f"{int(cells[:, -1].sum())} cells of {networks} networks; {wrong} networks contradict",
              {"contradict": wrong}),
        exact("later layers leave the boundaries of earlier ones where they are", moved < EXACT,
              f"their lengths differ by at most {moved:.1e} of themselves", {"largest_difference": moved}),
        increasing("the number of regions grows with each layer", mean, error, networks,
                   [f"layer {layer + 1}" for layer in range(len(mean))]),
        below_bound(found),
        checks(found),
    ]  # fmt: skip


def draw(found: Found) -> Figure:
    """The first network: its cells after each layer, coloured by pattern, and its graph over the final cells."""
    from matplotlib.collections import LineCollection, PolyCollection
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

    setting, (result,) = found.sweep.spec, found.one().results
    names = [f"layer {layer + 1}" for layer in range(setting.depth)]
    picture, panels = plots.figure(
        3.0 * setting.depth + 4.6,
        4.7,
        mosaic=[[*names, "graph"]],
        per_subplot_kw={"graph": {"projection": "3d"}},
        width_ratios=[*[1.0] * setting.depth, 1.5],
    )
    vertices, edges, owner = (np.asarray(result[name]) for name in ("vertices", "edges", "owner"))
    cells: list[np.ndarray] = []
    for index, name in enumerate(names, start=1):
        axes = panels[name]
        own, of, ends, colours = (
            np.asarray(result[f"{part}_{index}"]) for part in ("vertices", "cell_vertices", "cell_ends", "colours")
        )
        cells = np.split(of, ends[1:-1])
        corners = [own[cell] for cell in cells]
        axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=colours, linewidths=0.2))
        for layer in range(index):
            axes.add_collection(
                LineCollection(list(vertices[edges[owner == layer]]), colors=plots.COLOURS[layer], linewidths=1.0)
            )
        axes.set(xlim=(-setting.half, setting.half), ylim=(-setting.half, setting.half), aspect="equal",
                 xlabel="first input", title=f"after layer {index}: {len(corners)} regions")  # fmt: skip
        axes.grid(False)
        axes.set_xticks(_ticks(setting), [f"{tick:g}" for tick in _ticks(setting)])  # "1.0 -1.0" of two panels touch
        axes.set_yticks(_ticks(setting), [f"{tick:g}" for tick in _ticks(setting)])
        axes.tick_params(labelleft=index == 1)
    panels[names[0]].set_ylabel("second input")
    for layer in range(setting.depth):
        panels[names[-1]].plot([], [], color=plots.COLOURS[layer], label=f"made by layer {layer + 1}")
    plots.legend_below(picture, *panels[names[-1]].get_legend_handles_labels(), columns=setting.depth)
    own, heights, colours = (
        np.asarray(result[f"vertices_{setting.depth}"]), np.asarray(result["heights"]),
        np.asarray(result[f"colours_{setting.depth}"]),
    )  # fmt: skip
    solid = [np.column_stack([own[cell], heights[cell]]) for cell in cells]
    axes = panels["graph"]
    axes.add_collection3d(Poly3DCollection(solid, facecolors=colours, edgecolors="#555555", linewidths=0.3))
    axes.set(xlim=(-setting.half, setting.half), ylim=(-setting.half, setting.half),
             zlim=(heights.min(), heights.max()), title="its graph over the regions",
             xlabel="first input", ylabel="second input", zlabel="output")  # fmt: skip
    axes.view_init(elev=34, azim=-60)
    axes.set_xticks([-setting.half, 0, setting.half])
    axes.set_yticks([-setting.half, 0, setting.half])
    axes.tick_params(labelsize=7)
    axes.set_box_aspect((1, 1, 0.7), zoom=0.84)
    return picture


def _ticks(setting: PlanarSpec) -> list[float]:
    return [part * setting.half for part in (-1.0, -0.5, 0.0, 0.5, 1.0)]


ABOUT = (
    "2 inputs, {depth} hidden layers of {width}, 1 output; He's weights, bias std {bias_std:g}; the first of "
    "{networks} networks, all of them tested; exact, no error bars"
)

_QUICK = Sweep(partitions, PlanarSpec(8, 3, math.sqrt(2.0), 0.3, 1.0, networks=30))

ARTIFACTS = (
    Artifact("hanin-rolnick/fig2", "Regions of a network with two inputs, layer by layer", "Hanin & Rolnick, Figure 2",
             {"quick": _QUICK, "paper": _QUICK.but(width=16, networks=200)}, table, claims, draw, ABOUT),
)  # fmt: skip
