"""Hanin-Rolnick Figures 5 to 7 (sections 3.1, 3.2): regions on lines and distances to boundaries, through training.

They share their runs. The paper prints depths and widths in a legend that is lost; 4 x 16 and 3 x 64 are in its text.
What it leaves open: pixels are in [0, 1]; lines through the origin and a training example have no ends; examples
and random points are drawn once for each network and stay the same through its training.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import plots, regions
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import MORE, at_least, at_most, between, equal_within_error, exact
from epoch0.networks import ensemble, mlp
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Mean, Table, by, mean_and_error, means, over_runs, power
from epoch0.papers.trials import EXTENTS, fit, tensors
from epoch0.seeds import numpy_generator
from epoch0.theory.regions import upper_bound
from epoch0.train import Accuracy, Every, Stacked

BIAS_STD = 1e-3  # standard deviation of the biases at initialization (section 3: variance 1e-6)


def run(spec: Spec, seed: int) -> dict[str, Any]:
    """Train networks by Adam as one program, and measure them at the epochs ``at``: increasing, from 0 to the last.

    Each has its own weights, lines and points, and the same batches. Activation regions are counted on ``lines``
    through the origin and a training example, linear regions on the first ``linear_lines``; distances from ``points``,
    random ones, or ``where`` the spec says: examples of the ``"training"`` set or of the ``"test"`` set.

    ``epoch`` (epochs,) is the nearest whole number of steps; ``accuracy`` on the test set is (networks, epochs), and
    ``counts``, ``linear`` and ``distance`` are (networks, epochs, lines, linear lines or points).
    """
    (inputs, targets), (held, labels) = (tensors(spec.data, split, "unit") for split in ("train", "test"))
    accuracy, given = Accuracy(held, labels), {"training": inputs, "test": held}.get(vars(spec).get("where", ""))
    nets = networks(spec, inputs.shape[1], EXTENTS[spec.data][1], seed)
    batches, lines, points = (numpy_generator(seed, spec.depth, spec.width, stream) for stream in (1, 2, 3))
    draw = like(inputs) if given is None else partial(examples, given)
    places = [(examples(inputs, spec.lines, lines), draw(spec.points, points)) for _ in nets]

    def look(model: nn.Module, index: int) -> dict[str, Any]:
        return {**accuracy(model), **_measured(spec, model, *places[index])}

    return through_training(spec, nets, (inputs, targets), int(batches.integers(2**31)), look)


def _measured(spec: Spec, model: nn.Module, through: Tensor, points: Tensor) -> dict[str, Array]:
    found: Any = regions.on_line(model, torch.zeros_like(through), through, kind="line")
    linear = [found[index].linear_count for index in range(spec.linear_lines)]
    each = {"counts": found.counts, "linear": linear, "distance": regions.distance(model, points).distance}
    return {name: np.asarray(values, dtype=np.float64) for name, values in each.items()}


def through_training(
    spec: Any, nets: Sequence[nn.Module], examples: tuple[Tensor, Tensor], seed: int, look: Callable[..., Any]
) -> dict[str, Array]:
    """Train networks by Adam as one program, and look at each, with its number, at the epochs of the spec: ``epoch``,
    (epochs,), and what ``look`` returns by name, (networks, epochs, ...).
    """
    steps = [round(epoch * -(-len(examples[0]) // spec.batch_size)) for epoch in spec.at]
    epochs: list[float] = []
    seen: list[list[dict[str, Any]]] = []

    def watch(step: int, model: nn.Module, metrics: Mapping[str, Any]) -> None:
        if step in steps:
            each = [model.unstack(i) for i in range(len(nets))] if isinstance(model, Stacked) else [model]
            epochs.append(metrics["epoch"])
            seen.append([look(item, index) for index, item in enumerate(each)])

    together = Stacked.of(nets) if len(nets) > 1 else nets[0]
    loss = together.loss(nn.functional.cross_entropy) if isinstance(together, Stacked) else nn.functional.cross_entropy
    settings = {"steps": steps[-1], "loss": loss, "seed": seed, "callbacks": [Every(math.gcd(*steps), watch)]}
    fit(spec, together, examples, optimizer="adam", **settings)
    found = {name: np.array([[item[name] for item in row] for row in seen]).swapaxes(0, 1) for name in seen[0][0]}
    return {"epoch": np.array(epochs), **found}


def untrained(spec: Spec, seed: int) -> dict[str, Any]:
    """Before training alone, own lines and points for each: mean ``counts`` a line and ``distance``, (networks,)."""
    inputs, _ = tensors(spec.data, mode="unit")
    sizes, draw = [inputs.shape[1], *[spec.width] * spec.depth, EXTENTS[spec.data][1]], like(inputs)
    source = numpy_generator(seed, spec.depth, spec.width)
    counts, away = [], []
    for net in ensemble(spec.networks, sizes, biases=Gaussian(BIAS_STD), seed=int(source.integers(2**31))):
        through = examples(inputs, spec.lines, source)
        found: Any = regions.on_line(net, torch.zeros_like(through), through, kind="line")
        counts.append(found.counts.mean())
        away.append(regions.distance(net, draw(spec.points, source)).distance.mean())
    return {"counts": np.array(counts), "distance": np.array(away)}


def networks(spec: Spec, inputs: int, classes: int, seed: int) -> list[nn.Sequential]:
    # architectures of one seed are independent too
    sizes, source = [inputs, *[spec.width] * spec.depth, classes], numpy_generator(seed, spec.depth, spec.width, 0)
    return [mlp(sizes, biases=Gaussian(BIAS_STD), seed=int(one)) for one in source.integers(2**31, size=spec.networks)]


def like(inputs: Tensor) -> Callable[[int, np.random.Generator], Tensor]:
    """Draws Gaussian points with the mean and the variance of the examples, component by component, float64."""
    mean, std = inputs.double().mean(0).numpy(), inputs.double().std(0, correction=0).numpy()
    return lambda points, source: torch.from_numpy(mean + std * source.standard_normal((points, len(mean))))


def examples(inputs: Tensor, count: int, source: np.random.Generator) -> Tensor:
    return inputs[torch.from_numpy(source.choice(len(inputs), size=count, replace=False))].double()


def turn(curves: Array, *, lowest: bool) -> tuple[Array, Array, int]:
    """How far runs (runs, epochs) go to the turning point of their kind and back to the end, and where that is.

    >>> turn(np.array([[1.0, 0.5, 0.8], [1.0, 0.4, 0.7], [1.0, 0.4, 0.7]]), lowest=True)
    (array([0.6, 0.6]), array([0.3, 0.3]), 1)

    The first third of the runs says where the turn is, by the extremum of their mean, and the others how far it goes:
    noise alone gives them zero on average, and they are independent. It is neither the first nor the last epoch: a
    curve that only rises or only falls makes a change of the wrong sign.
    """
    sign, (choose, rest) = -1.0 if lowest else 1.0, _thirds(curves)
    place = 1 + int(np.argmax(sign * choose.mean(0)[1:-1]))
    return sign * (rest[:, place] - rest[:, 0]), sign * (rest[:, place] - rest[:, -1]), place


def _thirds(runs: Array) -> tuple[Array, Array]:
    """The runs that say where a curve turns, and those that say how far."""
    third = max(1, len(runs) // 3)
    return runs[:third], runs[min(third, len(runs) - 1) :]


RESOLUTION = 0.05  # architectures agree if they differ by less than this, relatively
EXPONENT = 0.1  # regions go as neurons, and distances as 1/neurons, if the fitted exponent is this near to 1, or to -1
CLOSE = 1.25  # the constant is "very close to 1" if it is within this factor
PER_NEURON = 2.0  # regions a neuron that are still "linear in the number of neurons"; exponential bounds allow far more
ORDER_ONE = (0.1, 10.0)  # what "a constant of order 1" allows
STAGES = ("before training", "during training", "after training")
DECADES = 2.0  # "many orders of magnitude": from the first to the 99th percentile at least so many powers of ten
SPREAD = 0.1  # variance across runs is "not significant" if their sd is at most this part of the mean
PLACES = {"training": "training examples", "test": "test examples"}  # of section 3.2, in place of random points
SHIFT = 0.5  # the distribution changes little if the mean of log10 moves by at most this part of its standard deviation
BINS = np.linspace(-8, 1, 91)  # of log10 of the distance
_PLACE = "depth {depth}, width {width}, epoch {epoch:.2g}"
_SAME: dict[str, Any] = {"resolution": RESOLUTION, "settings": ["before training"]}


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
    more = found.also.get("untrained")
    return [Runs(cell, more.one(**cell.at) if more else None) for cell in found]


@by_cell
def table(cell: Cell) -> Any:
    one = Runs(cell)
    counts, linear, away = one["counts"], one["linear"], one["distance"]
    share = linear.mean(-1) / counts[..., : linear.shape[-1]].mean(-1)
    found = {"accuracy": one["accuracy"], "regions": counts.mean(-1), "regions_per_neuron": one.regions}
    found |= {"linear_share": share, "distance": away.mean(-1), "neurons_times_distance": one.product}
    beside = {"neurons": one.neurons, "most_regions": counts.max((0, 2)).astype(int)}
    return found, beside, {"epoch": one.epoch.tolist()}


def claims_5(found: Found) -> Claims:
    each = gather(found)
    names, starts = [entry.name for entry in each], [entry.start_regions for entry in each]
    (start, error), networks = means(starts), len(starts[0])
    neurons = np.array([float(entry.neurons) for entry in each])
    # a line has one region without any neuron: 3 % of those of 32 neurons
    breaks = by(equal_within_error, (start - 1 / neurons)[None], error[None], networks, **_SAME, groups=names)
    worst = max(each, key=lambda item: item["counts"].max() / item.neurons)
    most, few = int(worst["counts"].max()), f"more than {PER_NEURON:g} regions a neuron"
    text = f"{worst.name}: {most} regions, {worst.neurons} neurons, of {worst.most:,} that are possible"
    scaled = neurons, start * neurons, error * neurons, networks * len(each), 1.0, EXPONENT, "all architectures"
    at_once = found.table.claim(at_most, "regions_per_neuron", PER_NEURON, names=_PLACE)
    possible = by(exact, most <= PER_NEURON * worst.neurons, text, {"most": most})
    return {
        "before training all architectures have the same number of break points (regions but one) a neuron": breaks,
        "before training the number of regions grows in proportion to the number of neurons (exponent)": power(*scaled),
        "before training there is about one region a neuron": over_runs(between, starts, 1 / CLOSE, CLOSE, names=names),
        **_turns(each, "regions", "the number of regions falls in the initial part of training"),
        f"there are at most {PER_NEURON:g} regions a neuron, throughout training": at_once,
        f"no line ever has {few}, where (width + 1)^depth are possible": possible,
        **_spread(each, "regions"),
    }


def _spread(each: list[Runs], of: str) -> Claims:
    """The sd of a run's mean over all epochs, with its standard error if normal."""
    curves = [getattr(item, of) for item in each]
    shares = [float((curve.std(0, ddof=1) / curve.mean(0)).mean()) for curve in curves]
    errors = [share / math.sqrt(2 * (len(item) - 1)) for share, item in zip(shares, curves, strict=True)]
    text = f"variance across runs is not significant: their sd is at most {SPREAD:.0%} of the mean"
    return {text: by(at_most, shares, errors, SPREAD, len(curves[0]), [item.name for item in each])}


