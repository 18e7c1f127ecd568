"""Keras, Caffe, DL4J, brain.js and other frameworks; comments tell what is smaller or drawn."""

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
    he,
    initialized,
    keras,
    normal,
    one_hot,
    photographs,
    r_squared,
    r_squared_all,
    rmsprop,
    sgd,
    signs,
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


def waves(count, length, columns, seed):
    """Sums of two sines with phases of their own in each column, and what comes next."""
    make = dice(seed)
    phase = 6.28 * torch.rand(count, 1, columns, generator=make)
    speed = 0.2 + 0.3 * torch.rand(count, 1, columns, generator=make)
    time = torch.arange(length + 1).float()[None, :, None]
    z = torch.sin(speed * time + phase)
    return z[:, :-1], z[:, -1]


@case(
    "gh-keras-1727",
    "GitHub keras-team/keras issue 1727, LSTM is always predicting constant",
    "Two LSTM layers, a sigmoid after each, batches of 450 and 20 epochs: few steps, and one value for all times.",
    batch=("batch size", "10"),
    epochs=("training length", "300 epochs"),
    rate=("learning rate", "0.01 for 0.001"),
    linear=("hidden activation", "no sigmoids after the LSTM layers"),
)
def _constant_lstm(fixes):
    # 20 steps for 100, 450 rows drawn, three columns; the layers of the thread
    x, y = waves(450, 20, 3, 13101)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.LSTM(3, 20, batch_first=True), nn.LSTM(20, 20, batch_first=True)
            self.out, self.drop = nn.Linear(20, 3), nn.Dropout(0.2)
            keras(self)

        def forward(self, x):
            squash = (lambda z: z) if "linear" in fixes else torch.sigmoid
            z = self.drop(squash(self.one(x)[0]))
            return self.out(self.drop(squash(self.two(z)[0][:, -1])))

    batch, epochs = 10 if "batch" in fixes else 450, 300 if fixes == {"epochs"} else 20
    rate = 0.01 if "rate" in fixes else 1e-3
    return Program(Net(), x, y, F.mse_loss, rmsprop(rate), r_squared_all, 0.25, batch, epochs)


@case(
    "gh-keras-gat-2",
    "GitHub danielegrattarola/keras-gat issue 2, loss did not improve (symptom: 1.946 from first to last; the cause "
    "is ours)",
    "Words' rows divided by their sums, dropout of 0.6 and ten epochs: the loss stays at the logarithm of seven.",
    epochs=("training length", "400 epochs"),
    rate=("learning rate", "0.1 for 0.0005"),
    scale=("input scale", "rows not divided by their sums"),
)
def _ten_epochs(fixes):
    # 210 vertices of 7 kinds, 100 words, one head of attention and a second layer
    make = dice(13102)
    y = torch.arange(210) % 7
    near = (y[:, None] == y[None]).float()
    a = (torch.rand(210, 210, generator=make) < 0.005 + 0.05 * near).float()
    a = ((a + a.T + torch.eye(210)) > 0).float()
    p = 0.06 + 0.14 * (torch.arange(100)[None] % 7 == y[:, None]).float()
    x = (torch.rand(210, 100, generator=make) < p).float()
    x[:, 0] = 1
    x = x if "scale" in fixes else x / x.sum(1, keepdim=True)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.drop = nn.Linear(100, 16), nn.Linear(16, 7), nn.Dropout(0.6)
            self.ends = nn.ModuleList([nn.Linear(16, 2), nn.Linear(7, 2)])
            keras(self)

        def attend(self, z, ends):
            e = ends(z)
            e = F.leaky_relu(e[..., :1] + e[..., 1:].transpose(1, 2), 0.2)
            return (e + (a - 1) * 1e9).softmax(2) @ z

        def forward(self, x):
            z = F.elu(self.attend(self.one(self.drop(x)), self.ends[0]))
            return self.attend(self.two(self.drop(z)), self.ends[1])

    def loss(o, t):
        return F.cross_entropy(o[0], t[0])

    def right(o, t):
        return accuracy(o[0], t[0])

    rate, epochs = 0.1 if "rate" in fixes else 5e-4, 400 if "epochs" in fixes else 10
    return Program(Net(), x[None], y[None], loss, adam(rate), right, 0.75, 1, epochs)


