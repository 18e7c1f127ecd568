"""One trial of Raghu Figure 11: a conv net with batch norm, trajectory regularization or neither, tested as it trains.

Definitions the paper leaves open, and what is taken here:

* pixels have mean 0 and variance 1 in every channel over the training images; no augmentation;
* Adam at a constant learning rate, no weight decay; each kind of network has a learning rate of its own. Under SGD with
  momentum 0.9 lambda, one number that the gradient of a whole layer acts on, is unsteady: at 0.02 it ran through 0 in
  all of three networks, which then computed a constant, and at 0.01 one of three took long to start;
* lambda is one number a layer, begins at 1 and is trained like every other parameter; the penalty is scaled by 0.01;
* the original length is that of the first minibatch.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.data import load
from epoch0.errors import InputError, suggest
from epoch0.papers.checkpoints import checkpoint_of
from epoch0.papers.raghu.convnet import ConvNet
from epoch0.seeds import numpy_generator
from epoch0.train.device import chosen_device
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train
from epoch0.train.record import Every
from epoch0.train.trajectory_regularization import TrajectoryRegularization

_WEIGHTS, _BATCHES = range(2)
"""Streams of a trial's seed."""


@dataclass(frozen=True)
class RegularizedSpec:
    """What one trial trains.

    Attributes:
        data: name of the data set.
        network: what is trained; its norm is what the figure compares.
        at: steps at which it is tested, increasing, from 0 to the last step of the training.
        batch_size: of training.
        learning_rate: of training.
        tested: test images that accuracies are over.
        optimizer: of training, ``"adam"`` or ``"sgd"`` (with momentum 0.9).
        examples: training images; None for all.
        held_out: the last so many of the training images are tested in place of test images, and not trained on: for
            choosing the learning rate.
    """

    data: str
    network: ConvNet
    at: tuple[int, ...]
    batch_size: int
    learning_rate: float
    tested: int
    optimizer: str = "adam"
    examples: int | None = None
    held_out: int = 0


def regularized(spec: RegularizedSpec, seed: int) -> dict[str, Any]:
    """Train one network and test it at some steps. A seed has the same weights and batches in every kind of network.

    >>> regularized(spec, seed=0)["accuracy"].shape             # steps
    (8,)

    If ``EPOCH0_CHECKPOINTS`` names a folder, a trial that was killed goes on from there.

    Returns:
        ``steps``, (steps,); ``accuracy`` on test images, (steps,), that of a guess from where a run diverged on;
        ``loss`` since the last test, (steps,), without the penalty, NaN at first; ``multipliers`` and ``ratios``,
        lambda and current over original length of each regularization layer, (steps, layers), no layers without;
        ``diverged``; ``device``.

    Raises:
        InputError: if the data set is not there or does not fit the network, or ``at`` cannot be used.

    Source: Raghu et al. 2017, section 3.3.
    """
    torch.set_num_threads(1)
    if len(spec.at) < 2 or spec.at[0] != 0 or list(spec.at) != sorted(set(spec.at)):
        raise InputError(f"at={spec.at}: steps at which to test begin with 0 and increase.")
    (x, y), (held, labels) = _images(spec)
    weights, batches = (int(numpy_generator(seed, s).integers(2**31)) for s in (_WEIGHTS, _BATCHES))
    device = chosen_device()
    net, pace, tested = spec.network.build(weights).to(device), math.gcd(*spec.at), Accuracy(held, labels)

    def look(step: int, model: nn.Module, metrics: Mapping[str, Any]) -> dict[str, Any] | None:
        return {**tested(model), **_layers(model)} if step in spec.at else None

    with checkpoint_of(spec, seed) as path:
        done = train(
            net, (x, y), steps=spec.at[-1], batch_size=spec.batch_size, optimizer=optimizer(spec),
            learning_rate=spec.learning_rate, seed=batches, device=device, evaluate_every=pace,
            callbacks=[Every(pace, look)], checkpoint=path, checkpoint_minutes=None if path is None else 5.0,
        )  # fmt: skip
    rows = {row["step"]: row for row in done.history if "accuracy" in row}
    guess = {"accuracy": 1 / spec.network.classes, "loss": None, "multipliers": None, "ratios": None}
    kept = [rows.get(step, guess) for step in spec.at]
    layers = sum(isinstance(part, TrajectoryRegularization) for part in net.modules())
    found: dict[str, Any] = {"steps": np.array(spec.at), "diverged": done.diverged, "device": device.type}
    found["accuracy"] = np.array([row["accuracy"] for row in kept], dtype=np.float64)
    found["loss"] = np.array([math.nan if row["loss"] is None else row["loss"] for row in kept], dtype=np.float64)
    for name in ("multipliers", "ratios"):
        values = [[math.nan] * layers if row[name] is None else row[name] for row in kept]
        found[name] = np.array(values, dtype=np.float64).reshape(len(kept), layers)
    return found


def optimizer(spec: RegularizedSpec) -> Callable[..., torch.optim.Optimizer]:
    """What makes the optimizer.

    Raises:
        InputError: for one that is not known.
    """
    if spec.optimizer not in ("adam", "sgd"):
        near = suggest(spec.optimizer, ("adam", "sgd"))
        raise InputError(f"optimizer={spec.optimizer!r}; it is 'adam' or 'sgd'.{near}")
    return torch.optim.Adam if spec.optimizer == "adam" else partial(torch.optim.SGD, momentum=0.9)


def _layers(model: nn.Module) -> dict[str, list[float]]:
    """The lambda and length ratio of each regularization layer; a ratio before any training is 1."""
    layers = [part for part in model.modules() if isinstance(part, TrajectoryRegularization)]
    begun = [float(layer.original_segment) for layer in layers]
    return {
        "multipliers": [layer.multiplier.item() for layer in layers],
        "ratios": [float(layer.segment) / o if o > 0 else 1.0 for layer, o in zip(layers, begun, strict=True)],
    }


def _images(spec: RegularizedSpec) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training images and labels, and those that are tested."""
    examples, tests = load(spec.data, "train"), load(spec.data, "test")
    found = []
    for split in (examples, tests):
        inputs = split.inputs("standard", flatten=False, like=examples)
        if inputs.shape[1:] != spec.network.inputs:
            raise InputError(f"{spec.data} has inputs {inputs.shape[1:]}; the network takes {spec.network.inputs}.")
        found.append((torch.from_numpy(inputs), torch.from_numpy(split.labels)))
    (x, y), (held, labels) = found
    if spec.held_out:
        held, labels = x[-spec.held_out :], y[-spec.held_out :]
        x, y = x[: -spec.held_out], y[: -spec.held_out]
    return (x[: spec.examples], y[: spec.examples]), (held[: spec.tested], labels[: spec.tested])
