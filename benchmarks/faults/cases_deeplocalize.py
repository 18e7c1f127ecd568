"""Keras programs that DeepLocalize, DeepFD and NeuraLint keep, most from Stack Overflow; three more about Keras.

Layers, initial values, losses, optimizers and rates are those of the collections' files; a comment tells what is not.
"""

import math

import torch
from common import (
    accuracy,
    adam,
    binary_crossentropy,
    categorical_crossentropy,
    dice,
    digits,
    initialized,
    keras,
    normal,
    one_hot,
    r_squared,
    rmsprop,
    sgd,
    standardized,
)
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def _xor_in_absolutes(fixes: frozenset[str]) -> Program:
    x, y = torch.tensor([[1.0, 1], [1, 0], [0, 0], [0, 1]]), torch.tensor([[0.0], [1], [0], [1]])
    model = keras(nn.Sequential(nn.Linear(2, 4), nn.Sigmoid(), nn.Linear(4, 1), nn.Sigmoid()))
    if "adam" in fixes:
        optimizer = adam(0.01 if "rate" in fixes else 0.001)
    else:
        optimizer = sgd(0.1 if "rate" in fixes else 0.05, momentum=0.11, nesterov=True)
    loss, epochs = F.mse_loss if "squared" in fixes else F.l1_loss, 6000 if "epochs" in fixes else 1000
    return Program(model, x, y, loss, optimizer, accuracy, 0.99, 4, epochs)


def _ones_and_zeros(fixes: frozenset[str]) -> Program:
    # 800 rows for 20,000
    x = torch.cat([torch.ones(400, 128), torch.zeros(400, 128)])
    one = [nn.Linear(128, 50), nn.ReLU(), nn.Dropout(0.2)]
    two = [nn.Linear(50, 50), nn.ReLU(), nn.Dropout(0.2)]
    last = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = keras(nn.Sequential(*one, *two, nn.Linear(50, 1), last))
    batch_size = 16 if "batch" in fixes else 1
    return Program(model, x, x[:, :1], binary_crossentropy, rmsprop(), accuracy, 0.9, batch_size, 3)


def _weighted_sum(fixes: frozenset[str]) -> Program:
    x = 10000 * torch.rand(2000, 3, generator=dice(51))
    y = (x @ torch.tensor([2.0, 1, 0.5]) + 2.2)[:, None]
    share = 0.0 if "dropout" in fixes else 0.5
    one = [nn.Linear(3, 3), nn.Tanh(), nn.Dropout(share)]
    two = [nn.Linear(3, 2), nn.Tanh(), nn.Dropout(share)]
    last = [] if "linear" in fixes else [nn.Softmax(1)]
    model = nn.Sequential(*one, *two, nn.Linear(2, 1), *last)
    initialized(model, lambda weight: nn.init.uniform_(weight, -0.05, 0.05))
    x, y = x / 10000 if "inputs" in fixes else x, y / 35000 if "targets" in fixes else y
    return Program(model, x, y, F.mse_loss, sgd(0.1, momentum=0.9, nesterov=True), r_squared, 0.5, 32, 20)


def _threshold(fixes: frozenset[str]) -> Program:
    # the column is drawn
    x = 100 * torch.rand(1000, 1, generator=dice(52))
    y = (x > 55).float()
    last = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = keras(nn.Sequential(nn.Linear(1, 1), nn.Sigmoid(), nn.Linear(1, 1), last))
    nn.init.normal_(model[2].weight, 0, 0.05)
    loss = binary_crossentropy if "binary cross-entropy" in fixes else F.l1_loss
    x, optimizer = standardized(x) if "scale" in fixes else x, rmsprop(0.05 if "rate" in fixes else 0.001)
    return Program(model, x, y, loss, optimizer, accuracy, 0.9, 200, 100)


