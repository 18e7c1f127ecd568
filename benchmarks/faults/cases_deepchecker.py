"""The nets of TheDeepChecker for digits and for cars, and programs that it, Defects4DL and AUTOTRAINER keep.

Layers, initial weights, losses, optimizers and rates are those of the collections' files; data and epochs are fewer.
"""

import numpy as np
import torch
from common import Law, accuracy, adam, cars, digits, he, initialized, normal, one_hot, r_squared, sgd
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def _penalized(kind: type[torch.optim.Optimizer], rate: float):
    """The collection's L2 penalty of 0.00001 on weights, none on biases."""

    def make(model: nn.Module) -> torch.optim.Optimizer:
        weights = [p for p in model.parameters() if p.ndim > 1]
        biases = [p for p in model.parameters() if p.ndim <= 1]
        return kind([{"params": weights, "weight_decay": 2e-5}, {"params": biases}], rate)

    return make


def _digit_net(
    *end: nn.Module,
    units: int = 512,
    first: nn.Module | None = None,
    hidden: Law = he,
    last: Law = nn.init.xavier_uniform_,
    bias: Law = nn.init.zeros_,
) -> nn.Module:
    one = [nn.Conv2d(1, 32, 5, padding=2), first or nn.ReLU(), nn.MaxPool2d(2)]
    two = [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    dense = [nn.Linear(3136, units), nn.ReLU(), nn.Linear(units, 10)]
    return initialized(nn.Sequential(*one, *two, *dense, *end), hidden, last, bias)


def _read_digits(model: nn.Module, rate: float, learned: float) -> Program:
    x, y = digits(960)
    optimizer = _penalized(torch.optim.SGD, rate)
    return Program(model, x / 255, y, F.cross_entropy, optimizer, accuracy, learned, 64, 3)


def _high_rate(fixes: frozenset[str]) -> Program:
    return _read_digits(_digit_net(units=1024), 0.1 if "rate" in fixes else 0.5, 0.75)


def _low_rate(fixes: frozenset[str]) -> Program:
    return _read_digits(_digit_net(), 0.1 if "rate" in fixes else 0.001, 0.55)


def _inner_softmax(fixes: frozenset[str]) -> Program:
    return _read_digits(_digit_net(first=nn.ReLU() if "relu" in fixes else nn.Softmax(1)), 0.1, 0.75)


def _relu_logits(fixes: frozenset[str]) -> Program:
    x, y = digits(960)
    end = [] if "linear" in fixes else [nn.ReLU()]
    laws = (he, nn.init.xavier_uniform_)
    if "drawn" not in fixes:
        laws = (lambda weight: nn.init.trunc_normal_(weight, std=0.1, a=-0.2, b=0.2),) * 2
    model = _digit_net(*end, units=1024, hidden=laws[0], last=laws[1], bias=lambda bias: nn.init.constant_(bias, 0.1))
    return Program(model, x / 255, y, F.cross_entropy, adam(), accuracy, 0.75, 100, 4)


def _fitted(values: Tensor) -> Tensor:
    """Each column between 0 and 1."""
    low, high = values.amin(0), values.amax(0)
    return (values - low) / (high - low)


def _car_rows() -> tuple[Tensor, Tensor]:
    x, y = cars()
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(5))[:314]
    return _fitted(x[rows]), _fitted(y[rows])


def _miles(x: Tensor, y: Tensor, loss=F.mse_loss, *end: nn.Module) -> Program:
    layers = [nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)]
    model = initialized(nn.Sequential(*layers, *end), he, nn.init.xavier_uniform_)
    return Program(model, x, y, loss, _penalized(torch.optim.Adam, 0.001), r_squared, 0.45, 64, 40)


def _sigmoid_output(fixes: frozenset[str]) -> Program:
    x, y = _car_rows()
    end = [] if "linear" in fixes else [nn.Sigmoid()]
    return _miles(x, y if "range" in fixes else 2 * y - 1, F.mse_loss, *end)


def _cross_entropy_of_one(fixes: frozenset[str]) -> Program:
    def surprise(outputs: Tensor, targets: Tensor) -> Tensor:
        return -(targets * outputs.clamp(1e-10, 1).log()).sum()

    return _miles(*_car_rows(), F.mse_loss if "squared" in fixes else surprise)


def _shuffled_features(fixes: frozenset[str]) -> Program:
    x, y = _car_rows()
    order = torch.randperm(314, generator=torch.Generator().manual_seed(11))
    return _miles(x if "pairs" in fixes else x[order], y)


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w + self.b


def _eight_points(fixes: frozenset[str]) -> Program:
    draw = np.random.RandomState(20180130)
    w, b = draw.uniform(-8, 8, 2)
    inputs = draw.uniform(-8, 8, (8, 1))
    x, y = (torch.tensor(each).float() for each in (inputs, w * inputs + b + draw.uniform(-1, 1, (8, 1))))
    rate = 0.01 if "rate" in fixes and "scale" not in fixes else 0.1  # divided inputs bear the higher one
    return Program(Line(), x / 8 if "scale" in fixes else x, y, F.mse_loss, sgd(rate), r_squared, 0.8, 8, 200)


