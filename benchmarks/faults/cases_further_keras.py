"""Keras and TensorFlow questions: small nets, LSTMs, regressions; comments tell what is smaller or drawn."""

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


def uniform(low, high):
    return lambda weight: nn.init.uniform_(weight, low, high)


@case(
    "so-65258468",
    "Stack Overflow 65258468, Activation functions: softmax vs sigmoid",
    "Men and women by a convolutional net whose one output unit is a softmax: accuracy 0.5019 and loss 7.6 in "
    "every epoch.",
    sigmoid=("output activation", "sigmoid"),
)
def _men_and_women(fixes):
    # 256 filters, 2,300 photographs in the question; here 12 filters, 300 pullovers and 300 sandals
    x, y = garments(4000)
    keep = ((y == 2) | (y == 5)).nonzero()[:600, 0]
    x, y = x[keep] / 255, (y[keep] == 5).float()[:, None]
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(12),
        nn.Conv2d(12, 12, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(12),
        nn.Flatten(),
        nn.Linear(300, 64),
        nn.Linear(64, 1),
        nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1),
    )
    return Program(keras(model), x, y, binary_crossentropy, adam(), accuracy, 0.9, 32, 4)


def penalized(strength):
    """One batch with strength times the sum of squares of all weights added to the loss."""

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        total = error + strength * sum((p**2).sum() for p in model.parameters() if p.ndim > 1)
        total.backward()
        optimizer.step()
        return error.item()

    return step


@case(
    "so-53654360",
    "Stack Overflow 53654360, Exercise 4 by Andrew Ng in Keras",
    "Digits of 20 x 20 by 25 sigmoid units, l2(1) on all weights, plain SGD, all examples in one batch, 100 "
    "epochs: 10 %.",
    penalty=("regularization", "no l2(1)"),
    batch=("batch size", "20"),
    rate=("learning rate", "1 in place of 0.01"),
    epochs=("training length", "400 in place of 100"),
)
def _exercise_4(fixes):
    # 5,000 digits in the exercise, 1,000 here
    x, y = digits(1000)
    x = F.interpolate(x / 255, (20, 20), mode="area").flatten(1)
    model = keras(nn.Sequential(nn.Linear(400, 25), nn.Sigmoid(), nn.Linear(25, 10), nn.Sigmoid()))
    step = penalized(0.0 if "penalty" in fixes else 1.0)
    batch = 20 if "batch" in fixes else 1000
    rate = 1.0 if "rate" in fixes else 0.01
    epochs = 400 if "epochs" in fixes else 100
    if "batch" in fixes and "epochs" in fixes:
        epochs = 100  # as many steps as do, for the time
    return Program(
        model, x, one_hot(y, 10), categorical_crossentropy, sgd(rate), accuracy, 0.8, batch, epochs, step=step
    )


@case(
    "gh-keras-14729",
    "GitHub keras-team/keras issue 14729, too low accuracy",
    "Breast cancer table, one sigmoid unit, categorical_crossentropy: the loss is 0 and nothing moves.",
    binary=("loss", "binary_crossentropy"),
    init=("initialization", "Glorot in place of uniform within 0.05"),
)
def _breast_cancer(fixes):
    # the table is drawn: 569 rows, 30 columns in three groups that go together
    make = dice(9401)
    y = (torch.rand(398, 1, generator=make) < 0.37).float()
    base = torch.randn(398, 3, generator=make) + y * torch.tensor([2.6, 1.6, 2.0])
    x = standardized(base.repeat(1, 10) + 0.5 * torch.randn(398, 30, generator=make))
    model = nn.Sequential(
        nn.Linear(30, 16),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(16, 16),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(16, 1),
        nn.Sigmoid(),
    )
    model = keras(model) if "init" in fixes else initialized(model, uniform(-0.05, 0.05))
    loss = binary_crossentropy if "binary" in fixes else categorical_crossentropy
    return Program(model, x, y, loss, adam(), accuracy, 0.88, 100, 100)


