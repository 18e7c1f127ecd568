"""Price-Tanner Figure 1: a circle carried through a ReLU network, drawn in two dimensions at several layers."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, at_most
from epoch0.measure.length import trajectory_length
from epoch0.papers.price_tanner.growth import block, networks
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Array, Claims, Table, agrees, mean_and_error
from epoch0.papers.trials import CurveSpec
from epoch0.theory import growth as theory


def drawing(spec: Spec, seed: int) -> dict[str, Any]:
    """The pre-activations of a ``network``, a block of one, along the curve, in the plane in which they vary most.

    ``shown`` are its layers, counted from 1; ``paths`` (shown, points, 2) are coordinates along the first two principal
    components of each layer (the paper does not say how it projects), ``shares`` the part of the variance that the
    plane holds, ``lengths`` those of the curve in all dimensions.
    """
    (net,) = list(networks(spec.network, seed))
    curve = spec.network.curve.curve()
    linear = [name for name, part in net.named_children() if isinstance(part, nn.Linear)]
    chosen = [linear[layer - 1] for layer in spec.shown]
    images = images_in(net, curve.point(torch.linspace(0, 1, spec.points, dtype=torch.float64)), chosen)
    lengths = trajectory_length(net, curve, layers=chosen, points=1000, seed=seed).network_lengths[0, 1:]
    paths, shares = (np.array(each) for each in zip(*images, strict=True))
    return {"paths": paths, "shares": shares, "lengths": np.asarray(lengths)}


def images_in(net: nn.Module, points: torch.Tensor, layers: Sequence[str]) -> list[tuple[Array, float]]:
    """The images of points behind some modules of a network, each in the plane of its two principal components."""
    images = []
    with torch.no_grad():
        for name, part in net.named_children():
            points = part(points)
            if name in layers:
                images.append(projected(points.double().numpy()))
    return images


def projected(points: Array) -> tuple[Array, float]:
    """Coordinates along the two principal components, shape (points, 2), and their share of the variance."""
    centred = points - points.mean(0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    return left[:, :2] * values[:2], float((values[:2] ** 2).sum() / (values**2).sum())


def table(found: Found) -> Table:
    """One row a layer: mean length with its standard error, that of the network drawn, bounds and exact law."""
    shown, entry = found.also["drawing"].one(), Gaussian(found.sweep["std"] * found.sweep["width"] ** -0.5)
    told = dict(zip(shown.spec.shown, zip(shown["lengths"][0], shown["shares"][0], strict=True), strict=True))
    bounds = {"paper_lower": theory.lower_bound, "lower": theory.best_lower_bound}
    bounds |= {"exact": theory.exact, "upper": theory.upper_bound}

    def beside(cell: Cell, layer: int) -> dict[str, Any]:
        width, start = cell.spec.width, 2 * math.pi
        growth, error = mean_and_error(cell["growth"][:, layer - 1]) if layer else (None, None)
        length, share = told.get(layer, (None, None))
        row = {"growth": growth, "growth_error": error}
        row |= {name: start * bound(entry, width) ** layer for name, bound in bounds.items()}
        row["drawn_length"] = float(cell["lengths"][0, layer])
        return {**row, "drawn_pre_activation_length": length, "drawn_variance_shown": share}

    return found.rows(lambda cell: {"length": cell["lengths"]}, beside, layer=range(found.sweep["depth"] + 1))


def claims(found: Found) -> Claims:
    """The length at each layer is between the bounds, and is the exact one."""
    rows, names = Table(found.table[1:]), "layer {layer}"
    entry, width = Gaussian(found.sweep["std"] * found.sweep["width"] ** -0.5), found.sweep["width"]
    decided = {
        "mean length at each layer is at least the bound of Corollary 1": (at_least, "length", "paper_lower"),
        "mean length at each layer is at most the second-moment bound": (at_most, "length", "upper"),
    }
    exact = rows.claim(agrees, "growth", theory.exact(entry, width), names=names, resolution=0.05)
    claims = {text: rows.claim(*how, names=names) for text, how in decided.items()}
    return {**claims, "growth in each layer is the exact one of dense Gaussian weights": exact}


def draw(found: Found) -> plots.Figure:
    """The circle at several layers, and beside them its length at every layer."""
    rows, shown = found.table, found.also["drawing"].one()
    names = ["input", *(f"layer {layer}" for layer in shown.spec.shown)]
    columns = -(-len(names) // 2)
    names += ["."] * (2 * columns - len(names))
    grid = [[*names[row * columns : (row + 1) * columns], "lengths", "lengths"] for row in range(2)]
    picture, panels = plots.figure(2.3 * columns + 4.6, 5.6, mosaic=grid)
    paths = shown["paths"][0]
    angle = np.linspace(0, 2 * np.pi, len(paths[0]))
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    closed_curve(panels["input"], circle, f"input: length {rows[0]['drawn_length']:.3g}")
    for layer, path in zip(shown.spec.shown, paths, strict=True):
        row = rows[layer]
        title = f"layer {layer}: length {row['drawn_pre_activation_length']:.3g}"
        closed_curve(panels[f"layer {layer}"], path, f"{title},\nshows {row['drawn_variance_shown']:.0%} of variance")
    _lengths(panels["lengths"], rows)
    return picture


def closed_curve(axes: plots.Axes, path: Array, title: str) -> None:
    """One closed curve in equal units both ways: it starts at the dot, and its colour tells the direction."""
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection

    pieces = np.stack([path[:-1], path[1:]], axis=1)
    colours = colormaps["viridis"](np.linspace(0, 0.85, len(pieces)))
    axes.add_collection(LineCollection(list(pieces), colors=colours, linewidths=1.5))
    axes.plot(*path[0], marker="o", color=colours[0], markersize=4.5)
    axes.autoscale()
    axes.set_aspect("equal", "datalim")
    axes.set_title(title, fontsize=8.5)
    axes.tick_params(labelsize=7)


def _lengths(axes: plots.Axes, rows: Table) -> None:
    """Length against layer on a log scale."""
    layer, upper, exact, lower, drawn = rows.of("layer", "upper", "exact", "paper_lower", "drawn_length")
    axes.plot(layer, upper, ":", color=plots.BOUND, label="upper bound (second moment)")
    axes.plot(layer, exact, "-", color=plots.COLOURS[0], linewidth=1.0, label="exact mean")
    axes.plot(layer, lower, "--", color=plots.BOUND, label="lower bound (Cor. 1)")
    plots.means(axes, rows, "layer", "length", 0, f"mean of {rows[0]['runs']} networks")
    axes.plot(layer, drawn, linestyle="none", marker="x", color=plots.COLOURS[1], label="network drawn")
    axes.set_yscale("log")
    axes.set(xlabel="layer $d$", ylabel=r"length after the ReLU, $\ell(z^{(d)})$")
    axes.set_xticks(layer)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)


def circles(width: int, networks: int, block_size: int, **more: Any) -> Sweep:
    """Networks whose lengths are averaged; the first of them is drawn."""
    shown = {"points": 2000, "shown": (1, 2, 4, 7, 10)}
    shown |= {name: more.pop(name) for name in shown if name in more}
    law = {"law": "gaussian", "std": 2.0, "density": 1.0}
    fields = {**law, "curve": CurveSpec("random", "circle", width), "width": width, "depth": 10, "tangents": 64, **more}
    also = {"drawing": Sweep(drawing, Spec(network=Spec(**fields, first=0, networks=1), **shown))}
    return Sweep(block, Spec(**fields), runs=networks, block=block_size, also=also)


_PRESETS = {"quick": circles(64, 400, 100), "paper": circles(784, 100, 10)}  # no width is printed; others have 784
_TITLE = "A circle carried through a ReLU network"
_ABOUT = (
    "dense Gaussian ReLU network, sigma_w = 2, bias std 0.01, width {width}; pre-activations of one network along "
    "the first two principal components; lengths of {runs} networks, bars: two standard errors"
)
ARTIFACTS = (Artifact("price-tanner/fig1", _TITLE, "", _PRESETS, table, claims, draw, _ABOUT),)
