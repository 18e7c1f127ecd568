"""Arpit-Bengio Figures 1a, 1b, 3 (section 4, Theorems 1 and 3): norms at each layer of deep networks, He and Glorot."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import at_most, increasing
from epoch0.papers.arpit_bengio.norms import INITS, band, deep, law, of_widths, relu, weight_stds
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell, given
from epoch0.papers.tables import Array, Claims, Decision, Table, agrees, by, mean_and_error, means
from epoch0.seeds import numpy_generator

DEPTH = 10
RESOLUTION = 0.05  # a mean ratio is the exact one if they differ by less than 5 %
COARSE = 0.25  # the same for a variance, whose relative error is larger: a factor of 4 or 6 for 5 would be near that
NAMES = {"activation": "activation norm ratio", "gradient": "gradient norm ratio"}
LABELS = {"activation": r"$\|h^l\|\,/\,\|x\|$", "gradient": r"$\|\partial W^l\|_F\,/\,(\|\delta\|\,\|x\|)$"}
# the backward pass is taken as independent of the forward pass, as the paper does
LAWS = {"activation": "exact law", "gradient": "law under independence"}


@by_cell
def table(quantity: str, cell: Cell) -> Any:
    layers = range(1, len(cell.spec.widths) + 1)
    ratio, square = cell[quantity], cell[f"{quantity}_square"]
    spread, exact = np.sqrt(np.maximum(square - ratio**2, 0)), Table(band(cell.spec, quantity, n) for n in layers)
    measured = {"ratio": ratio, "std_over_inputs": spread, "mean_square": square}
    return measured, {name: exact.column(name) for name in exact[0]}, {"layer": layers}


def step_spread(cell: Cell) -> Array:
    """Variance of one layer's squared norm ratio over the exact 5/width; all layers count, as they are independent."""
    widths = np.array(cell.spec.widths)
    expected = widths * np.square(weight_stds(cell.spec)[:-1]) / 2
    return np.asarray(((cell["step_square"] / expected**2 - 2 * cell["step"] / expected + 1) * widths / 5).mean(1))


def first_layer(cell: Cell) -> tuple[float, float, float]:
    """Mean squared gradient ratio at layer 1, what is predicted for it, and the error of their difference. With the
    alignment a at the last layer (1 if there is no dependence) the mean squared ratio is ``1 + 2 (L - 1) (a - 1) /
    width`` at layer 1, up to 1/width^2; docs/arpit-bengio says why.
    """
    measured, depth = cell["gradient_square"][:, 0], len(cell.spec.widths)
    expected = 1 + 2 * (depth - 1) * (cell["alignment"] - 1) / cell.spec.widths[0]
    difference, error = mean_and_error(measured - expected)
    mean = float(measured.mean())
    return mean, mean - difference, error


def claims(quantity: str, found: Found) -> Claims:
    """Of both figures; and, beyond the paper, what the exact law and the dependence that Theorem 3 leaves out say."""
    he, name, forward = found.where(init="he"), NAMES[quantity], quantity == "activation"
    widths, counts = [f"width {cell.at['width']}" for cell in he], [cell.runs for cell in he]
    of_he, of_glorot = (found.table.where(init=init) for init in INITS)
    exact: Any = {"names": "width {width}, layer {layer}", "resolution": RESOLUTION}
    layer = len(found.sweep["widths"]) if forward else 1  # the furthest from where Glorot's norm is 1 by definition
    bounds = of_he.where(layer=layer).column("exact_low")
    lost = of_glorot.where(layer=layer).claim(at_most, "ratio", bounds, names="width {width}")
    nearer = f"He: the {name} is nearer to 1 the wider the network (root of the mean of (ratio - 1)^2)"
    glorot = f"Glorot: the {name} " + ("decays as the exact law says" if forward else "is the exact law's")
    decided = {
        f"He: the mean {name} is the exact law's": of_he.claim(agrees, "ratio", "exact_mean", **exact),
        nearer: _further(quantity, he[::-1], widths[::-1]),
        glorot: of_glorot.claim(agrees, "ratio", "exact_mean", **exact),
        f"Glorot: at layer {layer} the {name} is below the band that He's has": lost,
    }
    if forward:
        text, groups = "He: one layer's squared norm ratio has the exact law's variance, 5/width", "measured over exact"
        return decided | {text: by(agrees, *means(map(step_spread, he)), 1.0, counts, widths, COARSE, (groups, "1"))}
    aligned = *means(cell["alignment"] for cell in he), 1.0, counts, widths, RESOLUTION, ("measured", "1")
    measured, expected, errors = np.transpose([first_layer(cell) for cell in he])
    same = measured, errors, expected, counts, widths, RESOLUTION, ("measured", "predicted")
    independent = "He: the output error is independent of the activations, as Theorem 3 assumes (width/2 x cos^2 is 1)"
    larger = "He: at layer 1 the mean squared ratio exceeds 1 by what that dependence gives to first order in 1/width"
    return decided | {independent: by(agrees, *aligned), larger: by(agrees, *same)}


