"""Questions and issues about PyTorch, and faults of TheDeepChecker's kinds in other small sound programs."""

import torch
from common import (
    Recurrent,
    accuracy,
    adam,
    cars,
    dice,
    digits,
    garments,
    keras,
    r_squared,
    r_squared_all,
    sgd,
    standardized,
)
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def _mean_for_all(fixes: frozenset[str]) -> Program:
    # the loop of the thread: backward for each of 32 images, then one step
    x, y = digits(3000)
    last = [] if "cross-entropy" in fixes else [nn.Sigmoid()]
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 800), nn.Sigmoid(), nn.Linear(800, 10), *last)

    def summed(outputs: Tensor, targets: Tensor) -> Tensor:
        if "cross-entropy" in fixes:
            return F.cross_entropy(outputs, targets, reduction="sum")
        return (outputs - F.one_hot(targets, 10)).square().mean(1).sum()

    rate = 0.05 if "rate" in fixes and "cross-entropy" not in fixes else 0.001
    return Program(model, x / 255, y, summed, sgd(rate), accuracy, 0.7, 32, 10)


class Frozen(nn.Module):
    def __init__(self, learns: bool) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU()]
        self.encoder = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(576, 6), nn.Tanh())
        self.head = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 10))
        self.learns = learns

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.learns):
            code = self.encoder(x)
        return self.head(code)


def _frozen_encoder(fixes: frozenset[str]) -> Program:
    x, y = garments(3000)
    return Program(Frozen("grad" in fixes), x / 255 - 0.5, y, F.cross_entropy, adam(), accuracy, 0.6, 64, 8)


def _one_unit_bottleneck(fixes: frozenset[str]) -> Program:
    x = torch.randn(300, 7, generator=dice(21))
    y = 3 + x[:, :1] + 0.5 * x[:, 1:2] * x[:, 2:3] - 0.7 * x[:, 3:4].abs() + 0.3 * x[:, 4:5]
    first, p = 50 if "wider" in fixes else 1, 0.0 if "no dropout" in fixes else 0.5
    layers: list[nn.Module] = []
    for inputs, outputs in ((7, first), (first, 100), (100, 150)):
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(p)]
    return Program(nn.Sequential(*layers, nn.Linear(150, 1)), x, y, F.mse_loss, adam(), r_squared, 0.6, 32, 60)


class EachStep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.fc = nn.RNN(4, 256, batch_first=True), nn.Linear(256, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x)[0])


def _last_output_only(fixes: frozenset[str]) -> Program:
    # the wave of the thread, cut into pieces of 4 steps; the next step of every piece is asked for
    wave = torch.arange(0, 8 * torch.pi, 0.1).sin().repeat(3)
    n = (len(wave) - 1) // 4
    x, y = wave[: 4 * n].reshape(1, n, 4), wave[4 : 4 * n + 1 : 4].reshape(1, n, 1)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs, targets) if "all" in fixes else F.mse_loss(outputs[:, -1], targets[:, -1])

    return Program(EachStep(), x, y, loss, sgd(1e-2), r_squared, 0.8, 1, 100)


def _blobs_at_92(fixes: frozenset[str]) -> Program:
    y = (torch.arange(200) % 2).float()[:, None]
    x = 92 + 5 * torch.randn(200, 2, generator=dice(22)) + torch.where(y > 0.5, 6.0, -6.0)
    x = standardized(x) if "scale" in fixes else x
    model = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 1), nn.Sigmoid())
    rate = 0.01 if "rate" in fixes else 1e-3
    return Program(model, x, y, F.binary_cross_entropy, adam(rate), accuracy, 0.9, 200, 1000)


