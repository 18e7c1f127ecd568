"""Raghu Figure 11 (section 3.3): test accuracy with batch norm, trajectory regularization and neither.

All three kinds of network begin with the same weights and see the same batches, run by run, so differences are paired.
In the quick preset the learning rate of each kind is the best of 0.001, 0.003 and 0.01 for it (for batch norm 0.03 was
tried too), by the accuracy of three networks on training images held out from training; their seeds, 100 to 102, are in
no preset. In the paper preset it is 0.001 for all, a common one of Adam, and not tuned. What the paper leaves open: no
augmentation; Adam without weight decay, since under SGD lambda is unsteady (docs/trajectory-regularization); lambda is
one number a layer, begins at 1, and the penalty is scaled by 0.01; the original length is that of the first minibatch.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most, between
from epoch0.experiments.cost import Cost
from epoch0.papers.raghu.convnet import SMALL, ConvNet
from epoch0.papers.raghu.trained import history, training
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Claims, Decision, Table, over_runs
from epoch0.papers.trials import tensors
from epoch0.train.evaluation import Accuracy
from epoch0.train.trajectory_regularization import TrajectoryRegularization

KINDS = {"batch": "batch norm", "trajectory": "trajectory regularization", "none": "neither"}  # norm -> its name
COMPARABLE = 0.02  # accuracies perform "comparably" if they differ by less


def regularized(spec: Spec, seed: int) -> dict[str, Any]:
    """Train one network by Adam and test it ``at`` some steps, on so many test images.

    A seed has the same weights and batches in every kind of network.

    Returns:
        ``steps``, (steps,); ``accuracy`` on test images, (steps,), that of a guess from where a run diverged on;
        ``loss`` since the last test, (steps,), without the penalty, NaN at first; ``multipliers`` and ``ratios``,
        lambda and current over original length of each regularization layer, (steps, layers), no layers without;
        ``diverged``; ``device``.
    """
    (x, y), (held, labels) = (tensors(spec.data, split, flatten=False) for split in ("train", "test"))
    tested, few = Accuracy(held[: spec.tested], labels[: spec.tested]), (x[: spec.examples], y[: spec.examples])
    with training(spec, seed, few, torch.optim.Adam, lambda _, net: {**tested(net), **_layers(net)}) as (net, done):
        found = history(spec, done, "accuracy", "multipliers", "ratios")
    found["accuracy"] = np.nan_to_num(found["accuracy"], nan=1 / spec.network.classes)  # what is left is a guess
    return {**found, "device": next(net.parameters()).device.type}


def _layers(model: nn.Module) -> dict[str, list[float]]:
    """The lambda and length ratio of each regularization layer; a ratio before any training is 1."""
    layers = [part for part in model.modules() if isinstance(part, TrajectoryRegularization)]
    lengths = [(float(layer.segment), float(layer.original_segment)) for layer in layers]
    ratios = [now / begun if begun > 0 else 1.0 for now, begun in lengths]
    return {"multipliers": [layer.multiplier.item() for layer in layers], "ratios": ratios}


def cost(spec: Spec) -> Cost:
    net = spec.network
    name, images = f"conv net, {KINDS[net.norm]}, {spec.data}", spec.at[-1] * spec.batch_size
    build, tested = partial(net.build, 0), spec.tested * len(spec.at)
    return Cost(name, (), build, net.inputs, net.classes, spec.batch_size, images, tested)


def table(found: Found) -> Table:
    """One row for each kind and step; runs that diverged are among them with the accuracy of a guess."""
    at = list(found.sweep["at"])

    def more(cell: Cell, step: int) -> dict[str, Any]:
        row = {"learning_rate": cell.spec.learning_rate, "diverged": int(cell["diverged"].sum())}
        values = (cell[name][:, at.index(step)] for name in ("multipliers", "ratios"))
        multiplier, ratio = (float(np.nanmean(each)) if each.size else None for each in values)
        return {**row, "lambda": multiplier, "length_ratio": ratio}

    return found.rows(lambda cell: {"accuracy": cell["accuracy"]}, more, step=at)


def claims(found: Found) -> Claims:
    """Section 3.3: both "perform comparably, and considerably better than not using batch norm"; "slightly more train
    time" for trajectory regularization (Figure 11).
    """
    batch, trajectory, none = KINDS.values()
    tests, decided, every = {cell.at["network"]: cell["accuracy"] for cell in found}, {}, slice(1, None)

    def difference(part: slice, a: str, b: str, decide: Callable[..., Claim], *bounds: float) -> Decision:
        first, second = (tests[name][:, part].mean(1) for name in (a, b))
        told = f"{first.mean():.4f} ({a}) minus {second.mean():.4f} ({b})"
        return over_runs(decide, first - second, *bounds, names=[told])

    for when, part in (("after training", slice(-1, None)), ("through training, mean of the tests", every)):
        for name in (batch, trajectory):
            text = f"{when}: {name} is better than neither: difference in test accuracy"
            decided[text] = difference(part, name, none, at_least, 0.0)
        text = f"{when}: {trajectory} and {batch} differ by less than {COMPARABLE:g} in test accuracy"
        decided[text] = difference(part, trajectory, batch, between, -COMPARABLE, COMPARABLE)
    text = f"{trajectory} takes more training than {batch}: its mean of the tests is lower, difference"
    return {**decided, text: difference(every, trajectory, batch, at_most, 0.0)}


def draw(found: Found) -> plots.Figure:
    picture, axes = plots.figure(6.4, 4.4)
    last = found.sweep["at"][-1]
    for place, (name, rows) in enumerate(found.table.by("network")):
        label = name + (rows.told(" ({diverged} of {runs} diverged)")[0] if rows[0]["diverged"] else "")
        beside = rows.column("step") + (place - 1) * 0.004 * last  # so that bars do not hide each other
        plots.means(axes, rows, beside, "accuracy", place, label, linestyle="-")
    chance = 1 / found.cells[0].spec.network.classes
    axes.axhline(chance, color=plots.BOUND, linestyle=":", linewidth=1.2, label="chance")
    axes.set(xlabel="training step", ylabel="test accuracy")
    axes.legend(loc="lower right")
    return picture


def kinds(network: ConvNet, *rates: float) -> dict[str, dict[str, Any]]:
    named = zip(KINDS.items(), rates, strict=True)
    return {name: {"network": replace(network, norm=norm), "learning_rate": rate} for (norm, name), rate in named}


_AT = (0, 25, 50, 100, 150, 200, 300, 400, 500, 600)
_LONG = (0, 500, 1000, 2000, 4000, 6000, 8000, 12_000, 16_000, 20_000)  # 51 epochs
_DIGITS = Spec(data="digits", at=_AT, batch_size=32, tested=360, examples=None)
_CIFAR = Spec(data="cifar10", at=_LONG, batch_size=128, tested=10_000, examples=None)
_PRESETS = {
    "quick": Sweep(regularized, _DIGITS, {"network": kinds(SMALL, 0.01, 0.01, 0.003)}, runs=12),
    "paper": Sweep(regularized, _CIFAR, {"network": kinds(ConvNet(), 0.001, 0.001, 0.001)}, runs=4),
}
_ABOUT = "conv net; Adam, learning rates tuned for each kind in quick, 0.001 in paper; bars: two standard errors"
_TITLE = "Test accuracy with batch norm, trajectory regularization and neither"
ARTIFACTS = (Artifact("raghu/fig11", _TITLE, "section 3.3", _PRESETS, table, claims, draw, _ABOUT, cost),)
