"""Hayou's Proposition 1: does rescaling bring a pruned network back to the edge of chaos (section 2.3, appendix B)?

Its proof takes mask, weights and gradients as independent, which SNIP's masks are not (docs/hayou).
"""

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, at_most, between
from epoch0.measure.gain import gain
from epoch0.networks import mlp, vanilla_cnn
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Claims, Decision, Mean, Table, columns_of, more, over_runs
from epoch0.papers.trials import EXTENTS, fit, images, tensors
from epoch0.prune import apply, keep, random, snip
from epoch0.prune.effects.rescale import rescaled as rescale
from epoch0.seeds import generator
from epoch0.theory.mean_field import chi, edge_of_chaos, propagate, q_star
from epoch0.train.evaluation import Accuracy

# as good as unpruned: over the whole depth its squared gradient changes by less than this beside the other's
FACTOR = 10.0
METHODS = {  # how kept weights are rescaled -> its name in texts
    "none": "not rescaled",
    "row": "one factor a row, Algorithm 1 with row sums sigma_w^2",
    "layer": "one factor a layer, as equation 7 is meant",
    "measured": "beyond the paper, one factor a layer, measured on the batch",
}


def gains(spec: Spec, seed: int) -> dict[str, Any]:
    """Of networks on the edge of chaos, pruned by ``masks`` of "SNIP" or "random", as many ``examples``: log of the
    growth of the squared gradient, from the last hidden layer back to the first, a layer. It is NaN for a network that
    nothing gets through, which no factor mends.
    """
    batch = images(spec.data, spec.examples, seed, flatten=True, dtype=torch.float64)
    sizes = [batch[0].shape[1], *[spec.width] * spec.depth, EXTENTS[spec.data][1]]
    weights = Gaussian(float(edge_of_chaos(spec.activation, bias_std=0.0).weight_std))
    made = lambda: mlp(sizes, spec.activation, weights=weights, seed=seed, dtype=torch.float64)  # noqa: E731
    scores = snip(made(), [batch]) if spec.masks == "SNIP" else random(made(), seed=seed)
    found = np.full((len(spec.sparsities), len(METHODS)), math.nan)
    for row, masks in zip(found, (keep(scores, sparsity) for sparsity in spec.sparsities), strict=True):
        for place, method in enumerate(METHODS):
            net = apply(made(), masks)
            if bool(net(batch[0]).any()):
                if method != "none":
                    rescale(net, method, x=batch[0])
                row[place] = _log_gain(net, *batch)
    return {"dense": _log_gain(made(), *batch), "log_gain": found}


def _log_gain(net: nn.Sequential, x: torch.Tensor, labels: torch.Tensor) -> float:
    """By plain autograd: the mean log growth a layer of the squared gradient at the outputs of the linear maps."""
    outputs = []
    for part in net:
        x = part(x)
        if isinstance(part, nn.Linear):
            outputs.append(x)
    first, last = torch.autograd.grad(F.cross_entropy(x, labels), [outputs[0], outputs[-2]])
    return math.log(float(first.square().sum() / last.square().sum())) / (len(outputs) - 2)


def table(found: Found) -> Table:
    def measured(cell: Cell) -> Any:
        each = {"log_gain": cell["log_gain"], "beside_unpruned": cell["log_gain"] - cell["dense"][:, None, None]}
        dead = np.isnan(cell["log_gain"])
        roots, lost = np.sqrt((~dead).sum(0)), dead.any(2).sum(0)[:, None]
        means = {name: Mean(np.nanmean(item, 0), np.nanstd(item, 0, ddof=1) / roots) for name, item in each.items()}
        inner = {"sparsity": cell.spec.sparsities, "method": list(METHODS)}
        return means, {"runs": cell.runs - lost, "nothing_gets_through": lost}, inner

    rows = found.rows(measured)
    for row in rows:
        gain = math.exp(row["log_gain"])
        row |= {"gain": gain, "gain_error": gain * row["log_gain_error"]}
    return rows


