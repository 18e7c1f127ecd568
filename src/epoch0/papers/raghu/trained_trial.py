"""One trial of Raghu Figures 6, 8, 9, 10 and 18: a network is trained, and measured on the way and in the end.

Definitions the paper leaves open, and what is taken here:

* pixels have mean 0 and variance 1 in every channel over the training images; no augmentation;
* SGD with momentum 0.9 and a constant learning rate, without weight decay, which would pull the weights down;
* a trajectory is the arc between two test images that the seed draws; lengths are means over several arcs;
* the weight scale of a layer is fan_in times the mean square of its weights: sigma_w^2 as it is now;
* noise is Gaussian, with a standard deviation in the units of the weights ("absolute") or as a part of the root mean
  square of the layer's weights ("relative"); the paper does not say which of the two its "magnitude" is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity.robustness import robustness
from epoch0.curves import Arc
from epoch0.data import load
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.papers.checkpoints import checkpoint_of
from epoch0.papers.raghu.convnet import ConvNet
from epoch0.seeds import numpy_generator
from epoch0.train.device import chosen_device
from epoch0.train.evaluation import Accuracy
from epoch0.train.lengths import TrajectoryLengths
from epoch0.train.loop import train
from epoch0.train.record import Every, Training

MOMENTUM = 0.9

_WEIGHTS, _BATCHES, _ARCS, _NOISE = range(4)
"""Streams of a trial's seed."""


@dataclass(frozen=True)
class DenseNet:
    """The fully connected ReLU network of Figure 18.

    >>> DenseNet((64, 100, 100, 10), variance=2.0).build(seed=0)(torch.zeros(5, 64)).shape
    torch.Size([5, 10])

    Attributes:
        sizes: inputs, widths of the hidden layers, classes.
        variance: sigma_w^2; a weight is Gaussian with variance sigma_w^2 / fan_in. Biases begin at zero.
    """

    sizes: tuple[int, ...]
    variance: float

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.sizes[:1]

    def build(self, seed: int) -> nn.Sequential:
        """One network."""
        return mlp(self.sizes, weights=Gaussian(math.sqrt(self.variance)), seed=seed)


@dataclass(frozen=True)
class TrainedSpec:
    """What one trial trains and measures.

    Attributes:
        data: name of the data set.
        network: what is trained.
        at: steps at which it is measured, increasing, from 0 to the last step of the training.
        batch_size: of training.
        learning_rate: of training.
        arcs: how many lengths are the mean of.
        points: of each arc.
        absolute: sizes of the noise in the units of the weights; none for no noise at all.
        relative: sizes of the noise as parts of the root mean square of the layer's weights.
        draws: of the noise, for each layer and size.
        tested: test images that accuracies are over.
        examples: training images; None for all.
    """

    data: str
    network: ConvNet | DenseNet
    at: tuple[int, ...]
    batch_size: int
    learning_rate: float
    arcs: int
    points: int
    absolute: tuple[float, ...]
    relative: tuple[float, ...]
    draws: int
    tested: int
    examples: int | None = None


def trained(spec: TrainedSpec, seed: int) -> dict[str, Any]:
    """Train one network and measure it at some steps: lengths, weight scale, accuracy; noise in its layers at the end.

    >>> trained(spec, seed=0)["lengths"].shape                  # steps; the arc and the layers
    (6, 11)

    If ``EPOCH0_CHECKPOINTS`` names a folder, a trial that was killed goes on from there.

    Returns:
        ``steps``, (steps,); ``accuracy`` on test images and the ``loss`` since the last measurement, (steps,), the
        first loss NaN; ``lengths``, (steps, layers + 1), the arc itself first, batch norm as in evaluation;
        ``lengths_batch``, the same with the statistics of the arc's own points, if there is a batch norm; ``layers``
        and their ``kinds``, (layers,); ``scale`` of the weights, (steps, weighted); ``weighted``, names of the layers
        with weights; ``absolute`` and ``relative``, accuracy with noise, (weighted, sizes); ``clean`` accuracy;
        ``diverged``: what came after is NaN; ``device``.

    Raises:
        InputError: if the data set is not there or does not fit the network, or ``at`` cannot be used.

    Source: Raghu et al. 2017, sections 3.1 and 3.2.
    """
    torch.set_num_threads(1)
    pace = _pace(spec.at)
    (x, y), (held, labels) = _images(spec)
    weights, batches, noise = (int(numpy_generator(seed, s).integers(2**31)) for s in (_WEIGHTS, _BATCHES, _NOISE))
    device = chosen_device()
    net = spec.network.build(weights).to(device)
    looking = _Looking(spec, _arcs(spec, held, seed), Accuracy(held, labels))
    with checkpoint_of(spec, seed) as path:
        done = train(
            net, (x, y), steps=spec.at[-1], batch_size=spec.batch_size,
            optimizer=partial(torch.optim.SGD, momentum=MOMENTUM), learning_rate=spec.learning_rate, seed=batches,
            device=device, evaluate_every=pace, callbacks=[Every(pace, looking)], checkpoint=path,
            checkpoint_every=None if path is None else spec.at[-1],
            checkpoint_minutes=None if path is None else 5.0,
        )  # fmt: skip
        found = _history(spec, done)
        for unit, sizes in (("absolute", spec.absolute), ("relative", spec.relative)):
            if sizes:
                noisy = robustness(
                    net, (held, labels), sizes, draws=spec.draws, relative=unit == "relative", seed=noise
                )
                found |= {unit: noisy.accuracy, "clean": noisy.clean}
    return {**found, "weighted": list(weighted(net)), "device": device.type}


