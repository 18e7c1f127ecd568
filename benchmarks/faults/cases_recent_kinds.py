"""Loops, sounds, finance, textbooks; comments tell what is smaller or drawn."""

import torch
from common import (
    accuracy,
    adam,
    binary_crossentropy,
    cars,
    dice,
    garments,
    initialized,
    keras,
    once_each,
    r_squared,
    sgd,
    standardized,
)
from faults import Program
from torch import nn
from torch.nn import functional as F


def _outside(fixes):
    x, y = garments(1600)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    counts = once_each(lambda o: {"batch": 0})

    def step(model, optimizer, loss, x, y):
        held = counts(optimizer)
        held["batch"] += 1
        optimizer.zero_grad()
        error = loss(model(x), y)
        if "inside" in fixes or held["batch"] % 50 == 0:
            error.backward()
            optimizer.step()
        return error.item()

    return Program(model, x / 255, y, F.cross_entropy, sgd(0.05), accuracy, 0.65, 32, 6, step=step)


def _masks(fixes):
    # 16 x 16 pictures drawn
    make = dice(9302)
    centre = torch.rand(160, 2, 1, 1, generator=make) * 10 + 3
    grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))
    y = (((grid - centre) ** 2).sum(1, keepdim=True) < 12).float()
    x = y * 0.8 + 0.2 * torch.randn(160, 1, 16, 16, generator=make)
    given = y if "seed" in fixes else y[torch.randperm(160, generator=make)]
    model = keras(
        nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 1, 1),
            nn.Sigmoid(),
        )
    )

    def overlap(o, t):
        o, t = o > 0.5, t > 0.5
        return ((o & t).sum() / (o | t).sum().clamp(min=1)).item()

    return Program(model, x, given, binary_crossentropy, adam(0.005), overlap, 0.6, 16, 20, held_out=(x, y))


class RBF(nn.Module):
    def __init__(self, centres):
        super().__init__()
        self.centres, self.beta = nn.Parameter(centres.clone()), nn.Parameter(torch.ones(len(centres)))

    def forward(self, x):
        return (-self.beta * ((x[:, None] - self.centres) ** 2).sum(2)).exp()


def _rbf(fixes):
    # cars for houses; beta 1 as there
    x, y = cars()
    x = standardized(x[:, :6]) / 2 if "standardized" in fixes else x[:, :6]
    y = standardized(y)
    rows = torch.randperm(len(x), generator=dice(9303))[:30]
    model = nn.Sequential(
        RBF(x[rows] if "centres" in fixes else torch.rand(30, 6, generator=dice(9304)) * 2 - 1), nn.Linear(30, 1)
    )
    return Program(model, x, y, F.mse_loss, adam(0.02 if "rate" in fixes else 0.001), r_squared, 0.6, 32, 40)


def _assignment(fixes):
    # 1,024 and 300 units and notMNIST there; pixels from -0.5 to 0.5
    x, y = garments(2000)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 60), nn.ReLU(), nn.Linear(60, 10)
    )
    for layer in model:
        if isinstance(layer, nn.Linear):
            wide = (2 / layer.in_features) ** 0.5 if "small" in fixes else 1.0
            nn.init.trunc_normal_(layer.weight, 0, wide, -2 * wide, 2 * wide)
            nn.init.zeros_(layer.bias)
    rate = 1e-5 if "rate" in fixes and "small" not in fixes else 0.1 if "rate" in fixes else 0.5
    return Program(model, x / 255 - 0.5, y, F.cross_entropy, sgd(rate), accuracy, 0.65, 128, 12)


def _log_of_zero(fixes):
    make = dice(9305)
    x = torch.randn(700, 10, generator=make)
    sales = (x[:, :4].sum(1, keepdim=True) * 0.5 + 2).exp().floor()
    y = sales.log1p() if "log1p" in fixes else sales.log()
    model = keras(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)))
    return Program(model, x, y, F.mse_loss, adam(3e-4 if "rate" in fixes else 3e-3), r_squared, 0.7, 32, 20)