def _never_below_zero(fixes: frozenset[str]) -> Program:
    # data drawn
    x = torch.rand(100, 2, generator=dice(53)) * 2 - 1
    y = (0.8 * x[:, :1] - 0.5 * x[:, 1:] * x[:, :1] - 0.2).clamp(-0.95, 0.95)
    last = nn.Tanh() if "tanh" in fixes else nn.ReLU()
    model = keras(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1), last))
    optimizer, epochs = adam(0.01) if "adam" in fixes else sgd(0.01), 500 if "epochs" in fixes else 50
    return Program(model, x, y, F.mse_loss, optimizer, r_squared, 0.6, 10, epochs)


def _linear_at_three(fixes: frozenset[str]) -> Program:
    x, y = digits(2000)
    hidden = [nn.Sigmoid()] if "sigmoid" in fixes else []
    last = [nn.Softmax(1)] if "softmax" in fixes else []
    model = nn.Sequential(nn.Linear(784, 30), *hidden, nn.Linear(30, 10), *last)
    initialized(model, normal(1), bias=normal(1))
    loss = categorical_crossentropy if "cross-entropy" in fixes else F.mse_loss
    optimizer = sgd(0.02 if "rate" in fixes else 3.0)
    return Program(model, x.flatten(1) / 255, one_hot(y, 10), loss, optimizer, accuracy, 0.6, 10, 25)


def _two_squares(fixes: frozenset[str]) -> Program:
    y = torch.arange(200) % 2
    x = torch.rand(200, 2, generator=dice(54)) * 0.2 + torch.tensor([0.2, 0.5])[y][:, None]
    width = 32 if "units" in fixes else 2
    model = keras(nn.Sequential(nn.Linear(2, width), nn.Sigmoid(), nn.Linear(width, 2), nn.Softmax(1)))
    optimizer, epochs = adam(0.05 if "rate" in fixes else 0.001), 100 if "epochs" in fixes else 5
    return Program(model, x, one_hot(y, 2), categorical_crossentropy, optimizer, accuracy, 0.9, 32, epochs)


def _six_sigmoids(fixes: frozenset[str]) -> Program:
    # data drawn; six classes are assumed
    make = dice(55)
    y = torch.randint(6, (900,), generator=make)
    x = torch.randn(6, 28, generator=make)[y] + torch.randn(900, 28, generator=make)
    layers = [nn.Linear(28, 20), nn.ReLU(), nn.Linear(20, 15), nn.ReLU(), nn.Linear(15, 6), nn.ReLU(), nn.Linear(6, 6)]
    model = nn.Sequential(*layers, nn.Softmax(1) if "softmax" in fixes else nn.Sigmoid())
    initialized(model, nn.init.xavier_uniform_ if "glorot" in fixes else normal(0.05))
    loss = categorical_crossentropy if "cross-entropy" in fixes else F.l1_loss
    return Program(model, x, one_hot(y, 6), loss, adam(), accuracy, 0.6, 32, 40)


def _two_signals(fixes: frozenset[str]) -> Program:
    # data drawn
    make = dice(56)
    y = (torch.arange(240) % 2).float()[:, None]
    turns = torch.arange(600) / 600 * (6 + 4 * y) + torch.rand(240, 1, generator=make)
    x = torch.sin(2 * math.pi * turns) + 0.3 * torch.randn(240, 600, generator=make)
    one = [nn.Conv1d(1, 20, 4, padding="same"), nn.ReLU(), nn.MaxPool1d(2), nn.Dropout(0.3), nn.Flatten()]
    last = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = keras(nn.Sequential(*one, nn.Linear(6000, 50), nn.ReLU(), nn.Linear(50, 1), last))

    def nadam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.NAdam(model.parameters(), 0.002)

    return Program(model, x[:, None], y, binary_crossentropy, nadam, accuracy, 0.8, 8, 12)


def _living(outputs: Tensor, targets: Tensor) -> float:
    """F1 of the living cells."""
    o, t = outputs > 0.5, targets > 0.5
    return (2 * (o & t).sum() / (o.sum() + t.sum()).clamp(min=1)).item()


