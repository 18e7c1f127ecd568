"""Hanin-Rolnick Figures 3, 4 (section 2.1): graphs of networks from R to R: at initialization, and a sawtooth."""

from typing import Any

import numpy as np
import torch

from epoch0 import plots, regions
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_most, check, exact, increasing
from epoch0.networks import ensemble
from epoch0.networks.constructions import sawtooth
from epoch0.papers.hanin_rolnick.trained import BIAS_STD
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Decision, Mean, Table, by, mean_and_error
from epoch0.seeds import generator

EXPONENT = 0.05  # pieces are proportional to neurons if the fitted exponent is this near to 1
PER_NEURON = 1.5  # pieces a neuron that are still "proportional to the number of neurons"
MOST = 2  # the same of the network that has most
RESOLUTION = 0.1  # depths agree if they differ by less than this, relatively
DRAWN = {"depth": 3, "width": 32}
_LINEAR = 10  # networks whose linear regions are counted beside the activation regions


def pieces(spec: Spec, seed: int) -> dict[str, Any]:
    """``count`` of the pieces of networks on the real line, ``linear`` ones of the first few; and the graph of the
    first: break points ``t``, the hidden ``layer`` of each, and ``knots``, beyond them too, with ``values``.
    """
    ends, sizes = torch.tensor([[0.0], [1.0]], dtype=torch.float64), [1, *[spec.width] * spec.depth, 1]
    nets = list(ensemble(spec.networks, sizes, biases=Gaussian(BIAS_STD), seed=seed, dtype=torch.float64))
    found: list[Any] = [regions.on_line(net, *ends, kind="line") for net in nets]
    t, layer = found[0].breakpoints, found[0].owner_layer + 1.0
    graph = _values(nets[0], -1.1 * np.abs(t).max(), t, 1.1 * np.abs(t).max())
    count, linear = [float(item.count) for item in found], [float(item.linear_count) for item in found[:_LINEAR]]
    return {"count": np.array(count), "linear": np.array(linear), "t": t, "layer": layer, **graph}


def _values(net: torch.nn.Module, start: float, breaks: Array, end: float) -> dict[str, Array]:
    knots = np.concatenate([[start], breaks, [end]])
    with torch.no_grad():
        return {"knots": knots, "values": net(torch.from_numpy(knots)[:, None])[:, 0].numpy()}


@by_cell
def table(cell: Cell) -> Any:
    count, neurons = cell["count"][0], cell.spec.depth * cell.spec.width
    each = {"pieces": count, "pieces_per_neuron": count / neurons, "breaks_per_neuron": (count - 1) / neurons}
    beside = {"neurons": neurons, "most_pieces": int(count.max()), "log2_bound": neurons}
    return {**each, "linear_pieces": cell["linear"][0]}, beside


def claims(found: Found) -> Claims:
    rows = found.table
    # a single hidden layer has exactly one break point a neuron: no error, nothing to fit, nothing to fail
    deep = Table(row for row in rows if row["depth"] > 1)
    grow = "with two layers and more the mean number of pieces is proportional to the number of neurons (exponent)"
    few = deep.claim(at_most, "pieces_per_neuron", PER_NEURON, names="depth {depth}, width {width}")
    same = "break points a neuron, all pieces but one, do not depend on the depth"
    worst = max(rows, key=lambda row: row["most_pieces"] / row["neurons"])
    numbers = {name: float(worst[name]) for name in ("most_pieces", "neurons")}
    holds, nothing = worst["most_pieces"] <= MOST * worst["neurons"], "no network has anything like 2^neurons pieces"
    text = "most at depth {depth}, width {width}: {most_pieces} pieces of {neurons} neurons, which could be 2^{neurons}"
    return {
        grow: deep.power("neurons", "pieces", 1.0, EXPONENT, "networks of two layers and more"),
        f"with two layers and more there are at most {PER_NEURON:g} pieces a neuron": few,
        same: rows.alike("breaks_per_neuron", "depth", "depth {depth}", "width {width}", resolution=RESOLUTION),
        f"{nothing}: at most {MOST:g} a neuron": by(exact, holds, text.format_map(worst), numbers),
    }


