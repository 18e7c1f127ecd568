"""Price-Tanner Figures 1, 2, 3a, 3b, 5a-d (section 4, appendices B, C.1): growth of length by law, std and density."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from epoch0 import plots
from epoch0.distributions import Discrete, Gaussian, Law, Sparse, Uniform, integers
from epoch0.experiments.claims import at_least, at_most, better_fit, between, fitted_exponent, increasing, linear
from epoch0.measure.length import trajectory_length
from epoch0.networks import Ensemble, ensemble
from epoch0.papers import tables
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Mean, Table, agrees, by, mean_and_error, mean_growth, more
from epoch0.papers.trials import DIGITS, MNIST, CurveSpec
from epoch0.theory import growth as theory

LARGEST = (1, 2, 3, 4, 5)  # C of the discrete laws {-C, ..., C}; the other two laws get the same standard deviations
STDS = tuple(math.sqrt(largest * (largest + 1) / 3) for largest in LARGEST)
DENSITIES = tuple(tenth / 10 for tenth in range(1, 11))
# the paper's law of the biases that goes with each law of the weights
BIASES: dict[str, Law] = {"gaussian": Gaussian(0.01), "uniform": Uniform(0.01), "discrete": Discrete((-0.01, 0.01))}
RESOLUTION = 0.02  # growth factors "match perfectly" if they differ by less than 2 %
_GROWTH = "growth", "growth_error", "runs"
_NAME = "{law}, std {std:.3g}, density {density:.3g}"


def networks(spec: Spec, seed: int) -> Ensemble:
    """The networks of a block: number ``first`` and those after it of the ensemble with that seed."""
    sizes, weights = [spec.width] * (spec.depth + 1), weight_law(spec.law, spec.std, spec.density)
    laws, count = (weights, BIASES[spec.law]), spec.first + spec.networks
    return ensemble(count, sizes, "relu", *laws, linear_output=False, seed=seed)[spec.first :]


def block(spec: Spec, seed: int) -> dict[str, Any]:
    """``lengths`` (networks, depth + 1) and ``growth`` (networks, depth) of a curve, the same in whatever block."""
    measured = trajectory_length(networks(spec, seed), spec.curve.curve(), points=spec.tangents, seed=seed)
    return {"lengths": np.asarray(measured.network_lengths), "growth": np.asarray(measured.network_growth)}


def weight_law(law: str, std: float, density: float = 1.0) -> Law:
    """The law of a weight before the division by sqrt(width); at density 1 every law has that standard deviation."""
    whole = integers(max(round((math.sqrt(1 + 12 * std**2) - 1) / 2), 1))
    kept: dict[str, Law] = {"gaussian": Gaussian(std), "uniform": Uniform(std * math.sqrt(3))}
    kept["discrete"] = whole.scaled(std / whole.std)  # by exactly 1 where the std is one of STDS
    return Sparse(kept[law], density)


@by_cell
def table(cell: Cell) -> Any:
    mean, error, count = mean_growth(cell["growth"])
    return {"growth": Mean(mean, error)}, {"runs": count, **predicted(cell.spec)}


@by_cell
def length_table(cell: Cell) -> Any:
    layers = range(cell.spec.depth + 1)
    start, bounds = float(cell["lengths"][0, 0]), predicted(cell.spec)
    expected = {name: item and [start * item**layer for layer in layers] for name, item in bounds.items()}
    return {"length": cell["lengths"]}, expected, {"layer": layers}


BOUNDS: dict[str, Callable[[Law, int], Any]] = {
    "paper_lower": theory.lower_bound,
    "lower": theory.best_lower_bound,
    "minimum": theory.sparse_minimum,
    "maximum": theory.sparse_maximum,
    "upper": theory.upper_bound,
}


@cache
def predicted(spec: Spec) -> dict[str, float | None]:
    """Bounds on the growth factor of one layer, and its exact extremes where they are known (Gaussian weights)."""
    entry = weight_law(spec.law, spec.std, spec.density).scaled(spec.width**-0.5)
    unknown = () if spec.law == "gaussian" else ("minimum", "maximum")
    return {name: None if name in unknown else float(of(entry, spec.width)) for name, of in BOUNDS.items()}


def claims(swept: str, shown: str | None, found: Found) -> Claims:
    rows = found.table.where(curve=shown or found.sweep["curve"])
    of, gaussian = partial(rows.claim, names=_NAME), rows.where(law="gaussian")
    # the range is narrower than the errors, so its nearest value counts
    inside = np.clip(*gaussian.of("growth", "minimum", "maximum"))
    in_range = gaussian.claim(agrees, "growth", inside, names=_NAME, resolution=RESOLUTION)
    decided = {
        "growth is at least the paper's lower bound (Corollaries 1-3)": of(at_least, "growth", "paper_lower"),
        "growth is at least the fourth-moment lower bound": of(at_least, "growth", "lower"),
        "growth is at most the second-moment upper bound": of(at_most, "growth", "upper"),
        "Gaussian weights: growth agrees with its exact range over directions": in_range,
    }
    for law, subset in rows.by("law"):
        x, growth, errors, count = subset.of(swept, *_GROWTH)
        if swept == "std":
            text = f"growth is linear in the std of the weights ({law})"
            decided[text] = by(linear, x, growth, errors, count)
        else:
            names, (exponent, error) = ("sqrt(density)", "density"), fitted_exponent(x, growth, errors)
            better = by(better_fit, growth, errors, np.sqrt(x), x, count, names=names)
            detail = f"growth goes like density^p, p = {exponent:.3f} ± {error:.2g}"
            text = f"growth has the shape sqrt(density), not density ({law})"
            decided[text] = more(better, detail, exponent=exponent, exponent_error=error)
    if swept == "density" and shown is None:
        decided |= _printed_values(rows)
    laws = rows.alike("growth", "law", "{law}", _NAME[7:], resolution=RESOLUTION)
    decided["the three laws of equal variance have the same growth factor"] = laws
    if len(found.sweep["curve"]) > 1:
        curves = found.table.alike("growth", "curve", "{curve}", _NAME, resolution=RESOLUTION)
        decided["straight and curved trajectories have the same growth factor"] = curves
    return decided


def _printed_values(rows: Table) -> Claims:
    """Section 4's two numbers, to the digit printed: growth 1 at density about 0.5, and about 1.5 for dense weights."""
    half, dense = rows.where(density=0.5), rows.where(density=1.0)
    growth, errors, count = half.of(*_GROWTH)
    text = "growth at density 0.5 is {growth:.4f} ± {growth_error:.2g} ({law}; exact extremes {minimum:.4f} and "
    # growth goes like sqrt(density) close by, so that it is 1 at 0.5 / growth^2
    crossing = by(between, 0.5 / growth**2, errors / growth**3, 0.45, 0.55, count, half.labels("{law}"))
    one = "growth is 1 at density 0.5, to the digit printed: the crossing is in [0.45, 0.55]"
    approximately = "dense growth is 'approximately 1.5', to the digit printed: in [1.45, 1.55]"
    gaussian = dense.where(law="gaussian")
    exact = gaussian.claim(agrees, "growth", "minimum", names="density 1", resolution=RESOLUTION)
    return {
        one: more(crossing, f"{text}{{maximum:.4f}})".format_map(half[0])),
        approximately: dense.claim(between, "growth", 1.45, 1.55, names="{law}"),
        f"dense Gaussian growth is its exact value {gaussian[0]['minimum']:.4f}": exact,
    }


