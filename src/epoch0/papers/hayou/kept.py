"""Hayou Figures 1a, 1b, 2, 4: what SNIP keeps, on the edge of chaos, in the chaotic phase, in ResNets (2.2, 3)."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import MORE, at_least, at_most, between, exact
from epoch0.networks import mlp, resnet
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Decision, Table, by, columns_of, mean_and_error, over_runs
from epoch0.papers.trials import EXTENTS, images
from epoch0.prune import critical_sparsity, keep, snip
from epoch0.theory.mean_field import phase
from epoch0.theory.pruning import predicted_density

UNIFORM = 2.0  # A spread over layers is uniform if each keeps its share within this factor
CLOSE = 0.1  # how near a predicted density must be to the measured one, absolute
EDGE, CHAOS = 1.30415, 2.0  # sigma_w for tanh at sigma_b = 0.2: on the edge of chaos, and beyond it


def kept(spec: Spec, seed: int) -> dict[str, Any]:
    """What SNIP keeps of the weights into each hidden unit (``rows``) and of each layer; how many layers keep nothing.
    Scores are in float64: gradients of 100 layers outside the edge of chaos leave the range of float32. ``correlation``
    is the mean correlation of two inputs, and ``square`` their mean square.
    """
    inputs, labels = images(spec.data, spec.examples, seed, flatten=True, dtype=torch.float64)
    sizes = [inputs.shape[1], *[spec.width] * (spec.depth - 1), EXTENTS[spec.data][1]]
    laws = Gaussian(spec.weight_std), Gaussian(spec.bias_std)
    net = mlp(sizes, spec.activation, *laws, seed=seed, dtype=torch.float64)
    masks = list(keep(snip(net, [(inputs, labels)]), spec.sparsity).values())
    pairs = inputs @ inputs.T / inputs.shape[1]
    others = (float(pairs.sum()) - float(pairs.diagonal().sum())) / (len(pairs) * (len(pairs) - 1))
    rows = np.stack([mask.double().mean(1).numpy() for mask in masks[:-1]]).astype(np.float32)
    found: dict[str, Any] = {"rows": rows, "density": np.array([float(mask.double().mean()) for mask in masks])}
    found |= {"dead": sum(not bool(mask.any()) for mask in masks), "square": float(inputs.square().mean())}
    return {**found, "correlation": others / found["square"]}


def table(found: Found) -> Table:
    """One row a layer: the share kept, how often nothing is, and the mean-field prediction for such inputs."""
    cell, spec = found.one(), found.one().spec
    shape, classes, *_ = EXTENTS[spec.data]
    sizes, law = [math.prod(shape), *[spec.width] * (spec.depth - 1), classes], (spec.weight_std, spec.bias_std)
    seen = {"input_square": cell["square"].mean(), "input_correlation": max(cell["correlation"].mean(), 0.0)}
    settings = {**{name: round(value, 3) for name, value in seen.items()}, "examples": spec.examples}
    expected = list(predicted_density(spec.activation, *law, sizes, spec.sparsity, **settings).density.values())
    chi_star = phase(spec.activation, *law).chi
    beside = {"predicted": np.array(expected), "chi": chi_star}, {"layer": range(1, spec.depth + 1)}
    return found.rows(lambda cell: (_kept(cell), *beside))


def _kept(cell: Cell) -> dict[str, Array]:
    return {"density": cell["density"], "fully_pruned": cell["density"] == 0}


def _law(rows: Table) -> Claims:
    expected = rows.column("predicted")
    text = f"beyond the paper: the mean-field prediction of each layer's density is within {CLOSE:g}"
    return {text: rows.claim(between, "density", expected - CLOSE, expected + CLOSE, names="layer {layer}")}


def edge_claims(found: Found) -> Claims:
    """Section 2.2: on the edge of chaos no layer dies, and what is kept is spread evenly."""
    cell, rows = found.one(), found.table
    dead, kept = cell["dead"], 1 - cell.spec.sparsity
    most, mean = int(dead.max()), float(dead.mean())
    evidence = f"{mean:g} of {cell.spec.depth} layers on average, at most {most} in {len(dead)} networks"
    share, names = f"{kept:g} within a factor {UNIFORM:g}", "layer {layer}"
    inner = f"the spread is uniform: each layer between the first and the last keeps {share}"
    first = f"... and so does the first layer, with {math.prod(EXTENTS[cell.spec.data][0])} inputs a unit"
    decided = {"no layer is fully pruned": by(exact, most == 0, evidence, {"most": most, "mean": mean})}
    for text, part in {inner: rows[1:-1], first: rows[:1], "... and so does the last layer": rows[-1:]}.items():
        decided[text] = Table(part).claim(between, "density", kept / UNIFORM, kept * UNIFORM, names=names)
    return {**decided, **_law(rows)}


def chaotic_claims(found: Found) -> Claims:
    """Section 2.2: gradients explode in the chaotic phase, and whole layers are pruned."""
    cell = found.one()
    dead, densities, depth = cell["dead"], cell["density"], cell.spec.depth
    least, (mean, error) = int(dead.min()), mean_and_error(dead)
    drop = densities[:, depth // 2 :].mean(1) - densities[:, : depth // 2].mean(1)
    evidence = f"{mean:g} ± {error:.2g} of {depth} layers on average, at least {least}"
    tenth = over_runs(at_least, dead, depth / 10, names=["layers"])
    explode = "gradients explode on their way back: the second half of the layers keeps less than the first"
    return {
        "whole layers are pruned, in every network": by(exact, least > 0, evidence, {"least": least, "mean": mean}),
        "a tenth of the layers or more is fully pruned, on average": tenth,
        explode: over_runs(at_most, drop, 0.0, names=["difference of densities"]),
        **_law(found.table),
    }


@plots.drawn(8.6, 4.8, mosaic=[["map", "layers"]], width_ratios=[1.15, 1.0])
def draw(found: Found, axes: Any) -> None:
    # the paper's axes: a pixel (i, j) is neuron j of layer i
    rows = np.asarray(found.one().results[0]["rows"])
    extent, look = (0.5, len(rows) + 0.5, 0.5, rows.shape[1] + 0.5), {"origin": "lower", "interpolation": "nearest"}
    image = axes["map"].imshow(100 * rows.T, "cividis", aspect="auto", extent=extent, vmin=0, vmax=100, **look)
    axes["map"].grid(visible=False)
    axes["map"].set(xlabel="hidden layer", ylabel="neuron", title="one network: incoming weights kept")
    axes["map"].figure.colorbar(image, ax=axes["map"], format="{x:.0f}%", pad=0.02)
    cell, table, right = found.one(), found.table, axes["layers"]
    style = {"markersize": 2.5, "elinewidth": 0.6, "capsize": 0}
    plots.means(right, table, "layer", "density", 0, f"mean of {cell.runs} networks", 100, **style)
    plots.curve(right, table.column("layer"), 100 * table.column("predicted"), 1, "mean-field prediction", zorder=3)
    right.axhline(100 * (1 - cell.spec.sparsity), color=plots.BOUND, linestyle=":", label="share of all weights kept")
    title = f"{cell['dead'].mean():.3g} layers keep nothing (mean)"
    right.set(xlabel="layer", ylabel="weights kept (%)", ylim=(-3, 103), title=title)
    plots.legend_below(right.figure, *right.get_legend_handles_labels(), columns=2)


def _figure(letter: str, phase: str, weight_std: float, runs: int, claims: Callable[[Found], Claims]) -> Artifact:
    network = {"depth": 100, "width": 100, "activation": "tanh", "weight_std": weight_std, "bias_std": 0.2}
    paper = Sweep(kept, Spec(data="mnist", examples=100, sparsity=0.7, **network), runs=40)
    about = "{data}; dense {activation} network of {depth} layers, width {width}, sigma_w, sigma_b = {weight_std:g}, "
    about += "{bias_std:g}; {sparsity:.0%} pruned by SNIP on {examples} images; {runs} networks"
    title, presets = f"Weights that SNIP keeps of each neuron, {phase}", paper.presets(data="digits", runs=runs)
    return Artifact(f"hayou/fig1{letter}", title, "", presets, table, claims, draw, about)


# ---- Figures 2 and 4: what SNIP keeps of each layer of a ResNet and of a Stable ResNet (section 3, appendix G)
_LINEAR = 0.1  # percent, below which the axis is linear, so that 0 has a place


def densities(spec: Spec, seed: int) -> dict[str, Any]:
    """Share of each layer's weights that SNIP keeps (sparsities, layers), and when the first layer is fully pruned.
    Weights are He's. Plain and stable networks of a seed have the same weights and the same images. ``batch_norm`` is
    the mode while scoring: ``"train"``, statistics of the batch, or ``"eval"``, here the identity.
    """
    inputs, labels = images(spec.data, spec.examples, seed, flatten=False, dtype=torch.float32)
    net = resnet(spec.depth, spec.width, spec.stable, 10, spec.activation, inputs=tuple(inputs.shape[1:]), seed=seed)
    scores = snip(net, [(inputs, labels)], batch_norm=spec.batch_norm)
    kept = [keep(scores, sparsity) for sparsity in spec.sparsities]
    density = np.array([[float(mask.double().mean()) for mask in masks.values()] for masks in kept])
    weights, critical = [score.numel() for score in scores.values()], float(critical_sparsity(scores))
    return {"density": density, "names": list(scores), "weights": weights, "critical": critical}


def sections(names: list[str]) -> list[list[int]]:
    """Places of the 3x3 convolutions of each section of the network, shortcuts left out."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if name.startswith("layer") and "downsample" not in name:
            found.setdefault(name.partition(".")[0], []).append(place)
    return list(found.values())