@plots.drawn(9.0, 4.2, columns=2)
def draw(found: Found, panels: Any) -> None:
    (left, axes), drawn, depths = panels, (found.where(**DRAWN) or found.cells)[-1], found.sweep["depth"]
    knots, values, t, layer = (drawn[name][0] for name in ("knots", "values", "t", "layer"))
    limit = 1.1 * float(np.quantile(np.abs(t), 0.8))
    left.plot(knots, values, color="black", linewidth=1.0, zorder=1.5)
    for index in range(drawn.spec.depth):
        own, marker, colour = t[layer == index + 1], plots.MARKERS[index], plots.COLOURS[index]
        label = f"made by layer {index + 1} ({len(own)})"
        left.plot(own, np.interp(own, knots, values), marker, color=colour, markersize=3.2, label=label)
    shown = np.concatenate([values[np.abs(knots) <= limit], np.interp([-limit, limit], knots, values)])
    margin = 0.06 * np.ptp(shown)
    left.set(xlim=(-limit, limit), ylim=(shown.min() - margin, shown.max() + margin), xlabel="input", ylabel="output")
    left.legend(fontsize=7.5)
    title = "one network, depth {depth}, width {width}".format_map(drawn.at)
    left.set_title(f"{title}: {len(drawn['t'][0]) + 1} pieces", fontsize=9.5)
    for index, (depth, rows) in enumerate(found.table.by("depth")):
        size = 4.0 + 2.5 * (len(depths) - 1 - index)  # around each other
        plots.means(axes, rows, "neurons", "pieces", index, f"depth {depth}", markersize=size, markerfacecolor="none")
    neurons = sorted({row["neurons"] for row in found.table})
    axes.plot(neurons, neurons, ":", color=plots.BOUND, label="one a neuron")
    few = np.linspace(min(neurons), 12, 50)
    axes.plot(few, 2.0**few, "--", color=plots.BOUND, label=r"$2^{\mathrm{neurons}}$")
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="pieces on the whole line")
    axes.set_title(f"{found.sweep['networks']} networks each", fontsize=9.5)
    axes.legend()


_SHAPES = Sweep(pieces, Spec(networks=400), {"depth": (1, 2, 3, 5), "width": (8, 16, 32, 64)}, stride=1)
_PRESETS = _SHAPES.presets(width=(8, 16, 32), networks=60)
_ABOUT = f"depth {{depth}}, width {{width}}, He's weights, bias std {BIAS_STD:g}; {{networks}} networks of each"
_TITLE = "The graph of a network from R to R at initialization"
ARTIFACTS: tuple[Artifact, ...] = (
    Artifact("hanin-rolnick/fig4", _TITLE, "section 2.1", _PRESETS, table, claims, draw, _ABOUT),
)


# ---- Figure 3: Telgarsky's sawtooth, and what is left of its pieces when weights and biases are disturbed
# The paper does not print its noise: here Gaussian noise of one standard deviation is added to every weight and bias.
# The weights of the sawtooth are 2 and 4 in size, its biases 1.
# standard deviations at which "most" pieces should be gone: a twentieth of the smallest weight, and variance 0.1
NOISES = (0.1, 0.3)
SAWTOOTH_MOST = 0.5  # noise destroys most of the pieces if it leaves at most this share of them


def sawtooth_pieces(spec: Spec, seed: int) -> dict[str, Any]:
    """``linear`` and activation regions (``count``) on [0, 1], (networks,); ``knots`` and ``values`` of the first."""
    nets = [disturbed(spec, seed, network) for network in range(spec.networks)]
    found: list[Any] = [regions.on_line(net, *torch.tensor([[0.0], [1.0]], dtype=torch.float64)) for net in nets]
    linear, count = np.array([[float(item.linear_count), float(item.count)] for item in found]).T
    return {"linear": linear, "count": count, **_values(nets[0], 0.0, found[0].breakpoints, 1.0)}


def disturbed(spec: Spec, seed: int, network: int) -> torch.nn.Module:
    """The sawtooth in float64 with noise on every weight and bias; the same draw for every size of the noise."""
    net, source = sawtooth(spec.depth, dtype=torch.float64), generator(seed, network)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(spec.noise * torch.randn(parameter.shape, generator=source, dtype=torch.float64))
    return net


def sawtooth_table(found: Found) -> Table:
    def row(cell: Cell) -> Any:
        depth, noise, count = cell.spec.depth, cell.spec.noise, cell.spec.networks
        each = {"pieces": mean_and_error(cell["linear"][0]), "activation_regions": mean_and_error(cell["count"][0])}
        beside = {"depth": depth, "noise": noise, "runs": count, "neurons": 2 * depth, "without_noise": 2**depth}
        beside["most_pieces"] = int(cell["linear"].max())
        return {name: Mean(mean, error if count > 1 else 0.0) for name, (mean, error) in each.items()}, beside

    return Table([*found.rows(row), *found.also["noisy"].rows(row)])


