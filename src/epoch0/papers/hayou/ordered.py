"""Hayou's Theorem 1 and Proposition 4 against critical sparsities: of SNIP in the ordered phase, with a sharper
prediction (section 2.2), and of magnitude pruning where one layer is weaker (Table 7, appendix E and its lemmas).
"""

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from epoch0 import plots, special
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, at_most, between, exact, increasing
from epoch0.networks import mlp
from epoch0.papers.hayou.chains import PHASES, moment_table, well_conditioned
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Claims, Decision, Table, agrees, by
from epoch0.prune import critical_sparsity, snip
from epoch0.seeds import generator
from epoch0.theory import pruning as law
from epoch0.theory.mean_field import chi, phase, q_star

PAPER_KAPPA, PAPER_BOUND, PAPER_MEASURED = 0.2, 0.27, 0.22  # what the text below Theorem 1 prints for L = N = 100
FACTOR = 0.05  # how near, relatively, second moments must follow chi, layer by layer; the edge is as near to 1
NEAR = 0.25  # relative difference up to which the sharper prediction counts as right

_EXAMPLE = math.exp(-8 * PAPER_KAPPA), math.exp(-2 * PAPER_KAPPA)  # its gain, and if kappa is |log chi|/2
BIAS_STD = 0.3
_INPUTS, _LABELS = range(2)  # streams of a seed


def critical(spec: Spec, seed: int) -> dict[str, Any]:
    """The smallest sparsity at which SNIP prunes a layer in full; equal widths, Gaussian examples, random labels."""
    inputs = torch.randn(spec.examples, spec.width, generator=generator(seed, _INPUTS), dtype=torch.float64)
    labels = torch.randint(spec.width, (spec.examples,), generator=generator(seed, _LABELS))
    laws = Gaussian(spec.weight_std), Gaussian(spec.bias_std)
    net = mlp([spec.width] * (spec.depth + 1), spec.activation, *laws, seed=seed, dtype=torch.float64)
    return {"critical": float(critical_sparsity(snip(net, [(inputs, labels)])))}


@lru_cache
def weight_std(gain: float, bias_std: float) -> float:
    """sigma_w at which tanh has this gain at the fixed point of the variance, below the edge of chaos."""
    if bias_std == 0:
        return math.sqrt(gain)  # q is 0 there, and the slope of tanh 1
    from scipy.optimize import brentq

    return float(brentq(lambda s: chi("tanh", s, q_star("tanh", s, bias_std)) - gain, 1e-3, 3.0, xtol=1e-10))


@lru_cache
def sharper(gain: float, bias_std: float, depth: int, width: int, examples: int) -> tuple[float, float]:
    """Mean-field prediction of E[s_cr] and of its standard deviation over networks."""
    sizes = [width] * (depth + 1)
    found = law.predicted_density("tanh", weight_std(gain, bias_std), bias_std, sizes, 0.5, examples=examples)
    return found.critical_sparsity, found.critical_sparsity_sd


def table(found: Found) -> Table:
    def columns(cell: Cell) -> Any:
        spec, gain = cell.spec, cell.at["chi"]
        expected, spread = sharper(gain, spec.bias_std, spec.depth, spec.width, spec.examples)
        row = {"kappa": abs(math.log(gain)) / 8, "weight_std": weight_std(gain, spec.bias_std)}
        row["sd_over_networks"] = float(cell["critical"].std(ddof=1)) if cell.runs > 1 else math.nan
        row |= {"predicted": expected, "predicted_sd": spread, "bound": law.ordered_bound(gain, spec.depth, spec.width)}
        row["bound_log10"] = law.ordered_bound(gain, spec.depth, spec.width, paper=True)
        return {"critical_sparsity": cell["critical"]}, row

    rows, phases = found.rows(columns), found.also["phases"]
    more = moment_table(phases)
    for row, cell in zip(more, phases, strict=True):
        row["gain"] = phase("tanh", math.sqrt(cell.spec.variance), cell.spec.bias_std).chi
    return Table({**dict.fromkeys([*rows[0], *more[0]], math.nan), "kind": "", **row} for row in (*rows, *more))


