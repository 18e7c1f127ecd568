"""Hanin-Rolnick Figure 8 (section 3.3): the regions in a plane through three examples, through training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, between
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.hanin_rolnick.architectures import turn
from epoch0.papers.hanin_rolnick.slices import DATA, ORDER, checks, plane
from epoch0.papers.hanin_rolnick.slices_trial import TrainedSpec
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        spec: what is trained and measured.
        runs: how many networks.
    """

    spec: TrainedSpec
    runs: int


def trials(setting: Setting) -> list[Trial]:
    """One a network."""
    function = "epoch0.papers.hanin_rolnick.slices_trial:trained_slices"
    return [Trial(function, setting.spec, seed) for seed in range(setting.runs)]


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row an epoch: regions in a plane, and accuracy, with errors over networks."""
    epoch, counts, accuracy = _gathered(results)
    neurons = setting.spec.depth * setting.spec.width
    rows = []
    for place, when in enumerate(epoch.tolist()):
        row: dict[str, Any] = {"epoch": when, "networks": setting.runs}
        row["regions"], row["regions_error"] = mean_and_error(counts[:, place])
        row["regions_per_neurons_squared"] = row["regions"] / neurons**2
        row["accuracy"], row["accuracy_error"] = mean_and_error(accuracy[:, place])
        rows.append(row)
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 3.3: the regions expand at first and then contract; their number stays of the order neurons squared."""
    epoch, counts, _ = _gathered(results)
    neurons = setting.spec.depth * setting.spec.width
    fall, rise, places = turn(counts, lowest=True)
    when = [f"lowest near epoch {epoch[max(places)]:.2g}"]
    mean, error = mean_and_error(counts / neurons**2)
    names = [f"epoch {one:.2g}" for one in epoch]
    (down, down_error), (up, up_error) = mean_and_error(fall), mean_and_error(rise)
    return [
        at_least("the number of regions falls in the initial part of training", [down], [down_error], 0.0,
                 setting.runs, when),
        at_least("... and then rises until the end", [up], [up_error], 0.0, setting.runs, when),
        between(
            f"it stays within a factor {ORDER:g} of the number of neurons squared", mean, error, 1 / ORDER, ORDER,
            setting.runs, names,
        ),
        checks(results),
    ]  # fmt: skip


def _gathered(results: Results) -> tuple[Array, Array, Array]:
    """Epochs; mean regions a plane and accuracy, (networks, epochs)."""
    epoch = np.asarray(results[0]["epoch"])
    counts = np.stack([np.asarray(one["counts"]).mean(1) for one in results])
    return epoch, counts, np.stack([np.asarray(one["accuracy"]) for one in results])


def draw(setting: Setting, results: Results) -> "Figure":
    """One plane at several epochs, a cell in one colour as long as its pattern survives; below, all counts."""
    names = [str(index) for index in range(len(setting.spec.drawn))]
    width = 3.1 * len(names)
    picture, panels = plots.figure(
        width, 6.4, mosaic=[names, ["count"] * len(names)], height_ratios=[width / len(names) / 2.6, 1.0]
    )
    for name, when in zip(names, setting.spec.drawn, strict=True):
        plane(panels[name], results[0], name)
        accuracy = float(np.asarray(results[0]["accuracy"])[setting.spec.at.index(when)])
        cells = len(np.asarray(results[0][f"cell_ends_{name}"])) - 1
        told = f"epoch {when:g}" if when else "before training"
        panels[name].set_title(f"{told}: {cells:,} regions,\ntest accuracy {accuracy:.1%}", fontsize=9)
        panels[name].tick_params(labelsize=7)
        panels[name].set_xlabel("in the plane of three examples", fontsize=8)
    axes = panels["count"]
    epoch, counts, _ = _gathered(results)
    for each in counts:
        axes.plot(epoch, each, color=plots.COLOURS[0], linewidth=0.5, alpha=0.5)
    mean, error = mean_and_error(counts)
    label = f"mean over {setting.runs} networks of {setting.spec.planes} planes each"
    plots.points(axes, epoch.tolist(), mean.tolist(), error.tolist(), 0, label, linestyle="-")
    neurons = setting.spec.depth * setting.spec.width
    axes.axhline(neurons**2 / ORDER, color=plots.BOUND, linestyle=":", label=f"neurons squared / {ORDER:g}")
    axes.set_xscale("symlog", linthresh=1.0)
    ticks = [0, 1, *[tick for tick in (2, 5, 10, 20, 50) if tick < epoch[-1]], epoch[-1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="epoch (logarithmic from 1 on)", ylabel="regions in the square", xlim=(-0.05, None))
    axes.legend()
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    spec = setting.spec
    return (
        f"{DATA.get(spec.data, spec.data)}; {setting.runs} networks of {spec.depth} hidden layers of {spec.width}, "
        f"Adam {spec.learning_rate:g}, batches of {spec.batch_size}; planes through one example of 0, 1 and 2 (dots); "
        "bars: two standard errors"
    )
