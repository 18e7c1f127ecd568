"""What Hayou's accuracy tables cost: one line a network and data set, for a dry run."""

import itertools
from collections.abc import Sequence
from functools import partial

from epoch0.experiments.cost import Cost
from epoch0.papers.hayou.accuracy import Panel, Setting, runs_of
from epoch0.papers.hayou.accuracy_winners import WinnersSetting
from epoch0.papers.hayou.protocol import build, shape_for
from epoch0.papers.hayou.recipe import with_method

EXTENTS: dict[str, tuple[tuple[int, ...], int, int, int]] = {
    "digits": ((1, 8, 8), 10, 1437, 360),
    "mnist": ((1, 28, 28), 10, 60_000, 10_000),
    "cifar10": ((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": ((3, 32, 32), 100, 50_000, 10_000),
    "tiny-imagenet": ((3, 64, 64), 200, 100_000, 10_000),
    "imagenet": ((3, 224, 224), 1000, 1_281_167, 50_000),
}
"""Data set -> shape of an input, classes, training images, test images: the sets need not be there."""


def costs(setting: Setting | WinnersSetting) -> list[Cost]:
    """One cost a panel, and one more for an OBD reference, whose runs are longer."""
    return costs_of(setting.panels)


def costs_of(panels: Sequence[Panel]) -> list[Cost]:
    """The costs of panels."""
    found = []
    for panel, obd in itertools.product(panels, (False, True)):
        base, network = panel.base, panel.base.network
        methods = [method for method in panel.methods if (method == "obd") == obd]
        if not methods:
            continue
        shape, classes, train, test = EXTENTS[base.data]
        inputs, whole = shape_for(network, shape), with_method(base, methods[-1], 0.5)
        name = f"{network.name} x{network.width:g}, {base.data}, {network.activation}, batches of {base.batch_size}"
        trials = [trial for cell in panel.cells() if cell[0] in methods for trial in runs_of(panel, *cell)]
        images, tests = min(train, base.examples or train), min(test, base.tested or test)
        found.append(
            Cost(
                name + ", OBD" * obd, trials, partial(build, network, inputs, classes, False, 0), inputs, classes,
                base.batch_size, whole.epochs_in_all * images, whole.tests_in_all * tests,
            )
        )  # fmt: skip
    return found
