"""Collections of faults (TheDeepChecker, AUTOTRAINER, DeepCrime) and GitHub; comments tell what is smaller or drawn."""

import torch
from common import (
    accuracy,
    adam,
    cars,
    categorical_crossentropy,
    dice,
    digits,
    he,
    he_uniform,
    initialized,
    keras,
    letters,
    normal,
    one_hot,
    photographs,
    r_squared,
    sequence_cross_entropy,
    sgd,
    standardized,
    token_accuracy,
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


def lenet(*last):
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
    return nn.Sequential(*initialized(model, he, nn.init.xavier_uniform_), *last)


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


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.body, self.out = nn.Embedding(26, 16), nn.RNN(16, 32, batch_first=True), nn.Linear(32, 3)

    def forward(self, x):
        return self.out(self.body(self.words(x))[0][:, -1])


def unit(x):
    """Each column from 0 to 1."""
    return (x - x.min(0).values) / (x.max(0).values - x.min(0).values)


def three_layers():
    """TheDeepChecker's network for miles per gallon."""
    model = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    return initialized(model, he, nn.init.xavier_uniform_)


@case(
    "deepchecker-cnn-missing-softmax",
    "TheDeepChecker, buggy_synthetic_programs/missing_softmax/baseCNN",
    "A cross-entropy written by hand takes the logarithm of raw outputs, cut at 1e-32 and 1.",
    softmax=("output activation", "softmax at the end"),
    entropy=("loss", "cross-entropy of raw outputs"),
    rate=("learning rate", "0.01 for 0.1"),
)
def _missing_softmax(fixes):
    # 1,280 digits, a quarter of the width
    x, y = digits(1280)
    model = lenet(*[nn.Softmax(1)] * ("softmax" in fixes and "entropy" not in fixes))

    def loss(o, t):
        if "entropy" in fixes:
            return F.cross_entropy(o, t)
        return -(one_hot(t, 10) * o.clamp(1e-32, 1).log()).sum(1).mean()

    rate = 0.01 if fixes == {"rate"} else 0.1
    return Program(model, x / 255, y, loss, sgd(rate, weight_decay=2e-5), accuracy, 0.6, 64, 5)


@case(
    "deepchecker-deep-low-lr",
    "TheDeepChecker, buggy_synthetic_programs/low_lr/deepCNN",
    "Momentum of 0.9 at a rate of 0.00001: after all epochs the network guesses.",
    rate=("learning rate", "0.001, as in the sound program"),
    adam=("optimizer", "Adam at 0.001"),
)
def _deep_slow(fixes):
    # 500 photographs of 16 x 16, half the width
    x, y = photographs(500)
    how = adam() if "adam" in fixes else sgd(1e-3 if "rate" in fixes else 1e-5, momentum=0.9)
    return Program(deep(), x / 255, y, F.cross_entropy, how, accuracy, 0.25, 16, 18)


@case(
    "deepchecker-deep-wrong-labels",
    "TheDeepChecker, buggy_synthetic_programs/wrong_labels/deepCNN",
    "Photographs are shuffled, and their labels are not.",
    pairs=("labels", "photographs and labels in one order"),
)
def _deep_unpaired(fixes):
    # 500 photographs of 16 x 16, half the width, a rate of 0.003 for 0.001; scored with the right labels
    x, y = photographs(500)
    x = x / 255
    order = torch.randperm(500, generator=dice(14003))
    given = x if "pairs" in fixes else x[order]
    how = sgd(3e-3, momentum=0.9)
    return Program(deep(), given, y, F.cross_entropy, how, accuracy, 0.3, 16, 18, held_out=(x, y))


@case(
    "deepchecker-regr-missing-normalization",
    "TheDeepChecker, buggy_synthetic_programs/missing_normalization/regrNN",
    "Weights of up to 5,140 pounds and years of up to 82 as they are, beside ones and zeros.",
    scale=("input scale", "columns between 0 and 1"),
    standard=("input scale", "columns standardized"),
    rate=("learning rate", "0.01 for 0.001"),
    epochs=("training length", "400 in place of 40"),
)
def _raw_columns(fixes):
    # layers, units, batch and rate as there; targets between 0 and 1
    x, y = cars()
    x = standardized(x) if "standard" in fixes else unit(x) if "scale" in fixes else x
    how = adam(0.01 if "rate" in fixes else 0.001, weight_decay=2e-5)
    epochs = 400 if fixes == {"epochs"} else 40
    return Program(three_layers(), x, unit(y), F.mse_loss, how, r_squared, 0.6, 64, epochs)


@case(
    "deepchecker-tfe-333",
    "GitHub aymericdamien/TensorFlow-Examples issue 333; TheDeepChecker TFE_333",
    "Softmax regression on digits as bytes, weights from N(0, 1), the logarithm of a softmax that is 0: nan.",
    scale=("input scale", "/ 255"),
    stable=("loss", "cross-entropy of raw outputs"),
    drawn=("initialization", "weights and biases of zero"),
    rate=("learning rate", "0.1 for 0.001"),
)
def _log_of_softmax(fixes):
    # 1,000 digits for 60,000; layers, law, rate, batch and epochs as there
    x, y = digits(1000)
    x = x.flatten(1) / (255 if "scale" in fixes else 1)
    model = nn.Linear(784, 10)
    for p in model.parameters():
        (nn.init.zeros_ if "drawn" in fixes else nn.init.normal_)(p)

    def loss(o, t):
        if "stable" in fixes:
            return F.cross_entropy(o, t)
        return -(one_hot(t, 10) * o.softmax(1).log()).sum(1).mean()

    rate = 0.1 if "rate" in fixes else 0.001
    return Program(model, x, y, loss, sgd(rate), accuracy, 0.65, 100, 25)


@case(
    "autotrainer-case24-cnn",
    "AUTOTRAINER, DL_tools/code/TrainingNotConverge/case24-cnn (Adam at eight rates)",
    "A small convolutional network on 1,000 digits, Adam at 0.1: one class for all.",
    rate=("learning rate", "0.001 for 0.1"),
    sgd=("optimizer", "SGD at the same rate"),
    norm=("normalization", "batch norm after each convolution"),
)
def _eight_rates(fixes):
    # 16 and 36 filters, 128 units and dropout as there; 5 of 200 epochs
    x, y = digits(1000)
    norm = nn.BatchNorm2d if "norm" in fixes else lambda width: nn.Identity()
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        norm(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Conv2d(16, 36, 3, padding=1),
        norm(36),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(1764, 128),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(128, 10),
        nn.Softmax(1),
    )
    how = sgd(0.1) if "sgd" in fixes else adam(0.001 if "rate" in fixes else 0.1)
    return Program(keras(model), x / 255, one_hot(y, 10), categorical_crossentropy, how, accuracy, 0.65, 32, 5)


@case(
    "deepcrime-mnist-bare-end",
    "DeepCrime, mnist: remove_activation_function (the last layer)",
    "The softmax is taken away, and Keras' cross-entropy divides raw outputs by their sum.",
    softmax=("output activation", "softmax at the end"),
    entropy=("loss", "cross-entropy of raw outputs"),
    adam=("optimizer", "Adam at 0.001"),
)
def _bare_end(fixes):
    # 1,000 digits, 8 and 16 for 32 and 64 filters, 64 for 128 units
    x, y = digits(1000)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(576, 64),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(64, 10),
        *[nn.Softmax(1)] * ("softmax" in fixes and "entropy" not in fixes),
    )

    def loss(o, t):
        return F.cross_entropy(o, t) if "entropy" in fixes else categorical_crossentropy(o, one_hot(t, 10))

    def how(m):
        return adam()(m) if "adam" in fixes else torch.optim.Adadelta(m.parameters(), 1.0, 0.95, 1e-7)

    return Program(keras(model), x / 255, y, loss, how, accuracy, 0.6, 50, 5)