@case(
    "notes-loss-gets-stuck",
    "chenzhang.org, Loss and Accuracy Get Stuck in Keras",
    "Loss 1.9112 to 1.9105 in ten epochs: gradient descent at 0.00001; among the advice, a rate of 0.1, another "
    "optimizer and batch norm.",
    rate=("learning rate", "0.1 for 0.00001"),
    adam=("optimizer", "Adam at 0.005"),
    norm=("normalization", "batch norm after the layers"),
)
def _stuck(fixes):
    # 800 rows of 12 columns and 7 classes, drawn
    make = dice(13103)
    y = torch.randint(7, (800,), generator=make)
    x = 1.6 * torch.randn(7, 12, generator=make)[y] + torch.randn(800, 12, generator=make)
    layers = []
    for a, b in ((12, 20), (20, 20)):
        layers += [nn.Linear(a, b), nn.ReLU()] + ([nn.BatchNorm1d(b)] if "norm" in fixes else [])
    model = keras(nn.Sequential(*layers, nn.Linear(20, 7)))
    how = adam(0.005) if "adam" in fixes else sgd(0.1 if "rate" in fixes else 1e-5, momentum=0.9, nesterov=True)
    return Program(model, x, y, F.cross_entropy, how, accuracy, 0.7, 32, 10)


@case(
    "so-always-one-conv1d",
    "geek-questions 1270335, Why does CNN binary Keras always predict 1? (a Stack Overflow question)",
    "Convolutions over ten steps of four columns, batch norm, and a softmax over one unit: always 1.",
    sigmoid=("output activation", "sigmoid for softmax"),
    two=("architecture", "two units and a label for each"),
)
def _always_one(fixes):
    # 600 rows drawn for 6,000, batches of 32 for 128; the layers of the thread
    make = dice(13104)
    x = torch.randn(600, 4, 10, generator=make)
    y = (x[:, 0, :5].sum(1, keepdim=True) + x[:, 1, 5:].sum(1, keepdim=True) > 0.0).float()
    units = 2 if "two" in fixes else 1
    y = torch.cat([1 - y, y], 1) if "two" in fixes else y
    model = nn.Sequential(
        nn.Conv1d(4, 16, 4, padding="same"),
        nn.BatchNorm1d(16),
        nn.LeakyReLU(0.3),
        nn.Dropout(0.2),
        nn.Conv1d(16, 8, 4, padding="same"),
        nn.BatchNorm1d(8),
        nn.LeakyReLU(0.3),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(80, 64),
        nn.BatchNorm1d(64),
        nn.LeakyReLU(0.3),
        nn.Linear(64, units),
        nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1),
    )
    return Program(keras(model), x, y, binary_crossentropy, adam(), accuracy, 0.8, 32, 15)


@case(
    "gh-encog-257",
    "GitHub jeffheaton/encog-java-core issue 257, Trained neural network outputs the same results for all evaluation "
    "rows (the columns are ours)",
    "Rows are not prepared: raw columns in the thousands shut the sigmoids, and all rows get one output.",
    scale=("input scale", "columns standardized"),
    relu=("hidden activation", "ReLU for sigmoid"),
    adam=("optimizer", "Adam at 0.01"),
)
def _unprepared_rows(fixes):
    # 400 rows of 5 columns, drawn
    make = dice(13105)
    z = torch.randn(400, 5, generator=make)
    x = torch.tensor([3000.0, 500, 12000, 800, 2000]) * (1.5 + 0.3 * z)
    y = torch.sigmoid(z[:, :1] + z[:, 1:2] * z[:, 2:3] - z[:, 3:4])
    act = nn.ReLU if "relu" in fixes else nn.Sigmoid
    model = keras(nn.Sequential(nn.Linear(5, 20), act(), nn.Linear(20, 1), nn.Sigmoid()))
    x = standardized(x) if "scale" in fixes else x
    how = adam(0.01) if "adam" in fixes else sgd(0.7, momentum=0.8)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.5, 20, 40)