def claims(found: Found) -> Claims:
    rows, bare = found.table.where(bias_std=BIAS_STD), found.table.where(bias_std=0.0)
    at, at_bare, bound = "chi = {chi:.3g}", "chi = {chi:.3g}, no biases", (at_most, "critical_sparsity", "bound")
    of, expected = partial(_of, rows, at), rows.column("predicted")
    theorem = "Theorem 1 with biases: E[s_cr] is at most the bound"
    near = of(between, (1 - NEAR) * expected, (1 + NEAR) * expected)
    nothing = "without biases q is 0, the network linear, and nothing collapses: s_cr stays above 0.95"
    decided = {
        **rows.bounded(theorem, rows.column("bound") < 1, *bound, names=at),
        "the critical sparsity is smaller the further chi is below 1": of(increasing),
        **_example(found.sweep, rows),
        f"beyond the paper: the sharper prediction is within {100 * NEAR:g} %": near,
        **bare.bounded("Theorem 1 as stated holds without biases too", bare.column("bound") < 1, *bound, names=at_bare),
        nothing: _of(bare, at_bare, at_least, 0.95),
    }
    for kind, part in _phases(found):
        gain = part[0]["gain"]
        text = f"{kind}: ill-conditioned, m_1 is chi^(L-1) = {gain:.3g}^(L-1) times m_L, chi within {FACTOR:.0%}"
        beside = part.claim(between, "growth", (1 - FACTOR) * gain, (1 + FACTOR) * gain, names="{blocks} layers")
        decided |= {text: beside} if abs(math.log(gain)) > FACTOR else well_conditioned(kind, part)
    return decided


def _phases(found: Found) -> Iterator[tuple[str, Table]]:
    return Table(row for row in found.table if row["kind"]).by("kind")


def _of(rows: Table, names: str, decide: Any, *bounds: Any, **more: Any) -> Decision:
    return rows.claim(decide, "critical_sparsity", *bounds, names=names, **more)


def _example(sweep: Sweep, rows: Table) -> Claims:
    """The text below the theorem: kappa = 0.2, L = N = 100."""
    bound = partial(law.ordered_bound, _EXAMPLE[0], sweep["depth"], sweep["width"])
    value, decimal = bound(), bound(paper=True)
    example = f"the example below Theorem 1: at kappa = {PAPER_KAPPA:g} the bound is {100 * PAPER_BOUND:g} % "
    example += sweep.fill("(here L = {depth}, N = {width})")
    detail = f"the formula gives {value:.3g}; with log base 10 in place of the natural logarithm {decimal:.3g}"
    decided = {example: by(exact, abs(value - PAPER_BOUND) < 0.01, detail, {"formula": value, "log10": decimal})}
    first = f"the example: at kappa = {PAPER_KAPPA:g} E[s_cr] measures"
    for text, wanted in zip((first, f"... if kappa is |log chi|/2 (chi = {_EXAMPLE[1]:.3g})"), _EXAMPLE, strict=True):
        near = _of(rows.where(chi=wanted), "chi = {chi:.3g}", between, PAPER_MEASURED - 0.02, PAPER_MEASURED + 0.02)
        decided[f"{text} {100 * PAPER_MEASURED:g} %, within 2"] = near
    return decided


def draw(found: Found) -> plots.Figure:
    sweep, biased = found.sweep, found.table.where(bias_std=BIAS_STD)
    depth, width, gains = sweep["depth"], sweep["width"], biased.column("chi")
    picture, (axes, right) = plots.figure(11.0, 5.0, columns=2)
    grid = np.unique(np.concatenate([np.linspace(gains.min(), gains.max(), 14), gains]))
    mean, spread = np.transpose([sharper(float(x), BIAS_STD, depth, width, sweep["examples"]) for x in grid])
    low, high = np.maximum(mean - 2 * spread, 1e-3), np.minimum(mean + 2 * spread, 1.0)
    label = "its spread over networks (two sd)"
    axes.fill_between(grid, low, high, color="#cccccc", zorder=0.9, label=label, linewidth=0)
    plots.curve(axes, grid, mean, 0, "sharper prediction (mean field)")
    fine, ten = np.linspace(min(0.01, *gains), 0.999, 400), "... with log base 10, as in the paper's example"
    for paper, line, label in ((False, "--", "Theorem 1 (natural logarithm)"), (True, ":", ten)):
        values = np.array([law.ordered_bound(float(x), depth, width, paper=paper) for x in fine])
        axes.plot(*np.array([fine, values])[:, values <= 1], color=plots.BOUND, linestyle=line, label=label, zorder=1.4)
    of, bare = ("chi", "critical_sparsity"), found.table.where(bias_std=0.0)
    plots.means(axes, biased, *of, 0, rf"measured, $\sigma_b={BIAS_STD:g}$")
    plots.means(axes, bare, *of, 1, r"measured, $\sigma_b=0$: nothing collapses", markerfacecolor="none")
    plots.ticks(axes, [0.02, 0.05, 0.1, 0.2, 0.5, 1.0], "y", "log")
    axes.set(xlabel=r"gain of a layer, $\chi$", ylabel=r"critical sparsity $s_{cr}$", xlim=(0, 1.01), ylim=(0.02, 1.35))
    axes.legend(loc="lower right", fontsize=8)
    for index, (kind, rows) in enumerate(_phases(found)):
        layers, growth, error, gain = rows.of("blocks", "growth", "growth_error", "gain")
        plots.points(right, layers, growth ** (layers - 1), (layers - 1) * growth ** (layers - 2) * error, index, kind)
        plots.curve(right, layers, gain ** (layers - 1), index)
    right.plot([], [], color="#333333", label=r"$\chi^{L-1}$")
    right.set(yscale="log", xlabel="layers $L$", ylabel="$m_1/m_L$, second moments of $W\\,dL/dW$")
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=8)
    return picture


