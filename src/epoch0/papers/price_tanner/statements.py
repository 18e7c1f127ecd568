"""Price-Tanner Theorem 2 with layers that differ, as its remark has it, the constants M of Lemmas 10 and 11, even laws.

Theorem 2 needs ``E|u . w| >= M ||u||`` for every vector u; then the expected length behind the layers is at least the
product of ``alpha_j M_j sqrt(k_j) / 2`` times that of the curve.
"""

import math
from itertools import cycle, product
from typing import Any

import numpy as np
import torch

from epoch0 import plots, special
from epoch0.distributions import Discrete, Law, Uniform, integers
from epoch0.experiments.claims import at_least, at_most, better_fit, check, exact, increasing
from epoch0.measure.length import trajectory_length
from epoch0.networks import mlp
from epoch0.papers.price_tanner.growth import BIASES, DENSITIES, weight_law
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Claims, Table, agrees, by, over_runs
from epoch0.papers.trials import CurveSpec
from epoch0.seeds import generator, numpy_generator
from epoch0.theory import growth as theory

# ---- Theorem 2
SHAPES = {"narrowing": (200, 100, 50, 25), "widening": (25, 50, 100, 200), "equal": (50, 50, 50, 50)}


def layers_of(spec: Spec) -> list[tuple[int, int, str, Law]]:
    """Inputs, units, kind and law of the weights of each layer, before division by sqrt(inputs); laws alternate."""
    each = zip((spec.widths[0], *spec.widths), spec.widths, cycle(BIASES), spec.densities, strict=False)
    return [(fan, units, kind, weight_law(kind, spec.std, density)) for fan, units, kind, density in each]


def lengths(spec: Spec, seed: int) -> dict[str, Any]:
    """Length of a bent curve at its start and behind each layer, (networks, layers + 1)."""
    curve, source, found = CurveSpec("random", "arcs", spec.widths[0], planes=10).curve(), numpy_generator(seed), []
    for _ in range(spec.networks):
        parts: list[torch.nn.Module] = []
        for fan, units, kind, law in layers_of(spec):
            own, bias = int(source.integers(2**31)), BIASES[kind] if spec.bias else None
            parts += mlp([fan, units], "relu", law, bias, linear_output=False, seed=own)
        measured = trajectory_length(torch.nn.Sequential(*parts), curve, points=32, seed=int(source.integers(2**31)))
        found.append(measured.network_lengths[0])
    return {"lengths": np.array(found)}


@by_cell
def layers_table(cell: Cell) -> Any:
    layers, start = range(len(SHAPES["equal"]) + 1), float(cell["lengths"][0, 0, 0])
    each = [(law.scaled(fan**-0.5), units) for fan, units, _, law in layers_of(cell.spec)]
    bounds = {"lower": theory.lower_bound, "upper": theory.upper_bound}
    predicted = {name: [start * math.prod(of(*one) for one in each[:n]) for n in layers] for name, of in bounds.items()}
    return {"length": cell["lengths"][0]}, {"start": start, **predicted}, {"layer": layers}


def layers_claims(found: Found) -> Claims:
    rows, names = Table(row for row in found.table if row["layer"]), "{shape}, {weights} {biases}, layer {layer}"
    decided: dict[str, Any] = {}
    for biases, part in rows.by("biases"):
        text = f"{biases}: the mean length is at least the product of the layers' bounds"
        decided[text] = part.claim(at_least, "length", "lower", names=names)
    decided["it is at most that of second moments"] = rows.claim(at_most, "length", "upper", names=names)
    last = rows.where(layer=len(SHAPES["equal"]), weights="density .02")
    text = "at density .02 the bound vanishes with the depth, and the length: less than a hundredth is left"
    return {**decided, text: last.claim(at_most, "length", 0.01 * last.column("start"), names=names)}


@plots.drawn(11.0, 4.4, legend=3, columns=3, sharey=True)
def draw_layers(found: Found, panels: Any) -> None:
    for axes, (shape, part) in zip(panels, found.table.where(biases="with biases").by("shape"), strict=True):
        plots.lines(axes, part, "layer", "length", "weights", "{}", {"lower": "--", "upper": ":"})
        axes.set(title=f"{shape}: {', '.join(map(str, SHAPES[shape]))}", xlabel="layer", ylabel="length", yscale="log")
        plots.ticks(axes, range(len(SHAPES[shape]) + 1))


# ---- Lemmas 10 and 11
LAWS: dict[str, Law] = {"uniform": Uniform(1.0), "±1": Discrete((-1.0, 1.0)), "-2 to 2": integers(2)}
VECTORS = {"one entry": np.eye(1, 20)[0], "two equal entries": np.eye(2, 20).sum(0), "20 equal entries": np.ones(20)}


