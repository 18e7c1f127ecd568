"""Trials of Hayou's weak lottery ticket: random masks on networks whose weights are too large (appendix H)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.data import load
from epoch0.distributions import Gaussian
from epoch0.measure.gain import gain
from epoch0.networks import mlp, vanilla_cnn
from epoch0.prune import apply, keep
from epoch0.prune.scores.baselines import random
from epoch0.seeds import generator
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train

_INPUTS = 3


@dataclass(frozen=True)
class TicketSpec:
    """Networks with weights beyond the edge of chaos, and the masks that bring them back.

    Attributes:
        kind: ``"dense"``, or ``"cnn"`` for circular convolutions with a kernel of 3.
        activation: name of the nonlinearity.
        depth: layers in front of the last one.
        width: units, or channels.
        weight_std: sigma_w of every layer.
        bias_std: sigma_b.
        edge: sigma_w on the edge of chaos for these biases.
        square: mean square of an input coordinate, Gaussian; what makes q the fixed point from the first layer on.
    """

    kind: str
    activation: str
    depth: int
    width: int
    weight_std: float
    bias_std: float
    edge: float
    square: float


@dataclass(frozen=True)
class TrainedSpec:
    """The same for training.

    Attributes:
        ticket: the network; dense.
        data: name of the data set.
        steps: of plain SGD.
        batch_size: of it.
        learning_rate: of it.
        tested: test images.
    """

    ticket: TicketSpec
    data: str
    steps: int
    batch_size: int
    learning_rate: float
    tested: int


def measure(spec: TicketSpec, seed: int) -> dict[str, Any]:
    """Gain of the layers of one network, as it came and with random masks of density edge^2 / weight_std^2.

    >>> measure(TicketSpec("dense", "relu", 6, 200, 2.0, 0.0, 2**0.5, 1.0), seed=0)["after"].round(1)
    1.0

    Returns:
        ``before`` and ``after``: the mean over layers of the forward and the backward gain, the first layer and the
        last, which no activation follows, left out.
    """
    net, shape = _network(spec, seed)
    inputs = torch.randn(16 if spec.kind == "cnn" else 64, *shape, generator=generator(seed, _INPUTS))
    x = inputs * spec.square**0.5
    before = _mean_gain(net, x, seed)
    _mask(net, spec, seed)
    return {"before": before, "after": _mean_gain(net, x, seed)}


def learn(spec: TrainedSpec, seed: int) -> dict[str, Any]:
    """Test accuracy of the network as it came, and masked, after the same training.

    Returns:
        ``dense`` and ``masked``: shares of test images.
    """
    first, last = load(spec.data, "train"), load(spec.data, "test")
    scale = spec.ticket.square**0.5
    x, y = torch.as_tensor(first.inputs("standard")) * scale, torch.as_tensor(first.labels)
    test = torch.as_tensor(last.inputs("standard", like=first))[: spec.tested] * scale
    accuracy = Accuracy(test, torch.as_tensor(last.labels)[: spec.tested])
    found = {}
    for name in ("dense", "masked"):
        net, _ = _network(spec.ticket, seed, x.shape[1], 10)
        if name == "masked":
            _mask(net, spec.ticket, seed)
        train(net, (x, y), steps=spec.steps, batch_size=spec.batch_size, learning_rate=spec.learning_rate, seed=seed)
        found[name] = float(accuracy(net.eval())["accuracy"])  # also of a run that diverged
    return found


def _network(spec: TicketSpec, seed: int, inputs: int | None = None, classes: int = 10) -> tuple[nn.Module, list[int]]:
    weights, biases = Gaussian(spec.weight_std), Gaussian(spec.bias_std)
    if spec.kind == "cnn":
        shape = [spec.width, 8, 8]
        cnn = vanilla_cnn(
            spec.depth, spec.width, inputs=shape, classes=classes, activation=spec.activation, weights=weights,
            biases=biases, seed=seed,
        )  # fmt: skip
        return cnn, shape
    size = spec.width if inputs is None else inputs
    net = mlp([size, *[spec.width] * spec.depth, classes], spec.activation, weights=weights, biases=biases, seed=seed)
    return net, [size]


def _mask(net: nn.Module, spec: TicketSpec, seed: int) -> None:
    sparsity = 1 - (spec.edge / spec.weight_std) ** 2
    apply(net, keep(random(net, seed=seed), sparsity, scope="layer"))


def _mean_gain(net: nn.Module, x: Tensor, seed: int) -> float:
    found = gain(net, x, directions=4, seed=seed)
    both = (found.chi_forward + found.chi_backward) / 2
    return float(np.mean(both[1:-1]))
