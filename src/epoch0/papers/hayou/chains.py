"""Hayou's Proposition 3, Theorem 2, Proposition 2 and Appendix Lemmas 1 and 2: residual networks and convolutions.

Second moments of scores are measured here for Theorem 1, too, in networks without shortcuts.
"""

import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import between, linear
from epoch0.networks import mlp, residual_chain, vanilla_cnn
from epoch0.networks.residual import Rung
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Decision, Mean, Table, by, mean_and_error, over_runs, ratio_of_sums
from epoch0.papers.trials import images
from epoch0.prune import apply, keep, random, snip
from epoch0.seeds import numpy_generator
from epoch0.theory.mean_field import c_star, correlation_map, propagate, q_star

EXPONENT = 0.5  # how near to -2 the fitted exponent must be: half of the way to -1, that of smooth nonlinearities
RATE = 0.25  # allowed relative difference from the mean field's growth: half of the way from 50 % pruned to unpruned


def correlations(spec: Spec, seed: int) -> dict[str, Any]:
    """Mean over pairs of 1 - c_l behind each block, for SNIP and random masks: shape (sparsities, blocks + 1). Of fully
    connected residual networks y + W relu(y) with He's weights; SNIP sees so many ``examples`` of the data.
    """
    inputs, labels = images(spec.data, spec.examples, seed, flatten=True, dtype=torch.float64)
    chain = partial(residual_chain, spec.blocks, spec.width, (inputs.shape[1],), seed=seed, dtype=torch.float64)
    found: dict[str, Any] = {}
    for method, scores in (("snip", snip(chain(), [(inputs, labels)])), ("random", random(chain(), seed=seed))):
        masked = [apply(chain(), keep(scores, sparsity)) if sparsity else chain() for sparsity in spec.sparsities]
        found[method] = np.array([_distances(net, inputs, spec.pairs) for net in masked])
    return found


def _distances(net: nn.Sequential, x: Tensor, pairs: int) -> Array:
    """Mean of 1 - c over pairs, at the input of the first block and behind each."""
    both, rows = torch.arange(2 * pairs) % len(x), []
    with torch.no_grad():
        for block in (net[0], *(part for part in net if isinstance(part, Rung))):
            x = block(x)
            # without cancellation: half the squared distance of the directions
            a, b = (h / torch.linalg.vector_norm(h, dim=1, keepdim=True) for h in (x[both[::2]], x[both[1::2]]))
            rows.append(float((a - b).square().sum(1).mean() / 2))
    return np.array(rows)


def measured(found: Found) -> dict[tuple[str, float], Array]:
    """1 - c_l of each network, shape (networks, blocks + 1), by how it was pruned and the fraction removed."""
    cell = found.one()
    return {
        (method if sparsity else "unpruned", sparsity): cell[method][:, place]
        for method in ("snip", "random")
        for place, sparsity in enumerate(cell.spec.sparsities)
        if sparsity or method == "snip"
    }


def mean_field(density: float, start: float, blocks: int) -> Array:
    """1 - c_l of an infinitely wide network whose branches keep this share of weights at random (appendix D)."""
    args: dict[str, Any] = {"c": 1 - start, "density": density, "architecture": "residual"}
    return np.asarray(propagate("relu", math.sqrt(2), 0.0, blocks, **args).gap)


def expected(apart: Array, sparsity: float) -> Array:
    """The mean field that starts where these networks do, on average over logarithms: the spread is of factors."""
    return mean_field(1 - sparsity, math.exp(np.log(apart).mean(0)[0]), apart.shape[1] - 1)


def exponents(apart: Array, sparsity: float, start: int) -> Array:
    """The exponent p of 1 - c_l ~ (l + l0)^p in each network, from 1 - c_l (networks, blocks + 1). The shift l0 is what
    the beginning leaves behind: (1 - c)^(-1/2) grows by the same step a block from wherever it starts, so at any finite
    depth the plain slope of a log-log plot is above -2. It is taken from the mean field.
    """
    blocks, theory = apart.shape[1] - 1, expected(apart, sparsity) ** -0.5
    step = (theory[-1] - theory[start]) / (blocks - start)
    x = np.log(np.arange(start, blocks + 1) + theory[start] / step - start)
    return np.array([np.polyfit(x, item, 1)[0] for item in np.log(apart[:, start:])])


def table(found: Found) -> Table:
    rows = Table()
    for (method, sparsity), apart in measured(found).items():
        mean, error = mean_and_error(np.log(apart))
        for block, value in enumerate(expected(apart, sparsity).tolist()):
            row = {"method": method, "sparsity": sparsity, "block": block, "one_minus_c": math.exp(mean[block])}
            rows.append({**row, "log_error": float(error[block]), "mean_field": value, "runs": len(apart)})
    return rows