def _decay(fixes):
    x, y = garments(1500)
    model = keras(
        nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    )
    schedules = once_each(
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 if "momentum" in fixes else 1 / (1 + 0.9 * n))
    )

    def step(model, optimizer, loss, x, y):
        schedule = schedules(optimizer)
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        schedule.step()
        return error.item()

    how = sgd(0.01, momentum=0.9 if "momentum" in fixes else 0.0)
    return Program(
        model, x / 255, y, F.cross_entropy, how, accuracy, 0.7, 32, 30 if "epochs" in fixes else 8, step=step
    )


def _ranks(fixes):
    # returns drawn, with more signal than there
    make = dice(9307)
    x = torch.randint(5, (1200, 20), generator=make).float() / 4
    y = ((x - 0.5)[:, :6].sum(1) + 0.5 * torch.randn(1200, generator=make)).argsort().argsort().float()[:, None] / 1199

    def correlation(a, b):
        a, b = a - a.mean(), b - b.mean()
        return (a * b).sum() / (a.norm() * b.norm()).clamp(min=1e-12)

    def loss(o, t):
        o = o[:, 0]
        if "pearson" not in fixes:
            o = o.argsort().argsort().float().requires_grad_(True)
        return -correlation(o, t[:, 0])

    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    return Program(model, x, y, loss, adam(), lambda o, t: correlation(o[:, 0], t[:, 0]).item(), 0.6, 64, 12)


def _waves(fixes):
    # two tones drawn
    make = dice(9308)
    t = torch.arange(1040.0)
    z = (12000 * ((t * 0.21).sin() + (t * 0.057).sin()) + 500 * torch.randn(1040, generator=make)).round()
    x, y = z.unfold(0, 40, 1)[:-1], z[40:, None]
    x = x / 32768 if "inputs" in fixes else x
    y = y / 32768 if "targets" in fixes else y
    model = keras(
        nn.Sequential(
            nn.Linear(40, 64),
            nn.Tanh(),
            nn.Linear(64, 64),
            nn.Tanh(),
            nn.Linear(64, 1),
            nn.Identity() if "linear" in fixes else nn.Tanh(),
        )
    )
    return Program(model, x, y, F.mse_loss, adam(), r_squared, 0.8, 32, 20)


def _mixed_axes(fixes):
    # the value of two steps before is asked for at each step
    x = torch.randn(400, 12, 1, generator=dice(9309))
    y = torch.cat([torch.zeros(400, 2, 1), x[:, :-2]], 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.end = nn.LSTM(1, 24, batch_first=True), nn.Linear(24, 1)

        def forward(self, x):
            b, t, _ = x.shape
            if "order" in fixes:
                return self.end(self.lstm(x)[0])
            z = self.end(self.lstm(x.reshape(t, b, 1).transpose(0, 1))[0])
            return z.transpose(0, 1).reshape(b, t, 1)

    return Program(keras(Net()), x, y, F.mse_loss, adam(0.01), r_squared, 0.8, 32, 12)


def _spirals(fixes):
    # CS231n's data, network and step; 10,000 steps there
    make = dice(9310)
    r, points, kinds = torch.linspace(0, 1, 100), [], []
    for k in range(3):
        t = torch.linspace(k * 4, (k + 1) * 4, 100) + 0.2 * torch.randn(100, generator=make)
        points.append(torch.stack([r * t.sin(), r * t.cos()], 1))
        kinds += [k] * 100
    model = initialized(
        nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 3)), lambda w: nn.init.normal_(w, 0, 0.01)
    )

    def how(m):
        decay = 0.001 if "penalty" in fixes else 0.1
        weights = [p for p in m.parameters() if p.ndim > 1]
        return torch.optim.SGD(
            [{"params": weights, "weight_decay": decay}, {"params": [p for p in m.parameters() if p.ndim == 1]}], 1.0
        )

    return Program(
        model,
        torch.cat(points),
        torch.tensor(kinds),
        F.cross_entropy,
        how,
        accuracy,
        0.75,
        300,
        2500 if "steps" in fixes else 1200,
    )


PROGRAMS = {
    "step-outside-the-loop": _outside,
    "masks-of-others": _masks,
    "gh-rbf-keras-6": _rbf,
    "udacity-assignment-3": _assignment,
    "kaggle-log-of-zero": _log_of_zero,
    "keras-decay": _decay,
    "numerai-ranks": _ranks,
    "int16-waves": _waves,
    "gh-neon-311": _mixed_axes,
    "gh-dlmatframework-1": _spirals,
}
