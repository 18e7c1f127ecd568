"""Issues and questions about PyTorch: losses, what they are given, scales and order of pixels.

Where a comment does not say otherwise, network, sizes and data are made to hold the fault that an issue names.
"""

import torch
from common import accuracy, adam, dice, digits, one_hot, r_squared, r_squared_all, sgd
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def _weight_of_nothing(fixes: frozenset[str]) -> Program:
    x = torch.randn(1500, 6, generator=dice(39))
    drive = x[:, 0] + 0.5 * x[:, 1] * x[:, 2]
    y = (drive > drive.quantile(0.3)).long() + (drive > drive.quantile(0.9)).long()
    share = torch.bincount(y).double() / len(y)
    weights = (share.max() / share).log() + (1 if "one more" in fixes else 0)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 3))
    return Program(model, x, y, nn.CrossEntropyLoss(weights.float()), adam(0.005), accuracy, 0.75, 32, 15)


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.code = nn.Linear(784, 200), nn.Linear(200, 20)
        self.outer = nn.Sequential(nn.Linear(10, 200), nn.ReLU(), nn.Linear(200, 784), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        mean, log_variance = self.code(self.inner(x).relu()).chunk(2, 1)
        z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean) if self.training else mean
        return torch.cat([self.outer(z), mean, log_variance], 1)


def _divergence_up(fixes: frozenset[str]) -> Program:
    x = digits(1500)[0].flatten(1) / 255

    def bound(outputs: Tensor, x: Tensor) -> Tensor:
        image, mean, log_variance = outputs.split([784, 10, 10], 1)
        likely = F.binary_cross_entropy(image, x, reduction="sum")
        sign = -0.5 if "minus" in fixes else 0.5
        return likely + sign * (1 + log_variance - mean**2 - log_variance.exp()).sum()

    def drawn(outputs: Tensor, x: Tensor) -> float:
        return r_squared(outputs[:, :784], x)

    return Program(Variational(), x, x, bound, adam(), drawn, 0.3, 64, 12)


def _spots() -> tuple[Tensor, Tensor]:
    """Bright spots on dark pictures, 0 to 255, and where they are."""
    make = dice(40)
    spot = 4 + 20 * torch.rand(800, 2, generator=make)
    grid = torch.arange(28.0)
    far = (grid[None, :, None] - spot[:, :1, None]) ** 2 + (grid[None, None] - spot[:, 1:, None]) ** 2
    return (200 * (-far / 8).exp() + 40 * torch.rand(800, 28, 28, generator=make))[:, None], (spot - 14) / 10


def _divided_twice(fixes: frozenset[str]) -> Program:
    x, y = _spots()
    x = x / 255 if "once" in fixes else x / 255 / 255
    first = [nn.Conv2d(1, 16, 5, 2), *([nn.BatchNorm2d(16)] if "normed" in fixes else []), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*first, *second, nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = adam() if "adam" in fixes else sgd(0.05, momentum=0.9)
    return Program(model, x, y, F.mse_loss, optimizer, r_squared_all, 0.7, 32, 8)


def _dice_of_logits(fixes: frozenset[str]) -> Program:
    x, _ = _spots()
    y = (x > 140).float()
    x = x / 255 + 0.3 * torch.randn(x.shape, generator=dice(41))
    convolutions = [nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 12, 5, padding=2), nn.ReLU()]
    model = nn.Sequential(*convolutions, nn.Conv2d(12, 1, 3, padding=1))

    def both(outputs: Tensor, y: Tensor) -> Tensor:
        p = outputs.sigmoid() if "sigmoid" in fixes else outputs
        shared = (p * y).sum((1, 2, 3))
        entropy = F.binary_cross_entropy_with_logits(outputs, y)
        return entropy - (2 * shared / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1e-5).clamp(min=1e-8)).mean()

    def overlap(outputs: Tensor, y: Tensor) -> float:
        found, true = outputs > 0, y > 0.5
        return ((found & true).sum() / (found | true).sum().clamp(min=1)).item()

    return Program(model, x, y, both, sgd(0.01, momentum=0.99, nesterov=True), overlap, 0.5, 16, 4)


def _names_swapped(fixes: frozenset[str]) -> Program:
    x, y = digits(1500)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))

    def entropy(outputs: Tensor, y: Tensor) -> Tensor:
        logits, labels = (outputs, y) if "order" in fixes else (y, outputs)
        return -(labels * logits.log_softmax(1)).sum(1).mean()

    return Program(model, x / 255, one_hot(y, 10), entropy, adam(), accuracy, 0.8, 32, 6)


def _sigmoid_for_nll(fixes: frozenset[str]) -> Program:
    # network, loss and optimizer of the question
    x, y = digits(1500)
    first = [nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU()]
    second = [nn.Conv2d(10, 20, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()]
    dense = [nn.Linear(320, 50), nn.ReLU(), nn.Dropout(), nn.Linear(50, 10)]
    last = nn.LogSoftmax(1) if "log softmax" in fixes else nn.Sigmoid()
    loss = F.cross_entropy if "cross-entropy" in fixes else F.nll_loss
    x = (x / 255 - 0.1307) / 0.3081
    optimizer = sgd(0.02, momentum=0.5)
    return Program(nn.Sequential(*first, *second, *dense, last), x, y, loss, optimizer, accuracy, 0.7, 32, 7)


def _each_its_shuffle(fixes: frozenset[str]) -> Program:
    # a linear classifier
    x, y = digits(2400)
    x, make = x.flatten(1) / 255, dice(54)
    if "one order" in fixes:
        x = x[:, torch.randperm(784, generator=make)]
    else:
        x = torch.stack([row[torch.randperm(784, generator=make)] for row in x])
    test = (x[2000:], y[2000:])
    model = nn.Sequential(nn.Linear(784, 10))
    return Program(model, x[:2000], y[:2000], F.cross_entropy, sgd(0.1), accuracy, 0.7, 32, 10, held_out=test)


PROGRAMS = {
    "gh-finetune-181": _weight_of_nothing,
    "gh-examples-824": _divergence_up,
    "gh-interhand-110": _divided_twice,
    "gh-villa-1488": _dice_of_logits,
    "gh-detcon-1": _names_swapped,
    "so-55469311": _sigmoid_for_nll,
    "cs-78123": _each_its_shuffle,
}
