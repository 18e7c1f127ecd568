"""Hayou Table 7: magnitude pruning of layers of unequal variance, against Proposition 4 (appendix E)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_most, between, equal_within_error, exact
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.means import mean_and_error
from epoch0.prune import critical_sparsity
from epoch0.seeds import generator
from epoch0.theory.pruning import magnitude_bound, magnitude_density, magnitude_limit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

PRINTED = {2.0: (5.77, 1.0), 5.0: (0.81, 0.79), 10.0: (0.72, 0.69)}
"""Table 7: gamma -> the bound and the empirical value."""

TIGHT = 0.02
"""How far below a bound a measurement may be for the bound to count as tight."""

_DECIMALS = 0.006
"""What printing two decimals leaves open."""


@dataclass(frozen=True)
class UnequalSpec:
    """Normal weights of a dense network, of which the first layer's are smaller.

    Attributes:
        depth: L, number of layers.
        width: N.
        gamma: alpha_1, the factor by which the first layer's variance sigma_w^2/(alpha N) is smaller.
    """

    depth: int
    width: int
    gamma: float


def critical(spec: UnequalSpec, seed: int) -> dict[str, Any]:
    """The sparsity from which on magnitude pruning removes the first layer in full.

    >>> critical(UnequalSpec(100, 100, 5.0), seed=0)["critical"]
    0.9...
    """
    source = generator(seed)
    scores = {
        str(layer): torch.randn(spec.width**2, generator=source, dtype=torch.float64).abs()
        * (spec.gamma**-0.5 if layer == 0 else 1.0)
        for layer in range(spec.depth)
    }
    return {"critical": float(critical_sparsity(scores))}


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        gammas: ratios of variances.
        depth: L.
        width: N.
        networks: how many for each ratio.
    """

    gammas: tuple[float, ...]
    depth: int
    width: int
    networks: int