def claims(found: Found) -> Claims:
    decided, layers = dict[str, Decision](), found.sweep["depth"] - 1
    limit = math.log(FACTOR) / layers
    same = f"over {layers} layers the squared gradient is as an unpruned network's, within {FACTOR:g} times"
    rules: dict[str, Any] = dict.fromkeys(METHODS, (same, between, -limit, limit))
    rules["none"] = "the squared gradient shrinks beside an unpruned network's", at_most, 0.0
    for cell, (method, rows) in ((item, part) for item in found for part in found.table.where(**item.at).by("method")):
        statement, decide, *bounds = rules[method]
        kind = f"{cell.at['activation']}, {cell.at['masks']} masks, {METHODS[method]}"
        text = f"(a layer by {', '.join(rows.labels('{gain:.2f}'))})"
        dead = Table(row for row in rows if row["nothing_gets_through"])
        left = dead.labels("{sparsity:.0%} removed: {nothing_gets_through} left out that nothing gets through")
        rule = rows.claim(decide, "beside_unpruned", *bounds, names="{sparsity:.0%} removed")
        decided[f"{kind}: {statement} {text}"] = more(rule, after="; ".join(left))
    return decided


@plots.drawn(8.4, 6.2, legend=2, rows=2, columns=2, sharex=True, sharey=True)
def draw(found: Found, grid: Any) -> None:
    spare = FACTOR ** (1 / (found.sweep["depth"] - 1))
    look: dict[str, Any] = {"color": "#cccccc", "zorder": 0.5, "label": "unpruned, and ten times over all layers"}
    for place, (cell, axes) in enumerate(zip(found, grid.flat, strict=True)):
        dense = math.exp(float(cell["dense"].mean()))
        axes.axhspan(dense / spare, dense * spare, **look)
        plots.lines(axes, found.table.where(**cell.at), "sparsity", "gain", "method", METHODS.__getitem__)
        axes.set(title=f"{cell.at['activation']}, {cell.at['masks']} masks", yscale="log")
        axes.set(xlabel="share of weights removed" * (place > 1), ylabel="gradient squared, a layer" * (place % 2 == 0))
        plots.ticks(axes, [0.1, 0.2, 0.5, 1, 2, 5], "y")


_SPEC = Spec(data="mnist", depth=100, width=100, examples=100, sparsities=(0.5, 0.8, 0.9))
_AXES = {"masks": ("SNIP", "random"), "activation": ("relu", "tanh")}
_GAINS = Sweep(gains, _SPEC, _AXES, runs=20).presets(data="digits", depth=30, runs=32)


# ---- Theorem 3, the weak lottery ticket: random masks bring networks to the edge of chaos (appendix H)
CLOSE = 0.05  # how near to 1 the measured gain must be
_INPUTS = 3  # stream of a seed
_edge = lru_cache(edge_of_chaos)


def stds(spec: Spec) -> tuple[float, float]:
    """sigma_w on the edge of chaos for these biases, and of every layer."""
    edge = float(_edge(spec.activation, bias_std=spec.bias_std).weight_std)
    return round(edge, 9), round(edge * spec.factor, 9)


def square(spec: Spec) -> float:
    """Mean square of a Gaussian input coordinate that makes q the fixed point from the first layer on."""
    point = _edge(spec.activation, bias_std=spec.bias_std)  # for a ReLU any q is a fixed point
    return 1.0 if point.q is None else (float(point.q) - spec.bias_std**2) / float(point.weight_std) ** 2


def measure(spec: Spec, seed: int) -> dict[str, Any]:
    """Gain of one network, as it came and with random masks of density edge^2 / weight_std^2. Its sigma_w is ``factor``
    times that on the edge; ``kind``: ``"dense"``, or ``"cnn"`` for circular convolutions with a kernel of 3. Means over
    layers of the forward and the backward gain, without the first and the last layer.
    """
    shape = (spec.width, 8, 8) if spec.kind == "cnn" else (spec.width,)
    inputs = torch.randn(16 if spec.kind == "cnn" else 64, *shape, generator=generator(seed, _INPUTS))
    inputs = inputs * square(spec) ** 0.5
    nets = {"before": network(spec, seed, shape, masked=False), "after": network(spec, seed, shape, masked=True)}
    each = {name: gain(net, inputs, directions=4, seed=seed) for name, net in nets.items()}
    return {name: float(np.mean((item.chi_forward + item.chi_backward)[1:-1] / 2)) for name, item in each.items()}


