"""What Price & Tanner say of Figures 2, 3 and 5 (section 4, appendices B and C.1), decided on the measurements."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.experiments.claims import (
    Claim,
    at_least,
    at_most,
    better_fit,
    between,
    equal_within_error,
    fitted_exponent,
    increasing,
    linear,
)
from epoch0.papers.means import mean_and_error
from epoch0.papers.price_tanner.growth import Results, Setting, gather, length_table, table

RESOLUTION = 0.02
"""Growth factors "match perfectly" in a figure if a relative difference of 2 % would have been seen and was not."""

Rows = Sequence[dict[str, Any]]


def std_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figures 3a, 5a and 5c: linear in the standard deviation."""
    rows = table(setting, results)
    shown = _shown(setting, rows)
    straight = []
    for law in setting.laws:
        mine = [row for row in shown if row["law"] == law]
        std, growth, errors, count = _columns(mine, "std", "growth", "growth_error", "networks")
        straight.append(linear(f"growth is linear in the std of the weights ({law})", std, growth, errors, count))
    return [*_bounds_hold(shown), *straight, *_agreements(setting, rows)]


def density_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figures 3b, 5b and 5d: the shape of the dependence on the density, and the values that the text prints."""
    rows = table(setting, results)
    shown = _shown(setting, rows)
    shapes = [_root_shape(law, [row for row in shown if row["law"] == law]) for law in setting.laws]
    printed = [] if setting.curves[0][1].ends == "random" else _printed_values(shown)
    return [*_bounds_hold(shown), *shapes, *printed, *_agreements(setting, rows)]


def depth_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figure 2: lengths are exponential in depth, faster for larger density, and between the bounds."""
    rows = length_table(setting, results)
    claims, slopes = [], []
    for point, lengths, _ in gather(setting, results):
        mine = [row for row in rows if row["density"] == point.density][1:]
        claims.append(
            linear(
                f"log length is linear in depth (density {point.density:g})",
                [row["layer"] for row in mine],
                [math.log(row["length"]) for row in mine],
                [row["length_error"] / row["length"] for row in mine],
                len(lengths),
            )
        )
        own = _slopes(lengths)
        slopes.append((*mean_and_error(own), len(own)))
    names = [f"density {density:g}" for density in setting.densities]
    slope, spread, count = zip(*slopes, strict=True)
    claims.append(increasing("the slope of log length increases with the density", slope, spread, count, names))
    deep = [row for row in rows if row["layer"] > 0]
    where = [f"density {row['density']:g}, layer {row['layer']}" for row in deep]
    length, error, lower, upper, networks = _columns(deep, "length", "length_error", "paper_lower", "upper", "networks")
    text = "mean length is at least the bound of Corollary 1"
    claims.append(at_least(text, length, error, lower, networks, where))
    claims.append(at_most("mean length is at most the second-moment bound", length, error, upper, networks, where))
    return claims


def _bounds_hold(rows: Rows) -> list[Claim]:
    """Measured growth against the paper's lower bound, ours, the exact extremes and the second-moment bound."""
    growth, errors, count, paper, lower, upper = _columns(
        rows, "growth", "growth_error", "networks", "paper_lower", "lower", "upper"
    )
    names = [_name(row) for row in rows]
    text = "growth is at least the paper's lower bound (Corollaries 1-3)"
    decided = [
        at_least(text, growth, errors, paper, count, names),
        at_least("growth is at least the fourth-moment lower bound", growth, errors, lower, count, names),
        at_most("growth is at most the second-moment upper bound", growth, errors, upper, count, names),
    ]
    known = [row for row in rows if row["minimum"] is not None]
    return [*decided, _in_exact_range(known)] if known else decided


def _in_exact_range(rows: Rows) -> Claim:
    """Whether Gaussian growth is in its exact range; that is narrower than the errors, so its nearest value counts."""
    growth, errors, low, high, count = (
        np.array(column) for column in _columns(rows, "growth", "growth_error", "minimum", "maximum", "networks")
    )
    return equal_within_error(
        "Gaussian weights: growth agrees with its exact range over directions",
        np.stack([growth, np.clip(growth, low, high)], 1), np.stack([errors, np.zeros_like(errors)], 1),
        np.stack([count, count], 1), resolution=RESOLUTION, settings=[_name(row) for row in rows],
        groups=("measured", "exact"),
    )  # fmt: skip