def gains(with_biases: tuple[float, ...], without: tuple[float, ...]) -> dict[tuple[float, float], dict[str, float]]:
    """Gains of a layer with biases, and those for sigma_b = 0, as an axis."""
    axis = {(gain, BIAS_STD): {"weight_std": WEIGHT_STD[gain], "bias_std": BIAS_STD} for gain in with_biases}
    return axis | {(gain, 0.0): {"weight_std": round(math.sqrt(gain), 9), "bias_std": 0.0} for gain in without}


#: gain -> what weight_std finds for sigma_b = 0.3; written down, for it takes a while and the catalogue is read often
WEIGHT_STD = {
    0.1: 0.343135713, _EXAMPLE[0]: 0.491676288, 0.5: 0.804122293, _EXAMPLE[1]: 0.969181, 0.7: 0.999730265,
    0.8: 1.111109971, 0.85: 1.173490172, 0.9: 1.241508525, 0.95: 1.315596678, 0.99: 1.379143825,
}  # fmt: skip
_SPEC = Spec(depth=100, width=100, activation="tanh", examples=100)
_AXIS, _FEW = gains(tuple(WEIGHT_STD), (_EXAMPLE[0], 0.5, 0.8, 0.95)), gains((*_EXAMPLE, 0.8, 0.95), (_EXAMPLE[0], 0.8))
_PAPER = Sweep(critical, _SPEC, {"chi bias_std": _AXIS}, runs=10, stride=1000, also={"phases": PHASES})
_PRESETS = _PAPER.presets(axes={"chi bias_std": _FEW}, runs=6, also={"phases": PHASES.but(networks=300)})
# ---- Proposition 4 and Table 7
PRINTED = {2.0: (5.77, 1.0), 5.0: (0.81, 0.79), 10.0: (0.72, 0.69)}  # Table 7: gamma -> bound and empirical value
MEANT = 10.0, 15.0  # which gamma its second and third column fit
TIGHT = 0.02  # how far below a bound a measurement may be for the bound to count as tight
_DECIMALS = 0.006  # what printing two decimals leaves open


def unequal_critical(spec: Spec, seed: int) -> dict[str, Any]:
    """Where magnitude pruning removes all of a first layer of 1/gamma of the others' variance, the paper's alpha_1."""
    source, size = generator(seed), spec.width**2
    layers = (torch.randn(size, generator=source, dtype=torch.float64).abs() for _ in range(spec.depth))
    scores = {str(layer): scores * (1.0 if layer else spec.gamma**-0.5) for layer, scores in enumerate(layers)}
    return {"critical": float(critical_sparsity(scores))}


@by_cell
def unequal_table(cell: Cell) -> Any:
    bound, empirical = PRINTED.get(cell.spec.gamma, (math.nan, math.nan))
    exact = {**computed(cell.spec), "table_bound": bound, "table_empirical": empirical}
    return {"critical_sparsity": cell["critical"]}, exact