def depth_claims(found: Found) -> Claims:
    deep, decided = found.table.where(layer=tuple(range(1, found.sweep["depth"] + 1))), {}
    for density, rows in deep.by("density"):
        layer, length, error, count = rows.of("layer", "length", "length_error", "runs")
        text = f"log length is linear in depth (density {density:g})"
        decided[text] = by(linear, layer, np.log(length), error / length, count)
    logs = [np.log(lengths[(lengths > 0).all(axis=1)][:, 1:]) for lengths in (cell["lengths"] for cell in found)]
    densities, names = [f"density {item:g}" for item in found.sweep["density"]], "density {density:g}, layer {layer}"
    rates = tables.over_runs(increasing, [tables.slopes(item) for item in logs], names=densities)
    return {
        **decided,
        "the slope of log length increases with the density (networks in which the curve is not lost)": rates,
        "mean length is at least the bound of Corollary 1": deep.claim(at_least, "length", "paper_lower", names=names),
        "mean length is at most the second-moment bound": deep.claim(at_most, "length", "upper", names=names),
    }


_SIZES = (8.5, 5.5, 3.0)
# the laws agree, so their markers lie on top of each other: large and hollow first, small and full last
_DASHES = ((0, (6, 2)), (0, (4, 1.5, 1, 1.5)), (0, (1.5, 1.5)))

