"""Raghu Figures 7 and 17: accuracy when exactly one hidden layer is trained, from the second one on (section 3.1).

What is not in the paper is chosen as docs/raghu tells. Digits stand for MNIST in the quick preset. For CIFAR-10 they
stand at random places of a field three times as large, which dense networks can fit and hardly generalise on.
"""

import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import plots
from epoch0.data import DataSet, load
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, at_most
from epoch0.experiments.cost import Cost
from epoch0.networks import mlp
from epoch0.papers.sweep import Artifact, Found, Spec, Sweep
from epoch0.papers.tables import Claims, Table, over_runs, slopes
from epoch0.papers.trials import EXTENTS
from epoch0.seeds import numpy_generator
from epoch0.train.device import chosen_device
from epoch0.train.evaluation import Accuracy
from epoch0.train.single_layer import train_one_layer

SPLITS = {"train": 0, "test": 1}  # streams of where the images of a split are moved to
LOW = 0.6  # test accuracy is low below this; dense networks that are trained whole reach about 0.6 on CIFAR-10
GAP = 0.1  # ... and generalisation is poor if it is so far below training accuracy


def network(spec: Spec, inputs: int, classes: int, seed: int) -> nn.Sequential:
    sizes = [inputs, *[spec.width] * spec.hidden, classes]
    return mlp(sizes, "hardtanh", weights=Gaussian(math.sqrt(spec.variance)), seed=seed)


def trained(spec: Spec, seed: int) -> dict[str, Any]:
    """Train one layer: ``train`` and ``test`` accuracy, before training and after every epoch; ``diverged``.

    The network is one of hard tanh without biases at first, ``variance`` is sigma_w^2; ``layer`` 1 makes the second
    hidden layer. Images are put at a random place of a black square of that ``side``; 0 leaves them as they are. At
    most ``judged`` training images are used for the training accuracy.
    """
    train, test = load(spec.data, "train"), load(spec.data, "test")
    x, held = _inputs(spec, train, test)
    y, labels = torch.as_tensor(train.labels), torch.as_tensor(test.labels)
    net = network(spec, x.shape[1], len(train.classes), seed)
    judges = Accuracy(x[: spec.judged], y[: spec.judged], "train"), Accuracy(held, labels, "test")
    judge = lambda model: judges[0](model) | judges[1](model)  # noqa: E731
    sgd, rate = partial(torch.optim.SGD, momentum=spec.momentum), spec.learning_rate
    how = {"epochs": spec.epochs, "batch_size": spec.batch_size, "optimizer": sgd, "device": chosen_device()}
    done = train_one_layer(net, spec.layer, (x, y), learning_rate=rate, seed=seed, evaluate=judge, **how)
    rows = [row for row in done.history if "train" in row]
    rows += rows[-1:] * (spec.epochs + 1 - len(rows))
    return {**{split: np.array([row[split] for row in rows]) for split in SPLITS}, "diverged": done.diverged}


def _inputs(spec: Spec, train: DataSet, test: DataSet) -> tuple[Tensor, Tensor]:
    if not spec.side:
        return torch.as_tensor(train.inputs("standard")), torch.as_tensor(test.inputs("standard", like=train))
    moved = [scattered(each.images, spec.side, SPLITS[each.split]) for each in (train, test)]
    mean, scale = moved[0].mean(), moved[0].std()
    first, second = (torch.as_tensor((each - mean) / scale) for each in moved)
    return first, second


def scattered(images: np.ndarray, side: int, stream: int) -> np.ndarray:
    """Each image (channels, height, width) at a random place of a black square, flat, float32."""
    count, channels, height, width = images.shape
    found = np.zeros((count, channels, side, side), dtype=np.float32)
    source = numpy_generator(0, stream)
    rows, columns = source.integers(side - height + 1, size=count), source.integers(side - width + 1, size=count)
    for place, (image, row, column) in enumerate(zip(images, rows, columns, strict=True)):
        found[place, :, row : row + height, column : column + width] = image
    return found.reshape(count, -1)


def cost(spec: Spec) -> Cost:
    """What is below the trained layer needs no gradient."""
    shape, classes, train, test = EXTENTS[spec.data]
    inputs = spec.side**2 or int(np.prod(shape))

    def frozen() -> nn.Sequential:
        net = network(spec, inputs, classes, 0).requires_grad_(False)
        [part for part in net if isinstance(part, nn.Linear)][spec.layer].requires_grad_(True)
        return net

    name = f"{spec.data}, width {spec.width}, layer {spec.layer + 1} alone"
    tested = (spec.epochs + 1) * (min(spec.judged, train) + test)
    return Cost(name, (), frozen, (inputs,), classes, spec.batch_size, spec.epochs * train, tested)


def table(found: Found) -> Table:
    return found.rows(
        lambda cell: {f"{split}_accuracy": cell[split] for split in SPLITS},
        lambda cell, epoch: {"hidden_layer": cell.spec.layer + 1, "diverged": int(cell["diverged"].sum())},
        epoch=range(found.sweep["epochs"] + 1),
    )


def claims(low: bool, found: Found) -> Claims:
    train, test = (found[split][:, :, -1].T for split in SPLITS)  # (runs, layers)
    layers = found.sweep["layer"]
    pairs, names = [f"layer {a + 1} over {b + 1}" for a, b in pairwise(layers)], [f"layer {one + 1}" for one in layers]
    slopes_of = [over_runs(at_most, slopes(accuracy), 0.0, names=["slope"]) for accuracy in (train, test)]
    more = over_runs(at_least, train[:, :-1] - train[:, 1:], 0.0, names=pairs)
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


def draw(found: Found) -> plots.Figure:
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
    panels[0].set(ylabel="accuracy", ylim=(0, 1.01))
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", title="trained alone")
    return picture


# a network has the same weights, and the same batches, whichever layer is trained
_HOW = {"epochs": 30, "batch_size": 64, "learning_rate": 0.3, "momentum": 0.9, "judged": 10_000}
_SPEC = Spec(data="digits", side=0, width=100, hidden=8, variance=1.0, **_HOW)
_DIGITS = Sweep(trained, _SPEC, {"layer": tuple(range(1, 8))}, runs=10)
_PRESETS = {"quick": _DIGITS, "paper": _DIGITS.but(data="mnist", epochs=20, runs=5)}
_HARD_DIGITS = _DIGITS.but(side=14, width=200, runs=5)
_HARDER = {"quick": _HARD_DIGITS, "paper": _HARD_DIGITS.but(data="cifar10", side=0, epochs=40)}
_ABOUT = "hard tanh, variance: sigma_w^2; SGD; error bars as bands: two standard errors"
_TITLE, _PLACE = "Accuracy with exactly one hidden layer trained", "section 3.1"
_HARD = f"{_TITLE}, harder images", _PLACE, _HARDER
ARTIFACTS = (
    Artifact("raghu/fig7", _TITLE, _PLACE, _PRESETS, table, partial(claims, False), draw, _ABOUT, cost),
    Artifact("raghu/fig17", *_HARD, table, partial(claims, True), draw, _ABOUT, cost),
)