class KerasLSTM(nn.Module):
    """An LSTM whose activation can be chosen; returns all steps."""

    def __init__(self, inputs, units, activation, uniform_start=False):
        super().__init__()
        self.units, self.activation = units, activation
        self.w = nn.Parameter(torch.empty(inputs, 4 * units))
        self.u = nn.Parameter(torch.empty(units, 4 * units))
        self.b = nn.Parameter(torch.zeros(4 * units))
        nn.init.uniform_(self.w, -0.05, 0.05) if uniform_start else nn.init.xavier_uniform_(self.w)
        nn.init.orthogonal_(self.u)
        with torch.no_grad():
            self.b[units : 2 * units] = 1

    def forward(self, x):
        h = c = x.new_zeros(len(x), self.units)
        z, out = x @ self.w + self.b, []
        for t in range(x.shape[1]):
            i, f, g, o = (z[:, t] + h @ self.u).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * self.activation(g)
            h = o.sigmoid() * self.activation(c)
            out.append(h)
        return torch.stack(out, 1)


@case(
    "gh-keras-3687",
    "GitHub keras-team/keras issue 3687, Predictions are all zero",
    "Two LSTMs of ReLU and a ReLU at each step, SGD with momentum 0.99: all predictions are zero.",
    tanh=("hidden activation", "tanh in the LSTMs"),
    linear=("output activation", "linear"),
    adam=("optimizer", "Adam, 0.003"),
)
def _many_to_many(fixes):
    # widths 64 and 32 for 768 and 256, 30 steps for 100; ratings drawn, 1 to 5, of features as they are, 0 to 10
    # (assumed)
    make = dice(9402)
    x = torch.randn(256, 30, 8, generator=make)
    y = (3 + (x[:, :, :1] + torch.roll(x[:, :, 1:2], 1, 1)) * 0.7).clamp(1, 5)
    x = (5 + 2 * x).clamp(0, 10)
    act = torch.tanh if "tanh" in fixes else torch.relu
    model = nn.Sequential(
        KerasLSTM(8, 64, act),
        KerasLSTM(64, 32, act),
        keras(nn.Linear(32, 1)),
        nn.Identity() if "linear" in fixes else nn.ReLU(),
    )
    how = adam(0.003) if "adam" in fixes else sgd(0.01, momentum=0.99, nesterov=True)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.6, 32, 30)


@case(
    "so-lstm-of-time",
    "Stack Overflow (pytroubles 2679), Why your LSTM stalls on sine-wave forecasting",
    "An LSTM is given the time, 0 to 2,000, and asked for the next values of 20 sin(x).",
    history=("data", "the last values of the sine go in, not the time"),
    amplitude=("target scale", "sin(x) in place of 20 sin(x)"),
)
def _time_for_history(fixes):
    # 30 steps for 100 in, 10 for 100 out, every third window; Adam at 0.001 and 32 units assumed
    t = torch.arange(0, 2000, 0.5)
    y = torch.sin(t) * (1 if "amplitude" in fixes else 20)
    given = y if "history" in fixes else t
    x = given.unfold(0, 40, 7)[:, :30, None].contiguous()
    target = y.unfold(0, 40, 7)[:, 30:].contiguous()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.dense = nn.LSTM(1, 32, batch_first=True), nn.Linear(32, 10)

        def forward(self, x):
            return self.dense(self.lstm(x)[0][:, -1])

    return Program(keras(Net()), x, target, F.mse_loss, adam(0.002), r_squared_all, 0.8, 16, 20)


@case(
    "so-identity-of-one",
    "Stack Overflow (whosebug 2214577), Autoencoder not learning identity function",
    "84 numbers of mean 1.109 and deviation 0.00124 through one linear layer; the outputs do not look like them.",
    inputs=("input scale", "standardized"),
    targets=("target scale", "standardized"),
)
def _identity(fixes):
    # all as in the question, 12,000 rows for 97,535; the rate is 0.08 for 0.01, as there are eight times fewer steps
    x = torch.randn(12000, 84, generator=dice(9404)) * 0.0012380764 + 1.1090579
    y = standardized(x) if "targets" in fixes else x
    x = standardized(x) if "inputs" in fixes else x
    return Program(keras(nn.Linear(84, 84)), x, y, F.mse_loss, sgd(0.08), r_squared_all, 0.8, 8, 10)


