"""Hanin-Rolnick Figure 5 (section 3.1): regions on lines, over the number of neurons, through training."""

import math
from typing import TYPE_CHECKING

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most, between, equal_within_error, exact, fitted_exponent
from epoch0.papers.catalogue import Results
from epoch0.papers.hanin_rolnick.architectures import Measured, Setting, gather, means, turn
from epoch0.papers.means import mean_and_error
from epoch0.theory.regions import upper_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESOLUTION = 0.05
"""Architectures agree if a relative difference of this size would have been seen and was not."""

EXPONENT = 0.1
"""Regions are proportional to neurons if the fitted exponent is this near to 1."""

CLOSE = 1.25
"""The constant is "very close to 1" if it is within this factor."""

PER_NEURON = 2.0
"""Regions a neuron that are still "linear in the number of neurons"; the exponential bounds allow far more."""


def most(found: Measured) -> int:
    """The most regions that any weights give on a line: a layer cuts each piece at most once a neuron."""
    return upper_bound([found.spec.width] * found.spec.depth, inputs=1)


def claims(setting: Setting, results: Results) -> list[Claim]:
    """The three observations of section 3.1, and how far the counts are from what is possible."""
    found = gather(setting, results)
    names, runs = [one.name for one in found], setting.runs
    start, start_error = means([one.start_regions for one in found])
    networks = runs + setting.random
    neurons = [float(one.spec.neurons) for one in found]
    breaks = start - 1 / np.array(neurons)  # a line has one region without any neuron: 3 % of those of 32 neurons
    exponent, error = fitted_exponent(neurons, start * neurons, start_error * neurons)
    turns = [turn(one.regions, lowest=True) for one in found]
    fall, fall_error = means([one[0] for one in turns])
    rise, rise_error = means([one[1] for one in turns])
    when = [f"{one.name} (lowest near epoch {one.epoch[max(t[2])]:.2g})" for one, t in zip(found, turns, strict=True)]
    every = [mean_and_error(one.regions) for one in found]
    places = [f"{one.name}, epoch {epoch:.2g}" for one in found for epoch in one.epoch]
    shares = [float(one.counts.max()) / most(one) for one in found]
    return [
        equal_within_error(
            "before training all architectures have the same number of break points (regions but one) a neuron",
            breaks[None], start_error[None], networks, resolution=RESOLUTION, settings=["before training"],
            groups=names,
        ),
        between(
            "before training the number of regions grows in proportion to the number of neurons (exponent)",
            [exponent], [error], [1 - EXPONENT], [1 + EXPONENT], networks * len(found), ["all architectures"],
        ),
        between(
            "before training there is about one region a neuron", start, start_error, 1 / CLOSE, CLOSE, networks, names
        ),
        at_least("the number of regions falls in the initial part of training", fall, fall_error, 0.0, runs, when),
        at_least("... and then rises until the end", rise, rise_error, 0.0, runs, when),
        at_most(
            f"there are at most {PER_NEURON:g} regions a neuron, throughout training",
            np.concatenate([mean for mean, _ in every]), np.concatenate([error for _, error in every]),
            PER_NEURON, runs, places,
        ),
        exact(
            "no line has a quarter of the regions that its network could give it, (width + 1)^depth",
            max(shares) < 0.25,
            "; ".join(
                f"{one.name}: {int(one.counts.max())} of {most(one):,}"
                for one in (min(found, key=most), max(found, key=most))
            ),
            {"largest_share": max(shares), "smallest_share": min(shares)},
        ),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """Left and middle: regions a neuron against epochs, the beginning enlarged; right: before training, all lines."""
    found = gather(setting, results)
    picture, panels = plots.figure(11.0, 4.4, mosaic=[["early", "all", "start"]], width_ratios=[0.8, 1.3, 1.0])
    early = max(2.0, setting.at[-1] / 10)
    for name, last in (("early", early), ("all", math.inf)):
        axes = panels[name]
        for one in found:
            curve(axes, setting, one, one.regions, last)
        axes.axhline(1.0, color=plots.BOUND, linestyle=":", linewidth=0.9)
        axes.set_xlabel("epoch")
    panels["early"].set(ylabel="regions on a line / neurons", title="the beginning", xlim=(0, early))
    panels["all"].set(title="all of training")
    panels["all"].sharey(panels["early"])
    handles, labels = panels["all"].get_legend_handles_labels()
    plots.legend_below(picture, handles, labels, columns=5)
    _start(panels["start"], setting, found)
    return picture


def curve(axes: "Axes", setting: Setting, one: Measured, values: np.ndarray, last: float = math.inf) -> None:
    """Mean over runs against epochs with a band of two standard errors; colour tells the width, dashes the depth."""
    mean, error = mean_and_error(values)
    keep = one.epoch <= last
    keep[: min(len(keep), int(keep.sum()) + 1)] = True  # the stretch that leaves the panel too
    colour = plots.COLOURS[setting.widths.index(one.spec.width)]
    style = plots.LINES[setting.depths.index(one.spec.depth)]
    axes.plot(one.epoch[keep], mean[keep], color=colour, linestyle=style, linewidth=1.2, label=one.name)
    low, high = (mean - 2 * error)[keep], (mean + 2 * error)[keep]
    axes.fill_between(one.epoch[keep], low, high, color=colour, alpha=0.09, linewidth=0)


def _start(axes: "Axes", setting: Setting, found: list[Measured]) -> None:
    """Regions before training against neurons, with the line y = x and what depth could give."""
    for index, depth in enumerate(setting.depths):
        mine = [one for one in found if one.spec.depth == depth]
        x = [one.spec.neurons for one in mine]
        values = [mean_and_error(one.start_regions * one.spec.neurons) for one in mine]
        plots.points(
            axes, x, [mean for mean, _ in values], [error for _, error in values], index, f"measured, depth {depth}",
            color="black", markerfacecolor="none",
        )  # fmt: skip
        style = plots.LINES[index]  # as at the left, where colour tells the width
        plots.curve(axes, x, [most(one) for one in mine], index, f"possible, depth {depth}", linestyle=style,
                    color="black")  # fmt: skip
    ends = np.array([min(one.spec.neurons for one in found), max(one.spec.neurons for one in found)])
    axes.plot(ends, ends, color=plots.BOUND, linestyle=":", label="one a neuron (wide limit)")
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="regions on a line", title="before training")
    ticks = sorted({one.spec.neurons for one in found})
    axes.set_xticks(ticks, [str(tick) for tick in ticks], rotation=60)
    axes.minorticks_off()
    axes.set_ylim(None, axes.get_ylim()[1] * 1e5)  # room for the legend
    axes.legend(fontsize=7.5, loc="upper left")