def unevenness(density: Array, names: list[str]) -> Array:
    """Standard deviation over mean of the densities (..., layers) in a section, averaged over the sections. A section
    of which nothing is left counts as if one layer had it all.
    """
    parts = []
    for section in (density[..., places] for places in sections(names)):
        mean, most = section.mean(-1), math.sqrt(section.shape[-1] - 1)
        parts.append(np.where(mean > 0, section.std(-1) / np.where(mean > 0, mean, 1.0), most))
    return np.asarray(np.mean(parts, axis=0))


@by_cell
def resnet_table(cell: Cell) -> Any:
    names = [name.removesuffix(".weight") for name in cell.results[0]["names"]]
    others = {"weights": cell.results[0]["weights"], **columns_of(critical_sparsity=cell["critical"])}
    return _kept(cell), others, {"sparsity": cell.spec.sparsities, "layer": names}


def pairs(found: Found) -> Iterator[tuple[Cell, Cell]]:
    """A ResNet and the Stable ResNet with the same weights, of one activation and batch-norm mode."""
    return zip(found.where(network="plain"), found.where(network="stable"), strict=True)


def claims(found: Found) -> Claims:
    """Section 3: Stable ResNet spreads what is kept more evenly, and prunes its deeper layers less."""
    decided: dict[str, Decision] = {}
    for plain, stable in pairs(found):
        spec, layer_names = plain.spec, plain.results[0]["names"]
        kind, last = f"{spec.activation}, batch norm in {spec.batch_norm} mode", sections(layer_names)[-1]
        names = [f"{100 * sparsity:g} %" for sparsity in spec.sparsities]
        uneven = [unevenness(cell["density"], layer_names) for cell in (plain, stable)]
        deep = stable["density"][:, :, last].mean(2) - plain["density"][:, :, last].mean(2)
        dead = (stable["density"] == 0).sum(2) - (plain["density"] == 0).sum(2).astype(float)
        means = f"plain and stable have {', '.join(f'{each[:, -1].mean():.2f}' for each in uneven)}"
        even = f"{kind}: within each section the stable network is more uniform (difference of sd/mean; at {names[-1]} "
        high, low = stable["critical"], plain["critical"]
        text = f"{high.mean():.4f} against {low.mean():.4f}"
        decided[f"{even}{means})"] = over_runs(at_most, uneven[1] - uneven[0], 0.0, names=names)
        decided[f"{kind}: it keeps more of the last section"] = over_runs(at_least, deep, MORE, names=names)
        decided[f"{kind}: it has no more fully pruned layers"] = over_runs(at_most, dead, 0.0, names=names)
        higher = over_runs(at_least, high - low, MORE, names=["difference"])
        decided[f"{kind}: its critical sparsity is higher ({text})"] = higher
    return decided