def _history(spec: TrainedSpec, done: Training) -> dict[str, Any]:
    """What was measured on the way; NaN from where the training diverged."""
    rows = {row["step"]: row for row in done.history}
    kept = [rows[step] for step in spec.at if step in rows and "lengths" in rows[step]]
    found: dict[str, Any] = {
        "steps": np.array(spec.at), "diverged": len(kept) < len(spec.at) or done.diverged,
        "layers": kept[0]["layers"], "kinds": kept[0]["kinds"],
        "loss": np.array([float(rows[s]["loss"]) if rows.get(s, {}).get("loss") else math.nan for s in spec.at]),
    }  # fmt: skip
    for name in [name for name in ("accuracy", "lengths", "lengths_batch", "scale") if name in kept[0]]:
        values = np.array([row[name] for row in kept], dtype=np.float64)
        missing = [(0, len(spec.at) - len(values)), *[(0, 0)] * (values.ndim - 1)]
        found[name] = np.pad(values, missing, constant_values=np.nan)
    return found


def weighted(net: nn.Module) -> dict[str, Tensor]:
    """Weights of the dense and convolutional layers in order, under the names of their modules.

    >>> list(weighted(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))))
    ['0', '2']
    """
    return {name: module.weight for name, module in net.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}


def scale(weight: Tensor) -> float:
    """sigma_w^2 of one layer: fan_in times the mean square of its weights.

    >>> scale(torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
    2.0
    """
    return float(weight.detach().double().square().mean()) * weight[0].numel()


class _Looking:
    """Measures the network at the steps that were asked for."""

    def __init__(self, spec: TrainedSpec, arcs: Sequence[Arc], accuracy: Accuracy) -> None:
        self._at, self._accuracy = frozenset(spec.at), accuracy
        points = spec.points
        self._watching = {"lengths": [TrajectoryLengths(arc, points, seed=place) for place, arc in enumerate(arcs)]}
        if isinstance(spec.network, ConvNet) and spec.network.norm == "batch":
            self._watching["lengths_batch"] = [
                TrajectoryLengths(arc, points, seed=place, batch_norm="batch") for place, arc in enumerate(arcs)
            ]

    def __call__(self, step: int, model: nn.Module, metrics: Mapping[str, Any]) -> dict[str, Any] | None:
        if step not in self._at:
            return None
        row: dict[str, Any] = dict(self._accuracy(model))
        for name, watches in self._watching.items():
            for watch in watches:
                watch(step, model)
            row[name] = np.mean([watch.lengths[-1] for watch in watches], axis=0).tolist()
        # in the row, since a resumed run may have nothing left to look at
        row |= {"layers": list(watches[0].layers), "kinds": list(watches[0].kinds)}
        return {**row, "scale": [scale(weight) for weight in weighted(model).values()]}


def _images(spec: TrainedSpec) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training images and labels, test images and labels, as the network takes them."""
    examples, tests = load(spec.data, "train"), load(spec.data, "test")
    found = []
    for split, count in ((examples, spec.examples), (tests, spec.tested)):
        inputs = split.inputs("standard", flatten=isinstance(spec.network, DenseNet), like=examples)[:count]
        if inputs.shape[1:] != spec.network.inputs:
            raise InputError(f"{spec.data} has inputs {inputs.shape[1:]}; the network takes {spec.network.inputs}.")
        found.append((torch.from_numpy(inputs), torch.from_numpy(split.labels[:count])))
    return found[0], found[1]


def _arcs(spec: TrainedSpec, held: Tensor, seed: int) -> list[Arc]:
    """Each between two test images."""
    source = numpy_generator(seed, _ARCS)
    pairs = [source.choice(len(held), size=2, replace=False).tolist() for _ in range(spec.arcs)]
    return [Arc(held[first], held[second]) for first, second in pairs]


def _pace(at: Sequence[int]) -> int:
    """The largest pace that meets every step."""
    if len(at) < 2 or at[0] != 0 or any(b <= a for a, b in pairwise(at)):
        raise InputError(f"at={tuple(at)}: steps at which to measure begin with 0 and increase.")
    return math.gcd(*at)
