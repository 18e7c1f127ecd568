"""Raghu Figures 2, 5, 12 to 16 (section 2, appendices B.3, D): an arc through networks, length and transitions."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from epoch0 import plots
from epoch0.activity import dichotomies, random_walk, transitions
from epoch0.curves import Arc
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, at_most, between, check, increasing, linear
from epoch0.measure.length import trajectory_length
from epoch0.networks import ensemble
from epoch0.papers import tables
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Claims, Decision, Mean, Table, agrees, by, mean_and_error, over_runs, slopes
from epoch0.papers.trials import DIGITS, MNIST, CurveSpec
from epoch0.seeds import generator
from epoch0.theory import growth as theory
from epoch0.theory.mean_field import propagate

CLOSE = 0.03  # curves "fit" if one sees no difference; the correction of width, sigma_w^2/(4 k chi), is less
SETTLED = 3  # the first layer, counted from 1, from which growth is averaged: there variances have settled
RISES: dict[str, Any] = {"least_r2": 0.97, "rising": True}  # what is exponential, in logarithms
SIGMA = r"$\sigma_w^2$ = {:g}"
_NAME = "width {width}, sigma_w^2 = {variance:g}"
_LABEL = {"width": "width {width}", "variance": r"$\sigma_w^2$ = {variance:g}"}
_NAMED = ", ".join(_LABEL.values())


def block(spec: Spec, seed: int) -> dict[str, Any]:
    """``lengths`` (networks, depth + 1), ``growth`` (networks, depth); if counted, ``transitions`` (networks, depth).
    Of an arc between two points scaled to norm sqrt(size), in networks of which ``variance`` is sigma_w^2 and
    ``biased`` sigma_b^2 / sigma_w^2. A network is the same in any block. Source: Raghu et al. 2017, sections 2.1 and
    2.2.
    """
    arc = Arc(*(math.sqrt(spec.ends.size) * end for end in spec.ends.points()))
    sizes = [spec.ends.size] + [spec.width] * spec.depth
    law, biases = Gaussian(math.sqrt(spec.variance)), math.sqrt(spec.biased * spec.variance)
    drawn: dict[str, Any] = {"biases": Gaussian(biases)} if biases else {}
    count = spec.first + spec.networks
    nets = ensemble(count, sizes, spec.activation, law, linear_output=False, seed=seed, **drawn)[spec.first :]
    measured = trajectory_length(nets, arc, points=spec.tangents, seed=seed)
    found = {"lengths": np.asarray(measured.network_lengths), "growth": np.asarray(measured.network_growth)}
    return {**found, "transitions": transitions(nets, arc).per_layer} if spec.counted else found


@by_cell
def table(cell: Cell) -> Any:
    spec = cell.spec
    growth = np.array([tables.mean_growth(cell["growth"][:, i : i + 1])[:2] for i in range(spec.depth)])
    counts = {"transitions": cell["transitions"]} if spec.counted else {}
    exact = {**predicted(spec), "wide": wide_limit(spec.activation, spec.variance, spec.depth)}
    measured = {"length": cell["lengths"][:, 1:], "growth": Mean(*growth.T), **counts}
    return measured, exact, {"layer": range(1, spec.depth + 1)}


@by_cell
def growth_table(cell: Cell) -> Any:
    """The mean growth of a layer once variances have settled, with bounds; layers that nothing reaches do not count."""
    spec, (mean, error, runs) = cell.spec, tables.mean_growth(cell["growth"][:, SETTLED - 1 :])
    wide = wide_limit(spec.activation, spec.variance, spec.depth, spec.biased)[SETTLED - 1 :]
    return {"growth": Mean(mean, error)}, {"runs": runs, **predicted(spec), "wide": float(np.mean(wide))}


@cache
def predicted(spec: Spec) -> dict[str, float]:
    """Bounds on the growth of one layer (Theorem 3), and for ReLU the exact growth."""
    stds = math.sqrt(spec.variance), math.sqrt(spec.biased * spec.variance)
    found = {"lower": theory.raghu_lower_bound(*stds, spec.width, spec.activation)}
    found["upper"] = theory.raghu_upper_bound(stds[0], spec.width)
    if spec.activation == "relu":
        found["exact"] = float(theory.exact(Gaussian(stds[0] * spec.width**-0.5), spec.width))
    return found


@cache
def wide_limit(activation: str, variance: float, depth: int, biased: float = 0.0) -> tuple[float, ...]:
    """Growth of layers 1 to ``depth`` of very wide networks: sqrt(chi) at each layer's own variance. Inputs have norm
    sqrt(size), so the first layer's variance is that of a weight and a bias. That of later ones tends to q*, which at
    sigma_w^2 = 1 without biases takes very many layers.
    """
    stds = math.sqrt(variance), math.sqrt(biased * variance)
    return tuple(np.sqrt(propagate(activation, *stds, depth, q=(1 + biased) * variance).chi).tolist())


def _log(values: Any) -> Any:
    return np.log(np.maximum(values, 0.5))


def exponential(name: str, rows: Table, layer: int, along: str = "layer") -> Decision:
    """Whether the logarithm of a mean rises linearly with depth, from that layer on."""
    rows = Table(rows[layer - 1 :])
    depth, means, errors = rows.of(along, name, f"{name}_error")
    return by(linear, depth, np.log(means), errors / np.maximum(means, 1e-300), rows[0]["runs"], **RISES)


def depth_claims(found: Found) -> Claims:
    sweep, depth, variances = found.sweep, found.sweep["depth"], found.sweep["variance"]
    widest, steepest = max(sweep["width"]), max(variances)
    counts = {tuple(cell.at.values()): _log(cell["transitions"]) for cell in found}
    rates = np.stack([slopes(counts[widest, variance][:, 1:]) for variance in variances], axis=1)
    half, narrow, deeper = depth // 2, widest // 2, counts[widest, steepest]
    by_depth = mean_and_error(deeper[:, -1] - deeper[:, half - 1])
    few, many = (mean_and_error(counts[width, steepest][:, -1]) for width in (narrow, widest))
    gained = [many.mean - few.mean, by_depth.mean], [math.hypot(few.error, many.error), by_depth.error]
    ways = [f"log ratio, width {narrow} to {widest}", f"log ratio, layer {half} to {depth}"]
    names = [f"sigma_w^2 = {variance:g}" for variance in variances]
    text = f"doubling the depth adds more transitions than doubling the width to {widest} (sigma_w^2 = {steepest:g})"
    return {
        **_exponentials("transitions grow", "transitions", found, 2),
        f"the rate grows with the scale of the weights (width {widest})": over_runs(increasing, rates, names=names),
        text: by(increasing, *gained, sweep["runs"], ways),
    }


def length_claims(found: Found) -> Claims:
    decided, names = {}, ["slope of log transitions over log length"]
    for cell in found:
        lengths, counts = _log(cell["lengths"][:, 2:]), _log(cell["transitions"][:, 1:])
        x = lengths - lengths.mean(axis=1, keepdims=True)
        slope, error = mean_and_error((x * counts).sum(axis=1) / (x * x).sum(axis=1))
        same = by(agrees, [slope], [error], 1.0, cell.runs, names, 0.1, ("measured", "proportional"))
        decided[f"transitions are proportional to length ({_NAME.format_map(cell.at)})"] = same
    return decided


def relu_claims(found: Found) -> Claims:
    widest, later = max(found.sweep["width"]), Table(row for row in found.table if row["layer"] > 1)
    combined = growth_table(found)
    by_width = a_doubling(combined.where(variance=max(found.sweep["variance"])), "width", "growth")
    faster = zip(by_width, a_doubling(combined.where(width=widest), "variance", "growth"), strict=True)
    ways = ["log growth a doubling of the width", "log growth a doubling of sigma_w^2"]
    exact = later.claim(agrees, "growth", "exact", names=f"{_NAME}, layer {{layer}}", resolution=0.05)
    faster_by = f"growth increases faster with scale (at width {widest}) than with width (at the largest scale)"
    return {
        **_exponentials("length grows", "length", found, 1),
        "growth in each layer behind the first is the exact one of Gaussian weights": exact,
        faster_by: by(increasing, *map(list, faster), found.sweep["runs"], ways),
    }


def _exponentials(quantity: str, column: str, found: Found, first: int) -> Claims:
    each = {_NAME.format_map(cell.at): exponential(column, found.table.where(**cell.at), first) for cell in found}
    since = f" from layer {first} on" * (first > 1)
    return {f"{quantity} exponentially with depth{since} ({name})": decision for name, decision in each.items()}


def a_doubling(rows: Table, swept: str, column: str) -> Mean:
    """Change of the logarithm of a column from the first row to the last, a doubling of what is swept."""
    first, last = rows[0], rows[-1]
    doublings = math.log2(last[swept] / first[swept])
    errors = (row[f"{column}_error"] / row[column] for row in (first, last))
    return Mean(math.log(last[column] / first[column]) / doublings, math.hypot(*errors) / doublings)


def _rates(found: Found) -> Claims:
    rows, decided = growth_table(found), {}
    names = {"width": "width {width}", "variance": "sigma_w^2 = {variance:g}"}
    for swept, fixed in (("width", "variance"), ("variance", "width")):
        for _, part in rows.by(fixed) if len(found.sweep[swept]) > 1 else ():
            text = f"the growth rate increases with the {swept} ({part.labels(names[fixed])[0]})"
            decided[text] = part.claim(increasing, "growth", names=names[swept])
    return decided


def tanh_claims(found: Found) -> Claims:
    return {**_exponentials("length grows", "length", found, SETTLED), **_rates(found)}


def bound_claims(found: Found) -> Claims:
    rows, widest = found.table, max(found.sweep["width"])
    wide = rows.where(width=widest)
    limit = wide.column("wide")
    near = wide.claim(between, "growth", (1 - CLOSE) * limit, (1 + CLOSE) * limit, names=_NAME)
    theorem, above = "growth is at least the bound of Theorem 3", rows.column("lower") > 0
    return {
        **rows.bounded(theorem, above, at_least, "growth", "lower", names=_NAME),
        "growth is at most the chi bound (D.2)": rows.claim(at_most, "growth", "upper", names=_NAME),
        f"at width {widest} growth is the wide limit sqrt(chi) to {CLOSE:.0%}": near,
        **_rates(found),
    }


# ---- Theorem 4
@by_cell
def saturated_table(cell: Cell) -> Any:
    width, biased, counts = cell.spec.width, cell.spec.biased, cell["transitions"]
    laws = {"printed": math.sqrt(width / (1 + biased)), "exact": saturated_growth(width, biased)}
    return {"growth": tables.ratio_of_sums(counts[:, 1:].sum(1), counts[:, :-1].sum(1))}, laws


def saturated_growth(width: float, biased: float) -> float:
    """Transitions of a layer for each of the layer before, if all units are -1 or 1 and flip one at a time.

    >>> round(saturated_growth(64, 0.0), 3)                     # Theorem 4 has sqrt(64)
    5.106

    It is derived in docs/raghu.
    """
    return width / math.pi * math.acos(1 - 2 / (width * (1 + biased)))


def saturated_claims(found: Found) -> Claims:
    largest, root = max(found.sweep["variance"]), "sqrt(k / (1 + sigma_b^2/sigma_w^2))"
    rows = found.table.where(variance=largest)
    of = partial(rows.claim, agrees, "growth", names="width {width}, sigma_b^2 = {biased:g} sigma_w^2", resolution=0.05)
    signs = f"the factor a layer is that of networks of signs, (2/pi) {root} when wide (sigma_w^2 = {largest:g})"
    one = f"the constant is 1: a neuron is sensitive to {root} neurons of the layer before"
    decided = {signs: of("exact"), one: of("printed")}
    for biased, part in rows.by("biased"):
        text = f"the factor grows like the root of the width (exponent within 0.05; sigma_b^2 = {biased:g} sigma_w^2)"
        decided[text] = part.power("width", "growth", 0.5, 0.05, "exponent")
    less = "at smaller scales it is less, the more so the smaller (width {})"
    of_scale = partial(Table.claim, decide=increasing, column="growth", names="sigma_w^2 = {variance:g}")
    return decided | {less.format(n): of_scale(part) for n, part in found.table.where(biased=0.0).by("width")}


@plots.drawn(6.4, 5.0, legend=2)
def draw_saturated(found: Found, axes: plots.Axes) -> None:
    widths = found.sweep["width"]
    rows, wide = found.table.where(variance=max(found.sweep["variance"])), np.geomspace(widths[0], widths[-1], 50)
    for index, (ratio, part) in enumerate(rows.by("biased")):
        label = rf"$\sigma_b^2 = {ratio:g}\;\sigma_w^2$" if ratio else "no biases"
        plots.means(axes, part, "width", "growth", index, label)
        plots.curve(axes, wide, [saturated_growth(k, ratio) for k in wide], index)
        axes.plot(wide, np.sqrt(wide / (1 + ratio)), ":", color=plots.COLOURS[index], linewidth=1.2, zorder=3)
    for text, dashes in (("exact law of networks of signs", "-"), ("Theorem 4 with the constant 1", ":")):
        axes.plot([], [], dashes, color="#333333", linewidth=1.0, label=text)
    plots.ticks(axes, widths, scale="log")
    plots.ticks(axes, [1, 2, 3, 5, 8, 12], "y", "log")
    axes.set(xlabel="width $k$", ylabel="transitions for each of the layer before")


@plots.drawn(10.0, 5.0, columns=2, sharey=True)
def depth_and_width(found: Found, panels: Any) -> None:
    (left, right), rows, widths = panels, found.table, found.sweep["width"]
    variance, depth = found.sweep["variance"][-1], found.sweep["depth"]
    for cell in found:
        part, name = rows.where(**cell.at), _NAMED.format_map(cell.at)
        plots.means(left, part, "layer", "transitions", 0, name, **_look(cell, found))
    left.set(xlabel="layer $d$", ylabel="transitions of the neurons of layer $d$", yscale="log")
    part = rows.where(variance=variance, layer=(2, depth // 2, depth))
    plots.lines(right, part, "width", "transitions", "layer", f"layer {{}}, {SIGMA.format(variance)}")
    proportional = part[0]["transitions"] * np.array(widths) / widths[0]
    right.plot(widths, proportional, ":", color=plots.BOUND, label="proportional to width")
    right.set(xlabel="width $k$")
    plots.ticks(right, widths, scale="log")
    for axes in panels:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=8)


def _look(cell: Cell, found: Found) -> dict[str, Any]:
    """A marker for each width, a colour for each variance."""
    marker, colour = (found.sweep[name].index(cell.at[name]) for name in ("width", "variance"))
    return {"marker": plots.MARKERS[marker], "color": plots.COLOURS[colour], "linewidth": 0.8, "linestyle": "-"}


@plots.drawn(6.4, 5.6, legend=3)
def against_length(found: Found, axes: plots.Axes) -> None:
    for cell in found:
        part = found.table.where(**cell.at)
        look = {"xerr": 2 * part.column("length_error"), **_look(cell, found)}
        plots.means(axes, part, "length", "transitions", 0, _NAMED.format_map(cell.at), **look)
    lengths, counts = found.table.of("length", "transitions")
    x = np.array([lengths.min(), lengths.max()])
    y = np.exp(np.mean(np.log(np.maximum(counts, 0.5) / lengths))) * x
    axes.plot(x, y, "--", color=plots.BOUND, label="slope 1: proportional")
    axes.set(xscale="log", yscale="log", ylabel="transitions of the neurons of layer $d$")
    axes.set_xlabel(r"length of the trajectory after layer $d$, $\ell(z^{(d)})$")


@plots.drawn(6.4, 5.2, legend=3)
def lengths(found: Found, axes: plots.Axes) -> None:
    widths, variances, depth = found.sweep["width"], found.sweep["variance"], found.sweep["depth"]
    varied = ", ".join(label for name, label in _LABEL.items() if len(found.sweep[name]) > 1)
    relu = found.sweep["activation"] == "relu"
    for cell in found:
        part, index = found.table.where(**cell.at), widths.index(cell.spec.width)
        colour = plots.COLOURS[variances.index(cell.spec.variance) if len(variances) > 1 else index]
        text = varied.format_map(cell.at)
        plots.means(axes, part, "layer", "length", index, text, color=colour, linestyle="-", linewidth=1.0)
        if relu or cell.spec.width == max(widths):
            ratios = np.cumprod([1.0, *part.column("exact" if relu else "wide")[1:]])
            axes.plot(part.column("layer"), part[0]["length"] * ratios, ":", color=colour, linewidth=1.0)
    text = "exact growth" if relu else r"wide limit $\sqrt{\chi}$, widest network"
    axes.plot([], [], ":", color="#333333", linewidth=1.0, label=f"{text}, from layer 1 on")
    axes.set(xlabel="layer $d$", ylabel=r"mean length of the trajectory, $E\,\ell(z^{(d)})$")
    axes.set(yscale="log", xticks=range(1, depth + 1, max(1, depth // 10)))


@plots.drawn(6.4, 5.4, legend=3)
def growth_over(swept: str, found: Found, axes: plots.Axes) -> None:
    other, label, axis = {
        "width": ("variance", SIGMA, "width $k$"),
        "variance": ("width", "width {:g}", r"variance of the weights, $\sigma_w^2$"),
    }[swept]
    plots.lines(axes, found.table, swept, "growth", other, label)
    for index, (value, part) in enumerate(found.table.by(other)):
        x, colour = part.column(swept), plots.COLOURS[index]
        for bound, dashes in zip(part.of("lower", "upper"), ("--", "-."), strict=True):
            axes.plot(x, np.where(bound == 0, np.nan, bound), dashes, color=colour, linewidth=0.9, alpha=0.8)
        if swept == "width" or value == max(found.sweep["width"]):  # one wide limit for all widths
            axes.plot(x, part.column("wide"), ":", color=colour if swept == "width" else "#000000", linewidth=1.3)
    axes.plot([], [], "--", color="#333333", linewidth=0.9, label="lower bound, Theorem 3 (where above 0.2)")
    axes.plot([], [], "-.", color="#333333", linewidth=0.9, label=r"upper bound, $\chi$ (D.2)")
    axes.plot([], [], ":", color="#000000", linewidth=1.3, label=r"wide limit $\sqrt{\chi}$")
    axes.axhline(1.0, color="#333333", linewidth=0.7, zorder=1)
    axes.set(xlabel=axis, ylabel=r"growth a layer, $\|dz^{(d+1)}\|/\|dz^{(d)}\|$")
    plots.ticks(axes, found.sweep[swept], scale="log")
    top = 1.2 * found.table.column("upper").max()
    plots.ticks(axes, [v for v in (0.25, 0.5, 1, 2, 4, 8) if v <= top], "y", "log")
    axes.set_ylim(0.2, top)


_WIDTHS, _SCALES = (4, 8, 16, 32, 64, 128, 256, 512), (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
# counting transitions takes long
_ARC = Spec(activation="hardtanh", depth=10, ends=CurveSpec("random", size=100), counted=False, biased=0.0, tangents=64)
# each combination has an ensemble of its own
_EVERY = Sweep(block, _ARC, {"width": _WIDTHS, "variance": _SCALES}, 50, "{activation} {width} {variance!r}", block=50)
_GRID = _EVERY.presets(width=(4, 16, 64, 128), variance=_SCALES[:-1], runs=20, block=20)
_SMALL: dict[str, Any] = {"ends": DIGITS, "depth": 8}
_MANY = _EVERY.but(ends=MNIST, counted=True, width=_WIDTHS[2:6], variance=_SCALES[:4], runs=20, block=2)
_COUNTED = _MANY.presets(**_SMALL, width=_WIDTHS[2:5], variance=_SCALES[1:4], runs=40, block=10)
_LINEAR = _MANY.but(activation="relu", counted=False, width=_WIDTHS[2:7:2], runs=200, block=25)
_RELU = _LINEAR.presets(**_SMALL, width=_WIDTHS[2:5:2], variance=_SCALES[:3], block=100)
_BIASED = {name: sweep.but(biased=1.0) for name, sweep in _GRID.items()}
_LARGE = ((0.0, 1e2), (0.0, 1e4), (0.0, 1e6), (0.0, 1e8), (1.0, 1e8), (4.0, 1e8))
_SIGNS, _PAIRS = _ARC.but(depth=3, counted=True), {"width": (16, 64, 144), "biased variance": _LARGE}
_SATURATED = Sweep(block, _SIGNS, _PAIRS, 2000, "{width} {biased!r} {variance!r}", block=50).presets(runs=400)
_WIDTH_ALONE = {name: sweep.but(variance=(4.0,)) for name, sweep in _GRID.items()}
_VARIANCE_ALONE = {name: sweep.but(width=sweep["width"][-1:]) for name, sweep in _GRID.items()}
_FOUR = "Growth of transitions in a layer where all neurons are saturated, hard tanh"
_LENGTH, _GROWTH = "Length at each layer", "Growth of length in a layer against"
_TWO, _FIVE = "Transitions against depth and against width", "Transitions against trajectory length"
_ABOUT = "{activation}, no biases, width {width}, sigma_w^2 = {variance}, depth {depth}; an arc between {ends.ends} "
_ABOUT += "inputs in R^{ends.size}, scaled to norm sqrt(inputs); {runs} networks a point"
_BIASES, _RATIOS = (_ABOUT.replace("no biases", s) for s in ("sigma_b = sigma_w", "sigma_b^2 / sigma_w^2 = {biased}"))
_artifact = partial(Artifact, table=table, draw=lengths, about=_ABOUT)
_by_layer = partial(_artifact, place="", claims=tanh_claims)
_over_width, _over_variance = (partial(growth_over, swept) for swept in ("width", "variance"))
_bounds: dict[str, Any] = {"table": growth_table, "claims": bound_claims, "draw": _over_width, "presets": _GRID}
_bounded = partial(_artifact, place="Theorem 3", **_bounds)
ARTIFACTS: tuple[Artifact, ...] = (
    _artifact("raghu/fig2", _TWO, "section 2.1.1", _COUNTED, claims=depth_claims, draw=depth_and_width),
    _artifact("raghu/fig5", _FIVE, "Theorem 4", _COUNTED, claims=length_claims, draw=against_length),
    _artifact("raghu/fig12", f"{_LENGTH} of ReLU networks", "section 2.2", _RELU, claims=relu_claims),
    _by_layer("raghu/fig13a", f"{_LENGTH}, hard tanh, by width", presets=_WIDTH_ALONE),
    _by_layer("raghu/fig13b", f"{_LENGTH}, hard tanh, by variance", presets=_VARIANCE_ALONE),
    _bounded("raghu/fig13c", f"{_GROWTH} width, with bounds"),
    _bounded("raghu/th3", f"{_GROWTH} width, biases as large as weights", place="", presets=_BIASED, about=_BIASES),
    Artifact("raghu/th4", _FOUR, "", _SATURATED, saturated_table, saturated_claims, draw_saturated, _RATIOS),
    _bounded("raghu/fig13d", f"{_GROWTH} variance, with bounds", draw=_over_variance),
)


# ---- Figures 14a, 14b, 15, 16 (appendix B.3): dichotomies of s inputs while one layer's weights turn
ALIKE = 0.15  # means are called equal if they differ by less than this, relatively
_INPUTS = 10**6  # stream of the inputs' seed, away from those of networks


def swept(spec: Spec, seed: int) -> dict[str, Any]:
    """``counts`` and ``flips`` (networks,), int64. Networks have so many hidden layers and one output, without biases;
    ``variance`` is sigma_w^2, the weights of ``layer``, counted from 0, turn; ``inputs`` is s, random inputs of norm
    sqrt(size). The seed is that of the networks, the inputs and the weights a quarter turn away.
    """
    sizes = [spec.size] + [spec.width] * spec.depth + [1]
    nets = ensemble(spec.networks, sizes, "hardtanh", Gaussian(math.sqrt(spec.variance)), seed=seed)
    sources = [generator(seed, _INPUTS, index) for index in range(spec.networks)]  # so that networks are independent
    x = torch.stack([torch.randn(spec.inputs, spec.size, generator=s, dtype=torch.float64) for s in sources])
    x = x / x.norm(dim=2, keepdim=True) * math.sqrt(spec.size)
    found = dichotomies(nets, x, spec.layer, method="refined", seed=seed)
    return {"counts": found.counts, "flips": found.flips}


@by_cell
def swept_table(cell: Cell) -> Any:
    spec, flips, counts = cell.spec, cell["flips"], cell["counts"]
    walk, error = random_walk(spec.inputs, flips.tolist(), walks=20, seed=spec.width + spec.depth)
    measured = {"dichotomies": counts, "flips": flips, "walk": Mean(walk.mean(), error.mean())}
    return measured, {"remaining": spec.depth - spec.layer, "most": float(counts.max())}


def bounded(claims: Callable[[Found], Claims], found: Found) -> Claims:
    """Further claims, and that no count is above 2^s, nor above the segments between flips."""
    inputs, most = found.sweep["inputs"], found.table.column("most").max()
    above = sum(int((c["counts"] > np.minimum(2**inputs, np.maximum(1, c["flips"]))).sum()) for c in found)
    detail = f"{above} networks above; the most seen are {most:.0f} of {2**inputs}"
    text = f"there are at most 2^{inputs} dichotomies, and no more than flips"
    return {**claims(found), text: by(check, above == 0, detail, {"above": above, "most": most})}


def by_depth(found: Found) -> Claims:
    each, text = found.table.by("width"), "dichotomies grow exponentially with depth (width {})"
    return {text.format(width): exponential("dichotomies", rows, 1, "depth") for width, rows in each}


def by_width(found: Found) -> Claims:
    deepest, widest = max(found.sweep["depth"]), max(found.sweep["width"])
    wider, deeper = found.table.where(depth=deepest), found.table.where(width=widest)
    each = a_doubling(wider, "width", "dichotomies"), a_doubling(deeper, "depth", "dichotomies")
    names = ["log ratio a doubling of width", "a doubling of depth"]
    more = wider.claim(increasing, "dichotomies", names="width {width}")
    slower = by(increasing, *map(list, zip(*each, strict=True)), found.sweep["runs"], names)
    return {
        f"dichotomies increase with the width (depth {deepest})": more,
        f"they grow more slowly in width (at depth {deepest}) than in depth (at width {widest})": slower,
    }


def by_remaining(found: Found) -> Claims:
    parts = {remaining: part for remaining, part in found.table.by("remaining") if len(part) > 1}
    text = "dichotomies do not depend on the layers below ({} hidden layers from the swept one on)"
    same = partial(Table.alike, column="dichotomies", group="depth", groups="depth {depth}", resolution=ALIKE)
    return {text.format(number): same(parts[number], settings="{remaining} layers") for number in sorted(parts)}


def of_walk(found: Found) -> Claims:
    decided = {}
    for row in found.table:
        both = (("measured", "dichotomies"), ("random walk", "walk"))
        each = Table({**row, "of": of, "mean": row[name], "mean_error": row[f"{name}_error"]} for of, name in both)
        text = f"labellings seen are those of a random walk with as many flips (depth {row['depth']})"
        decided[text] = each.alike("mean", "of", "{of}", "depth {depth}", resolution=ALIKE)
    return decided


def _axes(found: Found, axes: plots.Axes, axis: str) -> None:
    inputs = found.sweep["inputs"]
    axes.axhline(2**inputs, linestyle="--", color=plots.COLOURS[0], linewidth=1.0)
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "xytext": (2, -10), "textcoords": "offset points"}
    axes.annotate(f"all $2^{{{inputs}}}$", (0.01, 2**inputs), fontsize=8, color=plots.COLOURS[0], **place)
    axes.set(yscale="log", xlabel=axis, ylabel=f"dichotomies of {inputs} inputs", ylim=(None, 2.0 ** (inputs + 0.7)))


@plots.drawn(6.4, 4.8, legend="best")
def draw(along: str, by: str, label: str, axis: str, found: Found, axes: plots.Axes) -> None:
    rows = Table(sorted(found.table, key=lambda row: (row[by], row[along])))
    plots.lines(axes, rows, along, "dichotomies", by, label)
    _axes(found, axes, axis)
    if along == "width":
        axes.set_xscale("log", base=2)
    plots.ticks(axes, sorted(set(rows.column(along).tolist())))


@plots.drawn(6.4, 4.8)
def draw_walk(found: Found, axes: plots.Axes) -> None:
    for cell, marker, colour in zip(found, plots.MARKERS, plots.COLOURS, strict=False):
        label = f"{cell.spec.depth} hidden layers"
        axes.plot(cell["flips"], cell["counts"], marker, color=colour, alpha=0.8, markersize=4, label=label)
    flips = found["flips"]
    at = np.unique(np.geomspace(max(1.0, flips.min()), flips.max(), 40).astype(int))
    walk, _ = random_walk(found.sweep["inputs"], at.tolist(), walks=50)
    axes.plot(at, walk, "-", color="#000000", linewidth=1.0, label="random walk: one label flips at random")
    _axes(found, axes, "transitions: flips of a label, once round")
    plots.ticks(axes, [tick for tick in (10, 30, 100, 300, 1000, 3000) if at[0] <= tick <= at[-1]], scale="log")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88))


ABOUT = "hard tanh, sigma_w^2 = {variance:g}, no biases, one output; one layer's weights on a great circle, {inputs} "
ABOUT += "random inputs in R^{size}; {runs} networks a point"
_SPEC = Spec(variance=8.0, size=100, inputs=15)
_SEED = "{variance!r} {width} {depth} {layer} {run}"  # every block has a seed, so inputs, of its own
_TO_8, _WIDE = tuple(range(1, 9)), (16, 32, 64, 128, 256, 512)
_ALL = Sweep(swept, _SPEC, {"width": _WIDE, "depth": (1, 2, 4, 6), "layer": (0,)}, 20, _SEED, block=10)
_FOURTEEN_A = _ALL.but(width=_WIDE[1:-1], depth=_TO_8).presets(width=(16, 64), depth=_TO_8[:6], block=20)
_FOURTEEN_B = _ALL.presets(width=(8, 16, 32, 64), depth=(1, 2, 4), runs=30, block=30)
_LAYERS, _FEW = (tuple((n, i) for n in depths for i in range(1, n)) for depths in ((5, 7, 9), (3, 5)))
_UNDER = _ALL.but(axes={"width": (128,), "depth layer": _LAYERS})
_FIFTEEN = _UNDER.presets(**{"width": (32,), "depth layer": _FEW}, runs=60, block=30)
_SIXTEEN = _ALL.but(width=(128,), depth=_TO_8, variance=16.0).presets(width=(32,), depth=_TO_8[:5], runs=40, block=20)
_WALK_ABOUT = ABOUT.replace("a point", "a depth; every point a network, no bars")
_BY_DEPTH = partial(draw, "depth", "width", "width {}", "depth: hidden layers $n$")
_BY_WIDTH = partial(draw, "width", "depth", "{} hidden layers", "width $k$")
_REMAINING = partial(draw, "remaining", "depth", "{} hidden layers in all", "hidden layers from the swept one on")


def _swept(name: str, title: str, presets: Any, claims: Any, draw: Any, about: str = ABOUT) -> Artifact:
    args = swept_table, partial(bounded, claims), draw, about
    return Artifact(f"raghu/{name}", title, "appendix B.3", presets, *args)


ARTIFACTS += (
    _swept("fig14a", "Dichotomies against depth", _FOURTEEN_A, by_depth, _BY_DEPTH),
    _swept("fig14b", "Dichotomies against width", _FOURTEEN_B, by_width, _BY_WIDTH),
    _swept("fig15", "Dichotomies against the remaining depth", _FIFTEEN, by_remaining, _REMAINING),
    _swept("fig16", "Dichotomies against transitions, and a random walk", _SIXTEEN, of_walk, draw_walk, _WALK_ABOUT),
)