@case(
    "gh-dl4j-7056",
    "GitHub deeplearning4j/deeplearning4j issue 7056, Same output for every input (symptom; the end is ours)",
    "Values of four moves from 72 bits: ReLU at the end too, but most values are below zero.",
    linear=("output activation", "no ReLU at the end"),
    shifted=("target scale", "values between 0 and 1"),
)
def _values_below_zero(fixes):
    # 500 states drawn; widths, method and rate of the thread
    make = dice(13106)
    x = (torch.rand(500, 72, generator=make) < 0.5).float()
    y = -2 + 0.25 * ((x - 0.5) @ torch.randn(72, 4, generator=make))
    y = y - y.max() - 0.1
    y = (y - y.min()) / (y.max() - y.min()) if "shifted" in fixes else y
    layers = []
    for a, b in ((72, 54), (54, 36), (36, 18)):
        layers += [nn.Linear(a, b), nn.ReLU()]
    layers += [nn.Linear(18, 4)] + ([] if "linear" in fixes else [nn.ReLU()])
    return Program(keras(nn.Sequential(*layers)), x, y, F.mse_loss, rmsprop(1e-3), r_squared_all, 0.6, 10, 30)


@case(
    "gh-keras-2975",
    "GitHub keras-team/keras issue 2975, Keras model always predicts same output class (a comment: a rate between "
    "0.001 and 0.01, and more epochs)",
    "Photographs of two kinds in a convolutional net: a large rate, and one class for every picture.",
    rate=("learning rate", "0.002 for 0.2"),
    epochs=("training length", "20 epochs for 6"),
)
def _same_class(fixes):
    # ships and frogs, 16 x 16, 8 and 16 filters
    x, y = photographs(3000)
    keep = ((y == 6) | (y == 8)).nonzero()[:, 0]
    x, y = x[keep] / 255, (y[keep] == 8).float()[:, None]
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten()
    )
    model = keras(nn.Sequential(*model, nn.Linear(144, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid()))
    rate, epochs = 0.002 if "rate" in fixes else 0.2, 20 if "epochs" in fixes else 6
    return Program(model, x, y, binary_crossentropy, adam(rate), accuracy, 0.8, 20, epochs)


@case(
    "gh-keras-14564",
    "GitHub keras-team/keras issue 14564, Autoencoder predicts every image pure white (symptom; the bytes are ours)",
    "A sigmoid is to give back bytes: the best it can do for each pixel is 1.",
    scale=("target scale", "targets / 255"),
    linear=("output activation", "255 times the sigmoid"),
)
def _pure_white(fixes):
    # 16 x 16 photographs, filters and batch norm as in the thread
    x = photographs(300)[0]
    y = x / 255 if "scale" in fixes else x
    model = keras(
        nn.Sequential(
            nn.Conv2d(3, 12, 2, padding="same"),
            nn.ReLU(),
            nn.BatchNorm2d(12, momentum=0.1),
            nn.Conv2d(12, 12, 2, padding="same"),
            nn.ReLU(),
            nn.Conv2d(12, 3, 3, padding=1),
            nn.Sigmoid(),
        )
    )
    by = 255 if "linear" in fixes and "scale" not in fixes else 1

    def loss(o, t):
        return F.mse_loss(by * o, t)

    def score(o, t):
        return r_squared_all(by * o, t)

    return Program(model, x / 255, y, loss, adam(0.005), score, 0.6, 10, 10)


@case(
    "gh-brainjs-98",
    "GitHub BrainJS/brain.js issue 98, net.run gives same response regardless of input (symptom; the figures are ours)",
    "Six averages of prices as shares of one another, all near 1, into three sigmoids: one answer for all.",
    scale=("input scale", "columns standardized"),
    epochs=("training length", "ten times as many"),
)
def _near_one(fixes):
    # 300 days drawn; one sigmoid unit for what is to be done
    make = dice(13109)
    z = torch.randn(300, 6, generator=make)
    y = (z[:, :1] + z[:, 1:2] - 0.5 * z[:, 2:3] > 0).float()
    x = 1 + 0.01 * z
    x = standardized(x) if "scale" in fixes else x
    model = nn.Sequential(nn.Linear(6, 3), nn.Sigmoid(), nn.Linear(3, 1), nn.Sigmoid())
    epochs = 200 if fixes == {"epochs"} else 20
    return Program(model, x, y, F.mse_loss, sgd(0.3, momentum=0.1), accuracy, 0.8, 1, epochs)


@case(
    "gh-keras-9889",
    "GitHub keras-team/keras issue 9889, LSTM consistently gives same prediction for every input",
    "Targets around 48 from frequencies: the LSTM gives one number for all, and is still on its way to 48.",
    scale=("target scale", "targets standardized"),
    rate=("learning rate", "0.02 for 0.001"),
    epochs=("training length", "150 epochs in place of 15"),
)
def _all_48(fixes):
    # 300 stretches of 8 steps and 12 frequencies for 5,118, drawn; one layer for two
    make = dice(13110)
    x = torch.randn(300, 8, 12, generator=make)
    y = 48 + 12 * standardized(x[:, :, 0].mean(1, keepdim=True) + x[:, -1, 1:2])
    y = standardized(y) if "scale" in fixes else y
    model = keras(Recurrent(nn.LSTM(12, 16, 1, batch_first=True)))
    rate, epochs = 0.02 if "rate" in fixes else 1e-3, 150 if fixes == {"epochs"} else 15
    return Program(model, x, y, F.mse_loss, adam(rate), r_squared, 0.6, 10, epochs)


@case(
    "gh-caffe-1255",
    "GitHub BVLC/caffe issue 1255, strange loss change (symptom; bytes and deviation are ours)",
    "The loss is at its ceiling of 87.3366 in iteration 0 and then at the logarithm of the number of classes.",
    drawn=("initialization", "He"),
    scale=("input scale", "/ 255"),
    rate=("learning rate", "0.00001 for 0.001"),
)
def _ceiling_at_once(fixes):
    # garments for faces, 10 classes; Caffe's floor of probabilities
    x, y = garments(600)
    x = (x - 73) / (255 if "scale" in fixes else 1)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten()
    )
    model = nn.Sequential(*model, nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))
    initialized(model, he if "drawn" in fixes else normal(0.3))

    def loss(o, t):
        return -o.softmax(1).clamp(min=1.1754944e-38).log().gather(1, t[:, None]).mean()

    rate = 1e-5 if fixes == {"rate"} else 1e-3
    return Program(model, x, y, loss, sgd(rate, momentum=0.9), accuracy, 0.6, 20, 15)


