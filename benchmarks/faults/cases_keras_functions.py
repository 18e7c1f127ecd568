"""More questions about Keras and TensorFlow: functions, ranges and counts that networks do not fit."""

from itertools import pairwise

import torch
from common import (
    Recurrent,
    accuracy,
    adam,
    binary_crossentropy,
    categorical_crossentropy,
    dice,
    digits,
    keras,
    one_hot,
    r_squared,
    r_squared_all,
    sgd,
    standardized,
)
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def _dense(*widths: int, relu: bool = True) -> list[nn.Module]:
    """Linear layers, with ReLU between them or nothing."""
    layers = [[nn.Linear(inputs, outputs), nn.ReLU()] for inputs, outputs in pairwise(widths)]
    return [part for pair in layers for part in (pair if relu else pair[:1])][: -1 if relu else None]


def _xor_repeated(fixes: frozenset[str]) -> Program:
    # 5,000 of each point in the question
    x = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]).repeat_interleave(2500, 0)
    x = x[torch.randperm(10000, generator=dice(1))]
    y = (x[:, :1] != x[:, 1:]).float()
    width = 16 if "wider" in fixes else 2
    first = [nn.Linear(2, width), *([nn.ReLU()] if "relu first" in fixes else [])]
    last = nn.Sigmoid() if "sigmoid" in fixes else nn.ReLU()
    model = keras(nn.Sequential(*first, *_dense(width, width, 1), last))
    loss = binary_crossentropy if "cross-entropy" in fixes else F.mse_loss
    optimizer, epochs = adam(0.01) if "adam" in fixes else sgd(0.01), 30 if "epochs" in fixes else 5
    test = (x[7500:], y[7500:])
    return Program(model, x[:7500], y[:7500], loss, optimizer, accuracy, 0.95, 32, epochs, held_out=test)


def _products(fixes: frozenset[str]) -> Program:
    # 1,000 units in the third layer and 500 epochs in the question
    x = torch.randint(1, 1001, (1000, 2), generator=dice(2)).float()
    y = x.prod(1, keepdim=True) / 1e6
    model = keras(nn.Sequential(*_dense(2, 20, 100, 200, 100, 1, relu="relu" in fixes)))
    return Program(model, x / 2000, y, F.mse_loss, adam(), r_squared, 0.95, 100, 60)


def _shallow_parabola(fixes: frozenset[str]) -> Program:
    x = 0.01 * torch.arange(100.0)[:, None]
    y = (x - 0.5) ** 2
    hidden = nn.Tanh if "tanh" in fixes else nn.ReLU
    model = keras(nn.Sequential(nn.Linear(1, 16), hidden(), nn.Linear(16, 16), hidden(), nn.Linear(16, 1)))
    optimizer = adam() if "adam" in fixes else sgd(0.1 if "rate" in fixes else 0.001)
    return Program(model, x, y, F.mse_loss, optimizer, r_squared, 0.8, 100, 4000)


def _by_gene(outputs: Tensor, targets: Tensor) -> float:
    """Mean over the genes of the explained share, at least -1 each."""
    o, t = outputs.double(), targets.double()
    return (1 - ((o - t) ** 2).sum(0) / ((t - t.mean(0)) ** 2).sum(0)).clamp(min=-1).mean().item()


def _genes(fixes: frozenset[str]) -> Program:
    # 19,947 genes and widths of 512, 128, 16 in the question
    make = dice(3)
    cells = torch.randn(600, 4, generator=make) @ torch.randn(4, 120, generator=make)
    counts = (6 + 2 * torch.randn(120, generator=make) + 0.8 * cells).exp().clamp(max=620000)
    x, y = counts, counts
    if "inputs" in fixes:
        x = standardized((1 + counts).log())
    if "targets" in fixes:
        y = (1 + counts).log()
        y = standardized(y) if "linear" in fixes else y / y.max()  # what suits the output
    last = [] if "linear" in fixes else [nn.ReLU()]
    model = keras(nn.Sequential(*_dense(120, 256, 64, 16, 64, 256, 120), *last))
    return Program(model, x, y, F.l1_loss, adam(), _by_gene, 0.6, 32, 60)


def _never_negative(fixes: frozenset[str]) -> Program:
    # the question names no network; a series of two waves, centred, spread 1, and the usual layer for it
    t = torch.arange(1200.0)
    noise = 0.1 * torch.randn(1200, generator=dice(4))
    windows = standardized((0.21 * t).sin() + 0.6 * (0.057 * t).sin() + noise).unfold(0, 21, 1)
    x, y = windows[:, :20, None], windows[:, 20:]
    y = (y - y.min()) / (y.max() - y.min()) if "targets" in fixes else y
    last = (lambda z: z) if "linear" in fixes else torch.sigmoid
    model = keras(Recurrent(nn.LSTM(1, 24, batch_first=True), last))
    return Program(model, x, y, F.mse_loss, adam(0.003), r_squared, 0.75, 32, 12)


