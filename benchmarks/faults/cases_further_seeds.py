"""Seeded as the collections seed them, and known kinds of beginners' questions; comments tell what is drawn."""

import torch
from common import (
    Recurrent,
    accuracy,
    adam,
    binary_crossentropy,
    categorical_crossentropy,
    dice,
    digits,
    garments,
    initialized,
    keras,
    normal,
    one_hot,
    r_squared,
    sgd,
    standardized,
)
from faults import Program
from torch import nn
from torch.nn import functional as F

CASES = {}


def case(name, source, story, **fixes):
    def add(build):
        CASES[name] = (source, story, fixes, build)
        return build

    return add


@case(
    "seeded-adam-of-one",
    "Seeded, after DeepFD's and TheDeepChecker's too high rate, in another sound program",
    "Garments by two ReLU layers, Adam at 1.0.",
    rate=("learning rate", "0.001"),
)
def _adam_of_one(fixes):
    x, y = garments(1500)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10), nn.Softmax(1)
    )
    return Program(
        keras(model),
        x / 255,
        one_hot(y, 10),
        categorical_crossentropy,
        adam(0.001 if "rate" in fixes else 1.0),
        accuracy,
        0.75,
        64,
        8,
    )


@case(
    "seeded-millionth",
    "Seeded, after DeepFD's too low rate, in another sound program",
    "A small LeNet on digits, SGD with momentum at 1e-6.",
    rate=("learning rate", "0.02"),
    epochs=("training length", "40 in place of 5"),
)
def _millionth(fixes):
    x, y = digits(800)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 12, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(192, 60),
        nn.ReLU(),
        nn.Linear(60, 10),
    )
    how = sgd(0.02 if "rate" in fixes else 1e-6, momentum=0.9)
    return Program(model, x / 255, y, F.cross_entropy, how, accuracy, 0.85, 32, 40 if "epochs" in fixes else 5)


@case(
    "seeded-eight-sigmoids",
    "Seeded, after AUTOTRAINER's gradient vanish and NeuraLint's deep sigmoids, in another sound program",
    "Digits by eight layers of 32 sigmoids, SGD at 0.1: 11 %.",
    relu=("hidden activation", "ReLU"),
    adam=("optimizer", "Adam at 0.005"),
    norm=("normalization", "batch norm before each sigmoid"),
)
def _eight_sigmoids(fixes):
    x, y = digits(1000)
    layers, inputs = [nn.Flatten()], 784
    for _ in range(8):
        layers += [nn.Linear(inputs, 32)] + ([nn.BatchNorm1d(32)] if "norm" in fixes else [])
        layers += [nn.ReLU() if "relu" in fixes else nn.Sigmoid()]
        inputs = 32
    model = keras(nn.Sequential(*layers, nn.Linear(32, 10), nn.Softmax(1)))
    how = adam(0.005) if "adam" in fixes else sgd(0.1)
    return Program(model, x / 255, one_hot(y, 10), categorical_crossentropy, how, accuracy, 0.7, 32, 20)


@case(
    "seeded-all-ones",
    "Seeded, after DeepCrime's change_weights_initialisation (ones), in another sound program",
    "A small convolutional net on garments, kernel_initializer='ones' in all layers.",
    init=("initialization", "Glorot"),
)
def _ones(fixes):
    x, y = garments(800)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 48),
        nn.ReLU(),
        nn.Linear(48, 10),
        nn.Softmax(1),
    )
    model = keras(model) if "init" in fixes else initialized(model, nn.init.ones_)
    return Program(model, x / 255, one_hot(y, 10), categorical_crossentropy, adam(), accuracy, 0.7, 32, 8)


