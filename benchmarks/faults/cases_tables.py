"""Small networks on tables and functions, in the manner of Stack Overflow, DeepLocalize, DeepFD and AUTOTRAINER.

Threads were read as excerpts; where a thread gives no number, it is ours.
"""

import math
from itertools import pairwise

import torch
from common import (
    accuracy,
    adam,
    binary_crossentropy,
    cars,
    categorical_crossentropy,
    dice,
    he,
    initialized,
    keras,
    normal,
    one_hot,
    r_squared,
    rmsprop,
    sgd,
    signs,
    standardized,
)
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def _dense(*widths: int, hidden=nn.ReLU, last: nn.Module | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), hidden()]
    return nn.Sequential(*layers[:-1], *([last] if last is not None else []))


def _xor_of_two(fixes: frozenset[str]) -> Program:
    x = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    y = one_hot(torch.tensor([1, 0, 0, 1]), 2)
    units = 8 if "units" in fixes else 1
    model = keras(_dense(2, units, 2, hidden=nn.Tanh if "tanh" in fixes else nn.Sigmoid, last=nn.Softmax(1)))
    return Program(model, x, y, categorical_crossentropy, sgd(0.5), accuracy, 0.9, 4, 4000)


def _softmax_of_one(fixes: frozenset[str]) -> Program:
    make = dice(101)
    x = torch.rand(1000, 2, generator=make)
    y = (x[:, :1] + 0.3 * (6 * x[:, 1:]).sin() > 0.6).float()
    model = keras(_dense(2, 2, 1, hidden=nn.Sigmoid, last=nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)))
    return Program(model, x, y, F.mse_loss, adam(0.01 if "rate" in fixes else 0.001), accuracy, 0.8, 50, 60)


def _two_rings(fixes: frozenset[str]) -> Program:
    # AUTOTRAINER's circles: ReLUs that are shut from the start by their biases
    make = dice(102)
    angle, outer = torch.rand(800, generator=make) * 2 * math.pi, (torch.rand(800, generator=make) < 0.5).float()
    radius = 1 - 0.4 * outer + 0.07 * torch.randn(800, generator=make)
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    model = initialized(_dense(2, 25, 25, 1, last=nn.Sigmoid()), he)
    if "bias" not in fixes:
        for layer in (model[0], model[2]):
            nn.init.constant_(layer.bias, -10)
    optimizer = sgd(0.1, momentum=0.9) if "rate" in fixes else sgd(0.01, momentum=0.9)
    return Program(model, x, outer[:, None], binary_crossentropy, optimizer, accuracy, 0.85, 32, 60)


def _heaps() -> tuple[Tensor, Tensor]:
    make = dice(103)
    centre, y = 4 * torch.randn(3, 2, generator=make), torch.randint(3, (900,), generator=make)
    return centre[y] + torch.randn(900, 2, generator=make), y


def _heaps_explode(fixes: frozenset[str]) -> Program:
    x, y = _heaps()
    model = initialized(_dense(2, 50, 50, 50, 50, 3), he if "drawn" in fixes else normal(2.0))
    optimizer = sgd(0.001 if "rate" in fixes else 0.01, momentum=0.9)
    return Program(model, x, y, F.cross_entropy, optimizer, accuracy, 0.7, 32, 15)


def _heaps_vanish(fixes: frozenset[str]) -> Program:
    x, y = _heaps()
    hidden = nn.ReLU if "relu" in fixes else nn.Sigmoid
    model = keras(_dense(2, *[32] * 8, 3, hidden=hidden))
    optimizer = adam(0.001) if "adam" in fixes else sgd(0.01)
    return Program(model, x, y, F.cross_entropy, optimizer, accuracy, 0.7, 32, 30)


def _sine_of_sigmoids(fixes: frozenset[str]) -> Program:
    x = torch.linspace(0, 10, 1000)[:, None]
    scale = 5 if "scale" in fixes else 1
    hidden = nn.Tanh if "tanh" in fixes else nn.Sigmoid
    model = keras(_dense(1, 20, 20, 1, hidden=hidden))
    optimizer = adam(0.01) if "adam" in fixes else sgd(0.01)
    return Program(model, x / scale, x.sin(), F.mse_loss, optimizer, r_squared, 0.8, 32, 60)


