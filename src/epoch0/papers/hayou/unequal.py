"""Hayou Table 7: magnitude pruning of layers of unequal variance, against Proposition 4 (appendix E)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from epoch0 import plots
from epoch0.experiments.claims import at_most, between, exact
from epoch0.papers import pictures
from epoch0.papers.catalogue import Artifact
from epoch0.papers.sweep import Cell, Claims, Decision, Found, Sweep, Table, agrees, by
from epoch0.prune import critical_sparsity
from epoch0.seeds import generator
from epoch0.theory.pruning import magnitude_bound, magnitude_density, magnitude_limit

PRINTED = {2.0: (5.77, 1.0), 5.0: (0.81, 0.79), 10.0: (0.72, 0.69)}  # Table 7: gamma -> bound and empirical value
TIGHT = 0.02  # how far below a bound a measurement may be for the bound to count as tight
_DECIMALS = 0.006  # what printing two decimals leaves open


@dataclass(frozen=True)
class UnequalSpec:
    """Normal weights of a dense network; the first layer has 1/gamma of the variance, alpha_1 of the paper."""

    depth: int
    width: int
    gamma: float


def critical(spec: UnequalSpec, seed: int) -> dict[str, Any]:
    """The sparsity from which on magnitude pruning removes the first layer in full."""
    source, size = generator(seed), spec.width**2
    layers = (torch.randn(size, generator=source, dtype=torch.float64).abs() for _ in range(spec.depth))
    scores = {str(layer): scores * (1.0 if layer else spec.gamma**-0.5) for layer, scores in enumerate(layers)}
    return {"critical": float(critical_sparsity(scores))}


def table(found: Found) -> Table:
    """One row a ratio, the paper's columns beside ours."""

    def exact(cell: Cell) -> dict[str, float]:
        bound, empirical = PRINTED.get(cell.spec.gamma, (float("nan"), float("nan")))
        return {**computed(cell.spec), "table_bound": bound, "table_empirical": empirical}

    return found.rows(lambda cell: {"critical_sparsity": cell["critical"]}, exact)


@lru_cache(maxsize=64)
def computed(spec: UnequalSpec) -> dict[str, float]:
    """Proposition 4 as printed and corrected, its limit of infinite depth, and the expected value at this depth."""
    size = spec.width**2
    stds = [spec.gamma**-0.5, *[1.0] * (spec.depth - 1)]
    return {
        "bound_as_printed": magnitude_bound(spec.gamma, size, paper=True),
        "bound_corrected": magnitude_bound(spec.gamma, size),
        "infinite_depth": magnitude_limit(spec.gamma, size),
        "predicted": magnitude_density(stds, [size] * spec.depth, 0.5).critical_sparsity,
    }


def claims(found: Found) -> Claims:
    """Proposition 4, its table, and what is beyond the paper."""
    rows = found.table
    corrected, printed, bounds, told = rows.of("bound_corrected", "bound_as_printed", "table_bound", "table_empirical")
    off = float(np.abs(bounds - printed).max())
    pairs = ", ".join(rows.told("{table_bound:g} printed, {bound_as_printed:.3g} computed"))

    def of(decide: Any, *bounds: Any, **more: Any) -> Decision:
        return rows.claim(decide, "critical_sparsity", *bounds, names="gamma = {gamma:g}", **more)

    return {
        "Table 7: its bounds are those of Proposition 4": by(
            exact, off <= _DECIMALS, pairs, {"largest_difference": off}
        ),
        f"Table 7: its empirical values are found again, within {TIGHT:g}": of(between, told - TIGHT, told + TIGHT),
        "Proposition 4 as printed (gamma, the ratio of variances, multiplies a standard deviation)": of(
            at_most, "bound_as_printed"
        ),
        "Proposition 4 corrected (with the square root of gamma): E[s_cr] is at most the bound": of(
            at_most, "bound_corrected"
        ),
        f"... and the bound is tight, within {TIGHT:g}": of(between, corrected - TIGHT, corrected + 1e-9),
        "beyond the paper: E[s_cr] at this depth is what the law of the weights gives": of(
            agrees, "predicted", resolution=0.05, groups=("measured", "predicted")
        ),
    }


def draw(found: Found) -> pictures.Figure:
    """Table 7 as a picture: critical sparsity against gamma."""
    rows, sweep = found.table, found.sweep
    gammas = rows.column("gamma").tolist()
    picture, axes = plots.figure(7.2, 5.0)
    grid = np.geomspace(1.05 if min(gammas) > 1.2 else 1.02, 1.15 * max(gammas), 60)
    values = [computed(UnequalSpec(sweep["depth"], sweep["width"], float(gamma))) for gamma in grid]
    bound = {"color": plots.BOUND, "zorder": 1.4}
    for name, label, style in (
        ("bound_corrected", "Proposition 4, corrected", {**bound, "linestyle": "--"}),
        ("infinite_depth", "limit of infinite depth", {}),
        ("bound_as_printed", "Proposition 4, as printed", {**bound, "linestyle": ":"}),
    ):
        plots.curve(axes, grid, [each[name] for each in values], 0, label, **style)
    pictures.points(axes, rows, "gamma", "critical_sparsity", 0, f"measured, {sweep['runs']} networks")
    inside = Table(row for row in rows if row["table_bound"] <= 1.05)
    black = {"color": "black", "linestyle": "none"}
    label = "Table 7, bound (at gamma = 2: 5.77)"
    axes.plot(*inside.of("gamma", "table_bound"), "+", markersize=10, label=label, **black)
    axes.plot(*rows.of("gamma", "table_empirical"), "x", markersize=7, label="Table 7, empirical", **black)
    pictures.ticks(axes, [2, 3, 5, 10], scale="log")
    axes.set(xlabel=r"ratio of the variances, $\gamma$", ylabel=r"critical sparsity $s_{cr}$")
    axes.set(ylim=(0.25, 1.05), xlim=(1.5, 1.1 * max(gammas)))
    axes.legend(loc="lower left")
    return picture


_PAPER = Sweep(critical, UnequalSpec(100, 100, 2.0), {"gamma": (2.0, 5.0, 10.0)}, runs=100, stride=1000)

_PRESETS = {"quick": _PAPER.but(runs=60), "paper": _PAPER}
_TITLE = "Critical sparsity of magnitude pruning when one layer is weaker"
_ABOUT = (
    "L = {depth} layers of {width} x {width} normal weights, the first with 1/gamma of the variance; {runs} networks a "
    "ratio; bars: two standard errors"
)
ARTIFACTS = (Artifact("hayou/tab7", _TITLE, "appendix E", _PRESETS, table, claims, draw, _ABOUT),)
