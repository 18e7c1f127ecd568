"""Hanin-Rolnick Figures 5 to 7 (sections 3.1, 3.2): regions on lines and distances to boundaries, through training.

They share their runs. The paper prints depths and widths in a legend that is lost; 4 x 16 and 3 x 64 are in its text.
"""

from functools import partial
from typing import Any

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import at_least, at_most, between, equal_within_error, exact
from epoch0.papers.hanin_rolnick.runs import run, turn, untrained
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Array, Claims, Table, by, mean_and_error, means, over_runs, power
from epoch0.theory.regions import upper_bound

RESOLUTION = 0.05  # architectures agree if they differ by less than this, relatively
EXPONENT = 0.1  # regions go as neurons, and distances as 1/neurons, if the fitted exponent is this near to 1, or to -1
CLOSE = 1.25  # the constant is "very close to 1" if it is within this factor
PER_NEURON = 2.0  # regions a neuron that are still "linear in the number of neurons"; exponential bounds allow far more
ORDER_ONE = (0.1, 10.0)  # what "a constant of order 1" allows
STAGES = ("before training", "during training", "after training")
DECADES = 2.0  # "many orders of magnitude": from the first to the 99th percentile at least so many powers of ten
SHIFT = 0.5  # the distribution changes little if the mean of log10 moves by at most this part of its standard deviation
BINS = np.linspace(-8, 1, 91)  # of log10 of the distance
_PLACE = "depth {depth}, width {width}, epoch {epoch:.2g}"


class Runs:
    """The runs of one architecture, and how they and further networks are before training, regions a neuron."""

    def __init__(self, cell: Cell, more: Cell | None = None) -> None:
        self.cell, self.spec, self.neurons = cell, cell.spec, cell.spec.depth * cell.spec.width
        self.name = "depth {depth}, width {width}".format_map(cell.at)
        self.epoch: Array = cell["epoch"][0]
        # the most regions that any weights give on a line: a layer cuts each piece at most once a neuron
        self.most = upper_bound([self.spec.width] * self.spec.depth, inputs=1)
        # regions a line, per neuron, and distance times neurons, means, (runs, epochs)
        self.regions: Array = self["counts"].mean(-1) / self.neurons
        self.product: Array = self["distance"].mean(-1) * self.neurons
        # the same before training, the further networks among them, (networks,)
        self.start_regions = np.append(self.regions[:, 0], more["counts"][0] / self.neurons if more else [])
        self.start_product = np.append(self.product[:, 0], more["distance"][0] * self.neurons if more else [])

    def __getitem__(self, name: str) -> Array:
        """Shape (runs, epochs, ...): those of one trial were trained together."""
        found = self.cell[name]
        return found.reshape(-1, *found.shape[2:])


def gather(found: Found) -> list[Runs]:
    """Each architecture."""
    more = found.also.get("untrained")
    return [Runs(cell, more.one(**cell.at) if more else None) for cell in found]


def table(found: Found) -> Table:
    """One row an architecture and epoch: regions on lines, distances and accuracy, with errors over runs."""

    def measured(cell: Cell) -> dict[str, Any]:
        one = Runs(cell)
        counts, linear, away = one["counts"], one["linear"], one["distance"]
        share = linear.mean(-1) / counts[..., : linear.shape[-1]].mean(-1)
        found = {"accuracy": one["accuracy"], "regions": counts.mean(-1), "regions_per_neuron": one.regions}
        return {**found, "linear_share": share, "distance": away.mean(-1), "neurons_times_distance": one.product}

    def beside(cell: Cell, epoch: float) -> dict[str, Any]:
        one = Runs(cell)
        return {"neurons": one.neurons, "most_regions": int(one["counts"][:, one.epoch == epoch].max())}

    return found.rows(measured, beside, epoch=found.cells[0]["epoch"][0].tolist())


