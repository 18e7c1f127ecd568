"""What Hayou's accuracy tables cost: one line a network and data set, for a dry run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import nn

from epoch0.experiments.cost import Cost, Workload
from epoch0.papers.hayou.accuracy import Panel, Setting, runs_of
from epoch0.papers.hayou.accuracy_winners import WinnersSetting
from epoch0.papers.hayou.protocol import build, shape_for
from epoch0.papers.hayou.recipe import Network, Recipe, with_method
from epoch0.prune import apply
from epoch0.prune.masks.keep import select
from epoch0.prune.masks.places import prunable
from epoch0.prune.scores.baselines import random
from epoch0.train.augmentation import PadCropFlip
from epoch0.train.device import chosen_device, prefers_channels_last
from epoch0.train.optimizers import SGD
from epoch0.train.sources import Images


@dataclass(frozen=True)
class Extent:
    """What must be known of a data set before it is there.

    Attributes:
        shape: of one input.
        classes: how many.
        train: images.
        test: images.
    """

    shape: tuple[int, ...]
    classes: int
    train: int
    test: int


EXTENTS = {
    "digits": Extent((1, 8, 8), 10, 1437, 360),
    "mnist": Extent((1, 28, 28), 10, 60_000, 10_000),
    "cifar10": Extent((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": Extent((3, 32, 32), 100, 50_000, 10_000),
    "tiny-imagenet": Extent((3, 64, 64), 200, 100_000, 10_000),
    "imagenet": Extent((3, 224, 224), 1000, 1_281_167, 50_000),
}
"""The sets of the tables."""


def costs(setting: Setting | WinnersSetting) -> list[Cost]:
    """One cost a panel, and one more for an OBD reference, whose runs are longer."""
    return costs_of(setting.panels)


def costs_of(panels: Sequence[Panel]) -> list[Cost]:
    """The costs of panels, from the number of images of their data sets, which need not be there.

    >>> [cost.runs for cost in costs_of([Panel(recipe, ("obd", "snip", "sbp-sr"), (0.9, 0.95), 3)])]
    [12, 6]
    """
    found = []
    for panel in panels:
        once = [method for method in panel.methods if method != "obd"]
        for methods, words in ((once, ""), ([m for m in panel.methods if m == "obd"], ", OBD")):
            if methods:
                found.append(_cost(panel, methods, words))
    return found


def _cost(panel: Panel, methods: list[str], words: str) -> Cost:
    base, extent = panel.base, EXTENTS[panel.base.data]
    network = base.network
    trials = [trial for cell in panel.cells() if cell[0] in methods for trial in runs_of(panel, *cell)]
    whole = with_method(base, methods[-1], 0.5)
    parameters, weights = _counts(network, extent)
    images, tests = min(extent.train, base.examples or extent.train), min(extent.test, base.tested or extent.test)
    name = f"{network.name} x{network.width:g}, {base.data}"
    tanh = "" if network.activation == "relu" else f", {network.activation}"
    return Cost(
        name + tanh + words, len(trials), parameters, weights, whole.epochs_in_all * images,
        probe=workload(base, extent).speed, evaluated=whole.tests_in_all * tests, trials=trials,
        timed_as=f"{name}{tanh}, batches of {base.batch_size}, {base.precision}",
    )  # fmt: skip


def workload(recipe: Recipe, extent: Extent) -> Workload:
    """The training steps of a recipe, masks applied, images as they come from memory."""
    extent = replace(extent, shape=shape_for(recipe.network, extent.shape))
    streamed = recipe.data == "imagenet"
    training: dict[str, Any] = {
        "optimizer": SGD(recipe.momentum, recipe.weight_decay), "precision": recipe.precision,
        "channels_last": prefers_channels_last(recipe.precision, chosen_device()),
    }  # fmt: skip
    return Workload(
        partial(_masked, recipe.network, extent), extent.shape, extent.classes, recipe.batch_size, training,
        None if streamed else partial(_images, extent, recipe.augment),
    )  # fmt: skip


def _masked(network: Network, extent: Extent) -> nn.Module:
    net = build(network, extent.shape, extent.classes, False, 0)
    return apply(net, select(random(net), 0.95))


def _images(extent: Extent, augment: bool, examples: int) -> Images:
    """Random bytes in the form of the real images."""
    images = torch.randint(256, (examples, *extent.shape), dtype=torch.uint8)
    targets = torch.randint(extent.classes, (examples,))
    scaling = torch.tensor([[127.5], [64.0]]).expand(2, extent.shape[0]).contiguous()
    return replace(Images(images, targets, scaling), augment=PadCropFlip(4) if augment else None)


@lru_cache(maxsize=32)
def _counts(network: Network, extent: Extent) -> tuple[int, int]:
    net = build(network, shape_for(network, extent.shape), extent.classes, False, 0)
    weights = sum(weight.numel() for weight in prunable(net).values())
    return sum(parameter.numel() for parameter in net.parameters()), weights
