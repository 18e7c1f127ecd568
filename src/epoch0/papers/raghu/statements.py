"""Raghu's Theorem 1 and Corollary 1 (2.1, 2.2), 3.1 and appendix B.3 on weights that change, lemmas of appendix B.1.

Theorem 1 is measured on a line (m = 1) at equal numbers of neurons: its chain of inequalities, the construction that it
calls asymptotically as good, and random networks. Section 3.1: small changes of weights and the last layer.
"""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, jvp

from epoch0 import plots, regions, special
from epoch0.activity import activation_patterns
from epoch0.distributions import Gaussian, Uniform
from epoch0.experiments.claims import MORE, at_least, between, check, exact, increasing
from epoch0.networks import ensemble
from epoch0.networks.constructions import folding
from epoch0.papers.raghu.transitions import exponential
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Mean, Table, agrees, by, mean_and_error
from epoch0.seeds import generator
from epoch0.theory.mean_field import propagate
from epoch0.theory.regions import upper_bound

NEAR = 0.15  # width 200 and ten layers differ from infinite width by less
_INPUTS = 10**6  # stream of the inputs' seed, away from those of networks


# ---- Theorem 1 and Corollary 1
def chain(spec: Spec, seed: int) -> dict[str, Any]:
    """Activation patterns of ReLU networks on the whole line, their ``neurons`` divided among so many layers.
    ``random`` (networks,), ``folded`` of the construction; ``repeated``, patterns that came back on the line, and
    ``back``, the share of them on a circle through nine inputs.
    """
    width, ends = spec.neurons // spec.layers, torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    options: Any = {"weights": Gaussian(math.sqrt(2.0)), "biases": Gaussian(1.0), "seed": seed, "dtype": torch.float64}
    of_line, of_circle = (ensemble(spec.networks, [size, *[width] * spec.layers, 1], **options) for size in (1, 9))
    found: Any = [regions.on_line(net, *ends, kind="line") for net in of_line]
    repeated = sum(len(item.patterns) - len(np.unique(item.patterns, axis=0)) for item in found)
    folded: Any = regions.on_line(folding(1, [width] * spec.layers, dtype=torch.float64), *ends, kind="line")
    angle, back = torch.linspace(0, 2 * math.pi, 2001, dtype=torch.float64)[:, None], []
    for index, net in enumerate(of_circle):
        across = torch.randn(2, 9, generator=generator(seed, _INPUTS, index), dtype=torch.float64)
        bits = activation_patterns(net, angle.cos() * across[0] + angle.sin() * across[1]).packed
        seen = bits[np.r_[True, (bits[1:] != bits[:-1]).any(1)]]  # one after the other, each segment once
        back.append(1 - len(np.unique(seen, axis=0)) / len(seen))
    counts = np.array([float(item.count) for item in found])
    return {"random": counts, "folded": float(folded.count), "repeated": repeated, "back": np.array(back)}


@by_cell
def chain_table(cell: Cell) -> Any:
    width, (result,) = cell.spec.neurons // cell.spec.layers, cell.results
    exact = {"width": width, "bound": upper_bound([width] * cell.spec.layers, 1)}
    exact |= {"construction": float(result["folded"]), "repeated": int(result["repeated"])}
    return {"patterns": cell["random"][0], "coming_back": cell["back"][0]}, exact


def chain_claims(found: Found) -> Claims:
    rows = found.table
    bounds, built, layers, width = rows.of("bound", "construction", "layers", "width")
    repeated, parts = int(rows.column("repeated").sum()), f"{found.sweep['neurons']} neurons"
    text, upper = (", ".join(f"{value:.4g}" for value in values) for values in (built, bounds))
    least, most = (built / width**layers).min(), (built / bounds).max()
    of = partial(Table.claim, names="{layers} layers of {width}")
    random, back = of(rows, increasing, "patterns"), of(Table(rows[1:]), at_least, "coming_back", MORE)
    order = "the construction of Montufar et al. matches the bound in order: from k^n to (k + 1)^n patterns"
    follows = f"the chain holds of the construction, too: {parts} in more layers have more patterns, down to width 3"
    bounded, climbs = (bool((np.diff(values[width >= 3]) > 0).all()) for values in (bounds, built))
    return {
        f"the chain: the bound rises if {parts} are in more layers, down to width 3": by(check, bounded, upper),
        order: by(exact, bool(least >= 1 and most <= 1), f"{text} patterns"),
        follows: by(exact, bool(climbs), f"{text} patterns"),
        f"beyond the paper: random networks follow the chain: {parts} in more layers have more patterns": random,
        "Corollary 1: along a line no pattern comes back": by(check, repeated == 0, f"{repeated} came back"),
        "on a circle patterns do come back (share of its stretches)": back,
    }


