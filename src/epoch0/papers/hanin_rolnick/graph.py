"""Hanin-Rolnick Figure 4 (section 2.1): the graph of a network from R to R at initialization, with its break points."""

from typing import Any

import numpy as np
import torch

from epoch0 import plots, regions
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_most, exact
from epoch0.networks import ensemble
from epoch0.papers.hanin_rolnick.trained import BIAS_STD
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Claims, Table, by, power

EXPONENT = 0.05  # pieces are proportional to neurons if the fitted exponent is this near to 1
PER_NEURON = 1.5  # pieces a neuron that are still "proportional to the number of neurons"
MOST = 2  # the same of the network that has most
RESOLUTION = 0.1  # depths agree if they differ by less than this, relatively
DRAWN = {"depth": 3, "width": 32}
_LINEAR = 10  # networks whose linear regions are counted beside the activation regions


def pieces(spec: Spec, seed: int) -> dict[str, Any]:
    """Count the pieces of networks on the real line (``linear`` ones of the first few), and graph the first.

    ``t`` are its break points, ``layer`` which hidden layer made each; ``knots`` and ``values`` reach beyond them.
    """
    torch.set_num_threads(1)
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    sizes = [1, *[spec.width] * spec.depth, 1]
    nets = list(ensemble(spec.networks, sizes, biases=Gaussian(BIAS_STD), seed=seed, dtype=torch.float64))
    found: list[Any] = [regions.on_line(net, zero, one, kind="line") for net in nets]
    t, layer = found[0].breakpoints, found[0].owner_layer + 1.0
    far = 1.1 * np.abs(t).max()
    knots = np.concatenate([[-far], t, [far]])
    with torch.no_grad():
        values = nets[0](torch.from_numpy(knots)[:, None])[:, 0].numpy()
    count, linear = [one.count for one in found], [one.linear_count for one in found[:_LINEAR]]
    numbers = {"count": np.array(count, dtype=np.float64), "linear": np.array(linear, dtype=np.float64)}
    return {**numbers, "t": t, "layer": layer, "knots": knots, "values": values}


def table(found: Found) -> Table:
    """One row an architecture."""

    def measured(cell: Cell) -> dict[str, Any]:
        (count,), (linear,), neurons = cell["count"], cell["linear"], cell.spec.depth * cell.spec.width
        each = {"pieces": count, "pieces_per_neuron": count / neurons, "breaks_per_neuron": (count - 1) / neurons}
        return {**each, "linear_pieces": linear}

    def beside(cell: Cell) -> dict[str, Any]:
        neurons = cell.spec.depth * cell.spec.width
        return {"neurons": neurons, "most_pieces": int(cell["count"].max()), "log2_bound": neurons}

    return found.rows(measured, beside)


def claims(found: Found) -> Claims:
    """Section 2.1: as many pieces as neurons, whatever their arrangement, and nothing like 2^neurons."""
    rows = found.table
    neurons, mean, error, depth, count = rows.of("neurons", "pieces", "pieces_error", "depth", "runs")
    # a single hidden layer has exactly one break point a neuron: no error, and no information for a fit with errors
    deep = depth > 1
    same = "break points a neuron, all pieces but one, do not depend on the depth"
    worst = max(rows, key=lambda row: row["most_pieces"] / row["neurons"])
    numbers = {name: float(worst[name]) for name in ("most_pieces", "neurons")}
    few = worst["most_pieces"] <= MOST * worst["neurons"]
    told = "most at depth {depth}, width {width}: {most_pieces} pieces of {neurons} neurons, which could be 2^{neurons}"
    return {
        "with two layers and more the mean number of pieces is proportional to the number of neurons (exponent)": power(
            neurons[deep], mean[deep], error[deep], count[deep], 1.0, EXPONENT, "networks of two layers and more"
        ),
        f"there are at most {PER_NEURON:g} pieces a neuron": by(
            at_most, mean / neurons, error / neurons, PER_NEURON, count, rows.told("depth {depth}, width {width}")
        ),
        same: rows.alike("breaks_per_neuron", "depth", "depth {depth}", "width {width}", resolution=RESOLUTION),
        f"no network has anything like 2^neurons pieces: at most {MOST:g} a neuron": by(
            exact, few, told.format_map(worst), numbers
        ),
    }


def draw(found: Found) -> plots.Figure:
    """The graph of one network, where most of its break points are, and the number of pieces against neurons."""
    picture, (left, axes) = plots.figure(9.0, 4.2, columns=2)
    drawn, depths = (found.where(**DRAWN) or found.cells)[-1], found.sweep["depth"]
    _graph(left, drawn)
    what = "one network, depth {depth}, width {width}".format_map(drawn.at)
    left.set_title(f"{what}: {len(drawn['t'][0]) + 1} pieces", fontsize=9.5)
    for index, (depth, rows) in enumerate(found.table.by("depth")):
        hollow: dict[str, Any] = {
            "markersize": 4.0 + 2.5 * (len(depths) - 1 - index),
            "markerfacecolor": "none",
        }  # around each other
        plots.means(axes, rows, "neurons", "pieces", index, f"depth {depth}", **hollow)
    neurons = sorted({row["neurons"] for row in found.table})
    axes.plot(neurons, neurons, ":", color=plots.BOUND, label="one a neuron")
    few = np.linspace(min(neurons), 12, 50)
    axes.plot(few, 2.0**few, "--", color=plots.BOUND, label=r"$2^{\mathrm{neurons}}$")
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="pieces on the whole line")
    axes.set_title(f"{found.sweep['networks']} networks each", fontsize=9.5)
    axes.legend()
    return picture


def _graph(axes: plots.Axes, drawn: Cell) -> None:
    """The middle of the graph with its break points, coloured by the layer that makes them."""
    knots, values, t, layer = (drawn[name][0] for name in ("knots", "values", "t", "layer"))
    limit = 1.1 * float(np.quantile(np.abs(t), 0.8))
    axes.plot(knots, values, color="black", linewidth=1.0, zorder=1.5)
    for index in range(drawn.spec.depth):
        own, marker, colour = t[layer == index + 1], plots.MARKERS[index], plots.COLOURS[index]
        label = f"made by layer {index + 1} ({len(own)})"
        axes.plot(own, np.interp(own, knots, values), marker, color=colour, markersize=3.2, label=label)
    shown = np.concatenate([values[np.abs(knots) <= limit], np.interp([-limit, limit], knots, values)])
    margin = 0.06 * np.ptp(shown)
    axes.set(xlim=(-limit, limit), ylim=(shown.min() - margin, shown.max() + margin), xlabel="input", ylabel="output")
    axes.legend(fontsize=7.5)


_PAPER = Sweep(pieces, Spec(networks=400), {"depth": (1, 2, 3, 5), "width": (8, 16, 32, 64)}, stride=1)
_PRESETS = {"quick": _PAPER.but(width=(8, 16, 32), networks=60), "paper": _PAPER}
_ABOUT = f"He's weights, biases of standard deviation {BIAS_STD:g}; bars: two standard errors"
_TITLE = "The graph of a network from R to R at initialization"
ARTIFACTS = (Artifact("hanin-rolnick/fig4", _TITLE, "section 2.1", _PRESETS, table, claims, draw, _ABOUT),)