def _further(quantity: str, cells: Sequence[Cell], names: Sequence[str]) -> Decision:
    """Whether the root of the mean of (ratio - 1)^2 over layers, inputs and networks grows from cell to cell."""
    squares, errors = means((cell[f"{quantity}_square"] - 2 * cell[quantity] + 1).mean(1) for cell in cells)
    return by(increasing, squares**0.5, errors / (2 * squares**0.5), [cell.runs for cell in cells], names)


@plots.drawn(7.2, 5.2, legend=3)
def draw(quantity: str, found: Found, axes: plots.Axes) -> None:
    for init, dashes, fill in (("he", "-", None), ("glorot", "--", "none")):
        axes.plot([], [], dashes, color="#333333", linewidth=0.9, label=f"{LAWS[quantity]}, {init.title()} (mean)")
        for index, (width, rows) in enumerate(found.table.where(init=init).by("width")):
            plots.column(axes, rows, "layer", "exact_mean", index, linestyle=dashes, linewidth=0.9)
            label = f"{init.title()}, width {width}"
            plots.means(axes, rows, "layer", "ratio", index, label, markerfacecolor=fill, markersize=4.0)
    axes.set(yscale="log", xlabel="layer $l$", ylabel=LABELS[quantity])
    axes.set_xticks(range(1, len(found.sweep["widths"]) + 1))


def _seed(spec: Spec, network: int) -> int:
    return int(2 * spec.widths[0] + INITS.index(spec.init))