@plots.drawn(6.6, 4.6, legend=2)
def draw_chain(found: Found, axes: plots.Axes) -> None:
    rows, neurons = found.table, found.sweep["neurons"]
    plots.column(axes, rows, "layers", "bound", 1, "Theorem 1: $(k+1)^n$", linestyle="--", marker=".")
    plots.column(axes, rows, "layers", "construction", 2, "construction of Montufar et al.", marker="s", markersize=4)
    plots.means(axes, rows, "layers", "patterns", 0, f"random, mean of {rows[0]['runs']} networks")
    axes.axhline(neurons + 1, color=plots.BOUND, linestyle=":", label="neurons + 1")
    axes.set(yscale="log", ylabel="activation patterns on the line", xlabel=f"hidden layers, {neurons} neurons in all")
    plots.ticks(axes, rows.column("layers").tolist())


# ---- Section 3.1 and the duality of appendix B.3
def shaken(spec: Spec, seed: int) -> dict[str, Any]:
    """Relative squared change of the last hidden layer, (networks, depth), for a small random change of one layer."""
    found = np.empty((spec.networks, spec.depth))
    for index, (net, x, other) in enumerate(_nets(spec, seed)):
        weights, changes = dict(net.state_dict()), dict(other.state_dict())
        for place, name in enumerate(weight for weight in weights if weight.endswith("weight")):
            tangents = {weight: changes[weight] * (weight == name) for weight in weights}
            moved: Any = jvp(lambda held, net=net, x=x: functional_call(net, held, (x,)), (weights,), (tangents,))
            found[index, place] = float(moved[1].square().sum() / moved[0].square().sum())
    return {"change": found}


def dual(spec: Spec, seed: int) -> dict[str, Any]:
    """Sign changes of the units of the last hidden layer, (networks,), along a circle of inputs and one of weights."""
    angle = 2 * math.pi * torch.arange(spec.steps + 1, dtype=torch.float64)[:, None] / spec.steps
    counts: list[list[float]] = []
    for net, x, other in _nets(spec, seed):
        with torch.no_grad():
            across = torch.randn(spec.width, generator=generator(seed, _INPUTS + 1, len(counts)), dtype=torch.float64)
            across -= (across @ x) / (x @ x) * x
            across *= x.norm() / across.norm()
            starts = (net[0](x), net[0](across)), (net[0](x), other[0](x))
            ends = [net[1:](angle.cos() * first + angle.sin() * second) for first, second in starts]
        counts.append([float((end[1:].sign() != end[:-1].sign()).sum()) for end in ends])
    inputs, weights = np.transpose(counts)
    return {"inputs": inputs, "weights": weights}


def _nets(spec: Spec, seed: int) -> Any:
    """Networks, each with an input of norm sqrt(width) and with another network of the same law."""
    sizes, law = [spec.width] * (spec.depth + 1), Gaussian(math.sqrt(spec.variance))
    nets = ensemble(2 * spec.networks, sizes, "hardtanh", law, linear_output=False, seed=seed, dtype=torch.float64)
    for index in range(spec.networks):
        x = torch.randn(spec.width, generator=generator(seed, _INPUTS, index), dtype=torch.float64)
        yield nets[2 * index], x / x.norm() * math.sqrt(spec.width), nets[2 * index + 1]


def shaken_table(found: Found) -> Table:
    def row(cell: Cell) -> Any:
        spec, square = cell.spec, cell["change"].reshape(-1, cell.spec.depth)
        mean, error = mean_and_error(square)
        measured = {"square": square, "change": Mean(np.sqrt(mean), error / (2 * np.sqrt(mean)))}
        exact = {"behind": range(spec.depth)[::-1], "expected": expected_change(spec)}
        return measured, exact, {"layer": range(1, spec.depth + 1)}

    rows = found.rows(row)
    circles = found.also["dual"].rows(lambda cell: {name: cell[name][0] for name in ("inputs", "weights")})
    return Table({"kind": kind, **row} for kind, part in (("weights", rows), ("circles", circles)) for row in part)


def expected_change(spec: Spec) -> Array:
    """The same in wide networks, (depth,): each layer behind multiplies the square by its chi."""
    law = propagate("hardtanh", math.sqrt(spec.variance), 0.0, spec.depth, q=spec.variance)
    return np.asarray(law.q[:-1] * law.gradient[:-1] / law.q[-1])


