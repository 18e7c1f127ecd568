"""Raghu Figures 7 and 17: accuracy when exactly one hidden layer is trained, from the second one on (section 3.1).

Not in the paper, and chosen here: eight hidden layers; inputs with mean 0 and variance 1; plain gradient descent with
momentum 0.9 on batches of 64. Of the rates 0.003, 0.01, 0.03, 0.1 and 0.3 the one was taken after which training
accuracy on digits, averaged over layers, was highest, on seeds that no preset uses (1000 and 1001); on MNIST, on seed
1000, it was the same. At rate 1, outside of these, all layers fit digits about as well. Digits stand for MNIST in the
quick preset. For CIFAR-10 they stand at random places of a field three times as large, which dense networks can fit
and hardly generalise on.
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from epoch0.experiments.claims import Claim, at_least, at_most
from epoch0.experiments.cost import Cost
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.hayou.accuracy_costs import EXTENTS
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu.single_layer_picture import draw
from epoch0.papers.raghu.single_layer_trial import LayerSpec, network

Array = NDArray[np.float64]

LOW = 0.6
"""Test accuracy is low below this; dense networks that are trained whole reach about 0.6 on CIFAR-10."""

GAP = 0.1
"""... and generalisation is poor if it is so far below training accuracy."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        base: every network; its layer is replaced.
        layers: the weights that are trained, one at a time, from below.
        runs: networks, each trained once for every layer.
    """

    base: LayerSpec
    layers: tuple[int, ...]
    runs: int


def trials(setting: Setting) -> list[Trial]:
    """One a layer and network; a network has the same weights, and the same batches, whichever layer is trained."""
    return [
        Trial("epoch0.papers.raghu.single_layer_trial:trained", replace(setting.base, layer=layer), run)
        for layer in setting.layers
        for run in range(setting.runs)
    ]


def gather(setting: Setting, results: Results, split: str) -> Array:
    """Accuracy, shape (runs, layers, epochs + 1)."""
    each = np.array([np.asarray(result[split], dtype=np.float64) for result in results])
    return np.asarray(each.reshape(len(setting.layers), setting.runs, -1).transpose(1, 0, 2))


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a layer and epoch: mean accuracies over runs with their standard errors."""
    parts = {split: mean_and_error(gather(setting, results, split)) for split in ("train", "test")}
    diverged = np.array([bool(result["diverged"]) for result in results]).reshape(len(setting.layers), setting.runs)
    return [
        {
            "layer": layer, "hidden_layer": layer + 1, "epoch": epoch,
            **{f"{split}_accuracy": float(mean[i, epoch]) for split, (mean, _) in parts.items()},
            **{f"{split}_error": float(error[i, epoch]) for split, (_, error) in parts.items()},
            "diverged": int(diverged[i].sum()), "runs": setting.runs,
        }
        for i, layer in enumerate(setting.layers) for epoch in range(setting.base.epochs + 1)
    ]  # fmt: skip


def claims(low: bool, setting: Setting, results: Results) -> list[Claim]:
    """Section 3.1: accuracy rises monotonically as lower layers are trained; Figure 17: generalisation stays low."""
    train, test = (gather(setting, results, split)[:, :, -1] for split in ("train", "test"))
    names = [f"layer {a + 1} over {b + 1}" for a, b in pairwise(setting.layers)]
    gains, error = mean_and_error(train[:, :-1] - train[:, 1:])
    found = [
        at_least("training a lower layer gives more training accuracy than the next one up", gains, error, 0.0,
                 setting.runs, names),
        _slope("training accuracy falls with the number of the trained layer", setting, train),
        _slope("and so does test accuracy", setting, test),
    ]  # fmt: skip
    if low:
        layers = [f"layer {layer + 1}" for layer in setting.layers]
        mean, error = mean_and_error(test)
        behind, behind_error = mean_and_error(train - test)
        found += [
            at_most(f"test accuracy stays below {LOW:g} whichever layer is trained", mean, error, LOW, setting.runs,
                    layers),
            at_least(f"... and at least {GAP:g} below training accuracy", behind, behind_error, GAP, setting.runs,
                     layers),
        ]  # fmt: skip
    return found


def _slope(text: str, setting: Setting, accuracy: Array) -> Claim:
    """The slope of a straight line through the accuracies of each run: below zero."""
    slopes = np.polyfit(np.array(setting.layers, dtype=float), accuracy.T, 1)[0]
    mean, error = mean_and_error(slopes)
    return at_most(f"{text} (slope a layer)", [mean], [error], 0.0, setting.runs, ["slope"])


def costs(setting: Setting) -> list[Cost]:
    """One cost a layer: what is below the trained one needs no gradient."""
    base = setting.base
    shape, classes, train, test = EXTENTS[base.data]
    inputs = base.side**2 if base.side else int(np.prod(shape))
    return [
        Cost(
            f"{base.data}, width {base.width}, layer {layer + 1} alone",
            [trial for trial in trials(setting) if trial.spec.layer == layer],
            partial(_frozen, replace(base, layer=layer), inputs, classes), (inputs,), classes, base.batch_size,
            base.epochs * train, (base.epochs + 1) * (min(base.judged, train) + test),
        )
        for layer in setting.layers
    ]  # fmt: skip


def _frozen(spec: LayerSpec, inputs: int, classes: int) -> nn.Sequential:
    net = network(spec, inputs, classes, 0).requires_grad_(False)
    [part for part in net if isinstance(part, nn.Linear)][spec.layer].requires_grad_(True)
    return net


def about(setting: Setting) -> str:
    """The setting in one line."""
    spec = setting.base
    data = f"{spec.data} at random places of {spec.side} x {spec.side}" if spec.side else spec.data
    return (
        f"hard-tanh, {spec.hidden} hidden layers of width {spec.width}, $\\sigma_w^2$ = {spec.variance:g}; {data}; "
        f"SGD, rate {spec.learning_rate:g}, momentum {spec.momentum:g}, batch {spec.batch_size}; "
        f"{setting.runs} networks; error bars as bands: two standard errors"
    )


_DIGITS = LayerSpec("digits", 0, 100, 8, 1.0, 1, 30, 64, 0.3, 0.9, 10_000)
_MNIST = replace(_DIGITS, data="mnist", epochs=20)
_FROM_SECOND = tuple(range(1, 8))

ARTIFACTS: tuple[OldArtifact, ...] = tuple(
    OldArtifact(
        f"raghu/{name}", title, f"Raghu et al., {where}", presets, trials, table, partial(claims, name == "fig17"),
        draw, lambda setting: setting.base.data, about, costs,
    )
    for name, title, where, presets in (
        (
            "fig7", "Accuracy with exactly one hidden layer trained", "Figure 7, section 3.1",
            {"quick": Setting(_DIGITS, _FROM_SECOND, 10), "paper": Setting(_MNIST, _FROM_SECOND, 5)},
        ),
        (
            "fig17", "Accuracy with exactly one hidden layer trained, harder images", "Figure 17, section 3.1",
            {
                "quick": Setting(replace(_DIGITS, side=14, width=200), _FROM_SECOND, 5),
                "paper": Setting(replace(_MNIST, data="cifar10", width=200, epochs=40), _FROM_SECOND, 5),
            },
        ),
    )
)  # fmt: skip
FIGURE_7, FIGURE_17 = ARTIFACTS
