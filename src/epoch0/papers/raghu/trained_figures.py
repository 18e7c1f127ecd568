"""Raghu Figures 6, 8, 9, 10 and 18 (sections 3.1, 3.2): noise in a layer, length and weight scale through training.

Figure 6: the paper does not say whether its network had batch norm, nor in what unit its noise of "0.25 magnitude" is.
All four combinations are shown and judged: with equal sigma_w^2 the weights of a layer with many inputs are small, so
that noise of one absolute size is much more for it than for the first layer.

Figure 10: an arc's length through a batch norm depends on whose statistics it uses. In evaluation they are the running
ones, which at step 0 are still mean 0 and variance 1, so that it does nothing. By the statistics of the arc's own
points it divides by how much a channel varies along the arc, which can be next to nothing. Both are measured and drawn.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most, between
from epoch0.papers import pictures
from epoch0.papers.catalogue import Artifact
from epoch0.papers.raghu.convnet import KEEPING, mark_pools
from epoch0.papers.raghu.trained import NORMED, PLAIN, about, accurate, conv_nets, cost, dense_nets
from epoch0.papers.sweep import Array, Cell, Found, Sweep, Table, mean_and_error, of_runs, slopes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODES = {"lengths": "running statistics, as in evaluation", "lengths_batch": "statistics of the arc's points"}
"""What was measured -> whose statistics a batch norm used."""

SETTLED = 300
"""Where "after just a few hundred gradient steps" is taken to begin."""

UNITS = ("absolute", "relative")

PRINTED_NOISE = 0.25
"""Of which the caption of Figure 6 says what it costs."""

FIFTH = "conv4"
"""Layer 5 as Figure 4 numbers them, pools counted."""


def _layers(cell: Cell, name: str = "layers") -> list[str]:
    """Names of layers for an axis; those without a name of their own are counted."""
    return [str(i) if one.isdigit() else one for i, one in enumerate(cell.results[0][name], start=1)]


def _growth(lengths: Array) -> Array:
    """Length after a layer over that before it."""
    return np.asarray(lengths[..., 1:] / lengths[..., :-1])


# ---- Figures 8, 9 and 18


def length_table(found: Found, measured: str = "lengths") -> Table:
    """One row for each kind of network, step and layer: length, its growth, accuracy at that step."""
    steps, layers = list(found.sweep["at"]), _layers(found.cells[0])

    def more(cell: Cell, step: int, layer: str) -> dict[str, Any]:
        accuracy = cell["accuracy"].mean(0)[steps.index(step)]
        return {"accuracy": float(accuracy), "kind": cell.results[0]["kinds"][layers.index(layer)]}

    return found.rows(lambda cell: {"length": cell[measured][..., 1:], "growth": _growth(cell[measured])}, more,
                      step=steps, layer=layers)  # fmt: skip


def scale_table(found: Found) -> Table:
    """Figure 9: one row for each step and layer with weights."""
    names = _layers(found.cells[0], "weighted")
    return found.rows(lambda cell: {"scale": cell["scale"]}, lambda cell, **_: {"kind": "linear"},
                      step=found.sweep["at"], layer=names)  # fmt: skip


def conv_claims(found: Found) -> list[Claim]:
    """The caption of Figure 8."""
    cell = found.one()
    growth = _growth(cell["lengths"])[..., [_layers(cell).index(name) for name in KEEPING]]
    return [
        *accurate(found),
        of_runs(at_most, "at step 0 length does not grow: mean over the layers that keep the number of neurons",
                growth[:, 0].mean(1), 1.0, names=["growth"]),
        *_longer(cell),
        of_runs(at_least, "after training length grows through every layer but pools and those with fewer neurons than "
                "before", growth[:, -1], 1.0, names=KEEPING),
    ]  # fmt: skip


def dense_claims(found: Found) -> list[Claim]:
    """The caption of Figure 18."""
    decided = accurate(found)
    for cell in found:
        said, after = f"{cell.at['networks']}: ", _growth(cell["lengths"])[:, -1, 1:-1]
        text = f"{said}after training length grows through every hidden layer behind the first"
        names = [f"layer {place}" for place in _layers(cell)[1:-1]]
        decided += [*_longer(cell, said), of_runs(at_least, text, after, 1.0, names=names)]
    return decided


def _longer(cell: Cell, said: str = "") -> list[Claim]:
    """Training increases length, the more the deeper the layer."""
    gained = np.log(cell["lengths"][:, -1, 1:] / cell["lengths"][:, 0, 1:])
    return [
        of_runs(at_least, f"{said}training increases length after every layer: log of length at the end over that at "
                "step 0", gained, 0.0, names=[f"layer {i}" if i.isdigit() else i for i in _layers(cell)]),
        of_runs(at_least, f"{said}... by a factor that grows with depth: rise of that log a layer", slopes(gained), 0.0,
                names=["slope"]),
    ]  # fmt: skip


def scale_claims(found: Found) -> list[Claim]:
    """The caption of Figure 9."""
    cell = found.one()
    text = "training increases the weight scale of every layer: log of sigma_w^2 at the end over that at step 0"
    gained = np.log(cell["scale"][:, -1] / cell["scale"][:, 0])
    return [*accurate(found), of_runs(at_least, text, gained, 0.0, names=_layers(cell, "weighted"))]


def through_layers(axes: "Axes", rows: Table, column: str) -> None:
    """One line a step from dark to light; grey bands behind pools, dotted lines into batch norms as in Figure 10."""
    from matplotlib import colormaps

    steps = list(rows.by("step"))
    colours = colormaps["viridis"](np.linspace(0.02, 0.85, len(steps)))  # its lightest cannot be seen on white
    names, kinds = ([row[what] for row in steps[0][1]] for what in ("layer", "kind"))
    x, normed = np.arange(1.0, len(names) + 1), [place for place, kind in enumerate(kinds) if kind == "batch norm"]
    for place, (step, some) in enumerate(steps):
        mean, error = some.of(column, f"{column}_error")
        beside = 0.06 * (place - (len(steps) - 1) / 2)  # so that bars do not hide each other
        plots.points(
            axes, (x + beside).tolist(), mean.tolist(), error.tolist(), place, f"{step:,}", color=colours[place],
            linestyle="none" if normed else "-", linewidth=1.2, markersize=3.6, capsize=1.5,
        )  # fmt: skip
        for end in range(1, len(names) if normed else 0):
            into, part = end in normed, slice(end - 1, end + 1)
            axes.plot(x[part], mean[part], ":" if into else "-", color=colours[place], linewidth=1.6 if into else 1.0)
    mark_pools(axes, kinds)
    turned = any(len(name) > 2 for name in names)
    axes.set_xticks(x, names, rotation=40 if turned else 0, ha="right" if turned else "center")
    axes.set_xlabel("layer")


def plain_log(axes: "Axes") -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5 of each power of ten."""
    from matplotlib import ticker

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, place: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def draw_lengths(found: Found) -> "Figure":
    """Length against layer on a log scale, one line a step; a panel for each kind of network."""
    count = len(found.cells)
    picture, row = plots.figure(4.9 * count + 1.5, 4.4, 1, count, squeeze=False, sharey=True)
    for axes, (name, rows) in zip(row[0], found.table.by("networks"), strict=True):
        through_layers(axes, rows, "length")
        plain_log(axes)
        axes.set_title(name)
    row[0][0].set_ylabel("length of the arc after the layer")
    row[0][-1].legend(title="step", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


def draw_scale(found: Found) -> "Figure":
    """Figure 9: weight scale against layer, one line a step."""
    picture, axes = plots.figure(6.4, 4.2)
    through_layers(axes, found.table, "scale")
    axes.set_ylabel(r"weight scale $\sigma_w^2$ of the layer")
    axes.legend(title="step", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


# ---- Figure 10


def norm_table(found: Found) -> Table:
    """One row for each statistics, step and layer of the networks with batch norm."""
    normed = Found(found.sweep, found.where(networks=NORMED), {})
    return Table({"statistics": mode, **row} for name, mode in MODES.items() for row in length_table(normed, name))


def norm_claims(found: Found) -> list[Claim]:
    """The caption of Figure 10 and what section 3.2 says of it."""
    plain, cell = found.one(networks=PLAIN), found.one(networks=NORMED)
    layers, kinds, steps = cell.results[0]["layers"], cell.results[0]["kinds"], found.sweep["at"]
    late = [s for s, step in enumerate(steps) if step >= min(SETTLED, steps[-1])]
    decided = accurate(found, [cell])
    for measured, mode in MODES.items():
        for what, behind in (("convolution", "convolutions"), ("linear", "fully connected layers")):
            norms = [n for n in range(1, len(kinds)) if (kinds[n - 1], kinds[n]) == (what, "batch norm")]
            growth = _growth(cell[measured])[..., norms]
            names = [f"{layers[n]}, step {steps[s]}" for s in late for n in norms]
            text = f"{mode}: from step {SETTLED} on batch norms behind {behind} reduce length: their growth"
            claim = of_runs(at_most, text, growth[:, late], 1.0, names=names)
            last = growth[:, -1].mean(0)
            told = ", ".join(f"{layers[n]} {value:.3g}" for n, value in zip(norms, last, strict=True))
            decided.append(replace(claim, evidence=f"{claim.evidence}; at the end {told}"))
            if measured == "lengths_batch":
                text = f"{mode}: at step 0 batch norms behind {behind} increase it, dividing by a small variance"
                decided.append(of_runs(at_least, text, growth[:, 0], 1.0, names=[layers[n] for n in norms]))
    own, other = (mean_and_error(np.log(each["lengths"][:, -1, -1])) for each in (cell, plain))
    return [*decided, at_most(
        "after training length at the output is less than without batch norm: difference of the logs",
        [own.mean - other.mean], [float(np.hypot(own.error, other.error))], 0.0, min(cell.runs, plain.runs),
        ["difference"],
    )]  # fmt: skip


def draw_norms(found: Found) -> "Figure":
    """Length against layer, one line a step, for both statistics."""
    picture, panels = plots.figure(8.6, 7.6, 2, 1, sharex=True)
    for axes, (mode, rows) in zip(panels, found.table.by("statistics"), strict=True):
        through_layers(axes, rows, "length")
        plain_log(axes)
        axes.set(title=f"batch norm by {mode}", ylabel="length of the arc after the layer")
    panels[0].set_xlabel("")
    panels[0].legend(title="step", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


# ---- Figure 6


def noise_table(found: Found) -> Table:
    """One row for each unit of noise, kind of network, layer and size of the noise."""
    layers = _layers(found.cells[0], "weighted")

    def measured(unit: str, cell: Cell) -> dict[str, Array]:
        return {"accuracy": cell[unit], "cost": cell["clean"][:, None, None] - cell[unit]}

    return Table(
        {"noise": unit, **row}
        for unit in UNITS for row in found.rows(partial(measured, unit), layer=layers, size=found.sweep[unit])
    )  # fmt: skip


def noise_claims(found: Found) -> list[Claim]:
    """The caption of Figure 6, for networks with and without batch norm and for both units of noise."""
    pairs = [(cell, unit) for cell in found for unit in UNITS]
    printed = pairs if found.sweep["data"] == "cifar10" else []
    return [
        *accurate(found), *(claim for pair in pairs for claim in _earlier(*pair)),
        *(claim for pair in printed for claim in _printed(*pair)),
    ]  # fmt: skip


def _earlier(cell: Cell, unit: str) -> list[Claim]:
    """Earlier layers are less robust."""
    kept = cell[unit].mean(2)  # over the sizes, (runs, layers)
    said = f"{cell.at['networks']}, {unit} noise"
    return [
        of_runs(at_least, f"{said}: the first layer is the least robust: accuracy with noise in another one, less that "
                "with noise in it", kept[:, 1:] - kept[:, :1], 0.0, names=_layers(cell, "weighted")[1:]),
        of_runs(at_least, f"{said}: earlier layers are less robust: rise of accuracy a layer", slopes(kept), 0.0,
                names=["slope"]),
    ]  # fmt: skip


def _printed(cell: Cell, unit: str) -> list[Claim]:
    """What noise of 0.25 costs in the first and in the fifth layer; only said of CIFAR-10."""
    cost = cell["clean"][:, None] - cell[unit][:, :, getattr(cell.spec, unit).index(PRINTED_NOISE)]
    said, fifth = f"{cell.at['networks']}, {unit} noise of {PRINTED_NOISE:g}", _layers(cell, "weighted").index(FIFTH)
    return [
        of_runs(between, f"{said} in the first layer costs 0.7 in accuracy, to 0.1", cost[:, 0], 0.6, 0.8,
                names=["cost"]),
        of_runs(at_most, f"{said} in the fifth layer costs 0.02, at most 0.05", cost[:, fifth], 0.05, names=["cost"]),
    ]  # fmt: skip


def draw_noise(found: Found) -> "Figure":
    """Accuracy against noise, one line a layer; a row of panels for each kind of network, a column for each unit."""
    count = len(found.cells)
    picture, grid = plots.figure(9.2, 3.3 * count + 1.4, count, len(UNITS), squeeze=False, sharey=True)
    for row, cell in zip(grid, found, strict=True):
        for axes, unit in zip(row, UNITS, strict=True):
            rows = found.table.where(networks=cell.at["networks"], noise=unit)
            layers = list(rows.by("layer"))
            for place, (layer, some) in enumerate(layers):
                beside = 1.0 + 0.02 * (place - (len(layers) - 1) / 2)  # so that bars do not hide each other
                size, mean, error = some.of("size", "accuracy", "accuracy_error")
                plots.points(axes, (size * beside).tolist(), mean.tolist(), error.tolist(), place, f"noise in {layer}",
                             linestyle="-", linewidth=1.0)  # fmt: skip
            axes.axhline(cell["clean"].mean(), color=plots.BOUND, linestyle="--", linewidth=1.0, label="without noise")
            axes.set(title=f"{cell.at['networks']}, {unit} noise", ylim=(0, 1.03))
            pictures.ticks(axes, found.sweep[unit], scale="log")
        row[0].set_ylabel("test accuracy")
    for axes, unit in zip(grid[-1], ("in units of the weights", "relative to the layer's weights"), strict=True):
        axes.set_xlabel(f"noise (standard deviation), {unit}")
    handles, labels = grid[0][0].get_legend_handles_labels()
    plots.legend_below(picture, handles, labels, columns=5)
    return picture


# ---- the figures

_ARCS = ", {arcs} arcs between test images in each; "


def _artifact(
    name: str, title: str, section: str, presets: dict[str, Sweep], table: Callable[[Found], Table],
    claims: Callable[[Found], list[Claim]], draw: "Callable[[Found], Figure]", more: str,
) -> Artifact:  # fmt: skip
    source = f"Raghu et al., Figure {name.removeprefix('fig')}, section {section}"
    return Artifact(f"raghu/{name}", title, source, presets, table, claims, draw, partial(about, more), cost)


ARTIFACTS = (
    _artifact("fig6", "Accuracy against noise in one layer's weights", "3.1", conv_nets("none", "batch"), noise_table,
              noise_claims, draw_noise, " of each kind, {draws} draws of noise, {tested} test images"),
    _artifact("fig8", "Trajectory length of each layer through training", "3.2", conv_nets("none"), length_table,
              conv_claims, draw_lengths, _ARCS + "grey: pooling layers"),
    _artifact("fig9", "Weight scale of each layer through training", "3.2", conv_nets("none"), scale_table,
              scale_claims, draw_scale, "; scale: fan-in times the mean square of the weights"),
    _artifact("fig10", "Trajectory length through training with batch norm", "3.2", conv_nets("none", "batch"),
              norm_table, norm_claims, draw_norms, _ARCS + "dotted: into batch norm; grey: pooling layers"),
    _artifact("fig18", "Trajectory length through training, fully connected", "3.2", dense_nets(1.0, 2.0), length_table,
              dense_claims, draw_lengths, " of each sigma_w^2, {arcs} arcs between test images in each"),
)  # fmt: skip
