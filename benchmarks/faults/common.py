"""What the cases share: real images, made data, Keras' initial values and losses, optimizers, scores."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import epoch0 as e0

Optimizer = Callable[[nn.Module], torch.optim.Optimizer]
Law = Callable[[Tensor], object]
"""Draws the values of a weight, in place."""


@functools.cache
def _images(name: str) -> tuple[Tensor, Tensor]:
    images = e0.data.load(name)
    return torch.from_numpy(images.images), torch.from_numpy(images.labels)


def digits(count: int, start: int = 0, name: str = "mnist") -> tuple[Tensor, Tensor]:
    """(count, 1, 28, 28) in 0..255, and the labels."""
    images, labels = (part[start : start + count] for part in _images(name))
    return images.reshape(count, 1, 28, 28).float(), labels.long()


def garments(count: int, start: int = 0) -> tuple[Tensor, Tensor]:
    return digits(count, start, "fashion-mnist")


@functools.cache
def photographs(count: int) -> tuple[Tensor, Tensor]:
    """(count, 3, 16, 16) in 0..255, class after class, and the classes: the first of each in CIFAR-10, halved."""
    images, labels = _images("cifar10")
    rows = torch.cat([(labels == kind).nonzero()[: count // 10, 0] for kind in range(10)])
    return F.avg_pool2d(images[rows].float(), 2), labels[rows]


@functools.cache
def cars() -> tuple[Tensor, Tensor]:
    """Nine columns of Auto MPG, and miles per gallon."""
    path = Path(__file__).with_name("auto_mpg.csv")
    table = torch.from_numpy(np.loadtxt(path, np.float32, delimiter=",", skiprows=1))
    return table[:, 1:], table[:, :1]


def dice(seed: int) -> torch.Generator:
    """For data; seeds far from those of the weights."""
    return torch.Generator().manual_seed(7000 + seed)


def standardized(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.std(0).clamp(min=1e-12)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    return F.one_hot(labels.long(), classes).float()


def keras(model: nn.Module) -> nn.Module:
    """Keras' initial values: Glorot's uniform law, zero biases; LSTM: orthogonal recurrent weights, forget bias 1."""
    for layer in model.modules():
        if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.LSTM):
            nn.init.xavier_uniform_(layer.weight_ih_l0)
            nn.init.orthogonal_(layer.weight_hh_l0)
            nn.init.zeros_(layer.bias_hh_l0)
            with torch.no_grad():
                layer.bias_ih_l0.zero_()
                layer.bias_ih_l0[layer.hidden_size : 2 * layer.hidden_size] = 1
    return model


def he(weight: Tensor) -> Tensor:
    return nn.init.kaiming_normal_(weight, nonlinearity="relu")


def he_uniform(weight: Tensor) -> Tensor:
    return nn.init.kaiming_uniform_(weight, nonlinearity="relu")


def normal(deviation: float) -> Law:
    return lambda weight: nn.init.normal_(weight, 0, deviation)


def initialized(model: nn.Module, hidden: Law, last: Law | None = None, bias: Law = nn.init.zeros_) -> nn.Module:
    """Weights by one law, those of the last layer by another where one is given, and all biases."""
    layers = [layer for layer in model.modules() if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d))]
    for layer in layers:
        law = last if last and layer is layers[-1] else hidden
        law(layer.weight)
        if layer.bias is not None:
            bias(layer.bias)
    return model


class Recurrent(nn.Module):
    """What one linear unit makes of the last step of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase, last: Callable[[Tensor], Tensor] = lambda z: z) -> None:
        super().__init__()
        self.layer, self.dense, self.last = layer, nn.Linear(layer.hidden_size, 1), last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.dense(self.layer(x)[0][:, -1]))


def binary_crossentropy(outputs: Tensor, targets: Tensor) -> Tensor:
    p = outputs.clamp(1e-7, 1 - 1e-7)
    return -(targets * p.log() + (1 - targets) * (1 - p).log()).mean()


def categorical_crossentropy(outputs: Tensor, targets: Tensor) -> Tensor:
    p = (outputs / outputs.sum(1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
    return -(targets * p.log()).sum(1).mean()


def sgd(rate: float, **more: float) -> Optimizer:
    return lambda m: torch.optim.SGD(m.parameters(), rate, **more)


def adam(rate: float = 1e-3, **more: float) -> Optimizer:
    return lambda m: torch.optim.Adam(m.parameters(), rate, **more)


def rmsprop(rate: float = 1e-3) -> Optimizer:
    return lambda m: torch.optim.RMSprop(m.parameters(), rate, alpha=0.9, eps=1e-7)


def once_each(make: Callable[[torch.optim.Optimizer], object]) -> Callable[[torch.optim.Optimizer], object]:
    """What a step needs beside its optimizer, such as a schedule: made when a training begins, kept to its end."""
    held: dict[str, object] = {}

    def made(optimizer: torch.optim.Optimizer) -> object:
        if held.get("optimizer") is not optimizer:
            held.update(optimizer=optimizer, made=make(optimizer))
        return held["made"]

    return made


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Share of the examples that are right: the largest of several outputs, or one output on its side of 0.5."""
    if outputs.shape[1] == 1:
        return ((outputs > 0.5) == (targets.reshape(-1, 1) > 0.5)).double().mean().item()
    labels = targets.argmax(1) if targets.shape == outputs.shape else targets.reshape(-1)
    return (outputs.argmax(1) == labels).double().mean().item()


def signs(outputs: Tensor, targets: Tensor) -> float:
    """Share of the examples whose output, a logit, is on the right side of 0."""
    return ((outputs > 0) == (targets > 0.5)).double().mean().item()


def token_accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Share of right classes where outputs end in the classes: (n, places, classes)."""
    return (outputs.argmax(-1) == targets).double().mean().item()


def r_squared(outputs: Tensor, targets: Tensor) -> float:
    """Explained share of the squared deviation from the mean of all targets."""
    return r_squared_all(outputs.reshape(-1, 1), targets.reshape(-1, 1))


def r_squared_all(outputs: Tensor, targets: Tensor) -> float:
    """Explained share of the squared deviation from each output's own mean."""
    o, t = outputs.double().flatten(1), targets.double().flatten(1)
    value = 1 - ((o - t) ** 2).sum() / ((t - t.mean(0)) ** 2).sum()
    return value.item() if torch.isfinite(value) else float("-inf")


def auc(outputs: Tensor, targets: Tensor) -> float:
    """Chance that a positive stands above a negative; ties count half."""
    o, t = outputs.reshape(-1).double(), targets.reshape(-1) > 0.5
    gap = o[t][:, None] - o[~t][None]
    return ((gap > 0).double().mean() + 0.5 * (gap == 0).double().mean()).item()


@functools.cache
def letters(count: int, length: int, vocabulary: int = 65) -> tuple[Tensor, Tensor]:
    """Text in place of Shakespeare's: a chain of letters, each with four usual followers; inputs and next letters."""
    make = dice(1)
    likely = torch.rand(vocabulary, vocabulary, generator=make).argsort(1)[:, :4]
    table = torch.full((vocabulary, vocabulary), 0.1 / vocabulary)
    table.scatter_add_(1, likely, torch.tensor([0.55, 0.2, 0.1, 0.05]).expand(vocabulary, 4))
    x = torch.zeros(count, length + 1, dtype=torch.long)
    x[:, 0] = torch.randint(vocabulary, (count,), generator=make)
    for place in range(length):
        x[:, place + 1] = torch.multinomial(table[x[:, place]], 1, generator=make)[:, 0]
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


def sequence_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())
