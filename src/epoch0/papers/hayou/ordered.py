"""Hayou's Theorem 1 against measured critical sparsities, with a sharper prediction (section 2.2)."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from epoch0.experiments.claims import Claim, at_least, at_most, between, exact, increasing
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.hayou.ordered_trial import CriticalSpec
from epoch0.papers.means import mean_and_error
from epoch0.theory.mean_field import chi, q_star
from epoch0.theory.pruning import ordered_bound, predicted_density

Array = NDArray[np.float64]

PAPER_KAPPA, PAPER_BOUND, PAPER_MEASURED = 0.2, 0.27, 0.22
"""What the text below Theorem 1 prints for L = N = 100."""

NEAR = 0.25
"""Relative difference up to which the sharper prediction counts as right."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        chis: gains of a layer, increasing, with biases.
        without: gains of a layer for sigma_b = 0.
        bias_std: sigma_b of the others.
        depth: L.
        width: N.
        examples: in the batch.
        networks: how many for each gain.
    """

    chis: tuple[float, ...]
    without: tuple[float, ...]
    bias_std: float = 0.3
    depth: int = 100
    width: int = 100
    examples: int = 100
    networks: int = 10


@lru_cache(maxsize=64)
def weight_std(gain: float, bias_std: float) -> float:
    """sigma_w at which tanh has this gain at the fixed point of the variance, below the edge of chaos.

    >>> round(weight_std(0.9, 0.3), 4), weight_std(0.81, 0.0)
    (1.2415, 0.9)
    """
    if bias_std == 0:
        return math.sqrt(gain)  # q is 0 there, and the slope of tanh 1
    return float(brentq(lambda s: chi("tanh", s, q_star("tanh", s, bias_std)) - gain, 1e-3, 3.0, xtol=1e-10))


@dataclass(frozen=True)
class Point:
    """One gain and what was measured there.

    Attributes:
        chi: the gain.
        bias_std: sigma_b.
        critical: the critical sparsity of each network.
    """

    chi: float
    bias_std: float
    critical: Array

    @property
    def name(self) -> str:
        """For the evidence of claims."""
        return f"chi = {self.chi:.3g}" + ("" if self.bias_std else ", no biases")


def _kinds(setting: Setting) -> list[tuple[float, float]]:
    return [(one, setting.bias_std) for one in setting.chis] + [(one, 0.0) for one in setting.without]


def trials(setting: Setting) -> list[Trial]:
    """One a network; no two share random numbers."""
    return [
        Trial(
            "epoch0.papers.hayou.ordered_trial:critical",
            CriticalSpec(
                setting.depth, setting.width, "tanh", round(weight_std(gain, bias), 9), bias, setting.examples
            ),
            seed=place * 1000 + network,
        )
        for place, (gain, bias) in enumerate(_kinds(setting))
        for network in range(setting.networks)
    ]


def gather(setting: Setting, results: Results) -> list[Point]:
    """The networks of each gain together."""
    values = np.array([one["critical"] for one in results], dtype=float).reshape(-1, setting.networks)
    return [Point(gain, bias, mine) for (gain, bias), mine in zip(_kinds(setting), values, strict=True)]


@lru_cache(maxsize=256)
def sharper(gain: float, bias_std: float, depth: int, width: int, examples: int) -> tuple[float, float]:
    """Mean-field prediction of E[s_cr] and of its standard deviation over networks."""
    found = predicted_density(
        "tanh", weight_std(gain, bias_std), bias_std, [width] * (depth + 1), 0.5, examples=examples
    )
    return found.critical_sparsity, found.critical_sparsity_sd


def predicted(setting: Setting, point: Point) -> tuple[float, float]:
    """The sharper prediction for one point."""
    return sharper(point.chi, point.bias_std, setting.depth, setting.width, setting.examples)


def bound(setting: Setting, gain: float, *, paper: bool = False) -> float:
    """Theorem 1 without its error term; ``paper`` with the logarithm that the paper's example used."""
    return ordered_bound(gain, setting.depth, setting.width, paper=paper).value


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a gain."""
    rows = []
    for point in gather(setting, results):
        mean, error = mean_and_error(point.critical)
        expected, spread = predicted(setting, point)
        rows.append(
            {
                "chi": point.chi,
                "kappa": abs(math.log(point.chi)) / 8,
                "weight_std": weight_std(point.chi, point.bias_std),
                "bias_std": point.bias_std,
                "critical_sparsity": mean,
                "critical_sparsity_error": error,
                "sd_over_networks": float(point.critical.std(ddof=1)) if len(point.critical) > 1 else math.nan,
                "predicted": expected,
                "predicted_sd": spread,
                "bound": bound(setting, point.chi),
                "bound_log10": bound(setting, point.chi, paper=True),
                "networks": setting.networks,
            }
        )
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Theorem 1, its example, and what is beyond the paper."""
    points = gather(setting, results)
    found = [point for point in points if point.bias_std]
    bare = [point for point in points if not point.bias_std]
    mean, error = np.transpose([mean_and_error(point.critical) for point in found])
    names, count = [point.name for point in found], setting.networks
    bounds = np.array([bound(setting, point.chi) for point in found])
    expected = np.array([predicted(setting, point)[0] for point in found])
    empty = [point.chi for point, value in zip(found, bounds, strict=True) if value > 1]
    lowest = f"{min(empty):.3g}" if empty else "none"
    return [
        at_most(
            f"Theorem 1 with biases: E[s_cr] is at most the bound (which is above 1, so says nothing, for "
            f"{len(empty)} of these {len(found)} gains, from chi = {lowest} on)",
            mean, error, bounds, count, names,
        ),
        increasing("the critical sparsity is smaller the further chi is below 1", mean, error, count, names),
        *_example(setting, found),
        between(
            f"beyond the paper: the sharper prediction is within {100 * NEAR:g} %",
            mean, error, (1 - NEAR) * expected, (1 + NEAR) * expected, count, names,
        ),
        *_without_biases(setting, bare),
    ]  # fmt: skip