def shaken_claims(found: Found) -> Claims:
    rows, decided = found.table.where(kind="weights"), {}
    for variance, part in rows.by("variance"):
        text = f"a change of a layer's weights grows exponentially with the depth behind it (sigma_w^2 = {variance:g})"
        decided[text] = exponential("change", part, 1, "behind")
    near = f"beyond the paper: its mean square is that of wide networks, a factor chi a layer, within {NEAR:.0%}"
    law, label = rows.column("expected"), "sigma_w^2 = {variance:g}, layer {layer}"
    decided[near] = rows.claim(between, "square", law * (1 - NEAR), law * (1 + NEAR), names=label)
    circles = Table(
        {**row, "turned": of, "flips": row[of], "flips_error": row[f"{of}_error"]}
        for of in ("inputs", "weights")
        for row in found.table.where(kind="circles")
    )
    same = "turning the first layer's weights flips as many signs behind the last layer as turning the input"
    return {**decided, same: circles.alike("flips", "turned", "{turned}", "{depth} layers")}


@plots.drawn(9.6, 4.6, legend="best", columns=2)
def draw_shaken(found: Found, panels: Any) -> None:
    left, right = panels
    rows, circles = (found.table.where(kind=kind) for kind in ("weights", "circles"))
    plots.lines(left, rows, "behind", "change", "variance", r"$\sigma_w^2$ = {:g}", linestyle="none")
    for index, (_, part) in enumerate(rows.by("variance")):
        plots.curve(left, part.column("behind"), np.sqrt(part.column("expected")), index)
    left.plot([], [], color="#333333", label="wide networks")
    left.set(yscale="log", xlabel="layers behind the layer that changes", ylabel="relative change of the last layer")
    for index, (name, text) in enumerate((("inputs", "a circle of inputs"), ("weights", "... of first-layer weights"))):
        plots.means(right, circles, circles.column("depth") + 0.1 * index, name, index, text)
    plots.ticks(right, found.also["dual"].sweep["depth"])
    right.set(xlabel="hidden layers", ylabel="flips of signs in the last layer", ylim=(0, None))


_TH1, _SEC = "Activation patterns on a line at equal numbers of neurons", "What a change of one layer's weights does"
_CHAIN = Sweep(chain, Spec(neurons=24, networks=1000), {"layers": (1, 2, 3, 4, 6, 8, 12)}).presets(networks=200)
_CIRCLES = Sweep(dual, Spec(variance=4.0, width=64, steps=4000, networks=400), {"depth": (1, 2, 3, 4)}, stride=1)
_MORE = {"dual": _CIRCLES.but(networks=2000)}
_WEIGHTS = Sweep(shaken, Spec(width=200, depth=10, networks=25), {"variance": (1.0, 4.0, 16.0)}, 40, also=_MORE)
_SHAKEN = _WEIGHTS.presets(runs=8, also={"dual": _CIRCLES})
_SETTING = "{neurons} ReLUs in {layers} layers, sigma_w^2 = 2, sigma_b = 1; {networks} random networks each"
_SETTING_2 = "hard tanh, no biases, width {width}, {depth} layers, {runs} x {networks} networks; circles: width 64, "
_SETTING_2 += "sigma_w^2 = 4, {dual[networks]} networks"
ARTIFACTS: tuple[Artifact, ...] = (
    Artifact("raghu/th1", _TH1, "Corollary 1", _CHAIN, chain_table, chain_claims, draw_chain, _SETTING),
    Artifact("raghu/sec31", _SEC, "section 3.1", _SHAKEN, shaken_table, shaken_claims, draw_shaken, _SETTING_2),
)


