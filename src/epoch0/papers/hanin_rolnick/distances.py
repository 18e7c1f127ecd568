"""Hanin-Rolnick Figures 6a to 6c (section 3.2): distance to the nearest boundary of a region, through training."""

from typing import TYPE_CHECKING

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, between, equal_within_error, fitted_exponent
from epoch0.papers.catalogue import Results
from epoch0.papers.hanin_rolnick.architectures import Measured, Setting, gather, means, turn
from epoch0.papers.hanin_rolnick.line_counts import curve
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESOLUTION = 0.05
"""Architectures agree if a relative difference of this size would have been seen and was not."""

EXPONENT = 0.1
"""Distances are as 1/neurons if the fitted exponent is this near to -1."""

ORDER_ONE = (0.1, 10.0)
"""What "a constant of order 1" allows."""


def claims_a(setting: Setting, results: Results) -> list[Claim]:
    """Section 3.2: the distance is about C / neurons, first increases and then decreases."""
    found = gather(setting, results)
    neurons = [float(one.spec.neurons) for one in found]
    claims = []
    products = {
        "before training": [one.start_product for one in found], "after training": [one.product[:, -1] for one in found]
    }  # fmt: skip
    for when, values in products.items():
        distance, error = means([one / n for one, n in zip(values, neurons, strict=True)])
        exponent, exponent_error = fitted_exponent(neurons, distance, error)
        claims.append(
            between(
                f"{when} the mean distance is inversely proportional to the number of neurons (exponent)",
                [exponent], [exponent_error], [-1 - EXPONENT], [-1 + EXPONENT], sum(len(one) for one in values),
                ["all architectures"],
            )
        )  # fmt: skip
    every = [mean_and_error(one.product) for one in found]
    places = [f"{one.name}, epoch {epoch:.2g}" for one in found for epoch in one.epoch]
    product, error = (np.concatenate([pair[index] for pair in every]) for index in range(2))
    return [
        *claims,
        between(
            f"neurons x distance stays between {ORDER_ONE[0]:g} and {ORDER_ONE[1]:g} throughout training",
            product, error, *ORDER_ONE, setting.runs, places,
        ),
        *_turns(setting, found),
    ]  # fmt: skip


def claims_b(setting: Setting, results: Results) -> list[Claim]:
    """Section 3.2 on Figure 6b: one product for all networks at first; it rises and falls again."""
    found = gather(setting, results)
    start, error = means([one.start_product for one in found])
    return [
        equal_within_error(
            "before training neurons x distance is the same for all architectures",
            start[None], error[None], setting.runs + setting.random, resolution=RESOLUTION,
            settings=["before training"], groups=[one.name for one in found],
        ),
        *_turns(setting, found),
    ]  # fmt: skip


def claims_c(setting: Setting, results: Results) -> list[Claim]:
    """Section 3.2 on Figure 6c: regions expand while accuracy rises, then contract while it rises further."""
    found = gather(setting, results)
    before, after = [], []
    for one in found:
        rows, at = np.arange(setting.runs), turn(one.product, lowest=False)[2]
        before.append(one.accuracy[rows, at] - one.accuracy[:, 0])
        after.append(one.accuracy[:, -1] - one.accuracy[rows, at])
    names = [one.name for one in found]
    return [
        at_least(
            "test accuracy rises while the regions expand", *means(before), 0.0, setting.runs, names
        ),
        at_least(
            "... and rises further after the distance has begun to fall", *means(after), 0.0, setting.runs, names
        ),
        *_turns(setting, found),
    ]  # fmt: skip


def _turns(setting: Setting, found: list[Measured]) -> list[Claim]:
    turns = [turn(one.product, lowest=False) for one in found]
    rise, rise_error = means([one[0] for one in turns])
    fall, fall_error = means([one[1] for one in turns])
    when = [f"{one.name} (highest near epoch {one.epoch[max(t[2])]:.2g})" for one, t in zip(found, turns, strict=True)]
    runs = setting.runs
    return [
        at_least("neurons x distance first rises in training", rise, rise_error, 0.0, runs, when),
        at_least("... and then falls until the end", fall, fall_error, 0.0, runs, when),
    ]


