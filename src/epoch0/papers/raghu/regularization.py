"""Raghu Figure 11 (section 3.3): test accuracy with batch norm, trajectory regularization and neither.

All three kinds of network begin with the same weights and see the same batches, run by run, so differences are paired.
In the quick preset the learning rate of each kind is the best of 0.001, 0.003 and 0.01 for it (for batch norm 0.03 was
tried too), by the accuracy of three networks on training images held out from training; their seeds, 100 to 102, are in
no preset. In the paper preset it is 0.001 for all, a common one of Adam, and not tuned. What the paper leaves open: no
augmentation; Adam without weight decay, since under SGD lambda is unsteady (docs/trajectory-regularization); lambda is
one number a layer, begins at 1, and the penalty is scaled by 0.01; the original length is that of the first minibatch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most, between
from epoch0.experiments.cost import Cost
from epoch0.papers import pictures
from epoch0.papers.catalogue import Artifact
from epoch0.papers.raghu.convnet import SMALL, ConvNet, examples
from epoch0.papers.raghu.trained import history, training
from epoch0.papers.sweep import Cell, Claims, Decision, Found, Sweep, Table, over_runs
from epoch0.train.evaluation import Accuracy
from epoch0.train.trajectory_regularization import TrajectoryRegularization

KINDS = {"batch": "batch norm", "trajectory": "trajectory regularization", "none": "neither"}  # norm -> its name
COMPARABLE = 0.02  # accuracies perform "comparably" if they differ by less


@dataclass(frozen=True)
class RegularizedSpec:
    """What one trial trains by Adam, and the steps ``at`` which it is tested, on so many test images.

    ``examples`` None are all images.
    """

    data: str
    network: ConvNet
    at: tuple[int, ...]
    batch_size: int
    learning_rate: float
    tested: int
    examples: int | None = None


def regularized(spec: RegularizedSpec, seed: int) -> dict[str, Any]:
    """Train one network and test it at some steps. A seed has the same weights and batches in every kind of network.

    Returns:
        ``steps``, (steps,); ``accuracy`` on test images, (steps,), that of a guess from where a run diverged on;
        ``loss`` since the last test, (steps,), without the penalty, NaN at first; ``multipliers`` and ``ratios``,
        lambda and current over original length of each regularization layer, (steps, layers), no layers without;
        ``diverged``; ``device``.
    """
    (x, y), (held, labels) = (examples(spec.data, split, spec.network.inputs) for split in ("train", "test"))
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


def cost(spec: RegularizedSpec) -> Cost:
    """Of one network."""
    net = spec.network
    name, images = f"conv net, {KINDS[net.norm]}, {spec.data}", spec.at[-1] * spec.batch_size
    build, tested = partial(net.build, 0), spec.tested * len(spec.at)
    return Cost(name, (), build, net.inputs, net.classes, spec.batch_size, images, tested)


def table(found: Found) -> Table:
    """One row for each kind and step; runs that diverged are among them with the accuracy of a guess."""
    at = list(found.sweep["at"])

    def more(cell: Cell, step: int) -> dict[str, Any]:
        row = {"learning_rate": cell.spec.learning_rate, "diverged": int(cell["diverged"].sum())}
        for column, name in (("lambda", "multipliers"), ("length_ratio", "ratios")):
            values = cell[name][:, at.index(step)]
            row[column] = float(np.nanmean(values)) if values.size else None
        return row

    return found.rows(lambda cell: {"accuracy": cell["accuracy"]}, more, step=at)


def claims(found: Found) -> Claims:
    """Section 3.3: both "perform comparably, and considerably better than not using batch norm"; "slightly more train
    time" for trajectory regularization (Figure 11).
    """
    batch, trajectory, none = KINDS.values()
    tests = {cell.at["network"]: cell["accuracy"] for cell in found}
    decided = {}

    def difference(part: slice, a: str, b: str, decide: Callable[..., Claim], *bounds: float) -> Decision:
        """Of accuracies, run by run."""
        first, second = (tests[name][:, part].mean(1) for name in (a, b))
        told = f"{first.mean():.4f} ({a}) minus {second.mean():.4f} ({b})"
        return over_runs(decide, first - second, *bounds, names=[told])

    last, every = slice(-1, None), slice(1, None)
    for when, part in (("after training", last), ("through training, mean of the tests", every)):
        for name in (batch, trajectory):
            text = f"{when}: {name} is better than neither: difference in test accuracy"
            decided[text] = difference(part, name, none, at_least, 0.0)
        text = f"{when}: {trajectory} and {batch} differ by less than {COMPARABLE:g} in test accuracy"
        decided[text] = difference(part, trajectory, batch, between, -COMPARABLE, COMPARABLE)
    text = f"{trajectory} takes more training than {batch}: its mean of the tests is lower, difference"
    return {**decided, text: difference(every, trajectory, batch, at_most, 0.0)}


def draw(found: Found) -> pictures.Figure:
    """Test accuracy against training step, one line a kind; beside it the second half, enlarged."""
    picture, (whole, late) = plots.figure(8.6, 4.2, 1, 2, width_ratios=(3, 2))
    last = found.sweep["at"][-1]
    for axes in (whole, late):
        for place, (name, rows) in enumerate(found.table.by("network")):
            kept = Table(row for row in rows if row["step"] >= (last / 2 if axes is late else 0))
            label = name + (rows.told(" ({diverged} of {runs} diverged)")[0] if rows[0]["diverged"] else "")
            beside = kept.column("step") + (place - 1) * 0.004 * last  # so that bars do not hide each other
            pictures.points(axes, kept, beside, "accuracy", place, label, linestyle="-")
        axes.set(xlabel="training step")
    chance = 1 / found.sweep.spec.network.classes
    whole.axhline(chance, color=plots.BOUND, linestyle=":", linewidth=1.2, label="chance")
    whole.set(ylabel="test accuracy")
    whole.legend(loc="lower right")
    late.set_title("the second half, enlarged", loc="left")
    return picture


def _about(sweep: Sweep) -> str:
    network = sweep.spec.network
    channels = " to ".join(str(count) for count in sorted({network.channels[0], network.channels[-1]}))
    rates = ", ".join(f"{spec.learning_rate:g} ({at['network']})" for at, spec, _ in sweep.cells())
    return sweep.told(
        f"{{data}}, conv net, {channels} channels, sigma_w^2 = {network.variance:g}; "
        f"Adam, batch {{batch_size}}, learning rates {rates}; {{runs}} networks of each "
        "kind; bars: two standard errors"
    )


def kinds(network: ConvNet, *rates: float) -> dict[str, dict[str, Any]]:
    """The axis of the figure: each kind with its norm and learning rate."""
    return {
        name: {"network": replace(network, norm=norm), "learning_rate": rate}
        for (norm, name), rate in zip(KINDS.items(), rates, strict=True)
    }


_AT = (0, 25, 50, 100, 150, 200, 300, 400, 500, 600)
_LONG = (0, 500, 1000, 2000, 4000, 6000, 8000, 12_000, 16_000, 20_000)  # 51 epochs
_DIGITS = RegularizedSpec("digits", SMALL, _AT, 32, 0.0, tested=360)
_CIFAR = RegularizedSpec("cifar10", ConvNet(), _LONG, 128, 0.0, tested=10_000)
_PRESETS = {
    "quick": Sweep(regularized, _DIGITS, {"network": kinds(SMALL, 0.01, 0.01, 0.003)}, runs=12),
    "paper": Sweep(regularized, _CIFAR, {"network": kinds(ConvNet(), 0.001, 0.001, 0.001)}, runs=4),
}
_TITLE = "Test accuracy with batch norm, trajectory regularization and neither"
ARTIFACTS = (Artifact("raghu/fig11", _TITLE, "section 3.3", _PRESETS, table, claims, draw, _about, cost),)