@case(
    "gh-pytorch-examples-223",
    "GitHub pytorch/examples pull request 223, [BUG] potential typo in default learning rate",
    "A language model of ReLU units in a recurrent layer, gradient descent at 20: nan at once.",
    rate=("learning rate", "1 for 20"),
    clip=("update", "gradients clipped to a norm of 0.25"),
    adam=("optimizer", "Adam at 0.003"),
)
def _rate_of_twenty(fixes):
    # a chain of 30 letters in place of Wikipedia; 32 for 200 units
    x, y = letters(400, 20, 30)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.body = nn.Embedding(30, 32), nn.RNN(32, 32, 2, nonlinearity="relu", batch_first=True)
            self.out = nn.Linear(32, 30)
            for p in (self.words.weight, self.out.weight):
                nn.init.uniform_(p, -0.1, 0.1)
            nn.init.zeros_(self.out.bias)

        def forward(self, x):
            return self.out(self.body(self.words(x))[0])

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        if "clip" in fixes:
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return error.item()

    how = adam(3e-3) if "adam" in fixes else sgd(1.0 if "rate" in fixes else 20.0)
    return Program(Net(), x, y, sequence_cross_entropy, how, token_accuracy, 0.4, 20, 12, step=step)


@case(
    "gh-practical-pytorch-9",
    "GitHub spro/practical-pytorch issue 9, char-rnn-classification parameters update method confusion",
    "The network is made twice, and the optimizer, made in between, has the parameters of the first.",
    after=("update", "optimizer made of the network that is trained"),
)
def _made_twice(fixes):
    # names of three languages, drawn: seven letters by the frequencies of each; batches of ten, Adam
    make = dice(14012)
    share = torch.rand(3, 26, generator=make) ** 2
    y = torch.randint(3, (500,), generator=make)
    x = torch.multinomial(share[y], 7, True, generator=make)
    first, model = Words(), Words()

    def how(m):
        return torch.optim.Adam((m if "after" in fixes else first).parameters(), 3e-3)

    return Program(model, x, y, F.cross_entropy, how, accuracy, 0.65, 10, 10)