# ---- Lemmas 1 to 5, Observation 1, Theorem 6: a matrix seen from a vector x (its rows) and a vector y (its columns)
def halves(spec: Spec, seed: int) -> dict[str, Any]:
    """Means over blocks of k by k matrices, (blocks,): how ``far`` from Lemma 1 and Observation 1; correlation of
    the ``squares`` of a row's parts; norms of rows, of what is ``across`` x, y, ``some`` of it; what a constant adds.
    """
    source, k, found = generator(seed), spec.k, []
    y = torch.randn(k, generator=source, dtype=torch.float64).numpy()
    on_x, on_y, z = np.full((k, k), 1 / k), np.outer(y, y) / (y @ y), (np.eye(k)[0] - np.eye(k)[1]) / math.sqrt(2)
    for _ in range(spec.blocks):
        w = spec.law.sample((spec.entries // k**2, k, k), source, torch.float64).numpy()
        along, row = np.repeat(w.mean(2, keepdims=True), k, 2), w[:, 0] * np.linspace(1, 2, k)
        rest, kept = w - along, (w - along) @ z @ (np.eye(k) - on_y)
        squares = np.corrcoef(*((part**2).sum(2).ravel() for part in (along, rest)))[0, 1]
        far = w[0] @ on_x - along[0], rest[0] @ on_x, on_y @ (np.eye(k) - on_y) @ rest[0]
        norms = [np.linalg.norm(each, axis=-1).mean() for each in (w, kept, kept[:, :3], row - 0.3, row)]
        found.append([np.abs(far).max(), squares, *norms[:3], norms[3] - norms[4]])
    return dict(zip(("far", "squares", "norm", "across", "some", "shifted"), np.transpose(found), strict=True))


@by_cell
def halves_table(cell: Cell) -> Any:
    k, excess = cell.spec.k, -1.2 * (cell.at["entries_are"] == "uniform")
    chi, less = (math.sqrt(2) * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) for n in (k, k - 1))
    law = excess * (1 - 1 / k) / math.sqrt((2 + excess / k) * ((k - 2) * (2 + excess) + 2 + excess / k))
    return cell.results[0], {"chi": chi, "less": less, "printed": math.sqrt(k - 1) * less, "law": law}


def halves_claims(found: Found) -> Claims:
    def gautschi(x: Any, s: Any) -> Any:  # what is left to the lower bound and to the upper one, relatively
        ratio = special.poch(x + s, 1 - s)
        return np.array([1 - (x + s / 2) ** (1 - s) / ratio, (x - 0.5 + np.sqrt(s + 0.25)) ** (1 - s) / ratio - 1])

    normal, uniform = (partial(rows.claim, names="k = {k}") for _, rows in found.table.by("entries_are"))
    room, off = gautschi(np.geomspace(0.01, 1000, 200), np.linspace(0.05, 0.95, 19)[:, None]), gautschi(-0.36, 0.75)[1]
    far, shifted = max(float(cell["far"].max()) for cell in found), 2 * math.exp(-0.7) - 0.3
    uneven = "beyond the paper: Lemma 5 is false of a law that is not even (exponential, less its mean)"
    return {
        "Lemma 1, Observation 1: the parts of a matrix": by(check, far < 1e-9, f"off by {far:.1e} at the most"),
        "Lemma 2: squares of both parts have no correlation, within 0.02": normal(between, "squares", -0.02, 0.02),
        "beyond the paper: Lemma 2 is false of uniform entries": uniform(agrees, "squares", "law", resolution=0.2),
        "Lemma 3: the mean norm of k Gaussians": normal(agrees, "norm", "chi", resolution=0.01),
        "Lemma 4 (a): the part across x and y has that of k - 1": normal(agrees, "across", "less", resolution=0.01),
        "Lemma 4 (b): three entries have at least that of two": normal(at_least, "some", math.sqrt(math.pi / 2)),
        "printed in the proof of Lemma 4: variances of k - 1": normal(agrees, "across", "printed", resolution=0.01),
        "Lemma 5: a constant makes the mean norm larger": normal(at_least, "shifted", MORE),
        uneven: by(exact, shifted < 2 / math.e, f"{shifted:.4f} with 0.3 added, {2 / math.e:.4f} without"),
        "Theorem 6 for x > 0": by(exact, bool(room.min() > 0), f"{room.min():.1e} is left at the least"),
        "Theorem 6 as printed, for all x": by(exact, bool(off > 0), f"{off:.1%} at x = -0.36, s = 0.75"),
    }


@plots.drawn(9.6, 4.4, legend="best", columns=2)
def draw_halves(found: Found, panels: Any) -> None:
    rows, (left, right) = found.table.where(entries_are="Gaussian"), panels
    plots.means(left, rows, "k", "across", 0, "measured")
    plots.column(left, rows, "k", "less", 1, "Lemma 4")
    plots.column(left, rows, "k", "printed", 1, "as its proof has it", linestyle=":")
    plots.lines(right, found.table, "k", "squares", "entries_are", "{}", {"law": "-"}, linestyle="none")
    left.set(xscale="log", yscale="log", xlabel="k", ylabel="mean norm of what is across / sigma")
    right.set(xscale="log", xlabel="k", ylabel="correlation of squared parts (lines: exact)")


_KINDS = {"Gaussian": {"law": Gaussian(1.0)}, "uniform": {"law": Uniform(3**0.5)}}
_HALVES = Sweep(halves, Spec(blocks=100, entries=10**6), {"entries_are": _KINDS, "k": (5, 20, 100)}, stride=1)
_OF_HALVES = _HALVES.presets(blocks=20), halves_table, halves_claims, draw_halves
_B1 = "A matrix in parts that see a vector and do not, and mean norms", "to 5, Theorem 6, appendix B.1", *_OF_HALVES
ARTIFACTS += (Artifact("raghu/lemma1", *_B1, "{blocks} blocks of {entries:,} entries of k by k matrices"),)