def average(spec: Spec, seed: int) -> dict[str, Any]:
    """Mean of abs(u . w) over the draws of each block, u of norm 1, (blocks,)."""
    u, source = VECTORS[spec.vector] / np.linalg.norm(VECTORS[spec.vector]), generator(seed)
    shape = (spec.blocks, spec.draws, len(u))
    return {"average": (LAWS[spec.law].sample(shape, source, torch.float64).numpy() @ u).__abs__().mean(1)}


@by_cell
def average_table(cell: Cell) -> Any:
    return {"average": cell["average"][0]}, {"constant": theory.absolute_moment_constant(LAWS[cell.spec.law])}


def average_claims(found: Found) -> Claims:
    rows, names, of = found.table, "{law}, {vector}", ("average", "constant")
    uniform, sharp = rows.where(law="uniform"), rows.where(law="±1", vector="two equal entries")
    rest = Table(row for row in rows if row not in uniform and row not in sharp)
    small, rare = 0.01, 0.01 / 1.01  # of two centred variables: 0.01 or, so rarely, -1; and minus another such one
    root = math.sqrt(2) * (small * (1 - rare) ** 2 + rare**2) + 2 * rare * (1 - rare) * math.hypot(1, small)
    share = 2 * rare * (1 - rare) * (1 + small) / root
    skewed = by(exact, share >= 0.5**0.5, f"{share:.4f} for two skewed variables, where it has {0.5**0.5:.4f}")
    lemma_11 = "weights from a finite symmetric set: so it is, but for ±1 and two equal entries (Lemma 11)"
    return {
        "uniform weights: E abs(u . w) is at least M norm(u) (Lemma 10)": uniform.claim(at_least, *of, names=names),
        lemma_11: rest.claim(at_least, *of, names=names),
        "weights of ±1 and two equal entries attain it": sharp.claim(agrees, *of, names=names, resolution=0.02),
        "Lemma 9 as printed, for all centred variables, at p = 1": skewed,
    }


@plots.drawn(6.6, 4.4, legend=4)
def draw_average(found: Found, axes: plots.Axes) -> None:
    for index, (law, part) in enumerate(found.table.by("law")):
        places = np.arange(len(part)) + 0.12 * (index - 1)
        plots.means(axes, part, places, "average", index, f"{law} weights", 1 / part[0]["constant"])
    axes.axhline(1.0, color=plots.BOUND, linestyle="--", label="Lemmas 10 and 11")
    axes.set_xticks(range(len(VECTORS)), list(VECTORS))
    axes.set(ylabel=r"$E\,|u \cdot w|\,/\,(M\,\|u\|)$", xlabel="vector u", ylim=(0.9, None))


_AXES: dict[str, Any] = {
    "shape": {name: {"widths": widths} for name, widths in SHAPES.items()},
    "weights": {"densities 1, .5, .2, .8": {"densities": (1.0, 0.5, 0.2, 0.8)}}
    | {f"density {text}": {"densities": (float(text),) * 4} for text in (".1", ".02")},
    "biases": {"with biases": {"bias": True}, "without biases": {"bias": False}},
}
_LAYERS = Sweep(lengths, Spec(networks=400, std=2.0), _AXES, stride=1)
_MEANS = Sweep(average, Spec(blocks=100, draws=10_000), {"law": tuple(LAWS), "vector": tuple(VECTORS)}, stride=1)
_AGAINST = "Mean of |u . w| against the constants of Lemmas 10 and 11"
_ABOUT = "{networks} ReLU networks each, std {std:g} over the root of the inputs, laws in turn Gaussian, uniform, "
_ABOUT += "finite; drawn: with biases; dashed: Theorem 2, dotted: second moments"
_BLOCKS = "{blocks} blocks of {draws:,} draws"
_HOW = _LAYERS.presets(networks=60), layers_table, layers_claims, draw_layers, _ABOUT
_OF_MEANS = _MEANS.presets(blocks=50, draws=2000), average_table, average_claims, draw_average, _BLOCKS
ARTIFACTS: tuple[Artifact, ...] = (
    Artifact("price-tanner/th2", "Length behind layers that differ in width, law and density", "section 2", *_HOW),
    Artifact("price-tanner/lemma10", _AGAINST, "appendix A", *_OF_MEANS),
)


# ---- Figures 4a, 4b (appendix B): the expected norm of a random sub-vector, between alpha and its root
_AT_ONCE = 2_000_000  # random numbers held at once
TIGHT = 0.99  # at the widths of networks the upper bound is called tight if the norm is at least this much of it
MODERATE = 10  # "for even moderately large k" the norm behaves like sqrt(alpha): from here on


