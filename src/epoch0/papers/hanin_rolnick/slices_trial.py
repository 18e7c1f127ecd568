"""Trials of Hanin-Rolnick Figures 1 and 8 (section 3.3): regions in planes through three examples of other classes.

The window is the square around the circle through the three examples, centred where they are equally far away. Which
classes the paper takes is lost in its text; here 0, 1 and 2. Figure 1 does not say whether its network is trained; here
it is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from epoch0 import regions
from epoch0.data import load
from epoch0.distributions import Gaussian
from epoch0.networks import ensemble
from epoch0.papers.hanin_rolnick.runs import BIAS_STD, tensors
from epoch0.regions import PlanePartition, pattern_colours
from epoch0.seeds import numpy_generator
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train
from epoch0.train.record import Every

CLASSES = (0, 1, 2)

_WEIGHTS, _BATCHES, _EXAMPLES = range(3)
"""Streams of a seed."""


@dataclass(frozen=True)
class RandomSpec:
    """Networks before training.

    Attributes:
        data: name of the data set.
        depth: number of hidden layers.
        width: of each.
        networks: how many.
        planes: of each network, each through three other examples.
        drawn: whether the first plane of the first network is kept for a picture.
    """

    data: str
    depth: int
    width: int
    networks: int
    planes: int
    drawn: bool


@dataclass(frozen=True)
class TrainedSpec:
    """One network through training.

    Attributes:
        data: name of the data set.
        depth: number of hidden layers.
        width: of each.
        at: epochs at which regions are counted, increasing from 0.
        batch_size: of training.
        learning_rate: of Adam.
        planes: how many, the same through all of training.
        drawn: epochs, among ``at``, at which the first plane is kept for a picture.
    """

    data: str
    depth: int
    width: int
    at: tuple[float, ...]
    batch_size: int
    learning_rate: float
    planes: int
    drawn: tuple[float, ...]


def random_slices(spec: RandomSpec, seed: int) -> dict[str, Any]:
    """Regions of random networks in planes through three examples.

    Returns:
        ``counts``, ``euler``, ``area_error``: (networks, planes); with ``drawn`` of the first plane ``linear``, its
        linear regions, ``distinct``, whether all its patterns differ, and the arrays of :func:`drawing` as ``0``.
    """
    torch.set_num_threads(1)
    examples = load(spec.data, "train")
    inputs, labels = tensors(examples)
    source = numpy_generator(seed, spec.depth, spec.width, _EXAMPLES)
    sizes = [inputs.shape[1], *[spec.width] * spec.depth, len(examples.classes)]
    weights = int(numpy_generator(seed, spec.depth, spec.width, _WEIGHTS).integers(2**31))
    rows: list[list[dict[str, float]]] = []
    kept: dict[str, Any] = {}
    for index, net in enumerate(ensemble(spec.networks, sizes, biases=Gaussian(BIAS_STD), seed=weights)):
        rows.append([])
        for plane in range(spec.planes):
            chosen = three(inputs, labels, source)
            found = regions.on_plane(net, regions.through(*chosen))
            rows[-1].append(_checked(found))
            if spec.drawn and index == plane == 0:
                checks = {"distinct": found.verify().distinct, "linear": found.linear_count}
                kept = {**drawing(found, chosen, "0"), **checks}
    return {**_stacked(rows), **kept}


def trained_slices(spec: TrainedSpec, seed: int) -> dict[str, Any]:
    """Regions of one network in planes through three examples, through its training.

    Returns:
        ``epoch`` and ``accuracy``, (epochs,); ``counts``, ``euler``, ``area_error``, (epochs, planes); for each of the
        ``drawn`` epochs the arrays of :func:`drawing` under its number in ``drawn``.
    """
    torch.set_num_threads(1)
    examples = load(spec.data, "train")
    inputs, labels = tensors(examples)
    accuracy = Accuracy(*tensors(load(spec.data, "test")))
    sources = [numpy_generator(seed, spec.depth, spec.width, stream) for stream in (_WEIGHTS, _BATCHES, _EXAMPLES)]
    sizes = [inputs.shape[1], *[spec.width] * spec.depth, len(examples.classes)]
    net = ensemble(1, sizes, biases=Gaussian(BIAS_STD), seed=int(sources[0].integers(2**31)))[0]
    planes = [three(inputs, labels, sources[2]) for _ in range(spec.planes)]
    steps = {round(epoch * -(-len(inputs) // spec.batch_size)): epoch for epoch in spec.at}
    rows: list[list[dict[str, float]]] = []
    told: dict[str, list[float]] = {"epoch": [], "accuracy": []}
    kept: dict[str, Any] = {}

    def measure(step: int, model: nn.Module, metrics: Mapping[str, Any]) -> None:
        if step not in steps:
            return
        told["epoch"].append(metrics["epoch"])
        told["accuracy"].append(accuracy(model)["accuracy"])
        rows.append([])
        for place, chosen in enumerate(planes):
            found = regions.on_plane(model, regions.through(*chosen))
            rows[-1].append(_checked(found))
            if place == 0 and seed == 0 and steps[step] in spec.drawn:
                kept.update(drawing(found, chosen, str(spec.drawn.index(steps[step]))))

    train(
        net, (inputs, labels), steps=max(steps), batch_size=spec.batch_size, optimizer="adam",
        learning_rate=spec.learning_rate, seed=int(sources[1].integers(2**31)),
        callbacks=[Every(gcd(*steps), measure)],
    )  # fmt: skip
    return {**{name: np.array(values) for name, values in told.items()}, **_stacked(rows), **kept}


def three(inputs: Tensor, labels: Tensor, source: np.random.Generator) -> list[Tensor]:
    """One example of each of the three classes, float64."""
    places = [np.flatnonzero(labels.numpy() == label) for label in CLASSES]
    return [inputs[int(source.choice(mine))].double() for mine in places]


def drawing(found: PlanePartition, chosen: list[Tensor], name: str) -> dict[str, NDArray[Any]]:
    """What a picture needs: cells with their colours, and where the three examples are in the plane."""
    axes = found.window.axes.reshape(2, -1)
    origin = found.window.origin.reshape(-1)
    places = torch.stack([(one - origin) @ axes.T for one in chosen]).numpy()
    return {
        f"vertices_{name}": found.vertices, f"cell_vertices_{name}": found.cell_vertices,
        f"cell_ends_{name}": found.cell_ends, f"colours_{name}": pattern_colours(found.patterns),
        f"examples_{name}": places, f"window_{name}": found.window.polygon.numpy(),
    }  # fmt: skip


def _checked(found: PlanePartition) -> dict[str, float]:
    certificate = found.certificate
    assert certificate.euler is not None and certificate.measure_error is not None
    return {"counts": found.count, "euler": certificate.euler, "area_error": certificate.measure_error}


def _stacked(rows: list[list[dict[str, float]]]) -> dict[str, NDArray[np.float64]]:
    return {name: np.array([[one[name] for one in row] for row in rows], dtype=np.float64) for name in rows[0][0]}
