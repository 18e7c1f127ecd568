"""Raghu's Theorem 1 and Corollary 1 (2.1, 2.2), and what section 3.1 and appendix B.3 say of weights that change.

Theorem 1 is measured on a line (m = 1) at equal numbers of neurons: its chain of inequalities, the construction that it
calls asymptotically as good, and random networks. Section 3.1: small changes of weights and the last layer.
"""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, jvp

from epoch0 import plots, regions
from epoch0.activity import activation_patterns
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, between, check, exact, increasing
from epoch0.networks import ensemble
from epoch0.networks.constructions import folding
from epoch0.papers.raghu.transitions import exponential
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Mean, Table, by, mean_and_error
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
    angle = torch.linspace(0, 2 * math.pi, 2001, dtype=torch.float64)[:, None]
    back = []
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
    random, back = of(rows, increasing, "patterns"), of(Table(rows[1:]), at_least, "coming_back", 0.0)
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
ARTIFACTS = (
    Artifact("raghu/th1", _TH1, "Corollary 1", _CHAIN, chain_table, chain_claims, draw_chain, _SETTING),
    Artifact("raghu/sec31", _SEC, "section 3.1", _SHAKEN, shaken_table, shaken_claims, draw_shaken, _SETTING_2),
)
