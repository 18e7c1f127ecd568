"""What Raghu et al. say of Figures 2, 5, 12 and 13, decided on the measurements."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from epoch0.experiments.claims import Claim, at_least, at_most, between, equal_within_error, increasing, linear
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu.transitions import Array, Setting, gather, growth_table, table

CLOSE = 0.03
"""Curves "fit" if they are closer than one sees in a figure; the correction of width, sigma_w^2/(4 k chi), is less."""


def _slopes(values: Array) -> Array:
    """Each network's least-squares slope of log values over the layers, shape (networks,)."""
    layers = np.arange(values.shape[1], dtype=np.float64)
    centred = layers - layers.mean()
    return np.asarray(np.log(np.maximum(values, 0.5)) @ centred / (centred @ centred))


def _log_linear(what: str, name: str, rows: Sequence[dict[str, Any]], label: str) -> Claim:
    """Whether the logarithm of a mean is linear in depth."""
    means = [row[name] for row in rows]
    errors = [row[f"{name}_error"] / max(row[name], 1e-300) for row in rows]
    return linear(f"{what} exponential in depth ({label})", [row["layer"] for row in rows], np.log(means), errors,
                  rows[0]["networks"], least_r2=0.97)  # fmt: skip


def _by_combination(rows: Sequence[dict[str, Any]]) -> dict[tuple[int, float], list[dict[str, Any]]]:
    found: dict[tuple[int, float], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["width"], row["variance"]), []).append(row)
    return found


def depth_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figure 2: exponential in depth, slower in width, and it depends on the scale of the weights."""
    rows = _by_combination(table(setting, results))
    widest, steepest = max(setting.widths), max(setting.variances)
    claims = [
        _log_linear("transitions are", "transitions", rows[widest, variance][1:], f"sigma_w^2 = {variance:g}")
        for variance in setting.variances if variance >= 2
    ]  # fmt: skip
    found = {(width, variance): whole["transitions"] for width, variance, whole in gather(setting, results)}
    rates = [mean_and_error(_slopes(found[widest, variance][:, 1:])) for variance in setting.variances]
    claims.append(increasing(
        "the rate grows with the scale of the weights", [r[0] for r in rates], [r[1] for r in rates], setting.networks,
        [f"sigma_w^2 = {variance:g}" for variance in setting.variances],
    ))  # fmt: skip
    half, narrow = setting.depth // 2, widest // 2
    deeper = np.log(np.maximum(found[widest, steepest], 0.5))
    by_depth = mean_and_error(deeper[:, -1] - deeper[:, half - 1])
    (few, few_error), (many, many_error) = (
        mean_and_error(np.log(np.maximum(found[width, steepest][:, -1], 0.5))) for width in (narrow, widest)
    )
    claims.append(increasing(
        f"doubling the depth adds more transitions than doubling the width (sigma_w^2 = {steepest:g})",
        [many - few, by_depth[0]], [math.hypot(few_error, many_error), by_depth[1]], setting.networks,
        [f"log ratio, width {narrow} to {widest}", f"log ratio, layer {half} to {setting.depth}"],
    ))  # fmt: skip
    return claims


def length_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figure 5: transitions are proportional to length, slope 1 in logarithms, layer by layer."""
    claims = []
    for width, variance, whole in gather(setting, results):
        if variance < 2:
            continue  # lengths hardly change from layer to layer: no slope can be told
        lengths, counts = (np.log(np.maximum(v, 0.5)) for v in (whole["lengths"][:, 2:], whole["transitions"][:, 1:]))
        x = lengths - lengths.mean(axis=1, keepdims=True)
        slope, error = mean_and_error((x * counts).sum(axis=1) / (x * x).sum(axis=1))
        claims.append(equal_within_error(
            f"transitions are proportional to length (width {width}, sigma_w^2 = {variance:g})",
            np.array([[slope, 1.0]]), np.array([[error, 0.0]]), setting.networks, resolution=0.1,
            settings=["slope of log transitions over log length"], groups=("measured", "proportional"),
        ))  # fmt: skip
    return claims


