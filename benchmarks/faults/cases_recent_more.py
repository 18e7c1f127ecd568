"""More issues and questions; comments tell what is smaller or drawn."""

import torch
from common import (
    accuracy,
    adam,
    dice,
    keras,
    r_squared,
    rmsprop,
    sgd,
    standardized,
)
from faults import Program
from torch import nn
from torch.nn import functional as F


def _no_hidden_layer(fixes):
    # all as in the issue but 2,000 rows for 10,000
    make = dice(9201)
    x = torch.randn(2000, 100, generator=make)
    y = x @ (100 * torch.rand(100, 1, generator=make)) + 100 * torch.randn(2000, 1, generator=make)
    y = standardized(y) if "targets" in fixes else y
    rate = 0.3 if "rate" in fixes and "targets" not in fixes else 0.001
    return Program(
        keras(nn.Sequential(nn.Linear(100, 1))),
        x,
        y,
        F.mse_loss,
        rmsprop(rate),
        r_squared,
        0.8,
        16,
        40 if "epochs" in fixes else 10,
    )


def _nesterov(fixes):
    # data drawn
    make = dice(9203)
    x = torch.randn(400, 20, generator=make) * 3
    y = (x[:, :5].sum(1, keepdim=True) + 3 * torch.randn(400, 1, generator=make) > 0).float()

    def loss(o, t):
        if "logits" in fixes:
            return F.binary_cross_entropy_with_logits(o, t)
        p = o.sigmoid()
        return -(t * p.log() + (1 - t) * (1 - p).log()).mean()

    def right(o, t):
        return ((o > 0) == (t > 0.5)).double().mean().item()

    model = keras(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 1)))
    return Program(
        model, x, y, loss, sgd(0.01 if "rate" in fixes else 0.2, momentum=0.9, nesterov=True), right, 0.8, 32, 10
    )


def _groups(fixes):
    # a table of patients drawn
    make = dice(9205)
    x = torch.randn(600, 12, generator=make)
    y = (x[:, :4].sum(1) + x[:, 4] * x[:, 5] > 0).long()
    model = nn.Sequential(
        nn.Linear(12, 32), nn.GroupNorm(4 if "groups" in fixes else 32, 32), nn.ReLU(), nn.Linear(32, 2)
    )
    return Program(model, x, y, F.cross_entropy, adam(0.005), accuracy, 0.8, 32, 12)


def _fifth_point(fixes):
    # all as in the issue
    x = torch.tensor([[1.0], [2], [3], [4], [35]])
    y = 1 - x
    x = x / 35 if "scale" in fixes else x
    model = nn.Linear(1, 1)
    nn.init.constant_(model.weight, 0.3)
    nn.init.constant_(model.bias, -0.3)
    rate = (
        0.0005
        if "rate" in fixes and "scale" not in fixes
        else 0.01
        if "mean" not in fixes
        else 0.05
        if "scale" in fixes
        else 0.01
    )

    def loss(o, t):
        return ((o - t) ** 2).mean() if "mean" in fixes else ((o - t) ** 2).sum()

    return Program(model, x, y, loss, sgd(rate), r_squared, 0.9, 5, 1000)


def _ex1(fixes):
    # 47 houses drawn as the exercise's
    make = dice(9207)
    size = 2000 + 780 * torch.randn(47, 1, generator=make).clamp(-1.4, 3)
    beds = (size / 650).round().clamp(1, 5)
    y = 90000 + 135 * size - 6000 * beds + 40000 * torch.randn(47, 1, generator=make)
    x = torch.cat([size, beds], 1)
    x = standardized(x) if "normalized" in fixes else x
    model = nn.Linear(2, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    rate = 1e-7 if "rate" in fixes and "normalized" not in fixes else 0.01
    return Program(model, x, y, lambda o, t: 0.5 * F.mse_loss(o, t), sgd(rate), r_squared, 0.6, 47, 1500)


PROGRAMS = {
    "gh-keras-2576": _no_hidden_layer,
    "gh-lasagne-765": _nesterov,
    "group-norm-of-one": _groups,
    "gh-tensorflow-12030": _fifth_point,
    "coursera-ex1-multi": _ex1,
}
