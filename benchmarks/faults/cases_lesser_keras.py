"""Keras-style and beginners' programs of other libraries; comments tell what is smaller or drawn."""

import torch
from common import (
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


def uniform(low, high):
    return lambda weight: nn.init.uniform_(weight, low, high)


class Last(nn.Module):
    """The last step of a recurrent layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0][:, -1]


@case(
    "gh-flux-2623",
    "GitHub FluxML/Flux.jl issue 2623, Simple single layer line fit does not converge for most sets of sample points",
    "The tutorial's line 4x + 2 with x from 1 to 6 in place of 0 to 5, Descent() at its default rate of 0.1: diverges.",
    rate=("learning rate", "0.01"),
    scale=("input scale", "standardized"),
)
def _flux_line(fixes):
    # all as in the issue
    x = torch.arange(1.0, 7)[:, None]
    y = 4 * x + 2
    x = standardized(x) if "scale" in fixes else x
    return Program(
        keras(nn.Linear(1, 1)), x, y, F.mse_loss, sgd(0.01 if "rate" in fixes else 0.1), r_squared, 0.8, 6, 200
    )


TREES = """8.3 70 10.3 8.6 65 10.3 8.8 63 10.2 10.5 72 16.4 10.7 81 18.8 10.8 83 19.7 11.0 66 15.6 11.0 75 18.2 11.1 80
22.6 11.2 75 19.9 11.3 79 24.2 11.4 76 21.0 11.4 76 21.4 11.7 69 21.3 12.0 75 19.1 12.9 74 22.2 12.9 85 33.8
13.3 86 27.4 13.7 71 25.7 13.8 64 24.9 14.0 78 34.5 14.2 80 31.7 14.5 74 36.3 16.0 72 38.3 16.3 77 42.6 17.3 81 55.4
17.5 82 55.7 17.9 80 58.3 18.0 80 51.5 18.0 80 51.0 20.6 87 77.0"""


@case(
    "gh-flux-849",
    "GitHub FluxML/Flux.jl issue 849, Gradient does not converge on simple dataset",
    "Volume of 31 trees from girth and height, raw, by the sum of squares at a rate of 0.0003: one update makes it "
    "10,000 times worse.",
    scale=("input scale", "standardized"),
    mean=("loss", "mean in place of sum"),
    rate=("learning rate", "1e-6, for standardized columns 1e-2"),
)
def _trees(fixes):
    # data, weights and loss of the issue; 3,000 updates for one
    table = torch.tensor([float(v) for v in TREES.split()]).view(31, 3)
    x, y = table[:, :2], table[:, 2:]
    x = standardized(x) if "scale" in fixes else x
    model = initialized(nn.Linear(2, 1), uniform(0, 1), bias=uniform(0, 1))
    rate = (1e-2 if "scale" in fixes else 1e-6) if "rate" in fixes else 3e-4

    def loss(o, t):
        return ((o - t) ** 2).mean() if "mean" in fixes else ((o - t) ** 2).sum()

    return Program(model, x, y, loss, sgd(rate), r_squared, 0.8, 31, 3000)


@case(
    "gh-tensorflow-tutorials-52",
    "GitHub pkmital/tensorflow_tutorials issue 52, nan values in regression model",
    "Y = X * X * w + X * u + b with raw X, zeros to begin with, one example at a time at 0.001: the loss is nan.",
    scale=("input scale", "X standardized before it is squared"),
    rate=("learning rate", "3e-7 raw, 0.01 standardized"),
)
def _fires(fixes):
    # the course's table of fires and thefts is drawn: 42 quarters, 2 to 40 fires
    make = dice(10501)
    x = 2 + 38 * torch.rand(42, 1, generator=make) ** 1.5
    y = 0.12 * x**2 + x + 6 * torch.randn(42, 1, generator=make)
    x = standardized(x) if "scale" in fixes else x
    model = nn.Linear(2, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    rate = (0.01 if "scale" in fixes else 3e-7) if "rate" in fixes else 0.001
    return Program(model, torch.cat([x**2, x], 1), y, F.mse_loss, sgd(rate), r_squared, 0.6, 1, 100)


def noisy_patches(count, seed):
    """Garments with noise of a strength from 0 to 1, 0..255, and the strength."""
    make = dice(seed)
    x, _ = garments(count)
    q = torch.rand(count, 1, generator=make)
    x = x + 120 * q[:, :, None, None] * torch.randn(x.shape, generator=make)
    return x.clamp(0, 255), q


@case(
    "gh-keras-2139",
    "GitHub keras-team/keras issue 2139, output gives same prediction for all test examples",
    "Image patches to a quality from 0 to 1 by a convolutional net: the loss falls from 67 to 0.04, then all outputs "
    "are the same number.",
    scale=("input scale", "/ 255"),
    rate=("learning rate", "1e-4 raw, 0.01 scaled"),
)
def _quality(fixes):
    # the issue has the symptom and the loss; net, rate and clipping of the same author's issue
    # 2134, narrower
    x, y = noisy_patches(800, 10502)
    x = x / 255 if "scale" in fixes else x
    model = nn.Sequential(
        nn.Conv2d(1, 12, 7), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1452, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    rate = (0.01 if "scale" in fixes else 1e-4) if "rate" in fixes else 1e-5

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 100)
        optimizer.step()
        return error.item()

    how = sgd(rate, momentum=0.9, nesterov=True)
    return Program(keras(model), x, y, F.mse_loss, how, r_squared, 0.7, 32, 20, step=step)


@case(
    "gh-keras-5992",
    "GitHub keras-team/keras issue 5992, Keep getting the exact same output for all samples predicted",
    "14 and 8 ReLU units with dropout of 0.5 on raw columns, softmax, and dropout of 0.5 on the outputs too; mse: one "
    "and the same output for all.",
    out=("regularization", "no dropout on the outputs"),
    hidden=("regularization", "no dropout in between"),
    loss=("loss", "categorical_crossentropy"),
    scale=("input scale", "standardized"),
)
def _dropped_outputs(fixes):
    # data drawn: 600 rows, 12 columns of different units, three classes; 40 epochs assumed
    make = dice(10503)
    y = torch.randint(3, (600,), generator=make)
    x = torch.randn(600, 12, generator=make) + torch.randn(3, 12, generator=make)[y]
    x = x * 10 ** (3 * torch.rand(12, generator=make)) + 50
    x = standardized(x) if "scale" in fixes else x
    half = nn.Identity if "hidden" in fixes else lambda: nn.Dropout(0.5)
    model = nn.Sequential(
        nn.Linear(12, 14),
        nn.ReLU(),
        half(),
        nn.Linear(14, 8),
        nn.ReLU(),
        half(),
        nn.Linear(8, 3),
        nn.Softmax(1),
        nn.Identity() if "out" in fixes else nn.Dropout(0.5),
    )

    def cross_entropy(o, t):
        return -(t * (o + 1e-7).log()).sum(1).mean()

    loss = cross_entropy if "loss" in fixes else F.mse_loss
    return Program(keras(model), x, one_hot(y, 3), loss, adam(), accuracy, 0.8, 32, 40)


@case(
    "gh-mxnet-9478",
    "GitHub apache/mxnet issue 9478 and zackchase/mxnet-the-straight-dope issue 432, Loss becomes NAN with larger, "
    "more layered network",
    "The book's MNIST network with nine layers of 512 ReLU units in place of two of 64, weights of deviation 0.1, SGD "
    "at 0.1: nan.",
    drawn=("initialization", "Xavier"),
    rate=("learning rate", "3e-4, with Xavier 0.05, in place of 0.1"),
)
def _straight_dope(fixes):
    # seven layers for nine; 640 digits; initial values and rate are the book's
    x, y = digits(640)
    layers, inputs = [nn.Flatten()], 784
    for _ in range(7):
        layers, inputs = [*layers, nn.Linear(inputs, 512), nn.ReLU()], 512
    model = nn.Sequential(*layers, nn.Linear(512, 10))
    law = nn.init.xavier_uniform_ if "drawn" in fixes else normal(0.1)
    rate = (0.05 if "drawn" in fixes else 3e-4) if "rate" in fixes else 0.1
    return Program(initialized(model, law), x / 255, y, F.cross_entropy, sgd(rate), accuracy, 0.7, 64, 12)


@case(
    "gh-tflearn-669",
    "GitHub tflearn/tflearn issue 669, Tflearn accuracy on a large input is always 1",
    "128 inputs through 64 and 8 tanh units to one tanh, all weights uniform from -1 to 1: only -1 and 1 come out.",
    init=("initialization", "Glorot"),
    rate=("learning rate", "0.05 in place of 0.001"),
    epochs=("training length", "40 in place of 10"),
)
def _minus_one_or_one(fixes):
    # network, initial values, momentum, clipping of the issue; data drawn, 1,500 rows for 10,000
    make = dice(10504)
    x = torch.randn(1500, 128, generator=make)
    y = 0.8 * torch.tanh(x @ torch.randn(128, 1, generator=make) / 8)
    model = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 1), nn.Tanh())
    model = keras(model) if "init" in fixes else initialized(model, uniform(-1, 1))

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return error.item()

    rate = 0.05 if "rate" in fixes else 0.001
    epochs = 40 if "epochs" in fixes else 10
    return Program(model, x, y, F.mse_loss, sgd(rate, momentum=0.9), r_squared, 0.6, 64, epochs, step=step)


@case(
    "gh-tflearn-79",
    "GitHub tflearn/tflearn issue 79, LSTM: High loss but accuracy of 1.0",
    "30 days of raw values to the next by an LSTM, Adam: the loss stays at 17,434, the variance of the values.",
    inputs=("input scale", "standardized"),
    targets=("target scale", "standardized"),
)
def _days_of_history(fixes):
    # 32 units for 300, 500 windows for 3,419; values drawn, of the variance in the issue
    make = dice(10505)
    t = torch.arange(530.0)
    s = 400 + 170 * torch.sin(t / 9) + 60 * torch.sin(t / 2.3) + 8 * torch.randn(530, generator=make)
    z = (s - s.mean()) / s.std()
    x = (z if "inputs" in fixes else s).unfold(0, 30, 1)[:500, :, None].contiguous()
    y = (z if "targets" in fixes else s)[30:530, None]
    model = nn.Sequential(Last(nn.LSTM(1, 32, batch_first=True)), nn.Dropout(0.2), nn.Linear(32, 1))
    return Program(keras(model), x, y, F.mse_loss, adam(), r_squared, 0.75, 32, 40)


@case(
    "gh-optax-18",
    "GitHub google-deepmind/optax issue 18, adam does not learn?",
    "Digits by a small convolutional net; the loss is minus the output of the right class, without log softmax.",
    softmax=("loss", "log_softmax of the outputs"),
)
def _no_log_softmax(fixes):
    # 6 and 12 filters for 16 and 32, 800 digits; Adam at 0.001
    x, y = digits(800)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 12, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(588, 10),
    )

    def loss(o, t):
        o = o.log_softmax(1) if "softmax" in fixes else o
        return -(o * one_hot(t, 10)).sum(1).mean()

    return Program(model, x / 255, y, loss, adam(), accuracy, 0.8, 32, 8)


@case(
    "gh-brainjs-913",
    "GitHub BrainJS/brain.js issue 913, Always the same output data on NeuralNetwork",
    "Day, month and year as they are (27, 1, 2017) to five numbers of 50: the same for whatever date.",
    scale=("input scale", "standardized"),
)
def _dates(fixes):
    # the issue's rows (the last number of the fourth is ours); brain.js' defaults: three sigmoid units, weights within
    # 0.2, rate 0.3, momentum 0.1; 3,000 iterations of 20,000
    x = torch.tensor([[1.0, 2, 2017], [27, 1, 2017], [25, 1, 2017], [22, 1, 2017]])
    drawn = [[16, 20, 31, 33, 46], [3, 16, 17, 37, 47], [11, 32, 40, 43, 48], [17, 22, 25, 35, 45]]
    y = torch.zeros(4, 50)
    for row, numbers in enumerate(drawn):
        y[row, numbers] = 1
    x = standardized(x) if "scale" in fixes else x
    model = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 50), nn.Sigmoid())
    model = initialized(model, uniform(-0.2, 0.2), bias=uniform(-0.2, 0.2))

    def loss(o, t):
        return 0.5 * ((o - t) ** 2).sum(1).mean()

    def found(o, t):
        return t.gather(1, o.topk(5).indices).mean().item()

    return Program(model, x, y, loss, sgd(0.3, momentum=0.1), found, 0.9, 1, 3000)


@case(
    "gh-brainjs-195",
    "GitHub BrainJS/brain.js issue 195, Output (almost) always returns '0' when running a network",
    "Bedrooms, bathrooms and square feet as they are to a cost, ReLU everywhere: the cost is 0.",
    inputs=("input scale", "divided by the largest"),
    targets=("target scale", "divided by the largest"),
    linear=("output activation", "linear"),
    leaky=("hidden activation", "leaky-relu"),
)
def _bedrooms(fixes):
    # brain.js' defaults: three units, weights within 0.2, rate 0.3, momentum 0.1; 12 houses drawn
    make = dice(10506)
    beds = torch.randint(1, 6, (12, 1), generator=make).float()
    baths = torch.randint(1, 4, (12, 1), generator=make).float()
    feet = 400 + 350 * beds + 150 * torch.randn(12, 1, generator=make).abs()
    y = 300 * beds + 200 * baths + 0.4 * feet
    x = torch.cat([beds, baths, feet], 1)
    x = x / x.max(0)[0] if "inputs" in fixes else x
    y = y / y.max() if "targets" in fixes else y
    model = nn.Sequential(
        nn.Linear(3, 3),
        nn.LeakyReLU(0.1) if "leaky" in fixes else nn.ReLU(),
        nn.Linear(3, 1),
        nn.Identity() if "linear" in fixes else nn.ReLU(),
    )
    model = initialized(model, uniform(-0.2, 0.2), bias=uniform(-0.2, 0.2))
    return Program(
        model, x, y, lambda o, t: 0.5 * ((o - t) ** 2).mean(), sgd(0.3, momentum=0.1), r_squared, 0.7, 1, 300
    )


class GatedCell(nn.Module):
    """Keras' GRU with an activation of choice; returns all steps."""

    def __init__(self, inputs, units, activation):
        super().__init__()
        self.units, self.activation = units, activation
        self.w, self.u = nn.Linear(inputs, 3 * units), nn.Linear(units, 3 * units)
        nn.init.orthogonal_(self.u.weight)

    def forward(self, x):
        h = x.new_zeros(len(x), self.units)
        w, out = self.w(x), []
        for t in range(x.shape[1]):
            wz, wr, wc = w[:, t].chunk(3, 1)
            uz, ur, uc = self.u(h).chunk(3, 1)
            z, r = (wz + uz).sigmoid(), (wr + ur).sigmoid()
            h = z * h + (1 - z) * self.activation(wc + r * uc)
            out.append(h)
        return torch.stack(out, 1)


@case(
    "gh-keras-12646",
    "GitHub keras-team/keras issue 12646, Simple autoencoder keeping constant tensor as predict in keras",
    "Documents as word vectors through a GRU of sigmoid, 20 units, RepeatVector, a GRU of sigmoid; 10 epochs: the same "
    "vectors for all.",
    tanh=("hidden activation", "tanh in the GRUs"),
    dropout=("regularization", "no dropout"),
    epochs=("training length", "80 in place of 10"),
    rate=("learning rate", "0.005 in place of 0.001"),
)
def _documents(fixes):
    # 15 words for 469, 16 numbers a word for 200, 32 units for 120; 137 documents drawn, each around its subject
    make = dice(10507)
    subject = torch.randn(137, 8, generator=make) @ torch.randn(8, 16, generator=make) * 0.25
    x = torch.tanh(subject[:, None] + 0.15 * torch.randn(137, 15, 16, generator=make))
    act = torch.tanh if "tanh" in fixes else torch.sigmoid

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.neck = GatedCell(16, 32, act), nn.Linear(32, 20)
            self.dec, self.out = GatedCell(20, 32, act), nn.Linear(32, 16)
            self.drop = nn.Dropout(0.0 if "dropout" in fixes else 0.2)

        def forward(self, x):
            z = self.neck(self.enc(self.drop(x))[:, -1])
            return torch.tanh(self.out(self.dec(self.drop(z)[:, None].expand(-1, 15, -1))))

    how = adam(0.005 if "rate" in fixes else 0.001)
    return Program(keras(Net()), x, x, F.mse_loss, how, r_squared_all, 0.7, 8, 80 if "epochs" in fixes else 10)


@case(
    "gh-keras-1939",
    "GitHub keras-team/keras issue 1939, LSTM Autoencoder - insanely high loss",
    "Rows of 100 word numbers, up to some ten thousand, as one step of an LSTM and back: a loss of 189,790,438.",
    scale=("input scale", "numbers divided by the largest, in and out"),
    rate=("learning rate", "0.01 in place of 0.001"),
)
def _word_numbers(fixes):
    # 64 units for 256; 30 sentences that come back, with other words at places; 300 epochs of 3,000
    make = dice(10508)
    kinds = torch.randint(2, 20000, (30, 100), generator=make).float()
    x = kinds[torch.randint(30, (300,), generator=make)]
    other = torch.rand(300, 100, generator=make) < 0.05
    x = torch.where(other, torch.randint(2, 20000, (300, 100), generator=make).float(), x)[:, None]
    x = x / 20000 if "scale" in fixes else x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.o = nn.LSTM(100, 64, batch_first=True), nn.LSTM(64, 100, batch_first=True), None

        def forward(self, x):
            z = self.a(x)[0][:, 0]
            i, _, g, o = (z @ self.b.weight_ih_l0.T + self.b.bias_ih_l0).chunk(4, 1)
            return (o.sigmoid() * (i.sigmoid() * g))[:, None]  # activation='linear', one step

    how = rmsprop(0.01 if "rate" in fixes else 0.001)
    return Program(keras(Net()), x, x, F.mse_loss, how, r_squared_all, 0.6, 64, 150)


@case(
    "gh-keras-10753",
    "GitHub keras-team/keras issue 10753, Add an lstm autoencoder example",
    "Sine waves through an LSTM, RepeatVector and LSTM(input_dim), as the blog has it: the mean of the signal "
    "comes out.",
    dense=("architecture", "LSTM(30) and a dense unit in the decoder"),
    rate=("learning rate", "0.01 in place of 0.001"),
    epochs=("training length", "110 in place of 40"),
)
def _sine_waves(fixes):
    # 20 steps for 100; values between 0 and 1 about 0.5; units and batch of the issue
    make = dice(10509)
    a, p = 0.2 + 0.3 * torch.rand(255, 1, generator=make), 6.283 * torch.rand(255, 1, generator=make)
    x = (0.5 + a * torch.sin(torch.arange(20.0) * 0.5 + p))[:, :, None]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            units = 30 if "dense" in fixes else 1
            self.enc = nn.LSTM(1, 30, batch_first=True)
            self.dec = nn.LSTM(30, units, batch_first=True)
            self.out = nn.Linear(30, 1) if "dense" in fixes else nn.Identity()

        def forward(self, x):
            z = self.enc(x)[0][:, -1:]
            return self.out(self.dec(z.expand(-1, 20, -1))[0])

    how = adam(0.01 if "rate" in fixes else 0.001)
    return Program(keras(Net()), x, x, F.mse_loss, how, r_squared_all, 0.8, 51, 110 if "epochs" in fixes else 40)


@case(
    "gh-keras-1604",
    "GitHub keras-team/keras issue 1604, Autoencoder seems to not work at all",
    "Digits through 100 linear units and back, SGD(lr=0.001, momentum=0.1), mse: the loss is 0.1580 in every epoch.",
    rate=("learning rate", "5 in place of 0.001"),
    adam=("optimizer", "Adam"),
)
def _linear_autoencoder(fixes):
    # all as in the issue; 1,280 digits for 60,000, 20 epochs for 10
    x = digits(1280)[0].flatten(1) / 255
    model = keras(nn.Sequential(nn.Linear(784, 100), nn.Linear(100, 784)))
    how = adam() if "adam" in fixes else sgd(5.0 if "rate" in fixes else 0.001, momentum=0.1)
    return Program(model, x, x, F.mse_loss, how, r_squared_all, 0.5, 128, 20)


@case(
    "gh-genann-48",
    "GitHub codeplea/genann issue 48, Non-linear regression",
    "sin(x) by ten hidden layers of four sigmoid units with a linear output: a flat line.",
    shallow=("architecture", "one hidden layer of 16"),
    tanh=("hidden activation", "tanh"),
    adam=("optimizer", "Adam, 0.01"),
)
def _ten_layers_of_four(fixes):
    # genann's initial values, within 0.5; its rate of 0.1 assumed; batches of 4 for one at a time
    x = torch.linspace(0, 6.283, 100)[:, None]
    act = nn.Tanh if "tanh" in fixes else nn.Sigmoid
    widths = [16] if "shallow" in fixes else [4] * 10
    layers, inputs = [], 1
    for width in widths:
        layers, inputs = [*layers, nn.Linear(inputs, width), act()], width
    model = initialized(nn.Sequential(*layers, nn.Linear(inputs, 1)), uniform(-0.5, 0.5), bias=uniform(-0.5, 0.5))
    how = adam(0.01) if "adam" in fixes else sgd(0.1)
    return Program(model, x, x.sin(), F.mse_loss, how, r_squared, 0.85, 4, 200)


@case(
    "gh-makeyourown-62",
    "GitHub makeyourownneuralnetwork issue 62, Adapting the code for sinus function",
    "The book's network, without biases and with sigmoids everywhere, for sin(x) scaled to 0.01 to 0.99: the "
    "error does "
    "not decrease.",
    bias=("architecture", "biases"),
    tanh=("hidden activation", "tanh"),
    rate=("learning rate", "3 in place of 0.05"),
)
def _no_biases(fixes):
    # weights of deviation 1 / sqrt(inputs), as in the book; 288 samples for 2,880, batches of 8,
    # 200 epochs; a rate of the range that was tried
    t = torch.linspace(0, 1, 288)[:, None]
    x, y = 0.01 + 0.98 * t, 0.5 + 0.49 * torch.sin(6.283 * t)
    on = "bias" in fixes
    act = nn.Tanh() if "tanh" in fixes else nn.Sigmoid()
    model = nn.Sequential(nn.Linear(1, 10, bias=on), act, nn.Linear(10, 1, bias=on), nn.Sigmoid())
    nn.init.normal_(model[0].weight, 0, 1.0)
    nn.init.normal_(model[2].weight, 0, 10**-0.5)
    return Program(model, x, y, F.mse_loss, sgd(3.0 if "rate" in fixes else 0.05), r_squared, 0.85, 8, 200)


@case(
    "gh-keras-1010",
    "GitHub keras-team/keras issues 1010 and 274, Keras-LSTM Multiple Class Classification Problem",
    "Iris' four measures go into Embedding(4, 64) and an LSTM: always one class, 33 %.",
    values=("architecture", "the measures as a sequence of numbers into the LSTM, no embedding"),
)
def _iris(fixes):
    # the measures drawn after Iris' means and deviations, scaled to 0..1 (assumed; whole numbers up to 3 must fit); 32
    # units for 64
    make = dice(10514)
    mean = torch.tensor([[5.006, 3.428, 1.462, 0.246], [5.936, 2.770, 4.260, 1.326], [6.588, 2.974, 5.552, 2.026]])
    spread = torch.tensor([[0.35, 0.38, 0.17, 0.11], [0.52, 0.31, 0.47, 0.20], [0.64, 0.32, 0.55, 0.27]])
    kind = torch.arange(150) // 50
    x = mean[kind] + spread[kind] * torch.randn(150, 4, generator=make)
    x = (x - x.min(0)[0]) / (x.max(0)[0] - x.min(0)[0]) * 0.999
    y = one_hot(kind, 3)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(4, 32)
            self.lstm = nn.LSTM(1 if "values" in fixes else 32, 32, batch_first=True)
            self.out = nn.Linear(32, 3)

        def forward(self, x):
            z = x[:, :, None] if "values" in fixes else self.embedding(x.long())
            return self.out(self.lstm(z)[0][:, -1]).softmax(1)

    return Program(keras(Net()), x, y, categorical_crossentropy, rmsprop(), accuracy, 0.8, 10, 100)


@case(
    "gh-keras-13006",
    "GitHub keras-team/keras issue 13006, Keras training and validation accuracy always converges to 0.5",
    "flow_from_directory without class_mode='binary': two columns of labels against one sigmoid unit.",
    binary=("labels", "class_mode='binary': one column"),
)
def _class_mode(fixes):
    # pullovers and sandals for cats and dogs, small
    x, y = garments(3000)
    keep = ((y == 2) | (y == 5)).nonzero()[:400, 0]
    x, y = x[keep] / 255, (y[keep] == 5).long()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(200, 32),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(32, 1),
        nn.Sigmoid(),
    )
    target = y.float()[:, None] if "binary" in fixes else one_hot(y, 2)

    def right(o, t):
        return ((o[:, 0] > 0.5) == (t[:, -1] > 0.5)).double().mean().item()

    return Program(keras(model), x, target, binary_crossentropy, rmsprop(), right, 0.9, 16, 8)


