"""Hanin-Rolnick's theorems: the boundary of random networks, against the integral of Theorem 3 and what bounds it.

Theorem 3 (section 5) by Monte Carlo, against exact counts of the same networks: break points on a line (k = 1) and, in
a square (k = 2), without the condition on ways to the output, points at which boundaries of activation regions cross.

With T break points of the nonlinearity, N neurons z, biases of density at most rho, and G the largest mean gradient a
line has at most ``T rho sum_z E|d_u z|`` break points a unit length, a unit volume at most ``T rho sum_z E||grad z||``
of boundary (from lines: Crofton), the mean distance to it is at least ``1 / (4 T N rho G)`` (Theorems 1, 2, Corollary
5), and a unit square has at most ``(T rho)^2 sum E||grad y|| ||grad z||`` crossings, over pairs (Corollary 7).
"""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import activations, plots, regions
from epoch0.distributions import Discrete, Gaussian, Law, Uniform
from epoch0.experiments.claims import MORE, at_least, between, check
from epoch0.networks import ensemble
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Claims, Table, agrees, by, columns_of
from epoch0.seeds import numpy_generator

RESOLUTION = 0.1  # counts and integral agree if they differ by less than this, relatively

# what is counted, and what is claimed of it
_LINEAR = "k = 1: the integral gives the mean number of break points of linear regions on a line"
_ACTIVATION = "k = 1: without the condition on good neurons it gives that of activation regions"
QUANTITIES = {"linear break points on a line": _LINEAR, "activation break points on a line": _ACTIVATION}
QUANTITIES["crossings in a square"] = "k = 2: and the mean number of crossings in a square"


def compare(spec: Spec, seed: int) -> dict[str, Any]:
    """Count exactly, and integrate: ``counts_q`` and ``integral_q`` for each of ``QUANTITIES``, a number a network. So
    many ``networks`` are on a line that joins two points, others, as many as ``planes``, in a square of twice ``half``
    around a point, as in many dimensions a small square sees few crossings; points are standard Gaussian.
    """
    sizes, source = [spec.inputs, *[spec.width] * spec.depth, 1], numpy_generator(seed, spec.depth, spec.width)
    x = torch.from_numpy(source.standard_normal((5, spec.inputs)))
    (kinked, scale), biases = NONLINEARITIES[spec.breakpoints], Gaussian(spec.bias_std)
    on_line, in_square = (
        ensemble(count, sizes, kinked, Gaussian(scale**0.5), biases, seed=int(own), dtype=torch.float64)
        for count, own in zip((spec.networks, spec.planes), source.integers(2**31, size=2), strict=True)
    )
    found: list[Any] = [regions.on_line(net, x[0], x[1]) for net in on_line]
    linear, activation = [item.linear_count - 1 for item in found], [item.count - 1 for item in found]
    window = regions.square(x[2], x[3], x[4], spec.half)
    crossings = [inner_vertices(regions.on_plane(net, window)) for net in in_square]
    density, line = partial(regions.boundary_density, seed=seed), (x[0], x[1])
    densities = [density(on_line, line, kind=kind) for kind in ("linear", "activation")]
    densities.append(density(in_square, window, k=2, kind="activation"))
    counts = {f"counts_{i}": np.array(item, np.float64) for i, item in enumerate((linear, activation, crossings))}
    return counts | {f"integral_{i}": item.values.sum(axis=1) * item.measure for i, item in enumerate(densities)}


def inner_vertices(found: regions.PlanePartition) -> int:
    """Number of vertices that are not on the border of the window."""
    return len(found.vertices) - len(np.unique(found.edges[found.owner_layer < 0]))


def table(found: Found) -> Table:
    rows = Table()
    for cell in found:
        for index, quantity in enumerate(QUANTITIES):
            counts, integral = (cell[f"{name}_{index}"][0] for name in ("counts", "integral"))
            means = columns_of(counted=counts, integral=integral, difference=integral - counts)
            neurons = cell.spec.depth * cell.spec.width
            rows.append({**cell.at, "neurons": neurons, "quantity": quantity, "runs": len(counts), **means})
    return rows


