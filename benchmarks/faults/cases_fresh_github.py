"""Programs of collections and of GitHub projects; comments tell what is smaller or drawn."""

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
    once_each,
    one_hot,
    photographs,
    r_squared,
    r_squared_all,
    sgd,
    token_accuracy,
)
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


def uniform(low: float, high: float):
    return lambda weight: nn.init.uniform_(weight, low, high)


def he_uniform(weight: Tensor) -> Tensor:
    return nn.init.kaiming_uniform_(weight, nonlinearity="relu")


class Exponential(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp()


def circles(count: int, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    make = dice(1201)
    y = torch.arange(count) % 2
    angle = 6.2832 * torch.rand(count, generator=make)
    radius = torch.where(y == 1, 0.5, 1.0)
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1) + noise * torch.randn(count, 2, generator=make)
    return x, y.float()[:, None]


def _never_a_step(fixes):
    # an autoencoder of signals here, a network for depth in the project
    make = dice(1202)
    t = torch.linspace(0, 6.28, 32)
    x = torch.sin(t * (1 + torch.rand(800, 1, generator=make)) + 6.28 * torch.rand(800, 1, generator=make))
    model = nn.Sequential(
        nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32)
    )
    schedules = once_each(lambda o: torch.optim.lr_scheduler.StepLR(o, 400, 0.5))

    def step(model, optimizer, loss, x, y):
        schedule = schedules(optimizer)
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        schedule.step()
        if "both" in fixes:
            optimizer.step()
        return error.item()

    return Program(model, x, x, F.mse_loss, adam(0.003), r_squared_all, 0.7, 32, 25, step=step)


class Motions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = nn.GRU(4, 32, batch_first=True), nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        code = self.read(x)[1][0]
        return self.out(self.write(code[:, None].expand(-1, x.shape[1], -1))[0])


def _no_rate_left(fixes):
    # the rate is 0 from epoch 100 on in the project, from epoch 4 of 40 here
    make = dice(1203)
    t = torch.arange(12.0)[None, :, None]
    x = torch.sin(
        t * (0.2 + 0.6 * torch.rand(400, 1, 1, generator=make)) + 6.28 * torch.rand(400, 1, 4, generator=make)
    )
    gamma = 1.0 if "gamma" in fixes else 0.0
    schedules = once_each(lambda o: torch.optim.lr_scheduler.StepLR(o, 4, gamma))
    counts = once_each(lambda o: [0])

    def step(model, optimizer, loss, x, y):
        schedule, count = schedules(optimizer), counts(optimizer)
        value = plain_step(model, optimizer, loss, x, y)
        count[0] += 1
        if count[0] % 10 == 0:
            schedule.step()
        return value

    return Program(Motions(), x, x, F.mse_loss, adam(0.003), r_squared_all, 0.6, 40, 60, step=step)


def _remainder(fixes):
    # accumulations of 1 as an option; small pictures with one object here, its place is learned
    make = dice(1204)
    points = 4 + 20 * torch.rand(800, 2, generator=make)
    grid = torch.arange(28.0)
    gx, gy = ((grid - points[:, i : i + 1]) ** 2 for i in (0, 1))
    x = (-gx[:, None, :] / 8).exp() * (-gy[:, :, None] / 8).exp() + 0.1 * torch.randn(800, 28, 28, generator=make)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, 2),
        nn.LeakyReLU(0.1),
        nn.Conv2d(12, 24, 3, 2),
        nn.LeakyReLU(0.1),
        nn.Flatten(),
        nn.Linear(600, 2),
    )
    counts = once_each(lambda o: [0])

    def step(model, optimizer, loss, x, y):
        count = counts(optimizer)
        count[0] += 1
        error = loss(model(x), y)
        error.backward()
        rest = count[0] % 1
        if rest == 0 if "condition" in fixes else rest:
            optimizer.step()
            optimizer.zero_grad()
        return error.item()

    return Program(
        model, x[:, None], (points - 13.5) / 13.5, F.mse_loss, adam(), r_squared_all, 0.85, 16, 12, step=step
    )


class Arguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Parameter(0.1 * torch.randn(16, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.body, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(self.words(x) + self.places))


def _tokens_one_class(fixes):
    # tags begin at a marker and go on for four words; the rates are ours, the issue names their size as the fault
    make = dice(1205)
    x = torch.randint(2, 50, (600, 16), generator=make)
    start = torch.randint(0, 12, (600,), generator=make)
    kind = torch.randint(0, 2, (600,), generator=make)
    x[torch.arange(600), start] = kind
    inside = (torch.arange(16) >= start[:, None]) & (torch.arange(16) < start[:, None] + 5)
    y = torch.where(inside, kind[:, None] + 1, 0)

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten())

    return Program(Arguments(), x, y, loss, adam(0.003 if "rate" in fixes else 0.1), token_accuracy, 0.9, 20, 30)


def _every_pair(fixes):
    # 64 to 256 filters in the project
    x, y = digits(1500)
    layers, before = [], 1
    for filters in (8, 16, 32):
        for _ in range(2):
            layers += [nn.Conv2d(before, filters, 3, padding=1), nn.ReLU()]
            before = filters
        layers += [nn.MaxPool2d(2)]
    model = keras(nn.Sequential(*layers, nn.Flatten(), nn.Linear(288, 10)))

    def loss(o, t):
        o = o if "shape" in fixes else o.reshape(len(o), 1, 1, 10)
        return -(t * o.log_softmax(-1)).mean()

    return Program(model, x / 255, one_hot(y, 10), loss, adam(), accuracy, 0.85, 64, 4)


def _eight_exponentials(fixes):
    # optimizer and rate are not in the file: Adam at 0.001; 128 a batch
    x, y = circles(1000)
    act = nn.ReLU if "relu" in fixes else nn.Tanh if "tanh" in fixes else Exponential
    width = 32 if "wide" in fixes else 5
    layers, before = [], 2
    for _ in range(8):
        layers += [nn.Linear(before, width), act()]
        before = width
    model = initialized(nn.Sequential(*layers, nn.Linear(before, 1), nn.Sigmoid()), he_uniform)
    return Program(model, x, y, binary_crossentropy, adam(), accuracy, 0.85, 32, 50)


def _eight_small(fixes):
    # likewise
    x, y = circles(1000)
    layers, before = [], 2
    for _ in range(3 if "shallow" in fixes else 8):
        layers += [nn.Linear(before, 5), nn.ELU() if "elu" in fixes else nn.ReLU()]
        before = 5
    model = nn.Sequential(*layers, nn.Linear(before, 1), nn.Sigmoid())
    initialized(model, he_uniform if "he" in fixes else uniform(-0.05, 0.05), he_uniform)
    return Program(model, x, y, binary_crossentropy, adam(0.01), accuracy, 0.85, 32, 40)


def _ten_sigmoids(fixes):
    # 4,000 events of the Higgs challenge and 200 epochs in the file; 31 columns drawn, some missing as -999
    make = dice(1209)
    x = torch.randn(2000, 31, generator=make)
    y = (x[:, :6] @ torch.randn(6, 1, generator=make) + 0.3 * torch.randn(2000, 1, generator=make) > 0)[:, 0].long()
    x = x * torch.logspace(0, 2, 31)[torch.randperm(31, generator=make)]
    x[:, 25:][torch.rand(2000, 6, generator=make) < 0.3] = -999.0
    x = (x - x.mean(0)) / x.std(0) if "standardized" in fixes else x
    act = nn.ReLU if "relu" in fixes else nn.Sigmoid
    layers: list[nn.Module] = []
    for _ in range(3 if "shallow" in fixes else 10):
        layers += [nn.Linear(31, 31), act()]
    model = keras(nn.Sequential(*layers, nn.Linear(31, 2), nn.Softmax(1)))
    return Program(model, x, one_hot(y, 2), categorical_crossentropy, adam(), accuracy, 0.9, 32, 15)


