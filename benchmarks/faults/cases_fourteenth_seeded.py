"""Collections of faults (TheDeepChecker, AUTOTRAINER, DeepCrime) and GitHub; comments tell what is smaller or drawn."""

import torch
from common import (
    accuracy,
    adam,
    binary_crossentropy,
    dice,
    digits,
    he,
    he_uniform,
    initialized,
    keras,
    one_hot,
    photographs,
    r_squared,
    r_squared_all,
    rmsprop,
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


def cut_normal(deviation):
    """A normal law, cut at two deviations."""
    return lambda weight: nn.init.trunc_normal_(weight, 0, deviation, -2 * deviation, 2 * deviation)


def unit(x):
    """Each column from 0 to 1."""
    return (x - x.min(0).values) / (x.max(0).values - x.min(0).values)


def lenet():
    """TheDeepChecker's network for digits, at a quarter of its width."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return initialized(model, he, nn.init.xavier_uniform_)


def deep():
    """TheDeepChecker's network for photographs, at half its width."""
    layers, channels = [], 3
    for width, drop in ((16, 0.2), (32, 0.3), (32, 0.4)):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.ReLU(), nn.BatchNorm2d(width)]
            channels = width
        layers += [nn.MaxPool2d(2), nn.Dropout(drop)]
    layers += [nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Dropout(0.5), nn.Linear(64, 10)]
    return initialized(nn.Sequential(*layers), he_uniform, nn.init.xavier_uniform_)


def three_layers():
    """TheDeepChecker's network for miles per gallon."""
    model = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    return initialized(model, he, nn.init.xavier_uniform_)


def two_circles(count, seed):
    """Points on two circles, one inside the other, with noise of 0.1, columns from -1 to 1."""
    make = dice(seed)
    y = (torch.arange(count) % 2).float()
    turn = 2 * torch.pi * torch.rand(count, generator=make)
    x = torch.stack([turn.cos(), turn.sin()], 1) * (1 - 0.2 * y)[:, None]
    x = x + 0.1 * torch.randn(count, 2, generator=make)
    return 2 * unit(x) - 1, y[:, None]


@case(
    "deepchecker-deep-squared-loss",
    "TheDeepChecker, buggy_synthetic_programs/wrong_loss_selection/deepCNN",
    "Squared error of a softmax over ten classes, momentum of 0.9 at 0.001: hardly better than a guess.",
    entropy=("loss", "cross-entropy"),
    rate=("learning rate", "0.1 for 0.001"),
    adam=("optimizer", "Adam at 0.001"),
)
def _squared_classes(fixes):
    # 500 photographs of 16 x 16, half the width
    x, y = photographs(500)

    def loss(o, t):
        return F.cross_entropy(o, t) if "entropy" in fixes else F.mse_loss(o.softmax(1), one_hot(t, 10))

    rate = 0.1 if fixes == {"rate"} else 0.001
    how = adam() if "adam" in fixes else sgd(rate, momentum=0.9)
    return Program(deep(), x / 255, y, loss, how, accuracy, 0.25, 16, 15)


@case(
    "deepchecker-dlt-0edb182",
    "GitHub Deep-Learning-TensorFlow commit 0edb182; TheDeepChecker DLT_0edb182",
    "Weights of 0.01, a softmax, and a cross-entropy that takes a softmax of it, by plain gradient descent at 0.01.",
    logits=("output activation", "no softmax before the loss"),
    drawn=("initialization", "weights with a deviation of 0.1"),
    adam=("optimizer", "Adam at 0.001"),
    rate=("learning rate", "0.1 for 0.01"),
    epochs=("training length", "18 in place of 6"),
)
def _small_and_twice(fixes):
    # 1,000 digits, a quarter of the width, one dense layer; laws and dropout as there, batches of 20
    x, y = digits(1000)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 64),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(64, 10),
        *[nn.Softmax(1)] * ("logits" not in fixes),
    )
    initialized(model, cut_normal(0.1 if "drawn" in fixes else 0.01), bias=lambda b: nn.init.constant_(b, 0.01))
    how = adam() if "adam" in fixes else sgd(0.1 if "rate" in fixes else 0.01)
    epochs = 18 if "epochs" in fixes and "adam" not in fixes else 6
    return Program(model, x / 255, y, F.cross_entropy, how, accuracy, 0.5, 20, epochs)