def claims(found: Found) -> Claims:
    decided = {}
    for quantity, rows in found.table.by("quantity"):
        # the error of the difference, network by network, stands for both
        values = rows.of("integral", "difference_error", "counted", "runs")
        names = rows.labels("T = {breakpoints}, depth {depth}, width {width}")
        decided[QUANTITIES[quantity]] = by(agrees, *values, names, RESOLUTION, groups=("integral", "counted"))
    return decided


@plots.drawn(11.0, 4.3, legend=2, columns=3)
def draw(found: Found, panels: Any) -> None:
    for axes, (quantity, rows) in zip(panels, found.table.by("quantity"), strict=True):
        places = np.arange(len(rows), dtype=float)
        for index, (name, label) in enumerate((("counted", "exact counts"), ("integral", "the integral, Monte Carlo"))):
            plots.means(axes, rows, places + 0.16 * (index - 0.5), name, index, label)
        axes.set_xticks(places, rows.labels("{depth} × {width}\nT = {breakpoints}"))
        axes.set(title=quantity, xlabel="depth × width, break points T", ylim=(0, None))
    panels[0].set_ylabel("mean number")


# ---- Theorems 1 and 2, Corollary 5
def _zigzag(h: Tensor) -> Tensor:
    """Slopes 1 and -1 in turn, with five break points drawn once: gradients keep their size exactly."""
    return sum([(-1) ** i * 2 * (h - at).relu() for i, at in enumerate((-1.4, -0.5, 0.2, 0.7, 1.5), start=1)], h)


# by number of break points; and fan-in times variance of the weights, for gradients of bounded size
NONLINEARITIES: dict[int, Any] = {1: ("relu", 2.0), 2: ("hardtanh", 1.0), 5: (activations.custom(_zigzag), 1.0)}
LAWS: dict[str, Law] = {"Gaussian": Gaussian(1.0), "uniform": Uniform(3**0.5), "±1": Discrete((-1.0, 1.0))}
EQUAL = 0.1  # arrangements of as many neurons are equal if they differ by less than this, relatively


def boundaries(spec: Spec, seed: int) -> dict[str, Any]:
    """Of each network its ``breaks`` on a line of length 1 in a random direction, the mean ``distance`` of points to
    the nearest boundary, and the mean size of the gradient of each layer's neurons, ``norm`` and ``along`` the line.
    Networks have ``neurons`` in ``depth`` equal layers; points are Gaussian, with variance 1 an entry.
    """
    sizes = [spec.inputs, *[spec.neurons // spec.depth] * spec.depth, 1]
    (kinked, scale), biases = NONLINEARITIES[spec.breakpoints], Gaussian(spec.bias_std)
    weights, source = LAWS[spec.law].scaled(scale**0.5), numpy_generator(seed, spec.breakpoints, spec.depth)
    found = []
    for net in ensemble(spec.networks, sizes, kinked, weights, biases, seed=seed, dtype=torch.float64):
        x, u = (torch.from_numpy(source.standard_normal(shape)) for shape in ((spec.points, spec.inputs), spec.inputs))
        u /= u.norm()
        gradients = _gradients(net, x, activations.get(kinked).derivative)
        norms = [item.mean((1, 2)).numpy() for item in (gradients.norm(dim=-1), (gradients @ u).abs())]
        found.append((regions.on_line(net, x[0], x[0] + u).count - 1.0, regions.distance(net, x).mean, *norms))
    names = "breaks", "distance", "norm", "along"
    return {name: np.array(values) for name, values in zip(names, zip(*found, strict=True), strict=True)}


def _gradients(net: nn.Module, x: Tensor, slope: Any) -> Tensor:
    """Of what goes into a dense network's nonlinearities, layer by layer, by inputs: (depth, points, k, inputs)."""
    seen, along = [], torch.eye(x.shape[1], dtype=x.dtype)
    with torch.no_grad():
        for layer in list(net.children())[:-1]:
            if isinstance(layer, nn.Linear):
                along = layer.weight @ along
                seen.append(along.expand(len(x), *along.shape[-2:]))
            else:
                along = torch.from_numpy(slope(x.numpy()))[..., None] * along
            x = layer(x)
    return torch.stack(seen)


def bounds(cell: Cell) -> dict[str, Any]:
    """Counts and distances, with their bounds by the gradients of the same networks."""
    spec, (breaks, distance, norm, along) = cell.spec, (cell[n][0] for n in ("breaks", "distance", "norm", "along"))
    places, n = spec.breakpoints * spec.neurons, spec.inputs
    dense = places / (math.sqrt(2 * math.pi) * spec.bias_std)  # T N rho
    volume = breaks * math.sqrt(math.pi) * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2))
    bound, area, least = dense * along.mean(1), dense * norm.mean(1), 1 / (4 * dense * norm.max(1))
    on_line = {"breaks": breaks, "room": bound - breaks, "breaks_each": breaks / places, "bound_each": bound / places}
    boundary = {"volume": volume, "volume_bound": area, "volume_room": area - volume}
    away = {"distance": distance, "above": distance - least}
    return {**on_line, **boundary, **away, "distance_each": distance * places, "least_each": least * places}


