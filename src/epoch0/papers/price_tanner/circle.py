"""Price-Tanner Figure 1: a circle carried through a ReLU network, drawn in two dimensions at several layers."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import Claim, at_least, at_most, equal_within_error
from epoch0.experiments.experiment import Trial
from epoch0.measure.length import trajectory_length
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.curve import CurveSpec
from epoch0.papers.means import mean_and_error
from epoch0.papers.price_tanner.growth import blocks
from epoch0.papers.price_tanner.growth_trial import BlockSpec
from epoch0.theory import growth as theory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

COVERED = 0.99
"""Probability of the band in which a single network's length lies."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        weight_std: sigma_w, before the division by sqrt(width).
        bias_std: standard deviation of the biases.
        width: of every layer, the input included.
        depth: number of layers.
        networks: how many the lengths are averaged over; the first of them is drawn.
        block: networks a trial.
        shown: layers that are drawn, counted from 1.
        points: of the circle as it is drawn.
        tangents: points at which lengths are measured.
    """

    weight_std: float
    bias_std: float
    width: int
    depth: int
    networks: int
    block: int
    shown: tuple[int, ...]
    points: int = 2000
    tangents: int = 64


@dataclass(frozen=True)
class DrawingSpec:
    """The network that is drawn, and how.

    Attributes:
        network: a block of one network.
        shown: layers, counted from 1.
        points: of the circle.
    """

    network: BlockSpec
    shown: tuple[int, ...]
    points: int


def drawing(spec: DrawingSpec, seed: int) -> dict[str, Any]:
    """The pre-activations of one network along the closed curve, in the plane in which they vary most.

    Args:
        spec: network and layers.
        seed: of the ensemble.

    Returns:
        ``paths`` (shown, points, 2), float64: coordinates along the first two principal components of each layer;
        ``shares`` (shown,): the part of the variance that the plane holds; ``lengths`` (shown,): length of the
        pre-activation curve in all dimensions, not only in the plane.

    Source: Price & Tanner, Figure 1 (which does not say how it projects).
    """
    (net,) = list(spec.network.ensemble(seed))
    curve = spec.network.curve.curve()
    linear = [name for name, part in net.named_children() if isinstance(part, nn.Linear)]
    chosen = [linear[layer - 1] for layer in spec.shown]
    paths, shares = [], []
    with torch.no_grad():
        value = curve.point(torch.linspace(0, 1, spec.points, dtype=torch.float64))
        for name, part in net.named_children():
            value = part(value)
            if name in chosen:
                path, share = _projected(value.double().numpy())
                paths.append(path)
                shares.append(share)
    lengths = trajectory_length(net, curve, layers=chosen, points=1000, seed=seed).network_lengths[0, 1:]
    return {"paths": np.stack(paths), "shares": np.array(shares), "lengths": np.asarray(lengths)}


def _projected(points: Array) -> tuple[Array, float]:
    """Coordinates along the two principal components, shape (points, 2), and their share of the variance."""
    centred = points - points.mean(0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    return left[:, :2] * values[:2], float((values[:2] ** 2).sum() / (values**2).sum())


def _block(setting: Setting) -> BlockSpec:
    circle = CurveSpec("random", "circle", size=setting.width)
    laws = Gaussian(setting.weight_std), Gaussian(setting.bias_std)
    return BlockSpec(*laws, setting.width, setting.depth, circle, 0, 1, setting.tangents)


def trials(setting: Setting) -> list[Trial]:
    """The drawing, then the blocks of networks."""
    one = DrawingSpec(_block(setting), setting.shown, setting.points)
    drawn = Trial("epoch0.papers.price_tanner.circle:drawing", one, seed=0)
    return [drawn, *blocks(_block(setting), setting.networks, setting.block, seed=0)]


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a layer: mean length with its standard error, that of the network drawn, bounds and exact law."""
    drawn, *measured = results
    lengths, growth = (np.concatenate([np.asarray(b[name]) for b in measured]) for name in ("lengths", "growth"))
    pre_activations = dict(zip(setting.shown, np.asarray(drawn["lengths"]).tolist(), strict=True))
    shares = dict(zip(setting.shown, np.asarray(drawn["shares"]).tolist(), strict=True))
    entry = Gaussian(setting.weight_std * setting.width**-0.5)
    start = 2 * math.pi
    one = {name: bound(entry, setting.width) for name, bound in _BOUNDS.items()}
    rows = []
    for layer in range(setting.depth + 1):
        low, high = 1.0, 1.0
        if layer:
            law = theory.law_over_depth(entry, [setting.width] * layer)
            low, high = (float(law.quantile(p)) for p in ((1 - COVERED) / 2, (1 + COVERED) / 2))
        length, length_error = mean_and_error(lengths[:, layer])
        ratio, ratio_error = mean_and_error(growth[:, layer - 1]) if layer else (None, None)
        rows.append(
            {
                "layer": layer,
                "length": float(length),
                "length_error": float(length_error),
                "growth": ratio,
                "growth_error": ratio_error,
                "networks": len(lengths),
                **{name: start * value**layer for name, value in one.items()},
                "network_low": start * low,
                "network_high": start * high,
                "drawn_length": float(lengths[0, layer]),
                "drawn_pre_activation_length": pre_activations.get(layer),
                "drawn_variance_shown": shares.get(layer),
            }
        )
    return rows


