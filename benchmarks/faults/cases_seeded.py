"""Small sound programs of our own with a fault or two of kinds that AUTOTRAINER, Defects4DL and TheDeepChecker list."""

import torch
from common import accuracy, adam, cars, dice, digits, garments, r_squared, sgd, standardized
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


def _deep_sigmoids(fixes: frozenset[str]) -> Program:
    x, y = garments(3000)
    unit = nn.ReLU if "relu" in fixes else nn.Sigmoid
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs in (784, 80, 80, 80, 80, 80):
        layers += [nn.Linear(inputs, 80), *([nn.BatchNorm1d(80)] if "normed" in fixes else []), unit()]
    model = nn.Sequential(*layers, nn.Linear(80, 10))
    optimizer = adam() if "adam" in fixes else sgd(0.3 if "rate" in fixes else 0.02, momentum=0.9)
    return Program(model, x / 255, y, F.cross_entropy, optimizer, accuracy, 0.6, 64, 12)


def _unit_weights(fixes: frozenset[str]) -> Program:
    x, y = map(standardized, cars())
    model = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    if "small" not in fixes:
        for layer in model[::2]:
            nn.init.normal_(layer.weight)
    return Program(model, x, y, F.mse_loss, sgd(0.01), r_squared, 0.6, 16, 30)


def _sunk_bias(fixes: frozenset[str]) -> Program:
    x, y = garments(2500)
    unit = nn.LeakyReLU(0.1) if "leaky" in fixes else nn.ReLU()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 100), unit, nn.Linear(100, 50), unit, nn.Linear(50, 10))
    if "bias" not in fixes:
        for layer in (model[1], model[3]):
            nn.init.constant_(layer.bias, -5)
    return Program(model, x / 255, y, F.cross_entropy, sgd(0.05, momentum=0.9), accuracy, 0.65, 50, 10)


def _norm_of_one(fixes: frozenset[str]) -> Program:
    x, y = map(standardized, cars())
    layers = [nn.Linear(9, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 1)]
    model = nn.Sequential(*layers, *([] if "no norm" in fixes else [nn.LayerNorm(1)]))
    return Program(model, x, y, F.mse_loss, adam(0.005), r_squared, 0.7, 32, 25)


class Waves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 16, 7, 2), nn.ReLU(), nn.Conv1d(16, 32, 5, 2), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).amax(2))


def _waves() -> tuple[Tensor, Tensor]:
    """Noisy waves of 64 places, and which of four rates each has."""
    make = dice(20)
    kinds = torch.arange(800) % 4
    rate = (0.15 + 0.2 * kinds[:, None]) * (1 + 0.1 * torch.randn(800, 1, generator=make))
    phase = 6.3 * torch.rand(800, 1, generator=make)
    return ((rate * torch.arange(64.0) + phase).sin() + 0.3 * torch.randn(800, 64, generator=make))[:, None], kinds


def _summed_loss(fixes: frozenset[str]) -> Program:
    x, y = _waves()
    loss = nn.CrossEntropyLoss(reduction="mean" if "mean" in fixes else "sum")
    rate = 0.002 if "rate" in fixes and "mean" not in fixes else 0.1  # what suits the loss
    return Program(Waves(), x, y, loss, sgd(rate, momentum=0.9), accuracy, 0.8, 64, 12)


def _lasso(fixes: frozenset[str]) -> Program:
    x, y = _waves()
    factor = 0.0001 if "factor" in fixes else 0.1

    def penalized(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        value = loss(model(x), y) + factor * sum(p.abs().sum() for p in model.parameters())
        value.backward()
        optimizer.step()
        return value.item()

    return Program(Waves(), x, y, F.cross_entropy, adam(0.005), accuracy, 0.8, 32, 12, step=penalized)


def _numbered_by_batch(fixes: frozenset[str]) -> Program:
    x, y = digits(3000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 10))

    def numbered(model, optimizer, loss, x, y):
        y = y if "once" in fixes else torch.unique(y, return_inverse=True)[1]
        return plain_step(model, optimizer, loss, x, y)

    return Program(model, (x - 33) / 79, y, F.cross_entropy, adam(0.002), accuracy, 0.8, 8, 4, step=numbered)


def _softplus_crawl(fixes: frozenset[str]) -> Program:
    x, y = map(standardized, cars())
    y = (y - y.min()) / (y.max() - y.min()) if "targets" in fixes else y
    layers = [nn.Linear(9, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1)]
    model = nn.Sequential(*layers, nn.Identity() if "linear" in fixes else nn.Softplus())
    rate = 0.02 if "rate" in fixes else 1e-5
    return Program(model, x, y, F.mse_loss, sgd(rate, momentum=0.9), r_squared, 0.7, 16, 30)


PROGRAMS = {
    "seeded-deep-sigmoids": _deep_sigmoids,
    "seeded-unit-weights": _unit_weights,
    "seeded-sunk-bias": _sunk_bias,
    "seeded-norm-of-one": _norm_of_one,
    "seeded-summed-loss": _summed_loss,
    "seeded-lasso": _lasso,
    "seeded-numbered-by-batch": _numbered_by_batch,
    "seeded-softplus-crawl": _softplus_crawl,
}