def _turns(each: list[Runs], of: str, claim: str) -> Claims:
    """``"regions"`` fall to a lowest number, or the ``"product"`` rises to a highest, and both go back."""
    turns = [turn(getattr(item, of), lowest=of == "regions") for item in each]
    which, back = ("lowest", "rises") if of == "regions" else ("highest", "falls")
    when = [f"{one.name} ({which} near epoch {one.epoch[t[2]]:.2g})" for one, t in zip(each, turns, strict=True)]
    first, second = (np.transpose([item[i] for item in turns]) for i in (0, 1))
    return {
        claim: over_runs(at_least, first, MORE, names=when),
        f"... and then {back} until the end": over_runs(at_least, second, MORE, names=when),
    }


@plots.drawn(7.0, 4.6, legend=4)
def through(of: str, label: str, found: Found, axes: plots.Axes) -> None:
    for one in gather(found):
        mean, error = mean_and_error(getattr(one, of))
        colour = plots.COLOURS[found.sweep["width"].index(one.spec.width)]
        style = plots.LINES[found.sweep["depth"].index(one.spec.depth)]
        axes.plot(one.epoch, mean, color=colour, linestyle=style, linewidth=1.2, label=one.name)
        axes.fill_between(one.epoch, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.09, linewidth=0)
    for name, marker in zip(PLACES if of == "product" else (), "x+", strict=False):
        (one,) = gather(found.also[name])
        mean, error = mean_and_error(one.product)
        plots.points(axes, one.epoch, mean, error, 6, f"{one.name}, {PLACES[name]}", marker=marker)
    plots.epochs(axes, found.sweep["at"][-1])
    axes.set(ylabel=label)