def learn(spec: Spec, seed: int) -> dict[str, Any]:
    """Test accuracy of the network as it came (``dense``), and masked, after the same training."""
    (x, y), (test, labels) = tensors(spec.data), tensors(spec.data, "test")
    scale, found = square(spec.ticket) ** 0.5, {}
    accuracy = Accuracy(test[: spec.tested] * scale, labels[: spec.tested])
    for name in ("dense", "masked"):
        net = network(spec.ticket, seed, x.shape[1:], masked=name == "masked")
        fit(spec, net, (x * scale, y), steps=spec.steps, seed=seed)
        found[name] = float(accuracy(net.eval())["accuracy"])  # also of a run that diverged
    return found


def network(spec: Spec, seed: int, shape: Sequence[int], masked: bool) -> nn.Module:
    edge, std = stds(spec)
    drawn: dict[str, Any] = {"weights": Gaussian(std), "biases": Gaussian(spec.bias_std), "seed": seed}
    if spec.kind == "cnn":
        net = vanilla_cnn(spec.depth, spec.width, inputs=shape, activation=spec.activation, **drawn)
    else:
        net = mlp([*shape, *[spec.width] * spec.depth, 10], spec.activation, **drawn)
    return apply(net, keep(random(net, seed=seed), 1 - (edge / std) ** 2, scope="layer")) if masked else net


def ticket_table(found: Found) -> Table:
    """One row a kind and factor; then the two that were trained."""

    def row(cell: Cell) -> Any:
        spec, (edge, std) = cell.spec, stds(cell.spec)
        q = 1.0 if spec.activation == "relu" else q_star(spec.activation, std, spec.bias_std)
        factor, predicted = std / edge, float(chi(spec.activation, std, q))
        others = {"factor": factor, "density": 1 / factor**2, "chi_before_predicted": predicted}
        others |= dict.fromkeys(("accuracy", "accuracy_error"), math.nan)
        return {"chi_before": cell["before"], "chi_after": cell["after"]}, others

    rows, trained = found.rows(row), found.also["trained"].one()
    edge, std = stds(trained.spec.ticket)
    factor = std / edge
    same = {**dict.fromkeys(rows[0], math.nan), "factor": factor, "runs": trained.runs}
    for name, result, density in (("trained as it came", "dense", 1.0), ("trained, masked", "masked", 1 / factor**2)):
        rows.append({**same, "kind": name, "density": density, **columns_of(accuracy=trained[result])})
    return rows


def ticket_claims(found: Found) -> Claims:
    rows, trained = Table(found.table[:-2]), found.also["trained"].one()
    of = partial(rows.claim, names="{kind}, {factor:.3g} times the edge")
    title = "{activation}, depth {depth}, {factor:g} times the edge".format_map(vars(trained.spec.ticket))
    above = partial(over_runs, at_least, names=[title])
    theorem = f"Theorem 3: random masks of density sigma_EOC^2/sigma_w^2 bring chi to 1, within {CLOSE:g}"
    return {
        "as they come the networks are chaotic: chi is above 1.1": of(at_least, "chi_before", 1.1),
        theorem: of(between, "chi_after", 1 - CLOSE, 1 + CLOSE),
        "a masked network trains: test accuracy above one half": above(trained["masked"], 0.5),
        "... and further than the same network without the mask": above(trained["masked"] - trained["dense"], 0.0),
    }