@case(
    "cv-316898",
    "Cross Validated 316898, Choice of initial value for weights in Tensorflow MNIST tutorial",
    "The tutorial's zeros with a hidden layer of 100 sigmoids in between: 25 %.",
    hidden=("initialization", "first weights drawn"),
    last=("initialization", "second weights drawn"),
)
def _zeros_with_hidden(fixes):
    # 1,000 batches of 100, of 2,000 digits
    x, y = digits(2000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.Sigmoid(), nn.Linear(100, 10))
    for layer, name, spread in ((model[1], "hidden", 0.1), (model[3], "last", 1.0)):
        nn.init.normal_(layer.weight, 0, spread) if name in fixes else nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return Program(model, x / 255, y, F.cross_entropy, sgd(0.5), accuracy, 0.75, 100, 12)


@case(
    "so-azure-product",
    "Stack Overflow (intellipaat 11039), Can't approximate simple multiplication function in neural network "
    "with 1 hidden layer",
    "Products of two numbers by 30 sigmoids at a rate of 0.005, nothing scaled: accuracy close to 0.",
    inputs=("input scale", "x / 100"),
    targets=("target scale", "standardized"),
    rate=("learning rate", "0.1 in place of 0.005"),
)
def _product(fixes):
    # 800 pairs for 6,500, up to 100 (assumed); batches of 10; 200 iterations as there
    make = dice(9405)
    x = torch.randint(1, 101, (800, 2), generator=make).float()
    y = x[:, :1] * x[:, 1:]
    x = x / 100 if "inputs" in fixes else x
    y = standardized(y) if "targets" in fixes else y
    model = initialized(nn.Sequential(nn.Linear(2, 30), nn.Sigmoid(), nn.Linear(30, 1)), uniform(-0.1, 0.1))
    return Program(model, x, y, F.mse_loss, sgd(0.1 if "rate" in fixes else 0.005), r_squared, 0.9, 10, 100)


@case(
    "gh-keras-1895",
    "GitHub keras-team/keras issue 1895, why results always one same class in 5 or 3 classes classification",
    "Word vectors, LSTM, two dense layers with l2 of 0.1 and 0.25 on weights and outputs, gradients clipped "
    "to norm 0.1: one class.",
    weights=("regularization", "no l2 on weights"),
    outputs=("regularization", "no l2 on outputs"),
    clip=("update", "not clipped"),
)
def _sentiment(fixes):
    # widths 32, 50, 50; sentences of 12 drawn words of three tones
    make = dice(9406)
    kind = torch.randint(3, (450,), generator=make)
    words = torch.randn(4, 30, 20, generator=make)
    tone = torch.where(torch.rand(450, 12, generator=make) < 0.5, kind[:, None].expand(450, 12), torch.tensor(3))
    x = words[tone, torch.randint(30, (450, 12), generator=make)]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.n1 = nn.LSTM(20, 32, batch_first=True), nn.BatchNorm1d(32)
            self.d1, self.n2, self.d2 = nn.Linear(32, 50), nn.BatchNorm1d(50), nn.Linear(50, 50)
            self.drop, self.d3 = nn.Dropout(0.2), nn.Linear(50, 3)

        def forward(self, x):
            self.a = self.d1(self.n1(self.lstm(x)[0][:, -1]))
            self.b = self.d2(self.n2(self.a.sigmoid()))
            return self.d3(self.drop(self.b).relu()).softmax(1)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = total = loss(model(x), y)
        if "weights" not in fixes:
            total = total + 0.1 * (model.d1.weight**2).sum() + 0.25 * (model.d2.weight**2).sum()
        if "outputs" not in fixes:
            total = total + 0.1 * (model.a**2).mean(0).sum() + 0.25 * (model.b**2).mean(0).sum()
        total.backward()
        if "clip" not in fixes:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return error.item()

    how = sgd(0.01, momentum=0.9, nesterov=True)
    return Program(keras(Net()), x, one_hot(kind, 3), categorical_crossentropy, how, accuracy, 0.8, 30, 15, step=step)