def _game_of_life(fixes: frozenset[str]) -> Program:
    # 4,000 fields
    field = (torch.rand(4000, 1, 3, 3, generator=dice(57)) < 0.5).float()
    x = F.pad(field, (1, 1, 1, 1), mode="circular")
    around = F.conv2d(x, torch.ones(1, 1, 3, 3)) - field
    y = ((around == 3) | ((field == 1) & (around == 2))).float()
    layers = [nn.Conv2d(1, 10, 3), nn.ReLU(), nn.Conv2d(10, 20, 1), nn.ReLU(), nn.Conv2d(20, 1, 1), nn.Sigmoid()]
    loss = F.mse_loss if "squared" in fixes else binary_crossentropy
    optimizer, epochs = adam(0.01 if "rate" in fixes else 0.001), 20 if "epochs" in fixes else 2
    return Program(keras(nn.Sequential(*layers)), x, y, loss, optimizer, _living, 0.7, 64, epochs)


def _above_five(fixes: frozenset[str]) -> Program:
    x = torch.arange(1.0, 10)[:, None]
    y = (x > 5).float()
    model = keras(nn.Sequential(nn.Linear(1, 5), nn.Sigmoid(), nn.Linear(5, 1), nn.Sigmoid()))
    x, loss = (
        standardized(x) if "scale" in fixes else x,
        binary_crossentropy if "cross-entropy" in fixes else F.mse_loss,
    )
    optimizer, epochs = sgd(0.5 if "rate" in fixes else 0.01), 1500 if "epochs" in fixes else 10
    return Program(model, x, y, loss, optimizer, accuracy, 0.99, 32, epochs)


def _three_points(fixes: frozenset[str]) -> Program:
    x, y = torch.tensor([[-1.0], [0], [1]]), torch.tensor([[-0.2445248], [0.1232554], [0.1713998]])
    hidden = [nn.Tanh()] if "tanh" in fixes else []
    model = keras(nn.Sequential(nn.Linear(1, 10), *hidden, nn.Linear(10, 1)))
    return Program(model, x, y, F.mse_loss, adam(0.01 if "rate" in fixes else 0.00001), r_squared, 0.97, 32, 3000)


class Newsgroups(nn.Module):
    def __init__(self, vectors: Tensor, width: int) -> None:
        super().__init__()
        self.vectors = vectors  # GloVe's part: fixed
        self.lstm, self.narrow, self.last = (
            nn.LSTM(32, 48, batch_first=True),
            nn.Linear(48, width),
            nn.Linear(width, 20),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.narrow(self.lstm(self.vectors[x])[0][:, -1]).sigmoid()).softmax(1)


def _one_unit_before_twenty(fixes: frozenset[str]) -> Program:
    # texts drawn; widths smaller than in the issue
    make = dice(58)
    y = torch.randint(20, (1200,), generator=make)
    usual = torch.randint(200, (20, 8), generator=make)[y]
    on_topic = torch.rand(1200, 12, generator=make) < 0.5
    usual = usual.gather(1, torch.randint(8, (1200, 12), generator=make))
    x = torch.where(on_topic, usual, torch.randint(200, (1200, 12), generator=make))
    model = keras(Newsgroups(0.5 * torch.randn(200, 32, generator=make), 32 if "wider" in fixes else 1))
    loss = categorical_crossentropy if "categorical" in fixes else binary_crossentropy
    optimizer = adam(0.01 if "rate" in fixes else 0.001)
    return Program(model, x, one_hot(y, 20), loss, optimizer, accuracy, 0.5, 32, 12)


PROGRAMS = {
    "so-31556268": _xor_in_absolutes,
    "so-31880720": _ones_and_zeros,
    "so-33969059": _weighted_sum,
    "so-45442843": _threshold,
    "so-48385830": _linear_at_three,
    "so-50306988": _two_squares,
    "gh-keras-4994": _one_unit_before_twenty,
    "so-48251943": _never_below_zero,
    "so-50555434": _six_sigmoids,
    "so-51749207": _two_signals,
    "deeplocalize-game-of-life": _game_of_life,
    "dse-55931": _above_five,
    "cv-387150": _three_points,
}
