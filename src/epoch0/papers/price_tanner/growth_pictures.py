"""Price-Tanner Figures 2, 3 and 5 drawn: measurements with errors, bounds dashed, exact extremes as a band."""

from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0 import plots
from epoch0.distributions import Gaussian, Sparse
from epoch0.papers.price_tanner.growth import Results, Setting, length_table, table
from epoch0.theory import growth as theory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZES = (8.5, 5.5, 3.0)
"""The laws agree, so their markers lie on top of each other: large and hollow first, small and full last."""
_DASHES = ((0, (6, 2)), (0, (4, 1.5, 1, 1.5)), (0, (1.5, 1.5)))


def over_std(setting: Setting, results: Results) -> "Figure":
    """Figures 3a, 5a, 5c: growth factor against the standard deviation of the weights."""
    return _sweep(setting, results, "std", r"std of the non-zero weights, before the $1/\sqrt{k}$")


def over_density(setting: Setting, results: Results) -> "Figure":
    """Figures 3b, 5b, 5d: growth factor against the density."""
    return _sweep(setting, results, "density", r"density $\alpha$ (fraction of weights kept)")


def _sweep(setting: Setting, results: Results, swept: str, label: str) -> "Figure":
    curve = setting.shown or setting.curves[0][0]
    rows = [row for row in table(setting, results) if row["curve"] == curve]
    picture, axes = plots.figure(6.4, 5.4)
    _theory(axes, setting, rows, swept)
    for index, law in enumerate(setting.laws):
        mine = [row for row in rows if row["law"] == law]
        x = [row[swept] for row in mine]
        plots.curve(
            axes, x, [row["paper_lower"] for row in mine], index, f"{law}: the paper's lower bound",
            linestyle=_DASHES[index % 3], linewidth=1.2,
        )  # fmt: skip
        plots.points(
            axes, x, [row["growth"] for row in mine], [row["growth_error"] for row in mine], index, f"{law}: measured",
            markersize=_SIZES[index % 3], markerfacecolor="none" if index < 2 else None, capsize=_SIZES[index % 3] / 2,
        )  # fmt: skip
    low, high = min(row[swept] for row in rows), max(row[swept] for row in rows)
    axes.axhline(1.0, color="#333333", linewidth=0.7, zorder=1)
    axes.set(xlabel=label, ylabel=r"growth factor $E\,\|dz^{(d+1)}\|\,/\,\|dz^{(d)}\|$")
    axes.set_ylim(0, 1.06 * max(row["upper"] for row in rows))
    axes.set_xlim(low - 0.05 * (high - low), high + 0.03 * (high - low))
    axes.annotate(
        "above: lengths grow with depth", (1.0, 1.0), xycoords=("axes fraction", "data"), xytext=(-4, 3),
        textcoords="offset points", fontsize=7.5, color="#333333", ha="right",
    )  # fmt: skip
    plots.legend_below(picture, columns=2)
    return picture


def _theory(axes: "Axes", setting: Setting, rows: list[dict[str, Any]], swept: str) -> None:
    """The second-moment bound, and the exact range over directions for Gaussian weights."""
    fine = np.linspace(min(row[swept] for row in rows), max(row[swept] for row in rows), 40)
    entries = []
    for value in fine.tolist():
        std, density = (value, setting.densities[0]) if swept == "std" else (setting.stds[0], value)
        entries.append(Sparse(Gaussian(std), density).scaled(setting.width**-0.5))
    width = setting.width
    axes.plot(
        fine, [theory.upper_bound(entry, width) for entry in entries], color=plots.BOUND, linestyle=":", zorder=1.2,
        label="upper bound (second moment)",
    )  # fmt: skip
    if "gaussian" in setting.laws:
        axes.fill_between(
            fine, [theory.sparse_minimum(entry, width) for entry in entries],
            [theory.sparse_maximum(entry, width) for entry in entries],
            color="#bbbbbb", edgecolor="#999999", linewidth=0.8, zorder=1.1, label="gaussian: exact range",
        )  # fmt: skip


def over_depth(setting: Setting, results: Results) -> "Figure":
    """Figure 2: mean length at each layer on a log scale, one line a density."""
    from matplotlib import colormaps

    rows = length_table(setting, results)
    picture, axes = plots.figure(6.4, 5.2)
    densities = sorted({row["density"] for row in rows}, reverse=True)
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(densities)))  # ordered, and without its palest end
    for index, density in enumerate(densities):
        mine = [row for row in rows if row["density"] == density]
        layer, shade = [row["layer"] for row in mine], shades[index]
        lower = [row["paper_lower"] for row in mine]
        plots.curve(axes, layer, lower, index, linestyle="--", linewidth=0.8, color=shade)
        plots.points(
            axes, layer, [row["length"] for row in mine], [row["length_error"] for row in mine], index, f"{density:g}",
            color=shade, linestyle="-", linewidth=1.1, markersize=4.5,
        )  # fmt: skip
    axes.plot([], [], "--", color="#333333", linewidth=0.8, label="lower bound\n(Corollary 1)\nof that density")
    axes.set_yscale("log")
    axes.set(xlabel="layer $d$", ylabel=r"mean length of the trajectory, $E\,\ell(z^{(d)})$")
    axes.set_xticks(range(setting.depth + 1))
    measured_first = sorted(zip(*axes.get_legend_handles_labels(), strict=True), key=lambda one: "bound" in one[1])
    handles, labels = zip(*measured_first, strict=True)
    axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), title=r"density $\alpha$")
    return picture