@case(
    "gh-mxnet-1968",
    "GitHub apache/mxnet issue 1968, Got always about 10% accuracy when training CIFAR-10 by VGG-16 model",
    "Thirteen convolutions with weights within 0.07: outputs of the later ones are 0.0, accuracy 10 %.",
    drawn=("initialization", "He"),
    norm=("normalization", "batch norm after each convolution"),
)
def _vgg(fixes):
    # 12 to 24 filters for 64 to 512, 16 x 16 photographs of three kinds
    x, y = photographs(1500)
    keep = (y < 2).nonzero()[:, 0]
    x, y = x[keep] / 127.5 - 1, y[keep]
    layers, inputs = [], 3
    for block, (width, count) in enumerate([(12, 2), (16, 2), (24, 3), (24, 3), (24, 3)]):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, padding=1)]
            layers += [nn.BatchNorm2d(width)] if "norm" in fixes else []
            layers += [nn.ReLU()]
            inputs = width
        layers += [nn.MaxPool2d(2)] if block < 4 else []
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 2))
    law = (lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu")) if "drawn" in fixes else uniform(-0.07, 0.07)
    return Program(initialized(model, law), x, y, F.cross_entropy, sgd(0.01, momentum=0.9), accuracy, 0.78, 32, 25)


@case(
    "so-line-nan",
    "Stack Overflow (mejorcodigo 45698), Linear regression in Python blows up gradients for larger values of "
    "x in y = mx + c",
    "A line by gradient descent at 0.01; with x up to 100 in place of 1 all is nan after a few iterations.",
    scale=("input scale", "x / 100"),
    rate=("learning rate", "1e-4"),
)
def _line(fixes):
    # all as in the question
    make = dice(9407)
    x = torch.rand(500, 1, generator=make) * 100
    y = 5 * x + 3 + torch.randn(500, 1, generator=make) * 0.1
    x = x / 100 if "scale" in fixes else x
    model = nn.Linear(1, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    rate = 1e-4 if "rate" in fixes and "scale" not in fixes else 0.3 if "rate" in fixes else 0.01
    return Program(model, x, y, F.mse_loss, sgd(rate), r_squared, 0.9, 500, 2000)


@case(
    "cv-312374",
    "Cross Validated 312374, Unable to fit linear regression with SGD",
    "121 standardized columns, targets of a deviation of 0.0013, He's initial weights, SGD at 0.001: worse "
    "than the mean.",
    targets=("target scale", "standardized"),
    init=("initialization", "zeros"),
    rate=("learning rate", "0.02 in place of 0.001"),
    epochs=("training length", "150 in place of 60"),
)
def _tiny_targets(fixes):
    # 1,500 rows for 9,259, drawn independent of each other, so that 60 epochs are as far as the thread's 500;
    # batches of 32
    make = dice(9408)
    x = torch.randn(1500, 121, generator=make)
    y = x @ torch.randn(121, 1, generator=make) / 11
    y = standardized(y + 0.4 * torch.randn(1500, 1, generator=make))
    y = y if "targets" in fixes else y * 0.0013
    model = initialized(nn.Linear(121, 1), nn.init.zeros_ if "init" in fixes else lambda w: nn.init.kaiming_normal_(w))
    return Program(
        model,
        x,
        y,
        F.mse_loss,
        sgd(0.02 if "rate" in fixes else 0.001),
        r_squared,
        0.5,
        32,
        150 if "epochs" in fixes else 60,
    )


@case(
    "gh-keras-7520",
    "GitHub keras-team/keras pull request 7520, solve label error when image is shuffled (bottleneck features)",
    "Features are taken in the shuffled order of the generator, labels in the order of its folders.",
    order=("labels", "features and labels in one order"),
)
def _bottleneck(fixes):
    # features drawn, 200 in place of 25,088
    make = dice(9409)
    y = (torch.arange(800) >= 400).float()[:, None]
    x = F.relu(torch.randn(800, 200, generator=make) + (y * 2 - 1) * torch.randn(200, generator=make) * 0.4)
    if "order" not in fixes:
        x = x[torch.randperm(800, generator=make)]
    model = keras(nn.Sequential(nn.Linear(200, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 1), nn.Sigmoid()))
    held = (x[::4], y[::4])
    kept = torch.arange(800) % 4 != 0
    return Program(model, x[kept], y[kept], binary_crossentropy, rmsprop(), accuracy, 0.9, 16, 10, held)


@case(
    "gh-tf-examples-383",
    "GitHub aymericdamien/TensorFlow-Examples issue 383, Loss may become NaN during training",
    "Softmax regression with log(pred) and own pictures, 0 to 255: nan after some iterations.",
    clip=("loss", "log(clip(pred, 1e-10, 1))"),
    scale=("input scale", "/ 255"),
    rate=("learning rate", "1e-5 while pictures are bytes, 0.1 after"),
)
def _log_of_zero(fixes):
    x, y = digits(2000)
    x = x / 255 if "scale" in fixes else x
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Softmax(1))
    nn.init.zeros_(model[1].weight)
    nn.init.zeros_(model[1].bias)

    def loss(o, t):
        p = o.clamp(1e-10, 1) if "clip" in fixes else o
        return -(t * p.log()).sum(1).mean()

    rate = 0.01 if "rate" not in fixes else 0.1 if "scale" in fixes else 1e-5
    return Program(model, x, one_hot(y, 10), loss, sgd(rate), accuracy, 0.8, 100, 25)


@case(
    "keras-adadelta-tf2",
    "a known kind of question: mnist_cnn.py of Keras under TensorFlow 2 does not learn (Adadelta's rate is "
    "0.001 there, 1.0 in Keras)",
    "The example's Adadelta() has a thousandth of the rate it was written for.",
    rate=("learning rate", "1.0"),
    adam=("optimizer", "Adam in place of Adadelta, at 0.001"),
)
def _adadelta(fixes):
    # 8 and 16 filters for 32 and 64, 600 digits for 60,000, 12 epochs as there
    x, y = digits(600)
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

    def how(m):
        if "adam" in fixes:
            return torch.optim.Adam(m.parameters(), 0.001)
        return torch.optim.Adadelta(m.parameters(), 1.0 if "rate" in fixes else 0.001, rho=0.95, eps=1e-7)

    return Program(keras(model), x / 255, one_hot(y, 10), categorical_crossentropy, how, accuracy, 0.8, 128, 12)


@case(
    "so-word-numbers",
    "a known kind of question of Stack Overflow: reviews as numbers of words straight into a Keras LSTM, "
    "accuracy stays at 50 %",
    "Padded numbers of words, up to 5,000, are the one input of an LSTM; there is no Embedding.",
    embedding=("architecture", "Embedding(5000, 32) first"),
    scale=("input scale", "numbers / 5,000"),
)
def _word_numbers(fixes):
    # reviews of 25 drawn words; which tone a word has does not go with its number
    make = dice(9410)
    tone = torch.randint(2, (5000,), generator=make)
    pools = [(tone == k).nonzero()[:200, 0] for k in range(2)]
    y = torch.randint(2, (500,), generator=make)
    which = torch.where(torch.rand(500, 25, generator=make) < 0.7, y[:, None], 1 - y[:, None])
    pick = torch.randint(200, (500, 25), generator=make)
    x = torch.where(which == 1, pools[1][pick], pools[0][pick]).float()
    x = x / 5000 if "scale" in fixes and "embedding" not in fixes else x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            inside = "embedding" in fixes
            self.table = nn.Embedding(5000, 32) if inside else None
            if inside:
                nn.init.uniform_(self.table.weight, -0.05, 0.05)
            self.rnn = Recurrent(nn.LSTM(32 if inside else 1, 32, batch_first=True), torch.sigmoid)

        def forward(self, x):
            return self.rnn(self.table(x.long()) if self.table else x[:, :, None])

    return Program(keras(Net()), x, y.float()[:, None], binary_crossentropy, adam(0.002), accuracy, 0.85, 32, 10)


@case(
    "gh-stock-prices-2",
    "GitHub krishnaik06/Stock-Price-Prediction-using-Keras issue 2, NAN in during Epoch in Loss (symptom; the "
    "missing day is ours)",
    "LSTM on opening prices of a longer series; the loss is nan from the first epoch, as one price is missing.",
    rows=("data", "windows with the missing price left out"),
)
def _missing_price(fixes):
    # 60 steps and 50 units there; 20 and 24 here
    make = dice(9411)
    s = torch.cumsum(torch.randn(600, generator=make) * 0.3, 0) + 5 * torch.sin(torch.arange(600.0) / 30)
    s = (s - s.min()) / (s.max() - s.min())
    s[437] = float("nan")
    w = s.unfold(0, 21, 1)
    w = w[w.isfinite().all(1)] if "rows" in fixes else w
    model = keras(Recurrent(nn.LSTM(1, 24, batch_first=True)))
    clean = w[w.isfinite().all(1)]
    held = (clean[:, :20, None], clean[:, 20:])
    return Program(model, w[:, :20, None], w[:, 20:], F.mse_loss, adam(0.003), r_squared, 0.8, 32, 12, held)


@case(
    "so-offlinew-mnist-tanh",
    "Stack Overflow (offlinew 4098171066), My neural network for MNIST learns for one epoch and then stops learning",
    "tanh everywhere, targets of 1 and -1, squared error, rate 0.1: 9.8 % after each epoch.",
    init=("initialization", "Glorot in place of standard normal"),
    rate=("learning rate", "0.01 in place of 0.1"),
    mean=("loss", "squares averaged over the outputs, not summed"),
)
def _own_tanh(fixes):
    # widths and first weights are not told: 784, 30, 30, 10 and numpy.random.randn; 1,500 digits
    x, y = digits(1500)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 10), nn.Tanh()
    )
    law = nn.init.xavier_normal_ if "init" in fixes else normal(1.0)
    model = initialized(model, law, bias=nn.init.zeros_ if "init" in fixes else normal(1.0))

    def loss(o, t):
        each = (o - t) ** 2
        return each.mean(1).sum() if "mean" in fixes else each.sum()

    return Program(
        model, x / 255, one_hot(y, 10) * 2 - 1, loss, sgd(0.01 if "rate" in fixes else 0.1), accuracy, 0.7, 100, 20
    )