@case(
    "seeded-dropout-95",
    "Seeded, after TheDeepChecker's over_regularization (dropout), in another sound program",
    "Dropout of 0.95 after each of three hidden layers.",
    dropout=("regularization", "0.2"),
)
def _dropout(fixes):
    x, y = garments(1000)
    p = 0.2 if "dropout" in fixes else 0.95
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 64),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(64, 10),
        nn.Softmax(1),
    )
    return Program(keras(model), x / 255, one_hot(y, 10), categorical_crossentropy, adam(), accuracy, 0.7, 64, 15)


@case(
    "seeded-one-batch",
    "Seeded, after DeepFD's and Defects4DL's wrong batch size, in another sound program",
    "batch_size=len(x), ten epochs: ten steps in all.",
    batch=("batch size", "32"),
    epochs=("training length", "300"),
    rate=("learning rate", "0.5 in place of 0.01"),
)
def _one_batch(fixes):
    x, y = digits(1500)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10), nn.Softmax(1))
    batch = 32 if "batch" in fixes else 1500
    epochs = 300 if "epochs" in fixes and "batch" not in fixes else 10
    rate = 0.5 if "rate" in fixes and "batch" not in fixes else 0.01
    return Program(
        keras(model), x / 255, one_hot(y, 10), categorical_crossentropy, sgd(rate), accuracy, 0.75, batch, epochs
    )


def _wines():
    """Drawn along UCI's wine table: 178 rows, 13 columns of its means and spreads, three kinds."""
    make = dice(9601)
    mean = torch.tensor([13.0, 2.3, 2.4, 19.5, 99.7, 2.3, 2.0, 0.36, 1.6, 5.1, 0.96, 2.6, 747.0])
    spread = torch.tensor([0.8, 1.1, 0.27, 3.3, 14.3, 0.63, 1.0, 0.12, 0.57, 2.3, 0.23, 0.71, 315.0])
    kind = torch.randint(3, (178,), generator=make)
    shift = torch.randn(3, 13, generator=make) * 1.1
    z = (shift[kind] + 0.7 * torch.randn(178, 13, generator=make)) / 1.3
    return (mean + spread * z).clamp(min=0.1), kind


@case(
    "seeded-raw-wines",
    "Seeded, after TheDeepChecker's missing_normalization, in another sound program",
    "Thirteen columns of wines as they are, one of them near 750, SGD at 0.01: one kind for all.",
    scale=("input scale", "standardized"),
    rate=("learning rate", "1e-5 while the columns are raw"),
    adam=("optimizer", "Adam at 0.005"),
)
def _raw_wines(fixes):
    x, y = _wines()
    x = standardized(x) if "scale" in fixes else x
    model = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(1))
    rate = 1e-5 if "rate" in fixes and "scale" not in fixes else 0.01
    how = adam(0.005) if "adam" in fixes else sgd(rate)
    return Program(keras(model), x, one_hot(y, 3), categorical_crossentropy, how, accuracy, 0.85, 8, 60)


@case(
    "seeded-linear-rings",
    "Seeded, after DeepCrime's change_activation_function (linear), in another sound program",
    "Two rings by three layers without an activation.",
    relu=("hidden activation", "ReLU"),
)
def _rings(fixes):
    make = dice(9602)
    y = (torch.rand(500, 1, generator=make) < 0.5).float()
    a = torch.rand(500, 1, generator=make) * 6.2832
    x = torch.cat([a.cos(), a.sin()], 1) * (1 + y) + 0.1 * torch.randn(500, 2, generator=make)
    act = nn.ReLU if "relu" in fixes else nn.Identity
    model = nn.Sequential(nn.Linear(2, 32), act(), nn.Linear(32, 16), act(), nn.Linear(16, 1), nn.Sigmoid())
    return Program(keras(model), x, y, binary_crossentropy, adam(0.005), accuracy, 0.95, 32, 40)