def roads(count):
    """Bright roads on dark ground that bend to a side, (count, 1, 32, 64) in 0..255, and steering from -1 to 1."""
    make = dice(15001)
    steering = 2 * torch.rand(count, 1, generator=make) - 1
    depth = torch.arange(32) / 31  # 0 far away, 1 in front
    start = 32 + 6 * torch.randn(count, 1, generator=make)
    middle = start + 24 * steering * (1 - depth) ** 2
    gap = (torch.arange(64)[None, None] - middle[..., None]).abs()
    x = 200.0 * (gap < (3 + 6 * depth)[None, :, None]) + 40 * torch.rand(count, 32, 64, generator=make)
    return x[:, None], steering


@case(
    "deepcrime-udacity-sigmoid-end",
    "DeepCrime, udacity: add_activation_function (the last layer)",
    "A network that is to steer to both sides ends in a sigmoid, which steers to one.",
    linear=("output activation", "no activation at the end"),
    tanh=("output activation", "tanh at the end"),
    targets=("target scale", "steering between 0 and 1"),
    rate=("learning rate", "0.0001 for 0.001"),
    epochs=("training length", "24 in place of 8"),
)
def _steers_to_one_side(fixes):
    # drawn roads of 32 x 64 for photographs of 66 x 200, three convolutions at half the width; ELU and Adam as there
    x, y = roads(500)
    y = (y + 1) / 2 if "targets" in fixes else y
    end = nn.Identity() if "linear" in fixes else nn.Tanh() if "tanh" in fixes else nn.Sigmoid()
    layers, channels = [], 1
    for width in (12, 18, 24):
        layers += [nn.Conv2d(channels, width, 5, 2), nn.ELU()]
        channels = width
    layers += [nn.Dropout(0.5), nn.Flatten(), nn.Linear(24 * 5, 50), nn.ELU(), nn.Linear(50, 10), nn.ELU()]
    model = keras(nn.Sequential(*layers, nn.Linear(10, 1), end))
    rate = 1e-4 if fixes == {"rate"} else 1e-3
    epochs = 24 if fixes == {"epochs"} else 8
    return Program(model, x / 127.5 - 1, y, F.mse_loss, adam(rate), r_squared, 0.7, 20, epochs)


def eyes(count):
    """Dark pupils on bright eyes, (count, 1, 18, 30) in 0..1, and two angles of where they look."""
    make = dice(15002)
    up, side = (2 * torch.rand(2, count, generator=make) - 1) * 0.6
    rows, columns = torch.arange(18)[None, :, None], torch.arange(30)[None, None]
    gap = (rows - 9 - 8 * up[:, None, None]) ** 2 + (columns - 15 - 16 * side[:, None, None]) ** 2
    x = 0.8 - 0.7 * torch.exp(-gap / 12) + 0.05 * torch.randn(count, 18, 30, generator=make)
    return x[:, None], torch.stack([1.57 + up, side], 1)


def direction(angles):
    theta, phi = angles.T
    return torch.stack([theta.sin() * phi.cos(), theta.sin() * phi.sin(), theta.cos()], 1)


@case(
    "deepcrime-unityeyes-low-rate",
    "DeepCrime, UnityEyes (lenet): change_learning_rate",
    "Where eyes look, by the angle between two directions: gradient descent at 0.00001 leaves all at one.",
    rate=("learning rate", "0.01, as in the sound program"),
    adam=("optimizer", "Adam at 0.001"),
    norm=("normalization", "batch norm after each convolution"),
    epochs=("training length", "30 in place of 12"),
)
def _eyes(fixes):
    # drawn eyes of 18 x 30 for 36 x 60, half the width, no head's angles; laws and loss as there, batches of 16
    x, y = eyes(400)
    norm = nn.BatchNorm2d if "norm" in fixes else lambda width: nn.Identity()
    model = nn.Sequential(
        nn.Conv2d(1, 10, 3),
        norm(10),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(10, 20, 3),
        norm(20),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(360, 64),
        nn.ReLU(),
        nn.Linear(64, 2),
    )
    for layer in keras(model):
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, 0, 0.1)

    def loss(o, t):
        return (direction(o) * direction(t)).sum(1).clamp(-0.99999, 0.99999).acos().mean()

    def score(o, t):
        return r_squared_all(direction(o), direction(t))

    how = adam() if "adam" in fixes else sgd(0.01 if "rate" in fixes else 1e-5)
    epochs = 30 if "epochs" in fixes and not fixes & {"rate", "adam"} else 12
    return Program(model, x, y, loss, how, score, 0.4, 16, epochs)


