"""Hayou Figures 2 and 4: what SNIP keeps of each layer of a ResNet and of a Stable ResNet (section 3, appendix G)."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from epoch0 import plots
from epoch0.experiments.claims import at_least, at_most
from epoch0.networks import resnet
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Array, Claims, Decision, Table, mean_and_error, over_runs
from epoch0.papers.trials import images
from epoch0.prune import critical_sparsity, keep, snip

_LINEAR = 0.1  # percent, below which the axis is linear, so that 0 has a place


def densities(spec: Spec, seed: int) -> dict[str, Any]:
    """Share of each layer's weights that SNIP keeps (sparsities, layers), and when the first layer is fully pruned.

    Weights are He's. Plain and stable networks of a seed have the same weights and the same images. ``batch_norm`` is
    the mode while scoring: ``"train"``, statistics of the batch, or ``"eval"``, here the identity.
    """
    inputs, labels = images(spec.data, spec.examples, seed, flatten=False, dtype=torch.float32)
    shape = tuple(inputs.shape[1:])
    net = resnet(spec.depth, spec.width, spec.stable, 10, spec.activation, inputs=shape, seed=seed)
    scores = snip(net, [(inputs, labels)], batch_norm=spec.batch_norm)
    kept = [keep(scores, sparsity) for sparsity in spec.sparsities]
    density = np.array([[float(mask.double().mean()) for mask in masks.values()] for masks in kept])
    weights, critical = [score.numel() for score in scores.values()], float(critical_sparsity(scores))
    return {"density": density, "names": list(scores), "weights": weights, "critical": critical}


def sections(names: list[str]) -> dict[str, list[int]]:
    """Places of the 3x3 convolutions of each section of the network, shortcuts left out."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        first, _, rest = name.partition(".")
        if first.startswith("layer") and "downsample" not in rest:
            found.setdefault(first, []).append(place)
    return found


def unevenness(density: Array, names: list[str]) -> Array:
    """Standard deviation over mean of the densities (..., layers) in a section, averaged over the sections.

    A section of which nothing is left counts as if one layer had it all.
    """
    parts = []
    for places in sections(names).values():
        mean, mine, most = density[..., places].mean(-1), density[..., places], math.sqrt(len(places) - 1)
        parts.append(np.where(mean > 0, mine.std(-1) / np.where(mean > 0, mean, 1.0), most))
    return np.asarray(np.mean(parts, axis=0))


def table(found: Found) -> Table:
    """One row a kind of network, sparsity and layer."""
    names = [name.removesuffix(".weight") for name in found.cells[0].results[0]["names"]]

    def others(cell: Cell, sparsity: float, layer: str) -> dict[str, Any]:
        critical, error = mean_and_error(cell["critical"])
        weights = cell.results[0]["weights"][names.index(layer)]
        return {"weights": weights, "critical_sparsity": critical, "critical_sparsity_error": error}

    def measured(cell: Cell) -> dict[str, Any]:
        return {"density": cell["density"], "fully_pruned": cell["density"] == 0}

    return found.rows(measured, others, sparsity=found.sweep["sparsities"], layer=names)


def pairs(found: Found) -> Iterator[tuple[Cell, Cell]]:
    """A ResNet and the Stable ResNet with the same weights, of one activation and batch-norm mode."""
    return zip(found.where(network="plain"), found.where(network="stable"), strict=True)


def claims(found: Found) -> Claims:
    """Section 3: Stable ResNet spreads what is kept more evenly, and prunes its deeper layers less."""
    decided: dict[str, Decision] = {}
    for plain, stable in pairs(found):
        spec, layer_names = plain.spec, plain.results[0]["names"]
        kind = f"{spec.activation}, batch norm in {spec.batch_norm} mode"
        names = [f"{100 * sparsity:g} %" for sparsity in spec.sparsities]
        last = list(sections(layer_names).values())[-1]
        uneven = [unevenness(cell["density"], layer_names) for cell in (plain, stable)]
        deep = stable["density"][:, :, last].mean(2) - plain["density"][:, :, last].mean(2)
        dead = (stable["density"] == 0).sum(2) - (plain["density"] == 0).sum(2).astype(float)
        means = f"plain and stable have {', '.join(f'{each[:, -1].mean():.2f}' for each in uneven)}"
        even = f"{kind}: within each section the stable network is more uniform (difference of sd/mean; at {names[-1]} "
        critical = [cell["critical"] for cell in (stable, plain)]
        told = " against ".join(f"{each.mean():.4f}" for each in critical)
        higher = over_runs(at_least, critical[0] - critical[1], 0.0, names=["difference"])
        decided[f"{even}{means})"] = over_runs(at_most, uneven[1] - uneven[0], 0.0, names=names)
        decided[f"{kind}: it keeps more of the last section"] = over_runs(at_least, deep, 0.0, names=names)
        decided[f"{kind}: it has no more fully pruned layers"] = over_runs(at_most, dead, 0.0, names=names)
        decided[f"{kind}: its critical sparsity is higher ({told})"] = higher
    return decided


