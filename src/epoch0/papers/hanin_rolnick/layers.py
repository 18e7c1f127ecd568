"""Hanin-Rolnick Figure 2: the regions of a network with two inputs, layer by layer, and its graph."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_most, exact, increasing
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.hanin_rolnick.planar import PlanarSpec
from epoch0.papers.means import mean_and_error
from epoch0.theory.regions import upper_bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXACT = 1e-9
"""Relative difference between sums of lengths or areas that rounding explains."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        width: of each hidden layer.
        depth: number of hidden layers.
        networks: how many are tested; the first is drawn.
        bias_std: standard deviation of the biases.
        half: the square is [-half, half]^2.
    """

    width: int
    depth: int
    networks: int
    bias_std: float = 0.3
    half: float = 1.0

    @property
    def spec(self) -> PlanarSpec:
        """The one trial."""
        return PlanarSpec(self.width, self.depth, math.sqrt(2.0), self.bias_std, self.half, self.networks)


TRIAL = "epoch0.papers.hanin_rolnick.planar:partitions"


def trials(setting: Setting) -> list[Trial]:
    """One, with all networks."""
    return [Trial(TRIAL, setting.spec, seed=0)]


def table(setting: Any, results: Results) -> list[dict[str, Any]]:
    """One row a network and layer: regions after it, and what the tests of the whole network found."""
    (result,) = results
    cells, bends = np.asarray(result["cells"]), np.asarray(result["bends"])
    rows = []
    for network in range(len(cells)):
        for layer in range(setting.depth):
            rows.append(
                {
                    "network": network,
                    "layer": layer + 1,
                    "regions": int(cells[network, layer]),
                    "most_possible": upper_bound([setting.width] * (layer + 1), inputs=2),
                    "bends_of_its_boundaries": int(bends[network, layer]),
                    "linear_regions_of_the_network": int(np.asarray(result["linear"])[network]),
                    "euler": int(np.asarray(result["euler"])[network]),
                    "area_error": float(np.asarray(result["area_error"])[network]),
                }
            )
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """The caption of Figure 2, on every network, and the free checks of a partition."""
    (result,) = results
    cells, parents = np.asarray(result["cells"]), np.asarray(result["parents"])
    names = [f"layer {layer + 1}" for layer in range(setting.depth)]
    mean, error = mean_and_error(cells)
    moved = float(np.max(result["moved"]))
    wrong = int((cells != parents).any(axis=1).sum())
    total = f"{int(cells[:, -1].sum())} cells of {setting.networks} networks"
    return [
        exact(
            "each layer only subdivides: every final cell comes from one cell of each layer before",
            wrong == 0, f"{total}; {wrong} networks contradict", {"contradict": wrong},
        ),
        exact(
            "later layers leave the boundaries of earlier ones where they are",
            moved < EXACT, f"their lengths differ by at most {moved:.1e} of themselves", {"largest_difference": moved},
        ),
        increasing("the number of regions grows with each layer", mean, error, setting.networks, names),
        below_bound(setting, mean, error),
        checks(setting, results),
    ]  # fmt: skip


def below_bound(setting: Any, mean: Any, error: Any) -> Claim:
    """Theorem 1 of Raghu et al., layer by layer."""
    names = [f"layer {layer + 1}" for layer in range(setting.depth)]
    bounds = [float(upper_bound([setting.width] * (layer + 1), inputs=2)) for layer in range(setting.depth)]
    text = "the number of regions is at most (1 + k + k(k - 1)/2)^n, k neurons in each of n layers"
    return at_most(text, mean, error, bounds, setting.networks, names)


def checks(setting: Any, results: Results) -> Claim:
    """Euler's relation and the area, on every network."""
    (result,) = results
    euler, area = np.asarray(result["euler"]), float(np.abs(result["area_error"]).max())
    return exact(
        "vertices - edges + cells = 1, and the areas add up to the square",
        bool((euler == 1).all()) and area < EXACT,
        f"{setting.networks} networks; areas are off by at most {area:.1e} of the square",
        {"area_error": area, "euler_least": float(euler.min()), "euler_most": float(euler.max())},
    )


def draw(setting: Setting, results: Results) -> "Figure":
    """The first network: its cells after each layer, coloured by pattern, and its graph over the final cells."""
    from matplotlib.collections import LineCollection, PolyCollection
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

    (result,) = results
    names = [f"layer {layer + 1}" for layer in range(setting.depth)]
    picture, panels = plots.figure(
        3.0 * setting.depth + 4.6, 4.7, mosaic=[[*names, "graph"]], per_subplot_kw={"graph": {"projection": "3d"}},
        width_ratios=[*[1.0] * setting.depth, 1.5],
    )  # fmt: skip
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


def _ticks(setting: Setting) -> list[float]:
    return [part * setting.half for part in (-1.0, -0.5, 0.0, 0.5, 1.0)]


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"2 inputs, {setting.depth} hidden layers of {setting.width}, 1 output; He's weights, bias std "
        f"{setting.bias_std:g}; the first of {setting.networks} networks, all of them tested; exact, no error bars"
    )