@case(
    "autotrainer-five-exponentials",
    "AUTOTRAINER, DL_tools/code/L-code/gradient_explode/case-15",
    "Two circles by five layers of five exponentials, which grow from layer to layer, gradients cut to a norm of 1.",
    tanh=("hidden activation", "tanh for exponentials"),
    relu=("hidden activation", "ReLU for exponentials"),
    norm=("normalization", "batch norm in front of each exponential"),
    adam=("optimizer", "Adam at 0.01"),
    rate=("learning rate", "0.1 for 0.01"),
)
def _exponentials(fixes):
    # points, layers, units, law, clipping and rate as there; 60 of 200 epochs
    x, y = two_circles(800, 15003)

    class Exponential(nn.Module):
        def forward(self, x):
            return x.exp()

    between = nn.Tanh if "tanh" in fixes else nn.ReLU if "relu" in fixes else Exponential
    layers, width = [], 2
    for _ in range(5):
        layers += [nn.Linear(width, 5), *[nn.BatchNorm1d(5)] * ("norm" in fixes), between()]
        width = 5
    model = keras(nn.Sequential(*layers, nn.Linear(5, 1), nn.Sigmoid()))

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return error.item()

    how = adam(0.01) if "adam" in fixes else sgd(0.1 if "rate" in fixes else 0.01)
    return Program(model, x, y, binary_crossentropy, how, accuracy, 0.65, 32, 60, step=step)


@case(
    "autotrainer-ten-sigmoids",
    "AUTOTRAINER, DL_tools/code/L-code/gradient_vanish/case-15",
    "Two circles by ten layers of five sigmoids: all points get one output.",
    tanh=("hidden activation", "tanh for sigmoids"),
    relu=("hidden activation", "ReLU for sigmoids"),
    norm=("normalization", "batch norm in front of each sigmoid"),
    rate=("learning rate", "0.01 for 0.001"),
    shallow=("architecture", "two layers for ten"),
)
def _ten_sigmoids(fixes):
    # points, layers, units, law and rate as there; 50 of 200 epochs
    x, y = two_circles(800, 15003)
    between = nn.Tanh if "tanh" in fixes else nn.ReLU if "relu" in fixes else nn.Sigmoid
    layers, width = [], 2
    for _ in range(2 if "shallow" in fixes else 10):
        layers += [nn.Linear(width, 5), *[nn.BatchNorm1d(5)] * ("norm" in fixes), between()]
        width = 5
    model = keras(nn.Sequential(*layers, nn.Linear(5, 1), nn.Sigmoid()))
    how = adam(0.01 if "rate" in fixes else 0.001)
    return Program(model, x, y, binary_crossentropy, how, accuracy, 0.6, 32, 50)