def norms(spec: Spec, seed: int) -> dict[str, Any]:
    """Mean norm of ``draws`` sub-vectors of unit vectors, on the ``"sphere"`` or ``"one-hot"``, (vectors,
    densities). Densities share the random numbers: entry i is kept at density alpha if its number is below alpha.
    """
    found, most = np.zeros((spec.vectors, len(spec.densities))), max(1, _AT_ONCE // spec.size)
    for vector, row in enumerate(found):
        source = numpy_generator(seed, vector)
        squares = source.standard_normal(spec.size) ** 2 if spec.direction == "sphere" else np.eye(1, spec.size)[0]
        squares /= squares.sum()
        for start in range(0, spec.draws, most):
            coins = source.random((min(most, spec.draws - start), spec.size))
            row += [np.sqrt((coins < density) @ squares).sum() for density in spec.densities]
    return {"norms": found / spec.draws}


@by_cell
def table(cell: Cell) -> Any:
    direction, densities = cell.spec.direction, cell.spec.densities
    exact = [theory.expected_subvector_norm(direction, density, cell.spec.size) for density in densities]
    bounds = {"direction": direction, "lower": densities, "upper": [math.sqrt(density) for density in densities]}
    return {"norm": cell["norms"][0]}, {**bounds, "exact": exact}, {"density": densities}


def claims(found: Found) -> Claims:
    rows, sphere, names = found.table, found.sweep["direction"] == "sphere", "k = {size}, density {density:g}"
    text = "the norm is its exact expectation" if sphere else "the lower bound is attained: the norm is the density"
    inner, below = Table(row for row in rows if row["density"] < 1), rows.column("density") < 1  # at 1 the bounds meet
    decided: dict[str, Any] = {}
    if sphere:
        lemma_7 = "the norm is at least the density (Lemma 7)"
        decided |= rows.bounded(lemma_7, below, at_least, "norm", "lower", names=names)
    decided |= rows.bounded("the norm is at most sqrt(density)", below, at_most, "norm", "upper", names=names)
    decided[text] = rows.claim(agrees, "norm", "exact", names=names, resolution=0.05)
    columns = {"sqrt(density)": "upper", "density": "lower"}
    shapes = tuple(columns) if sphere else tuple(columns)[::-1]
    for size, subset in inner.by("size"):
        if sphere and size < MODERATE:
            continue
        values = subset.of("norm", "norm_error", *(columns[shape] for shape in shapes), "runs")
        large = f"k = {size}: from {MODERATE} on k is 'moderately large'" if sphere else f"k = {size}"
        text = f"the norm has the shape {shapes[0]}, not {shapes[1]}, at densities below 1 ({large})"
        decided[text] = by(better_fit, *values, names=shapes)
    if not sphere:
        same = rows.alike("norm", "size", "k = {size}", "density {density:g}")
        return {**decided, "the norm does not depend on k": same}
    shares = [cell["norms"][0] / np.sqrt(found.sweep["densities"]) for cell in found]
    means, sizes = np.transpose([share.mean(1) for share in shares]), [f"k = {size}" for size in found.sweep["size"]]
    decided["the norm approaches the upper bound as k grows"] = over_runs(increasing, means, names=sizes)
    text = f"at {sizes[-1]} the upper bound is tight: at densities below 1 the norm is at least {TIGHT:g} of it"
    last = inner.where(size=found.sweep["size"][-1])
    return {**decided, text: last.claim(at_least, "norm", TIGHT * last.column("upper"), names="density {density:g}")}


@plots.drawn(6.0, 4.4, legend="lower right")
def draw(found: Found, axes: plots.Axes) -> None:
    direction, fine = found.sweep["direction"], np.linspace(found.sweep["densities"][0], 1, 200)
    axes.plot(fine, np.sqrt(fine), "--", color=plots.BOUND, label=r"upper bound $\sqrt{\alpha}$")
    axes.plot(fine, fine, ":", color=plots.BOUND, label=r"lower bound $\alpha$ (Lemma 7)")
    for index, (size, rows) in enumerate(found.table.by("size")):
        if direction == "sphere":
            exact = [theory.expected_subvector_norm(direction, float(density), size) for density in fine]
            plots.curve(axes, fine.tolist(), exact, index, linewidth=1.0)
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 3.0 + 2.5 * index}
        plots.means(axes, rows, "density", "norm", index, f"k = {size}", **hollow)
    axes.set(xlabel=r"density $\alpha$ (probability that an entry is kept)", ylabel=r"$E\,\|u_J\|\,/\,\|u\|$")
    axes.set(xlim=(0, 1.03), ylim=(0, 1.05))