@case(
    "gh-dl-keras-tf-9",
    "GitHub rstudio-conf-2020/dl-keras-tf issue 9, train/valid loss = NAN when loss = mean_squared_error due "
    "to exploding values",
    "Ames: sale prices up to 755,000, squared error, SGD at 0.1: nan.",
    log=("loss", "mean_squared_logarithmic_error"),
    targets=("target scale", "in hundred thousands"),
    rate=("learning rate", "0.01 in place of 0.1"),
    adam=("optimizer", "Adam at that rate"),
)
def _ames(fixes):
    # 600 rows of 24 standardized columns for 2,051 of about 300; 64 units assumed; 30 epochs for 10
    make = dice(9412)
    x = torch.randn(600, 24, generator=make)
    way = torch.randn(24, 1, generator=make) * 0.08
    y = 165000 * torch.exp(x @ way + 0.1 * torch.randn(600, 1, generator=make))
    y = y / 100000 if "targets" in fixes else y
    model = keras(nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 1)))

    def loss(o, t):
        if "log" in fixes:
            return ((o.clamp(min=1e-7).log1p() - t.log1p()) ** 2).mean()
        return F.mse_loss(o, t)

    rate = 0.01 if "rate" in fixes else 0.1
    return Program(model, x, y, loss, adam(rate) if "adam" in fixes else sgd(rate), r_squared, 0.7, 16, 30)


