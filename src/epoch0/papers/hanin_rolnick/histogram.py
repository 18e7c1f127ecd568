"""Hanin-Rolnick Figure 7 (section 3.2): the whole distribution of distances to the nearest boundary."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, between
from epoch0.papers.catalogue import Results
from epoch0.papers.hanin_rolnick.architectures import Measured, Setting, gather, means

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

STAGES = ("before training", "during training", "after training")

DECADES = 2.0
""""Many orders of magnitude": from the first to the 99th percentile at least this many powers of ten."""

SHIFT = 0.5
"""The distribution changes little if the mean of log10 moves by at most this part of its standard deviation."""

BINS = np.linspace(-8, 1, 91)
"""Of log10 of the distance."""


def stages(setting: Setting, results: Results) -> tuple[Measured, list[int]]:
    """The one architecture, and the epochs that are shown: before, about a tenth of the way, after."""
    (found,) = gather(setting, results)
    middle = int(np.argmin(np.abs(found.epoch - 0.1 * found.epoch[-1])))
    return found, [0, middle, len(found.epoch) - 1]


def logs(found: Measured, place: int) -> Array:
    """log10 of the distances at that epoch, (runs, points)."""
    return np.asarray(np.log10(np.maximum(found.distance[:, place], 1e-300)))


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a stage and bin of log10 distance: share of the points, and its standard error over runs."""
    found, places = stages(setting, results)
    rows = []
    for stage, place in zip(STAGES, places, strict=True):
        shares, errors = _shares(found, place)
        for low, high, share, error in zip(BINS, BINS[1:], shares, errors, strict=False):
            rows.append(
                {
                    "stage": stage,
                    "epoch": float(found.epoch[place]),
                    "log10_distance_from": round(float(low), 6),
                    "log10_distance_to": round(float(high), 6),
                    "share": float(share),
                    "share_error": float(error),
                }
            )
    return rows


def _shares(found: Measured, place: int) -> tuple[Array, Array]:
    values = np.clip(logs(found, place), BINS[0], BINS[-1])
    shares = np.stack([np.histogram(run, BINS)[0] / len(run) for run in values])
    return shares.mean(0), shares.std(0, ddof=1) / len(shares) ** 0.5


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 3.2: many orders of magnitude, little change, a slight skew towards larger regions."""
    found, places = stages(setting, results)
    every = [logs(found, place) for place in places]
    decades, error = means([np.quantile(one, 0.99, axis=1) - np.quantile(one, 0.01, axis=1) for one in every])
    moved = [one.mean(1) - every[0].mean(1) for one in every[1:]]
    shift, shift_error = means([one / every[0].std(axis=1) for one in moved])
    larger, larger_error = means(moved)
    return [
        at_least(
            f"from the 1st to the 99th percentile distances span at least {DECADES:g} orders of magnitude",
            decades, error, DECADES, setting.runs, STAGES,
        ),
        between(
            f"the mean of log10 of the distance moves by at most {SHIFT:g} of its standard deviation",
            shift, shift_error, -SHIFT, SHIFT, setting.runs, STAGES[1:],
        ),
        at_least(
            "training moves the distances towards larger ones (mean of log10, against before training)",
            larger, larger_error, 0.0, setting.runs, STAGES[1:],
        ),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """Histograms of log10 distance before, during and after training, bars of two standard errors over runs."""
    found, places = stages(setting, results)
    picture, axes = plots.figure(7.0, 4.4)
    middle = 0.5 * (BINS[1:] + BINS[:-1])
    first, last = len(middle), 0
    for index, (stage, place) in enumerate(zip(STAGES, places, strict=True)):
        shares, errors = _shares(found, place)
        label = f"{stage} (epoch {found.epoch[place]:.2g})" if index else stage
        axes.stairs(shares, BINS, color=plots.COLOURS[index], linewidth=1.3, label=label)
        axes.errorbar(
            middle, shares, yerr=2 * errors, linestyle="none", color=plots.COLOURS[index], elinewidth=0.8, alpha=0.7
        )
        axes.axvline(logs(found, place).mean(), color=plots.COLOURS[index], linestyle=":", linewidth=1.0)
        filled = np.flatnonzero(shares)
        first, last = min(first, int(filled[0])), max(last, int(filled[-1]))
    axes.plot([], [], color=plots.BOUND, linestyle=":", linewidth=1.0, label="means")
    axes.set_xlim(BINS[max(first - 1, 0)], BINS[min(last + 2, len(BINS) - 1)])
    axes.set(xlabel="log₁₀ of the distance to the nearest boundary", ylabel="share of the points")
    axes.set_ylim(0, None)
    axes.legend(loc="upper left")
    return picture