def _name(method: str, sparsity: float) -> str:
    word = {"snip": "SNIP", "random": "random masks"}.get(method, method)
    return f"{word}, {100 * sparsity:g} % pruned" if sparsity else word


def claims(found: Found) -> Claims:
    """Proposition 3: 1 - c_l ~ kappa / l^2, pruned or not."""
    spec, count, each = found.one().spec, found.one().runs, measured(found)
    start = min(15 if spec.data == "digits" else 16, spec.blocks // 5)  # past the beginning, where 1 - c is not small
    decided: dict[str, Decision] = {}
    kinds = {"unpruned": "not pruned", "random": "weights pruned at random", "snip": "pruned by SNIP"}
    for kind, label in kinds.items():
        keys = [key for key in each if key[0] == kind]
        powers, names = np.transpose([exponents(each[key], key[1], start) for key in keys]), [_name(*k) for k in keys]
        text = f"{label}: from l = {start} on 1 - c_l falls as (l + l0)^-2 (fitted exponent)"
        decided[text] = over_runs(between, powers, -2 - EXPONENT, -2 + EXPONENT, names=names)
    # far apart: neighbours share nearly all of their noise
    blocks = np.unique(np.linspace(start, spec.blocks, 8).astype(int))
    for key, apart in each.items():
        mean, error = mean_and_error(np.log(apart[:, blocks]))
        roots = np.exp(-mean / 2)
        text = f"{_name(*key)}: 1/sqrt(1 - c_l) grows linearly with l, as it does on the edge of chaos"
        decided[text] = by(linear, blocks, roots, roots * error / 2, count, least_r2=0.98)
    # the constant is beyond the paper
    chosen = {key: apart for key, apart in each.items() if key[0] != "snip"}

    def step(apart: Array) -> Any:
        roots = apart**-0.5
        return (roots[..., -1] - roots[..., start]) / (spec.blocks - start)

    limit = np.array([step(expected(apart, key[1])) for key, apart in chosen.items()])
    text = "beyond the paper: unpruned or pruned at random, 1/sqrt(1 - c_l) grows as fast as the mean field says"
    near, names = ((1 - RATE) * limit, (1 + RATE) * limit), [_name(*key) for key in chosen]
    steps = np.transpose([step(apart) for apart in chosen.values()])
    return {**decided, f"{text}, within {100 * RATE:g} %": over_runs(between, steps, *near, names=names)}


@plots.drawn(6.8, 5.0, legend=3)
def draw(found: Found, axes: plots.Axes) -> None:
    shown = np.unique(np.geomspace(1, found.one().spec.blocks, 10).round().astype(int))
    for index, (key, apart) in enumerate(measured(found).items()):
        mean, error = (each[shown] for each in mean_and_error(np.log(apart)))
        bars = np.array([np.exp(mean) * sign * np.expm1(sign * 2 * error) for sign in (-1, 1)])
        plots.points(axes, shown, np.exp(mean), bars / 2, index, _name(*key))
        if key[0] != "snip":
            plots.curve(axes, range(1, apart.shape[1]), expected(apart, key[1])[1:], index)
    axes.plot([], [], color="#333333", label="mean field, random masks")
    axes.set(xscale="log", yscale="log", xlabel="block $l$", ylabel="$1-c_l$ (geometric mean)")


_SPEC = Spec(blocks=80, width=400, data="mnist", examples=100, pairs=50, sparsities=(0.0, 0.5, 0.9, 0.98))
_CHAINS = Sweep(correlations, _SPEC, runs=48, seed=100)  # those before 100 were looked at when limits were set
_PRESETS = _CHAINS.presets(width=200, data="digits", examples=50, pairs=20, sparsities=(0.0, 0.5, 0.9))


# ---- Theorem 2 and Proposition 2
SAME = 2.0  # all blocks have one second moment if they differ by less
CLOSE = 0.05  # how near, relatively, the growth a block must be to 1 + sigma_w^2/2


def moments(spec: Spec, seed: int) -> dict[str, Any]:
    """Mean square of W dL/dW over the weights of each block: ``moments``, (networks, blocks). Of networks without a
    last layer, one Gaussian input and a Gaussian gradient each; ``variance`` is sigma_w^2. They are ReLU chains, or, if
    there is a ``bias_std``, tanh networks without shortcuts whose variance does not change.
    """
    rows, scale = [], input_square(spec) ** 0.5
    shapes = [(1, size, *spec.inputs[1:]) for size in (spec.inputs[0], spec.width)]
    for source in numpy_generator(seed, spec.blocks).spawn(spec.networks):
        x, g = (torch.from_numpy(source.standard_normal(shape)) for shape in shapes)
        net = network(spec, int(source.integers(2**31)))
        weights = [part.weight for part in net.modules() if isinstance(part, nn.Linear | nn.Conv1d)]
        weights = weights if "bias_std" in vars(spec) else weights[1:]  # not the layer before the first block
        slopes = torch.autograd.grad((net(x * scale) * g).sum(), weights)
        rows.append([float((w.detach() * d).square().mean()) for w, d in zip(weights, slopes, strict=True)])
    return {"moments": np.array(rows)}


def network(spec: Spec, seed: int) -> nn.Sequential:
    """A network of blocks or layers as the spec has it, dense or with 1-D convolutions, float64."""
    args: dict[str, Any] = {"weights": Gaussian(math.sqrt(spec.variance)), "seed": seed, "dtype": torch.float64}
    if "bias_std" not in vars(spec):
        return residual_chain(spec.blocks, spec.width, spec.inputs, spec.stable, classes=None, **args)
    args |= {"activation": "tanh", "biases": Gaussian(spec.bias_std)}
    if len(spec.inputs) > 1:
        return vanilla_cnn(spec.blocks, spec.width, inputs=spec.inputs, classes=None, **args)
    return mlp([*spec.inputs, *[spec.width] * spec.blocks], **args)


def input_square(spec: Spec) -> float:
    """Mean square of an input with which the variance is at its fixed point from the first layer on."""
    if "bias_std" not in vars(spec):
        return 1.0
    return float((q_star("tanh", math.sqrt(spec.variance), spec.bias_std) - spec.bias_std**2) / spec.variance)


@by_cell
def moment_table(cell: Cell) -> Any:
    """One row a kind of network and number of blocks: the mean of m_l; its extremes over that of the last block.
    ``growth`` is that of m_l a block on the way back from the last one.
    """
    each = cell["moments"][0]
    ratios = [ratio_of_sums(item, each[:, -1]) for item in each[:, :-1].T]
    (first, error), back = ratios[0], len(ratios)
    growth = Mean(first ** (1 / back), first ** (1 / back) * error / first / back)
    return {"moment": each.mean(1), "least": min(ratios), "most": max(ratios), "growth": growth}


def moment_claims(stable: bool, found: Found) -> Claims:
    decided: dict[str, Decision] = {}
    for kind, rows in found.table.by("kind"):
        decided |= well_conditioned(kind, rows)
        if stable:
            text = f"{kind}: m_l falls like 1 / blocks (exponent -1, within 0.15)"
            decided[text] = rows.power("blocks", "moment", -1.0, 0.15, "exponent")
            continue
        blocks, mean, error, runs = rows.of("blocks", "moment", "moment_error", "runs")
        steps, wanted = np.diff(blocks), 1 + found.one(kind=kind, blocks=blocks[0]).spec.variance / 2
        growth = (mean[1:] / mean[:-1]) ** (1 / steps)
        spread = growth / steps * np.hypot(error[1:] / mean[1:], error[:-1] / mean[:-1])
        detail = ", ".join(f"{item:.3f}" for item in growth)
        text = f"{kind}: m_l grows by 1 + sigma_w^2/2 = {wanted:g} a block, within {CLOSE:.0%} ({detail})"
        names = [f"{a:g} to {b:g} blocks" for a, b in pairwise(blocks)]
        decided[text] = by(between, growth, spread, (1 - CLOSE) * wanted, (1 + CLOSE) * wanted, runs[1:], names)
    return decided


def well_conditioned(kind: str, rows: Table) -> Claims:
    """Definition 1."""
    text = f"{kind}: well-conditioned, the {{}} m_l is that of the last block within {SAME:g} times"
    of = partial(rows.claim, between, names="{blocks} blocks")
    return {text.format(what): of(what, 1 / SAME, SAME) for what in ("least", "most")}


@plots.drawn(6.4, 4.4, legend="best")
def draw_moments(stable: bool, found: Found, axes: plots.Axes) -> None:
    for index, (kind, rows) in enumerate(found.table.by("kind")):
        blocks, mean, error = rows.of("blocks", "moment", "moment_error")
        plots.points(axes, blocks, mean / mean[0], error / mean[0], index, kind)
        if not stable:
            rate = 1 + found.one(kind=kind, blocks=blocks[0]).spec.variance / 2
            plots.curve(axes, blocks, rate ** (blocks - blocks[0]), index)
    if stable:
        axes.plot(blocks, blocks[0] / blocks, color="#333333", label="1 / blocks", zorder=1)
        plots.ticks(axes, blocks[0] / blocks, "y", "log")
    else:
        axes.set_yscale("log")
        axes.plot([], [], color="#333333", label=r"$1 + \sigma_w^2/2$ a block")
    plots.ticks(axes, blocks, "x", "log" if stable else None)
    axes.set(xlabel="blocks", ylabel="$m_l$, mean over blocks, relative to the first")


# ---- Appendix Lemmas 1 and 2
SEEN = 0.05  # differences between places that are expected to be smaller than this drown in those of finite networks
ORDERED, CHAOTIC, RESIDUAL = "ordered phase", "chaotic phase", "residual networks"


def places(spec: Spec, seed: int) -> dict[str, Any]:
    """``products``, mean over channels and networks of products of two inputs at two places, behind each layer. Shape
    (layers, 2 n, 2 n) for n places: those of the first input, then those of the second.
    """
    x, found = torch.from_numpy(two_inputs(spec)), 0.0
    for source in numpy_generator(seed, spec.blocks).spawn(spec.networks):
        rows, y = [], x
        with torch.no_grad():
            for part in network(spec, int(source.integers(2**31))):
                y = part(y)
                if isinstance(part, nn.Conv1d | Rung):
                    rows.append(y.movedim(1, 0).flatten(1))
        found = found + (torch.stack(rows).mT @ torch.stack(rows)).numpy() / spec.width / spec.networks
    return {"products": found}


def two_inputs(spec: Spec) -> Array:
    """The same of all networks: (2, channels, places), of one size at every place, or nothing but at the first one."""
    x = numpy_generator(0).standard_normal((2, *spec.inputs))
    x /= np.sqrt(np.square(x).mean(1, keepdims=True))
    return np.asarray(x * input_square(spec) ** 0.5 if "bias_std" in vars(spec) else x * np.eye(1, spec.inputs[-1]))


def difference(spec: Spec, products: Array) -> Array:
    """The largest distance of a correlation of places from c*, (..., layers); residual: of a variance from the mean."""
    size, variances = spec.inputs[-1], products.diagonal(axis1=-2, axis2=-1)
    if "bias_std" not in vars(spec):
        first = variances[..., :size]
        return np.asarray(first.max(-1) / first.mean(-1) - 1)
    scale = np.sqrt(variances[..., :size, None] * variances[..., None, size:])
    limit = c_star("tanh", math.sqrt(spec.variance), spec.bias_std)
    return np.asarray(abs(products[..., :size, size:] / scale - limit).max((-1, -2)))


def expected_difference(spec: Spec) -> tuple[float, ...]:
    """The same of infinitely many channels: averages over neighbours, layer by layer (appendices B.2 and D)."""

    def averaged(values: Array) -> Array:
        axes = tuple(range(values.ndim))
        return np.asarray(sum(np.roll(values, [shift] * values.ndim, axes) for shift in (-1, 0, 1)) / 3)

    x, rows = two_inputs(spec), []
    if "bias_std" not in vars(spec):
        now = spec.variance * averaged(np.square(x[0]).mean(0))
        for _ in range(spec.blocks + 1):
            rows.append(now.max() / now.mean() - 1)
            now = now + spec.variance / 2 * averaged(now)
        return tuple(rows)
    law = math.sqrt(spec.variance), spec.bias_std
    square, limit = input_square(spec), c_star("tanh", *law)
    now = averaged(spec.variance * x[0].T @ x[1] / len(x[0]) + law[1] ** 2) / (spec.variance * square + law[1] ** 2)
    for _ in range(spec.blocks):
        rows.append(abs(now - limit).max())
        now = averaged(correlation_map("tanh", *law, now))
    return tuple(rows)


@by_cell
def place_table(cell: Cell) -> Any:
    wide, measured = expected_difference(cell.spec), {"unlike": difference(cell.spec, cell["products"])}
    return measured, {"expected": wide}, {"layer": range(1, len(wide) + 1)}


def place_claims(found: Found) -> Claims:
    lemma = {
        ORDERED: "Lemma 1, ordered phase: correlations of two inputs between all places converge to 1 exponentially",
        CHAOTIC: "Lemma 1, chaotic phase: they converge to one c below 1 exponentially",
        RESIDUAL: "Lemma 2, residual networks: variances of all places become alike exponentially",
    }
    decided: dict[str, Decision] = {}
    for kind, rows in found.table.by("kind"):
        seen = Table(row for row in rows if row["expected"] > SEEN)
        layer, mean, error, runs = seen.of("layer", "unlike", "unlike_error", "runs")
        decided[lemma[kind]] = by(linear, layer, -np.log(mean), error / mean, runs[0], least_r2=0.97, rising=True)
        same = f"... as averages over neighbours do, in infinitely many channels: within {SEEN:g} of it ({kind})"
        wide = rows.column("expected")
        decided[same] = rows.claim(between, "unlike", wide - SEEN, wide + SEEN, names="layer {layer}")
    return decided


@plots.drawn(6.4, 4.4, legend=2)
def draw_places(found: Found, axes: plots.Axes) -> None:
    plots.lines(axes, found.table, "layer", "unlike", "kind", "{}", {"expected": "-"}, linestyle="none")
    axes.axhline(SEEN, color=plots.BOUND, linestyle=":", label="claims are about what is expected above")
    axes.plot([], [], color="#333333", label="infinitely many channels")
    axes.set(yscale="log", xlabel="layer or block", ylabel="largest difference between places")


_KINDS = {
    "dense, sigma_w^2 = 1": {"variance": 1.0},
    "dense, sigma_w^2 = 2": {},
    "convolutions, sigma_w^2 = 2": {"width": 32, "inputs": (3, 8)},
}
_DENSE = Spec(width=100, inputs=(100,), variance=2.0, stable=False, networks=2000)
_MOMENTS = Sweep(moments, _DENSE, {"kind": _KINDS, "blocks": (4, 8, 16)}).presets(networks=300)
_FALLING = {name: sweep.but(stable=True, blocks=(8, 16, 32)) for name, sweep in _MOMENTS.items()}
# Theorem 1 and Definition 1, in ordered.py: three phases, dense and with convolutions, all of whose layers are alike
_PLAIN: dict[str, Any] = {"dense": {"width": 100, "inputs": (100,)}, "convolutions": {"width": 48, "inputs": (48, 8)}}
_SCALES = {ORDERED: (1.111109971, 0.3), "edge of chaos": (1.30415, 0.2), CHAOTIC: (1.6, 0.2)}
_EACH = {
    f"{phase}, {kind}": {**shape, "variance": std**2, "bias_std": bias}
    for phase, (std, bias) in _SCALES.items()
    for kind, shape in _PLAIN.items()
}
PHASES = Sweep(moments, Spec(networks=2000), {"kind": _EACH, "blocks": (8, 16, 32)}, stride=1)

_TANH: dict[str, Any] = {
    ORDERED: {"variance": 1.111109971**2, "bias_std": 0.3},
    CHAOTIC: {"variance": 4.0, "bias_std": 0.5},
    RESIDUAL: {},
}
_PLACE = Spec(width=64, inputs=(16, 8), variance=2.0, stable=False, blocks=12, networks=400)
_PLACES = Sweep(places, _PLACE, {"kind": _TANH}, runs=20, seed=100, stride=1000).presets(networks=200, runs=8)
_TITLE = "What two inputs have in common at two places of a convolutional network, layer by layer"
_ABOUT = "{blocks} layers of 1-D convolutions of 3 places, {width} channels, circular; tanh, sigma_w, sigma_b = "
_ABOUT += "1.111, 0.3 and 2, 0.5; residual: ReLU, sigma_w^2 = 2; {runs} x {networks} networks"
_PAIRS = "y + W relu(y), {blocks} blocks of width {width}, {pairs} pairs of images of {data}, {runs} networks"
_ALIKE = "Correlation of two inputs in residual networks, pruned and not", "", _PRESETS


def _of_scores(name: str, kind: str, presets: dict[str, Sweep], stable: bool) -> Artifact:
    title = f"Second moments of W dL/dW in {kind} networks by the number of blocks"
    about = "y + W relu(y), {blocks} blocks of width {width}, {networks} networks each"
    args = moment_table, partial(moment_claims, stable), partial(draw_moments, stable), about
    return Artifact(f"hayou/{name}", title, "", presets, *args)


ARTIFACTS = (
    Artifact("hayou/lemma1", _TITLE, "and 2, appendix B.2", _PLACES, place_table, place_claims, draw_places, _ABOUT),
    Artifact("hayou/prop3", *_ALIKE, table, claims, draw, _PAIRS),
    _of_scores("th2", "residual", _MOMENTS, False),
    _of_scores("prop2", "stable residual", _FALLING, True),
)