def _block(spec: Spec) -> int:
    """So many networks that their widths add up to about 2000."""
    return max(1, int(2000 // spec.widths[0]))


_AXES: dict[str, Any] = {"init": INITS, "width": of_widths(100, 500, 2000, 4060, depth=DEPTH)}
_MANY = {"width": (240, 120, 30, 10)}  # narrow networks differ more, and cost less, so there are more of them
_PAPER = Sweep(deep, relu((1,) * DEPTH, "he", inputs=2000), _AXES, _MANY, _seed, block=_block)
_FEWER: dict[str, Any] = {"width": of_widths(100, 300, 1000, depth=DEPTH), "runs": {"width": (240, 120, 40)}}
_TITLES, _PLACE = "Norm of the {}s at each layer, He and Glorot", ("section 4.1", _PAPER.presets(inputs=200, **_FEWER))
_ABOUT = "10 layers of width {width}; {runs} networks, {inputs} inputs in R^500 each"
ARTIFACTS: tuple[Artifact, ...] = tuple(
    Artifact(f"arpit-bengio/{id}", _TITLES.format(of), *_PLACE, *given(of, table, claims, draw), _ABOUT)
    for id, of in (("fig1a", "activation"), ("fig1b", "gradient"))
)


# ---- Figure 3 (section 4.3): widths that vary from layer to layer
# He's variance 2/fan-out keeps the norm on the way forward; on the way back the step from layer l+1 to l multiplies its
# expected square by n_l / n_(l+1), if independent: then the squared gradient ratio at layer l is n_l / n_L in the mean.
UNEVEN_RESOLUTION = 0.1  # the squared ratio follows the widths if it differs from theirs by less than 10 %
_SHOWN = 30  # networks that are drawn for each variation


def network(spec: Spec, index: int) -> Spec:
    """One of the networks: each layer's width is one of the integers width - variation to width + variation."""
    low, high = spec.width - spec.variation, spec.width + spec.variation
    widths = numpy_generator(spec.variation, index).integers(low, high, size=spec.depth, endpoint=True)
    return relu(tuple(widths.tolist()), "he", spec.inputs, first=index)


def uneven(spec: Spec, seed: int) -> dict[str, Any]:
    """What :func:`deep` measures, shape (networks, layers)."""
    found = [deep(network(spec, index), seed) for index in range(spec.first, spec.first + spec.networks)]
    return {name: np.concatenate([item[name] for item in found]) for name in found[0]}


def widths_of(cell: Cell) -> Array:
    """The widths that were drawn, (networks, layers)."""
    return np.array([network(cell.spec, index).widths for index in range(cell.runs)])


def over_inputs(cell: Cell) -> Array:
    """Standard deviation of the ratio within each network, (networks, layers): the bars of the paper's figure."""
    return np.asarray(np.sqrt(np.maximum(cell["gradient_square"] - cell["gradient"] ** 2, 0)))


def uneven_table(found: Found) -> Table:
    rows = Table()
    for cell in found:
        widths, spread = widths_of(cell), over_inputs(cell)
        for (index, place), width in np.ndenumerate(widths):
            exact = law(network(cell.spec, index), "gradient", place + 1).norm.mean
            values = cell["gradient"][index, place], spread[index, place], cell["gradient_square"][index, place]
            row = {**cell.at, "network": index, "layer": place + 1, "width": int(width)}
            row |= zip(("ratio", "std_over_inputs", "mean_square"), map(float, values), strict=True)
            rows.append({**row, "exact_mean": exact, "exact_mean_square": float(width / widths[index, -1])})
    return rows


def uneven_claims(found: Found) -> Claims:
    count, names = found.cells[0].runs, [f"v = {cell.at['variation']}" for cell in found]
    between_layers = means(cell["gradient"].std(axis=1) for cell in found)
    between_inputs = means(over_inputs(cell).mean(1) for cell in found)
    relative = [cell["gradient_square"] * (widths := widths_of(cell))[:, -1:] / widths for cell in found]
    groups = ("measured over n_l / n_L", "1")
    follows = *means(item.mean(1) for item in relative), 1.0, count, names, UNEVEN_RESOLUTION, groups
    further = "the ratio is further from 1 the more the widths vary (root of the mean of (ratio - 1)^2)"
    return {
        further: _further("gradient", list(found), names),
        "the ratio differs more between the layers of a network": by(increasing, *between_layers, count, names),
        "the ratio varies more between the inputs of a network": by(increasing, *between_inputs, count, names),
        "the mean squared ratio is n_l / n_L to 10 %, over the layers, as independence says": by(agrees, *follows),
    }


@plots.drawn(9.0, 4.2, legend=4, columns=3, sharey=True)
def uneven_draw(found: Found, panels: Any) -> None:
    layers = list(range(1, found.sweep["depth"] + 1))
    for index, (cell, axes) in enumerate(zip(found, panels, strict=True)):
        ratio, first = cell["gradient"], network(cell.spec, 0)
        exact = Table({"layer": layer, **band(first, "gradient", layer)} for layer in layers)
        plots.band(axes, exact, "layer", "exact_low", "exact_high", "law under independence for its widths: 95 % band")
        for item in ratio[1:_SHOWN]:
            axes.plot(layers, item, color=plots.COLOURS[index], alpha=0.25, linewidth=0.5, zorder=1.2)
        axes.plot(layers, exact.column("exact_mean"), "k--", linewidth=1.0, zorder=1.6, label="mean of that law")
        look = {"linestyle": "-", "linewidth": 0.8, "capsize": 2.0, "elinewidth": 0.8, "markersize": 3.5}
        label, spread = "one network: mean and std over inputs", over_inputs(cell)[0]
        plots.points(axes, layers, ratio[0], spread / 2, index, label, **look)
        axes.plot([], [], color="#777777", linewidth=0.7, label="other networks")
        axes.set(title=f"$v = {cell.at['variation']}$", xlabel="layer $l$", xticks=layers[::3])
    panels[0].set(ylabel=LABELS["gradient"], ylim=(0, None))


_SPEC = Spec(width=1000, depth=20, inputs=1000)
_UNEVEN = Sweep(uneven, _SPEC, {"variation": (1, 200, 500)}, runs=40, seed="{variation}", block=1)
_UNEVEN_PRESETS = _UNEVEN.presets(width=400, variation=(1, 80, 200), inputs=100, runs=100)
_UNEVEN_ABOUT = "{runs} networks of {depth} layers for each v, widths U({width} - v, {width} + v), {inputs} inputs "
_UNEVEN_ABOUT += "each; bars: std over inputs"
_TITLE = "Norm of the gradients at each layer when the widths vary"
_MADE = uneven_table, uneven_claims, uneven_draw, _UNEVEN_ABOUT
ARTIFACTS += (Artifact("arpit-bengio/fig3", _TITLE, "section 4.3", _UNEVEN_PRESETS, *_MADE),)