_BOUNDS = {
    "paper_lower": theory.lower_bound,
    "lower": theory.best_lower_bound,
    "exact": theory.exact,
    "upper": theory.upper_bound,
}


def claims(setting: Setting, results: Results) -> list[Claim]:
    """The length at each layer is between the bounds, and is the exact one."""
    rows = table(setting, results)[1:]
    length, error, low, high, growth, growth_error = (
        np.array([row[name] for row in rows])
        for name in ("length", "length_error", "paper_lower", "upper", "growth", "growth_error")
    )
    exact = np.full(len(rows), theory.exact(Gaussian(setting.weight_std * setting.width**-0.5), setting.width))
    names = [f"layer {row['layer']}" for row in rows]
    count = setting.networks
    return [
        at_least("mean length at each layer is at least the bound of Corollary 1", length, error, low, count, names),
        at_most("mean length at each layer is at most the second-moment bound", length, error, high, count, names),
        equal_within_error(
            "growth in each layer is the exact one of dense Gaussian weights", np.stack([growth, exact], 1),
            np.stack([growth_error, np.zeros_like(exact)], 1), count, settings=names, groups=("measured", "exact"),
        ),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """The circle at several layers, and beside them its length at every layer."""
    rows = table(setting, results)
    paths = np.asarray(results[0]["paths"])
    names = ["input", *(f"layer {layer}" for layer in setting.shown)]
    columns = -(-len(names) // 2)
    names += ["."] * (2 * columns - len(names))
    grid = [[*names[row * columns : (row + 1) * columns], "lengths", "lengths"] for row in range(2)]
    picture, panels = plots.figure(2.3 * columns + 4.6, 5.6, mosaic=grid)
    angle = np.linspace(0, 2 * np.pi, len(paths[0]))
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    _path(panels["input"], circle, f"input: length {rows[0]['drawn_length']:.3g}")
    for layer, path in zip(setting.shown, paths, strict=True):
        row = rows[layer]
        title = f"layer {layer}: length {row['drawn_pre_activation_length']:.3g}"
        _path(panels[f"layer {layer}"], path, f"{title},\nshows {row['drawn_variance_shown']:.0%} of variance")
    _lengths(panels["lengths"], rows)
    return picture


def _path(axes: "Axes", path: Array, title: str) -> None:
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


def _lengths(axes: "Axes", rows: list[dict[str, Any]]) -> None:
    """Length against layer on a log scale."""
    layer = [row["layer"] for row in rows]
    axes.fill_between(
        layer, [row["network_low"] for row in rows], [row["network_high"] for row in rows],
        color="#bbbbbb", alpha=0.5, linewidth=0, label=f"{COVERED:.0%} of networks (exact law)",
    )  # fmt: skip
    axes.plot(layer, [row["upper"] for row in rows], ":", color=plots.BOUND, label="upper bound (second moment)")
    axes.plot(layer, [row["exact"] for row in rows], "-", color=plots.COLOURS[0], linewidth=1.0, label="exact mean")
    axes.plot(layer, [row["paper_lower"] for row in rows], "--", color=plots.BOUND, label="lower bound (Cor. 1)")
    error = [row["length_error"] for row in rows]
    plots.points(axes, layer, [row["length"] for row in rows], error, 0, f"mean of {rows[0]['networks']} networks")
    axes.plot(
        layer, [row["drawn_length"] for row in rows], linestyle="none", marker="x", color=plots.COLOURS[1],
        label="network drawn",
    )  # fmt: skip
    axes.set_yscale("log")
    axes.set(xlabel="layer $d$", ylabel=r"length after the ReLU, $\ell(z^{(d)})$")
    axes.set_xticks(layer)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"dense Gaussian ReLU network, sigma_w = {setting.weight_std:g}, bias std {setting.bias_std:g}, width "
        f"{setting.width}; pre-activations of one network along the first two principal components; lengths of "
        f"{setting.networks} networks, bars: two standard errors"
    )


_SHOWN = (1, 2, 4, 7, 10)

ARTIFACTS: tuple[OldArtifact, ...] = (
    OldArtifact(
        "price-tanner/fig1",
        "A circle carried through a ReLU network",
        "Price & Tanner, Figure 1",
        {
            "quick": Setting(2.0, 0.01, 64, 10, 400, 100, _SHOWN),
            "paper": Setting(2.0, 0.01, 784, 10, 100, 10, _SHOWN),
        },
        trials,
        table,
        claims,
        draw,
        about=about,
    ),
)
"""Figure 1. The paper prints no width; its other figures have 784."""