@case(
    "so-step-perceptron",
    "pullrequest.ru 14899114, a perceptron whose inputs have to be changed (a Stack Overflow question)",
    "Descent through a step function: its slope is 0, and no weight before it is changed.",
    tanh=("hidden activation", "tanh for the step"),
)
def _step(fixes):
    # 400 points in two rings, drawn; 12 hidden units
    make = dice(13112)
    angle, y = 6.28 * torch.rand(400, generator=make), (torch.arange(400) % 2).float()[:, None]
    x = torch.stack([angle.cos(), angle.sin()], 1) * (0.5 + 0.7 * y) + 0.08 * torch.randn(400, 2, generator=make)

    class Step(nn.Module):
        def forward(self, x):
            return torch.sign(x)

    act = nn.Tanh if "tanh" in fixes else Step
    model = nn.Sequential(nn.Linear(2, 12), act(), nn.Linear(12, 12), act(), nn.Linear(12, 1), act())

    def loss(o, t):
        return F.mse_loss(o, 2 * t - 1)

    return Program(model, x, y, loss, sgd(0.1, momentum=0.9), signs, 0.9, 20, 40)


@case(
    "gh-squeezenet-keras-3",
    "GitHub chasingbob/squeezenet-keras issue 3, no reduction in loss (symptom: 0.69 and 0.5; the rate is ours)",
    "Squeeze and expand, the mean over all places, gradient descent: the loss stays at the logarithm of two.",
    adam=("optimizer", "Adam at 0.003"),
    rate=("learning rate", "0.1 for 0.0001"),
    epochs=("training length", "40 epochs for 8"),
)
def _squeeze(fixes):
    # sandals and shirts of 14 x 14 for cats and dogs, two modules
    x, y = garments(2000)
    keep = ((y == 5) | (y == 6)).nonzero()[:, 0]
    x, y = F.avg_pool2d(x[keep], 2) / 255, (y[keep] == 6).long()

    class Fire(nn.Module):
        def __init__(self, a, squeeze, expand):
            super().__init__()
            self.squeeze = nn.Conv2d(a, squeeze, 1)
            self.one, self.three = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)

        def forward(self, x):
            z = torch.relu(self.squeeze(x))
            return torch.relu(torch.cat([self.one(z), self.three(z)], 1))

    model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), Fire(8, 4, 8), Fire(16, 4, 8))
    model = nn.Sequential(*model, nn.Conv2d(16, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    rate, epochs = 0.1 if "rate" in fixes else 1e-4, 40 if fixes == {"epochs"} else 8
    how = adam(0.003) if "adam" in fixes else sgd(rate)
    return Program(keras(model), x, y, F.cross_entropy, how, accuracy, 0.85, 20, epochs)


@case(
    "blog-shoeprints-625",
    "codegenes.net, Why Your Keras CNN Model's Training Accuracy and Loss Aren't Changing (62.5 %; the cause is ours)",
    "Two kinds of prints, ReLU as the last activation and cross-entropy: zero for all, and the share of one kind.",
    sigmoid=("output activation", "sigmoid for ReLU"),
    squared=("loss", "squared errors"),
)
def _shoeprints(fixes):
    # prints for shoes: garments of kinds 7 and 9 in 5 to 3, halved; the last bias starts at -0.5
    x, y = garments(3000)
    rows = torch.cat([(y == 7).nonzero()[:200, 0], (y == 9).nonzero()[:120, 0]])
    x, y = F.avg_pool2d(x[rows], 2) / 255, (torch.arange(320) >= 200).float()[:, None]
    last = nn.Sigmoid() if "sigmoid" in fixes else nn.ReLU()
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 32), nn.ReLU())
    model = keras(nn.Sequential(*model, nn.Linear(32, 1)))
    nn.init.constant_(model[-1].bias, -0.5)
    model = nn.Sequential(*model, last)
    loss = F.mse_loss if "squared" in fixes else binary_crossentropy
    return Program(model, x, y, loss, adam(0.002), accuracy, 0.85, 16, 12)


