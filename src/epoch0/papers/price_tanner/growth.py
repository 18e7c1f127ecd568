"""Price-Tanner Figures 2, 3a, 3b, 5a-d (section 4, appendix C.1): what is swept, and the measurements in one table."""

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.distributions import Discrete, Gaussian, Law, Sparse, Uniform, integers
from epoch0.experiments.experiment import Trial
from epoch0.papers.curve import CurveSpec
from epoch0.papers.means import mean_and_error, mean_growth
from epoch0.papers.price_tanner.growth_trial import BlockSpec
from epoch0.theory import growth as theory

Array = NDArray[np.float64]
Results = Sequence[Mapping[str, Any]]

TRIAL = "epoch0.papers.price_tanner.growth_trial:block"
LAWS = ("gaussian", "uniform", "discrete")
LARGEST = (1, 2, 3, 4, 5)
"""C of the discrete laws {-C, ..., C}; the other two laws get the same standard deviations."""

STDS = tuple(math.sqrt(largest * (largest + 1) / 3) for largest in LARGEST)
DENSITIES = tuple(tenth / 10 for tenth in range(1, 11))
BIAS = 0.01
"""Standard deviation of Gaussian biases, bound of uniform ones, size of discrete ones."""


@dataclass(frozen=True)
class Setting:
    """One preset of a figure.

    Attributes:
        laws: which of LAWS.
        stds: standard deviations of a kept weight before the division by sqrt(width).
        densities: fractions of the weights kept; every std is combined with every density.
        width: of every layer.
        depth: number of layers.
        networks: how many at each setting.
        block: networks a trial.
        curves: name of the curve -> curve; more than one are compared.
        shown: name of the curve that is drawn; empty for the only one.
    """

    laws: tuple[str, ...]
    stds: tuple[float, ...]
    densities: tuple[float, ...]
    width: int
    depth: int
    networks: int
    block: int
    curves: tuple[tuple[str, CurveSpec], ...]
    shown: str = ""


@dataclass(frozen=True)
class Point:
    """One combination of the sweep."""

    curve: str
    spec: CurveSpec
    law: str
    std: float
    density: float


def points(setting: Setting) -> list[Point]:
    """The sweep in its order: curves, laws, stds, densities."""
    return [
        Point(name, curve, law, std, density)
        for name, curve in setting.curves
        for law in setting.laws
        for std in setting.stds
        for density in setting.densities
    ]


def weight_law(law: str, std: float, density: float = 1.0) -> Law:
    """The law of a weight before the division by sqrt(width); at density 1 every law has that standard deviation."""
    if law == "gaussian":
        kept: Law = Gaussian(std)
    elif law == "uniform":
        kept = Uniform(std * math.sqrt(3))
    else:
        largest = round((math.sqrt(1 + 12 * std**2) - 1) / 2)
        kept = integers(max(largest, 1))
        kept = kept.scaled(std / kept.std)  # exactly 1 where the std is one of STDS
    return Sparse(kept, density)


def bias_law(law: str) -> Law:
    """The paper's bias law that goes with a weight law."""
    return {"gaussian": Gaussian(BIAS), "uniform": Uniform(BIAS), "discrete": Discrete((-BIAS, BIAS))}[law]


def trials(setting: Setting) -> list[Trial]:
    """Blocks of networks; each combination has an ensemble of its own, so that no two share networks.

    Raises:
        InputError: if the images at the ends of a curve are not there.
    """
    curves = {name: curve.with_pixels() for name, curve in setting.curves}
    made = []
    for point in points(setting):
        spec = BlockSpec(
            weight_law(point.law, point.std, point.density), bias_law(point.law), setting.width, setting.depth,
            curves[point.curve], 0, setting.block,
        )  # fmt: skip
        made += blocks(spec, setting.networks, setting.block, _stream(point))
    return made


def blocks(spec: BlockSpec, networks: int, block: int, seed: int) -> list[Trial]:
    """So many networks of one kind as trials of ``block`` networks each, the last perhaps of fewer."""
    return [
        Trial(TRIAL, replace(spec, first=first, networks=min(block, networks - first)), seed)
        for first in range(0, networks, block)
    ]


def _stream(point: Point) -> int:
    """A seed that only this combination has, whatever else is swept; curves of another shape get other networks."""
    told = f"{point.spec.shape} {point.law} {point.std!r} {point.density!r}"
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:7], "big")


def gather(setting: Setting, results: Results) -> list[tuple[Point, Array, Array]]:
    """Each combination with its lengths (networks, depth + 1) and growth factors (networks, depth)."""
    per_point = math.ceil(setting.networks / setting.block)
    gathered = []
    for place, point in enumerate(points(setting)):
        blocks = results[place * per_point : (place + 1) * per_point]
        lengths, growth = (np.concatenate([np.asarray(b[name]) for b in blocks]) for name in ("lengths", "growth"))
        gathered.append((point, lengths, growth))
    return gathered


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a combination: growth factor, its standard error over networks, and what theory says of it."""
    rows = []
    for point, _, growth in gather(setting, results):
        mean, error, count = mean_growth(growth)
        rows.append(
            {
                "curve": point.curve, "law": point.law, "std": point.std, "density": point.density,
                "growth": mean, "growth_error": error, "networks": count, **predicted(setting, point),
            }
        )  # fmt: skip
    return rows


def predicted(setting: Setting, point: Point) -> dict[str, float | None]:
    """Bounds on the growth factor of one layer, and its exact extremes where they are known (Gaussian weights)."""
    return dict(_predicted(setting.width, point.law, point.std, point.density))


@functools.cache
def _predicted(width: int, law: str, std: float, density: float) -> dict[str, float | None]:
    entry = weight_law(law, std, density).scaled(width**-0.5)
    gaussian = law == "gaussian"
    return {
        "paper_lower": float(theory.lower_bound(entry, width)),
        "lower": float(theory.best_lower_bound(entry, width)),
        "minimum": float(theory.sparse_minimum(entry, width)) if gaussian else None,
        "maximum": float(theory.sparse_maximum(entry, width)) if gaussian else None,
        "upper": float(theory.upper_bound(entry, width)),
    }


def length_table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """Figure 2: one row a density and layer, the mean length with its standard error and bounds."""
    rows = []
    for point, lengths, _ in gather(setting, results):
        bounds = predicted(setting, point)
        for layer in range(setting.depth + 1):
            start = float(lengths[0, 0])
            mean, error = mean_and_error(lengths[:, layer])
            rows.append(
                {
                    "law": point.law, "std": point.std, "density": point.density, "layer": layer,
                    "length": mean, "length_error": error, "networks": len(lengths),
                    **{name: None if one is None else start * one**layer for name, one in bounds.items()},
                }
            )  # fmt: skip
    return rows


def about(setting: Setting) -> str:
    """The setting in one line."""
    name, spec = next(pair for pair in setting.curves if pair[0] == (setting.shown or setting.curves[0][0]))
    if spec.ends == "random":
        bent = f", bent into semicircles in {spec.planes} random planes" if spec.shape == "arcs" else ""
        name = f"line between two random points of norm 1 in R^{spec.size}{bent}"
    fixed = [
        f"{name} {values[0]:g}"
        for name, values in (("std", setting.stds), ("density", setting.densities))
        if len(values) == 1
    ]
    return (
        f"{name}; {setting.networks} networks a point of width {setting.width} and depth {setting.depth}, "
        f"{', '.join(fixed)}; bars: two standard errors"
    )