def resnet_draw(places: tuple[int, ...], found: Found) -> plots.Figure:
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
                for chosen, text, look in ((~shortcuts, name, line), (shortcuts, f"{name}, 1x1 shortcuts", alone)):
                    x, y, spread = (value[chosen] for value in values)
                    plots.points(axes, x, y, spread, index, text, elinewidth=0.8, capsize=1.5, **look)
            for section in sections(names)[1:]:
                axes.axvline(section[0] + 0.5, color="#999999", linewidth=0.7, linestyle="--", zorder=0.8)
            mode = "{activation}, batch norm in {batch_norm} mode".format_map(vars(pair[0].spec))
            axes.set_title(f"{mode}, {100 * pair[0].spec.sparsities[place]:g} % pruned", fontsize=9)
            axes.set_yscale("symlog", linthresh=_LINEAR, linscale=0.4)
            axes.set_ylim(-0.02, 130)
            plots.ticks(axes, [0, 0.1, 1, 10, 100], "y")
    for axes in grid[-1]:
        axes.set_xlabel("layer, in order of execution")
    plots.legend_below(picture, *grid.flat[0].get_legend_handles_labels(), columns=4)
    return picture


def _resnet_figure(name: str, title: str, place: str, shown: tuple[int, ...], **axes: tuple[str, ...]) -> Artifact:
    spec = Spec(data="cifar10", depth=32, width=2, examples=128, sparsities=(0.9, 0.98, 0.995))
    networks = {"plain": {"stable": False}, "stable": {"stable": True}}
    presets = Sweep(densities, spec, {**axes, "network": networks}, runs=6).presets(data="digits", width=1, runs=8)
    about = "{data}; {activation} ResNet-{depth}, channels times {width}, He's weights; SNIP on {examples} images, "
    about += "batch norm in {batch_norm} mode; {runs} networks of each kind"
    args = presets, resnet_table, claims, partial(resnet_draw, shown), about
    return Artifact(f"hayou/{name}", f"Weights that SNIP keeps of each layer, {title}", place, *args)


_ACTIVATIONS = {"activation": ("relu", "tanh"), "batch_norm": ("train",)}
ARTIFACTS = (
    _figure("a", "on the edge of chaos", EDGE, 40, edge_claims),
    _figure("b", "in the chaotic phase", CHAOS, 5, chaotic_claims),
    _resnet_figure("fig2", "ResNet and Stable ResNet", "", (1,), activation=("relu",), batch_norm=("train", "eval")),
    _resnet_figure("fig4", "ReLU and tanh", "appendix G", (0, 1, 2), **_ACTIVATIONS),
)
