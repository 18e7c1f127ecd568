"""Hanin-Rolnick Figures 1 and 8 (section 3.3): the regions in a plane through three examples, and through training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most, between, exact, fitted_exponent
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.hanin_rolnick.architectures import turn
from epoch0.papers.hanin_rolnick.slices_trial import RandomSpec, TrainedSpec
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

_ROOM = "epoch0.papers.hanin_rolnick.slices_trial"


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


@dataclass(frozen=True)
class TrainingSetting:
    """One preset of Figure 8.

    Attributes:
        spec: what is trained and measured.
        runs: how many networks.
    """

    spec: TrainedSpec
    runs: int


def trials(setting: Setting) -> list[Trial]:
    """One a width."""
    specs = [
        RandomSpec(setting.data, setting.depth, width, setting.networks, setting.planes, width == setting.drawn)
        for width in setting.widths
    ]
    return [Trial(f"{_ROOM}:random_slices", spec, 0) for spec in specs]


def training_trials(setting: TrainingSetting) -> list[Trial]:
    """One a network."""
    return [Trial(f"{_ROOM}:trained_slices", setting.spec, seed) for seed in range(setting.runs)]


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
            [exponent], [exponent_error], [2 - EXPONENT], [2 + EXPONENT], settings=["all widths"],
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
        _checks(results),
    ]  # fmt: skip


def _checks(results: Results) -> Claim:
    euler = np.concatenate([np.asarray(one["euler"]).ravel() for one in results])
    area = max(float(np.abs(one["area_error"]).max()) for one in results)
    return exact(
        "vertices - edges + cells = 1, and the areas add up to the square",
        bool((euler == 1).all()) and area < EXACT,
        f"{len(euler)} partitions; areas are off by at most {area:.1e} of the square", {"area_error": area},
    )  # fmt: skip


def training_table(setting: TrainingSetting, results: Results) -> list[dict[str, Any]]:
    """One row an epoch: regions in a plane, and accuracy, with errors over networks."""
    epoch, counts, accuracy = _gathered(results)
    neurons = setting.spec.depth * setting.spec.width
    rows = []
    for place, when in enumerate(epoch.tolist()):
        row: dict[str, Any] = {"epoch": when, "networks": setting.runs}
        row["regions"], row["regions_error"] = mean_and_error(counts[:, place])
        row["regions_per_neurons_squared"] = row["regions"] / neurons**2
        row["accuracy"], row["accuracy_error"] = mean_and_error(accuracy[:, place])
        rows.append(row)
    return rows


def training_claims(setting: TrainingSetting, results: Results) -> list[Claim]:
    """Section 3.3: the regions expand at first and then contract; their number stays of the order neurons squared."""
    epoch, counts, _ = _gathered(results)
    neurons = setting.spec.depth * setting.spec.width
    fall, rise, places = turn(counts, lowest=True)
    when = [f"lowest near epoch {epoch[max(places)]:.2g}"]
    mean, error = mean_and_error(counts / neurons**2)
    names = [f"epoch {one:.2g}" for one in epoch]
    (down, down_error), (up, up_error) = mean_and_error(fall), mean_and_error(rise)
    return [
        at_least("the number of regions falls in the initial part of training", [down], [down_error], 0.0,
                 setting.runs, when),
        at_least("... and then rises until the end", [up], [up_error], 0.0, setting.runs, when),
        between(
            f"it stays within a factor {ORDER:g} of the number of neurons squared", mean, error, 1 / ORDER, ORDER,
            setting.runs, names,
        ),
        _checks(results),
    ]  # fmt: skip


def _gathered(results: Results) -> tuple[Array, Array, Array]:
    """Epochs; mean regions a plane and accuracy, (networks, epochs)."""
    epoch = np.asarray(results[0]["epoch"])
    counts = np.stack([np.asarray(one["counts"]).mean(1) for one in results])
    return epoch, counts, np.stack([np.asarray(one["accuracy"]) for one in results])


def draw(setting: Setting, results: Results) -> "Figure":
    """The regions of one network, large, and how their number grows with the neurons."""
    picture, panels = plots.figure(11.0, 6.2, mosaic=[["plane", "count"]], width_ratios=[1.45, 1.0])
    drawn = results[setting.widths.index(setting.drawn)]
    _plane(panels["plane"], drawn, "0")
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


def draw_training(setting: TrainingSetting, results: Results) -> "Figure":
    """One plane at several epochs, a cell in one colour as long as its pattern survives; below, all counts."""
    names = [str(index) for index in range(len(setting.spec.drawn))]
    width = 3.1 * len(names)
    picture, panels = plots.figure(
        width, 6.4, mosaic=[names, ["count"] * len(names)], height_ratios=[width / len(names) / 2.6, 1.0]
    )
    for name, when in zip(names, setting.spec.drawn, strict=True):
        _plane(panels[name], results[0], name)
        accuracy = float(np.asarray(results[0]["accuracy"])[setting.spec.at.index(when)])
        cells = len(np.asarray(results[0][f"cell_ends_{name}"])) - 1
        told = f"epoch {when:g}" if when else "before training"
        panels[name].set_title(f"{told}: {cells:,} regions,\ntest accuracy {accuracy:.1%}", fontsize=9)
        panels[name].tick_params(labelsize=7)
        panels[name].set_xlabel("in the plane of three examples", fontsize=8)
    axes = panels["count"]
    epoch, counts, _ = _gathered(results)
    for each in counts:
        axes.plot(epoch, each, color=plots.COLOURS[0], linewidth=0.5, alpha=0.5)
    mean, error = mean_and_error(counts)
    label = f"mean over {setting.runs} networks of {setting.spec.planes} planes each"
    plots.points(axes, epoch.tolist(), mean.tolist(), error.tolist(), 0, label, linestyle="-")
    neurons = setting.spec.depth * setting.spec.width
    axes.axhline(neurons**2 / ORDER, color=plots.BOUND, linestyle=":", label=f"neurons squared / {ORDER:g}")
    axes.set_xscale("symlog", linthresh=1.0)
    ticks = [0, 1, *[tick for tick in (2, 5, 10, 20, 50) if tick < epoch[-1]], epoch[-1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="epoch (logarithmic from 1 on)", ylabel="regions in the square", xlim=(-0.05, None))
    axes.legend()
    return picture


def _plane(axes: "Axes", result: Mapping[str, Any], name: str) -> None:
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
        f"{_DATA.get(setting.data, setting.data)}; {setting.networks} networks before training for each width, "
        f"{setting.planes} planes each, through one example of 0, 1 and 2; bars: two standard errors"
    )


def training_about(setting: TrainingSetting) -> str:
    """The setting in one line."""
    spec = setting.spec
    return (
        f"{_DATA.get(spec.data, spec.data)}; {setting.runs} networks of {spec.depth} hidden layers of {spec.width}, "
        f"Adam {spec.learning_rate:g}, batches of {spec.batch_size}; planes through one example of 0, 1 and 2 (dots); "
        "bars: two standard errors"
    )


_DATA = {"digits": "digits, 8 x 8", "mnist": "MNIST"}