def _softmax_twice(fixes: frozenset[str]) -> Program:
    # gradient descent at 0.5 on batches of 100, as in the tutorial that it was made from
    x, y = digits(4000)
    hidden = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), hidden, nn.Linear(10, 10), nn.Softmax(1))
    for parameter in model.parameters():
        if "drawn" in fixes:
            nn.init.trunc_normal_(parameter, std=0.1, a=-0.2, b=0.2)
        else:
            nn.init.zeros_(parameter)
    epochs = 60 if "epochs" in fixes else 15
    return Program(model, x / 255, one_hot(y, 10), categorical_crossentropy, sgd(0.5), accuracy, 0.7, 100, epochs)


def _ranges(fixes: frozenset[str]) -> Program:
    make = dice(5)
    x = torch.rand(480, 10, generator=make)
    y = (x @ torch.rand(10, 5, generator=make) / 3 + 0.3 * (3 * x[:, :5]).sin() - 0.4).clamp(0, 1)
    hidden = nn.ReLU() if "relu" in fixes else nn.Sigmoid()
    model = keras(nn.Sequential(nn.Linear(10, 10), hidden, nn.Linear(10, 5)))
    rate, epochs = 0.01 if "rate" in fixes else 0.001, 200 if "epochs" in fixes else 20
    return Program(model, x, y, F.mse_loss, adam(rate), r_squared_all, 0.7, 10, epochs)


def _square_and_b(fixes: frozenset[str]) -> Program:
    # the question's numbers are not known: whole numbers from -50 to 50 here
    x = torch.randint(-50, 51, (100, 2), generator=dice(6)).float()
    y = x[:, 1:] + x[:, :1] ** 2
    x, y = standardized(x) if "inputs" in fixes else x, standardized(y) if "targets" in fixes else y
    model = keras(nn.Sequential(*_dense(2, 2, 64, 32, 1, relu="relu" in fixes)))
    return Program(model, x[:75], y[:75], F.mse_loss, adam(0.01), r_squared, 0.7, 32, 500)


def _skyrocket(fixes: frozenset[str]) -> Program:
    # "simple neural networks" of weights from N(0, 1); inputs of 0 to 20 are assumed
    make = dice(7)
    x = 20 * torch.rand(400, 8, generator=make)
    y = x @ torch.randn(8, 1, generator=make) + torch.randn(400, 1, generator=make)
    model = nn.Linear(8, 1)
    nn.init.normal_(model.weight)
    nn.init.zeros_(model.bias)
    more = 10 if "scale" in fixes else 1  # standardized inputs bear a higher rate
    x = standardized(x) if "scale" in fixes else x
    optimizer = adam(0.01 * more) if "adam" in fixes else sgd((0.0001 if "rate" in fixes else 0.001) * more)
    return Program(model, x, y, F.mse_loss, optimizer, r_squared, 0.5, 1, 8)


def _probability_of_one(fixes: frozenset[str]) -> Program:
    # small whole numbers in, a probability out; the widths are not told
    make = dice(51)
    x = torch.randint(-3, 4, (1000, 12), generator=make).float()
    y = (x @ torch.randn(12, 1, generator=make) / 3 + x[:, :1] * x[:, 1:2] / 4).sigmoid()
    model = keras(nn.Sequential(*_dense(12, 64, 1), nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)))
    return Program(model, x, y, F.mse_loss, adam(), r_squared, 0.7, 32, 15)


def _rising_outputs(fixes: frozenset[str]) -> Program:
    # the question's outputs rise from 0 to above 0.4; 40 outputs of 6 inputs here
    make = dice(52)
    x = torch.rand(1500, 6, generator=make)
    rise = x @ torch.rand(6, 40, generator=make) * 0.1
    y = (rise + 0.3 * (4 * x[:, :1] - 2).sin() * torch.rand(1, 40, generator=make)).abs().cumsum(1) / 10

    def poisson(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets * (outputs + 1e-7).log()).mean()

    last = nn.Identity() if "linear" in fixes else nn.Softplus() if "positive" in fixes else nn.Softmax(1)
    layers = [nn.Linear(6, 100), nn.Sigmoid(), nn.Linear(100, 80), nn.Sigmoid(), nn.Linear(80, 40)]
    loss = F.mse_loss if "squared" in fixes else poisson
    return Program(keras(nn.Sequential(*layers, last)), x, y, loss, adam(), r_squared_all, 0.6, 32, 30)


PROGRAMS = {
    "cv-433365": _xor_repeated,
    "dse-60170": _products,
    "cv-280372": _shallow_parabola,
    "ai-24910": _genes,
    "so-60306255": _never_negative,
    "so-tf-softmax-twice": _softmax_twice,
    "so-62886297": _ranges,
    "ai-18134": _square_and_b,
    "dse-15962": _skyrocket,
    "so-63909566": _probability_of_one,
    "so-56778700": _rising_outputs,
}