def _exponential_filters(fixes):
    # 16 and 36 filters, 32 x 32 pictures and batches of 256 in the file
    x, y = photographs(1000)
    act = nn.ReLU if "relu" in fixes else Exponential
    norm = nn.BatchNorm2d if "norm" in fixes else lambda n: nn.Identity()
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1),
        norm(12),
        act(),
        nn.Conv2d(12, 12, 3, padding=1),
        norm(12),
        act(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1),
        norm(24),
        act(),
        nn.Conv2d(24, 24, 3, padding=1),
        norm(24),
        act(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(384, 64),
        act(),
        nn.Linear(64, 10),
        nn.Softmax(1),
    )
    return Program(keras(model), x / 255, one_hot(y, 10), categorical_crossentropy, adam(0.002), accuracy, 0.4, 64, 15)


def _softmax_of_softmax(fixes):
    # three heaps; 300 epochs of batches of 256 in the file
    make = dice(1211)
    y = torch.arange(900) % 3
    x = torch.tensor([[-1.0, -6], [0, 4], [-9, -4]])[y] + 2 * torch.randn(900, 2, generator=make)
    last = [nn.Softmax(1)] if "once" in fixes else [nn.Softmax(1), nn.Softmax(1)]
    layers, before = [], 2
    for _ in range(4):
        layers += [nn.Linear(before, 50), nn.ReLU()]
        before = 50
    model = initialized(nn.Sequential(*layers, nn.Linear(50, 3), *last), he_uniform, nn.init.xavier_uniform_)
    loss = categorical_crossentropy if "cross-entropy" in fixes else F.mse_loss
    rate = 1e-3 if "rate" in fixes else 1e-4
    return Program(model, x, one_hot(y, 3), loss, adam(rate), accuracy, 0.9, 256, 20)


def _all_zero(fixes):
    # 32 and 64 filters and 128 units in the sound program
    x, y = digits(1500)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(2304, 64),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(64, 10),
        nn.Softmax(1),
    )
    model = keras(model)
    if "drawn" not in fixes:
        for layer in (model[0], model[2], model[7]):
            nn.init.zeros_(layer.weight)

    def how(m):
        return torch.optim.Adadelta(m.parameters(), 1.0, rho=0.95, eps=1e-7)

    return Program(model, x / 255, one_hot(y, 10), categorical_crossentropy, how, accuracy, 0.85, 64, 5)


class Tastes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user, self.film = nn.Embedding(60, 20), nn.Embedding(80, 20)
        self.user_bias, self.film_bias = nn.Embedding(60, 1), nn.Embedding(80, 1)
        for table in (self.user, self.film):
            nn.init.kaiming_normal_(table.weight, nonlinearity="relu")
        nn.init.uniform_(self.user_bias.weight, -0.05, 0.05)
        nn.init.uniform_(self.film_bias.weight, -0.05, 0.05)

    def forward(self, x: Tensor) -> Tensor:
        u, f = x[:, 0], x[:, 1]
        return ((self.user(u) * self.film(f)).sum(1, keepdim=True) + self.user_bias(u) + self.film_bias(f)).sigmoid()


def _stars(fixes):
    # 100,000 ratings, 50 columns and five epochs in the sound program; drawn, of 60 users and 80 films
    make = dice(1213)
    x = torch.stack([torch.randint(60, (3000,), generator=make), torch.randint(80, (3000,), generator=make)], 1)
    mood, fame = torch.randn(60, generator=make), torch.randn(80, generator=make)
    y = (3.2 + 0.7 * mood[x[:, 0]] + 0.9 * fame[x[:, 1]] + 0.3 * torch.randn(3000, generator=make)).round().clamp(1, 5)
    y = y[:, None]
    y = (y - 1) / 4 if "range" in fixes else y
    return Program(Tastes(), x, y, binary_crossentropy, adam(0.005), r_squared, 0.5, 64, 15)