def trials(setting: Setting) -> list[Trial]:
    """One a network; no two share random numbers."""
    return [
        Trial(
            "epoch0.papers.hayou.unequal:critical", UnequalSpec(setting.depth, setting.width, gamma),
            seed=1000 * place + network,
        )
        for place, gamma in enumerate(setting.gammas)
        for network in range(setting.networks)
    ]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One ratio of variances: what is measured and what is computed.

    Attributes:
        gamma: the ratio.
        critical: critical sparsity of each network.
        printed: Proposition 4 with gamma where it stands, as a ratio of standard deviations.
        corrected: Proposition 4 with sqrt(gamma).
        limit: the limit of infinite depth without a bound.
        finite: expected critical sparsity at this depth.
    """

    gamma: float
    critical: Array
    printed: float
    corrected: float
    limit: float
    finite: float


@lru_cache(maxsize=64)
def computed(gamma: float, depth: int, width: int) -> tuple[float, float, float, float]:
    """The four theoretical values of a :class:`Row`, in its order."""
    stds = [gamma**-0.5, *[1.0] * (depth - 1)]
    return (
        magnitude_bound(gamma, width**2, paper=True).value,
        magnitude_bound(gamma, width**2).value,
        magnitude_limit(gamma, width**2),
        magnitude_density(stds, [width**2] * depth, 0.5).critical_sparsity,
    )


def gather(setting: Setting, results: Results) -> list[Row]:
    """One a ratio."""
    values = np.array([one["critical"] for one in results], dtype=float).reshape(-1, setting.networks)
    return [
        Row(gamma, mine, *computed(gamma, setting.depth, setting.width))
        for gamma, mine in zip(setting.gammas, values, strict=True)
    ]


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a ratio, the paper's columns beside ours."""
    rows = []
    for row in gather(setting, results):
        mean, error = mean_and_error(row.critical)
        bound, empirical = PRINTED.get(row.gamma, (float("nan"), float("nan")))
        rows.append(
            {
                "gamma": row.gamma,
                "critical_sparsity": mean,
                "critical_sparsity_error": error,
                "bound_corrected": row.corrected,
                "bound_as_printed": row.printed,
                "infinite_depth": row.limit,
                "predicted": row.finite,
                "table_bound": bound,
                "table_empirical": empirical,
                "networks": setting.networks,
            }
        )
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Proposition 4, its table, and what is beyond the paper."""
    rows = gather(setting, results)
    mean, error = np.transpose([mean_and_error(row.critical) for row in rows])
    names, count = [f"gamma = {row.gamma:g}" for row in rows], setting.networks
    corrected = np.array([row.corrected for row in rows])
    known = [place for place, row in enumerate(rows) if row.gamma in PRINTED]
    bounds = [PRINTED[rows[place].gamma][0] for place in known]
    told = [PRINTED[rows[place].gamma][1] for place in known]
    formula = [rows[place].printed for place in known]
    pairs = ", ".join(f"{b:g} printed, {f:.3g} computed" for b, f in zip(bounds, formula, strict=True))
    off = max(abs(b - f) for b, f in zip(bounds, formula, strict=True))
    finite = np.array([row.finite for row in rows])
    zeros = np.zeros_like(finite)
    return [
        exact("Table 7: its bounds are those of Proposition 4", off <= _DECIMALS, pairs, {"largest_difference": off}),
        between(
            f"Table 7: its empirical values are found again, within {TIGHT:g}",
            mean[known], error[known], np.array(told) - TIGHT, np.array(told) + TIGHT, count,
            [names[place] for place in known],
        ),
        at_most(
            "Proposition 4 as printed (gamma, the ratio of variances, multiplies a standard deviation)",
            mean, error, [row.printed for row in rows], count, names,
        ),
        at_most("Proposition 4 corrected (with the square root of gamma): E[s_cr] is at most the bound",
                mean, error, corrected, count, names),
        between(f"... and the bound is tight, within {TIGHT:g}", mean, error, corrected - TIGHT, corrected + 1e-9,
                count, names),
        equal_within_error(
            "beyond the paper: E[s_cr] at this depth is what the law of the weights gives",
            np.stack([mean, finite], 1), np.stack([error, zeros], 1), [(count, count)] * len(rows), resolution=0.05,
            settings=names, groups=("measured", "predicted"),
        ),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """Table 7 as a picture: critical sparsity against gamma."""
    rows = table(setting, results)
    picture, axes = plots.figure(7.2, 5.0)
    grid = np.geomspace(1.05 if min(setting.gammas) > 1.2 else 1.02, 1.15 * max(setting.gammas), 60)
    values = np.transpose([computed(float(gamma), setting.depth, setting.width)[:3] for gamma in grid])
    printed, corrected, limit = values
    axes.plot(grid, corrected, "--", color=plots.BOUND, label="Proposition 4, corrected", zorder=1.4)
    plots.curve(axes, grid.tolist(), limit.tolist(), 0, "limit of infinite depth")
    axes.plot(grid, printed, ":", color=plots.BOUND, label="Proposition 4, as printed", zorder=1.4)
    gammas = [row["gamma"] for row in rows]
    plots.points(axes, gammas, [row["critical_sparsity"] for row in rows],
                 [row["critical_sparsity_error"] for row in rows], 0, f"measured, {setting.networks} networks")
    inside = [row for row in rows if row["table_bound"] <= 1.05]
    axes.plot([row["gamma"] for row in inside], [row["table_bound"] for row in inside], "+", color="black",
              markersize=10, linestyle="none", label="Table 7, bound (at gamma = 2: 5.77)")
    axes.plot(gammas, [row["table_empirical"] for row in rows], "x", color="black", markersize=7, linestyle="none",
              label="Table 7, empirical")
    axes.set_xscale("log")
    axes.set_xticks([2, 3, 5, 10], ["2", "3", "5", "10"])
    axes.minorticks_off()
    axes.set(xlabel=r"ratio of the variances, $\gamma$", ylabel=r"critical sparsity $s_{cr}$", ylim=(0.25, 1.05),
             xlim=(1.5, 1.1 * max(setting.gammas)))
    axes.legend(loc="lower left")
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"L = {setting.depth} layers of {setting.width} x {setting.width} normal weights, the first with 1/gamma of "
        f"the variance; {setting.networks} networks a ratio; bars: two standard errors"
    )


ARTIFACT = OldArtifact(
    "hayou/tab7", "Critical sparsity of magnitude pruning when one layer is weaker",
    "Hayou et al., Table 7, appendix E",
    {
        "quick": Setting((2.0, 5.0, 10.0), 100, 100, 60),
        "paper": Setting((2.0, 5.0, 10.0), 100, 100, 100),
    },
    trials, table, claims, draw, about=about,
)  # fmt: skip