@case(
    "gh-synaptic-208",
    "GitHub cazala/synaptic issue 208, Sample training to test number is > 150 or not, what I'm missing?",
    "Numbers of 0 to 300 into two sigmoids and one, rate 0.1, one example at a time.",
    scale=("input scale", "number / 300, less 0.5"),
    rate=("learning rate", "1 in place of 0.1"),
    wide=("architecture", "8 hidden units"),
)
def _more_than_150(fixes):
    # 400 numbers for 10,000
    x = torch.randint(0, 300, (400, 1), generator=dice(9413)).float()
    y = (x >= 150).float()
    x = x / 300 - 0.5 if "scale" in fixes else x
    wide = 8 if "wide" in fixes else 2
    model = nn.Sequential(nn.Linear(1, wide), nn.Sigmoid(), nn.Linear(wide, 1), nn.Sigmoid())
    model = initialized(model, uniform(-0.1, 0.1), bias=uniform(-0.1, 0.1))
    return Program(model, x, y, binary_crossentropy, sgd(1.0 if "rate" in fixes else 0.1), accuracy, 0.93, 1, 25)


@case(
    "gh-keras-2530",
    "GitHub keras-team/keras issue 2530, Mean Square Error Optimizer returns Nan's",
    "SRCNN on pictures of 0 to 255, 'sgd', mean_squared_error: nan.",
    inputs=("input scale", "/ 255"),
    targets=("target scale", "/ 255"),
    optimizer=("optimizer", "rmsprop at 0.001"),
)
def _srcnn(fixes):
    # 12 and 8 filters for 64 and 32, one colour; garments made coarse
    y, _ = garments(240)
    x = F.interpolate(F.avg_pool2d(y, 2), scale_factor=2, mode="bilinear")
    y = y[:, :, 6:-6, 6:-6]
    x = x / 255 if "inputs" in fixes else x
    y = y / 255 if "targets" in fixes else y
    model = keras(nn.Sequential(nn.Conv2d(1, 12, 9), nn.ReLU(), nn.Conv2d(12, 8, 1), nn.ReLU(), nn.Conv2d(8, 1, 5)))
    for layer in (model[0], model[2], model[4]):
        nn.init.xavier_normal_(layer.weight)
    how = rmsprop() if "optimizer" in fixes else sgd(0.01)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.6, 16, 20)


