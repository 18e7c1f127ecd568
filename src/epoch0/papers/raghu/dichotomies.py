"""Raghu Figures 14a, 14b, 15, 16 (appendix B.3): dichotomies of s inputs while one layer's weights turn."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch

from epoch0 import plots
from epoch0.activity import dichotomies, random_walk
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import check, increasing
from epoch0.networks import ensemble
from epoch0.papers.raghu.transitions import a_doubling, exponential
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Claims, Mean, Table, by
from epoch0.seeds import generator

ALIKE = 0.15  # means are called equal if they differ by less than this, relatively
_INPUTS = 10**6  # stream of the inputs' seed, away from those of networks


def swept(spec: Spec, seed: int) -> dict[str, Any]:
    """``counts`` and ``flips`` (networks,), int64, and ``unresolved``, steps that could not be told apart.

    Networks have so many hidden layers and one output, without biases; ``variance`` is sigma_w^2, the weights of
    ``layer``, counted from 0, turn; ``inputs`` is s, random inputs of norm sqrt(size). The seed is that of the
    networks, the inputs and the weights a quarter turn away.
    """
    sizes = [spec.size] + [spec.width] * spec.depth + [1]
    nets = ensemble(spec.networks, sizes, "hardtanh", Gaussian(math.sqrt(spec.variance)), seed=seed)
    sources = [generator(seed, _INPUTS, index) for index in range(spec.networks)]  # so that networks are independent
    x = torch.stack([torch.randn(spec.inputs, spec.size, generator=s, dtype=torch.float64) for s in sources])
    x = x / x.norm(dim=2, keepdim=True) * math.sqrt(spec.size)
    found = dichotomies(nets, x, spec.layer, method="refined", seed=seed)
    return {"counts": found.counts, "flips": found.flips, "unresolved": found.unresolved}


def table(found: Found) -> Table:
    """One row a case: labellings, flips, and what a random walk of as many flips sees."""

    def measured(cell: Cell) -> dict[str, Any]:
        flips, seed = cell["flips"], cell.spec.width + cell.spec.depth
        walk, error = random_walk(cell.spec.inputs, flips.tolist(), walks=20, seed=seed)
        return {"dichotomies": cell["counts"], "flips": flips, "walk": Mean(walk.mean(), error.mean())}

    def more(cell: Cell) -> dict[str, Any]:
        return {"remaining": cell.spec.depth - cell.spec.layer, "most": float(cell["counts"].max())}

    return found.rows(measured, more)


def _bounded(found: Found) -> Claims:
    """No count above 2^s, nor above the stretches between flips."""
    inputs, most = found.sweep["inputs"], found.table.column("most").max()
    above = sum(int((c["counts"] > np.minimum(2**inputs, np.maximum(1, c["flips"]))).sum()) for c in found)
    told = f"{above} networks above; the most seen are {most:.0f} of {2**inputs}"
    text = f"there are at most 2^{inputs} dichotomies, and no more than flips"
    return {text: by(check, above == 0, told, {"above": above, "most": most})}


def by_depth(found: Found) -> Claims:
    """Figure 14a: exponential in depth."""
    decided = {
        f"dichotomies grow exponentially with depth (width {width})": exponential("dichotomies", rows, 1, "depth")
        for width, rows in found.table.by("width")
    }
    return {**decided, **_bounded(found)}


def by_width(found: Found) -> Claims:
    """Figure 14b: increasing in width, and more slowly than in depth."""
    deepest, widest = max(found.sweep["depth"]), max(found.sweep["width"])
    wider, deeper = found.table.where(depth=deepest), found.table.where(width=widest)
    each = a_doubling(wider, "width", "dichotomies"), a_doubling(deeper, "depth", "dichotomies")
    names = ["log ratio a doubling of width", "a doubling of depth"]
    return {
        f"dichotomies increase with the width (depth {deepest})": wider.claim(
            increasing, "dichotomies", names="width {width}"
        ),
        f"they grow more slowly in width (at depth {deepest}) than in depth (at width {widest})": by(
            increasing, *map(list, zip(*each, strict=True)), found.sweep["runs"], names
        ),
        **_bounded(found),
    }


def by_remaining(found: Found) -> Claims:
    """Figure 15: depends on the remaining depth alone."""
    decided = {}
    for remaining, some in sorted(found.table.by("remaining"), key=lambda one: one[0]):
        if len(some) < 2:
            continue
        text = f"dichotomies do not depend on the layers below ({remaining} hidden layers from the swept one on)"
        decided[text] = some.alike("dichotomies", "depth", "depth {depth}", "{remaining} layers", resolution=ALIKE)
    return {**decided, **_bounded(found)}


def of_walk(found: Found) -> Claims:
    """Figure 16: as many as a random walk with the same number of flips."""
    decided = {}
    for row in found.table:
        both = (("measured", "dichotomies"), ("random walk", "walk"))
        each = Table({**row, "of": of, "mean": row[name], "mean_error": row[f"{name}_error"]} for of, name in both)
        text = f"labellings seen are those of a random walk with as many flips (depth {row['depth']})"
        decided[text] = each.alike("mean", "of", "{of}", "depth {depth}", resolution=ALIKE)
    return {**decided, **_bounded(found)}


def _axes(found: Found, axes: plots.Axes, axis: str) -> None:
    inputs = found.sweep["inputs"]
    axes.axhline(2**inputs, linestyle="--", color=plots.COLOURS[0], linewidth=1.0)
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "xytext": (2, -10), "textcoords": "offset points"}
    axes.annotate(f"all $2^{{{inputs}}}$", (0.01, 2**inputs), fontsize=8, color=plots.COLOURS[0], **place)
    axes.set(yscale="log", xlabel=axis, ylabel=f"dichotomies of {inputs} inputs")
    axes.set_ylim(top=2.0 ** (inputs + 0.7))


def draw(along: str, by: str, label: str, axis: str, found: Found) -> plots.Figure:
    """Figures 14 and 15: dichotomies against depth, width or remaining depth."""
    rows = Table(sorted(found.table, key=lambda row: (row[by], row[along])))
    picture, axes = plots.figure(6.4, 4.8)
    plots.lines(axes, rows, along, "dichotomies", by, label)
    _axes(found, axes, axis)
    if along == "width":
        axes.set_xscale("log", base=2)
    plots.ticks(axes, sorted(set(rows.column(along).tolist())))
    axes.legend(loc="best")
    return picture


def draw_walk(found: Found) -> plots.Figure:
    """Figure 16: dichotomies against flips, every network a point, and the random walk."""
    picture, axes = plots.figure(6.4, 4.8)
    for cell, marker, colour in zip(found, plots.MARKERS, plots.COLOURS, strict=False):
        label = f"{cell.spec.depth} hidden layers"
        axes.plot(cell["flips"], cell["counts"], marker, color=colour, alpha=0.8, markersize=4, label=label)
    flips = found["flips"]
    least, most = float(flips.min()), float(flips.max())
    at = np.unique(np.geomspace(max(1.0, least), most, 40).astype(int))
    walk, _ = random_walk(found.sweep["inputs"], at.tolist(), walks=50)
    axes.plot(at, walk, "-", color="#000000", linewidth=1.0, label="random walk: one label flips at random")
    _axes(found, axes, "transitions: flips of a label, once round")
    axes.set_xscale("log")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88))
    return picture


ABOUT = (
    "hard tanh, sigma_w^2 = {variance:g}, no biases, one output; one layer's weights on a great circle, {inputs} "
    "random inputs in R^{size}; {runs} networks a point; bars: two standard errors"
)

_SPEC = Spec(variance=8.0, size=100, inputs=15)
_SEED = "{variance!r} {width} {depth} {layer} {run}"  # every block has a seed, so inputs, of its own


def _sweep(width: tuple[int, ...], depth: tuple[int, ...], runs: int, block: int) -> Sweep:
    return Sweep(swept, _SPEC, {"width": width, "depth": depth, "layer": (0,)}, runs, _SEED, block=block)


def _by_remaining(width: int, depths: tuple[int, ...], runs: int, block: int) -> Sweep:
    pairs = tuple((depth, layer) for depth in depths for layer in range(1, depth))
    return Sweep(swept, _SPEC, {"width": (width,), "depth layer": pairs}, runs, _SEED, block=block)


_FOURTEEN_A = {
    "quick": _sweep((16, 64), (1, 2, 3, 4, 5, 6), 20, 20),
    "paper": _sweep((32, 64, 128, 256), (1, 2, 3, 4, 5, 6, 7, 8), 20, 10),
}
_FOURTEEN_B = {
    "quick": _sweep((8, 16, 32, 64), (1, 2, 4), 30, 30),
    "paper": _sweep((16, 32, 64, 128, 256, 512), (1, 2, 4, 6), 20, 10),
}
_FIFTEEN = {"quick": _by_remaining(32, (3, 5), 60, 30), "paper": _by_remaining(128, (5, 7, 9), 20, 10)}
_SIXTEEN = {
    "quick": _sweep((32,), (1, 2, 3, 4, 5), 40, 20).but(variance=16.0),
    "paper": _sweep((128,), (1, 2, 3, 4, 5, 6, 7, 8), 20, 10).but(variance=16.0),
}
_WALK_ABOUT = ABOUT.replace("a point; bars: two standard errors", "a depth; every point a network, no bars")
_BY_DEPTH = partial(draw, "depth", "width", "width {}", "depth: hidden layers $n$")
_BY_WIDTH = partial(draw, "width", "depth", "{} hidden layers", "width $k$")
_REMAINING = partial(draw, "remaining", "depth", "{} hidden layers in all", "hidden layers from the swept one on")
_WALK = "Dichotomies against transitions, and a random walk"
_artifact = partial(Artifact, place="appendix B.3", table=table, about=ABOUT)
ARTIFACTS = (
    _artifact("raghu/fig14a", "Dichotomies against depth", presets=_FOURTEEN_A, claims=by_depth, draw=_BY_DEPTH),
    _artifact("raghu/fig14b", "Dichotomies against width", presets=_FOURTEEN_B, claims=by_width, draw=_BY_WIDTH),
    _artifact(
        "raghu/fig15", "Dichotomies against the remaining depth", presets=_FIFTEEN, claims=by_remaining, draw=_REMAINING
    ),
    _artifact("raghu/fig16", _WALK, presets=_SIXTEEN, claims=of_walk, draw=draw_walk, about=_WALK_ABOUT),
)