_LABELS = {
    "std": r"std of the non-zero weights, before the $1/\sqrt{k}$",
    "density": r"density $\alpha$ (fraction of weights kept)",
}


@plots.drawn(6.4, 5.4, legend=2)
def draw(swept: str, shown: str | None, found: Found, axes: plots.Axes) -> None:
    rows = found.table.where(curve=shown or found.sweep["curve"])
    low, high = rows.column(swept).min(), rows.column(swept).max()
    spec = found.sweep.spec.but(law="gaussian", std=found.sweep["std"][0], density=found.sweep["density"][0])
    fine = np.linspace(low, high, 40).tolist()
    exact = Table({swept: value, **predicted(spec.but(**{swept: value}))} for value in fine)
    second = {"color": plots.BOUND, "linestyle": ":", "zorder": 1.2}
    plots.column(axes, exact, swept, "upper", 0, "upper bound (second moment)", **second)
    grey = {"color": "#bbbbbb", "edgecolor": "#999999", "linewidth": 0.8, "zorder": 1.1}
    plots.band(axes, exact, swept, "minimum", "maximum", "gaussian: exact range", **grey)
    for index, ((law, subset), size, dashes) in enumerate(zip(rows.by("law"), _SIZES, _DASHES, strict=False)):
        bound, text, fill = f"{law}: the paper's lower bound", f"{law}: measured", "none" if index < 2 else None
        plots.column(axes, subset, swept, "paper_lower", index, bound, linestyle=dashes, linewidth=1.2)
        look = {"markersize": size, "capsize": size / 2}
        plots.means(axes, subset, swept, "growth", index, text, markerfacecolor=fill, **look)
    axes.axhline(1.0, color="#333333", linewidth=0.7, zorder=1)
    axes.set(xlabel=_LABELS[swept], ylabel=r"growth factor $E\,\|dz^{(d+1)}\|\,/\,\|dz^{(d)}\|$")
    axes.set(xlim=(low - 0.05 * (high - low), high + 0.03 * (high - low)), ylim=(0, 1.06 * rows.column("upper").max()))


@plots.drawn(6.4, 5.2)
def over_depth(found: Found, axes: plots.Axes) -> None:
    from matplotlib import colormaps

    densities = sorted(found.sweep["density"], reverse=True)
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(densities)))  # ordered, and without its palest end
    for index, (density, shade) in enumerate(zip(densities, shades, strict=True)):
        rows = found.table.where(density=density)
        plots.column(axes, rows, "layer", "paper_lower", index, linestyle="--", linewidth=0.8, color=shade)
        look = {"color": shade, "linestyle": "-", "linewidth": 1.1, "markersize": 4.5}
        plots.means(axes, rows, "layer", "length", index, f"{density:g}", **look)
    axes.plot([], [], "--", color="#333333", linewidth=0.8, label="lower bound\n(Corollary 1)\nof that density")
    axes.set(xlabel="layer $d$", ylabel=r"mean length of the trajectory, $E\,\ell(z^{(d)})$")
    axes.set(yscale="log", xticks=range(found.sweep["depth"] + 1))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title=r"density $\alpha$")


def _random(size: int) -> dict[str, CurveSpec]:
    return {"straight": CurveSpec("random", size=size), "curved": CurveSpec("random", "arcs", size=size, planes=100)}


def _presets(images: bool, **swept: Any) -> dict[str, Sweep]:
    """The paper keeps a density of 0.5 in Figures 3a, 5a and 5c, and a std of 2 in the others but Figure 2."""
    digits, mnist = {"line between two digits": DIGITS}, {"line between two MNIST images": MNIST}
    curves, width, few, runs = (mnist, 784, digits, 400) if images else (_random(500), 500, _random(64), 200)
    axes = {"curve": curves, "law": tuple(BIASES), "std": (2.0,), "density": (0.5,), **swept}
    seed = "{curve.shape} {law} {std!r} {density!r}"  # curves of another shape get other networks
    paper = Sweep(block, Spec(width=width, depth=10, tangents=16), axes, 100, seed, 10)
    return paper.presets(curve=few, width=64, runs=runs, block=100)


_POINT = "{runs} networks a point of width {width} and depth {depth}, "