def _example(setting: Setting, found: list[Point]) -> list[Claim]:
    """The text below the theorem: kappa = 0.2, L = N = 100."""
    gain = math.exp(-8 * PAPER_KAPPA)
    value, decimal = bound(setting, gain), bound(setting, gain, paper=True)
    claims = [
        exact(
            f"the example below Theorem 1: at kappa = {PAPER_KAPPA:g} the bound is {100 * PAPER_BOUND:g} % "
            f"(here L = {setting.depth}, N = {setting.width})",
            abs(value - PAPER_BOUND) < 0.01,
            f"the formula gives {value:.3g}; with log base 10 in place of the natural logarithm {decimal:.3g}",
            {"formula": value, "log10": decimal},
        )
    ]
    for text, wanted in (
        (f"the example: at kappa = {PAPER_KAPPA:g} E[s_cr] measures", gain),
        (f"... if kappa is |log chi|/2 (chi = {math.exp(-2 * PAPER_KAPPA):.3g})", math.exp(-2 * PAPER_KAPPA)),
    ):
        for point in found:
            if abs(point.chi - wanted) < 1e-3:
                mean, error = mean_and_error(point.critical)
                claims.append(
                    between(
                        f"{text} {100 * PAPER_MEASURED:g} %, within 2", [mean], [error], PAPER_MEASURED - 0.02,
                        PAPER_MEASURED + 0.02, setting.networks, [point.name],
                    )
                )  # fmt: skip
    return claims


def _without_biases(setting: Setting, bare: list[Point]) -> list[Claim]:
    if not bare:
        return []
    mean, error = np.transpose([mean_and_error(point.critical) for point in bare])
    names = [point.name for point in bare]
    bounds = [min(1.0, bound(setting, point.chi)) for point in bare]
    return [
        at_most(
            "Theorem 1 as stated holds without biases too", mean, error, bounds, setting.networks, names
        ),
        at_least(
            "without biases q is 0, the network linear, and nothing collapses: s_cr stays above 0.95",
            mean, error, 0.95, setting.networks, names,
        ),
    ]  # fmt: skip


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"tanh, L = {setting.depth}, N = {setting.width}, sigma_b = {setting.bias_std:g} (and 0); {setting.networks} "
        f"networks a gain, {setting.examples} Gaussian inputs with random labels; bars: two standard errors"
    )
