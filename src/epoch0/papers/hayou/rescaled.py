"""Hayou's Proposition 1: does rescaling bring a pruned network back to the edge of chaos (section 2.3, appendix B)?

Its proof takes mask, weights and gradients as independent. Masks drawn at random are; those of SNIP keep the weights at
units that are active, so a ReLU passes on more than the variance of its weights says.
"""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_most, between
from epoch0.networks import mlp
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Claims, Decision, Table
from epoch0.papers.trials import EXTENTS, images
from epoch0.prune import apply, keep, random, rescale, snip
from epoch0.theory.mean_field import edge_of_chaos

# as good as unpruned: over the whole depth its squared gradient changes by less than this beside the other's
FACTOR = 10.0
METHODS = {  # what is done to what is left -> how texts call it
    "none": "not rescaled",
    "row": "one factor a row, as Algorithm 1 is printed",
    "layer": "one factor a layer, as equation 7 is meant",
    "measured": "beyond the paper, one factor a layer, measured on the batch",
}


def gains(spec: Spec, seed: int) -> dict[str, Any]:
    """Of networks on the edge of chaos, pruned by ``masks`` of "SNIP" or "random", as many ``examples``:

    log of the growth of the squared gradient, from the last hidden layer back to the first, a layer.
    """
    batch = images(spec.data, spec.examples, seed, flatten=True, dtype=torch.float64)
    sizes = [batch[0].shape[1], *[spec.width] * spec.depth, EXTENTS[spec.data][1]]
    weights = Gaussian(float(edge_of_chaos(spec.activation, bias_std=0.0).weight_std))
    made = lambda: mlp(sizes, spec.activation, weights=weights, seed=seed, dtype=torch.float64)  # noqa: E731
    scores = snip(made(), [batch]) if spec.masks == "SNIP" else random(made(), seed=seed)
    found = []
    for sparsity in spec.sparsities:
        masks = keep(scores, sparsity)
        for method in METHODS:
            net = apply(made(), masks)
            if method != "none":
                rescale(net, method, x=batch[0])
            found.append(_log_gain(net, *batch))
    return {"dense": _log_gain(made(), *batch), "log_gain": np.reshape(found, (len(spec.sparsities), len(METHODS)))}


def _log_gain(net: nn.Sequential, x: torch.Tensor, labels: torch.Tensor) -> float:
    """By plain autograd: the mean log growth a layer of the squared gradient at the outputs of the linear maps."""
    outputs = []
    for part in net:
        x = part(x)
        if isinstance(part, nn.Linear):
            outputs.append(x)
    hidden = outputs[:-1]
    first, last = torch.autograd.grad(F.cross_entropy(outputs[-1], labels), [hidden[0], hidden[-1]])
    return math.log(float(first.square().sum() / last.square().sum())) / (len(hidden) - 1)


def table(found: Found) -> Table:
    """One row a mask, activation, sparsity and method: growth a layer, and that beside the unpruned network's."""

    def measured(cell: Cell) -> dict[str, Any]:
        return {"log_gain": cell["log_gain"], "beside_unpruned": cell["log_gain"] - cell["dense"][:, None, None]}

    rows = found.rows(measured, sparsity=found.sweep["sparsities"], method=list(METHODS))
    for row in rows:
        gain = math.exp(row["log_gain"])
        row |= {"gain": gain, "gain_error": gain * row["log_gain_error"]}
    return rows


def claims(found: Found) -> Claims:
    """Proposition 1 for each kind of mask and activation, and that without rescaling gradients vanish."""
    layers, decided = found.sweep["depth"] - 1, dict[str, Decision]()
    limit = math.log(FACTOR) / layers
    parts = ((cell, *part) for cell in found for part in found.table.where(**cell.at).by("method"))
    for cell, method, rows in parts:
        kind = f"{cell.at['activation']}, {cell.at['masks']} masks, {METHODS[method]}"
        told = f"(a layer by {', '.join(f'{gain:.2f}' for gain in rows.column('gain'))})"
        if method == "none":
            text = f"{kind}: the squared gradient shrinks beside an unpruned network's {told}"
            rule = partial(rows.claim, at_most, "beside_unpruned", 0.0)
        else:
            same = f"over {layers} layers the squared gradient is as an unpruned network's, within {FACTOR:g} times"
            text, rule = f"{kind}: {same} {told}", partial(rows.claim, between, "beside_unpruned", -limit, limit)
        decided[text] = rule(names="{sparsity:.0%} removed")
    return decided


def draw(found: Found) -> plots.Figure:
    """A panel for each mask and activation: growth a layer against sparsity, one line a method."""
    picture, grid = plots.figure(8.4, 6.2, 2, 2, sharex=True, sharey=True)
    spare = FACTOR ** (1 / (found.sweep["depth"] - 1))
    look: dict[str, Any] = {"color": "#cccccc", "zorder": 0.5, "label": "unpruned, and ten times over all layers"}
    for place, (cell, axes) in enumerate(zip(found, grid.flat, strict=True)):
        dense = math.exp(float(cell["dense"].mean()))
        axes.axhspan(dense / spare, dense * spare, **look)
        plots.lines(axes, found.table.where(**cell.at), "sparsity", "gain", "method", METHODS.__getitem__)
        axes.set(title=f"{cell.at['activation']}, {cell.at['masks']} masks", yscale="log")
        axes.set(xlabel="share of weights removed" * (place > 1), ylabel="gradient squared, a layer" * (place % 2 == 0))
        plots.ticks(axes, [0.1, 0.2, 0.5, 1, 2, 5], "y")
    plots.legend_below(picture, *grid.flat[0].get_legend_handles_labels(), columns=2)
    return picture


_SPEC = Spec(data="mnist", depth=100, width=100, examples=100, sparsities=(0.5, 0.8, 0.9))
_PAPER = Sweep(gains, _SPEC, {"masks": ("SNIP", "random"), "activation": ("relu", "tanh")}, runs=20)
_QUICK = _PAPER.but(data="digits", depth=30, runs=32)
_TITLE = "Gradient through pruned networks, rescaled in three ways and not"
_ABOUT = (
    "{depth} hidden layers of width {width}, weights on the edge of chaos, no biases, {examples} images of {data}, "
    "{runs} networks; bars: two standard errors"
)
ARTIFACTS = (Artifact("hayou/prop1", _TITLE, "", {"quick": _QUICK, "paper": _PAPER}, table, claims, draw, _ABOUT),)