def _root_shape(law: str, rows: Rows) -> Claim:
    """Whether growth goes with the square root of the density or with the density, by the exponent between."""
    density, growth, errors, count = (np.array(column) for column in _columns(rows, *_MEASURED))
    claim = better_fit(
        f"growth has the shape sqrt(density), not density ({law})",
        growth, errors, np.sqrt(density), density, count, names=("sqrt(density)", "density"),
    )  # fmt: skip
    exponent, error = fitted_exponent(density, growth, errors)
    told = f"growth goes like density^p, p = {exponent:.3f} ± {error:.2g}; {claim.evidence}"
    return replace(claim, evidence=told, numbers={**claim.numbers, "exponent": exponent, "exponent_error": error})


def _printed_values(rows: Rows) -> list[Claim]:
    """Section 4's two numbers, to the digit printed: growth 1 at density about 0.5, and about 1.5 for dense weights."""
    claims = []
    half = [row for row in rows if row["density"] == 0.5]
    if half:
        growth, errors, count = (np.array(column) for column in _columns(half, "growth", "growth_error", "networks"))
        # growth goes like sqrt(density) close by, so that it is 1 at 0.5 / growth^2
        crossing, spread = 0.5 / growth**2, errors / growth**3
        names = [row["law"] for row in half]
        claim = between(
            "growth is 1 at density 0.5, to the digit printed: the crossing is in [0.45, 0.55]",
            crossing, spread, 0.45, 0.55, count, names,
        )  # fmt: skip
        first = half[0]
        told = f"growth at density 0.5 is {first['growth']:.4f} ± {first['growth_error']:.2g} ({first['law']}"
        if first["minimum"] is not None:
            told += f"; exact extremes {first['minimum']:.4f} and {first['maximum']:.4f}"
        claims.append(replace(claim, evidence=f"{told}); {claim.evidence}"))
    dense = [row for row in rows if row["density"] == 1.0]
    if dense:
        values, spreads, counts, laws = _columns(dense, "growth", "growth_error", "networks", "law")
        text = "dense growth is 'approximately 1.5', to the digit printed: in [1.45, 1.55]"
        claims.append(between(text, values, spreads, 1.45, 1.55, counts, laws))
    for row in dense:
        if row["law"] == "gaussian":
            text = f"dense Gaussian growth is its exact value {row['minimum']:.4f}"
            both = [[row["growth"], row["minimum"]]], [[row["growth_error"], 0.0]]
            claims.append(
                equal_within_error(
                    text, *both, row["networks"], resolution=RESOLUTION, settings=["density 1"],
                    groups=("measured", "exact"),
                )
            )  # fmt: skip
    return claims


def _agreements(setting: Setting, rows: Rows) -> list[Claim]:
    """Laws of equal variance, and trajectories of different shape, have the same growth factor."""
    claims = []
    if len(setting.laws) > 1:
        text = "the three laws of equal variance have the same growth factor"
        claims.append(_same(text, _shown(setting, rows), "law", ("std", "density")))
    if len(setting.curves) > 1:
        text = "straight and curved trajectories have the same growth factor"
        claims.append(_same(text, rows, "curve", ("law", "std", "density")))
    return claims


def _same(text: str, rows: Rows, group: str, within: tuple[str, ...]) -> Claim:
    """Whether the groups agree in every setting that the other columns make."""
    groups = list(dict.fromkeys(row[group] for row in rows))
    settings: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        settings.setdefault(tuple(row[name] for name in within), []).append(row)
    values = np.array([_columns(members, "growth", "growth_error", "networks") for members in settings.values()])
    names = [", ".join(_told(name, value) for name, value in zip(within, key, strict=True)) for key in settings]
    return equal_within_error(
        text, values[:, 0], values[:, 1], values[:, 2], resolution=RESOLUTION, settings=names, groups=groups
    )


_MEASURED = ("density", "growth", "growth_error", "networks")


def _shown(setting: Setting, rows: Rows) -> Rows:
    """The rows of the curve that the figure is about."""
    return [row for row in rows if row["curve"] == (setting.shown or setting.curves[0][0])]


def _columns(rows: Rows, *names: str) -> list[list[Any]]:
    return [[row[name] for row in rows] for name in names]


def _name(row: dict[str, Any]) -> str:
    return ", ".join((row["law"], _told("std", row["std"]), _told("density", row["density"])))


def _told(name: str, value: Any) -> str:
    return value if isinstance(value, str) else f"{name} {value:.3g}"


def _slopes(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least-squares slope of log length over the layers of each network in which the curve stayed alive."""
    alive = lengths[(lengths > 0).all(axis=1)][:, 1:]
    depth = np.arange(alive.shape[1]) - (alive.shape[1] - 1) / 2
    return np.asarray(np.log(alive) @ depth / (depth @ depth))