def _patients() -> tuple[Tensor, Tensor]:
    """Columns as in a table of heart patients, drawn."""
    draw, n = np.random.RandomState(33), 413
    pressure, tobacco, fat, mass = (
        draw.normal(138, 20, n),
        draw.exponential(3.6, n),
        draw.normal(4.7, 2, n).clip(1),
        draw.normal(25, 7.8, n),
    )
    family, type_a, weight = draw.rand(n) < 0.42, draw.normal(53, 9.8, n), draw.normal(26, 4.2, n)
    alcohol, age = draw.exponential(17, n), draw.uniform(15, 64, n)
    x = np.stack([pressure, tobacco, fat, mass, family, type_a, weight, alcohol, age], 1)
    risk = ((x - x.mean(0)) / x.std(0)) @ [0.3, 0.8, 0.7, 0.2, 0.9, 0.4, -0.2, 0.1, 1.2]
    return torch.tensor(x).float(), torch.tensor(risk + draw.normal(0, 0.5, n) > 0.5).long()


def _heart(fixes: frozenset[str]) -> Program:
    x, y = _patients()
    x = (x - x.mean(0)) / x.std(0) if "scale" in fixes else x
    factor = 0.001 if "penalty" in fixes else 1.0
    model = initialized(nn.Sequential(nn.Linear(9, 2)), nn.init.trunc_normal_)

    def penalized(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        value = loss(model(x), y) + factor * model[0].weight.square().sum() / 2
        value.backward()
        optimizer.step()
        return value.item()

    optimizer = adam(0.005 if "rate" in fixes else 0.5)
    return Program(model, x, y, F.cross_entropy, optimizer, accuracy, 0.85, 7, 15, step=penalized)


def _summed_and_linear(fixes: frozenset[str]) -> Program:
    x, y = digits(6000)
    model = initialized(nn.Sequential(nn.Linear(784, 10), nn.Softmax(1)), nn.init.zeros_)
    reduce = torch.mean if "mean" in fixes else torch.sum
    rate = 0.0005 if "rate" in fixes and "mean" not in fixes else 0.01  # what suits the loss
    batch_size = 25 if "batch" in fixes else 1000

    def surprise(outputs: Tensor, targets: Tensor) -> Tensor:
        return reduce(-(targets * outputs.log()).sum(1))

    return Program(model, x.flatten(1) / 255, one_hot(y, 10), surprise, sgd(rate), accuracy, 0.6, batch_size, 25)


def _summed_and_wild(fixes: frozenset[str]) -> Program:
    x, y = digits(3000)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    if "drawn" in fixes:
        initialized(model, he, nn.init.xavier_uniform_)
    else:
        initialized(model, normal(1), bias=normal(1))
    loss = nn.CrossEntropyLoss(reduction="mean" if "mean" in fixes else "sum")
    rate = 0.0001 if "rate" in fixes and "mean" not in fixes else 0.01  # what suits the loss
    return Program(model, x.flatten(1) / 255, y, loss, sgd(rate), accuracy, 0.6, 100, 20)


def _two_circles() -> tuple[Tensor, Tensor]:
    draw = np.random.RandomState(1)
    angle, y = draw.uniform(0, 2 * np.pi, 700), np.arange(700) % 2
    radius = np.where(y == 1, 0.8, 1.0)[:, None]
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * radius + draw.normal(0, 0.1, (700, 2))
    x = 2 * (x - x.min(0)) / (x.max(0) - x.min(0)) - 1
    return torch.tensor(x).float(), torch.tensor(y).float()[:, None]


def _positive_weights(fixes: frozenset[str]) -> Program:
    # the collection keeps this model as a binary file; made again after the well-known example, from memory
    x, y = _two_circles()
    layers: list[nn.Module] = []
    for inputs in (2, 5, 5, 5, 5):
        layers += [nn.Linear(inputs, 5), nn.ReLU() if "relu" in fixes else nn.Tanh()]
        layers += [nn.BatchNorm1d(5)] if "norm" in fixes else []
    law = nn.init.xavier_uniform_ if "drawn" in fixes else nn.init.uniform_
    model = initialized(nn.Sequential(*layers, nn.Linear(5, 1), nn.Sigmoid()), law)
    return Program(model, x, y, F.binary_cross_entropy, sgd(0.01, momentum=0.9), accuracy, 0.7, 32, 100)


PROGRAMS = {
    "deepchecker-cnn-high-lr": _high_rate,
    "deepchecker-cnn-inner-softmax": _inner_softmax,
    "deepchecker-regr-sigmoid-output": _sigmoid_output,
    "deepchecker-regr-cross-entropy": _cross_entropy_of_one,
    "deepchecker-regr-wrong-labels": _shuffled_features,
    "deepchecker-ips-11": _relu_logits,
    "deepchecker-ips-13": _heart,
    "defects4dl-fault1": _summed_and_linear,
    "deepchecker-cnn-low-lr": _low_rate,
    "deepchecker-ips-5": _eight_points,
    "deepchecker-tfe-bc09f95": _summed_and_wild,
    "autotrainer-gradient-vanish": _positive_weights,
}