def draw(places: tuple[int, ...], found: Found) -> plots.Figure:
    """A row for each activation and batch-norm mode, a column for each sparsity of these places."""
    both, size = list(pairs(found)), (3.5 * len(places) + 2.0, 2.9 * len(list(pairs(found))) + 0.6)
    picture, grid = plots.figure(*size, len(both), len(places), sharey=True, sharex=True, squeeze=False)
    names = both[0][0].results[0]["names"]
    layers, shortcuts = np.arange(1, len(names) + 1), np.array(["downsample" in name for name in names])
    line: dict[str, Any] = {"markersize": 3.2, "linestyle": "-", "linewidth": 0.7}
    alone: dict[str, Any] = {"markersize": 5.5, "markerfacecolor": "none"}
    for pair, row in zip(both, grid, strict=True):
        row[0].set_ylabel("weights kept (%)")
        for place, axes in zip(places, row, strict=True):
            for index, (name, cell) in enumerate(zip(("ResNet", "Stable ResNet"), pair, strict=True)):
                values = layers + 0.2 * (index - 0.5), *(100 * one for one in mean_and_error(cell["density"][:, place]))
                for chosen, told, look in ((~shortcuts, name, line), (shortcuts, f"{name}, 1x1 shortcuts", alone)):
                    x, y, spread = (one[chosen] for one in values)
                    plots.points(axes, x, y, spread, index, told, elinewidth=0.8, capsize=1.5, **look)
            for section in list(sections(names).values())[1:]:
                axes.axvline(section[0] + 0.5, color="#999999", linewidth=0.7, linestyle="--", zorder=0.8)
            spec = pair[0].spec
            mode = f"{spec.activation}, batch norm in {spec.batch_norm} mode"
            axes.set_title(f"{mode}, {100 * spec.sparsities[place]:g} % pruned", fontsize=9)
            axes.set_yscale("symlog", linthresh=_LINEAR, linscale=0.4)
            axes.set_ylim(-0.02, 130)
            plots.ticks(axes, [0, 0.1, 1, 10, 100], "y")
    for axes in grid[-1]:
        axes.set_xlabel("layer, in order of execution")
    plots.legend_below(picture, *grid.flat[0].get_legend_handles_labels(), columns=4)
    return picture


_ABOUT = "ResNets with He's weights, scored by SNIP on so many examples; bars: two standard errors"


def _figure(name: str, title: str, place: str, shown: tuple[int, ...], **axes: tuple[str, ...]) -> Artifact:
    spec = Spec(data="cifar10", depth=32, width=2, examples=128, sparsities=(0.9, 0.98, 0.995))
    networks = {"plain": {"stable": False}, "stable": {"stable": True}}
    paper = Sweep(densities, spec, {**axes, "network": networks}, runs=6)
    presets = {"quick": paper.but(data="digits", width=1, runs=8), "paper": paper}
    title = f"Weights that SNIP keeps of each layer, {title}"
    return Artifact(f"hayou/{name}", title, place, presets, table, claims, partial(draw, shown), _ABOUT)


_MODES = {"activation": ("relu",), "batch_norm": ("train", "eval")}
_ACTIVATIONS = {"activation": ("relu", "tanh"), "batch_norm": ("train",)}
ARTIFACTS = (
    _figure("fig2", "ResNet and Stable ResNet", "", (1,), **_MODES),
    _figure("fig4", "ReLU and tanh", "appendix G", (0, 1, 2), **_ACTIVATIONS),
)
