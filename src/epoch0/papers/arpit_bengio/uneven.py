"""Arpit-Bengio Figure 3 (section 4.3): the gradient norms of networks whose widths vary from layer to layer.

He's variance 2/fan-out keeps the norm on the way forward; on the way back the step from layer l+1 to l then multiplies
its expected square by n_l / n_(l+1). So the squared gradient ratio at layer l is n_l / n_L in the mean, exactly.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import increasing
from epoch0.papers.arpit_bengio.norms import band, deep, mean, relu
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Array, Claims, Table, agrees, by, means
from epoch0.seeds import numpy_generator

RESOLUTION = 0.1  # the squared ratio follows the widths if it differs from theirs by less than 10 %
_SHOWN = 30  # networks that are drawn for each variation


def network(spec: Spec, index: int) -> Spec:
    """One of the networks: each layer's width is one of the integers width - variation to width + variation."""
    low, high = spec.width - spec.variation, spec.width + spec.variation
    widths = numpy_generator(spec.variation, index).integers(low, high, size=spec.depth, endpoint=True)
    return relu(tuple(widths.tolist()), "he", spec.inputs, first=index)


def uneven(spec: Spec, seed: int) -> dict[str, Any]:
    """What :func:`deep` measures, shape (networks, layers)."""
    found = [deep(network(spec, index), seed) for index in range(spec.first, spec.first + spec.networks)]
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def widths_of(cell: Cell) -> Array:
    """The widths that were drawn, (networks, layers)."""
    return np.array([network(cell.spec, index).widths for index in range(cell.runs)])


def over_inputs(cell: Cell) -> Array:
    """Standard deviation of the ratio within each network, (networks, layers): the bars of the paper's figure."""
    return np.asarray(np.sqrt(np.maximum(cell["gradient_square"] - cell["gradient"] ** 2, 0)))


def off_one(cell: Cell) -> Array:
    """Mean of ``(ratio - 1)^2`` over layers and inputs, (networks,)."""
    return np.asarray((cell["gradient_square"] - 2 * cell["gradient"] + 1).mean(1))


SPREADS: dict[str, Callable[[Cell], Array]] = {
    "between layers (std)": lambda cell: cell["gradient"].std(axis=1),
    "between inputs (std)": lambda cell: over_inputs(cell).mean(1),
}


def table(found: Found) -> Table:
    """One row a variation, network and layer."""
    rows = Table()
    for cell in found:
        widths, ratio, square, spread = widths_of(cell), cell["gradient"], cell["gradient_square"], over_inputs(cell)
        for (index, place), width in np.ndenumerate(widths):
            row = {**cell.at, "network": index, "layer": place + 1, "width": int(width)}
            for name, values in (("ratio", ratio), ("std_over_inputs", spread), ("mean_square", square)):
                row[name] = float(values[index, place])
            row["exact_mean"] = mean(network(cell.spec, index), "gradient", place + 1)
            rows.append({**row, "exact_mean_square": float(width / widths[index, -1])})
    return rows


def first_band(cell: Cell) -> Table:
    """The exact law of the first network, a row a layer."""
    net = network(cell.spec, 0)
    return Table({"layer": at, **band(net, "gradient", at)} for at in range(1, cell.spec.depth + 1))


def claims(found: Found) -> Claims:
    """Section 4.3: closer to 1 and of smaller variance for small v; and what the widths predict."""
    count, names = found.cells[0].runs, [f"v = {cell.at['variation']}" for cell in found]
    off, off_error = means(map(off_one, found))
    between_layers, between_inputs = (means(map(of, found)) for of in SPREADS.values())
    rms = np.sqrt(off)
    relative = [cell["gradient_square"] * (widths := widths_of(cell))[:, -1:] / widths for cell in found]
    follows = means(one.mean(1) for one in relative)
    groups = ("measured over n_l / n_L", "1")
    return {
        "the ratio is further from 1 the more the widths vary (root of the mean of (ratio - 1)^2)": by(
            increasing, rms, off_error / (2 * rms), count, names
        ),
        "the ratio differs more between the layers of a network": by(increasing, *between_layers, count, names),
        "the ratio varies more between the inputs of a network": by(increasing, *between_inputs, count, names),
        "the mean squared ratio at layer l is n_l / n_L, as the exact law says": by(
            agrees, *follows, 1.0, count, names, RESOLUTION, groups
        ),
    }


def draw(found: Found) -> plots.Figure:
    """One panel a variation: the first network's ratio at each layer in its exact band."""
    names = [f"v = {cell.at['variation']}" for cell in found]
    picture, panels = plots.figure(9.0, 4.2, mosaic=[names])
    depth, top = found.sweep["depth"], 0.0
    layers = list(range(1, depth + 1))
    for index, (cell, name) in enumerate(zip(found, names, strict=True)):
        axes, exact, ratio = panels[name], first_band(cell), cell["gradient"]
        told = "law under independence for its widths: 95 % band"
        plots.band(axes, exact, "layer", "exact_low", "exact_high", told)
        for one in ratio[1:_SHOWN]:
            axes.plot(layers, one, color=plots.COLOURS[index], alpha=0.25, linewidth=0.5, zorder=1.2)
        axes.plot(layers, exact.column("exact_mean"), "k--", linewidth=1.0, zorder=1.6, label="mean of that law")
        look = {"linestyle": "-", "linewidth": 0.8, "capsize": 2.0, "elinewidth": 0.8, "markersize": 3.5}
        label, spread = "one network: mean and std over inputs", over_inputs(cell)[0]
        plots.points(axes, layers, ratio[0], spread / 2, index, label, **look)
        axes.plot([], [], color="#777777", linewidth=0.7, label="other networks")
        axes.set(title=f"${name}$", xlabel="layer $l$", xticks=range(1, depth + 1, 3))
        axes.set_ylabel(r"$\|\partial W^l\|_F\,/\,(\|\delta\|\,\|x\|)$" if index == 0 else "")
        top = max(top, float(ratio.max()), exact.column("exact_high").max())
    for index, name in enumerate(names):
        panels[name].set_ylim(0, 1.05 * top)
        panels[name].tick_params(labelleft=index == 0)
    plots.legend_below(picture, *panels[names[0]].get_legend_handles_labels(), columns=4)
    return picture


_SPEC, _SEED = Spec(width=1000, depth=20, inputs=1000), lambda spec, network: spec.variation
_PAPER = Sweep(uneven, _SPEC, {"variation": (1, 200, 500)}, runs=40, seed=_SEED, block=1)
_QUICK = _PAPER.but(width=400, variation=(1, 80, 200), inputs=100, runs=100)
_PRESETS = {"quick": _QUICK, "paper": _PAPER}
_ABOUT = (
    "{runs} networks of {depth} layers for each v, widths U({width} - v, {width} + v), {inputs} inputs each; bars: "
    "std over inputs"
)
_TITLE = "Norm of the gradients at each layer when the widths vary"
ARTIFACTS = (Artifact("arpit-bengio/fig3", _TITLE, "section 4.3", _PRESETS, table, claims, draw, _ABOUT),)
