"""Price-Tanner Theorem 2 with layers that differ, as its remark has it, and the constants M of Lemmas 10 and 11.

Theorem 2 needs ``E|u . w| >= M ||u||`` for every vector u; then the expected length behind the layers is at least the
product of ``alpha_j M_j sqrt(k_j) / 2`` times that of the curve.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from epoch0 import plots
from epoch0.distributions import Discrete, Law, Uniform, integers
from epoch0.experiments.claims import at_least, at_most
from epoch0.measure.length import trajectory_length
from epoch0.networks import mlp
from epoch0.papers.price_tanner.growth import BIASES, weight_law
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Claims, Table, agrees
from epoch0.papers.trials import CurveSpec
from epoch0.seeds import generator, numpy_generator
from epoch0.theory import growth as theory

# ---- Theorem 2

_KINDS = tuple(BIASES)
DENSITIES = {"densities 1, .5, .2, .8": (1.0, 0.5, 0.2, 0.8), "density .1": (0.1,) * 4, "density .02": (0.02,) * 4}
BIAS = {"with biases": True, "without biases": False}
SHAPES = {"narrowing": (200, 100, 50, 25), "widening": (25, 50, 100, 200), "equal": (50, 50, 50, 50)}


def layers_of(spec: Spec) -> list[tuple[int, int, str, Law]]:
    """Inputs, units, kind and law of the weights of each layer, before the division by the root of the inputs.

    Layers have the spec's ``widths`` and ``densities``; laws take turns; inputs are as many as the first width.
    """
    sizes = zip((spec.widths[0], *spec.widths), spec.widths, spec.densities, strict=False)
    named = [(fan, units, _KINDS[i % len(_KINDS)], density) for i, (fan, units, density) in enumerate(sizes)]
    return [(fan, units, kind, weight_law(kind, spec.std, density)) for fan, units, kind, density in named]


def lengths(spec: Spec, seed: int) -> dict[str, Any]:
    """Length of a bent curve at its start and behind each layer, (networks, layers + 1)."""
    torch.set_num_threads(1)
    curve, source, found = CurveSpec("random", "arcs", spec.widths[0], planes=10).curve(), numpy_generator(seed), []
    for _ in range(spec.networks):
        parts: list[nn.Module] = []
        for fan, units, kind, law in layers_of(spec):
            own, bias = int(source.integers(2**31)), BIASES[kind] if spec.bias else None
            parts += mlp([fan, units], "relu", law, bias, linear_output=False, seed=own)
        measured = trajectory_length(nn.Sequential(*parts), curve, points=32, seed=int(source.integers(2**31)))
        found.append(measured.network_lengths[0])
    return {"lengths": np.array(found)}


def layers_table(found: Found) -> Table:
    """One row a setting and layer: the mean length, the product of Theorem 2's bounds, and that of second moments."""

    def bounds(cell: Cell, layer: int) -> dict[str, Any]:
        start = float(cell["lengths"][0, 0, 0])
        each = [(law.scaled(fan**-0.5), units) for fan, units, _, law in layers_of(cell.spec)[:layer]]
        lower, upper = (math.prod(of(*one) for one in each) for of in (theory.lower_bound, theory.upper_bound))
        return {"start": start, "lower": start * lower, "upper": start * upper}

    return found.rows(lambda cell: {"length": cell["lengths"][0]}, bounds, layer=range(len(SHAPES["equal"]) + 1))


def layers_claims(found: Found) -> Claims:
    """Theorem 2, its remark, and that the bounds hold without biases."""
    rows, names = Table(row for row in found.table if row["layer"]), "{shape}, {weights} {biases}, layer {layer}"
    decided: dict[str, Any] = {}
    for biases, part in rows.by("biases"):
        text = f"{biases}: the mean length is at least the product of the layers' bounds"
        decided[text] = part.claim(at_least, "length", "lower", names=names)
    decided["it is at most that of second moments"] = rows.claim(at_most, "length", "upper", names=names)
    last = rows.where(layer=len(SHAPES["equal"]), weights="density .02")
    text = "at density .02 the bound vanishes with the depth, and the length: less than a hundredth is left"
    start = last.column("start")
    return {**decided, text: last.claim(at_most, "length", 0.01 * start, names=names)}


def draw_layers(found: Found) -> plots.Figure:
    """One panel a shape: the length behind each layer over that of the curve, and its bounds, dashed and dotted."""
    picture, panels = plots.figure(11.0, 4.4, columns=3, sharey=True)
    rows = found.table.where(biases="with biases")
    for axes, (shape, part) in zip(panels, rows.by("shape"), strict=True):
        for index, (weights, own) in enumerate(part.by("weights")):
            plots.means(axes, own, "layer", "length", index, weights, linestyle="-", linewidth=1.0)
            plots.column(axes, own, "layer", "lower", index, linestyle="--", marker="")
            plots.column(axes, own, "layer", "upper", index, linestyle=":", marker="")
        axes.set(title=f"{shape}: {', '.join(map(str, SHAPES[shape]))}", xlabel="layer", ylabel="length", yscale="log")
        plots.ticks(axes, range(len(SHAPES[shape]) + 1))
    plots.legend_below(picture, *panels[0].get_legend_handles_labels(), columns=3)
    return picture


