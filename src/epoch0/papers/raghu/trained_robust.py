"""Raghu Figure 6 (section 3.1): accuracy of trained conv nets against noise added to the weights of one layer.

The paper does not say whether its network had batch norm, nor in what unit its noise of "0.25 magnitude" is. All four
combinations are shown and judged: with equal sigma_w^2 the weights of a layer with many inputs are small, so that noise
of one absolute size is much more for it than for the first layer.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most, between
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu import trained_nets
from epoch0.papers.raghu.trained_nets import NORMED, PLAIN, Measured, Setting, accurate, conv_nets, gather

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

UNITS = ("absolute", "relative")

PRINTED_NOISE = 0.25
"""Of which the caption says what it costs."""

FIFTH = "conv4"
"""Layer 5 as Figure 4 numbers them, pools counted."""


def noise_sizes(setting: Setting, unit: str) -> tuple[float, ...]:
    """Sizes of the noise in that unit."""
    return setting.spec.absolute if unit == "absolute" else setting.spec.relative


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row for each kind of network, unit, layer and size of the noise."""
    rows = []
    for found in gather(setting, results):
        for unit in UNITS:
            mean, error = mean_and_error(_accuracy(found, unit))
            cost, cost_error = mean_and_error(found.clean[:, None, None] - _accuracy(found, unit))
            rows += [
                {
                    "networks": found.name, "runs": found.runs, "noise": unit, "layer": layer, "size": size,
                    "accuracy": mean[i, j], "accuracy_error": error[i, j], "cost": cost[i, j],
                    "cost_error": cost_error[i, j],
                }
                for i, layer in enumerate(found.weighted)
                for j, size in enumerate(noise_sizes(setting, unit))
            ]  # fmt: skip
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """The caption of Figure 6, for networks with and without batch norm and for both units of noise."""
    every = gather(setting, results)
    decided = accurate(setting, every)
    for found in every:
        for unit in UNITS:
            decided += _earlier(found, unit)
    if setting.spec.data == "cifar10":
        for found in every:
            for unit in UNITS:
                decided += _printed(setting, found, unit)
    return decided


def _earlier(found: Measured, unit: str) -> list[Claim]:
    """Earlier layers are less robust."""
    kept = _accuracy(found, unit).mean(2)  # over the sizes, (runs, layers)
    more, more_error = mean_and_error(kept[:, 1:] - kept[:, :1])
    places = np.arange(kept.shape[1]) - (kept.shape[1] - 1) / 2
    slope, slope_error = mean_and_error(kept @ places / (places @ places))
    said = f"{found.name}, {unit} noise"
    return [
        at_least(
            f"{said}: the first layer is the least robust: accuracy with noise in another one, less that with noise in "
            "it", more, more_error, 0.0, found.runs, found.weighted[1:],
        ),
        at_least(
            f"{said}: earlier layers are less robust: rise of accuracy a layer", [slope], [slope_error], 0.0,
            found.runs, ["slope"],
        ),
    ]  # fmt: skip


def _printed(setting: Setting, found: Measured, unit: str) -> list[Claim]:
    """What noise of 0.25 costs in the first and in the fifth layer; only said of CIFAR-10."""
    size = noise_sizes(setting, unit).index(PRINTED_NOISE)
    cost = found.clean[:, None] - _accuracy(found, unit)[:, :, size]
    (first, fifth), (first_error, fifth_error) = mean_and_error(cost[:, [0, found.weighted.index(FIFTH)]])
    said = f"{found.name}, {unit} noise of {PRINTED_NOISE:g}"
    return [
        between(f"{said} in the first layer costs 0.7 in accuracy, to 0.1", [first], [first_error], 0.6, 0.8,
                found.runs, ["cost"]),
        at_most(f"{said} in the fifth layer costs 0.02, at most 0.05", [fifth], [fifth_error], 0.05, found.runs,
                ["cost"]),
    ]  # fmt: skip


def _accuracy(found: Measured, unit: str) -> Array:
    """Accuracy with noise in that unit, shape (runs, layers, sizes)."""
    return found.absolute if unit == "absolute" else found.relative


def draw(setting: Setting, results: Results) -> "Figure":
    """Accuracy against noise, one line a layer; a row of panels for each kind of network, a column for each unit."""
    every = gather(setting, results)
    picture, grid = plots.figure(9.2, 3.3 * len(every) + 1.4, len(every), len(UNITS), squeeze=False, sharey=True)
    for row, found in zip(grid, every, strict=True):
        for axes, unit in zip(row, UNITS, strict=True):
            _panel(axes, found, unit, noise_sizes(setting, unit))
        row[0].set_ylabel("test accuracy")
    for axes, unit in zip(grid[-1], ("in units of the weights", "relative to the layer's weights"), strict=True):
        axes.set_xlabel(f"noise (standard deviation), {unit}")
    handles, labels = grid[0][0].get_legend_handles_labels()
    plots.legend_below(picture, handles, labels, columns=5)
    return picture


def _panel(axes: "Axes", found: Measured, unit: str, sizes: tuple[float, ...]) -> None:
    mean, error = mean_and_error(_accuracy(found, unit))
    for place, layer in enumerate(found.weighted):
        beside = 1.0 + 0.02 * (place - (len(found.weighted) - 1) / 2)  # so that bars do not hide each other
        plots.points(axes, (np.array(sizes) * beside).tolist(), mean[place].tolist(), error[place].tolist(), place,
                     f"noise in {layer}", linestyle="-", linewidth=1.0)  # fmt: skip
    axes.axhline(found.clean.mean(), color=plots.BOUND, linestyle="--", linewidth=1.0, label="without noise")
    axes.set(xscale="log", title=f"{found.name}, {unit} noise", ylim=(0, 1.03))
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()


def about(setting: Setting) -> str:
    """The setting in one line."""
    draws, tested = setting.spec.draws, setting.spec.tested
    return (
        f"{trained_nets.about(setting)} of each kind, {draws} draws of noise, {tested} test images; bars: two standard "
        "errors"
    )


ARTIFACTS = (
    OldArtifact(
        "raghu/fig6", "Accuracy against noise in one layer's weights", "Raghu et al., Figure 6, section 3.1",
        conv_nets(PLAIN, NORMED), trained_nets.trials, table, claims, draw, trained_nets.data, about,
        trained_nets.costs,
    ),
)  # fmt: skip