def _by(swept: str, figure: str, title: str, shown: str | None = None) -> Artifact:
    values, fixed = (STDS, "density 0.5") if swept == "std" else (DENSITIES, "std 2")
    line = "line between two random points of norm 1 in R^{width}"
    curve = {None: "{curve}", "straight": line, "curved": f"{line}, bent into semicircles in 100 random planes"}[shown]
    args = table, partial(claims, swept, shown), partial(draw, swept, shown), f"{curve}; {_POINT}{fixed}"
    return Artifact(f"price-tanner/{figure}", title, "", _presets(shown is None, **{swept: values}), *args)


_TITLE, _ABOUT = "Mean length of a trajectory at each layer, by density", f"{{curve}}; {_POINT}std 6"
_DENSE = _presets(True, density=DENSITIES[:9], law=("gaussian",), std=(6.0,))
_AGAINST = "Growth factor against {}, random points, {} trajectory"
# 5a and 5c, and 5b and 5d, measure both trajectories, and share their trials
ARTIFACTS: tuple[Artifact, ...] = (
    Artifact("price-tanner/fig2", _TITLE, "", _DENSE, length_table, depth_claims, over_depth, _ABOUT),
    _by("std", "fig3a", "Growth factor against std of the weights, three laws"),
    _by("density", "fig3b", "Growth factor against density, three laws"),
    _by("std", "fig5a", _AGAINST.format("std of the weights", "straight"), "straight"),
    _by("density", "fig5b", _AGAINST.format("density", "straight"), "straight"),
    _by("std", "fig5c", _AGAINST.format("std of the weights", "curved"), "curved"),
    _by("density", "fig5d", _AGAINST.format("density", "curved"), "curved"),
)


# ---- Figure 1: a circle carried through a network, drawn in two dimensions at several layers
def drawing(spec: Spec, seed: int) -> dict[str, Any]:
    """The pre-activations of a ``network``, a block of one, along the curve: ``paths`` (shown, points, 2) in the plane
    of the first two principal components of each of the layers ``shown``, counted from 1 (the paper does not say how it
    projects), ``shares`` of the variance in that plane, ``lengths`` of the curve in all dimensions.
    """
    (net,) = list(networks(spec.network, seed))
    curve = spec.network.curve.curve()
    linear = [name for name, part in net.named_children() if isinstance(part, torch.nn.Linear)]
    chosen = [linear[layer - 1] for layer in spec.shown]
    images = images_in(net, curve.point(torch.linspace(0, 1, spec.points, dtype=torch.float64)), chosen)
    lengths = trajectory_length(net, curve, layers=chosen, points=1000, seed=seed).network_lengths[0, 1:]
    paths, shares = (np.array(each) for each in zip(*images, strict=True))
    return {"paths": paths, "shares": shares, "lengths": np.asarray(lengths)}


def images_in(net: torch.nn.Module, points: torch.Tensor, layers: Sequence[str]) -> list[tuple[Array, float]]:
    """The images of points behind some modules of a network, each in the plane of its two principal components."""
    images = []
    with torch.no_grad():
        for name, part in net.named_children():
            points = part(points)
            if name in layers:
                images.append(projected(points.double().numpy()))
    return images


def projected(points: Array) -> tuple[Array, float]:
    """Coordinates along the two principal components, shape (points, 2), and their share of the variance."""
    left, values, _ = np.linalg.svd(points - points.mean(0), full_matrices=False)
    return left[:, :2] * values[:2], float((values[:2] ** 2).sum() / (values**2).sum())


def circle_table(found: Found) -> Table:
    shown, entry = found.also["drawing"].one(), Gaussian(found.sweep["std"] * found.sweep["width"] ** -0.5)
    bounds, layers = {**BOUNDS, "exact": theory.exact}, range(found.sweep["depth"] + 1)
    drawn = {"drawn_pre_activation_length": shown["lengths"][0], "drawn_variance_shown": shown["shares"][0]}

    def row(cell: Cell) -> Any:
        growth, error = mean_and_error(cell["growth"])
        beside: dict[str, Any] = {"growth": [None, *growth.tolist()], "growth_error": [None, *error.tolist()]}
        for name in ("paper_lower", "lower", "exact", "upper"):
            beside[name] = [2 * math.pi * bounds[name](entry, cell.spec.width) ** layer for layer in layers]
        beside["drawn_length"] = cell["lengths"][0]
        beside |= {n: [dict(zip(shown.spec.shown, v, strict=True)).get(k) for k in layers] for n, v in drawn.items()}
        return {"length": cell["lengths"]}, beside, {"layer": layers}

    return found.rows(row)