_EXPAND = ("product", "neurons x distance first rises in training")


def claims_a(found: Found) -> Claims:
    each, decided = gather(found), {}
    neurons = [float(item.neurons) for item in each]
    starts, ends = [item.start_product for item in each], [item.product[:, -1] for item in each]
    for when, values in (("before training", starts), ("after training", ends)):
        distances = means(item / n for item, n in zip(values, neurons, strict=True))
        text = f"{when} the mean distance is inversely proportional to the number of neurons (exponent)"
        decided[text] = power(neurons, *distances, [len(one) for one in values], -1.0, EXPONENT, "all architectures")
    text = f"neurons x distance stays between {ORDER_ONE[0]:g} and {ORDER_ONE[1]:g} throughout training"
    decided[text] = found.table.claim(between, "neurons_times_distance", *ORDER_ONE, names=_PLACE)
    return {**decided, **_turns(each, *_EXPAND)}


def claims_b(found: Found) -> Claims:
    each = gather(found)
    (start, error), names = means(item.start_product for item in each), [item.name for item in each]
    same = by(equal_within_error, start[None], error[None], len(each[0].start_product), **_SAME, groups=names)
    others = {name: _turns(gather(found.also[name]), *_EXPAND) for name in PLACES}
    return {
        "before training neurons x distance is the same for all architectures": same,
        **_turns(each, *_EXPAND),
        **{f"{text} ({PLACES[name]})": decide for name, own in others.items() for text, decide in own.items()},
        **_spread(each, "product"),
    }