@plots.drawn(6.4, 4.4, legend="best")
def ticket_draw(found: Found, axes: plots.Axes) -> None:
    for index, (kind, rows) in enumerate(Table(found.table[:-2]).by("kind")):
        x = rows.column("factor") * (1 + 0.012 * (index - 1))  # beside each other, not on top
        plots.means(axes, rows, x, "chi_before", index, f"{kind}, as it came", markerfacecolor="none")
        plots.means(axes, rows, x, "chi_after", index, f"{kind}, masked")
        plots.curve(axes, x, rows.column("chi_before_predicted"), index)
    axes.plot([], [], color="#333333", label="mean field")
    axes.axhline(1, color=plots.BOUND, linestyle=":", zorder=1)
    axes.set(xlabel=r"$\sigma_w\,/\,\sigma_{w,\mathrm{EOC}}$", ylabel=r"mean gain of the layers, $\chi$")
    plots.ticks(axes, [1, 2, 3, 5, 10], "y", "log")


# ---- Theorem 4, the same with another variance in each layer
MASKS = "no masks", "one density", "each layer's density"


def layers(spec: Spec, seed: int) -> dict[str, Any]:
    """Each layer's gain but the first one's, and the mean correlation of two inputs in it: (masks, layers). In turn
    sigma_w is ``factors`` times that of the edge; masks are Bernoulli's, as in the proof. "One density" keeps as many
    weights in all. The masks' random numbers are the same, and so are the weights.
    """
    (edge, _), found = stds(spec), dict[str, list[Any]](gain=[], correlation=[])
    own = np.resize(spec.factors, spec.depth) ** -2.0
    x = torch.randn(64, spec.width, generator=generator(seed, _INPUTS)) * square(spec) ** 0.5
    for densities in (np.ones_like(own), np.full_like(own, own.mean()), own):
        laws, source = (Gaussian(edge), Gaussian(spec.bias_std)), generator(seed, _INPUTS + 1)
        net: Any = mlp([*[spec.width] * (spec.depth + 1), 10], spec.activation, *laws, seed=seed)
        h, rows = x, []
        with torch.no_grad():
            for place, (share, density) in enumerate(zip(own, densities, strict=True)):
                weight = net[2 * place].weight
                weight *= share**-0.5 * (torch.rand(weight.shape, generator=source) < density)
                h = F.linear(h, weight, net[2 * place].bias)
                rows.append(float((F.normalize(h, dim=1).sum(0).square().sum() - len(h)) / (len(h) * (len(h) - 1))))
                h = net[2 * place + 1](h)
        seen = gain(net, x, directions=4, seed=seed)
        found["gain"].append((seen.chi_forward + seen.chi_backward)[1:-1] / 2)
        found["correlation"].append(rows[1:])
    return {name: np.array(values) for name, values in found.items()}


@by_cell
def layer_table(cell: Cell) -> Any:
    spec, edge = cell.spec, stds(cell.spec)[0]
    q = square(spec) * edge**2 + spec.bias_std**2
    law = propagate(spec.activation, edge, spec.bias_std, spec.depth - 1, q=q, c=spec.bias_std**2 / q).c
    others = {"factor": np.resize(spec.factors, spec.depth)[1:], "gain_on_edge": 1.0}
    others["correlation_on_edge"] = np.asarray(law)[1:]
    return {name: cell[name] for name in cell.results[0]}, others, {"masks": MASKS, "layer": range(2, spec.depth + 1)}


def layer_claims(found: Found) -> Claims:
    rows, names = found.table.where(masks=MASKS[-1]), "{kind}, layer {layer}, {factor:g} times the edge"
    tanh, off = rows.where(kind="tanh"), [np.abs(cell["gain"][:, 1] - 1).mean(1) for cell in found]
    law = tanh.column("correlation_on_edge")  # with ReLU it is the same whatever the variances
    text = f"Theorem 4: with masks of each layer's density its chi is 1, within {CLOSE:g}"
    alike = f"... and two inputs correlate as on the edge of chaos, within {CLOSE:g} (tanh)"
    one = f"one density for all layers leaves chi {4 * CLOSE:g} or more off, on average"
    return {
        text: rows.claim(between, "gain", 1 - CLOSE, 1 + CLOSE, names=names),
        alike: tanh.claim(between, "correlation", law - CLOSE, law + CLOSE, names=names),
        one: over_runs(at_least, off, 4 * CLOSE, names=list(_KINDS)),
    }