def sawtooth_claims(found: Found) -> Claims:
    whole, noisy = found.table.where(noise=0.0), found.table.where(noise=found.also["noisy"].sweep["noise"])
    wrong = [row["depth"] for row in whole if row["pieces"] != row["without_noise"]]
    mean, error, noise, count = noisy.of("pieces", "pieces_error", "noise", "runs")
    total = whole[-1]["without_noise"]
    lost = [0.0, *(total - mean)], [0.0, *error], count[0], ["no noise", *noisy.labels("noise {noise:g}")]
    detail = f"{', '.join(whole.labels('{pieces:g}'))} pieces from {', '.join(whole.labels('{neurons}'))} neurons"
    text = "without noise there are exactly 2^n linear pieces, 2^(n-1) teeth, from n layers of two neurons"
    decided: dict[str, Decision] = {text: by(check, not wrong, detail, {"wrong": len(wrong)})}
    for size in NOISES:
        share = mean[noise == size] / total, error[noise == size] / total
        text = f"noise of standard deviation {size:g} leaves at most half of the pieces"
        decided[text] = by(at_most, *share, SAWTOOTH_MOST, count[0], [f"noise {size:g}"])
    return {**decided, "the larger the noise the more pieces are lost": by(increasing, *lost)}


def sawtooth_draw(found: Found) -> plots.Figure:
    noisy, whole = found.also["noisy"], found.cells[-1]
    cells = {"0": whole, **{f"{noise:g}": noisy.one(noise=noise) for noise in NOISES}}
    picture, panels = plots.figure(11.0, 4.6, mosaic=[[name, "count"] for name in cells], width_ratios=[1.5, 1.0])
    for index, (name, cell) in enumerate(cells.items()):
        axes = panels[name]
        axes.plot(cell["knots"][0], cell["values"][0], color=plots.COLOURS[index], linewidth=0.9)
        title = f"noise {name}" if index else f"{whole.spec.depth} layers of 2 neurons"
        axes.set_title(f"{title}: {int(cell['linear'][0, 0])} pieces", fontsize=9)
        axes.set(xlim=(0, 1), xlabel="input" * (index == 2), ylabel="output" * (index == 1))
        axes.tick_params(labelbottom=index == 2)
    rows, axes, total = found.table.where(noise=noisy.sweep["noise"]), panels["count"], 2**whole.spec.depth
    axes.axhline(total, color=plots.BOUND, linestyle="--", label=f"without noise: {total}")
    axes.axhline(2 * whole.spec.depth + 1, color=plots.BOUND, linestyle=":", label="neurons + 1")
    label = rows.labels("mean of {runs} networks")[0]
    plots.means(axes, rows, "noise", "pieces", 0, label, linestyle="-", linewidth=0.8)
    axes.set(xscale="log", yscale="log", ylabel="linear pieces on [0, 1]")
    axes.set_xlabel("standard deviation of the noise on weights and biases")
    least, most = rows.column("pieces").min(), rows.column("pieces").max()
    plots.ticks(axes, [y for y in (1, 2, 5, 10, 20, 50, 100, 200, 500) if least / 2 < y < 2 * most], "y")
    axes.legend(loc="lower left")
    return picture


def sawtooths(depths: tuple[int, ...], networks: int) -> Sweep:
    noises = {"noise": (0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)}
    noisy = Sweep(sawtooth_pieces, Spec(depth=depths[-1], networks=networks), noises, stride=1)
    return Sweep(sawtooth_pieces, Spec(noise=0.0, networks=1), {"depth": depths}, also={"noisy": noisy})


_SAWTOOTH_ABOUT = "Telgarsky's construction, {depth.last} layers of 2 neurons; {noisy[networks]} networks for each "
_SAWTOOTH_ABOUT += "size of Gaussian noise on every weight and bias"
_SAWTOOTH_TITLE = "A sawtooth of exponentially many pieces, and noise"
_SAWTOOTH_PRESETS = {"quick": sawtooths((1, 2, 3, 4, 5, 6), 40), "paper": sawtooths((1, 2, 3, 4, 5, 6, 7, 8), 200)}
_SAWTOOTH = sawtooth_table, sawtooth_claims, sawtooth_draw, _SAWTOOTH_ABOUT
ARTIFACTS += (Artifact("hanin-rolnick/fig3", _SAWTOOTH_TITLE, "", _SAWTOOTH_PRESETS, *_SAWTOOTH),)