_SAME = "T = {breakpoints}, {neurons} neurons"
_ONE = _SAME + ", depth {depth}"
# networks of as many neurons do not differ by their depth
_arrangements: Any = partial(Table.alike, group="depth", groups="depth {depth}", settings=_SAME, resolution=EQUAL)


def line_claims(found: Found) -> Claims:
    rows = found.table
    parts = [part for _, part in rows.by("breakpoints")]
    means, errors = (np.stack([part.column(name) for part in parts]) for name in ("breaks", "breaks_error"))
    steps = [name for part in parts[1:] for name in part.labels(_ONE)]
    more = np.diff(means, axis=0).ravel(), np.hypot(errors[1:], errors[:-1]).ravel(), 0.0, rows[0]["runs"], steps
    most = "break points on a line are at most T times neurons, times density of biases and mean gradient"
    more_breaks = "a nonlinearity of more break points makes more regions (break points more than of the one before)"
    others = rows.where(breakpoints=tuple(NONLINEARITIES)[1:])
    return {
        most: rows.claim(at_least, "room", 0.0, names=_ONE),
        more_breaks: by(at_least, *more),
        "ReLU: they do not depend on the arrangement of as many neurons": _arrangements(parts[0], "breaks"),
        "hard-tanh and a zigzag of five break points: nor do they": _arrangements(others, "breaks"),
    }


def boundary_claims(found: Found) -> Claims:
    of, relu = partial(found.table.claim, at_least, names=_ONE), found.table.where(breakpoints=1)
    others = found.table.where(breakpoints=tuple(NONLINEARITIES)[1:])
    most = "the volume of the boundary is at most T times neurons, times density of biases and mean gradient"
    return {
        most: of("volume_room", 0.0),
        "the mean distance to the boundary is at least a quarter of its inverse": of("above", 0.0),
        "ReLU: it does not depend on the arrangement of as many neurons": _arrangements(relu, "distance"),
        "hard-tanh and a zigzag of five break points: nor does it": _arrangements(others, "distance"),
    }


def distance_claims(found: Found) -> Claims:
    least = "the mean distance to the boundary times neurons is at least a constant of the law of the weights"
    laws = found.table.alike("distance", "law", "{law}", "{neurons} neurons, depth {depth}", resolution=EQUAL)
    return {
        least: found.table.claim(at_least, "above", 0.0, names=_ONE),
        "it does not depend on the arrangement of as many neurons": _arrangements(found.table, "distance"),
        "beyond the paper: nor does it depend on the law of the weights": laws,
    }


@plots.drawn(11.0, 4.2, legend=4, columns=3, sharey=True)
def _draw(column: str, bound: str, label: str, name: str, title: str, found: Found, panels: Any) -> None:
    for axes, (value, rows) in zip(panels, found.table.by(name), strict=True):
        plots.lines(axes, rows, "neurons", column, "depth", "depth {}", {bound: "--"})
        axes.set(title=title.format(value), xlabel="neurons")
        plots.ticks(axes, sorted(set(rows.column("neurons"))), scale="log")
    panels[0].set(ylabel=label, ylim=(0, None))


# ---- Corollaries 7 and 8, Lemma 12
NEAR = (0.2, 1.0, 3.0)  # e times T times neurons
CORNERS = torch.tensor([[-1.0, -1], [1, -1], [1, 1], [-1, 1]])