def claims_c(found: Found) -> Claims:
    each, before, after = gather(found), [], []
    for one in each:
        accuracy = _thirds(one["accuracy"])[1]
        highest = accuracy[:, turn(one.product, lowest=False)[2]]
        before.append(highest - accuracy[:, 0])
        after.append(accuracy[:, -1] - highest)
    names, later = [item.name for item in each], "... and rises further after the distance has begun to fall"
    return {
        "test accuracy rises while the regions expand": over_runs(at_least, np.transpose(before), MORE, names=names),
        later: over_runs(at_least, np.transpose(after), MORE, names=names),
        **_turns(each, *_EXPAND),
    }


@plots.drawn(6.4, 5.4, legend=2)
def draw_a(found: Found, axes: plots.Axes) -> None:
    epochs = np.unique(found.table.column("epoch")).tolist()
    shown = [epochs[place] for place in np.linspace(0, len(epochs) - 1, 4).astype(int)]
    for index, (epoch, rows) in enumerate(found.table.where(epoch=shown).by("epoch")):
        x = 1.025 ** (index - 2) * rows.column("neurons")  # beside each other, not on top
        plots.means(axes, rows, x, "distance", index, f"epoch {epoch:.2g}" if epoch else "before training")
    ends, every = np.unique(found.table.column("neurons")), found.table.column("neurons_times_distance")
    for bound, which, dashes in ((every.min(), "smallest", ":"), (every.max(), "largest", "--")):
        label = f"{bound:.2g} / neurons ({which} of all means)"
        axes.plot(ends, bound / ends, color=plots.BOUND, linestyle=dashes, label=label, zorder=1.4)
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="mean distance to the nearest boundary")
    plots.ticks(axes, ends.tolist())