def claims_5(found: Found) -> Claims:
    """The three observations of section 3.1, and how far the counts are from what is possible."""
    each = gather(found)
    names, starts = [one.name for one in each], [one.start_regions for one in each]
    (start, error), networks = means(starts), len(starts[0])
    neurons = np.array([float(one.neurons) for one in each])
    breaks = start - 1 / neurons  # a line has one region without any neuron: 3 % of those of 32 neurons
    worst = max(each, key=lambda one: one["counts"].max() / one.neurons)
    most = int(worst["counts"].max())
    told = f"{worst.name}: {most} regions, {worst.neurons} neurons, of {worst.most:,} that are possible"
    same = {"resolution": RESOLUTION, "settings": ["before training"], "groups": names}
    return {
        "before training all architectures have the same number of break points (regions but one) a neuron": by(
            equal_within_error, breaks[None], error[None], networks, **same
        ),
        "before training the number of regions grows in proportion to the number of neurons (exponent)": power(
            neurons, start * neurons, error * neurons, networks * len(each), 1.0, EXPONENT, "all architectures"
        ),
        "before training there is about one region a neuron": over_runs(between, starts, 1 / CLOSE, CLOSE, names=names),
        **_turns(each, "regions", "the number of regions falls in the initial part of training"),
        f"there are at most {PER_NEURON:g} regions a neuron, throughout training": found.table.claim(
            at_most, "regions_per_neuron", PER_NEURON, names=_PLACE
        ),
        f"no line ever has more than {PER_NEURON:g} regions a neuron, where (width + 1)^depth are possible": by(
            exact, most <= PER_NEURON * worst.neurons, told, {"most": most}
        ),
    }


def _turns(each: list[Runs], of: str, there: str) -> Claims:
    """``"regions"`` fall to a lowest number, or the ``"product"`` rises to a highest, and both go back."""
    curves = [getattr(one, of) for one in each]
    turns = [turn(one, lowest=of == "regions") for one in curves]
    which, back = ("lowest", "rises") if of == "regions" else ("highest", "falls")
    when = [f"{one.name} ({which} near epoch {one.epoch[max(t[2])]:.2g})" for one, t in zip(each, turns, strict=True)]
    first, second = (np.transpose([one[i] for one in turns]) for i in (0, 1))
    return {
        there: over_runs(at_least, first, 0.0, names=when),
        f"... and then {back} until the end": over_runs(at_least, second, 0.0, names=when),
    }


def draw_5(found: Found) -> plots.Figure:
    """Regions a neuron against epochs."""
    picture, axes = plots.figure(7.0, 4.6)
    _through(axes, found, "regions", "regions on a line / neurons")
    axes.axhline(1.0, color=plots.BOUND, linestyle=":", linewidth=0.9)
    plots.legend_below(picture, *axes.get_legend_handles_labels(), columns=4)
    return picture


def _through(axes: plots.Axes, found: Found, of: str, label: str) -> None:
    """Mean over runs against epochs with a band of two standard errors; colour tells the width, dashes the depth."""
    for one in gather(found):
        mean, error = mean_and_error(getattr(one, of))
        colour = plots.COLOURS[found.sweep["width"].index(one.spec.width)]
        style = plots.LINES[found.sweep["depth"].index(one.spec.depth)]
        axes.plot(one.epoch, mean, color=colour, linestyle=style, linewidth=1.2, label=one.name)
        axes.fill_between(one.epoch, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.09, linewidth=0)
    plots.epochs(axes, found.sweep["at"][-1])
    axes.set(ylabel=label)


_EXPAND = ("product", "neurons x distance first rises in training")


