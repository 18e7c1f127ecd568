"""Price-Tanner Figure 6 (appendix C.2): the pictures, and both figures as artifacts of the catalogue.

Figure 6a averages over lines within a class and between classes, Figure 6b shows each line on its own.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0 import plots
from epoch0.papers.catalogue import OldArtifact
from epoch0.papers.price_tanner.trained_claims import claims_a, claims_b
from epoch0.papers.price_tanner.trained_table import (
    KINDS,
    PRESETS,
    Results,
    TrainedSetting,
    exact_random,
    table_a,
    table_b,
    trials,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK = 6
"""Place of black among the colours; the random networks have it, as in the paper."""


def draw_a(setting: TrainedSetting, results: Results) -> "Figure":
    """Figure 6a: growth factor against sigma_w, averaged over the lines of each kind."""
    picture, axes = plots.figure(7.0, 4.6)
    with plots.style():
        rows = table_a(setting, results)
        random = [row for row in rows if row["networks"] == "random"]
        for index, kind in enumerate(KINDS):
            own = [row for row in rows if row["networks"] == "trained" and row["lines"] == kind]
            _points(axes, own, index, f"trained, lines {kind}", linestyle="-")
            for row in own:
                _arrow(axes, next(r for r in random if r["initial_std"] == row["initial_std"]), row, index)
        _points(axes, [row for row in random if row["lines"] == KINDS[0]], BLACK, "random, before training")
        _theory(axes, setting, rows)
        _finish(axes, results)
        handles, labels = axes.get_legend_handles_labels()
        order = sorted(range(len(labels)), key=lambda place: "exact" in labels[place] or "bound" in labels[place])
        axes.legend([handles[place] for place in order], [labels[place] for place in order])
    return picture


def draw_b(setting: TrainedSetting, results: Results) -> "Figure":
    """Figure 6b: the same for each line, in colour for trained networks and black for random ones."""
    picture, axes = plots.figure(7.0, 4.6)
    with plots.style():
        rows = table_b(setting, results)
        for line in sorted({row["line"] for row in rows}):
            for state in ("random", "trained"):
                own = [row for row in rows if row["line"] == line and row["networks"] == state]
                index = KINDS.index(own[0]["lines"]) if state == "trained" else BLACK
                first = line in (0, setting.spec.lines)
                label = f"trained, one line {own[0]['lines']}" if state == "trained" else "random, one line"
                _points(
                    axes, own, index, label if first and (state == "trained" or line == 0) else "_",
                    linestyle="-", linewidth=0.6, markersize=2.2, marker="o", capsize=0, elinewidth=0.4, alpha=0.7,
                )  # fmt: skip
        _finish(axes, results)
        axes.legend(loc="lower right")
    return picture


def _points(axes: "Axes", rows: list[dict[str, Any]], index: int, label: str, **more: Any) -> None:
    """Means with error bars of two standard errors both ways; settings without enough networks are left out."""
    kept = [row for row in rows if np.isfinite(row["growth_error"])]
    xerr = [2 * row["weight_std_error"] for row in kept]
    x, y, error = ([row[name] for row in kept] for name in ("weight_std", "growth", "growth_error"))
    plots.points(axes, x, y, error, index, label, xerr=xerr, **more)


def _arrow(axes: "Axes", start: dict[str, Any], end: dict[str, Any], index: int) -> None:
    """From the random networks to what training made of them."""
    if np.isfinite(end["growth"]):
        head, tail = [(row["weight_std"], row["growth"]) for row in (end, start)]
        look = {"arrowstyle": "->", "color": plots.COLOURS[index], "alpha": 0.35, "shrinkA": 4, "shrinkB": 4}
        axes.annotate("", head, tail, arrowprops=look)


def _theory(axes: "Axes", setting: TrainedSetting, rows: list[dict[str, Any]]) -> None:
    """The exact law of random networks, and the paper's lower bound for them."""
    stds = [row["weight_std"] for row in rows if np.isfinite(row["weight_std"])]
    x = np.linspace(min(stds), max(stds), 50)
    axes.plot(x, [exact_random(setting, one) for one in x], color=plots.BOUND, linestyle="--", label="random, exact")
    axes.plot(x, x / np.sqrt(2 * np.pi), color=plots.BOUND, linestyle=":", label="random, lower bound (Cor. 1)")


def _finish(axes: "Axes", results: Results) -> None:
    """Labels, and how many networks are not shown."""
    axes.set_xlabel(r"$\sigma_w$ of the hidden layers (trained: after training)")
    axes.set_ylabel("growth factor a layer")
    missed = sum(int((~np.asarray(result["reached"], dtype=bool)).sum()) for result in results)
    if missed:
        axes.set_title(f"{missed} networks that missed the accuracy left out", loc="left")


def about(setting: TrainedSetting) -> str:
    """What was measured, in one line."""
    spec = setting.spec
    return (
        f"{setting.note}; depth {len(spec.sizes) - 1}, width {spec.sizes[1]}; at each initial sigma_w {spec.networks} "
        f"networks trained to more than {100 * spec.accuracy:g} % test accuracy and {spec.random_networks} random "
        "ones; bars: two standard errors"
    )


def _data(setting: TrainedSetting) -> str:
    return setting.spec.data


SOURCE = "Price & Tanner, appendix C.2"

ARTIFACTS = (
    OldArtifact(
        "price-tanner/fig6a", "Growth in trained networks, within and between classes", f"{SOURCE}, Figure 6a",
        PRESETS, trials, table_a, claims_a, draw_a, _data, about,
    ),
    OldArtifact(
        "price-tanner/fig6b", "Growth in trained networks, each line", f"{SOURCE}, Figure 6b",
        PRESETS, trials, table_b, claims_b, draw_b, _data, about,
    ),
)  # fmt: skip
"""Figures 6a and 6b."""