class Future(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights, self.bias = nn.Parameter(3 * torch.randn(20, 80)), nn.Parameter(3 * torch.randn(1))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weights.T + self.bias


def _cubic_future(fixes: frozenset[str]) -> Program:
    t = torch.linspace(-10, 10, 100)
    y = (t**3 + t**2 + t) / (1000 if "scale" in fixes else 1)
    rate = 1e-6 if "rate" not in fixes else 0.02 if "scale" in fixes else 5e-8
    past, future = y[None, :80], y[None, 80:]
    return Program(Future(), past, future, lambda o, t: ((o - t) ** 2).sum(), sgd(rate), r_squared, 0.5, 1, 30)


def _two_millionths(fixes: frozenset[str]) -> Program:
    make = dice(23)
    x = torch.randint(2, (8000, 30), generator=make).float()
    y = (x - 0.5) @ torch.randn(30, 1, generator=make)
    layers = [nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 10), nn.ReLU(), nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 1)]
    optimizer = sgd(0.002 if "rate" in fixes else 2e-6, momentum=0.9)
    batch_size = 32 if "batch" in fixes else 4000
    return Program(nn.Sequential(*layers), x, y, F.mse_loss, optimizer, r_squared, 0.5, batch_size, 10)


def _zero_once_an_epoch(fixes: frozenset[str]) -> Program:
    x, y = garments(2000)
    convolutions = [nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*convolutions, nn.Linear(576, 64), nn.ReLU(), nn.Linear(64, 10))
    steps = [0]

    def step(model, optimizer, loss, x, y):
        if "each batch" in fixes or steps[0] % 63 == 0:
            optimizer.zero_grad()
        steps[0] += 1
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value.item()

    return Program(model, x / 255, y, F.cross_entropy, sgd(0.05, momentum=0.9), accuracy, 0.6, 32, 8, step=step)


def _peptides(fixes: frozenset[str]) -> Program:
    # 6 to 20 residues of 20 kinds, padded with 0 in front; the target grows with what they are (standardized retention)
    make = dice(31)
    length = torch.randint(6, 21, (1500, 1), generator=make)
    x = torch.randint(1, 21, (1500, 20), generator=make) * (torch.arange(20) >= 20 - length)
    y = torch.cat([torch.zeros(1), torch.randn(20, generator=make)])[x].sum(1, keepdim=True)
    token, layer = nn.Embedding(21, 16, padding_idx=0), nn.LSTM(16, 48, batch_first=True)
    model = nn.Sequential(token, Recurrent(layer) if "linear" in fixes else Recurrent(layer, F.relu))
    return Program(model, x, standardized(y), F.mse_loss, adam(3e-3), r_squared, 0.75, 32, 10)


def _homework(fixes: frozenset[str]) -> Program:
    make = dice(32)
    x = torch.randn(500, 13, generator=make)
    y = 22 + 6 * x[:, :1] - 5 * x[:, 1:2] + 3 * x[:, 2:3].abs() + torch.randn(500, 1, generator=make)
    last = [] if "linear" in fixes else [nn.Tanh()]
    model = keras(nn.Sequential(nn.Linear(13, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1), *last))
    return Program(model, x, y / 50 if "targets" in fixes else y, F.mse_loss, adam(3e-3), r_squared, 0.7, 32, 60)


def _fast_cnn(fixes: frozenset[str]) -> Program:
    x, y = garments(2000)
    first = [nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*first, *second, nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = sgd(0.05 if "rate" in fixes else 0.5, momentum=0.9)
    return Program(model, x / 255, y, F.cross_entropy, optimizer, accuracy, 0.65, 64, 8)


def _slow_gru(fixes: frozenset[str]) -> Program:
    x = torch.rand(800, 15, 2, generator=dice(24))
    x[:, :, 1] = (x[:, :, 1] > 0.7).float()
    y = (x[:, :, :1] * x[:, :, 1:]).sum(1)
    model = Recurrent(nn.GRU(2, 32, batch_first=True))
    return Program(model, x, y, F.mse_loss, adam(5e-3 if "rate" in fixes else 1e-5), r_squared, 0.6, 32, 15)


def _pixels_of_255(fixes: frozenset[str]) -> Program:
    x = digits(2000)[0].flatten(1)
    model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 784), nn.Sigmoid())
    y = x / 255 if "targets" in fixes else x
    return Program(model, x / 255, y, F.mse_loss, adam(2e-3), r_squared_all, 0.4, 64, 12)


