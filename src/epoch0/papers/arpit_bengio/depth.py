"""Arpit-Bengio Figures 1a, 1b (section 4.1, Theorems 1 and 3): norms at each layer of deep networks, He and Glorot."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import at_most, increasing
from epoch0.papers.arpit_bengio.norms import INITS, band, deep, of_widths, relu, weight_stds
from epoch0.papers.sweep import Artifact, Cell, Found, Sweep
from epoch0.papers.tables import Array, Claims, Decision, Table, agrees, by, mean_and_error, means

DEPTH = 10
RESOLUTION = 0.05  # a mean ratio is the exact one if they differ by less than 5 %
COARSE = 0.25  # the same for a variance, whose relative error is larger: a factor of 4 or 6 for 5 would be near that
NAMES = {"activation": "activation norm ratio", "gradient": "gradient norm ratio"}
LABELS = {"activation": r"$\|h^l\|\,/\,\|x\|$", "gradient": r"$\|\partial W^l\|_F\,/\,(\|\delta\|\,\|x\|)$"}
# the backward pass is taken as independent of the forward pass, as the paper does
LAWS = {"activation": "exact law", "gradient": "law under independence"}
_UNITS = 2000  # A trial has so many networks that their widths add up to about this


def table(quantity: str, found: Found) -> Table:
    """One row an initialization, width and layer: the mean ratio, its spreads, and the exact law."""

    def measured(cell: Cell) -> dict[str, Any]:
        ratio, square = cell[quantity], cell[f"{quantity}_square"]
        return {"ratio": ratio, "std_over_inputs": np.sqrt(np.maximum(square - ratio**2, 0)), "mean_square": square}

    layers = range(1, len(found.sweep["widths"]) + 1)
    return found.rows(measured, lambda cell, layer: band(cell.spec, quantity, layer), layer=layers)


def step_spread(cell: Cell) -> Array:
    """Variance of one layer's squared norm ratio over its exact value 5/width.

    Layers are independent of each other, so that all of them count: expected is 1, whatever the correlation of inputs.
    """
    widths = np.array(cell.spec.widths)
    expected = widths * np.square(weight_stds(cell.spec)[:-1]) / 2
    relative = cell["step_square"] / expected**2 - 2 * cell["step"] / expected + 1
    return np.asarray((relative * widths / 5).mean(1))


def first_layer(cell: Cell) -> tuple[float, float, float]:
    """Mean squared gradient ratio at layer 1, what is predicted for it, and the error of their difference.

    ``delta^l . h^l`` is the same number at every layer, since the loss depends on a layer's scale in the same way
    wherever it is taken. So the part of the gradient that points along the activations does not get new random signs on
    its way back, as Lemma 5 takes for granted. With the alignment a at the last layer (1 if there is no dependence) the
    mean squared ratio is ``1 + 2 (L - 1) (a - 1) / width`` at layer 1, up to 1/width^2.
    """
    measured, depth = cell["gradient_square"][:, 0], len(cell.spec.widths)
    expected = 1 + 2 * (depth - 1) * (cell["alignment"] - 1) / cell.spec.widths[0]
    difference, error = mean_and_error(measured - expected)
    mean = float(measured.mean())
    return mean, mean - difference, error


def activation_claims(found: Found) -> Claims:
    """Figure 1a: He keeps the norm of the activations, better with width; Glorot does not."""
    glorot, spread = found.table.where(init="glorot"), _is_one(step_spread, found, COARSE, "measured over exact")
    return {
        **_he("activation", found),
        "Glorot: the activation norm ratio decays as the exact law says": _law_holds(glorot),
        **_lost("activation", found.table, len(found.sweep["widths"])),
        # beyond the paper
        "He: one layer's squared norm ratio has the exact law's variance, 5/width": spread,
    }


def gradient_claims(found: Found) -> Claims:
    """Figure 1b: the same for the gradients, and the assumption that Theorem 3 makes about them."""
    he, glorot = found.where(init="he"), found.table.where(init="glorot")
    independent = "He: the output error is independent of the activations, as Theorem 3 assumes (width/2 x cos^2 is 1)"
    # beyond the paper: how much larger gradients are for that dependence
    larger = "He: at layer 1 the mean squared ratio exceeds 1 by what that dependence gives to first order in 1/width"
    measured, expected, errors = np.transpose([first_layer(cell) for cell in he])
    counts, groups = [cell.runs for cell in he], ("measured", "predicted")
    return {
        **_he("gradient", found),
        "Glorot: the gradient norm ratio is the exact law's": _law_holds(glorot),
        **_lost("gradient", found.table, 1),
        independent: _is_one(lambda cell: cell["alignment"], found, RESOLUTION, "measured"),
        larger: by(agrees, measured, errors, expected, counts, _widths(he), RESOLUTION, groups),
    }


def _he(quantity: str, found: Found) -> Claims:
    """The statements about He's initialization that both figures share."""
    name, rows = NAMES[quantity], found.table.where(init="he")
    narrower = found.where(init="he")[::-1]
    # mean of (ratio - 1)^2 over layers, inputs and networks
    squares, errors = means((cell[f"{quantity}_square"] - 2 * cell[quantity] + 1).mean(1) for cell in narrower)
    rms, counts = np.sqrt(squares), [cell.runs for cell in narrower]
    nearer = f"He: the {name} is nearer to 1 the wider the network (root of the mean of (ratio - 1)^2)"
    return {
        f"He: the mean {name} is the exact law's": _law_holds(rows),
        nearer: by(increasing, rms, errors / (2 * rms), counts, _widths(narrower)),
    }


