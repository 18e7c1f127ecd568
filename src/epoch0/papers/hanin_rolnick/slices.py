"""Hanin-Rolnick Figure 1 (section 3.3): the regions in a plane through three examples, and how their number grows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_most, between, exact, fitted_exponent
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.hanin_rolnick.slices_trial import RandomSpec
from epoch0.papers.means import mean_and_error
from epoch0.theory.regions import arrangement_regions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

EXACT = 1e-9
"""Relative error of an area that rounding explains."""

EXPONENT = 0.2
"""Regions grow as the square of the neurons if the fitted exponent is this near to 2."""

ORDER = 10.0
"""Of the order of the number of neurons squared: within this factor."""



@dataclass(frozen=True)
class Setting:
    """One preset of Figure 1.

    Attributes:
        data: name of the data set.
        depth: number of hidden layers.
        widths: of all hidden layers; a drawn network has ``drawn``.
        networks: of each width.
        planes: of each network.
        drawn: width of the network that is drawn.
    """

    data: str
    depth: int
    widths: tuple[int, ...]
    networks: int
    planes: int
    drawn: int = 64


def trials(setting: Setting) -> list[Trial]:
    """One a width."""
    specs = [
        RandomSpec(setting.data, setting.depth, width, setting.networks, setting.planes, width == setting.drawn)
        for width in setting.widths
    ]
    return [Trial("epoch0.papers.hanin_rolnick.slices_trial:random_slices", spec, 0) for spec in specs]


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a width: regions in a plane, against neurons squared, and as many lines in general position."""
    rows = []
    for width, result in zip(setting.widths, results, strict=True):
        counts, neurons = np.asarray(result["counts"]).mean(1), width * setting.depth
        row: dict[str, Any] = {"width": width, "neurons": neurons, "networks": setting.networks}
        row["regions"], row["regions_error"] = mean_and_error(counts)
        row["regions_per_neurons_squared"] = row["regions"] / neurons**2
        row["regions_per_neurons_squared_error"] = row["regions_error"] / neurons**2
        row["lines_in_general_position"] = arrangement_regions(neurons, 2)
        row["euler_least"], row["euler_most"] = (int(f(result["euler"])) for f in (np.min, np.max))
        row["largest_area_error"] = float(np.abs(result["area_error"]).max())
        rows.append(row)
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 3.3: as many regions as neurons squared, in order of magnitude; and the free checks."""
    rows = table(setting, results)
    neurons, mean, error = (
        np.array([row[name] for row in rows], dtype=float) for name in ("neurons", "regions", "regions_error")
    )
    names = [f"{row['neurons']} neurons" for row in rows]
    exponent, exponent_error = fitted_exponent(neurons, mean, error)
    drawn = results[setting.widths.index(setting.drawn)]
    lines = np.array([row["lines_in_general_position"] for row in rows], dtype=float)
    return [
        between(
            "the number of regions grows as the number of neurons squared (exponent)",
            [exponent], [exponent_error], [2 - EXPONENT], [2 + EXPONENT], setting.networks * len(rows), ["all widths"],
        ),
        between(
            f"it is within a factor {ORDER:g} of the number of neurons squared", mean / neurons**2, error / neurons**2,
            1 / ORDER, ORDER, setting.networks, names,
        ),
        at_most(
            "it is at most that of as many lines in general position, 1 + N + N(N - 1)/2", mean, error, lines,
            setting.networks, names,
        ),
        exact(
            "no two regions of the network that is drawn have one pattern", bool(drawn["distinct"]),
            f"{int(np.asarray(drawn['counts'])[0, 0])} regions, {int(drawn['linear'])} of them linear regions",
        ),
        checks(results),
    ]  # fmt: skip


def checks(results: Results) -> Claim:
    """Euler's relation and the areas, of all partitions."""
    euler = np.concatenate([np.asarray(one["euler"]).ravel() for one in results])
    area = max(float(np.abs(one["area_error"]).max()) for one in results)
    return exact(
        "vertices - edges + cells = 1, and the areas add up to the square",
        bool((euler == 1).all()) and area < EXACT,
        f"{len(euler)} partitions; areas are off by at most {area:.1e} of the square", {"area_error": area},
    )  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """The regions of one network, large, and how their number grows with the neurons."""
    picture, panels = plots.figure(11.0, 6.2, mosaic=[["plane", "count"]], width_ratios=[1.45, 1.0])
    drawn = results[setting.widths.index(setting.drawn)]
    plane(panels["plane"], drawn, "0")
    cells = len(np.asarray(drawn["cell_ends_0"])) - 1
    panels["plane"].set_title(f"{setting.depth} hidden layers of {setting.drawn}: {cells:,} regions in this square")
    axes, rows = panels["count"], table(setting, results)
    x, y, error = ([row[name] for row in rows] for name in ("neurons", "regions", "regions_error"))
    plots.points(axes, x, y, error, 0, "measured, mean")
    plots.curve(axes, x, [row["lines_in_general_position"] for row in rows], 1, "lines in general position",
                linestyle="--")  # fmt: skip
    shape = np.array(x, dtype=float) ** 2
    axes.plot(x, y[0] / shape[0] * shape, color=plots.BOUND, linestyle=":", label="in proportion to neurons squared")
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="regions in the square")
    axes.set_xticks(x, [str(one) for one in x])
    axes.minorticks_off()
    axes.legend()
    return picture


def plane(axes: "Axes", result: Mapping[str, Any], name: str) -> None:
    """Cells in the colours of their patterns, with thin edges, and the three examples."""
    from matplotlib.collections import PolyCollection

    vertices, of, ends, colours, examples, window = (
        np.asarray(result[f"{part}_{name}"])
        for part in ("vertices", "cell_vertices", "cell_ends", "colours", "examples", "window")
    )
    corners = np.split(vertices[of], ends[1:-1])
    axes.add_collection(
        PolyCollection(corners, facecolors=colours, edgecolors="#333333", linewidths=0.12, rasterized=True)
    )
    axes.plot(*examples.T, linestyle="none", marker="o", color="black", markersize=4, markeredgecolor="white",
              clip_on=False, zorder=3)  # fmt: skip
    low, high = window.min(0), window.max(0)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal",
             xlabel="in the plane of three examples (dots)", ylabel="")  # fmt: skip
    axes.grid(False)


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"{DATA.get(setting.data, setting.data)}; {setting.networks} networks before training for each width, "
        f"{setting.planes} planes each, through one example of 0, 1 and 2; bars: two standard errors"
    )


DATA = {"digits": "digits, 8 x 8", "mnist": "MNIST"}