def pieces(spec: Spec, seed: int) -> dict[str, Any]:
    """Of each network, a unit area of a square: length and crossings of the boundary, ``counted`` and the ``most`` that
    gradients allow, (networks, 2), and the ``share`` of points nearer to it than e, (networks, len(NEAR)).
    """
    sizes, places = [2, *[spec.neurons // spec.depth] * spec.depth, 1], spec.breakpoints * spec.neurons
    (kinked, scale), biases = NONLINEARITIES[spec.breakpoints], Gaussian(spec.bias_std)
    source, rho = numpy_generator(seed), spec.breakpoints / (math.sqrt(2 * math.pi) * spec.bias_std)
    found: dict[str, list[Any]] = {"counted": [], "most": [], "share": []}
    for net in ensemble(spec.networks, sizes, kinked, Gaussian(scale**0.5), biases, seed=seed, dtype=torch.float64):
        plane, x = regions.on_plane(net, CORNERS), torch.from_numpy(source.uniform(-1, 1, (spec.points, 2)))
        ends = plane.vertices[plane.edges[plane.owner_layer >= 0]]
        norms = _gradients(net, x, activations.get(kinked).derivative).norm(dim=-1)
        total, squares = norms.sum((0, 2)), norms.square().sum((0, 2))
        found["counted"].append((np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1).sum() / 4, inner_vertices(plane) / 4))
        found["most"].append((rho * float(total.mean()), rho**2 * float((total**2 - squares).mean()) / 2))
        found["share"].append((regions.distance(net, x).distance[:, None] * places < np.array(NEAR)).mean(0))
    return {name: np.array(values) for name, values in found.items()}


@by_cell
def piece_table(cell: Cell) -> Any:
    counted, most, share = (cell[name][0] for name in ("counted", "most", "share"))
    e = np.array(NEAR) / cell.spec.breakpoints / cell.spec.neurons
    tube, bound = (each @ np.array([2 * e, math.pi * e**2]) for each in (counted, most))
    each = {"tube": tube, "bound": bound, "tube_room": tube - share, "room": bound - share}
    each |= {"share": share, "attained": share / (2 * e * counted[:, :1])}
    for place, name in enumerate(("length", "crossings")):
        one = {name: counted, f"most_{name}": most, f"{name}_room": most - counted}
        each |= {key: np.repeat(value[:, place : place + 1], len(e), 1) for key, value in one.items()}
    return each, {}, {"e": NEAR}


def piece_claims(found: Found) -> Claims:
    once, names = found.table.where(e=NEAR[0]), _ONE + ", e = {e:g}/(T neurons)"
    length = "k = 1: the boundary in a square is at most as long as T neurons, density of biases and gradients say"
    crossings = "k = 2: it has at most as many crossings as for pairs of them (Corollary 7)"
    tube = "Lemma 12: at most a share of 2 e length + pi e^2 crossings is nearer to it than e, if that is below 1"
    can = {name: Table(row for row in found.table if row[name] < 1) for name in ("tube", "bound")}
    cor4 = "Corollary 4, ReLU, k = {}: {} over N choose k: (c/5)^k to c^k, c the root of 2 times the biases' density"
    relu, c = once.where(breakpoints=1), 1 / (math.sqrt(math.pi) * found.sweep["bias_std"])
    within, n = partial(relu.claim, between, names=_ONE), relu.column("neurons")
    return {
        cor4.format(1, "length"): within("length", n * c / 5, n * c),
        cor4.format(2, "crossings"): within("crossings", n * (n - 1) / 50 * c**2, n * (n - 1) / 2 * c**2),
        length: once.claim(at_least, "length_room", 0.0, names=_ONE),
        crossings: once.claim(at_least, "crossings_room", 0.0, names=_ONE),
        tube: can["tube"].claim(at_least, "tube_room", 0.0, names=names),
        "... and for small e at least four fifths of 2 e length": once.claim(at_least, "attained", 0.8, names=_ONE),
        "Corollary 8: at most what Corollary 7 makes of that": can["bound"].claim(at_least, "room", 0.0, names=names),
    }


@plots.drawn(11.0, 7.0, legend=4, rows=2, columns=3, sharey="row")
def draw_pieces(found: Found, panels: Any) -> None:
    for (above, below), (places, rows) in zip(panels.T, found.table.by("breakpoints"), strict=True):
        once, last = rows.where(e=NEAR[0]), rows[-1]["neurons"]
        plots.lines(above, once, "neurons", "crossings", "depth", "depth {}", {"most_crossings": "--"})
        plots.lines(below, rows.where(neurons=last), "e", "share", "depth", "", {"tube": ":", "bound": "--"})
        above.set(title=f"T = {places}", xlabel="neurons", yscale="log")
        below.set(yscale="log", xlabel=f"e × T × neurons, {last} neurons")
        plots.ticks(above, found.sweep["neurons"], scale="log")
        plots.ticks(below, NEAR, scale="log")
    panels[0, 0].set_ylabel("crossings a unit area")
    panels[1, 0].set_ylabel("share nearer to the boundary than e")


# ---- Propositions 9 and 10
SHARES = {"closed": "closed edges", "wrong": "edges against Proposition 9", "crowded": "points against Proposition 10"}


def bends(spec: Spec, seed: int) -> dict[str, Any]:
    """``SHARES`` of each network in a square: closed are those from whose neuron no way leads to the output."""
    sizes, weights, found = [2, *[spec.width] * spec.depth, 1], LAWS[spec.law].scaled(2**0.5), []
    for net in ensemble(spec.networks, sizes, "relu", weights, Gaussian(spec.bias_std), seed=seed, dtype=torch.float64):
        plane = regions.on_plane(net, CORNERS)
        x, inner = plane.window.points(torch.from_numpy(plane.middles)).requires_grad_(), plane.owner_layer >= 0
        gradient = torch.autograd.grad(net(x).sum(), x)[0].numpy()
        (left, right), owner = plane.adjacency[inner].T, plane.owner_layer[inner]
        alive = [(net[: 2 * layer](x) > 0).any(1).numpy() for layer in range(spec.depth, 1, -1)]
        way = np.cumprod([np.ones(len(x)), *alive], 0)[spec.depth - 1 - owner, left] > 0
        jump = abs(gradient[left] - gradient[right]).max(1) > 1e-9
        ends = np.c_[plane.edges[inner].ravel(), np.repeat(owner * spec.width + plane.owner_neuron[inner], 2)]
        met = np.bincount(np.unique(ends, axis=0)[:, 0], minlength=len(plane.vertices))
        met = np.delete(met, plane.edges[~inner].ravel())
        found.append(((~way).mean(), (way != jump).mean(), (met != 2).sum() / max(len(met), 1)))
    return dict(zip(SHARES, np.transpose(found), strict=True))


@by_cell
def bend_table(cell: Cell) -> Any:
    return cell.results[0]


def bend_claims(found: Found) -> Claims:
    asked, ones, flat = (rows for _, rows in found.table.by("networks_are"))
    of, told = {"names": "{networks_are}, depth {depth}"}, f"{sum(asked.column('runs'))} networks"
    return {
        "Proposition 9: the boundary is where an open neuron bends": by(check, not asked.column("wrong").any(), told),
        "Proposition 10: in points just two neurons meet": by(check, not asked.column("crowded").any(), told),
        "Proposition 9: not wherever a neuron bends": asked.claim(at_least, "closed", MORE, **of),
        "beyond the paper: Proposition 9 is false of weights of ±1": ones.claim(at_least, "wrong", MORE, **of),
        "beyond the paper: Proposition 10 is false without biases": flat.claim(at_least, "crowded", 0.5, **of),
    }


@plots.drawn(11.0, 4.2, legend=3, columns=3)
def draw_bends(found: Found, panels: Any) -> None:
    for axes, (name, title) in zip(panels, SHARES.items(), strict=True):
        plots.lines(axes, found.table, "depth", name, "networks_are", "{}")
        axes.set(title=title, xlabel="hidden layers", ylabel="share", ylim=(0, None))


_SPEC = Spec(inputs=784, bias_std=0.1, networks=400, planes=200, half=14.0)
_WIDE = (1, 64), (2, 64), (3, 64), (4, 16), (8, 4)
_PAPER = Sweep(compare, _SPEC, {"breakpoints": (1,), "depth width": _WIDE}, stride=1)
_SMALL = {"depth width": ((1, 32), (2, 16), (3, 16), (3, 32), (6, 4))}
_PRESETS = _PAPER.presets(inputs=16, networks=150, planes=100, half=1.0, **_SMALL)
_ABOUT = "{inputs} inputs, He's weights (T = 2, 5: half the variance), bias std {bias_std:g}; {networks} networks on a "
_ABOUT += "line, {planes} in a square; bars: two standard errors over networks, the same for counts and integral"
_SIX = _PAPER.but(breakpoints=(2, 5), networks=200, planes=100)
_OF_SIX = _SIX.presets(inputs=16, networks=80, planes=250, half=1.0, **{"depth width": ((1, 32), (2, 16), (4, 8))})
_AXES = {"breakpoints": (1, 2, 5), "neurons": (48, 96, 192), "depth": (1, 2, 4)}
_ANY = Sweep(boundaries, Spec(law="Gaussian", inputs=16, bias_std=0.5, networks=400, points=100), _AXES, stride=1)
_LAWS = _ANY.but(axes={"law": tuple(LAWS), **_AXES, "breakpoints": (1,)})
_FEW = {"neurons": (48, 96), "networks": 80, "points": 30}
_OF = "{inputs} inputs, {neurons} neurons in {depth} layers, {networks} networks of each; weights of variance 2 (ReLU) "
_OF += "or 1 over the fan-in, bias std {bias_std:g}; dashed: the bound, by the gradients measured"
_BREAKS = "breaks_each", "bound_each", "break points a length / (T × neurons)"
_DISTANCE = "distance_each", "least_each", "distance to the boundary × T × neurons"


def _boundary(name: str, title: str, place: str, paper: Sweep, claims: Any, *shown: Any) -> Artifact:
    args = paper.presets(**_FEW), partial(Found.rows, of=bounds), claims, partial(_draw, *shown), _OF
    return Artifact(f"hanin-rolnick/{name}", title, place, *args)


_PIECES = Sweep(pieces, Spec(bias_std=0.5, networks=120, points=8000), _AXES, stride=1)
_IN_SQUARE = "2 inputs, {neurons} neurons in {depth} layers, {networks} networks of each, {points} points; bias std "
_IN_SQUARE += "{bias_std:g}; dashed: Corollaries 7 and 8, by the gradients measured; dotted: Lemma 12"
_MADE = {"Gaussian weights and biases": {}, "weights of ±1": {"law": "±1"}, "without biases": {"bias_std": 0.0}}
_BENDS: Any = Spec(law="Gaussian", bias_std=0.5, width=4, networks=1000), {"networks_are": _MADE, "depth": (2, 4, 6)}
_NINE = Sweep(bends, *_BENDS, stride=1).presets(networks=200), bend_table, bend_claims
_SHOWN = "Where ReLUs bend", "and 10, appendix B", *_NINE, draw_bends, "2 inputs, width {width}, {networks} networks"
_SEVEN = _PIECES.presets(**{**_FEW, "points": 5000}), piece_table, piece_claims, draw_pieces, _IN_SQUARE
_COR7 = "Length and crossings of the boundary, and how near it is"
_TH1, _TH2 = "Break points on a line by T, those of the nonlinearity", "The distance to the boundary, by T"
_COR5, _BY_T = "The distance to the boundary, by the law of the weights", ("breakpoints", "T = {}")
ARTIFACTS = (
    _boundary("th1", _TH1, "section 2.1", _ANY, line_claims, *_BREAKS, *_BY_T),
    _boundary("th2", _TH2, "section 2.2", _ANY, boundary_claims, *_DISTANCE, *_BY_T),
    Artifact("hanin-rolnick/th3", "Theorem 3 against exact counts", "section 5", _PRESETS, table, claims, draw, _ABOUT),
    Artifact("hanin-rolnick/th6", "Theorem 6 against exact counts", "section 5", _OF_SIX, table, claims, draw, _ABOUT),
    Artifact("hanin-rolnick/prop9", *_SHOWN),
    _boundary("cor5", _COR5, "section 5", _LAWS, distance_claims, *_DISTANCE, "law", "{} weights"),
    Artifact("hanin-rolnick/cor7", _COR7, "and 8, appendix A", *_SEVEN),
)