def _product(fixes: frozenset[str]) -> Program:
    # two numbers up to 100 to be multiplied
    x = torch.randint(1, 101, (2000, 2), generator=dice(104)).float()
    y = x.prod(1, keepdim=True)
    hidden = nn.ReLU if "relu" in fixes else nn.Sigmoid
    model = keras(_dense(2, 32, 32, 1, hidden=hidden))
    scale = 100 if "inputs" in fixes else 1
    wanted = y / 10_000 if "targets" in fixes else y
    return Program(model, x / scale, wanted, F.mse_loss, adam(0.003, eps=1e-7), r_squared, 0.8, 32, 30)


def _flowers() -> tuple[Tensor, Tensor]:
    # 150 flowers of three kinds, with means and spreads of the iris table
    make = dice(105)
    means = torch.tensor([[5.0, 3.4, 1.5, 0.25], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
    spread = torch.tensor([0.4, 0.33, 0.35, 0.2])
    y = torch.arange(150) % 3
    return means[y] + spread * torch.randn(150, 4, generator=make), y


def _flowers_squared(fixes: frozenset[str]) -> Program:
    x, y = _flowers()
    model = keras(_dense(4, 8, 8, 3, hidden=nn.Sigmoid, last=nn.Softmax(1) if "softmax" in fixes else nn.Sigmoid()))
    loss = categorical_crossentropy if "cross-entropy" in fixes else F.mse_loss
    optimizer = adam(0.01) if "adam" in fixes else sgd(0.01)
    return Program(model, x, one_hot(y, 3), loss, optimizer, accuracy, 0.85, 16, 100)


def _flowers_labels(fixes: frozenset[str]) -> Program:
    x, y = _flowers()
    if "three units" in fixes:
        model = keras(_dense(4, 16, 3, last=nn.Softmax(1)))
        return Program(model, x, one_hot(y, 3), categorical_crossentropy, adam(0.01), accuracy, 0.85, 5, 60)
    model = keras(_dense(4, 16, 1, last=nn.Softmax(1)))
    loss = F.mse_loss if "squared" in fixes else binary_crossentropy

    def rounded(outputs: Tensor, targets: Tensor) -> float:
        return (outputs.round() == targets).double().mean().item()

    return Program(model, x, y[:, None].float(), loss, adam(0.01), rounded, 0.85, 5, 60)


def _cars_diverge(fixes: frozenset[str]) -> Program:
    x, y = cars()
    x = standardized(x) if "scale" in fixes else x
    model = keras(_dense(9, 64, 64, 1))
    optimizer = adam(0.001) if "adam" in fixes else sgd(0.01)
    return Program(model, x, y, F.mse_loss, optimizer, r_squared, 0.7, 32, 100)


def _crawling_cars(fixes: frozenset[str]) -> Program:
    x, y = cars()
    x = standardized(x)
    y = standardized(y) if "targets" in fixes else y
    model = keras(_dense(9, 64, 1, hidden=nn.Tanh))
    return Program(model, x, y, F.mse_loss, rmsprop(0.01 if "rate" in fixes else 0.0001), r_squared, 0.7, 32, 30)


def _places_on_the_map(fixes: frozenset[str]) -> Program:
    # rents by latitude and longitude within one town
    make = dice(106)
    at = torch.rand(1500, 2, generator=make)
    x = torch.tensor([48.83, 2.28]) + torch.tensor([0.06, 0.12]) * at
    y = (5 * at[:, :1]).sin() + (4 * at[:, 1:]).cos() * at[:, :1] + 0.1 * torch.randn(1500, 1, generator=make)
    x = standardized(x) if "scale" in fixes else x
    return Program(_dense(2, 64, 64, 1), x, y, F.mse_loss, adam(0.001), r_squared, 0.6, 32, 30)


def _years(fixes: frozenset[str]) -> Program:
    make = dice(107)
    year, month = 2000 + torch.rand(600, 1, generator=make) * 20, torch.randint(12, (600, 1), generator=make)
    sales = 100 + 3 * (year - 2010) + 30 * (month * 0.5236).sin() + 3 * torch.randn(600, 1, generator=make)
    x = torch.cat([year, month.float()], 1)
    x = standardized(x) if "inputs" in fixes else x
    y = standardized(sales) if "targets" in fixes else sales
    model = keras(_dense(2, 50, 50, 1))
    return Program(model, x, y, F.mse_loss, adam(0.001), r_squared, 0.7, 32, 60)


def _ones_and_twos(fixes: frozenset[str]) -> Program:
    # the two classes are numbered from 1
    make = dice(108)
    x = torch.randn(1000, 8, generator=make)
    y = (x[:, :1] * x[:, 1:2] + x[:, 2:3] > 0).float() + (0 if "labels" in fixes else 1)

    def right(outputs: Tensor, targets: Tensor) -> float:
        return ((outputs > 0.5) == (targets == targets.max())).double().mean().item()

    model = keras(_dense(8, 32, 32, 1, last=nn.Sigmoid()))
    return Program(model, x, y, binary_crossentropy, adam(0.003), right, 0.8, 32, 20)


def _all_at_once(fixes: frozenset[str]) -> Program:
    make = dice(109)
    x = torch.randn(2000, 10, generator=make)
    y = (x @ torch.randn(10, 3, generator=make)).tanh().sum(1, keepdim=True)
    model = _dense(10, 64, 64, 1)
    epochs, rate = 200 if "epochs" in fixes else 10, 0.01 if "rate" in fixes else 0.001
    return Program(model, x, y, F.mse_loss, adam(rate), r_squared, 0.7, 32 if "batch" in fixes else 2000, epochs)


def _positive_weights(fixes: frozenset[str]) -> Program:
    # weights from a uniform law between 0 and 1
    make = dice(110)
    x = torch.rand(600, 20, generator=make)
    y = (x[:, :10].sum(1) > x[:, 10:].sum(1)).float()[:, None]
    model = _dense(20, 30, 30, 1, hidden=nn.Sigmoid, last=nn.Sigmoid())
    law = nn.init.xavier_uniform_ if "drawn" in fixes else nn.init.uniform_
    optimizer = adam(0.01) if "adam" in fixes else sgd(0.1)
    return Program(initialized(model, law), x, y, F.mse_loss, optimizer, accuracy, 0.85, 20, 40)


def _prices_in_a_row(fixes: frozenset[str]) -> Program:
    # a price moves about a level of 1500; the last of 20 days and their trend tell the next
    make = dice(111)
    moves = torch.randn(2000, generator=make)
    price = torch.zeros(2000)
    for day in range(1, 2000):
        price[day] = 0.95 * price[day - 1] + moves[day] * 12
    price += 1500
    windows = price.unfold(0, 21, 1)
    x, y = windows[:, :-1], windows[:, -1:]
    if "scale" in fixes:
        x, y = (x - 1500) / 40, (y - 1500) / 40
    layer = nn.LSTM(1, 32, batch_first=True)

    class Next(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.dense = layer, nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            out = self.dense(self.layer(x)[0][:, -1])
            return out if "linear" in fixes else out.relu()

    return Program(Next(), x[..., None].contiguous(), y, F.mse_loss, adam(0.001), r_squared, 0.6, 64, 20)


def _hinge_of_zeros(fixes: frozenset[str]) -> Program:
    # hinge loss wants labels -1 and 1
    make = dice(113)
    x = torch.randn(1000, 6, generator=make)
    y = (x[:, :1] - x[:, 1:2] * x[:, 2:3] > 0).float()
    labels = 2 * y - 1 if "labels" in fixes else y

    def hinge(outputs: Tensor, targets: Tensor) -> Tensor:
        return (1 - outputs * targets).clamp(min=0).mean()

    model = keras(_dense(6, 32, 32, 1))
    return Program(model, x, labels, hinge, adam(0.002), signs, 0.8, 32, 20)


PROGRAMS = {
    "ai-27010": _xor_of_two,
    "gh-flux-1546": _softmax_of_one,
    "autotrainer-shut-circles": _two_rings,
    "autotrainer-heaps-explode": _heaps_explode,
    "autotrainer-heaps-vanish": _heaps_vanish,
    "seeded-sine-of-sigmoids": _sine_of_sigmoids,
    "seeded-product": _product,
    "seeded-flowers-squared": _flowers_squared,
    "seeded-flowers-labels": _flowers_labels,
    "seeded-cars-diverge": _cars_diverge,
    "seeded-crawling-cars": _crawling_cars,
    "seeded-places": _places_on_the_map,
    "seeded-years": _years,
    "seeded-ones-and-twos": _ones_and_twos,
    "seeded-all-at-once": _all_at_once,
    "seeded-positive-weights": _positive_weights,
    "seeded-prices-in-a-row": _prices_in_a_row,
    "seeded-hinge-of-zeros": _hinge_of_zeros,
}