@case(
    "seeded-raw-volts",
    "Seeded, after TheDeepChecker's missing_normalization, in another sound program",
    "Waves as a converter counts them, 0 to 4095, by two convolutions of tanh: all of their units are full.",
    scale=("input scale", "/ 2048 - 1"),
    standard=("input scale", "each place standardized"),
    relu=("hidden activation", "ReLU for tanh"),
    norm=("normalization", "batch norm in front of each tanh"),
    rate=("learning rate", "0.001 for 0.01"),
    epochs=("training length", "40 in place of 10"),
)
def _raw_volts(fixes):
    make = dice(15005)
    y = torch.arange(600) % 4
    place = torch.arange(48) + 48 * torch.rand(600, 1, generator=make)
    speed = (2 * torch.pi / torch.tensor([24.0, 16, 12, 9]))[y][:, None]
    x = 2048 + 300 * (speed * place).sin() + 100 * torch.randn(600, 48, generator=make)
    x = x.clamp(0, 4095).round()
    x = standardized(x) if "standard" in fixes else x / 2048 - 1 if "scale" in fixes else x
    between = nn.ReLU if "relu" in fixes else nn.Tanh
    norm = nn.BatchNorm1d if "norm" in fixes else lambda width: nn.Identity()
    model = nn.Sequential(
        nn.Conv1d(1, 8, 5),
        norm(8),
        between(),
        nn.MaxPool1d(2),
        nn.Conv1d(8, 16, 5),
        norm(16),
        between(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(144, 32),
        norm(32),
        between(),
        nn.Linear(32, 4),
    )
    sound = fixes & {"scale", "standard", "norm"}
    how = sgd(0.001 if "rate" in fixes and not sound else 0.01, momentum=0.9)
    epochs = 40 if "epochs" in fixes and not sound else 10
    return Program(keras(model), x[:, None], y, F.cross_entropy, how, accuracy, 0.6, 20, epochs)


@case(
    "seeded-equal-filters",
    "Seeded, after TheDeepChecker's wrong_init, in another sound program",
    "All weights of a network for garments start at 0.02: its filters and units stay equal.",
    drawn=("initialization", "He's law"),
    rate=("learning rate", "0.005 for 0.05"),
    adam=("optimizer", "Adam at 0.001"),
    epochs=("training length", "20 in place of 6"),
)
def _equal_filters(fixes):
    x, y = digits(1000, name="fashion-mnist")
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    initialized(model, he if "drawn" in fixes else lambda weight: nn.init.constant_(weight, 0.02))
    equal = "drawn" not in fixes
    how = adam() if "adam" in fixes else sgd(0.005 if "rate" in fixes and equal else 0.05)
    epochs = 20 if "epochs" in fixes and equal else 6
    return Program(model, x / 255, y, F.cross_entropy, how, accuracy, 0.5, 20, epochs)


@case(
    "gh-tf-dev-summit-3",
    "GitHub martinwicke/tf-dev-summit-tensorboard-tutorial issue 3, Relu activations after fully connected layers",
    "ReLU after the last layer too: classes whose outputs fall to 0 are never told.",
    linear=("output activation", "no ReLU after the last layer"),
    rate=("learning rate", "0.0001 for 0.003"),
    leaky=("output activation", "leaky ReLU after the last layer"),
    norm=("normalization", "batch norm in front of the last ReLU"),
    epochs=("training length", "15 in place of 5"),
)
def _last_relu(fixes):
    # 1,000 digits, a quarter of the width; laws and Adam as there, the rate is ours
    x, y = digits(1000)
    end = nn.Identity() if "linear" in fixes else nn.LeakyReLU(0.1) if "leaky" in fixes else nn.ReLU()
    norm = [nn.BatchNorm1d(10)] if "norm" in fixes else []
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    initialized(model, cut_normal(0.1), bias=lambda b: nn.init.constant_(b, 0.1))
    sound = fixes & {"linear", "leaky", "norm"}
    how = adam(1e-4 if "rate" in fixes and not sound else 3e-3)
    epochs = 15 if "epochs" in fixes and not sound else 5
    return Program(nn.Sequential(*model, *norm, end), x / 255, y, F.cross_entropy, how, accuracy, 0.85, 50, epochs)


@case(
    "gh-pytorch-course-1",
    "GitHub rslim087a/PyTorch-for-Deep-Learning-and-Computer-Vision-Course-All-Codes- issue 1, Limear "
    "Regression diverges",
    "A line through points with a deviation of ten, gradient descent at 0.01 with all points: the error grows.",
    rate=("learning rate", "0.001 for 0.01"),
    scale=("input scale", "x / 10"),
    adam=("optimizer", "Adam at 0.1"),
)
def _line_of_tens(fixes):
    # the points are drawn, 100 epochs; the thread's own rate, 0.00001, takes longer
    make = dice(15006)
    x = 11 * torch.randn(100, 1, generator=make)
    y = x + 3 * torch.randn(100, 1, generator=make)
    x = x / 10 if "scale" in fixes else x
    rate = 0.001 if fixes == {"rate"} else 0.01
    how = adam(0.1) if "adam" in fixes else sgd(rate)
    return Program(nn.Linear(1, 1), x, y, F.mse_loss, how, r_squared, 0.6, 100, 100)


@case(
    "gh-model-zoo-61",
    "GitHub FluxML/model-zoo pull request 61, Update housing.jl (\u03b7 should be a negative number)",
    "A linear model of prices adds its gradients in place of taking them away: the error grows in each step.",
    sign=("update", "gradients are taken away"),
)
def _adds_gradients(fixes):
    # 13 standardized columns are drawn; full batches and the rate of 0.1 as there, 60 steps
    make = dice(15007)
    x = standardized(torch.randn(400, 13, generator=make) @ torch.randn(13, 13, generator=make))
    y = 22 + x @ torch.randn(13, 1, generator=make) * 3 + 3 * torch.randn(400, 1, generator=make)
    model = nn.Linear(13, 1)

    def step(model, optimizer, loss, x, y):
        model.zero_grad()
        error = loss(model(x), y)
        error.backward()
        with torch.no_grad():
            for p in model.parameters():
                p += (-0.1 if "sign" in fixes else 0.1) * p.grad
        return error.item()

    return Program(model, x, y, F.mse_loss, sgd(0.1), r_squared, 0.5, 400, 60, step=step)


def moves():
    """All moves on a board of 6 by 6 to a goal in the corner: states, what follows, and which are good."""
    states = torch.tensor([(r, c) for r in range(6) for c in range(6) if (r, c) != (5, 5)])
    ways = torch.tensor([(-1, 0), (0, -1), (1, 0), (0, 1)])
    then = (states[:, None] + ways).clamp(0, 5)
    good = (then.sum(2) > states.sum(1)[:, None]).float()

    def seen(s):
        return torch.cat([one_hot(s[..., 0], 6), one_hot(s[..., 1], 6)], -1)

    goal = (then.sum(2) == 10).float()
    x = seen(states)
    action = torch.arange(4).repeat(35)
    targets = torch.cat([seen(then).reshape(140, 12), action[:, None].float(), goal.reshape(140, 1)], 1)
    return x.repeat_interleave(4, 0), targets, x, good


@case(
    "gh-reinforcement-learning-186",
    "GitHub dennybritz/reinforcement-learning issue 186 and pull request 104, The output layer should not using RELU "
    "activation function.",
    "Values of actions are below zero, and the layer that tells them ends in a ReLU: all are zero.",
    linear=("output activation", "no activation at the end"),
    rewards=("target scale", "1 at the goal and 0 elsewhere in place of -1 for each step"),
    rate=("learning rate", "0.0003 for 0.003"),
    epochs=("training length", "180 in place of 60"),
)
def _values_below_zero(fixes):
    # a board of 6 by 6 for Atari games, two dense layers, all moves known; RMSProp as there
    x, y, states, good = moves()
    end = nn.Identity() if "linear" in fixes else nn.ReLU()
    model = keras(nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4), end))

    def step(model, optimizer, loss, x, y):
        then, action, goal = y[:, :12], y[:, 12].long(), y[:, 13]
        reward = goal if "rewards" in fixes else goal - 1
        with torch.no_grad():
            wanted = reward + 0.9 * (1 - goal) * model(then).max(1).values
        optimizer.zero_grad()
        error = loss(model(x).gather(1, action[:, None])[:, 0], wanted)
        error.backward()
        optimizer.step()
        return error.item()

    def score(o, t):
        return t.gather(1, o.argmax(1, keepdim=True)).mean().item()

    how = rmsprop(3e-4 if fixes == {"rate"} else 3e-3)
    epochs = 180 if fixes == {"epochs"} else 60
    return Program(model, x, y, F.mse_loss, how, score, 0.8, 20, epochs, held_out=(states, good), step=step)


