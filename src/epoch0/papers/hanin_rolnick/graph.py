"""Hanin-Rolnick Figure 4 (section 2.1): the graph of a network from R to R at initialization, with its break points."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from epoch0 import plots, regions
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import Claim, at_most, between, equal_within_error, exact, fitted_exponent
from epoch0.experiments.experiment import Trial
from epoch0.networks import ensemble
from epoch0.papers.catalogue import Results
from epoch0.papers.hanin_rolnick.runs import BIAS_STD
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

EXPONENT = 0.05
"""Pieces are proportional to neurons if the fitted exponent is this near to 1."""

PER_NEURON = 1.5
"""Pieces a neuron that are still "proportional to the number of neurons"."""

RESOLUTION = 0.1
"""Depths agree if a relative difference of this size would have been seen and was not."""


_LINEAR = 10
"""Networks whose linear regions are counted beside the activation regions."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        depths: numbers of hidden layers.
        widths: of all hidden layers of a network.
        networks: how many of each architecture.
        drawn: depth and width of the network that is drawn.
    """

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    networks: int
    drawn: tuple[int, int] = (3, 32)

    def shapes(self) -> list[tuple[int, int]]:
        """Depth and width of every architecture."""
        return [(depth, width) for depth in self.depths for width in self.widths]


@dataclass(frozen=True)
class GraphSpec:
    """Networks from R to R.

    Attributes:
        depth: number of hidden layers.
        width: of each.
        networks: how many.
    """

    depth: int
    width: int
    networks: int


def pieces(spec: GraphSpec, seed: int) -> dict[str, Any]:
    """Count the pieces of the networks on the whole real line, and give the graph of the first.

    Returns:
        ``count``: activation regions, (networks,); ``linear``: linear regions of the first networks. Of the first
        network: ``t``, its break points; ``layer``, which hidden layer made each, from 1; ``knots`` and ``values``, its
        graph from beyond the first break point to beyond the last.
    """
    torch.set_num_threads(1)
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    sizes = [1, *[spec.width] * spec.depth, 1]
    nets = list(ensemble(spec.networks, sizes, biases=Gaussian(BIAS_STD), seed=seed, dtype=torch.float64))
    found = [regions.on_line(net, zero, one, kind="line") for net in nets]
    first = found[0]
    t = first.breakpoints  # type: ignore[union-attr]
    far = 1.1 * np.abs(t).max()
    knots = np.concatenate([[-far], t, [far]])
    with torch.no_grad():
        values = nets[0](torch.from_numpy(knots)[:, None])[:, 0].numpy()
    return {
        "count": np.array([p.count for p in found], dtype=np.float64),
        "linear": np.array([p.linear_count for p in found[:_LINEAR]], dtype=np.float64),  # type: ignore[union-attr]
        "t": t,
        "layer": first.owner_layer.astype(np.float64) + 1,  # type: ignore[union-attr]
        "knots": knots,
        "values": values,
    }


def trials(setting: Setting) -> list[Trial]:
    """One an architecture."""
    function = "epoch0.papers.hanin_rolnick.graph:pieces"
    specs = [GraphSpec(depth, width, setting.networks) for depth, width in setting.shapes()]
    return [Trial(function, spec, seed) for seed, spec in enumerate(specs)]


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row an architecture."""
    rows = []
    for (depth, width), result in zip(setting.shapes(), results, strict=True):
        neurons = depth * width
        count, linear = (np.asarray(result[name]) for name in ("count", "linear"))
        row: dict[str, Any] = {"depth": depth, "width": width, "neurons": neurons, "networks": setting.networks}
        row["pieces"], row["pieces_error"] = mean_and_error(count)
        row["pieces_per_neuron"], row["pieces_per_neuron_error"] = mean_and_error(count / neurons)
        row["breaks_per_neuron"], row["breaks_per_neuron_error"] = mean_and_error((count - 1) / neurons)
        row["linear_pieces"], row["linear_pieces_error"] = mean_and_error(linear)
        row["most_pieces"] = int(count.max())
        row["log2_bound"] = neurons
        rows.append(row)
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 2.1: as many pieces as neurons, whatever their arrangement, and nothing like 2^neurons."""
    rows = table(setting, results)
    neurons, mean, error = (
        np.array([row[name] for row in rows], dtype=float) for name in ("neurons", "pieces", "pieces_error")
    )
    names = [f"depth {row['depth']}, width {row['width']}" for row in rows]
    # a single hidden layer has exactly one break point a neuron: no error, and no information for a fit with errors
    deep = np.array([row["depth"] > 1 for row in rows])
    exponent, exponent_error = fitted_exponent(neurons[deep], mean[deep], error[deep])
    largest = max(setting.widths)
    same = [row for row in rows if row["width"] == largest]
    worst = max(rows, key=lambda row: row["most_pieces"] / row["neurons"])
    return [
        between(
            "the mean number of pieces grows in proportion to the number of neurons (exponent)",
            [exponent], [exponent_error], [1 - EXPONENT], [1 + EXPONENT], setting.networks * int(deep.sum()),
            ["networks of two layers and more"],
        ),
        at_most(
            f"there are at most {PER_NEURON:g} pieces a neuron", mean / neurons, error / neurons, PER_NEURON,
            setting.networks, names,
        ),
        equal_within_error(
            f"break points a neuron, all pieces but one, do not depend on the depth (width {largest})",
            [[row["breaks_per_neuron"] for row in same]], [[row["breaks_per_neuron_error"] for row in same]],
            setting.networks, resolution=RESOLUTION, settings=[f"width {largest}"],
            groups=[f"depth {row['depth']}" for row in same],
        ),
        exact(
            "no network has anything like 2^neurons pieces",
            all(row["most_pieces"] < 2 ** (row["neurons"] / 2) for row in rows if row["neurons"] >= 16),
            f"most a neuron at depth {worst['depth']}, width {worst['width']}: {worst['most_pieces']} pieces of "
            f"{worst['neurons']} neurons, which could be 2^{worst['neurons']}",
            {"most_pieces": float(worst["most_pieces"]), "neurons": float(worst["neurons"])},
        ),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """The graph of one network, its middle enlarged, and the number of pieces against neurons."""
    picture, panels = plots.figure(11.0, 4.2, mosaic=[["all", "middle", "count"]])
    drawn = results[setting.shapes().index(setting.drawn)]
    t = np.asarray(drawn["t"])
    inner = float(np.quantile(np.abs(t), 0.8)) * 1.1
    for name in ("all", "middle"):
        _graph(panels[name], setting, drawn, inner if name == "middle" else None)
    depth, width = setting.drawn
    panels["all"].set_title(f"one network, depth {depth}, width {width}: {len(t) + 1} pieces", fontsize=9.5)
    panels["middle"].set_title("the same, its middle", fontsize=9.5)
    panels["all"].set_ylabel("output")
    panels["all"].legend(fontsize=7.5)
    axes = panels["count"]
    rows = table(setting, results)
    for index, one in enumerate(setting.depths):
        mine = [row for row in rows if row["depth"] == one]
        x, y, error = ([row[name] for row in mine] for name in ("neurons", "pieces", "pieces_error"))
        size = 4.0 + 2.5 * (len(setting.depths) - 1 - index)  # around each other where neurons are as many
        plots.points(axes, x, y, error, index, f"depth {one}", markersize=size, markerfacecolor="none")
    neurons = sorted({row["neurons"] for row in rows})
    axes.plot(neurons, neurons, ":", color=plots.BOUND, label="one a neuron")
    few = np.linspace(min(neurons), 12, 50)
    axes.plot(few, 2.0**few, "--", color=plots.BOUND, label=r"$2^{\mathrm{neurons}}$")
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="pieces on the whole line")
    axes.set_title(f"{setting.networks} networks each", fontsize=9.5)
    axes.legend()
    return picture


def _graph(axes: "Axes", setting: Setting, drawn: Any, limit: float | None) -> None:
    """The graph with its break points, coloured by the layer that makes them."""
    knots, values, t, layer = (np.asarray(drawn[name]) for name in ("knots", "values", "t", "layer"))
    axes.plot(knots, values, color="black", linewidth=1.0, zorder=1.5)
    for index in range(setting.drawn[0]):
        mine = layer == index + 1
        axes.plot(
            t[mine], np.interp(t[mine], knots, values), linestyle="none", marker=plots.MARKERS[index], markersize=3.2,
            color=plots.COLOURS[index], label=f"made by layer {index + 1} ({int(mine.sum())})",
        )  # fmt: skip
    axes.ticklabel_format(style="sci", scilimits=(-2, 2), useMathText=True)
    axes.set_xlabel("input")
    if limit is not None:
        inside = np.abs(knots) <= limit
        shown = np.concatenate([values[inside], np.interp([-limit, limit], knots, values)])
        margin = 0.06 * np.ptp(shown)
        axes.set(xlim=(-limit, limit), ylim=(shown.min() - margin, shown.max() + margin))


def about(setting: Setting) -> str:
    """The setting in one line."""
    return f"He's weights, biases of standard deviation {BIAS_STD:g}; bars: two standard errors"