def computed(spec: Spec) -> dict[str, float]:
    """Proposition 4 as printed and corrected, its limit of infinite depth, and the expected value at this depth."""
    size, stds = spec.width**2, [spec.gamma**-0.5, *[1.0] * (spec.depth - 1)]
    return {
        "bound_as_printed": law.magnitude_bound(spec.gamma, size, paper=True),
        "bound_corrected": law.magnitude_bound(spec.gamma, size),
        "infinite_depth": law.magnitude_limit(spec.gamma, size),
        "predicted": law.magnitude_density(stds, [size] * spec.depth, 0.5).critical_sparsity,
    }


def unequal_claims(found: Found) -> Claims:
    rows, given, meant = found.table, found.table.where(gamma=tuple(PRINTED)), found.table.where(gamma=MEANT)
    printed, bounds, measured = given.of("bound_as_printed", "table_bound", "table_empirical")
    corrected, off = rows.column("bound_corrected"), float(np.abs(bounds - printed).max())
    pairs = ", ".join(given.labels("{table_bound:g} printed, {bound_as_printed:.3g} computed"))
    wrong = float(np.abs(meant.column("bound_corrected") - bounds[1:]).max())
    values = ", ".join(meant.labels("{bound_corrected:.3f}"))
    of, of_given, of_meant = (partial(_of, part, "gamma = {gamma:g}") for part in (rows, given, meant))
    shifted = "Table 7: the bounds of its second and third column are the corrected ones at gamma = 10 and 15"
    as_printed = "Proposition 4 as printed (gamma, the ratio of variances, multiplies a standard deviation)"
    better = "Proposition 4 corrected (with the square root of gamma): E[s_cr] is at most the bound"
    expected = "beyond the paper: E[s_cr] at this depth is what the law of the weights gives"
    same = by(exact, off <= _DECIMALS, pairs, {"largest_difference": off})
    low, high = measured - TIGHT, measured + TIGHT
    return {
        "Table 7: its bounds are those of Proposition 4": same,
        f"Table 7: its empirical values are found again, within {TIGHT:g}": of_given(between, low, high),
        shifted: by(exact, wrong <= _DECIMALS, values, {"largest_difference": wrong}),
        f"... and their empirical values are measured there, within {TIGHT:g}": of_meant(between, low[1:], high[1:]),
        as_printed: of(at_most, "bound_as_printed"),
        better: of(at_most, "bound_corrected"),
        f"... and the bound is tight, within {TIGHT:g}": of(between, corrected - TIGHT, corrected + 1e-9),
        expected: of(agrees, "predicted", resolution=0.05, groups=("measured", "predicted")),
    }


@plots.drawn(7.2, 5.0, legend="lower left")
def unequal_draw(found: Found, axes: plots.Axes) -> None:
    rows, sweep = found.table, found.sweep
    largest = rows.column("gamma").max()
    grid = np.geomspace(1.05, 1.15 * largest, 60).tolist()
    law = Table({"gamma": gamma, **computed(sweep.spec.but(gamma=gamma))} for gamma in grid)
    bound = {"color": plots.BOUND, "zorder": 1.4}
    plots.column(axes, law, "gamma", "bound_corrected", 0, "Proposition 4, corrected", linestyle="--", **bound)
    plots.column(axes, law, "gamma", "infinite_depth", 0, "limit of infinite depth")
    plots.column(axes, law, "gamma", "bound_as_printed", 0, "Proposition 4, as printed", linestyle=":", **bound)
    plots.means(axes, rows, "gamma", "critical_sparsity", 0, f"measured, {sweep['runs']} networks")
    inside = Table(row for row in rows if row["table_bound"] <= 1.05)
    black: dict[str, Any] = {"color": "black", "linestyle": "none"}
    label = "Table 7, bound (at gamma = 2: 5.77)"
    axes.plot(*inside.of("gamma", "table_bound"), "+", markersize=10, label=label, **black)
    axes.plot(*rows.of("gamma", "table_empirical"), "x", markersize=7, label="Table 7, empirical", **black)
    plots.ticks(axes, [2, 3, 5, 10, 15], scale="log")
    axes.set(xlabel=r"ratio of the variances, $\gamma$", ylabel=r"critical sparsity $s_{cr}$")
    axes.set(ylim=(0.25, 1.05), xlim=(1.5, 1.1 * largest))


# ---- Appendix Lemmas 3 and 4: quantiles of sizes of Gaussians
AT = (0.5, 0.9, 0.99)


