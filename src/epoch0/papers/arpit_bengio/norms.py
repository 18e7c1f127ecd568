"""Random ReLU networks of Arpit-Bengio: norms of activations and gradients, and their exact laws (all figures).

Figures 2a, 2b (section 4.2): distortion of norms and of squared norms, which the paper compares (docs/arpit-bengio), by
one layer against its width; Theorems 1 to 3 and Lemma 3.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_most, exact, increasing
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell, given
from epoch0.papers.tables import Array, Claims, Mean, Table, agrees, by, mean_and_error
from epoch0.seeds import generator, numpy_generator
from epoch0.theory import norms as theory

INITS = ("he", "glorot")
_INPUTS, _LABELS, _WEIGHTS = 0, 1, 2  # streams of a network: its inputs, its labels, and one for each weight matrix on
_AT_ONCE = 500  # inputs carried through at once, so that the widest network needs little memory beside its weights
LEVEL = 0.95  # of the bands: the ratio of one input of one network is inside with this probability


def relu(widths: tuple[int, ...], init: str, inputs: int, size: int = 500, classes: int = 20, **fields: int) -> Spec:
    """Random ReLU networks without biases, with a linear layer, softmax and cross-entropy on top. ``init`` is ``"he"``,
    variance 2/fan-out as in the paper, or ``"glorot"``, 2/(fan-in + fan-out). Each network has inputs of its own, of
    ``size`` coordinates N(0, 1), each with a random class.
    """
    fields = {"first": 0, "networks": 1, **fields}
    return Spec(widths=widths, init=init, inputs=inputs, size=size, classes=classes, **fields)


def of_widths(*widths: int, depth: int = 1) -> dict[int, Any]:
    """An axis: width -> the widths of ``depth`` equal layers."""
    return {width: {"widths": (width,) * depth} for width in widths}


def weight_stds(spec: Spec) -> tuple[float, ...]:
    """Std of a weight of each hidden layer, and of the linear layer on top (backward only, so He's 2/fan-in)."""
    fans = list(zip((spec.size, *spec.widths), (*spec.widths, spec.classes), strict=True))
    if spec.init == "glorot":
        return tuple(math.sqrt(2 / (fan_in + fan_out)) for fan_in, fan_out in fans)
    return (*(math.sqrt(2 / width) for width in spec.widths), math.sqrt(2 / spec.widths[-1]))


def deep(spec: Spec, seed: int) -> dict[str, Any]:
    """Norm ratios at every layer (networks, layers), averaged over the inputs of each network; equations 17 and 19.
    ``activation`` is ``||h^l|| / ||x||``; ``gradient`` is ``||dloss/dW^l||_F / (||delta|| ||x||)``, where delta is the
    gradient at the last hidden pre-activation; ``step`` is ``||h^l||^2 / ||h^(l-1)||^2``; ``..._square`` their mean
    squares. ``alignment`` (networks,) is the mean of cos^2 of the angle between delta and h^L, times half the last
    width, which is 1 for a delta that is independent of h^L. A network is the same in whatever block.
    """

    def item(found: dict[str, Array]) -> dict[str, Any]:
        ratios = {"activation": found["hidden"] / found["input"], "gradient": found["gradient"], "step": found["step"]}
        cosine = found["product"] / (found["delta"][-1] * found["hidden"][-1])
        row: dict[str, Any] = {"alignment": (cosine**2).mean() * spec.widths[-1] / 2}
        for name, ratio in ratios.items():
            row |= {name: ratio.mean(1), f"{name}_square": (ratio**2).mean(1)}
        return row

    return _each(spec, seed, item)


def shallow(spec: Spec, seed: int) -> dict[str, Any]:
    """Norm ratios of one hidden layer for every input, (networks, inputs), float32; equations 25 and 26: ``forward``,
    ``||h|| / ||x||``, and ``backward``, ``||dloss/dW||_F / (||delta|| ||x||)`` with delta the error at the output.
    """
    ratios = lambda found: {  # noqa: E731
        "forward": (found["hidden"][0] / found["input"]).astype(np.float32),
        "backward": (found["delta"][0] / found["error"]).astype(np.float32),  # ||x|| is on both sides
    }
    return _each(spec, seed, ratios)


def worst(spec: Spec, seed: int) -> dict[str, Any]:
    """The least eps that is enough for all inputs and layers of each network at once, (networks,). ``step``: every
    layer changes every squared norm by at most a share eps, the event whose probability Theorem 1 adds up; ``norm`` and
    ``gradient``: as Theorems 1 and 3 say, ``(1 - eps)^l <= ratio <= (1 + eps)^l`` at layer l.
    """

    def item(each: dict[str, Array]) -> dict[str, Any]:
        depth = len(spec.widths)
        norm = (each["hidden"] / each["input"]) ** (2 / np.arange(1, depth + 1)[:, None])
        roots = {"step": each["step"], "norm": norm, "gradient": each["gradient"] ** (2 / depth)}
        return {name: np.abs(ratio - 1).max() for name, ratio in roots.items()}

    return _each(spec, seed, item)


def plane(spec: Spec, seed: int) -> dict[str, Any]:
    """Over a whole plane, the least eps that is enough at each layer, (networks, layers), and ranks of its images.
    ``square`` for squared norms, ``norm`` for norms; at layer l the l-th root of the ratio counts. Networks have a
    ``width`` and ``depth``; a Gaussian matrix on a plane is one of two columns. ``directions`` of the plane are used,
    also if ``ranked``.
    """
    turns = torch.linspace(0, 2 * math.pi, spec.directions + 1, dtype=torch.float64)[:-1, None]
    found = np.empty((3, spec.networks, spec.depth))
    for index in range(spec.networks):
        h = torch.cat([turns.cos(), turns.sin()], dim=1).to(torch.float64 if spec.ranked else torch.float32)
        for layer in range(1, spec.depth + 1):
            law, source = Gaussian(math.sqrt(2 / spec.width)), generator(seed, spec.first + index, _WEIGHTS + layer)
            h = (h @ law.sample((spec.width, h.shape[1]), source).to(h.dtype).T).relu()
            ratio = torch.linalg.vector_norm(h, dim=1, dtype=torch.float64) ** (1 / layer)
            rank = float(torch.linalg.matrix_rank(h)) if spec.ranked else math.nan
            found[:, index, layer - 1] = float((ratio**2 - 1).abs().max()), float((ratio - 1).abs().max()), rank
    return dict(zip(("square", "norm", "rank"), found, strict=True))


def _each(spec: Spec, seed: int, of: Callable[[dict[str, Array]], dict[str, Any]]) -> dict[str, Any]:
    """What ``of`` makes of each network's norms, stacked over the networks."""
    found = []
    for network in range(spec.first, spec.first + spec.networks):
        parts = list(_norms(spec, seed, network))
        each = {name: torch.cat([part[name] for part in parts], dim=-1).numpy() for name in parts[0]}
        before = np.concatenate([each["input"][None], each["hidden"][:-1]])
        each["gradient"] = each["delta"] * before / (each["delta"][-1] * each["input"])
        found.append(of({**each, "step": (each["hidden"] / before) ** 2}))
    return {name: np.array([item[name] for item in found]) for name in found[0]}


def _norms(spec: Spec, seed: int, network: int) -> Iterator[dict[str, Tensor]]:
    """Norms in one network, some inputs at a time: computed in float32, summed in float64."""
    stds, sizes = weight_stds(spec), (spec.size, *spec.widths, spec.classes)
    each = enumerate(zip(stds, sizes[1:], sizes, strict=False), start=_WEIGHTS)
    weights = [Gaussian(std).sample((n, m), generator(seed, network, stream)) for stream, (std, n, m) in each]
    inputs = torch.randn(spec.inputs, spec.size, generator=generator(seed, network, _INPUTS))
    labels = torch.randint(spec.classes, (spec.inputs,), generator=generator(seed, network, _LABELS))
    for x, wanted in zip(inputs.split(_AT_ONCE), labels.split(_AT_ONCE), strict=True):
        with torch.enable_grad():
            hidden, before, norms = x, list[Tensor](), list[Tensor]()
            for weight in weights[:-1]:
                pre = hidden @ weight.T
                if not before:
                    pre.requires_grad_()  # the graph begins here: no gradient of x, and none of a matrix, is computed
                before.append(pre)
                hidden = pre.relu()
                norms.append(_norm(hidden))
            # a softmax that is sure leaves an error of 1e-8, which float32 would round away
            logits = (hidden @ weights[-1].T).double()
            loss = torch.nn.functional.cross_entropy(logits, wanted, reduction="sum")
            *deltas, error = torch.autograd.grad(loss, [*before, logits])
        product = (deltas[-1].double() * hidden.detach().double()).sum(1)
        back = {"delta": torch.stack([_norm(delta) for delta in deltas]), "error": _norm(error), "product": product}
        yield {"input": _norm(x), "hidden": torch.stack(norms), **back}


def _norm(rows: Tensor) -> Any:
    return torch.linalg.vector_norm(rows.detach(), dim=1, dtype=torch.float64)


def law(spec: Spec, quantity: str, layer: int) -> theory.NormRatio:
    """The law of the ratio ``"activation"`` or ``"gradient"``, for gradients that under Theorem 3's independence."""
    sizes, of = (spec.size, *spec.widths), theory.NormRatio
    forward = quantity == "activation"
    return of.forward(sizes[: layer + 1], spec.init) if forward else of.gradient(sizes, layer, spec.init)


@lru_cache(maxsize=1024)
def band(spec: Spec, quantity: str, layer: int) -> dict[str, float]:
    """Its mean, and where LEVEL of it is, which costs far more."""
    norm = law(spec, quantity, layer).norm
    low, high = (norm.quantile(p) for p in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return {"exact_mean": norm.mean, "exact_low": low, "exact_high": high}


# ---- Figures 2a, 2b
DELTA = 0.05  # failure probability at which the bounds are turned into a distortion
METHODS = {"paper": "the paper's bound", "chernoff": "the best Chernoff bound", "exact": "exact"}
LEMMA = {"forward": "Lemma 2", "backward": "Lemma 5"}
RATIO = {"forward": r"\|h\|/\|x\|", "backward": r"\|\partial W\|_F/(\|\delta\|\,\|x\|)"}
# relative differences below which numbers agree: a mean, and the small share of inputs beyond a tolerance
RESOLUTION, COARSE = 0.05, 0.1


@by_cell
def table(direction: str, cell: Cell) -> Any:
    off, squares, exact = np.abs(1 - cell[direction]), np.abs(1 - cell[direction] ** 2), computed(*cell.spec.widths)
    # of all inputs together, since a quantile of few is biased; its error is that of networks apart
    spread = mean_and_error(np.quantile(squares, 1 - DELTA, axis=1)).error
    measured = {"mean": off.mean(1), "quantile": Mean(float(np.quantile(squares, 1 - DELTA)), spread)}
    measured |= {f"{name}_beyond": (squares > exact[f"{name}_eps"]).mean(1) for name in METHODS}
    return measured, {**exact, "paper_width": theory.required_width(exact["exact_eps"], DELTA, method="paper")}


def computed(width: int) -> dict[str, float]:
    """The mean distortion by a layer, and the eps that each method of computing it allows."""
    eps = {f"{name}_eps": theory.tolerance(width, DELTA, method=name) for name in METHODS}
    return {"exact_mean": theory.NormRatio((width,)).mean_distortion, **eps}


def claims(direction: str, found: Found) -> Claims:
    rows, lemma = found.table, LEMMA[direction]
    mean, error, eps, count = rows.of("mean", "mean_error", "paper_eps", "runs")
    off = "the squared norm is off by more than the"
    of, names = partial(rows.claim, names="width {width}"), rows.labels("width {width}")
    grows = by(increasing, mean / eps, error / eps, count, names)
    decided = {f"the mean distortion is at most the eps of {lemma}": of(at_most, "mean", "paper_eps")}
    for name in ("paper", "chernoff"):
        text = f"{off} eps of {METHODS[name]} for at most {DELTA:g} of the inputs"
        decided[text] = of(at_most, f"{name}_beyond", DELTA)
    # the width that the lemma asks for against the one that is enough: two computed numbers
    factors = [row["paper_width"] / row["width"] for row in rows]
    ordered = all(row["exact_eps"] < row["chernoff_eps"] < row["paper_eps"] for row in rows)
    holds = ordered and min(factors) > 1 and factors == sorted(factors, reverse=True)
    detail = f"it asks for {factors[0]:.2f} to {factors[-1]:.2f} times the width that is enough "
    detail += f"({', '.join(rows.labels('{width}: {paper_width:,}'))})"
    asks = f"{lemma} over-estimates the width, less so at small eps, and the best Chernoff bound lies between"
    return {
        **decided,
        f"{off} exact law's eps for {DELTA:g} of the inputs": of(agrees, "exact_beyond", DELTA, resolution=COARSE),
        "the mean distortion is the exact law's": of(agrees, "mean", "exact_mean", resolution=RESOLUTION),
        f"{lemma} is tighter at smaller eps: measured over predicted grows with the width": grows,
        asks: by(exact, holds, detail, {"largest_factor": factors[0], "smallest_factor": factors[-1]}),
    }


@plots.drawn(6.8, 4.8, legend="upper right")
def draw(direction: str, found: Found, axes: plots.Axes) -> None:
    rows = found.table
    low, high = rows[0]["width"], rows[-1]["width"]
    fine = [round(low * (high / low) ** (step / 40)) for step in range(41)]
    exact, inside = Table({"width": width, **computed(width)} for width in fine), f"{100 * (1 - DELTA):g} %"
    of = partial(plots.column, axes, exact, "width", linewidth=1.2)
    of("paper_eps", 0, rf"{LEMMA[direction]} for $|1-r^2|$, as the paper draws it", color=plots.BOUND, linestyle="--")
    of("chernoff_eps", 0, "best Chernoff bound for $|1-r^2|$", color=plots.BOUND, linestyle="-.")
    of("exact_eps", 0, rf"exact: {inside} of $|1-r^2|$ are below")
    plots.means(axes, rows, "width", "quantile", 0, rf"measured: {inside} of $|1-r^2|$ are below")
    plots.means(axes, rows, "width", "mean", 1, "measured: mean of $|1-r|$, as the paper draws it")
    of("exact_mean", 1, "exact: mean of $|1-r|$")
    axes.set(xlabel="width of the hidden layer", ylabel=rf"distortion $\epsilon$, with $r={RATIO[direction]}$")
    axes.set_ylim(0, 1.05 * max(row["paper_eps"] for row in rows))


_AXIS = {"width": of_widths(*range(500, 4001, 500))}
_PAPER = Sweep(shallow, relu((500,), "he", inputs=2000), _AXIS, runs=100, seed="{widths[0]}", block=10)
_PRESETS = _PAPER.presets(width=of_widths(500, 1000, 2000, 4000), inputs=200, runs=200)
_ABOUT = "{runs} networks a width, {inputs} inputs in R^500 each, delta = 0.05; bars: two standard errors over networks"


# ---- Theorems 1 and 3: many samples, many layers
@by_cell
def failure_table(cell: Cell) -> Any:
    spec, failure, quantity = cell.spec, theory.failure_probability, ("step", "norm", "gradient")
    bounds = {
        f"{way}{form}": [failure(eps, spec.widths, spec.inputs, form, direction) for eps in EPS]
        for form in ("paper", "exact")
        for way, direction in (("", "forward"), ("gradient_", "gradient"))
    }
    return {name: cell[name][:, None] > np.array(EPS) for name in quantity}, bounds, {"eps": EPS}


def failure_claims(backward: bool, found: Found) -> Claims:
    rows, names = found.table, "{inputs} samples, eps {eps:g}"
    quantity, way = ("gradient", "gradient_") if backward else ("norm", "")
    theorem = "Theorem 3: the gradient norm" if backward else "Theorem 1: the norm"
    sharper = "beyond the paper: at most as often as the exact chances of layers, added over the samples, say"
    main, decided = f"{theorem} fails to be kept at most as often as the bound says", dict[str, Any]()
    for text, bound in ((main, f"{way}paper"), (sharper, f"{way}exact")):
        at = rows.column(bound)
        errors = np.sqrt(np.clip(at * (1 - at), 0, None) / rows.column("runs"))  # of a share at it
        own = Table({**row, f"{quantity}_error": float(error)} for row, error in zip(rows, errors, strict=True))
        decided |= own.bounded(text, at < 1, at_most, quantity, bound, names=names)
    if not backward:
        text = "beyond the paper: for one sample some layer fails as often as the exact law says"
        clear = Table(row for row in rows.where(inputs=1) if row["exact"] > FEW)
        decided[text] = clear.claim(agrees, "step", "exact", resolution=2 * COARSE, names=names)
    return decided


@plots.drawn(9.6, 4.4, legend=2, columns=2, sharey=True)
def draw_failures(backward: bool, found: Found, panels: Any) -> None:
    way, quantity = ("gradient_", "gradient") if backward else ("", "norm")
    for axes, (inputs, rows) in zip(panels, found.table.by("inputs"), strict=True):
        plots.column(axes, rows, "eps", f"{way}paper", 0, "the paper's bound", color=plots.BOUND, linestyle="--")
        plots.column(axes, rows, "eps", f"{way}exact", 1, "exact chances, added over samples")
        if not backward:
            plots.means(axes, rows, "eps", "step", 1, "measured: some layer changes some norm by more")
        label = f"measured: {'some gradient' if backward else 'norm of some layer'} is off by more than the power"
        plots.means(axes, rows, "eps", quantity, 2, label)
        axes.set(yscale="log", ylim=(0.3 / found.cells[0].runs, 1.5), xlabel=r"$\epsilon$")
        axes.set_title(f"{inputs} sample{'s' * (inputs > 1)}")
    panels[0].set_ylabel("share of networks in which it fails")


# ---- Lemma 3 and Theorem 2: all vectors of a plane
@by_cell
def plane_table(cell: Cell) -> Any:
    eps = asked(cell.spec.width, cell.spec.depth)
    beyond = {f"{name}_beyond": cell[name] > eps for name in ("square", "norm")}
    one = theory.tolerance(cell.spec.width, DELTA) if cell.spec.width > 50 else math.nan
    exact, layers = {"asked": eps, "one_vector": one}, range(1, cell.spec.depth + 1)
    return {**{name: cell[name] for name in ("square", "norm", "rank")}, **beyond}, exact, {"layer": layers}


@lru_cache(maxsize=256)
def asked(width: int, depth: int) -> float:
    """The eps for which equation (11), for one layer (9), asks for that width of each layer; 1 if for none below 1."""
    from scipy.optimize import brentq

    excess = lambda eps: theory.subspace_width(eps, DELTA, 2, depth) - width  # noqa: E731
    return 1.0 if excess(1 - 1e-9) > 0 else float(brentq(excess, 1e-3, 1 - 1e-9))


def plane_claims(found: Found) -> Claims:
    """Lemma 3 in both forms; or Theorem 2, whose conclusion is measured, and the step of its proof that is false."""
    rows, names = Table(row for row in found.table if row["asked"] < 1), "width {width}, layer {layer}"
    theorem, decided = "Theorem 2 at every layer" if found.sweep["depth"] > 1 else "Lemma 3", {}
    for name, form in {"square": "squared norms, as in the text", "norm": "norms, as in the appendix"}.items():
        text = f"{theorem} for {form}: within eps on the whole plane, but in {DELTA:g} of the networks"
        error = f"{name}_beyond_error"  # of a share at the bound: its own is 0 where none fails
        at = Table({**row, error: math.sqrt(DELTA * (1 - DELTA) / row["runs"])} for row in rows)
        decided[text] = at.claim(at_most, f"{name}_beyond", DELTA, names=names)
    if ranked := Table(row for row in found.table if row["rank"] == row["rank"]):
        text = "Theorem 2's proof: behind each ReLU the plane is part of a plane (rank of its image)"
        decided[text] = ranked.claim(at_most, "rank", 2.0, names=names)
    else:
        text = "the eps of Lemma 3 is more than twice what squared norms take"
        decided[text] = rows.claim(at_most, "square", rows.column("asked") / 2, names=names)
    return decided


def draw_planes(found: Found) -> plots.Figure:
    deep = found.sweep["depth"] > 1
    picture, panels = plots.figure(9.6 if deep else 6.4, 4.4, columns=1 + deep, squeeze=False)
    rows, axes, x = Table(row for row in found.table if row["asked"] < 1), panels[0, -1], "layer" if deep else "width"
    xlabel = "layer $l$" if deep else "width"
    plots.column(axes, rows, x, "asked", 0, "asked for in the paper", color=plots.BOUND, linestyle="--")
    for index, (name, text) in enumerate((("square", "squared norms"), ("norm", "norms"))):
        label = f"{text} (mean)" if deep else f"measured, whole plane, {text} (mean)"
        plots.means(axes, rows, x, name, index, label, linestyle="-", linewidth=0.8)
    axes.set(yscale="log", ylabel=r"$\epsilon$ that is enough on the whole plane", xlabel=xlabel)
    if deep:
        axes.set_title(f"width {rows[0]['width']}, the paper's for eps = {rows[0]['asked']:.2g}")
        first, ranked = panels[0, 0], Table(row for row in found.table if row["rank"] == row["rank"])
        plots.lines(first, ranked, "layer", "rank", "width", "width {}")
        first.axhline(2, color=plots.BOUND, linestyle="--", label="as the proof has it")
        first.set(yscale="log", xlabel="layer $l$", ylabel="rank of the image of a plane")
        plots.ticks(first, [2, 5, 10, 20, 50, 100, 200], "y")
        for each in panels[0]:
            each.set_xticks(range(1, found.sweep["depth"] + 1))
        first.legend(loc="center right")
    else:
        plots.column(axes, rows, x, "one_vector", 2, "exact, one vector, squared norm", linestyle=":")
        plots.ticks(axes, found.sweep["width"], scale="log")
    plots.ticks(axes, [0.02, 0.05, 0.1, 0.2, 0.5, 1.0], "y")
    plots.legend_below(picture, *axes.get_legend_handles_labels(), columns=2)
    return picture


# ---- Proposition 1: which units are active
def active(spec: Spec, seed: int) -> dict[str, Any]:
    """Share of networks by how many units of the second layer are active, (blocks, first layer, second layer)."""
    source, units = numpy_generator(seed), np.arange(spec.width + 1)
    found = np.empty((spec.blocks, len(units), len(units)))
    for block in found:
        first, second = source.standard_normal((2, spec.draws, spec.width, spec.width))
        h = np.maximum(first.sum(2, keepdims=True), 0)
        before, after = ((each > 0).sum((1, 2)) for each in (h, second @ h))
        block[:] = [(after[before == count, None] == units).mean(0) for count in units]
    return {"share": found}


@by_cell
def active_table(cell: Cell) -> Any:
    width, units = cell.spec.width, range(cell.spec.width + 1)
    coins = [math.comb(width, count) / 2**width for count in units]
    return {"share": cell["share"][0]}, {"coins": coins}, {"before": units, "after": units}


def active_claims(found: Found) -> Claims:
    some, none = (Table(row for row in found.table if bool(row["before"]) == word) for word in (True, False))
    how: Any = ("share", "coins"), {"names": "{before} before, {after} after", "resolution": COARSE}
    text = "whichever units of the layer before are active, those of a layer are active like fair coins"
    return {text: some.claim(agrees, *how[0], **how[1]), "... and if none is": none.claim(agrees, *how[0], **how[1])}


@plots.drawn(6.6, 4.4, legend=3)
def draw_active(found: Found, axes: plots.Axes) -> None:
    plots.lines(axes, found.table, "before", "share", "after", "{} active", {"coins": ":"})
    axes.set(xlabel="active units of the layer before", ylabel="share of networks (dotted: coins)")
    axes.set_xticks(found.table.column("before"))


# ---- Lemmas 6 and 7: inner products
def products(spec: Spec, seed: int) -> dict[str, Any]:
    """How often a Gaussian matrix whose rows are ``kept`` changes the inner product by more than eps, (blocks, eps)."""
    source, found = numpy_generator(seed), np.empty((spec.blocks, len(spec.eps)))
    for block in found:
        first, other = source.standard_normal((2, spec.draws, spec.width))
        second = spec.cosine * first + math.sqrt(1 - spec.cosine**2) * other
        product = (first * second * (source.random(first.shape) < spec.kept)).mean(1) / spec.kept
        block[:] = (abs(product - spec.cosine)[:, None] > spec.eps).mean(0)
    return {"share": found}


@by_cell
def product_table(cell: Cell) -> Any:
    spec, width = cell.spec, cell.spec.width
    rates = [(eps**2 - eps**3) / 4 if spec.kept == 1 else theory.paper_rate(eps) for eps in spec.eps]
    law = {"exact": [off_by(eps, width, spec.cosine, spec.kept) for eps in spec.eps]}
    return {"share": cell["share"][0]}, {"bound": 4 * np.exp(-width * np.array(rates)), **law}, {"eps": spec.eps}


def off_by(eps: float, width: int, cosine: float, kept: float) -> float:
    """The exact chance: the product is a difference of two independent chi squares with the rows that are kept."""
    from scipy import special, stats

    rows, scale = np.arange(1, width + 1), 1 / (2 * kept * width)
    rows = rows[stats.binom.pmf(rows, width, kept) > 1e-9]
    other = scale * (1 - cosine) * special.chdtri(rows[:, None], (np.arange(1000) + 0.5) / 1000)
    ends = [(cosine + side * eps + other).clip(0) / scale / (1 + cosine) for side in (-1, 1)]
    inside = np.diff(special.chdtr(rows[:, None], ends), axis=0)[0].mean(1)
    return float(1 - stats.binom.pmf(rows, width, kept) @ inside)


def product_claims(found: Found) -> Claims:
    decided, names = dict[str, Any](), "{lemma}, cosine {cosine:g}, eps {eps:g}"
    for lemma, rows in found.table.by("lemma"):
        text = f"{lemma}: the inner product is off by more than eps at most as often as the bound says"
        decided |= rows.bounded(text, rows.column("bound") < 1, at_most, "share", "bound", names=names)
    clear = Table(row for row in found.table if row["exact"] > FEW)
    law = clear.claim(agrees, "share", "exact", resolution=2 * COARSE, names=names)
    return {**decided, "beyond the paper: as often as the exact law says": law}


@plots.drawn(9.6, 4.4, legend=4, columns=2, sharey=True)
def draw_products(found: Found, panels: Any) -> None:
    for axes, (lemma, part) in zip(panels, found.table.by("lemma"), strict=True):
        bound = part.where(cosine=found.sweep["cosine"][0])
        plots.column(axes, bound, "eps", "bound", 0, "the lemma's bound", color=plots.BOUND, linestyle="--")
        plots.lines(axes, part, "eps", "share", "cosine", "cosine {:g}", {"exact": "-"}, linestyle="none")
        axes.set(title=lemma, yscale="log", ylim=(1e-6, 1.5), xlabel=r"$\epsilon$")
    panels[0].set_ylabel("share that is off by more (lines: exact)")


EPS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
FEW = 0.03  # shares of networks below are of a few networks
_DEEP = Sweep(worst, relu((200,) * 5, "he", 1, size=200), {"inputs": (1, 20)}, 20_000, 1, stride=1, block=200)
_SETTING = "5 layers of width 200, inputs in R^{size}; {runs} networks each"
_OF_PLANES, _WIDTHS = Spec(depth=1, directions=2000, ranked=False), {"width": (1200, 2400, 4800, 9600)}
_PLANES = Sweep(plane, _OF_PLANES, _WIDTHS, 1000, 11, stride=1, block=20)
_SIZES = {50: {"width": 50, "ranked": True}, 200: {"width": 200, "ranked": True}, 1802: {"width": 1802}}
_ALL = _PLANES.but(axes={"width": _SIZES}, depth=4, directions=1000, runs={"width": (50, 20, 400)}, block=5)
_FOUR = _ALL.presets(runs={"width": (20, 5, 60)})
_COINS = Sweep(active, Spec(width=4, draws=20_000, blocks=200)).presets(blocks=50)
_LEMMAS: dict[str, Any] = {"lemma": {"Lemma 6": {"kept": 1.0}, "Lemma 7": {"kept": 0.5}}, "cosine": (0.0, 0.5, 1.0)}
_MANY = Spec(width=200, draws=1000, blocks=400, eps=(0.15, 0.2, 0.3, 0.4))
_PRODUCTS = Sweep(products, _MANY, _LEMMAS, stride=1).presets(blocks=50)
_BEFORE, _INNER = "Active units by those of the layer before", "How often an inner product is not kept"
_UNITS = _COINS, active_table, active_claims, draw_active, "two layers of {width} ReLUs, {blocks} x {draws:,} networks"
_PAIRS = _PRODUCTS, product_table, product_claims, draw_products, "width {width}, {blocks} x {draws:,} draws of each"
_VECTORS = "depth {depth}, width {width}; {directions} directions of a plane; {runs} networks, delta = 0.05"
_OFF, _AT = "Distortion of the norm by one layer against its width, {}", ("section 4.2", _PRESETS)
_PLANE = "Norms of all vectors of a plane behind {}"
_MADE = plane_table, plane_claims, draw_planes, _VECTORS


def _failures(name: str, what: str, both: bool) -> Artifact:
    title = f"How often the norm of a sample is not kept: {what} through five layers"
    args = failure_table, partial(failure_claims, both), partial(draw_failures, both), _SETTING
    return Artifact(f"arpit-bengio/{name}", title, "", _DEEP.presets(runs=2000), *args)


ARTIFACTS = (
    *(
        Artifact(f"arpit-bengio/{id}", _OFF.format(way), *_AT, *given(way, table, claims, draw), _ABOUT)
        for id, way in (("fig2a", "forward"), ("fig2b", "backward"))
    ),
    _failures("th1", "activations", False),
    _failures("th3", "gradients", True),
    Artifact("arpit-bengio/lemma3", _PLANE.format("one layer"), "", _PLANES.presets(runs=200), *_MADE),
    Artifact("arpit-bengio/th2", _PLANE.format("several layers"), "", _FOUR, *_MADE),
    Artifact("arpit-bengio/prop1", _BEFORE, "", *_UNITS),
    Artifact("arpit-bengio/lemma6", _INNER, "and 7, appendix A", *_PAIRS),
)