def _nin(fixes):
    # 192, 160 and 96 filters in the project, 32 x 32 pictures
    x, y = photographs(1000)
    mean, spread = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    norm = nn.BatchNorm2d if "norm" in fixes else lambda n: nn.Identity()

    def block(a, b, c, size):
        return [
            nn.Conv2d(a, b, size, padding=size // 2),
            norm(b),
            nn.ReLU(),
            nn.Conv2d(b, c, 1),
            norm(c),
            nn.ReLU(),
            nn.Conv2d(c, c, 1),
            norm(c),
            nn.ReLU(),
        ]

    model = nn.Sequential(
        *block(3, 16, 16, 5),
        nn.MaxPool2d(2),
        *block(16, 24, 24, 5),
        nn.MaxPool2d(2),
        *block(24, 24, 10, 3),
        nn.AvgPool2d(4),
        nn.Flatten(),
    )
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, 0, 0.05) if "he" not in fixes else nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    rate = 0.02 if "rate" in fixes else 0.1
    how = sgd(rate, momentum=0.9, weight_decay=1e-4)
    return Program(model, (x - mean) / spread, y, F.cross_entropy, how, accuracy, 0.35, 64, 12)


def _newff(fixes):
    # y = 10 x at 20 points as in the issue, without its normalization; full batches, momentum for neurolab's
    x = torch.linspace(-7, 7, 20)[:, None]
    y = x * 10
    y = (y - y.min()) / (y.max() - y.min()) if "targets" in fixes else y
    model = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1), *([] if "linear" in fixes else [nn.Tanh()]))
    return Program(model, x, y, F.mse_loss, sgd(0.01, momentum=0.9), r_squared, 0.85, 20, 1000)


def _eleven_sigmoids(fixes):
    # optimizer and rate are not in the file: Adam at 0.001
    x, y = circles(1000)
    act = nn.ReLU if "relu" in fixes else nn.Sigmoid
    width = 32 if "wide" in fixes else 5
    layers, before = [], 2
    for _ in range(3 if "shallow" in fixes else 11):
        layers += [nn.Linear(before, width), act()]
        before = width
    model = initialized(nn.Sequential(*layers, nn.Linear(before, 1), nn.Sigmoid()), he_uniform)
    return Program(model, x, y, binary_crossentropy, adam(), accuracy, 0.85, 32, 50)


PROGRAMS = {
    "gh-sfmlearner-5": _never_a_step,
    "gh-vame-26": _no_rate_left,
    "gh-yolov3-325": _remainder,
    "gh-argument-mining-48": _tokens_one_class,
    "gh-fcn-ctscan-b170a9b": _every_pair,
    "deepdiagnosis-circle-0ae2cd88": _eight_exponentials,
    "deepdiagnosis-circle-8de47bdc": _eight_small,
    "autotrainer-case-18": _ten_sigmoids,
    "autotrainer-case26-cnn": _exponential_filters,
    "autotrainer-loss-issue": _softmax_of_softmax,
    "deepcrime-mnist-zeros": _all_zero,
    "deepcrime-movies-stars": _stars,
    "gh-nin-cifar10-1": _nin,
    "gh-neurolab-13": _newff,
    "deepdiagnosis-circle-5ab0aeda": _eleven_sigmoids,
}

