"""Arpit-Bengio Figures 1a, 1b drawn: both initializations at every layer, and He's at each width in its exact band."""

from typing import TYPE_CHECKING, Any

from epoch0 import plots
from epoch0.papers.arpit_bengio.depth import Setting, gather, rows_of, table
from epoch0.papers.arpit_bengio.laws import Quantity
from epoch0.papers.arpit_bengio.norms import INITS
from epoch0.papers.catalogue import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS: dict[Quantity, str] = {
    "activation": r"$\|h^l\|\,/\,\|x\|$",
    "gradient": r"$\|\partial W^l\|_F\,/\,(\|\delta\|\,\|x\|)$",
}


_LAWS: dict[Quantity, str] = {"activation": "exact law", "gradient": "law under independence"}
"""The backward pass is taken as independent of the forward pass, as the paper does."""

_SHOWN = 40
"""Networks that are drawn one by one."""


def draw(quantity: Quantity, setting: Setting, results: Results) -> "Figure":
    """Above, as in the paper, every width under both initializations; below, He's at each width apart."""
    rows = table(quantity, setting, results)
    small = [f"width {width}" for width in setting.widths]
    mosaic = [["all"] * len(small), small]
    picture, panels = plots.figure(7.6, 6.2, mosaic=mosaic, height_ratios=[1.5, 1.0])
    _overview(panels["all"], quantity, setting, rows)
    kinds = gather(setting, results)
    edge = 1.05 * max(abs(row[name] - 1) for row in rows_of(rows, "he") for name in ("exact_low", "exact_high"))
    for index, (name, width) in enumerate(zip(small, setting.widths, strict=True)):
        axes, mine = panels[name], rows_of(rows, "he", width)
        layers = [row["layer"] for row in mine]
        axes.fill_between(
            layers, [row["exact_low"] for row in mine], [row["exact_high"] for row in mine], color="#cccccc",
            edgecolor="#aaaaaa", linewidth=0.6, label=f"{_LAWS[quantity]}: 95 % of inputs and networks", zorder=1.0,
        )  # fmt: skip
        for network in kinds["he", width].found[quantity][:_SHOWN]:
            axes.plot(layers, network, color=plots.COLOURS[index], alpha=0.25, linewidth=0.5, zorder=1.2)
        axes.plot([], [], color="#777777", linewidth=0.7, label="a network, mean over its inputs")
        middle = [row["exact_mean"] for row in mine]
        axes.plot(layers, middle, "k--", linewidth=1.0, zorder=1.6, label=f"mean of the {_LAWS[quantity]}")
        _measured(axes, mine, index, "")
        axes.set(title=f"He, {name}", ylim=(1 - edge, 1 + edge), xticks=_ticks(setting.depth), xlabel="layer $l$")
        axes.set_ylabel(_LABELS[quantity] if index == 0 else "")
        if index:
            axes.tick_params(labelleft=False)
    handles, labels = panels[small[0]].get_legend_handles_labels()
    plots.legend_below(picture, handles, labels, columns=3 if quantity == "activation" else 2)
    return picture


def _overview(axes: "Axes", quantity: Quantity, setting: Setting, rows: list[dict[str, Any]]) -> None:
    """Both initializations on a log scale."""
    for init in INITS:
        for index, width in enumerate(setting.widths):
            mine = rows_of(rows, init, width)
            line = "-" if init == "he" else "--"
            exact = [row["exact_mean"] for row in mine]
            plots.curve(axes, [row["layer"] for row in mine], exact, index, linestyle=line, linewidth=0.9)
            _measured(axes, mine, index, f"{init.title()}, width {width}", hollow=init == "glorot")
    axes.plot([], [], color="#333333", linewidth=0.9, label=f"{_LAWS[quantity]}, He (mean)")
    axes.plot([], [], "--", color="#333333", linewidth=0.9, label=f"{_LAWS[quantity]}, Glorot (mean)")
    axes.set_yscale("log")
    axes.set(xlabel="layer $l$", ylabel=_LABELS[quantity], xticks=range(1, setting.depth + 1))
    handles, labels = axes.get_legend_handles_labels()
    points_first = sorted(zip(handles, labels, strict=True), key=lambda one: "mean" in one[1])  # and then the lines
    place = "lower left" if quantity == "activation" else "center"
    if quantity == "activation":
        axes.set_ylim(bottom=0.5 * axes.get_ylim()[0])  # room for the legend
    axes.legend(*zip(*points_first, strict=True), loc=place, ncols=2)


def _measured(axes: "Axes", rows: list[dict[str, Any]], index: int, label: str, hollow: bool = False) -> None:
    plots.points(
        axes, [row["layer"] for row in rows], [row["ratio"] for row in rows], [row["ratio_error"] for row in rows],
        index, label, markerfacecolor="none" if hollow else None, markersize=4.0,
    )  # fmt: skip


def _ticks(depth: int) -> range:
    return range(1, depth + 1, 3 if depth > 6 else 1)