@case(
    "gh-autoencoder-ssim-13",
    "GitHub plutoyuxie/AutoEncoder-SSIM-for-unsupervised-anomaly-detection- issue 13, Reconstructed Image (symptom: "
    "completely gray; the end is ours)",
    "Pictures between -1 and 1, most of them dark, and a sigmoid at the end: gray is as near as it comes.",
    tanh=("output activation", "tanh for sigmoid"),
    scale=("target scale", "targets between 0 and 1"),
)
def _gray(fixes):
    # 400 digits, a dense autoencoder of 64 and 24 units
    x = digits(400)[0].flatten(1) / 127.5 - 1
    y = (x + 1) / 2 if "scale" in fixes else x
    model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 64), nn.ReLU())
    last = nn.Tanh() if "tanh" in fixes else nn.Sigmoid()
    model = keras(nn.Sequential(*model, nn.Linear(64, 784), last))
    return Program(model, x, y, F.mse_loss, adam(0.003), r_squared_all, 0.25, 20, 25)


@case(
    "so-categories-of-one-column",
    "boohere.com 80265, two classes, a softmax and one unit (a Stack Overflow question)",
    "Categorical cross-entropy over one unit of softmax: the loss is zero from the start, and nothing is learned.",
    two=("architecture", "two units and a label for each"),
    sigmoid=("output activation", "sigmoid for softmax"),
    binary=("loss", "binary cross-entropy"),
)
def _one_column(fixes):
    # 500 rows of 8 columns, drawn
    make = dice(13116)
    x = torch.randn(500, 8, generator=make)
    y = ((x[:, :1] + x[:, 1:2]).abs() + x[:, 2:3] > 1).float()
    two = "two" in fixes
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2 if two else 1))
    model = keras(nn.Sequential(*model, nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)))
    loss = binary_crossentropy if "binary" in fixes else categorical_crossentropy
    return Program(model, x, one_hot(y[:, 0], 2) if two else y, loss, adam(0.01), accuracy, 0.85, 20, 20)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
