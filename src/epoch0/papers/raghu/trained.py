"""Raghu Figures 6 to 11, 17 and 18 (section 3): length, weight scale and accuracy through training, noise in a layer.

Networks of two figures are the same trials, with one key, and are trained once. Trajectories are arcs between two test
images that the seed draws, lengths their means; docs/raghu lists the choices that the paper leaves open.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import plots
from epoch0.activity.weights import robustness
from epoch0.curves import Arc
from epoch0.data import load
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import MORE, Claim, at_least, at_most, between
from epoch0.experiments.cost import Cost
from epoch0.networks import mlp
from epoch0.papers.raghu.convnet import KEEPING, LAYERS, SMALL, ConvNet, by_layer, growth_of, mark_pools
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Claims, Decision, Table, by, means, more, over_runs, slopes
from epoch0.papers.trials import EXTENTS, checkpoint_of, fit, tensors
from epoch0.seeds import numpy_generator
from epoch0.train import Accuracy, Every, Training, TrajectoryLengths, TrajectoryRegularization, train_one_layer
from epoch0.train.device import chosen_device

MOMENTUM = 0.9
PLAIN, NORMED = "without batch norm", "with batch norm"
HIGH = {"digits": 0.95, "mnist": 0.97, "cifar10": 0.7}  # test accuracy that counts as high for these data
UNITS = ("absolute", "relative")  # of noise
_WEIGHTS, _BATCHES, _ARCS, _NOISE = range(4)  # streams of a trial's seed


@dataclass(frozen=True)
class DenseNet:
    """The fully connected ReLU network of Figure 18, sizes from inputs to classes; biases begin at zero."""

    sizes: tuple[int, ...]
    variance: float
    norm: ClassVar[str] = "none"

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.sizes[:1]

    def build(self, seed: int) -> nn.Sequential:
        return mlp(self.sizes, weights=Gaussian(math.sqrt(self.variance)), seed=seed)


@contextmanager
def training(
    spec: Any, seed: int, examples: tuple[Tensor, Tensor], optimizer: Any, look: Callable[[int, nn.Module], Any]
) -> Iterator[tuple[nn.Module, Training]]:
    """A network trained as its spec says and looked at on the way; a killed trial resumes (:func:`checkpoint_of`)."""
    weights, batches = (int(numpy_generator(seed, s).integers(2**31)) for s in (_WEIGHTS, _BATCHES))
    device, pace, steps = chosen_device(), math.gcd(*spec.at), spec.at[-1]  # the largest pace that meets every step
    net = spec.network.build(weights).to(device)
    every = Every(pace, lambda step, model, metrics: look(step, model) if step in spec.at else None)
    with checkpoint_of(spec, seed) as path:
        fields = {"checkpoint": path, "checkpoint_every": steps, "checkpoint_minutes": 5.0, "evaluate_every": pace}
        fields |= {"steps": steps, "optimizer": optimizer, "seed": batches, "device": device, "callbacks": [every]}
        yield net, fit(spec, net, examples, **fields)


def trained(spec: Spec, seed: int) -> dict[str, Any]:
    """Train one network and measure it at some steps: lengths, weight scale, accuracy; noise in its layers at the end.

    Lengths are means over so many ``arcs`` of so many ``points``; ``absolute`` and ``relative`` are sizes of noise,
    with so many ``draws`` for each layer and size; accuracies are over ``tested`` test images; ``examples`` None: all.

    Returns:
        ``accuracy`` on test images and the ``loss`` since the last measurement, (steps,), the first loss NaN;
        ``lengths``, (steps, layers + 1), the arc itself first, batch norm as in evaluation; ``lengths_batch``, the same
        with the statistics of the arc's own points, if there is a batch norm; ``layers`` and their ``kinds``,
        (layers,); ``scale`` of the weights, (steps, weighted); ``weighted``, names of the layers with weights;
        ``absolute`` and ``relative``, accuracy with noise, (weighted, sizes); ``clean`` accuracy; ``diverged``.
    """
    given, (held, labels) = _examples(spec)
    accuracy, source = Accuracy(held, labels), numpy_generator(seed, _ARCS)
    arcs = [Arc(*held[source.choice(len(held), size=2, replace=False)]) for _ in range(spec.arcs)]
    modes = {"lengths": "eval", **({"lengths_batch": "batch"} if spec.network.norm == "batch" else {})}
    watching = {
        name: [TrajectoryLengths(arc, spec.points, seed=place, batch_norm=mode) for place, arc in enumerate(arcs)]
        for name, mode in modes.items()
    }

    def look(step: int, model: nn.Module) -> dict[str, Any]:
        row: dict[str, Any] = dict(accuracy(model))
        for name, watches in watching.items():
            for watch in watches:
                watch(step, model)
            row[name] = np.mean([watch.lengths[-1] for watch in watches], axis=0).tolist()
        # in the row, since a resumed run may have nothing left to look at
        row |= {"layers": list(watches[0].layers), "kinds": list(watches[0].kinds)}
        return {**row, "scale": [scale(weight) for weight in weighted(model).values()]}

    noise = int(numpy_generator(seed, _NOISE).integers(2**31))
    with training(spec, seed, given, partial(torch.optim.SGD, momentum=MOMENTUM), look) as (net, done):
        found = history(spec, done, "accuracy", *modes, "scale")
        for unit, sizes in zip(UNITS, (spec.absolute, spec.relative), strict=True):
            if sizes:
                fields: Any = {"draws": spec.draws, "relative": unit == "relative", "seed": noise}
                noisy = robustness(net, (held, labels), sizes, **fields)
                found |= {unit: noisy.accuracy, "clean": noisy.clean}
    found |= {name: done.history[0][name] for name in ("layers", "kinds")}
    return {**found, "weighted": list(weighted(net))}


def _examples(spec: Spec) -> Any:
    """Inputs and classes of training and test, as many as the spec has of each."""
    flat, counts = len(spec.network.inputs) == 1, {"train": spec.examples, "test": spec.tested}
    return [tuple(part[:n] for part in tensors(spec.data, split, flatten=flat)) for split, n in counts.items()]


def history(spec: Any, done: Training, *names: str) -> dict[str, Any]:
    """What was measured under these names at the steps of the spec; NaN from where the training diverged."""
    rows = {row["step"]: row for row in done.history if names[0] in row}
    kept = [rows[step] for step in spec.at if step in rows]
    missing = len(spec.at) - len(kept)
    found: dict[str, Any] = {"diverged": missing > 0 or done.diverged}
    for name in ("loss", *names):
        values = np.array([row[name] for row in kept], dtype=np.float64)  # None, the loss at first, is NaN
        found[name] = np.pad(values, [(0, missing), *[(0, 0)] * (values.ndim - 1)], constant_values=np.nan)
    return found


def weighted(net: nn.Module) -> dict[str, Tensor]:
    """Weights of the dense and convolutional layers in order, under the names of their modules."""
    return {name: module.weight for name, module in net.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}


def scale(weight: Tensor) -> float:
    """sigma_w^2 of one layer: fan_in times the mean square of its weights."""
    return float(weight.detach().double().square().mean()) * weight[0].numel()


_HOW = {"batch_size": 32, "learning_rate": 0.01, "arcs": 4, "points": 32, "draws": 5, "tested": 360, "examples": None}
_NOISY = {"absolute": (0.05, 0.1, 0.25, 0.5, 1.0), "relative": (0.1, 0.25, 0.5, 1.0, 2.0)}
_DIGITS = Spec(data="digits", at=(0, 10, 30, 100, 300, 1000), **_HOW, **_NOISY)
_LONG: dict[str, Any] = {"at": (0, 100, 300, 1000, 3000, 10_000), "batch_size": 128}
_CIFAR = _DIGITS.but(data="cifar10", tested=2000, **_LONG)
_DENSE_DIGITS = _DIGITS.but(learning_rate=0.02, absolute=(), relative=(), draws=0)
_DENSE_MNIST = _DENSE_DIGITS.but(data="mnist", tested=10_000, **_LONG)


def named(spec: Spec, networks: Sequence[ConvNet | DenseNet], runs: int) -> Sweep:
    """Networks of some kinds, each under its name; run i has the same seed in all, so the same batches and arcs."""
    axes = {"networks": {name_of(net): {"network": net} for net in networks}}
    return Sweep(trained, spec.but(network=networks[0]), axes, runs, converged=True)


def name_of(network: ConvNet | DenseNet) -> str:
    if isinstance(network, DenseNet):
        return f"sigma_w^2 = {network.variance:g}"
    return NORMED if network.norm == "batch" else PLAIN


def conv_nets(*norms: str) -> dict[str, Sweep]:
    small, large = ([replace(net, norm=norm) for norm in norms] for net in (SMALL, ConvNet()))
    return {"quick": named(_DIGITS, small, 8), "paper": named(_CIFAR, large, 4)}


def accurate(found: Found, cells: Sequence[Cell] | None = None) -> Claims:
    """Every kind is trained to high test accuracy: without it the figure says nothing."""
    decided, high = {}, HIGH[found.sweep["data"]]
    for cell in cells or found:
        diverged = found.sweep["runs"] - cell.runs
        detail = f"{diverged} diverged and were left out everywhere" if diverged else ""
        text = f"{cell.at['networks']}: trained to high test accuracy, {100 * high:g} % and more"
        decided[text] = more(over_runs(at_least, cell["accuracy"][:, -1], high, names=["accuracy"]), after=detail)
    return decided


def cost(spec: Spec) -> Cost:
    net = spec.network
    count = len(net.sizes) - 1 if isinstance(net, DenseNet) else sum(layer.kind != "pooling" for layer in LAYERS)
    noisy = count * (len(spec.absolute) + len(spec.relative)) * spec.draws
    return _cost(spec, f"{type(net).__name__} {name_of(net)}", noisy)


def _cost(spec: Spec, name: str = "", noisy: int = 0) -> Cost:
    """Of a training that is tested at its steps, and further times with noise; by default one of Figure 11."""
    net, images = spec.network, spec.at[-1] * spec.batch_size
    name = name or f"conv net, {KINDS[net.norm]}"
    fields = partial(net.build, 0), net.inputs, 10, spec.batch_size, images, spec.tested * (len(spec.at) + noisy)
    return Cost(f"{name}, {spec.data}", (), *fields)


# what was measured -> whose statistics a batch norm used
MODES = {"lengths": "running statistics, as in evaluation", "lengths_batch": "statistics of the arc's points"}
SETTLED = 300  # where "after just a few hundred gradient steps" is taken to begin
PRINTED_NOISE = 0.25  # of which the caption of Figure 6 says what it costs
FIFTH = "conv4"  # layer 5 as Figure 4 numbers them, pools counted


def _layers(cell: Cell, name: str = "layers") -> list[str]:
    """Names of layers for an axis; those without a name of their own are counted."""
    return [str(i) if item.isdigit() else item for i, item in enumerate(cell.results[0][name], start=1)]


@by_cell
def length_table(measured: str, cell: Cell) -> Any:
    beside = {"accuracy": cell["accuracy"].mean(0)[:, None], "kind": cell.results[0]["kinds"]}
    return by_layer(cell, measured), beside, {"step": cell.spec.at, "layer": _layers(cell)}


@by_cell
def scale_table(cell: Cell) -> Any:
    return {"scale": cell["scale"]}, {"kind": "linear"}, {"step": cell.spec.at, "layer": _layers(cell, "weighted")}


def conv_claims(found: Found) -> Claims:
    cell = found.one()
    growth = growth_of(cell["lengths"])[..., [_layers(cell).index(name) for name in KEEPING]]
    level = "at step 0 length does not grow: mean over the layers that keep the number of neurons"
    grows = "after training length grows through every layer but pools and those with fewer neurons than before"
    return {
        **accurate(found),
        level: over_runs(at_most, growth[:, 0].mean(1), 1.0, names=["growth"]),
        **_longer(cell),
        grows: over_runs(at_least, growth[:, -1], 1.0, names=KEEPING),
    }


def dense_claims(found: Found) -> Claims:
    decided = accurate(found)
    for cell in found:
        prefix, after = f"{cell.at['networks']}: ", growth_of(cell["lengths"])[:, -1, 1:-1]
        text = f"{prefix}after training length grows through every hidden layer behind the first"
        grows = over_runs(at_least, after, 1.0, names=[f"layer {place}" for place in _layers(cell)[1:-1]])
        decided = {**decided, **_longer(cell, prefix), text: grows}
    return decided


def _longer(cell: Cell, prefix: str = "") -> Claims:
    gained = np.log(cell["lengths"][:, -1, 1:] / cell["lengths"][:, 0, 1:])
    names = [f"layer {i}" if i.isdigit() else i for i in _layers(cell)]
    longer = f"{prefix}training increases length after every layer: log of length at the end over that at step 0"
    deeper = f"{prefix}... by a factor that grows with depth: rise of that log a layer"
    deeper_by = over_runs(at_least, slopes(gained), MORE, names=["slope"])
    return {longer: over_runs(at_least, gained, MORE, names=names), deeper: deeper_by}


def scale_claims(found: Found) -> Claims:
    cell = found.one()
    text = "training increases the weight scale of every layer: log of sigma_w^2 at the end over that at step 0"
    gained = np.log(cell["scale"][:, -1] / cell["scale"][:, 0])
    return {**accurate(found), text: over_runs(at_least, gained, MORE, names=_layers(cell, "weighted"))}


def draw_steps(by: str, column: str, label: str, found: Found) -> plots.Figure:
    """A column against layer, a panel for each value of ``by``, one line a step from dark to light."""
    from matplotlib import colormaps, ticker

    parts, steps = list(found.table.by(by)), found.sweep["at"]
    picture, (panels,) = plots.figure(4.9 * len(parts) + 1.5, 4.4, 1, len(parts), squeeze=False, sharey=True)
    colours = colormaps["viridis"](np.linspace(0.02, 0.85, len(steps)))  # its lightest cannot be seen on white
    for axes, (name, rows) in zip(panels, parts, strict=True):
        names, kinds = rows.where(step=0).of("layer", "kind")
        x = np.arange(1.0, len(names) + 1)
        for place, (step, part) in enumerate(rows.by("step")):
            beside = 0.06 * (place - (len(steps) - 1) / 2)  # so that bars do not hide each other
            look = {"color": colours[place], "linestyle": "-", "markersize": 3.6, "capsize": 1.5, "linewidth": 1.2}
            plots.means(axes, part, x + beside, column, place, f"{step:,}", **look)
        mark_pools(axes, list(kinds))
        axes.set_xticks(x, names, rotation=40, ha="right")
        axes.set(xlabel="layer", title=name, yscale="log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, place: f"{value:,g}"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    panels[0].set_ylabel(label)
    panels[-1].legend(title="step", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


def norm_table(found: Found) -> Table:
    normed = Found(found.sweep, found.where(networks=NORMED))
    return Table({"statistics": mode, **row} for name, mode in MODES.items() for row in length_table(name, normed))


def norm_claims(found: Found) -> Claims:
    plain, cell = found.one(networks=PLAIN), found.one(networks=NORMED)
    layers, kinds, steps = cell.results[0]["layers"], cell.results[0]["kinds"], found.sweep["at"]
    late = [s for s, step in enumerate(steps) if step >= min(SETTLED, steps[-1])]
    decided = dict(accurate(found, [cell]))
    for measured, mode in MODES.items():
        for kind, plural in (("convolution", "convolutions"), ("linear", "fully connected layers")):
            norms = [n for n in range(1, len(kinds)) if (kinds[n - 1], kinds[n]) == (kind, "batch norm")]
            growth = growth_of(cell[measured])[..., norms]
            names = [f"{layers[n]}, step {steps[s]}" for s in late for n in norms]
            last = zip(norms, growth[:, -1].mean(0), strict=True)
            detail = "at the end " + ", ".join(f"{layers[n]} {value:.3g}" for n, value in last)
            text = f"{mode}: from step {SETTLED} on batch norms behind {plural} reduce length: their growth"
            decided[text] = more(over_runs(at_most, growth[:, late], 1.0, names=names), after=detail)
            if measured == "lengths_batch":
                text = f"{mode}: at step 0 batch norms behind {plural} increase it, dividing by a small variance"
                decided[text] = over_runs(at_least, growth[:, 0], 1.0, names=[layers[n] for n in norms])
    mean, error = means(np.log(each["lengths"][:, -1, -1]) for each in (cell, plain))
    less = [mean[0] - mean[1]], [np.hypot(*error)], 0.0, min(cell.runs, plain.runs), ["difference"]
    text = "after training length at the output is less than without batch norm: difference of the logs"
    return {**decided, text: by(at_most, *less)}


def noise_table(found: Found) -> Table:
    def row(unit: str, cell: Cell) -> Any:
        inner = {"layer": _layers(cell, "weighted"), "size": getattr(cell.spec, unit)}
        return {"accuracy": cell[unit], "cost": cell["clean"][:, None, None] - cell[unit]}, {}, inner

    return Table({"noise": unit, **item} for unit in UNITS for item in found.rows(partial(row, unit)))


def noise_claims(found: Found) -> Claims:
    decided = dict(accurate(found))
    for cell, unit in product(found, UNITS):
        prefix, kept = f"{cell.at['networks']}, {unit} noise: ", cell[unit].mean(2)  # over the sizes, (runs, layers)
        least = "the first layer is the least robust: accuracy with noise in another one, less that with noise in it"
        others = _layers(cell, "weighted")[1:]
        decided[prefix + least] = over_runs(at_least, kept[:, 1:] - kept[:, :1], MORE, names=others)
        text = f"{prefix}earlier layers are less robust: rise of accuracy a layer"
        decided[text] = over_runs(at_least, slopes(kept), MORE, names=["slope"])
    for cell, unit in product(found, UNITS) if found.sweep["data"] == "cifar10" else ():  # of which alone it is said
        lost = cell["clean"][:, None] - cell[unit][:, :, getattr(cell.spec, unit).index(PRINTED_NOISE)]
        first, fifth = lost[:, 0], lost[:, _layers(cell, "weighted").index(FIFTH)]
        prefix = f"{cell.at['networks']}, {unit} noise of {PRINTED_NOISE:g} in the"
        text = f"{prefix} first layer costs 0.7 in accuracy, to 0.1"
        decided[text] = over_runs(between, first, 0.6, 0.8, names=["cost"])
        decided[f"{prefix} fifth layer costs 0.02, at most 0.05"] = over_runs(at_most, fifth, 0.05, names=["cost"])
    return decided


def draw_noise(found: Found) -> plots.Figure:
    count = len(found.cells)
    picture, grid = plots.figure(9.2, 3.3 * count + 1.4, count, len(UNITS), squeeze=False, sharey=True)
    for row, cell in zip(grid, found, strict=True):
        for axes, unit in zip(row, UNITS, strict=True):
            layers = list(found.table.where(networks=cell.at["networks"], noise=unit).by("layer"))
            for place, (layer, part) in enumerate(layers):
                beside = 1.0 + 0.02 * (place - (len(layers) - 1) / 2)  # so that bars do not hide each other
                x, label = beside * part.column("size"), f"noise in {layer}"
                plots.means(axes, part, x, "accuracy", place, label, linestyle="-", linewidth=1.0)
            axes.axhline(cell["clean"].mean(), color=plots.BOUND, linestyle="--", linewidth=1.0, label="without noise")
            axes.set(title=f"{cell.at['networks']}, {unit} noise", ylim=(0, 1.03))
            plots.ticks(axes, found.sweep[unit], scale="log")
        row[0].set_ylabel("test accuracy")
    for axes, unit in zip(grid[-1], ("in units of the weights", "relative to the layer's weights"), strict=True):
        axes.set_xlabel(f"noise (standard deviation), {unit}")
    plots.legend_below(picture, *grid[0][0].get_legend_handles_labels(), columns=5)
    return picture


# ---- Figure 11
# All three kinds of network begin with the same weights and see the same batches, run by run, so differences are
# paired. docs/trajectory-regularization says how their rates were chosen, and what the paper leaves open.
KINDS = {"batch": "batch norm", "trajectory": "trajectory regularization", "none": "neither"}  # norm -> its name
COMPARABLE = 0.02  # accuracies perform "comparably" if they differ by less


def regularized(spec: Spec, seed: int) -> dict[str, Any]:
    """Train one network by Adam and test it ``at`` some steps; a seed has the same weights and batches in every kind.
    As in :func:`trained`: ``accuracy``, that of a guess from where a run diverged on, ``loss`` without the penalty and
    ``diverged``; and ``multipliers`` and ``ratios``, lambda and current over original length of each regularization
    layer, (steps, layers), no layers without.
    """
    given, held = _examples(spec)
    tested = Accuracy(*held)

    def look(_: int, net: nn.Module) -> dict[str, Any]:
        layers = [part for part in net.modules() if isinstance(part, TrajectoryRegularization)]
        lengths = [(float(layer.segment), float(layer.original_segment)) for layer in layers]
        ratios = [now / begun if begun > 0 else 1.0 for now, begun in lengths]  # before any training it is 1
        return {**tested(net), "multipliers": [layer.multiplier.item() for layer in layers], "ratios": ratios}

    with training(spec, seed, given, torch.optim.Adam, look) as (_, done):
        found = history(spec, done, "accuracy", "multipliers", "ratios")
    found["accuracy"] = np.nan_to_num(found["accuracy"], nan=1 / spec.network.classes)  # what is left is a guess
    return found


@by_cell
def regularized_table(cell: Cell) -> Any:
    """One row for each kind and step; runs that diverged are among them with the accuracy of a guess."""
    more = {"learning_rate": cell.spec.learning_rate, "diverged": int(cell["diverged"].sum())}
    for column, name in (("lambda", "multipliers"), ("length_ratio", "ratios")):
        steps = cell[name].swapaxes(0, 1)
        more[column] = [float(np.nanmean(step)) for step in steps] if steps.size else None
    return {"accuracy": cell["accuracy"]}, more, {"step": cell.spec.at}


def regularized_claims(found: Found) -> Claims:
    # both "perform comparably, and considerably better than not using batch norm"; "slightly more train time"
    batch, trajectory, none = KINDS.values()
    tests, decided, every = {cell.at["network"]: cell["accuracy"] for cell in found}, {}, slice(1, None)

    def difference(part: slice, a: str, b: str, decide: Callable[..., Claim], *bounds: float) -> Decision:
        first, second = (tests[name][:, part].mean(1) for name in (a, b))
        text = f"{first.mean():.4f} ({a}) minus {second.mean():.4f} ({b})"
        return over_runs(decide, first - second, *bounds, names=[text])

    for when, part in (("after training", slice(-1, None)), ("through training, mean of the tests", every)):
        for name in (batch, trajectory):
            text = f"{when}: {name} is better than neither: difference in test accuracy"
            decided[text] = difference(part, name, none, at_least, MORE)
        text = f"{when}: {trajectory} and {batch} differ by less than {COMPARABLE:g} in test accuracy"
        decided[text] = difference(part, trajectory, batch, between, -COMPARABLE, COMPARABLE)
    text = f"{trajectory} takes more training than {batch}: its mean of the tests is lower, difference"
    return {**decided, text: difference(every, trajectory, batch, at_most, 0.0)}


@plots.drawn(6.4, 4.4, legend="lower right")
def draw_regularized(found: Found, axes: plots.Axes) -> None:
    last = found.sweep["at"][-1]
    for place, (name, rows) in enumerate(found.table.by("network")):
        label = name + (rows.labels(" ({diverged} of {runs} diverged)")[0] if rows[0]["diverged"] else "")
        beside = rows.column("step") + (place - 1) * 0.004 * last  # so that bars do not hide each other
        plots.means(axes, rows, beside, "accuracy", place, label, linestyle="-")
    chance = 1 / found.cells[0].spec.network.classes
    axes.axhline(chance, color=plots.BOUND, linestyle=":", linewidth=1.2, label="chance")
    axes.set(xlabel="training step", ylabel="test accuracy")


def kinds(network: ConvNet, *rates: float) -> dict[str, dict[str, Any]]:
    named = zip(KINDS.items(), rates, strict=True)
    return {name: {"network": replace(network, norm=norm), "learning_rate": rate} for (norm, name), rate in named}


def tuned(sweep: Sweep) -> str:
    rates = str([spec.learning_rate for _, spec, _ in sweep.cells()])[1:-1]
    return replace(sweep, axes={}, spec=sweep.cells()[0][1]).fill(_TUNED % rates)


# ---- Figures 7 and 17: exactly one hidden layer is trained, from the second one on
SPLITS = {"train": 0, "test": 1}  # streams of where the images of a split are moved to
LOW = 0.6  # test accuracy is low below this; dense networks that are trained whole reach about 0.6 on CIFAR-10
GAP = 0.1  # ... and generalisation is poor if it is so far below training accuracy


def tanh_net(spec: Spec, inputs: int, classes: int, seed: int) -> nn.Sequential:
    sizes = [inputs, *[spec.width] * spec.hidden, classes]
    return mlp(sizes, "hardtanh", weights=Gaussian(math.sqrt(spec.variance)), seed=seed)


def trained_alone(spec: Spec, seed: int) -> dict[str, Any]:
    """Train one layer: ``train`` and ``test`` accuracy, before training and after every epoch; ``diverged``. The
    network is one of hard tanh without biases at first, ``variance`` is sigma_w^2; ``layer`` 1 makes the second hidden
    layer. Images are put at a random place of a black square of that ``side``; 0 leaves them as they are. At most
    ``judged`` training images are used for the training accuracy.
    """
    (x, y), (held, labels) = (tensors(spec.data, split) for split in SPLITS)
    if spec.side:
        moved = [scattered(load(spec.data, split).images, spec.side, stream) for split, stream in SPLITS.items()]
        mean, scale = moved[0].mean(), moved[0].std()
        x, held = (torch.from_numpy((each - mean) / scale) for each in moved)
    net = tanh_net(spec, x.shape[1], EXTENTS[spec.data][1], seed)
    known, new = Accuracy(x[: spec.judged], y[: spec.judged], "train"), Accuracy(held, labels, "test")
    evaluate = lambda model: known(model) | new(model)  # noqa: E731
    fields = {name: vars(spec)[name] for name in ("epochs", "batch_size", "learning_rate")}
    fields |= {"optimizer": partial(torch.optim.SGD, momentum=spec.momentum), "device": chosen_device()}
    done = train_one_layer(net, spec.layer, (x, y), seed=seed, evaluate=evaluate, **fields)
    rows = [row for row in done.history if "train" in row]
    rows += rows[-1:] * (spec.epochs + 1 - len(rows))
    return {**{split: np.array([row[split] for row in rows]) for split in SPLITS}, "diverged": done.diverged}


def scattered(images: np.ndarray, side: int, stream: int) -> np.ndarray:
    """Each image (channels, height, width) at a random place of a black square, flat, float32."""
    count, channels, height, width = images.shape
    found, source = np.zeros((count, channels, side, side), dtype=np.float32), numpy_generator(0, stream)
    rows, columns = (source.integers(side - size + 1, size=count) for size in (height, width))
    for place, (image, row, column) in enumerate(zip(images, rows, columns, strict=True)):
        found[place, :, row : row + height, column : column + width] = image
    return found.reshape(count, -1)


def alone_cost(spec: Spec) -> Cost:
    shape, classes, train, test = EXTENTS[spec.data]
    inputs = spec.side**2 or math.prod(shape)

    def frozen() -> nn.Sequential:  # what is below the trained layer needs no gradient
        net = tanh_net(spec, inputs, classes, 0).requires_grad_(False)
        [part for part in net if isinstance(part, nn.Linear)][spec.layer].requires_grad_(True)
        return net

    name = f"{spec.data}, width {spec.width}, layer {spec.layer + 1} alone"
    tested = (spec.epochs + 1) * (min(spec.judged, train) + test)
    return Cost(name, (), frozen, (inputs,), classes, spec.batch_size, spec.epochs * train, tested)


@by_cell
def alone_table(cell: Cell) -> Any:
    beside = {"hidden_layer": cell.spec.layer + 1, "diverged": int(cell["diverged"].sum())}
    return {f"{split}_accuracy": cell[split] for split in SPLITS}, beside, {"epoch": range(cell.spec.epochs + 1)}


def alone_claims(low: bool, found: Found) -> Claims:
    train, test = (found[split][:, :, -1].T for split in SPLITS)  # (runs, layers)
    layers = found.sweep["layer"]
    pairs, names = [f"layer {a + 1} over {b + 1}" for a, b in pairwise(layers)], [f"layer {one + 1}" for one in layers]
    slopes_of = [over_runs(at_most, slopes(accuracy), 0.0, names=["slope"]) for accuracy in (train, test)]
    more = over_runs(at_least, train[:, :-1] - train[:, 1:], MORE, names=pairs)
    poor = {
        f"test accuracy stays below {LOW:g} whichever layer is trained": over_runs(at_most, test, LOW, names=names),
        f"... and at least {GAP:g} below training accuracy": over_runs(at_least, train - test, GAP, names=names),
    }
    return {
        "training a lower layer gives more training accuracy than the next one up": more,
        "training accuracy falls with the number of the trained layer (slope a layer)": slopes_of[0],
        "and so does test accuracy (slope a layer)": slopes_of[1],
        **(poor if low else {}),
    }


def draw_alone(found: Found) -> plots.Figure:
    from matplotlib import colormaps

    picture, panels = plots.figure(10.0, 4.6, columns=2, sharey=True)
    colours = colormaps["viridis"](np.linspace(0.0, 0.9, len(found.cells)))
    for axes, split, title in zip(panels, SPLITS, ("training accuracy", "test accuracy"), strict=True):
        for place, (layer, rows) in enumerate(found.table.by("layer")):
            epochs, mean, error = rows.of("epoch", f"{split}_accuracy", f"{split}_accuracy_error")
            marker, every = plots.MARKERS[place % len(plots.MARKERS)], (place, max(1, len(mean) // 6))
            look, label = {"color": colours[place]}, f"hidden layer {layer + 1}"
            axes.plot(epochs, mean, marker=marker, markevery=every, label=label, **look)
            if found.sweep["runs"] > 1:
                axes.fill_between(epochs, mean - 2 * error, mean + 2 * error, alpha=0.2, linewidth=0, **look)
        axes.set(xlabel="epoch", title=title)
        axes.xaxis.get_major_locator().set_params(integer=True)
    least = min(found[split][:, :, 1 + found.sweep["epochs"] // 10 :].mean(1).min() for split in SPLITS)
    panels[0].set(ylabel="accuracy (the first epochs may be below)", ylim=(least - 0.02, 1.002))
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", title="trained alone")
    return picture


_BOTH, _PLAIN = conv_nets("none", "batch"), conv_nets("none")
_SGD = f"{{at.last:,}} steps of SGD at {{learning_rate:g}}, momentum {MOMENTUM:g}, batches of {{batch_size}}; "
_NET = "{data}, conv net, {network.channels[0]} channels, fully connected {network.hidden[0]} and {network.hidden[1]}, "
_NET += "sigma_w^2 = 2; "
_CONV = f"{_NET}{_SGD}{{runs}} networks of each kind"
_IN_ARCS = "; {arcs} arcs between test images in each"
_GREY = f"{_CONV}{_IN_ARCS}; grey: pooling layers"
_SCALE = f"{_CONV}; scale: fan-in times the mean square of the weights"
_IN_NOISE = f"{_CONV}; {{draws}} draws of noise, {{tested}} test images"
_WIDE = f"{{data}}; fully connected ReLU, 8 hidden layers of width 100; {_SGD}{{runs}} networks of each kind{_IN_ARCS}"
_FEW, _MNIST = ([DenseNet((size, *[100] * 8, 10), variance) for variance in (1.0, 2.0)] for size in (64, 784))
_DENSE = {"quick": named(_DENSE_DIGITS, _FEW, 8), "paper": named(_DENSE_MNIST, _MNIST, 8)}
_artifact, _of_lengths = partial(Artifact, cost=cost), partial(length_table, "lengths")
_LATER = (0, 500, 1000, 2000, 4000, 6000, 8000, 12_000, 16_000, 20_000)  # 51 epochs
_ADAM = Spec(data="digits", at=(0, 25, 50, 100, 150, 200, 300, 400, 500, 600), batch_size=32, tested=360, examples=None)
_LARGE = _ADAM.but(data="cifar10", at=_LATER, batch_size=128, tested=10_000)
_THREE = {
    "quick": Sweep(regularized, _ADAM, {"network": kinds(SMALL, 0.01, 0.01, 0.003)}, runs=12),
    "paper": Sweep(regularized, _LARGE, {"network": kinds(ConvNet(), 0.001, 0.001, 0.001)}, runs=4),
}
_TUNED = f"{_NET}{{at.last:,}} steps of Adam at %s in turn, batches of {{batch_size}}; {{runs}} networks of each kind"
_ELEVENTH = "Test accuracy with batch norm, trajectory regularization and neither"
_OF_KIND = regularized_table, regularized_claims, draw_regularized, tuned
# a network has the same weights, and the same batches, whichever layer is trained
_RATES = {"epochs": 30, "batch_size": 64, "learning_rate": 0.3, "momentum": 0.9, "judged": 10_000}
_TANH = Spec(data="digits", side=0, width=100, hidden=8, variance=1.0, **_RATES)
_ALONE = Sweep(trained_alone, _TANH, {"layer": tuple(range(1, 8))}, runs=10)
_HARD = _ALONE.but(side=14, width=200, runs=5)
_EASY, _HARDER = _ALONE.but(data="mnist", epochs=20, runs=5), _HARD.but(data="cifar10", side=0, epochs=40)


def _one_layer(name: str, title: str, quick: Sweep, paper: Sweep, low: bool) -> Artifact:
    about = "{data}%s; hard tanh, {hidden} hidden layers of width {width}, sigma_w^2 = {variance:g}; {epochs} epochs "
    about += "of SGD at {learning_rate:g}, batches of {batch_size}; {runs} runs; bands, bars: two standard errors"
    about %= " at random places of a field of side {side} (0: as they are)" * low
    fields = {"quick": quick, "paper": paper}, alone_table, partial(alone_claims, low), draw_alone, about, alone_cost
    return Artifact(f"raghu/{name}", f"Accuracy with exactly one hidden layer trained{title}", "section 3.1", *fields)


_LENGTHS = partial(draw_steps, "networks", "length", "length of the arc after the layer")
_BY_MODE = partial(draw_steps, "statistics", "length", "length of the arc after the layer")
_SCALES = partial(draw_steps, "networks", "scale", r"weight scale $\sigma_w^2$ of the layer")
_SIXTH, _NINTH = "Accuracy against noise in one layer's weights", "Weight scale of each layer through training"
_EIGHTH, _TITLE = "Trajectory length of each layer through training", "Trajectory length through training"
_TENTH, _EIGHTEENTH, _AT = f"{_TITLE} with batch norm", f"{_TITLE}, fully connected", "section 3.2"
ARTIFACTS = (
    _artifact("raghu/fig6", _SIXTH, "section 3.1", _BOTH, noise_table, noise_claims, draw_noise, _IN_NOISE),
    _artifact("raghu/fig8", _EIGHTH, _AT, _PLAIN, _of_lengths, conv_claims, _LENGTHS, _GREY),
    _artifact("raghu/fig9", _NINTH, _AT, _PLAIN, scale_table, scale_claims, _SCALES, _SCALE),
    _artifact("raghu/fig10", _TENTH, _AT, _BOTH, norm_table, norm_claims, _BY_MODE, _GREY),
    Artifact("raghu/fig11", _ELEVENTH, "section 3.3", _THREE, *_OF_KIND, _cost),
    _one_layer("fig7", "", _ALONE, _EASY, False),
    _one_layer("fig17", ", harder images", _HARD, _HARDER, True),
    _artifact("raghu/fig18", _EIGHTEENTH, _AT, _DENSE, _of_lengths, dense_claims, _LENGTHS, _WIDE),
)