# the paper prints no sizes; 784 is the width of its networks
_SIZES = {"size": (3, 10, 100, 784)}
_SPHERE = Sweep(norms, Spec(direction="sphere", densities=DENSITIES, vectors=100, draws=10_000), _SIZES, seed="{size}")


def _figure(letter: str, direction: str, title: str, kind: str) -> Artifact:
    args = "appendix B", _SPHERE.but(direction=direction).presets(draws=1000), table, claims, draw
    title, about = f"Norm of a random sub-vector of a vector {title}", f"{{vectors}} unit vectors {kind}, {{draws:,}} "
    return Artifact(f"price-tanner/fig4{letter}", title, *args, f"{about}sub-vectors each")


ARTIFACTS += (_figure("a", "sphere", "on the sphere", "uniform on the sphere"),)
ARTIFACTS += (_figure("b", "one-hot", *["with one entry"] * 2),)


# ---- Lemmas 1 to 6, 12: even laws of three dependent variables
def even(spec: Spec, seed: int) -> dict[str, Any]:
    """How far random laws on a grid, for densities each point a Gaussian, are from each lemma: (laws, lemmas)."""
    source, grid = numpy_generator(seed), np.array(list(product((-2.0, -1.0, 1.0, 2.0), repeat=3)))
    x, y, _ = grid.T
    size = math.sqrt(2 / math.pi) * np.exp(-(x**2) / 2) + x * special.erf(x / math.sqrt(2))  # mean of abs(N(x, 1))
    image = lambda p, matrix: np.bincount(np.unique(grid @ matrix, axis=0, return_inverse=True)[1].ravel(), p)  # noqa: E731
    found: dict[str, list[Any]] = {"kept": [], "dropped": []}
    for _ in range(spec.laws):
        masses, (matrix, half) = source.exponential(size=64) ** 3, source.standard_normal((2, 3, 3))
        places, law = np.concatenate([half, -half[::-1]]), masses + masses[::-1]
        at = np.linalg.solve(matrix, matrix @ places.T).T, places[:, :2]
        for name, p, above, one in (("kept", law, y > 0, matrix), ("dropped", masses, y > 1, np.ones((3, 3)))):
            joint, pair = (np.exp(-((z[:, None] - grid[:, : z.shape[1]]) ** 2).sum(2) / 2) @ p for z in at)
            parts, flat = (joint, image(p, matrix), pair, p.reshape(16, 4).sum(1)), image(np.ones(64), one)
            signed = (p, size, special.ndtr(y)), (law, abs(x), above)
            sizes = [abs(q @ (s * part) * q.sum() / (q @ part) / (q @ s) - 1) for q, s, part in signed]
            uneven = [abs(part - part[::-1]).sum() / 2 / part.sum() for part in parts]  # they are at points in order
            found[name].append([*uneven, *sizes, np.ptp(flat) / flat.max()])
    return {name: np.array(values) for name, values in found.items()}


@by_cell
def even_table(cell: Cell) -> Any:
    return {"dropped": cell["dropped"][0]}, {"kept": cell["kept"][0].max(0)}, {"lemma": (1, 2, 3, 4, 5, 6, 12)}


def even_claims(found: Found) -> Claims:
    off, laws = float(found.table.column("kept").max()), found.sweep["laws"]
    own = by(check, off < 1e-9, f"off by {off:.1e} at the most in {laws} random laws")
    other = found.table.claim(at_least, "dropped", 0.01, names="Lemma {lemma}")
    without = "beyond the paper: none of Lemmas 1 to 6, 12 is true without its condition (even, Y not 0, one-to-one)"
    return {"Lemmas 1 to 6, 12 are true of random even laws (12: uniform ones)": own, without: other}


@plots.drawn(6.6, 4.4, legend=2)
def draw_even(found: Found, axes: plots.Axes) -> None:
    lemmas, kept = found.table.of("lemma", "kept")
    plots.means(axes, found.table, range(len(lemmas)), "dropped", 1, "without its condition, mean")
    axes.plot(np.maximum(kept, 1e-17), "o", color=plots.COLOURS[0], label="as it asks, the largest of all laws")
    axes.set_xticks(range(len(lemmas)), lemmas)
    axes.set(xlabel="lemma", ylabel="off by, relatively", yscale="log", ylim=(3e-18, 3))


_EVEN = Sweep(even, Spec(laws=2000)).presets(laws=200), even_table, even_claims, draw_even, "{laws} laws on 64 points"
_THREE = "Even laws of three variables, and laws that are not as the lemmas ask", "to 6, 12, appendix A", *_EVEN
ARTIFACTS += (Artifact("price-tanner/lemma1", *_THREE),)