@case(
    "gh-contextualized-33",
    "GitHub AdaptInfer/Contextualized issue 33, Initialize with torch.rand may result in unstable training.",
    "All weights from 0 to 1: values grow from layer to layer.",
    drawn=("initialization", "He's uniform law"),
    rate=("learning rate", "0.00001 for 0.01"),
    norm=("normalization", "batch norm in front of each ReLU"),
    adam=("optimizer", "Adam at 0.01"),
)
def _from_rand(fixes):
    # eight columns drawn, four hidden layers of 32
    make = dice(14013)
    x = torch.randn(600, 8, generator=make)
    y = standardized(x[:, :1] * (x[:, 1:2] > 0) + 0.5 * x[:, 2:3])
    layers, width = [], 8
    for _ in range(4):
        layers += [nn.Linear(width, 32), *[nn.BatchNorm1d(32)] * ("norm" in fixes), nn.ReLU()]
        width = 32
    model = nn.Sequential(*layers, nn.Linear(32, 1))
    model = initialized(model, he_uniform if "drawn" in fixes else nn.init.uniform_)
    how = adam(0.01) if "adam" in fixes else sgd(1e-5 if fixes == {"rate"} else 0.01)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.6, 20, 30)


@case(
    "gh-keras-3752",
    "GitHub keras-team/keras issue 3752, is there a bug with 'relu'? (symptom: loss and accuracy do not change, with "
    "tanh they do; the rate is ours)",
    "Five convolutions and two dense layers of ReLU, all dead after the first steps.",
    tanh=("hidden activation", "tanh for ReLU"),
    rate=("learning rate", "0.03 for 0.1"),
    adam=("optimizer", "Adam at 0.001"),
    drawn=("initialization", "He's law"),
    norm=("normalization", "batch norm after each convolution"),
)
def _is_there_a_bug(fixes):
    # 500 photographs of 16 x 16, an eighth of the filters, 128 for 4,096 units; batches of 20
    x, y = photographs(500)
    act = nn.Tanh if "tanh" in fixes else nn.ReLU
    layers, channels = [], 3
    for width, pool in ((16, 0), (16, 2), (32, 0), (32, 2), (64, 2)):
        layers += [nn.Conv2d(channels, width, 3, padding=1), *[nn.BatchNorm2d(width)] * ("norm" in fixes)]
        layers += [act(), *[nn.MaxPool2d(2)] * (pool > 0)]
        channels = width
    model = nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(256, 128), act(), nn.Linear(128, 128), act(), nn.Linear(128, 10)
    )
    model = initialized(model, he) if "drawn" in fixes else keras(model)
    for layer in [] if "drawn" in fixes else [m for m in model if isinstance(m, nn.Linear)]:
        normal(0.05)(layer.weight)
    rate = 0.03 if "rate" in fixes else 0.1
    how = adam() if "adam" in fixes else sgd(rate, momentum=0.9, nesterov=True)
    return Program(model, x / 127.5 - 1, y, F.cross_entropy, how, accuracy, 0.3, 20, 12)