@case(
    "gh-keras-590",
    "GitHub keras-team/keras issue 590, nan loss with poisson objective function",
    "Counts by networks with a linear last unit and the Poisson loss, y - t log(y + 1e-7): nan in the first epoch.",
    softplus=("output activation", "softplus"),
    squares=("loss", "mse"),
)
def _poisson(fixes):
    # one LSTM branch of 24 units for two of 256 and 512; counts drawn
    make = dice(10510)
    x = torch.randn(500, 10, 4, generator=make)
    rate = torch.exp(0.5 + 0.9 * x[:, -3:, 0].mean(1, keepdim=True) * 1.7)
    torch.poisson(rate, generator=make)  # draws as the targets did
    model = nn.Sequential(
        Last(nn.LSTM(4, 24, batch_first=True)),
        nn.Dropout(0.1),
        nn.Linear(24, 16),
        nn.Linear(16, 1),
        nn.Softplus() if "softplus" in fixes else nn.Identity(),
    )

    def poisson(o, t):
        return (o - t * torch.log(o + 1e-7)).mean()

    loss = F.mse_loss if "squares" in fixes else poisson
    return Program(keras(model), x, rate, loss, adam(0.005), r_squared, 0.5, 64, 30)


@case(
    "gh-keras-6914",
    "GitHub keras-team/keras issue 6914, MNIST not learning",
    "mnist_mlp.py of Keras on pixels from 0 to 255: it does not go past 30 %.",
    scale=("input scale", "/ 255"),
)
def _kaggle_digits(fixes):
    # 256 units for 512; 1,280 digits
    x, y = digits(1280)
    x = x.flatten(1) / (255 if "scale" in fixes else 1)
    model = nn.Sequential(
        nn.Linear(784, 256),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(256, 10),
        nn.Softmax(1),
    )
    return Program(keras(model), x, one_hot(y, 10), categorical_crossentropy, rmsprop(), accuracy, 0.85, 128, 8)