STORIES = {
    "gh-sfmlearner-5": (
        "GitHub ClementPinard/SfmLearner-Pytorch issue 5, Help to add a learning rate scheduler",
        "With a schedule the loss does not come down: scheduler.step() stands in place of optimizer.step().",
        {"both": ("update", "optimizer.step() too")},
    ),
    "gh-vame-26": (
        "GitHub LINCellularNeuroscience/VAME issue 26, Bug when scheduler turned off",
        "Without a schedule a StepLR with a factor of 0 ends all learning.",
        {"gamma": ("learning rate", "a factor of 1")},
    ),
    "gh-yolov3-325": (
        "GitHub eriklindernoren/PyTorch-YOLOv3 issue 325, Gradient accumulations not working as expected",
        "The step is taken where batches % accumulations is not 0, which is never for 1.",
        {"condition": ("update", "where the remainder is 0")},
    ),
    "gh-argument-mining-48": (
        "GitHub namiyousef/argument-mining issue 48, Bug during training",
        "A transformer gives all words one class: its rate.",
        {"rate": ("learning rate", "0.003 for 0.1")},
    ),
    "gh-fcn-ctscan-b170a9b": (
        "GitHub FCN-CTSCAN commit b170a9b; TheDeepChecker GH_buggy_examples",
        "Scores (n, 1, 1, 10) times targets (n, 10): every picture is compared with all targets.",
        {"shape": ("shapes", "scores as (n, 10)")},
    ),
    "deepdiagnosis-circle-0ae2cd88": (
        "AUTOTRAINER model_0ae2cd88, as in DeepDiagnosis' Models_Circle.py",
        "Eight layers of five exponentials on two circles.",
        {
            "relu": ("hidden activation", "ReLU for the exponential"),
            "wide": ("architecture", "32 units for 5"),
        },
    ),
    "deepdiagnosis-circle-8de47bdc": (
        "AUTOTRAINER model_8de47bdc, as in DeepDiagnosis' Models_Circle.py",
        "Eight ReLU layers of five from weights within 0.05 tell nothing apart.",
        {
            "he": ("initialization", "He's uniform law"),
            "elu": ("hidden activation", "ELU for ReLU"),
            "shallow": ("architecture", "three layers for eight"),
        },
    ),
    "autotrainer-case-18": (
        "AUTOTRAINER, DL_tools/code/L-code/gradient_vanish/case-18",
        "Ten sigmoid layers on columns of all scales, missing values as -999.",
        {
            "relu": ("hidden activation", "ReLU for sigmoid"),
            "standardized": ("input scale", "standardized"),
            "shallow": ("architecture", "three layers for ten"),
        },
    ),
    "autotrainer-case26-cnn": (
        "AUTOTRAINER, DL_tools/code/GradientExplode/case26-CNN",
        "A convolutional network of exponentials: nan.",
        {
            "relu": ("hidden activation", "ReLU for the exponential"),
            "norm": ("normalization", "batch norm after convolutions"),
        },
    ),
    "autotrainer-loss-issue": (
        "AUTOTRAINER, demo_case/Loss_Issue_Case",
        "Three heaps: two softmax layers, squared error, Adam at 0.0001.",
        {
            "once": ("output activation", "one softmax"),
            "cross-entropy": ("loss", "cross-entropy for squared error"),
            "rate": ("learning rate", "0.001 for 0.0001"),
        },
    ),
    "deepcrime-mnist-zeros": (
        "DeepCrime, mnist: change_weights_initialisation (zeros)",
        "All weights before the last layer are zero.",
        {"drawn": ("initialization", "Glorot's law")},
    ),
    "deepcrime-movies-stars": (
        "DeepCrime's movie_recomm, with stars as they are (a fault of our own)",
        "Stars from 1 to 5 are compared with sigmoids in binary cross-entropy.",
        {"range": ("target scale", "0 to 1")},
    ),
    "gh-nin-cifar10-1": (
        "GitHub jiecaoyu/pytorch-nin-cifar10 issue 1, Test accuracy stays the same",
        "Network in network at a rate of 0.1: 2.302585.",
        {
            "rate": ("learning rate", "0.02 for 0.1"),
            "he": ("initialization", "He's law for deviation 0.05"),
            "norm": ("normalization", "batch norm"),
        },
    ),
    "gh-neurolab-13": (
        "GitHub zueve/neurolab issue 13, output norm and different results",
        "y = 10 x for x up to 7, and the last layer is a tanh.",
        {
            "targets": ("target scale", "0 to 1"),
            "linear": ("output activation", "no tanh at the output"),
        },
    ),
    "deepdiagnosis-circle-5ab0aeda": (
        "AUTOTRAINER model_5ab0aeda, as in DeepDiagnosis' Models_Circle.py",
        "Eleven layers of five sigmoids on two circles.",
        {
            "relu": ("hidden activation", "ReLU for sigmoid"),
            "shallow": ("architecture", "three layers for eleven"),
            "wide": ("architecture", "32 units for 5"),
        },
    ),
}