@case(
    "gh-sktime-10931",
    "GitHub sktime/sktime issue 10931 and pull request 10932, BaseDeepRegressorTorch mishandles (batch, 1) network "
    "output in loss and predict",
    "Outputs of (16, 1) against targets of (16): each is compared with all of the batch.",
    squeezed=("shapes", "outputs of (16)"),
    column=("shapes", "targets of (16, 1)"),
    rate=("learning rate", "0.01 for 0.003"),
)
def _all_pairs(fixes):
    # drawn series of two channels; three convolutions with batch norm as there, an eighth of the width
    make = dice(15008)
    y = 1 + 2 * torch.rand(320, generator=make)
    place = torch.arange(40) / 6 + 6 * torch.rand(320, 1, generator=make)
    x = torch.stack([(y[:, None] * place).sin(), (y[:, None] * place).cos()], 1)
    x = x + 0.2 * torch.randn(320, 2, 40, generator=make)
    y = y[:, None] if "column" in fixes else y
    layers, channels = [], 2
    for width, size in ((16, 7), (32, 5), (16, 3)):
        layers += [nn.Conv1d(channels, width, size, padding="same"), nn.BatchNorm1d(width), nn.ReLU()]
        channels = width
    flat = [nn.Flatten(0)] if "squeezed" in fixes and "column" not in fixes else []
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 1), *flat)
    how = adam(0.01 if "rate" in fixes else 0.003)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.6, 16, 15)