@case(
    "gh-speech-commands-capsule-2",
    "GitHub JaesungBae/Speech-Command-Recognition-with-Capsule-Network issue 2, The accuracy of baseline CNN model "
    "remain very low",
    "Words by a convolutional net: the loss is the logarithm of the number of classes; it works with a smaller rate.",
    rate=("learning rate", "1e-4 in place of 0.01 (0.001 on scaled inputs)"),
    scale=("input scale", "standardized"),
)
def _speech(fixes):
    # coefficients drawn as they come, the first around -200; 8 words for 30; Adam (assumed)
    make = dice(10512)
    y = torch.randint(8, (480,), generator=make)
    form = torch.randn(8, 12, 20, generator=make)
    x = (form[y] * 0.9 + torch.randn(480, 12, 20, generator=make)) * torch.linspace(60, 5, 12)[:, None]
    x[:, 0] -= 200
    x = x[:, None]
    x = (x - x.mean((0, 3), keepdim=True)) / x.std((0, 3), keepdim=True) if "scale" in fixes else x
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(960, 64),
        nn.ReLU(),
        nn.Linear(64, 8),
        nn.Softmax(1),
    )
    rate = (1e-3 if "scale" in fixes else 1e-4) if "rate" in fixes else 0.01
    return Program(keras(model), x, one_hot(y, 8), categorical_crossentropy, adam(rate), accuracy, 0.8, 32, 15)