def claims_a(found: Found) -> Claims:
    """Section 3.2: the distance is about C / neurons, first increases and then decreases."""
    each = gather(found)
    neurons = [float(one.neurons) for one in each]
    decided = {}
    starts, ends = [one.start_product for one in each], [one.product[:, -1] for one in each]
    for when, values in (("before training", starts), ("after training", ends)):
        distances = means(one / n for one, n in zip(values, neurons, strict=True))
        text = f"{when} the mean distance is inversely proportional to the number of neurons (exponent)"
        count = [len(one) for one in values]
        decided[text] = power(neurons, *distances, count, -1.0, EXPONENT, "all architectures")
    text = f"neurons x distance stays between {ORDER_ONE[0]:g} and {ORDER_ONE[1]:g} throughout training"
    decided[text] = found.table.claim(between, "neurons_times_distance", *ORDER_ONE, names=_PLACE)
    return {**decided, **_turns(each, *_EXPAND)}


def claims_b(found: Found) -> Claims:
    """Section 3.2 on Figure 6b: one product for all networks at first; it rises and falls again."""
    each = gather(found)
    start, error = means(one.start_product for one in each)
    same = {"resolution": RESOLUTION, "settings": ["before training"], "groups": [one.name for one in each]}
    return {
        "before training neurons x distance is the same for all architectures": by(
            equal_within_error, start[None], error[None], len(each[0].start_product), **same
        ),
        **_turns(each, *_EXPAND),
    }


def claims_c(found: Found) -> Claims:
    """Section 3.2 on Figure 6c: regions expand while accuracy rises, then contract while it rises further."""
    each = gather(found)
    before, after = [], []
    for one in each:
        accuracy, at = one["accuracy"], turn(one.product, lowest=False)[2]
        highest = accuracy[np.arange(len(accuracy)), at]
        before.append(highest - accuracy[:, 0])
        after.append(accuracy[:, -1] - highest)
    names, later = [one.name for one in each], "... and rises further after the distance has begun to fall"
    return {
        "test accuracy rises while the regions expand": over_runs(at_least, np.transpose(before), 0.0, names=names),
        later: over_runs(at_least, np.transpose(after), 0.0, names=names),
        **_turns(each, *_EXPAND),
    }


def draw_a(found: Found) -> plots.Figure:
    """Mean distance against neurons, at several epochs, with the constants between which it lies."""
    picture, axes = plots.figure(6.4, 5.4)
    epochs = np.unique(found.table.column("epoch"))
    shown = tuple(epochs[np.unique(np.linspace(0, len(epochs) - 1, 4).astype(int))].tolist())
    for index, (epoch, rows) in enumerate(found.table.where(epoch=shown).by("epoch")):
        x = 1.025 ** (index - 2) * rows.column("neurons")  # beside each other, not on top
        plots.means(axes, rows, x, "distance", index, f"epoch {epoch:.2g}" if epoch else "before training")
    ends, every = np.unique(found.table.column("neurons")), found.table.column("neurons_times_distance")
    for bound, which, dashes in ((every.min(), "smallest", ":"), (every.max(), "largest", "--")):
        label = f"{bound:.2g} / neurons ({which} of all means)"
        axes.plot(ends, bound / ends, color=plots.BOUND, linestyle=dashes, label=label, zorder=1.4)
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="mean distance to the nearest boundary")
    plots.ticks(axes, ends.tolist())
    low, high = axes.get_ylim()
    ticks = [tick for tick in (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2) if low < tick < high]
    plots.ticks(axes, ticks, "y")
    plots.legend_below(picture, *axes.get_legend_handles_labels(), columns=2)
    return picture


def draw_b(found: Found) -> plots.Figure:
    """Neurons times distance against epochs."""
    picture, axes = plots.figure(7.0, 4.6)
    _through(axes, found, "product", "neurons × mean distance")
    plots.legend_below(picture, *axes.get_legend_handles_labels(), columns=4)
    return picture


