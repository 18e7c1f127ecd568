"""One trial of Raghu Figures 7 and 17: a random hard-tanh network, one hidden layer of which is trained (3.1)."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.data import DataSet, load
from epoch0.distributions import Gaussian
from epoch0.networks import mlp
from epoch0.seeds import numpy_generator
from epoch0.train.device import chosen_device
from epoch0.train.evaluation import Accuracy
from epoch0.train.single_layer import train_one_layer

SPLITS = {"train": 0, "test": 1}
"""Streams of where the images of a split are moved to."""


@dataclass(frozen=True)
class LayerSpec:
    """One network and the layer of it that is trained.

    Attributes:
        data: name of the data set.
        side: images are put at a random place of a black square of this side; 0 leaves them as they are.
        width: units of every hidden layer.
        hidden: number of hidden layers.
        variance: sigma_w^2 of every layer, in units of 1/fan-in; there are no biases at first.
        layer: the weights that are trained, W^(layer): 1 makes the second hidden layer.
        epochs: of training.
        batch_size: of it.
        learning_rate: of it.
        momentum: of it.
        judged: at most so many training images are used for the training accuracy.
    """

    data: str
    side: int
    width: int
    hidden: int
    variance: float
    layer: int
    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    judged: int


def network(spec: LayerSpec, inputs: int, classes: int, seed: int) -> nn.Sequential:
    """The network before training, the same whichever layer is trained."""
    sizes = [inputs, *[spec.width] * spec.hidden, classes]
    return mlp(sizes, "hardtanh", weights=Gaussian(math.sqrt(spec.variance)), seed=seed)


def trained(spec: LayerSpec, seed: int) -> dict[str, Any]:
    """Train the layer.

    >>> trained(spec, seed=0)["train"].shape                    # before training and after every epoch
    (31,)

    Returns:
        ``train`` and ``test``, the accuracies; ``diverged``, whether the loss became infinite.
    """
    train, test = load(spec.data, "train"), load(spec.data, "test")
    x, held = _inputs(spec, train, test)
    y, labels = torch.as_tensor(train.labels), torch.as_tensor(test.labels)
    net = network(spec, x.shape[1], len(train.classes), seed)
    judges = Accuracy(x[: spec.judged], y[: spec.judged], "train"), Accuracy(held, labels, "test")

    def judge(model: nn.Module) -> dict[str, Any]:
        return {key: value for one in judges for key, value in one(model).items()}

    done = train_one_layer(
        net, spec.layer, (x, y), epochs=spec.epochs, batch_size=spec.batch_size,
        optimizer=partial(torch.optim.SGD, momentum=spec.momentum), learning_rate=spec.learning_rate,
        seed=seed, device=chosen_device(), evaluate=judge,
    )  # fmt: skip
    found = {}
    for split in SPLITS:
        values = [row[split] for row in done.history if split in row]
        found[split] = np.array(values + values[-1:] * (spec.epochs + 1 - len(values)))
    return {**found, "diverged": done.diverged}


def _inputs(spec: LayerSpec, train: DataSet, test: DataSet) -> tuple[Tensor, Tensor]:
    """Training and test images, flat, with the mean and variance of the training ones taken out."""
    if not spec.side:
        return torch.as_tensor(train.inputs("standard")), torch.as_tensor(test.inputs("standard", like=train))
    moved = [scattered(each.images, spec.side, SPLITS[each.split]) for each in (train, test)]
    mean, scale = moved[0].mean(), moved[0].std()
    first, second = (torch.as_tensor((each - mean) / scale) for each in moved)
    return first, second


def scattered(images: np.ndarray, side: int, stream: int) -> np.ndarray:
    """Each image at a random place of a black square, shape (images, channels * side * side), float32.

    Args:
        images: shape (images, channels, height, width), at most ``side`` high and wide.
        side: of the square.
        stream: names the places.
    """
    count, channels, height, width = images.shape
    found = np.zeros((count, channels, side, side), dtype=np.float32)
    source = numpy_generator(0, stream)
    rows, columns = source.integers(side - height + 1, size=count), source.integers(side - width + 1, size=count)
    for place, (image, row, column) in enumerate(zip(images, rows, columns, strict=True)):
        found[place, :, row : row + height, column : column + width] = image
    return found.reshape(count, -1)
