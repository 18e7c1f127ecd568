"""Programs as beginners meet them in tutorials and books, with the optimizers and batches these have.

Some are slow on purpose: their epochs are long, their rates small. PROGRAMS = {name: build}; each build gives what
`epoch0.checkup` takes. No real data: classes are noisy prototypes, so that they learn as images do.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

Built = tuple[tuple[Any, ...], dict[str, Any]]
PROGRAMS: dict[str, Callable[[], Built]] = {}


def program(setup: Callable[[], tuple]) -> Callable[[], tuple]:
    """setup() -> model, inputs, targets, loss, optimizer, batch size."""

    def build() -> Built:
        torch.manual_seed(0)
        model, x, y, loss, optimizer, size = setup()
        loader = DataLoader(TensorDataset(x, y), size, shuffle=True)
        rows = torch.randperm(len(x))[:100]
        return (model, x[rows], y[rows]), {"loss": loss, "optimizer": optimizer, "data": loader}

    PROGRAMS[setup.__name__] = build
    return setup


def images(count: int, noise: float = 0.4) -> tuple[Tensor, Tensor]:
    """Blurred prototypes of ten classes, 28 x 28, between 0 and 1."""
    kinds = F.interpolate(torch.rand(10, 1, 7, 7), 28, mode="bilinear")
    labels = torch.randint(10, (count,))
    return (kinds[labels] + noise * torch.randn(count, 1, 28, 28)).clamp(0, 1), labels


def dense(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), activation()]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


class Recurrent(nn.Module):
    """The last state of a recurrent network, read by a linear layer."""

    def __init__(self, kind: type[nn.Module], inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.inside, self.out = kind(inputs, hidden, batch_first=True), nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.inside(x)[0][:, -1])


@program
def quickstart() -> tuple:
    """A perceptron with SGD at .001: a step moves weights by 3e-5 of their size, an epoch has 938."""
    model = dense(784, 512, 512, 10)
    return model, *images(60_000), nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 1e-3), 64


@program
def lenet_in_batches_of_four() -> tuple:
    layers = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, dense(256, 120, 84, 10))
    return model, *images(8000), nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9), 4


@program
def names_one_by_one() -> tuple:
    """8,000 steps an epoch, of which the first 2,000 show nothing."""
    names, model = torch.randint(26, (8000, 7)), Recurrent(nn.RNN, 26, 128, 5)
    return model, F.one_hot(names, 26).float(), names[:, 0] % 5, nn.CrossEntropyLoss(), _sgd(model, 0.02), 1


@program
def lenet_of_sigmoids() -> tuple:
    """A plateau of hundreds of steps before it takes off."""
    layers = [nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.AvgPool2d(2), dense(400, 120, 84, 10, activation=nn.Sigmoid))
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(module.weight)
    return model, *images(20_000), nn.CrossEntropyLoss(), _sgd(model, 0.9), 256


@program
def quadratic_cost_of_sigmoids() -> tuple:
    model, (x, y) = nn.Sequential(dense(784, 30, 10, activation=nn.Sigmoid), nn.Sigmoid()), images(10_000)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model, x, F.one_hot(y, 10).float(), lambda o, t: (o - t).square().sum(1).mean() / 2, _sgd(model, 3.0), 10


@program
def softmax_regression() -> tuple:
    model = dense(784, 10)
    return model, *images(3000), nn.CrossEntropyLoss(), _sgd(model, 1e-3), 100


@program
def a_head_on_a_frozen_body() -> tuple:
    model = nn.Sequential(dense(784, 128, 64).requires_grad_(False), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model[1].parameters(), 1e-2, momentum=0.9)
    return model, *images(2000), nn.CrossEntropyLoss(), optimizer, 32


@program
def a_head_on_a_frozen_body_by_adam() -> tuple:
    model = nn.Sequential(dense(784, 128, 64).requires_grad_(False), nn.Linear(64, 10))
    return model, *images(1000), nn.CrossEntropyLoss(), torch.optim.Adam(model[1].parameters()), 32


@program
def a_line_by_sgd() -> tuple:
    x, model = torch.randn(1000, 10), nn.Linear(10, 1)
    return model, x, x @ torch.randn(10, 1) + 0.1 * torch.randn(1000, 1), nn.MSELoss(), _sgd(model, 1e-3), 32


@program
def a_polynomial_by_sgd_on_the_sum() -> tuple:
    x, model = torch.linspace(-3.14, 3.14, 2000), nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))
    return model, x[:, None].pow(torch.tensor([1, 2, 3])), x.sin(), nn.MSELoss(reduction="sum"), _sgd(model, 1e-6), 2000


@program
def exclusive_or() -> tuple:
    model = nn.Sequential(dense(2, 4, 1, activation=nn.Sigmoid), nn.Sigmoid())
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    return model, x, (x.sum(1, keepdim=True) == 1).float(), nn.MSELoss(), optimizer, 4


@program
def skip_grams_by_sgd() -> tuple:
    words, model = torch.randint(300, (8000,)), nn.Sequential(nn.Embedding(300, 32), nn.Linear(32, 300))
    near = (words + torch.randint(1, 4, words.shape)) % 300
    return model, words, near, nn.CrossEntropyLoss(), _sgd(model, 0.025), 64


@program
def a_noisy_sine_ahead() -> tuple:
    wave = (torch.arange(1200) * 0.1).sin() + 0.1 * torch.randn(1200)
    windows, model = wave.unfold(0, 21, 1), Recurrent(nn.LSTM, 1, 32, 1)
    return model, windows[:, :20, None], windows[:, 20:], nn.MSELoss(), torch.optim.Adam(model.parameters()), 32


@program
def weak_evidence() -> tuple:
    """A third of the variance can be known, and no more."""
    x, model = torch.randn(2000, 8), dense(8, 32, 1)
    return model, x, 0.7 * x[:, :1] + torch.randn(2000, 1), nn.MSELoss(), _sgd(model, 0.01), 32


def _sgd(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), rate)