def _law_holds(rows: Table) -> Decision:
    return rows.claim(agrees, "ratio", "exact_mean", names="width {width}, layer {layer}", resolution=RESOLUTION)


def _lost(quantity: str, table: Table, layer: int) -> Claims:
    """Glorot at the layer that is furthest from where the norm is 1 by definition: below what He's law would give."""
    bounds = table.where(init="he", layer=layer).column("exact_low")
    text = f"Glorot: at layer {layer} the {NAMES[quantity]} is below the band that He's has"
    return {text: table.where(init="glorot", layer=layer).claim(at_most, "ratio", bounds, names="width {width}")}


def _is_one(of: Callable[[Cell], Array], found: Found, resolution: float, name: str) -> Decision:
    """Whether the mean of a number is 1 in He's networks of all widths."""
    cells = found.where(init="he")
    each = means(of(cell) for cell in cells)
    return by(agrees, *each, 1.0, [cell.runs for cell in cells], _widths(cells), resolution, (name, "1"))


def _widths(cells: Sequence[Cell]) -> list[str]:
    return [f"width {cell.at['width']}" for cell in cells]


def draw(quantity: str, found: Found) -> plots.Figure:
    """Every width under both initializations on a log scale, with the mean of the exact law, and 95 % of He's."""
    picture, axes = plots.figure(7.2, 5.2)
    for init, dashes, fill in (("he", "-", None), ("glorot", "--", "none")):
        for index, (width, rows) in enumerate(found.table.where(init=init).by("width")):
            plots.column(axes, rows, "layer", "exact_mean", index, linestyle=dashes, linewidth=0.9)
            label = f"{init.title()}, width {width}"
            plots.means(axes, rows, "layer", "ratio", index, label, markerfacecolor=fill, markersize=4.0)
    for init, dashes in (("He", "-"), ("Glorot", "--")):
        axes.plot([], [], dashes, color="#333333", linewidth=0.9, label=f"{LAWS[quantity]}, {init} (mean)")
    axes.set_yscale("log")
    axes.set(xlabel="layer $l$", ylabel=LABELS[quantity], xticks=range(1, len(found.sweep["widths"]) + 1))
    plots.legend_below(picture, columns=3)
    return picture


_PAPER = Sweep(
    deep,
    relu((1,) * DEPTH, "he", inputs=2000),
    {"init": INITS, "width": of_widths(100, 500, 2000, 4060, depth=DEPTH)},
    runs={"width": (240, 120, 30, 10)},
    seed=lambda spec, network: 2 * spec.widths[0] + INITS.index(spec.init),
    block=lambda spec: max(1, _UNITS // spec.widths[0]),
)
_QUICK = _PAPER.but(width=of_widths(100, 300, 1000, depth=DEPTH), inputs=200, runs={"width": (240, 120, 40)})
_PRESETS = {"quick": _QUICK, "paper": _PAPER}  # narrow networks differ more, and cost less, so there are more of them
_ABOUT = (
    "10 layers of width {width}; {runs} networks, {inputs} inputs in R^500 each; bars: two standard errors over "
    "networks"
)


def _artifact(letter: str, quantity: str, claims: Callable[[Found], Claims]) -> Artifact:
    """Both figures are made of the same trials."""
    named = f"arpit-bengio/fig1{letter}", f"Norm of the {quantity}s at each layer, He and Glorot", "section 4.1"
    return Artifact(*named, _PRESETS, partial(table, quantity), claims, partial(draw, quantity), _ABOUT)


ARTIFACTS = (_artifact("a", "activation", activation_claims), _artifact("b", "gradient", gradient_claims))
