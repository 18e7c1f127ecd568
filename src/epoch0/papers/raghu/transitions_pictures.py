"""Raghu Figures 2, 5, 12 and 13 drawn: measurements with errors, bounds dashed, exact and wide-limit curves."""

from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0 import plots
from epoch0.papers.catalogue import Results
from epoch0.papers.raghu.transitions import Setting, growth_table, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _chosen(rows: list[dict[str, Any]], **given: float) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[name] == value for name, value in given.items())]


def _line(axes: "Axes", rows: list[dict[str, Any]], x: str, y: str, index: int, label: str, **more: Any) -> None:
    plots.points(axes, [row[x] for row in rows], [row[y] for row in rows], [row[f"{y}_error"] for row in rows], index,
                 label, linestyle="-", linewidth=1.0, **more)  # fmt: skip


def depth_and_width(setting: Setting, results: Results) -> "Figure":
    """Figure 2: transitions against depth, and against width."""
    rows = table(setting, results)
    picture, (left, right) = plots.figure(10.0, 5.0, columns=2, sharey=True)
    index = 0
    for width in (setting.widths[len(setting.widths) // 2], setting.widths[-1]):
        for variance in setting.variances:
            some = _chosen(rows, width=width, variance=variance)
            _line(left, some, "layer", "transitions", index, f"width {width}, $\\sigma_w^2$ = {variance:g}")
            index += 1
    left.set(xlabel="layer $d$", ylabel="transitions of the neurons of layer $d$", yscale="log")
    depths = sorted({2, setting.depth // 2, setting.depth})
    variance = setting.variances[-1]
    for index, layer in enumerate(depths):
        some = _chosen(rows, layer=layer, variance=variance)
        _line(right, some, "width", "transitions", index, f"layer {layer}, $\\sigma_w^2$ = {variance:g}")
    widths = np.array(setting.widths, dtype=float)
    base = _chosen(rows, layer=depths[0], variance=variance)[0]
    right.plot(widths, base["transitions"] * widths / widths[0], ":", color=plots.BOUND, label="proportional to width")
    right.set(xlabel="width $k$", xscale="log")
    right.set_xticks(widths, [f"{w:g}" for w in widths])
    right.minorticks_off()
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    return picture


def against_length(setting: Setting, results: Results) -> "Figure":
    """Figure 5: transitions of each layer against the trajectory's length there."""
    rows = table(setting, results)
    picture, axes = plots.figure(6.4, 5.6)
    for index, width in enumerate(setting.widths):
        for shade, variance in enumerate(setting.variances):
            some = _chosen(rows, width=width, variance=variance)
            axes.plot(
                [row["length"] for row in some], [row["transitions"] for row in some], color=plots.COLOURS[shade],
                marker=plots.MARKERS[index], linewidth=0.8, label=f"width {width}, $\\sigma_w^2$ = {variance:g}",
            )  # fmt: skip
    x = np.array([min(row["length"] for row in rows), max(row["length"] for row in rows)])
    middle = np.exp(np.mean([np.log(max(row["transitions"], 0.5) / row["length"]) for row in rows]))
    axes.plot(x, middle * x, "--", color=plots.BOUND, label="slope 1: proportional")
    axes.set(xscale="log", yscale="log", xlabel=r"length of the trajectory after layer $d$, $\ell(z^{(d)})$",
             ylabel="transitions of the neurons of layer $d$")  # fmt: skip
    plots.legend_below(picture, columns=3)
    return picture


def _told(setting: Setting, width: int, variance: float) -> str:
    """What varies."""
    if len(setting.widths) == 1:
        return f"$\\sigma_w^2$ = {variance:g}"
    return f"width {width}" if len(setting.variances) == 1 else f"width {width}, $\\sigma_w^2$ = {variance:g}"


def lengths(setting: Setting, results: Results) -> "Figure":
    """Figures 12, 13a and 13b: length against layer on a log scale."""
    rows = table(setting, results)
    picture, axes = plots.figure(6.4, 5.2)
    for index, width in enumerate(setting.widths):
        for shade, variance in enumerate(setting.variances):
            some = _chosen(rows, width=width, variance=variance)
            colour = plots.COLOURS[shade if len(setting.variances) > 1 else index]
            label = _told(setting, width, variance)
            _line(axes, some, "layer", "length", index, label, color=colour)
            known = "exact" if setting.activation == "relu" else "wide"
            if known == "exact" or width == max(setting.widths):
                ratios = np.cumprod([1.0, *(row[known] for row in some[1:])])
                axes.plot([row["layer"] for row in some], some[0]["length"] * ratios, ":", color=colour, linewidth=1.0)
    told = "exact growth" if setting.activation == "relu" else r"wide limit $\sqrt{\chi}$, widest network"
    axes.plot([], [], ":", color="#333333", linewidth=1.0, label=f"{told}, from layer 1 on")
    axes.set(yscale="log", xlabel="layer $d$", ylabel=r"mean length of the trajectory, $E\,\ell(z^{(d)})$")
    axes.set_xticks(range(1, setting.depth + 1, max(1, setting.depth // 10)))
    plots.legend_below(picture, columns=3)
    return picture


def growth_over_width(setting: Setting, results: Results) -> "Figure":
    """Figure 13c: growth ratio against width, one colour a variance."""
    return _growth(setting, results, "width", "variance", r"$\sigma_w^2$ = {:g}", "width $k$")


def growth_over_variance(setting: Setting, results: Results) -> "Figure":
    """Figure 13d: growth ratio against variance, one colour a width."""
    return _growth(setting, results, "variance", "width", "width {:g}", r"variance of the weights, $\sigma_w^2$")


def _growth(setting: Setting, results: Results, swept: str, other: str, label: str, axis: str) -> "Figure":
    rows = growth_table(setting, results)
    picture, axes = plots.figure(6.4, 5.4)
    for index, value in enumerate(sorted({row[other] for row in rows})):
        some = sorted(_chosen(rows, **{other: value}), key=lambda row: row[swept])
        x, colour = [row[swept] for row in some], plots.COLOURS[index]
        _line(axes, some, swept, "growth", index, label.format(value), color=colour)
        for bound in ("lower", "upper"):
            axes.plot(x, [row[bound] or np.nan for row in some], "--", color=colour, linewidth=0.9, alpha=0.8)
        if swept == "variance" and value != max(setting.widths):
            continue  # one wide limit for all widths
        axes.plot(x, [row["wide"] for row in some], ":", color=colour if swept == "width" else "#000000", linewidth=1.3)
    axes.plot([], [], "--", color="#333333", linewidth=0.9, label="bounds of Theorem 3 and D.2")
    axes.plot([], [], ":", color="#000000", linewidth=1.3, label=r"wide limit $\sqrt{\chi}$")
    axes.axhline(1.0, color="#333333", linewidth=0.7, zorder=1)
    axes.set(xscale="log", yscale="log", xlabel=axis, ylabel=r"growth a layer, $\|dz^{(d+1)}\|/\|dz^{(d)}\|$")
    ticks = sorted({row[swept] for row in rows})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    marks = [v for v in (0.25, 0.5, 1, 2, 4, 8) if v <= 1.2 * max(row["upper"] for row in rows)]
    axes.set_yticks(marks, [f"{v:g}" for v in marks])
    axes.set_ylim(0.2, 1.2 * max(row["upper"] for row in rows))
    plots.legend_below(picture, columns=3)
    return picture