def deviations(spec: Spec, seed: int) -> dict[str, Any]:
    """How far the exact law of an order statistic's deviation is from the normal one, with the root and as printed."""
    at, n, z = np.array(AT), spec.n, np.linspace(-4, 4, 801)[:, None]
    quantile = special.ndtri((1 + at) / 2)
    scale = math.sqrt(2 * n / math.pi) * np.exp(-(quantile**2) / 2)
    below = (quantile + z * (at - at**2) ** power / scale for power in (0.5, 1))
    shares = [special.erf(np.maximum(each, 0) / math.sqrt(2)) for each in below]
    apart = [abs(special.betainc(n * at, n - n * at + 1, share) - special.ndtr(z)).max(0) for share in shares]
    return dict(zip(("root", "printed"), apart, strict=True))


@by_cell
def deviation_table(cell: Cell) -> Any:
    return {}, cell.results[0], {"p": AT}


def deviation_claims(found: Found) -> Claims:
    first, *_, last = (rows for _, rows in found.table.by("n"))
    nearer = (first.column("root") / last.column("root")).min() / (last[0]["n"] / first[0]["n"]) ** 0.5
    far = last.column("printed").min()
    z, gamma, eps = np.arange(1, 60_001) / 1000, np.array([[[1.1]], [[2.0]], [[5.0]]]), np.array([[0.1], [0.5], [0.9]])
    inner, outer = (math.log(2) + special.log_ndtr(-each) for each in (z, gamma * z))
    ends = 2 * special.ndtr(-np.where(outer >= gamma ** (2 - eps) * inner, z, 0).max(2)).ravel()
    told = f"1 - x is {', '.join(f'{end:.1e}' for end in ends)} for gamma 1.1, 2, 5 with eps 0.1, 0.5, 0.9"
    return {
        "Lemma 3 with the root of p (1 - p)": by(exact, bool(nearer > 0.8), f"nearer by {nearer:.2f} sqrt(n) and more"),
        "Lemma 3 as printed, with p (1 - p)": by(exact, bool(far < 0.01), f"at the largest n still {far:.2f} apart"),
        "Lemma 4: there is such an x": by(exact, bool(ends.min() > 0), told),
    }


@plots.drawn(6.6, 4.4, legend="best")
def draw_deviations(found: Found, axes: plots.Axes) -> None:
    for index, (p, rows) in enumerate(found.table.by("p")):
        plots.column(axes, rows, "n", "root", index, f"p = {p:g}", marker="o")
        plots.column(axes, rows, "n", "printed", index, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="n (dotted: as printed)", ylabel="distance to the normal law")


_SIZES = tuple(10**power for power in range(2, 9))
_EXACT = Sweep(deviations, Spec(), {"n": _SIZES}).presets(n=_SIZES[:5]), deviation_table, deviation_claims
_ORDER = "Order statistics of sizes of Gaussians, and their quantiles near 1", "and 4, appendix E", *_EXACT
_LAYERS, _RATIOS = Spec(depth=100, width=100), {"gamma": (2.0, 5.0, 10.0, 15.0)}
_WIDE = Sweep(unequal_critical, _LAYERS, _RATIOS, runs=300, seed=500, stride=1000).presets(runs=200)
_ORDERED = "Critical sparsity of SNIP in the ordered phase"
_WEAKER = "Critical sparsity of magnitude pruning when one layer is weaker"
_ABOUT = f"tanh, L = {{depth}}, N = {{width}}, sigma_b = {BIAS_STD:g} (and 0); {{runs}} networks a gain, {{examples}} "
_ABOUT += "Gaussian inputs with random labels; right: tanh, width 100 and 48 channels, {phases[networks]} networks each"
_OF_SEVEN = "{depth} layers of {width} x {width} normal weights, the first of variance 1/gamma; {runs} networks a ratio"
_SEVEN = unequal_table, unequal_claims, unequal_draw, _OF_SEVEN
ARTIFACTS = (
    Artifact("hayou/th1", _ORDERED, "section 2.2", _PRESETS, table, claims, draw, _ABOUT),
    Artifact("hayou/lemma3", *_ORDER, draw_deviations, "exact laws of {n[0]} to {n.last} sizes, no bars"),
    Artifact("hayou/tab7", _WEAKER, "appendix E", _WIDE, *_SEVEN),
)