def draw_c(found: Found) -> plots.Figure:
    """Neurons times distance against test accuracy; training runs from left to right."""
    each = gather(found)
    picture, axes = plots.figure(7.0, 5.4)
    for one in each:
        accuracy, accuracy_error = mean_and_error(one["accuracy"])
        product, error = mean_and_error(one.product)
        width = found.sweep["width"].index(one.spec.width)
        style = plots.LINES[found.sweep["depth"].index(one.spec.depth)]
        # errors of shares are drawn inside (0, 1), as the axis has no room for more
        low, high = (np.clip(accuracy + sign * 2 * accuracy_error, 1e-3, 1 - 1e-4) for sign in (-1, 1))
        look = {"linestyle": style, "markersize": 2.8, "linewidth": 1.0, "elinewidth": 0.4, "capsize": None}
        bars = [accuracy - low, high - accuracy]
        plots.points(axes, accuracy, product, error, width, one.name, xerr=bars, **look)
        axes.plot(accuracy[-1], product[-1], marker="x", color="black", markersize=6, zorder=4)
    axes.plot([], [], "kx", label="end of training")
    axes.set_xscale("logit")
    axes.set_xticks([0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99], ["10", "20", "50", "80", "90", "95", "98", "99"])
    axes.minorticks_off()
    axes.set(xlabel="test accuracy (%, stretched towards its ends)", ylabel="neurons × mean distance")
    axes.set_xlim(0.06, max(0.992, 1 - 0.5 * (1 - max(float(one["accuracy"].mean(0).max()) for one in each))))
    axes.set_ylim(0, None)
    plots.legend_below(picture, *axes.get_legend_handles_labels(), columns=4)
    return picture


def stages(found: Found) -> tuple[Runs, list[int]]:
    """The one architecture, and the epochs that are shown: before, about a tenth of the way, after."""
    (one,) = gather(found)
    middle = int(np.argmin(np.abs(one.epoch - 0.1 * one.epoch[-1])))
    return one, [0, middle, len(one.epoch) - 1]


def logs(one: Runs, place: int) -> Array:
    """log10 of the distances at that epoch, (runs, points)."""
    return np.asarray(np.log10(np.maximum(one["distance"][:, place], 1e-300)))


def histogram(found: Found) -> Table:
    """One row a stage and bin of log10 distance: share of the points, and its standard error over runs."""
    one, places = stages(found)
    rows, ends = Table(), [round(float(end), 6) for end in BINS]
    for stage, place in zip(STAGES, places, strict=True):
        for low, high, share, error in zip(ends, ends[1:], *_shares(one, place), strict=False):
            row = {"stage": stage, "epoch": float(one.epoch[place])}
            row |= {"log10_distance_from": low, "log10_distance_to": high}
            rows.append({**row, "share": float(share), "share_error": float(error)})
    return rows


def _shares(one: Runs, place: int) -> tuple[Array, Array]:
    values = np.clip(logs(one, place), BINS[0], BINS[-1])
    shares = np.stack([np.histogram(run, BINS)[0] / len(run) for run in values])
    return shares.mean(0), shares.std(0, ddof=1) / len(shares) ** 0.5


def claims_7(found: Found) -> Claims:
    """Section 3.2: many orders of magnitude, little change, a slight skew towards larger regions."""
    one, places = stages(found)
    every = [logs(one, place) for place in places]
    decades = [np.diff(np.quantile(logged, (0.01, 0.99), axis=1), axis=0)[0] for logged in every]
    moved = np.transpose([logged.mean(1) - every[0].mean(1) for logged in every[1:]])
    shift = moved / every[0].std(axis=1)[:, None]
    return {
        f"from the 1st to the 99th percentile distances span at least {DECADES:g} orders of magnitude": over_runs(
            at_least, np.transpose(decades), DECADES, names=STAGES
        ),
        f"the mean of log10 of the distance moves by at most {SHIFT:g} of its standard deviation": over_runs(
            between, shift, -SHIFT, SHIFT, names=STAGES[1:]
        ),
        "training moves the distances towards larger ones (mean of log10, against before training)": over_runs(
            at_least, moved, 0.0, names=STAGES[1:]
        ),
    }