@plots.drawn(11.0, 4.2, legend=4, columns=3)
def layer_draw(found: Found, panels: Any) -> None:
    for axes, (kind, column) in zip(panels, (("tanh", "gain"), ("ReLU", "gain"), ("tanh", "correlation")), strict=True):
        rows = found.table.where(kind=kind)
        plots.lines(axes, rows, "layer", column, "masks", "{}")
        law = {"label": "on the edge of chaos, infinite width", "color": plots.BOUND, "linestyle": ":"}
        plots.column(axes, rows.where(masks=MASKS[0]), "layer", f"{column}_on_edge", 0, **law)
        axes.set(xlabel="layer", title=kind, xticks=rows.column("layer"), ylim=(0, None))
        axes.set_ylabel(r"gain of the layer, $\chi$" if column == "gain" else "correlation of two inputs")


def sweep(depth: int, width: int, channels: int, networks: int, runs: int, **trained: Any) -> Sweep:
    """Three kinds of networks at three factors; and networks to be trained, thirty layers at twice the edge."""
    tanh: dict[str, Any] = {"kind": "dense", "activation": "tanh", "bias_std": 0.2}
    relu: dict[str, Any] = {"kind": "dense", "activation": "relu", "bias_std": 0.0}
    kinds = {"tanh dense": tanh, "relu dense": relu, "relu V-CNN": {**relu, "kind": "cnn", "width": channels}}
    learnt = Spec(ticket=Spec(**tanh, depth=30, width=100, factor=2.0), batch_size=64, learning_rate=0.02, **trained)
    axes: dict[str, Any] = {"kind": kinds, "factor": (1.2, 1.6, 2.2)}
    also = {"trained": Sweep(learn, learnt, runs=runs, seed=100)}  # those before 100 were looked at
    return Sweep(measure, Spec(depth=depth, width=width), axes, runs=networks, seed=100, stride=1000, also=also)


_PRESETS = {
    "quick": sweep(8, 250, 48, 8, 4, data="digits", steps=1500, tested=360),
    "paper": sweep(12, 400, 64, 4, 3, data="mnist", steps=2000, tested=10000),
}
_THREE = "Gradient through pruned networks, rescaled in three ways and not"
_KINDS = {"tanh": {"activation": "tanh", "bias_std": 0.2}, "ReLU": {"activation": "relu", "bias_std": 0.0}}
_EACH = Spec(depth=10, width=400, factor=1.0, factors=(1.2, 2.2, 1.6))
_LAYERS = Sweep(layers, _EACH, {"kind": _KINDS}, runs=60, seed=100, stride=1000).presets(width=250, depth=7)
_TOLD = "{depth} dense layers of width {width}, sigma_w {factors} times that of the edge in turn; {runs} networks each"
_TICKETS = "Random masks bring layers of different variances to the edge of chaos"
_MADE = _LAYERS, layer_table, layer_claims, layer_draw, _TOLD
_ABOUT = "{examples} images of {data}; {depth} layers of width {width} on the edge of chaos, no biases; {runs} networks"
_BRING, _PLACE = "Random masks bring networks to the edge of chaos", "Theorem 3, appendix H"
_TRAINED = "{depth} layers of width {width}, fewer channels, {runs} networks each; trained on {trained[data]}: depth "
_TRAINED += "30, width 100, {trained[steps]} steps of SGD at {trained[learning_rate]:g}, {trained[runs]} runs"
ARTIFACTS = (
    Artifact("hayou/prop1", _THREE, "", _GAINS, table, claims, draw, _ABOUT),
    Artifact("hayou/wlth", _BRING, _PLACE, _PRESETS, ticket_table, ticket_claims, ticket_draw, _TRAINED),
    Artifact("hayou/th4", _TICKETS, "appendix H", *_MADE),
)