@case(
    "seeded-progression",
    "Seeded, after DeepLocalize's and DeepFD's wrong output activation, in another sound program",
    "A disease's progression, 25 to 346, asked of a sigmoid (ten columns as in sklearn's load_diabetes).",
    linear=("output activation", "linear"),
    targets=("target scale", "in 0 to 1"),
    columns=("input scale", "standardized"),
    rate=("learning rate", "0.01 in place of 0.001"),
)
def _progression(fixes):
    # drawn: ten columns of deviation 0.048
    make = dice(9603)
    x = torch.randn(442, 10, generator=make)
    y = x @ torch.tensor([0.0, -0.2, 0.5, 0.3, -0.1, 0.0, -0.2, 0.1, 0.5, 0.1])[:, None] + 0.25 * torch.randn(
        442, 1, generator=make
    )
    y = (152 + 77 * standardized(y)).clamp(25, 346)
    x = x if "columns" in fixes else x * 0.048
    y = (y - 25) / 321 if "targets" in fixes else y
    model = nn.Sequential(
        nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Identity() if "linear" in fixes else nn.Sigmoid()
    )
    return Program(keras(model), x, y, F.mse_loss, adam(0.01 if "rate" in fixes else 0.001), r_squared, 0.6, 32, 60)


@case(
    "seeded-mae-of-classes",
    "Seeded, after DeepFD's wrong loss, in another sound program",
    "mean_absolute_error for ten classes, softmax, SGD at 0.01.",
    entropy=("loss", "categorical_crossentropy"),
    adam=("optimizer", "Adam at 0.001"),
)
def _mae(fixes):
    x, y = digits(1000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10), nn.Softmax(1))
    loss = categorical_crossentropy if "entropy" in fixes else F.l1_loss
    how = adam(0.001) if "adam" in fixes else sgd(0.01)
    return Program(keras(model), x / 255, one_hot(y, 10), loss, how, accuracy, 0.8, 32, 15)