@plots.drawn(7.0, 5.4, legend=4)
def draw_c(found: Found, axes: plots.Axes) -> None:
    for one in gather(found):
        accuracy, accuracy_error = mean_and_error(one["accuracy"])
        product, error = mean_and_error(one.product)
        width = found.sweep["width"].index(one.spec.width)
        style = plots.LINES[found.sweep["depth"].index(one.spec.depth)]
        look = {"linestyle": style, "markersize": 2.8, "linewidth": 1.0, "elinewidth": 0.4, "capsize": None}
        plots.points(axes, accuracy, product, error, width, one.name, xerr=2 * accuracy_error, **look)
        axes.plot(accuracy[-1], product[-1], marker="x", color="black", markersize=6, zorder=4)
    axes.plot([], [], "kx", label="end of training")
    axes.set(xlabel="test accuracy", ylabel="neurons × mean distance", xlim=(0, 1), ylim=(0, None))


def stages(found: Found) -> list[tuple[str, float, Array]]:
    """What is shown, before, about a tenth of the way and after: name, epoch, log10 of distances (runs, points)."""
    (one,) = gather(found)
    places = 0, int(np.argmin(np.abs(one.epoch - 0.1 * one.epoch[-1]))), -1
    logs = (np.log10(np.maximum(one["distance"][:, place], 1e-300)) for place in places)
    return list(zip(STAGES, one.epoch[list(places)].tolist(), logs, strict=True))


def _shares(logged: Array) -> Mean:
    """Share of the points in each bin."""
    values = np.clip(logged, BINS[0], BINS[-1])
    return mean_and_error(np.stack([np.histogram(run, BINS)[0] / len(run) for run in values]))


def histogram(found: Found) -> Table:
    rows, ends = Table(), [round(float(end), 6) for end in BINS]
    for stage, epoch, logged in stages(found):
        for low, high, share, error in zip(ends, ends[1:], *_shares(logged), strict=False):
            row = {"stage": stage, "epoch": epoch, "log10_distance_from": low, "log10_distance_to": high}
            rows.append({**row, "share": float(share), "share_error": float(error)})
    return rows


def claims_7(found: Found) -> Claims:
    every = [logged for _, _, logged in stages(found)]
    decades = [np.diff(np.quantile(logged, (0.01, 0.99), axis=1), axis=0)[0] for logged in every]
    moved = np.transpose([logged.mean(1) - every[0].mean(1) for logged in every[1:]])
    span = f"from the 1st to the 99th percentile distances span at least {DECADES:g} orders of magnitude"
    little = f"the mean of log10 of the distance moves by at most {SHIFT:g} of its standard deviation"
    larger = "training moves the distances towards larger ones (mean of log10, against before training)"
    return {
        span: over_runs(at_least, np.transpose(decades), DECADES, names=STAGES),
        little: over_runs(between, moved / every[0].std(axis=1)[:, None], -SHIFT, SHIFT, names=STAGES[1:]),
        larger: over_runs(at_least, moved, MORE, names=STAGES[1:]),
    }