def circle_claims(found: Found) -> Claims:
    of = partial(Table(found.table[1:]).claim, names="layer {layer}")
    entry, width = Gaussian(found.sweep["std"] * found.sweep["width"] ** -0.5), found.sweep["width"]
    exact = of(agrees, "growth", theory.exact(entry, width), resolution=0.05)
    raghu = theory.raghu_lower_bound(found.sweep["std"], 0.0, width) ** np.array(range(1, len(found.table)))
    return {
        "mean length at each layer is at least the bound of Corollary 1": of(at_least, "length", "paper_lower"),
        "... and that of Theorem 1, with the constant of its proof": of(at_least, "length", 2 * math.pi * raghu),
        "mean length at each layer is at most the second-moment bound": of(at_most, "length", "upper"),
        "growth in each layer is the exact one of dense Gaussian weights": exact,
    }


def circle_draw(found: Found) -> plots.Figure:
    rows, shown = found.table, found.also["drawing"].one()
    names = ["input", *(f"layer {layer}" for layer in shown.spec.shown)]
    columns = -(-len(names) // 2)
    names += ["."] * (2 * columns - len(names))
    grid = [[*names[row * columns : (row + 1) * columns], "lengths", "lengths"] for row in range(2)]
    picture, panels = plots.figure(2.3 * columns + 4.6, 5.6, mosaic=grid)
    paths = shown["paths"][0]
    angle, title = np.linspace(0, 2 * np.pi, len(paths[0])), f"input: length {rows[0]['drawn_length']:.3g}"
    closed_curve(panels["input"], np.stack([np.cos(angle), np.sin(angle)], 1), title)
    text = "layer {layer}: length {drawn_pre_activation_length:.3g},\nshows {drawn_variance_shown:.0%} of variance"
    for layer, path in zip(shown.spec.shown, paths, strict=True):
        closed_curve(panels[f"layer {layer}"], path, text.format_map(rows[layer]))
    axes = panels["lengths"]
    layer, upper, exact, lower, drawn = rows.of("layer", "upper", "exact", "paper_lower", "drawn_length")
    axes.plot(layer, upper, ":", color=plots.BOUND, label="upper bound (second moment)")
    axes.plot(layer, exact, "-", color=plots.COLOURS[0], linewidth=1.0, label="exact mean")
    axes.plot(layer, lower, "--", color=plots.BOUND, label="lower bound (Cor. 1)")
    plots.means(axes, rows, "layer", "length", 0, f"mean of {rows[0]['runs']} networks")
    axes.plot(layer, drawn, linestyle="none", marker="x", color=plots.COLOURS[1], label="network drawn")
    axes.set(xlabel="layer $d$", ylabel=r"length after the ReLU, $\ell(z^{(d)})$", yscale="log", xticks=layer)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    return picture


def closed_curve(axes: plots.Axes, path: Array, title: str) -> None:
    """One closed curve in equal units both ways: it starts at the dot, and its colour tells the direction."""
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection

    pieces = np.stack([path[:-1], path[1:]], axis=1)
    colours = colormaps["viridis"](np.linspace(0, 0.85, len(pieces)))
    axes.add_collection(LineCollection(list(pieces), colors=colours, linewidths=1.5))
    axes.plot(*path[0], marker="o", color=colours[0], markersize=4.5)
    axes.autoscale()
    axes.set_aspect("equal", "datalim")
    axes.set_title(title, fontsize=8.5)
    axes.tick_params(labelsize=7)


def circles(width: int, networks: int, block_size: int) -> Sweep:
    curve = CurveSpec("random", "circle", width)
    spec = Spec(law="gaussian", std=2.0, density=1.0, width=width, depth=10, tangents=64, curve=curve)
    shown = Spec(network=spec.but(first=0, networks=1), points=2000, shown=(1, 2, 4, 7, 10))
    return Sweep(block, spec, runs=networks, block=block_size, also={"drawing": Sweep(drawing, shown)})


_PRESETS = {"quick": circles(64, 400, 100), "paper": circles(784, 100, 10)}  # no width is printed; others have 784
_OF_CIRCLE = "dense Gaussian ReLU network, sigma_w = 2, bias std 0.01, width {width}; pre-activations of one network "
_OF_CIRCLE += "along the first two principal components; lengths of {runs} networks"
_HOW = _PRESETS, circle_table, circle_claims, circle_draw, _OF_CIRCLE
ARTIFACTS += (Artifact("price-tanner/fig1", "A circle carried through a ReLU network", "", *_HOW),)