def _one_place_off(fixes: frozenset[str]) -> Program:
    (x, y), (x_test, y_test) = garments(3000), garments(1000, 5000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    y = y if "aligned" in fixes else y.roll(1)
    return Program(model, x / 255, y, F.cross_entropy, adam(), accuracy, 0.7, 64, 8, held_out=(x_test / 255, y_test))


def _softmax_inside(fixes: frozenset[str]) -> Program:
    x, y = garments(3000)
    first, second = (nn.ReLU() if "relu" in fixes else nn.Softmax(1) for _ in range(2))
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), first, nn.Linear(128, 64), second, nn.Linear(64, 10))
    return Program(model, x / 255, y, F.cross_entropy, sgd(0.05, momentum=0.9), accuracy, 0.7, 64, 8)


def _all_dropped(fixes: frozenset[str]) -> Program:
    x, y = digits(3000)
    p = 0.1 if "keep" in fixes else 0.9
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs in (784, 64, 64):
        layers += [nn.Dropout(p), nn.Linear(inputs, 64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Dropout(p), nn.Linear(64, 10))
    return Program(model, x / 255, y, F.cross_entropy, adam(), accuracy, 0.7, 64, 8)


def _relu_of_standardized(fixes: frozenset[str]) -> Program:
    x, y = map(standardized, cars())
    last = [] if "linear" in fixes else [nn.ReLU()]
    model = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), *last)
    return Program(model, x, y, F.mse_loss, adam(), r_squared, 0.75, 32, 60)


def _raw_cars(fixes: frozenset[str]) -> Program:
    x, y = cars()
    x = standardized(x) if "scale" in fixes else x
    model = keras(nn.Sequential(nn.Linear(9, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)))
    return Program(model, x, standardized(y), F.mse_loss, sgd(0.01), r_squared, 0.6, 32, 60)


def _rebound(fixes: frozenset[str]) -> Program:
    x, y = map(standardized, cars())
    model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 1))

    def step(model, optimizer, loss, x, y):
        model.zero_grad()
        value = loss(model(x), y)
        value.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if "in place" in fixes:
                    parameter -= 0.05 * parameter.grad
                else:
                    parameter = parameter - 0.05 * parameter.grad
        return value.item()

    return Program(model, x, y, F.mse_loss, sgd(0.05), r_squared, 0.6, 32, 30, step=step)


def _sigmoid_autoencoder(fixes: frozenset[str]) -> Program:
    x = standardized(cars()[0])
    layers = [nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 6), nn.ReLU(), nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 9)]
    model = nn.Sequential(*layers, *([] if "linear" in fixes else [nn.Sigmoid()]))
    return Program(model, x, x, F.mse_loss, adam(2e-3), r_squared_all, 0.6, 32, 100)


PROGRAMS = {
    "gh-proteomicsml-203": _peptides,
    "gh-iic2613-208": _homework,
    "so-pytorch-mean": _mean_for_all,
    "gh-cic-5": _frozen_encoder,
    "m6000-bottleneck": _one_unit_bottleneck,
    "forum-164415": _last_output_only,
    "so-pytorch-at-92": _blobs_at_92,
    "cv-594738": _cubic_future,
    "gh-mxnet-1546": _two_millionths,
    "gh-standalone-dl-11": _zero_once_an_epoch,
    "seeded-fast-cnn": _fast_cnn,
    "seeded-slow-gru": _slow_gru,
    "seeded-pixels-of-255": _pixels_of_255,
    "seeded-one-place-off": _one_place_off,
    "seeded-softmax-inside": _softmax_inside,
    "seeded-all-dropped": _all_dropped,
    "seeded-relu-of-standardized": _relu_of_standardized,
    "seeded-raw-cars": _raw_cars,
    "seeded-rebound": _rebound,
    "seeded-sigmoid-autoencoder": _sigmoid_autoencoder,
}