def relu_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figure 12: exponential in depth, faster with scale than with width, and growth by the exact law."""
    rows = _by_combination(table(setting, results))
    widest = max(setting.widths)
    claims = [
        _log_linear("length is", "length", rows[widest, variance], f"width {widest}, sigma_w^2 = {variance:g}")
        for variance in setting.variances if variance != 2  # there lengths stay as they are
    ]  # fmt: skip
    flat = [row for some in rows.values() for row in some[1:]]
    growth, errors, exact = (np.array([row[name] for row in flat]) for name in ("growth", "growth_error", "exact"))
    names = [f"width {row['width']}, sigma_w^2 = {row['variance']:g}, layer {row['layer']}" for row in flat]
    claims.append(equal_within_error(
        "growth in each layer is the exact one of Gaussian weights", np.stack([growth, exact], 1),
        np.stack([errors, np.zeros_like(exact)], 1), setting.networks, resolution=0.05, settings=names,
        groups=("measured", "exact"),
    ))  # fmt: skip
    claims.append(_scale_over_width(setting, results))
    return claims


def _scale_over_width(setting: Setting, results: Results) -> Claim:
    """Growth over the whole range of widths against growth over that of scales."""
    found = {(r["width"], r["variance"]): (math.log(r["growth"]), r["growth_error"] / r["growth"])
             for r in growth_table(setting, results)}  # fmt: skip
    low, high = min(setting.variances), max(setting.variances)
    thin, wide = min(setting.widths), max(setting.widths)

    def change(a: tuple[int, float], b: tuple[int, float], ratio: float) -> tuple[float, float]:
        doublings = math.log2(ratio)
        return (found[b][0] - found[a][0]) / doublings, math.hypot(found[a][1], found[b][1]) / doublings

    by_width, by_scale = change((thin, high), (wide, high), wide / thin), change((wide, low), (wide, high), high / low)
    return increasing(
        "growth increases faster with scale than with width", [by_width[0], by_scale[0]], [by_width[1], by_scale[1]],
        setting.networks, ["log growth a doubling of the width", "log growth a doubling of sigma_w^2"],
    )  # fmt: skip


def hard_tanh_length_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figure 13a, b: length is exponential in depth, at a rate that grows with width and variance."""
    rows = _by_combination(table(setting, results))
    claims = [
        _log_linear("length is", "length", some[2:], f"width {width}, sigma_w^2 = {variance:g}")
        for (width, variance), some in rows.items() if variance >= 2 and width >= 16
    ]  # fmt: skip
    return [*claims, *_rates(setting, results)]


def _rates(setting: Setting, results: Results) -> list[Claim]:
    found = {(r["width"], r["variance"]): r for r in growth_table(setting, results)}
    claims = []
    if len(setting.widths) > 1:
        some = [found[width, setting.variances[-1]] for width in setting.widths]
        claims.append(increasing(
            "the growth rate increases with the width", [r["growth"] for r in some], [r["growth_error"] for r in some],
            setting.networks, [f"width {r['width']}" for r in some],
        ))  # fmt: skip
    if len(setting.variances) > 1:
        some = [found[setting.widths[-1], variance] for variance in setting.variances]
        claims.append(increasing(
            "the growth rate increases with the variance", [r["growth"] for r in some],
            [r["growth_error"] for r in some], setting.networks, [f"sigma_w^2 = {r['variance']:g}" for r in some],
        ))  # fmt: skip
    return claims


def bound_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figure 13c, d: growth lies between the bounds of Theorem 3, and for wide networks on sqrt(chi)."""
    rows = growth_table(setting, results)
    growth, errors, lower, upper = (
        np.array([row[name] for row in rows]) for name in ("growth", "growth_error", "lower", "upper")
    )
    names = [f"width {row['width']}, sigma_w^2 = {row['variance']:g}" for row in rows]
    wide = [i for i, row in enumerate(rows) if row["width"] == max(setting.widths)]
    limit = np.array([rows[i]["wide"] for i in wide])
    return [
        at_least("growth is at least the bound of Theorem 3", growth, errors, lower, setting.networks, names),
        at_most("growth is at most the chi bound (D.2)", growth, errors, upper, setting.networks, names),
        between(
            f"at width {max(setting.widths)} growth is the wide limit sqrt(chi) to {CLOSE:.0%}", growth[wide],
            errors[wide], (1 - CLOSE) * limit, (1 + CLOSE) * limit, setting.networks, [names[i] for i in wide],
        ),
        *_rates(setting, results),
    ]  # fmt: skip