@plots.drawn(7.0, 4.4, legend="upper left")
def draw_7(found: Found, axes: plots.Axes) -> None:
    middle = 0.5 * (BINS[1:] + BINS[:-1])
    for index, (stage, epoch, logged) in enumerate(stages(found)):
        shares, errors = _shares(logged)
        label, colour = f"{stage} (epoch {epoch:.2g})" if index else stage, plots.COLOURS[index]
        axes.stairs(shares, BINS, color=colour, linewidth=1.3, label=label)
        axes.errorbar(middle, shares, 2 * errors, linestyle="none", color=colour, elinewidth=0.8, alpha=0.7)
        axes.axvline(logged.mean(), color=colour, linestyle=":", linewidth=1.0)
    axes.plot([], [], color=plots.BOUND, linestyle=":", linewidth=1.0, label="means")
    label = "log₁₀ of the distance to the nearest boundary"
    axes.set(xlabel=label, ylabel="share of the points", xlim=(-6.5, 0.5), ylim=(0, None))


_SHAPES = {"depth": (2, 3, 4), "width": (16, 32, 64)}


def sweep_of(spec: Spec, programs: int, **further: int) -> Sweep:
    """Runs of every architecture, ``programs`` each; further networks are measured before training only."""
    more = Sweep(untrained, Spec(data=spec.data, **further), _SHAPES, seed=programs * spec.networks)
    few: dict[str, Any] = {"depth": (3,), "width": (32,), "lines": 1, "linear_lines": 1}
    sweeps = {name: Sweep(run, spec.but(where=name), _SHAPES, programs).but(**few) for name in PLACES}
    return Sweep(run, spec, _SHAPES, programs, also={"untrained": more, **sweeps})


_EPOCHS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0)
_AT = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0, 20.0, 40.0, 60.0)
_HOW = {"learning_rate": 1e-3, "lines": 100, "linear_lines": 10, "points": 1000, "networks": 1}
_MNIST = Spec(data="mnist", at=_EPOCHS, batch_size=128, **_HOW)
_DIGITS = _MNIST.but(data="digits", at=_AT, batch_size=32, lines=25, linear_lines=1, points=250, networks=40)
LINES = {
    "quick": sweep_of(_DIGITS, 1, networks=120, lines=20, points=200),
    "paper": sweep_of(_MNIST, 5, networks=60, lines=50, points=500),
}
HISTOGRAM = {name: item.but(depth=(4,), width=(16,), also={}) for name, item in LINES.items()}
_ABOUT = "{data}; {depth} hidden layers of width {width}; {runs} x {networks} networks; {at.last:g} epochs of Adam at "
_ABOUT += "{learning_rate:g}, batches of {batch_size}; {lines} lines, {points} points; bands, bars: two standard errors"
_ON_LINES, _DISTANCE = "Regions on a line through training", "Distance to the nearest boundary"
_EVERY = "Distances to the nearest boundary, all of them"
_REGIONS = partial(through, "regions", "regions on a line / neurons")
_AWAY = partial(through, "product", "neurons × mean distance")
_artifact = partial(Artifact, place="section 3.2", presets=LINES, table=table, about=_ABOUT)
ARTIFACTS = (
    _artifact("hanin-rolnick/fig5", _ON_LINES, place="section 3.1", claims=claims_5, draw=_REGIONS),
    _artifact("hanin-rolnick/fig6a", f"{_DISTANCE}, and the number of neurons", claims=claims_a, draw=draw_a),
    _artifact("hanin-rolnick/fig6b", f"{_DISTANCE} through training", claims=claims_b, draw=_AWAY),
    _artifact("hanin-rolnick/fig6c", f"{_DISTANCE}, and accuracy", claims=claims_c, draw=draw_c),
    _artifact("hanin-rolnick/fig7", _EVERY, presets=HISTOGRAM, table=histogram, claims=claims_7, draw=draw_7),
)