@case(
    "gh-coursia-926",
    "GitHub jsboige/CoursIA pull request 926, MSE broadcasting bug pred_len=1",
    "Forecasts of one step are (64, 1), targets (64,): each is compared with all of the batch.",
    viewed=("shapes", "targets in the shape of the forecasts"),
)
def _one_step_ahead(fixes):
    # a series drawn, windows of 16 steps, a GRU of 24 units for the four architectures
    make = dice(14016)
    z = [0.0, 0.5]
    for e in torch.randn(816, generator=make).tolist():
        z.append(1.6 * z[-1] - 0.85 * z[-2] + 0.5 * e)
    rows = standardized(torch.tensor(z)[:, None])[:, 0].unfold(0, 17, 1)
    x, y = rows[:, :16, None], rows[:, 16]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1)

        def forward(self, x):
            return self.out(self.body(x)[0][:, -1])

    def loss(o, t):
        return ((o - (t.view_as(o) if "viewed" in fixes else t)) ** 2).mean()

    return Program(Net(), x, y, loss, adam(0.005), r_squared, 0.6, 64, 25)


@case(
    "gh-time-series-prediction-3",
    "GitHub jsyoon0823/Time-series-prediction issue 3, better add doc: the model only take regression target value in "
    "[0, 1]",
    "A recurrent network with attention ends in a sigmoid, and values run from 2 to 9.",
    linear=("output activation", "no activation at the end"),
    targets=("target scale", "values between 0 and 1"),
    rate=("learning rate", "0.1 for 0.01"),
)
def _only_to_one(fixes):
    # a series drawn, windows of 12 steps (standardized), a GRU of 24 units
    make = dice(14017)
    z = [0.0, 0.5]
    for e in torch.randn(612, generator=make).tolist():
        z.append(1.6 * z[-1] - 0.85 * z[-2] + 0.5 * e)
    rows = torch.tensor(z)
    rows = (rows - rows.min()) / (rows.max() - rows.min())
    rows = rows.unfold(0, 13, 1)
    x, y = (rows[:, :12, None] - 0.5) * 4, rows[:, 12:]
    y = y if "targets" in fixes else 2 + 7 * y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.key, self.out = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1), nn.Linear(48, 1)

        def forward(self, x):
            z = self.body(x)[0]
            seen = (self.key(z.tanh()).softmax(1) * z).sum(1)
            o = self.out(torch.cat([z[:, -1], seen], 1))
            return o if "linear" in fixes else o.sigmoid()

    how = adam(0.1 if fixes == {"rate"} else 0.01)
    return Program(Net(), x, y, F.mse_loss, how, r_squared, 0.6, 20, 20)


@case(
    "gh-graph-neural-net-37",
    "GitHub mlelarge/graph_neural_net pull request 37, Fix bug softmax",
    "Vertices of two graphs are matched, and a softmax over all of them stands before the cross-entropy.",
    logits=("output activation", "no softmax before the loss"),
    rate=("learning rate", "0.01 for 0.003"),
    epochs=("training length", "60 in place of 10"),
)
def _matched_vertices(fixes):
    # 50 vertices with four columns that both graphs share and twelve of noise, drawn; one encoder for both
    make = dice(14019)
    seen = torch.randn(200, 50, 4, generator=make)
    one = torch.cat([seen, 1.5 * torch.randn(200, 50, 12, generator=make)], 2)
    other = torch.cat([seen, 1.5 * torch.randn(200, 50, 12, generator=make)], 2)
    y = torch.stack([torch.randperm(50, generator=make) for _ in range(200)])
    other = torch.zeros_like(other).scatter(1, y[:, :, None].expand(-1, -1, 16), other)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32))

        def forward(self, x):
            z = self.body(x)
            o = z[:, 0] @ z[:, 1].transpose(1, 2)
            return o if "logits" in fixes else o.softmax(2)

    how = adam(0.01 if fixes == {"rate"} else 0.003)
    epochs = 60 if fixes == {"epochs"} else 10
    x = torch.stack([one, other], 1)
    return Program(Net(), x, y, sequence_cross_entropy, how, token_accuracy, 0.6, 10, epochs)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