def draw_a(setting: Setting, results: Results) -> "Figure":
    """Mean distance against neurons, at several epochs, with the constants between which it lies."""
    found = gather(setting, results)
    picture, axes = plots.figure(6.4, 5.4)
    chosen = _some(found[0].epoch)
    for index, place in enumerate(chosen):
        products = [one.product[:, place] if place else one.start_product for one in found]
        values = [mean_and_error(each / one.spec.neurons) for each, one in zip(products, found, strict=True)]
        shift = 1 + 0.025 * (index - len(chosen) / 2)  # beside each other, not on top
        x = [one.spec.neurons * shift for one in found]
        label = f"epoch {found[0].epoch[place]:.2g}" if place else "before training"
        plots.points(axes, x, [mean for mean, _ in values], [error for _, error in values], index, label)
    ends = np.array(sorted({one.spec.neurons for one in found}), dtype=float)
    every = np.stack([mean_and_error(one.product)[0] for one in found])
    for bound, which in ((every.min(), "smallest"), (every.max(), "largest")):
        axes.plot(ends, bound / ends, color=plots.BOUND, linestyle=":" if which == "smallest" else "--",
                  label=f"{bound:.2g} / neurons ({which} of all means)", zorder=1.4)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="mean distance to the nearest boundary")
    axes.set_xticks(ends, [f"{tick:g}" for tick in ends])
    low, high = axes.get_ylim()
    ticks = [tick for tick in (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2) if low < tick < high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    plots.legend_below(picture, *axes.get_legend_handles_labels(), columns=2)
    return picture


def draw_b(setting: Setting, results: Results) -> "Figure":
    """Neurons times distance against epochs, the beginning enlarged."""
    found = gather(setting, results)
    picture, panels = plots.figure(9.0, 4.6, mosaic=[["early", "all"]], width_ratios=[0.8, 1.3])
    early = max(2.0, setting.at[-1] / 10)
    for one in found:
        curve(panels["early"], setting, one, one.product, early)
        curve(panels["all"], setting, one, one.product)
    panels["early"].set(ylabel="neurons × mean distance", title="the beginning", xlim=(0, early), xlabel="epoch")
    panels["all"].set(title="all of training", xlabel="epoch")
    panels["all"].sharey(panels["early"])
    plots.legend_below(picture, *panels["all"].get_legend_handles_labels(), columns=4)
    return picture


def draw_c(setting: Setting, results: Results) -> "Figure":
    """Neurons times distance against test accuracy; training runs from left to right."""
    found = gather(setting, results)
    picture, axes = plots.figure(7.0, 5.4)
    for one in found:
        accuracy, accuracy_error = mean_and_error(one.accuracy)
        product, error = mean_and_error(one.product)
        width = setting.widths.index(one.spec.width)
        style = plots.LINES[setting.depths.index(one.spec.depth)]
        # errors of shares are drawn inside (0, 1), as the axis has no room for more
        low, high = (np.clip(accuracy + sign * 2 * accuracy_error, 1e-3, 1 - 1e-4) for sign in (-1, 1))
        axes.errorbar(
            accuracy, product, xerr=[accuracy - low, high - accuracy], yerr=2 * error, color=plots.COLOURS[width],
            marker=plots.MARKERS[width], markersize=2.8, linestyle=style, linewidth=1.0, elinewidth=0.4,
            label=one.name,
        )  # fmt: skip
        axes.plot(accuracy[-1], product[-1], marker="x", color="black", markersize=6, zorder=4)
    axes.plot([], [], "kx", label="end of training")
    axes.set_xscale("logit")
    ticks = [0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99]
    axes.set_xticks(ticks, [f"{100 * tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="test accuracy (%, stretched towards its ends)", ylabel="neurons × mean distance")
    axes.set_xlim(0.06, max(0.992, 1 - 0.5 * (1 - max(float(one.accuracy.mean(0).max()) for one in found))))
    axes.set_ylim(0, None)
    plots.legend_below(picture, *axes.get_legend_handles_labels(), columns=4)
    return picture


def _some(epochs: np.ndarray, count: int = 4) -> list[int]:
    """Before training, the end, and epochs between them that are spread over a logarithmic scale."""
    wanted = np.geomspace(max(float(epochs[1]), 0.4), float(epochs[-1]), count - 1)
    return sorted({0, *(int(np.argmin(np.abs(np.log(epochs[1:] / one)))) + 1 for one in wanted)})