@case(
    "keras-rescaled-twice",
    "a kind of question of Stack Overflow: ImageDataGenerator(rescale=1/255) on pictures that were divided by "
    "255 before",
    "The pictures lie between 0 and 0.004; SGD at 0.01, the loss stays at 2.30.",
    once=("input scale", "divided once"),
    adam=("optimizer", "Adam"),
)
def _twice(fixes):
    x, y = garments(1000)
    x = x / 255 if "once" in fixes else x / 255 / 255
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
        nn.Softmax(1),
    )
    how = adam() if "adam" in fixes else sgd(0.01, momentum=0.9)
    return Program(keras(model), x, one_hot(y, 10), categorical_crossentropy, how, accuracy, 0.7, 32, 10)


@case(
    "keras-autoencoder-of-prices",
    "a kind of question of Stack Overflow: an autoencoder for anomalies in transactions, val_loss does not move",
    "Raw columns (amounts, seconds, counts) through ReLU layers to a sigmoid end; mse.",
    scale=("input scale", "scaled to 0..1, in and out"),
    linear=("output activation", "linear"),
)
def _transactions(fixes):
    make = dice(10513)
    x = torch.randn(600, 3, generator=make) @ torch.randn(3, 10, generator=make) + 0.1 * torch.randn(
        600, 10, generator=make
    )
    x = x * 10 ** (3 * torch.rand(10, generator=make)) + 300
    x = (x - x.min(0)[0]) / (x.max(0)[0] - x.min(0)[0]) if "scale" in fixes else x
    model = nn.Sequential(
        nn.Linear(10, 14),
        nn.ReLU(),
        nn.Linear(14, 4),
        nn.ReLU(),
        nn.Linear(4, 14),
        nn.ReLU(),
        nn.Linear(14, 10),
        nn.Identity() if "linear" in fixes else nn.Sigmoid(),
    )

    def each(o, t):
        return (1 - ((o - t) ** 2).mean(0) / t.var(0)).clamp(min=-1).mean().item()

    return Program(keras(model), x, x, F.mse_loss, adam(), each, 0.6, 16, 40)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