def draw_7(found: Found) -> plots.Figure:
    """Histograms of log10 distance before, during and after training, bars of two standard errors over runs."""
    one, places = stages(found)
    picture, axes = plots.figure(7.0, 4.4)
    middle = 0.5 * (BINS[1:] + BINS[:-1])
    first, last = len(middle), 0
    for index, (stage, place) in enumerate(zip(STAGES, places, strict=True)):
        shares, errors = _shares(one, place)
        label, colour = f"{stage} (epoch {one.epoch[place]:.2g})" if index else stage, plots.COLOURS[index]
        axes.stairs(shares, BINS, color=colour, linewidth=1.3, label=label)
        axes.errorbar(middle, shares, 2 * errors, linestyle="none", color=colour, elinewidth=0.8, alpha=0.7)
        axes.axvline(logs(one, place).mean(), color=colour, linestyle=":", linewidth=1.0)
        filled = np.flatnonzero(shares)
        first, last = min(first, int(filled[0])), max(last, int(filled[-1]))
    axes.plot([], [], color=plots.BOUND, linestyle=":", linewidth=1.0, label="means")
    axes.set_xlim(BINS[max(first - 1, 0)], BINS[min(last + 2, len(BINS) - 1)])
    axes.set(xlabel="log₁₀ of the distance to the nearest boundary", ylabel="share of the points")
    axes.set_ylim(0, None)
    axes.legend(loc="upper left")
    return picture


_EPOCHS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0)
_SHAPES = {"depth": (2, 3, 4), "width": (16, 32, 64)}


def sweep_of(spec: Spec, programs: int, **further: int) -> Sweep:
    """Runs of every architecture, so many programs each; and further networks that are only measured at first."""
    more = Sweep(untrained, Spec(data=spec.data, **further), _SHAPES, seed=programs * spec.networks)
    return Sweep(run, spec, _SHAPES, programs, also={"untrained": more})


_AT = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0, 20.0, 40.0, 60.0)
_HOW = {"learning_rate": 1e-3, "lines": 100, "linear_lines": 10, "points": 1000, "networks": 1}
_MNIST = Spec(data="mnist", at=_EPOCHS, batch_size=128, **_HOW)
_FEW = {"lines": 25, "linear_lines": 1, "points": 250, "networks": 20}
_DIGITS = Spec(data="digits", at=_AT, batch_size=32, **{**_HOW, **_FEW})
LINES = {
    "quick": sweep_of(_DIGITS, 1, networks=120, lines=20, points=200),
    "paper": sweep_of(_MNIST, 5, networks=60, lines=50, points=500),
}
HISTOGRAM = {name: one.but(depth=(4,), width=(16,), also={}) for name, one in LINES.items()}


_ABOUT = "by Adam, the networks of a run at a time on the same batches; bands, bars: two standard errors"
_LINES, _DISTANCE = "Regions on a line through training", "Distance to the nearest boundary"
_EVERY = "Distances to the nearest boundary, all of them"
_artifact = partial(Artifact, place="section 3.2", presets=LINES, table=table, about=_ABOUT)
ARTIFACTS = (
    _artifact("hanin-rolnick/fig5", _LINES, place="section 3.1", claims=claims_5, draw=draw_5),
    _artifact("hanin-rolnick/fig6a", f"{_DISTANCE}, and the number of neurons", claims=claims_a, draw=draw_a),
    _artifact("hanin-rolnick/fig6b", f"{_DISTANCE} through training", claims=claims_b, draw=draw_b),
    _artifact("hanin-rolnick/fig6c", f"{_DISTANCE}, and accuracy", claims=claims_c, draw=draw_c),
    _artifact("hanin-rolnick/fig7", _EVERY, presets=HISTOGRAM, table=histogram, claims=claims_7, draw=draw_7),
)