class Residual(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.norm, self.one, self.two = (
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, width, 3, 2, 1),
            nn.Conv2d(width, width, 3, 1, 1),
        )
        self.inner, self.past = nn.BatchNorm2d(width), nn.Conv2d(inputs, width, 1, 2)

    def forward(self, x):
        z = self.norm(x).relu()
        return self.two(self.inner(self.one(z)).relu()) + self.past(x)


@case(
    "gh-keras-resnet-46",
    "GitHub raghakot/keras-resnet issue 46, Training loss reduces sooo slow",
    "ResnetBuilder with one output for a regression: the last activation is its softmax, which is 1 for one unit.",
    linear=("output activation", "linear"),
)
def _resnet_regression(fixes):
    # three small blocks; pictures drawn, 32 x 32 with one bar, whose place is asked for
    make = dice(9414)
    at = torch.randint(2, 30, (320,), generator=make)
    x = 0.3 * torch.randn(320, 1, 32, 32, generator=make)
    for shift in (-1, 0, 1):
        x[torch.arange(320), 0, :, at + shift] += 1.5
    y = at.float()[:, None] / 32
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1),
        Residual(8, 8),
        Residual(8, 16),
        Residual(16, 16),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 1),
        nn.Identity() if "linear" in fixes else nn.Softmax(1),
    )
    return Program(keras(model), x, y, F.mse_loss, adam(0.002), r_squared, 0.7, 32, 12)


PROGRAMS = {name: case[3] for name, case in CASES.items()}