class Machine(nn.Module):
    """A factorization machine of two kinds of things: an offset, a weight and ten factors for each."""

    def __init__(self, users, films, deviation):
        super().__init__()
        self.offset, self.users = nn.Parameter(torch.zeros(())), users
        self.weights, self.factors = nn.Embedding(users + films, 1), nn.Embedding(users + films, 10)
        nn.init.zeros_(self.weights.weight)
        nn.init.normal_(self.factors.weight, 0, deviation)

    def forward(self, x):
        rows = x + torch.tensor([0, self.users])
        pair = self.factors(rows)
        return self.offset + self.weights(rows).sum(1) + (pair[:, 0] * pair[:, 1]).sum(1, keepdim=True)


@case(
    "gh-pyfm-7",
    "GitHub coreylynch/pyFM issue 7, Not converge when training?",
    "A factorization machine of ratings, gradient descent at a rate that is too high: nan.",
    rate=("learning rate", "0.2 for 2"),
    clip=("update", "gradients clipped to a norm of 0.5"),
    adam=("optimizer", "Adam at 0.02"),
    small=("initialization", "factors with a deviation of 0.01 for 0.1"),
    targets=("target scale", "ratings standardized"),
)
def _machine(fixes):
    # 40 users, 40 films and 800 ratings are drawn; batches of ten for one, and a rate for them
    make = dice(15009)
    x = torch.stack([torch.randint(40, (800,), generator=make), torch.randint(40, (800,), generator=make)], 1)
    liked = torch.randn(40, generator=make)[x[:, 0]] * 0.7 + torch.randn(40, generator=make)[x[:, 1]] * 0.9
    y = (3.2 + liked + 0.3 * torch.randn(800, generator=make)).clamp(1, 5).round()[:, None]
    y = standardized(y) if "targets" in fixes else y

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        if "clip" in fixes:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return error.item()

    how = adam(0.02) if "adam" in fixes else sgd(0.2 if "rate" in fixes else 2.0)
    model = Machine(40, 40, 0.01 if "small" in fixes else 0.1)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.4, 10, 25, step=step)


@case(
    "gh-eat-tensorflow2-23",
    "GitHub lyhue1991/eat_tensorflow2_in_30_days issue 23, load_image labels are all 0 (paths with other slashes)",
    "A pattern of a path that never matches labels all photographs 0; training tells an accuracy of 1.",
    labels=("labels", "cars are 1"),
)
def _never_matches(fixes):
    # 200 aircraft and 200 cars of 16 x 16; two convolutions, dropout and Adam as there, narrower
    x, y = (part[:400] for part in photographs(2000))
    truth = (y == 1).float()[:, None]
    given = truth if "labels" in fixes else torch.zeros_like(truth)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(128, 32),
        nn.ReLU(),
        nn.Linear(32, 1),
        nn.Sigmoid(),
    )
    held = (x / 255, truth)
    return Program(keras(model), x / 255, given, binary_crossentropy, adam(), accuracy, 0.7, 20, 10, held_out=held)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