# ---- Lemmas 10 and 11


LAWS: dict[str, Law] = {"uniform": Uniform(1.0), "±1": Discrete((-1.0, 1.0)), "-2 to 2": integers(2)}
VECTORS = {"one entry": np.eye(1, 20)[0], "two equal entries": np.eye(2, 20).sum(0), "20 equal entries": np.ones(20)}


def average(spec: Spec, seed: int) -> dict[str, Any]:
    """Mean of abs(u . w) over the draws of each block, u of norm 1, (blocks,)."""
    u, source = VECTORS[spec.vector] / np.linalg.norm(VECTORS[spec.vector]), generator(seed)
    shape = (spec.blocks, spec.draws, len(u))
    return {"average": (LAWS[spec.law].sample(shape, source, torch.float64).numpy() @ u).__abs__().mean(1)}


def average_table(found: Found) -> Table:
    """One row a law and vector: E abs(u . w) and the constant M."""
    return found.rows(
        lambda cell: {"average": cell["average"][0]},
        lambda cell: {"constant": theory.absolute_moment_constant(LAWS[cell.spec.law])},
    )


def average_claims(found: Found) -> Claims:
    """Lemmas 10 and 11, and where they are sharp."""
    rows, names = found.table, "{law}, {vector}"
    uniform, finite = rows.where(law="uniform"), Table(row for row in rows if row["law"] != "uniform")
    sharp = rows.where(law="±1", vector="two equal entries")
    rest = Table(row for row in finite if row not in sharp)
    return {
        "uniform weights: E abs(u . w) is at least M norm(u) (Lemma 10)": (
            uniform.claim(at_least, "average", "constant", names=names)
        ),
        "weights from a finite symmetric set: so it is, but for ±1 and two equal entries (Lemma 11)": (
            rest.claim(at_least, "average", "constant", names=names)
        ),
        "weights of ±1 and two equal entries attain it": (
            sharp.claim(agrees, "average", "constant", names=names, resolution=0.02)
        ),
    }


def draw_average(found: Found) -> plots.Figure:
    """E abs(u . w) over the constant, one group of markers a vector."""
    picture, axes = plots.figure(6.6, 4.4)
    rows = found.table
    for index, (law, part) in enumerate(rows.by("law")):
        places = np.arange(len(part)) + 0.12 * (index - 1)
        scale = 1 / part[0]["constant"]
        plots.means(axes, part, places, "average", index, f"{law} weights", scale)
    axes.axhline(1.0, color=plots.BOUND, linestyle="--", label="Lemmas 10 and 11")
    axes.set_xticks(range(len(VECTORS)), list(VECTORS))
    axes.set(ylabel=r"$E\,|u \cdot w|\,/\,(M\,\|u\|)$", xlabel="vector u", ylim=(0.9, None))
    plots.legend_below(picture, columns=4)
    return picture


_SPEC = Spec(networks=400, std=2.0)
_AXES: dict[str, Any] = {
    "shape": {name: {"widths": widths} for name, widths in SHAPES.items()},
    "weights": {name: {"densities": densities} for name, densities in DENSITIES.items()},
    "biases": {name: {"bias": bias} for name, bias in BIAS.items()},
}
_PAPER = Sweep(lengths, _SPEC, _AXES, stride=1)
_MANY = Sweep(average, Spec(blocks=100, draws=10_000), {"law": tuple(LAWS), "vector": tuple(VECTORS)}, stride=1)
_FEW = {"quick": _MANY.but(blocks=50, draws=2000), "paper": _MANY}
ARTIFACTS = (
    Artifact(
        "price-tanner/th2", "Length behind layers that differ in width, law and density", "section 2",
        {"quick": _PAPER.but(networks=60), "paper": _PAPER}, layers_table, layers_claims, draw_layers,
        "{networks} ReLU networks each, std {std:g} over the root of the inputs, laws in turn Gaussian, uniform, "
        "finite; drawn: with biases; dashed: Theorem 2, dotted: second moments; bars: two standard errors",
    ),
    Artifact(
        "price-tanner/lemma10", "Mean of |u . w| against the constants of Lemmas 10 and 11", "appendix A", _FEW,
        average_table, average_claims, draw_average, "{blocks} blocks of {draws:,} draws; bars: two standard errors",
    ),
)  # fmt: skip