@case(
    "seeded-relu-for-classes",
    "Seeded, after NeuraLint's and DeepFD's wrong last activation, in another sound program",
    "Dense(10, activation='relu') and categorical_crossentropy.",
    softmax=("output activation", "softmax"),
)
def _relu_for_classes(fixes):
    x, y = garments(1000)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1352, 48),
        nn.ReLU(),
        nn.Linear(48, 10),
        nn.Softmax(1) if "softmax" in fixes else nn.ReLU(),
    )

    def loss(o, t):  # Keras: outputs over their sum, then clipped
        p = (o / o.sum(1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
        return -(t * p.log()).sum(1).mean()

    return Program(keras(model), x / 255, one_hot(y, 10), loss, adam(), accuracy, 0.75, 32, 8)


@case(
    "seeded-one-epoch",
    "Seeded, after DeepFD's and DeepCrime's too few epochs, in another sound program",
    "One epoch of a convolutional net at 1e-4.",
    epochs=("training length", "40"),
    rate=("learning rate", "0.003"),
)
def _one_epoch(fixes):
    x, y = digits(640)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
        nn.Softmax(1),
    )
    how = adam(0.003 if "rate" in fixes else 1e-4)
    return Program(
        keras(model),
        x / 255,
        one_hot(y, 10),
        categorical_crossentropy,
        how,
        accuracy,
        0.75,
        64,
        40 if "epochs" in fixes else 1,
    )


@case(
    "seeded-tanh-of-ten",
    "Seeded, after TheDeepChecker's wrong_init and AUTOTRAINER's gradient vanish, in another sound program",
    "Ten layers of 40 tanh with weights of deviation 1.",
    drawn=("initialization", "Glorot"),
    norm=("normalization", "batch norm before each tanh"),
)
def _tanh_of_ten(fixes):
    x, y = digits(1000)
    layers, inputs = [nn.Flatten()], 784
    for _ in range(10):
        layers += [nn.Linear(inputs, 40)] + ([nn.BatchNorm1d(40)] if "norm" in fixes else []) + [nn.Tanh()]
        inputs = 40
    model = nn.Sequential(*layers, nn.Linear(40, 10))
    model = initialized(model, nn.init.xavier_normal_ if "drawn" in fixes else normal(1.0))
    return Program(model, x / 255, y, F.cross_entropy, sgd(0.02, momentum=0.9), accuracy, 0.8, 32, 15)


@case(
    "so-temperatures-tanh",
    "a known kind of question of Stack Overflow: hourly temperatures by a Keras LSTM, the predictions are a line at 1",
    "Degrees, 2 to 31, go in and are asked of Dense(1, activation='tanh').",
    linear=("output activation", "linear"),
    targets=("target scale", "in -1 to 1"),
    inputs=("input scale", "in -1 to 1"),
)
def _temperatures(fixes):
    make = dice(9604)
    t = torch.arange(700.0)
    s = 16 + 7 * torch.sin(t * 0.2618) + 5 * torch.sin(t / 60) + 0.6 * torch.randn(700, generator=make)
    w = s.unfold(0, 25, 1)[::2]
    small = (w - 16) / 16
    x = (small if "inputs" in fixes else w)[:, :24, None]
    y = (small if "targets" in fixes else w)[:, 24:]
    model = keras(Recurrent(nn.LSTM(1, 32, batch_first=True), (lambda z: z) if "linear" in fixes else torch.tanh))
    return Program(model, x, y, F.mse_loss, adam(0.003), r_squared, 0.8, 16, 30)


@case(
    "so-fizzbuzz-number",
    "a known kind of question (FizzBuzz in Keras, after Grus): the network answers with the number each time",
    "The number itself is the one input, not its bits.",
    bits=("data", "ten bits"),
    scale=("input scale", "number / 1,024"),
)
def _fizzbuzz(fixes):
    n = torch.arange(1, 1024)
    y = torch.where(n % 15 == 0, 3, torch.where(n % 5 == 0, 2, torch.where(n % 3 == 0, 1, 0)))
    if "bits" in fixes:
        x = ((n[:, None] >> torch.arange(10)) & 1).float()
    else:
        x = n.float()[:, None] / (1024 if "scale" in fixes else 1)
    model = nn.Sequential(
        nn.Linear(x.shape[1], 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 4), nn.Softmax(1)
    )
    return Program(keras(model), x, one_hot(y, 4), categorical_crossentropy, adam(0.002), accuracy, 0.85, 64, 100)


@case(
    "so-house-prices",
    "a known kind of question of Stack Overflow: California's house prices in Keras, all predictions near 0",
    "Eight columns as they are and prices of 15,000 to 500,000 by 8, 4 and 1 units, Adam, ten epochs.",
    targets=("target scale", "/ 100,000, less the mean"),
    inputs=("input scale", "standardized"),
    epochs=("training length", "60 in place of 10"),
)
def _house_prices(fixes):
    # columns drawn along the table's means and spreads; 1,000 rows for 17,000
    make = dice(9605)
    z = torch.randn(1000, 8, generator=make)
    mean = torch.tensor([-119.6, 35.6, 28.6, 2640.0, 539.0, 1430.0, 501.0, 3.9])
    spread = torch.tensor([2.0, 2.1, 12.6, 2100.0, 420.0, 1100.0, 380.0, 1.9])
    x = mean + spread * z
    y = 207000 + 116000 * standardized(
        (z * torch.tensor([-0.5, -0.5, 0.15, -0.1, 0.3, -0.4, 0.2, 0.8])).sum(1, keepdim=True)
    )
    y = (y + 20000 * torch.randn(1000, 1, generator=make)).clamp(15000, 500000)
    x = standardized(x) if "inputs" in fixes else x
    y = (y - 207000) / 100000 if "targets" in fixes else y
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
    return Program(keras(model), x, y, F.mse_loss, adam(0.003), r_squared, 0.7, 32, 60 if "epochs" in fixes else 10)


PROGRAMS = {name: case[3] for name, case in CASES.items()}
