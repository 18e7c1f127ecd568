"""Questions about Keras, TensorFlow and numpy programs that did not learn; comments tell what is smaller or drawn."""

import itertools

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
    letters,
    one_hot,
    photographs,
    r_squared,
    r_squared_all,
    sgd,
    signs,
    standardized,
)
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def uniform(low: float, high: float):
    return lambda weight: nn.init.uniform_(weight, low, high)


def adadelta(rate: float = 1.0):
    return lambda m: torch.optim.Adadelta(m.parameters(), rate, rho=0.95, eps=1e-7)


def _line_nan(fixes):
    # four points and 2,001 steps as in the question
    x = torch.tensor([[10.0], [20.0], [30.0], [40.0]])
    y = 2 * x
    x = x / 10 if "scale" in fixes else x
    model = nn.Linear(1, 1)
    reach = 1.0 if "start" in fixes else 1000.0
    for value in model.parameters():
        nn.init.uniform_(value, -reach, reach)
    rate = 1e-3 if "rate" in fixes and "scale" not in fixes else 0.1
    return Program(model, x, y, F.mse_loss, sgd(rate), r_squared, 0.9, 4, 2001)


class Factors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.tensor([0.5])) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        return (self.a * x + self.b) * (self.c * x + self.d)


def _factors(fixes):
    # all as in the question
    x, y = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[9.0], [18.0], [31.0], [48.0]])

    def loss(o, t):
        return ((o - t) ** 2).mean() if "mean" in fixes else ((o - t) ** 2).sum()

    return Program(Factors(), x, y, loss, sgd(1e-4 if "rate" in fixes else 0.01), r_squared, 0.9, 4, 1000)


def _line_one_by_one(fixes):
    # all as in the question, but in random order
    x = torch.arange(100.0)[:, None]
    model = nn.Linear(1, 1)
    nn.init.constant_(model.weight, 0.4)
    nn.init.constant_(model.bias, -0.4)
    return Program(model, x, 2 * x, F.mse_loss, sgd(5e-5 if "rate" in fixes else 0.01), r_squared, 0.9, 1, 1)


def _same_three(fixes):
    # all as in the question
    x = torch.tensor([[1.0, 2.0, 3.0]]).repeat(9, 1)
    y = x / 3 if "targets" in fixes else x
    last = [] if "linear" in fixes else [nn.Sigmoid()]
    model = keras(nn.Sequential(nn.Linear(3, 3), nn.ELU() if "elu" in fixes else nn.ReLU(), nn.Linear(3, 3), *last))

    def close(o, t):
        return 1 - ((o - t).abs().mean() / t.abs().mean()).item()

    how = adam(0.03) if "adam" in fixes else adadelta()
    return Program(model, x, y, F.mse_loss, how, close, 0.9, 4, 100)


def _keras_4784(fixes):
    # 10 million rows in the issue; 0.7247 of one class as there, columns drawn
    make = dice(1005)
    x = torch.randn(3000, 106, generator=make)
    z = x[:, :20] @ torch.randn(20, 1, generator=make) + 0.5 * torch.randn(3000, 1, generator=make)
    y = (z > z.quantile(0.7247)).float()
    mid = (lambda: nn.ReLU()) if "relu" in fixes else None
    model = nn.Sequential(
        nn.Linear(106, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        mid() if mid else nn.Tanh(),
        nn.Linear(32, 12),
        nn.ReLU(),
        nn.Linear(12, 8),
        mid() if mid else nn.Sigmoid(),
        nn.Linear(8, 1),
        nn.Sigmoid() if "sigmoid" in fixes else nn.ReLU(),
    )
    model = keras(model) if "glorot" in fixes else initialized(model, uniform(-0.05, 0.05))
    how = adam(0.003) if "adam" in fixes else sgd(1e-4, momentum=0.4)
    return Program(model, x, y, binary_crossentropy, how, accuracy, 0.85, 300, 60)


def _keras_2711(fixes):
    # 166,000 pairs of 256 words in the issue; 12,000 of a drawn chain
    a, b = letters(400, 30, 256)
    x, y = one_hot(a.flatten(), 256), one_hot(b.flatten(), 256)
    model = nn.Sequential(
        nn.Linear(256, 100),
        nn.Identity() if "linear" in fixes else nn.Sigmoid(),
        nn.Linear(100, 256),
        nn.Softmax(1) if "softmax" in fixes else nn.Sigmoid(),
    )
    how = adam(0.01) if "adam" in fixes else sgd(1.0)
    return Program(keras(model), x, y, categorical_crossentropy, how, accuracy, 0.45, 300, 12)


def _keras_1478(fixes):
    # 32, 32, 64, 64 filters, 512 units and pictures of 32 x 32 in the issue; that pixels are 0 to 255 is assumed
    x, y = photographs(1000)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Conv2d(12, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(96, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
        nn.Softmax(1),
    )
    x = x / 255 if "scale" in fixes else x
    rate = 1e-5 if "rate" in fixes and "scale" not in fixes else 0.01
    how = sgd(rate, momentum=0.9, nesterov=True)
    return Program(keras(model), x, one_hot(y, 10), categorical_crossentropy, how, accuracy, 0.3, 32, 45)


class Two(nn.Module):
    """relu(x w1 + b1) w2 + b2, trained by hand."""

    def __init__(self, widths: tuple[int, int, int], draw) -> None:
        super().__init__()
        a, b, c = widths
        self.w1, self.b1 = nn.Parameter(draw(a, b)), nn.Parameter(draw(1, b))
        self.w2, self.b2 = nn.Parameter(draw(b, c)), nn.Parameter(draw(1, c))

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) @ self.w1 + self.b1).relu() @ self.w2 + self.b2


def _softmax_down(fixes):
    # 41,000 digits and 500 steps in the question
    x, y = digits(2000)
    model = Two((784, 20, 10), lambda *s: torch.rand(*s) - 0.5)

    def by_hand(model, optimizer, loss, x, y):
        with torch.no_grad():
            x = x.flatten(1)
            a1 = (x @ model.w1 + model.b1).relu()
            z = a1 @ model.w2 + model.b2
            p = z.softmax(1) if "axis" in fixes else z.exp() / z.exp().sum(0)
            d = (p - one_hot(y, 10)) / len(x)
            back = d @ model.w2.T * (a1 > 0)
            for value, slope in ((model.w2, a1.T @ d), (model.b2, d.sum(0)), (model.w1, x.T @ back)):
                value -= 0.2 * slope
            model.b1 -= 0.2 * back.sum(0)
            return F.cross_entropy(z, y).item()

    return Program(model, x / 255, y, F.cross_entropy, sgd(0.2), accuracy, 0.75, 2000, 300, step=by_hand)


def _biases_lost(fixes):
    # the network of a well-known video; 2,000 digits
    x, y = digits(2000)
    model = Two((784, 10, 10), torch.randn)
    if "start" in fixes:
        with torch.no_grad():
            model.w1 *= 784**-0.5
            model.w2 *= 10**-0.5
            model.b1.zero_()
            model.b2.zero_()

    def by_hand(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        with torch.no_grad():
            for name, value in model.named_parameters():
                if name[0] == "w" or "biases" in fixes:
                    value -= 0.1 * value.grad
        return error.item()

    x = x / 255 if "scale" in fixes else x
    return Program(model, x, y, F.cross_entropy, sgd(0.1), accuracy, 0.7, 2000, 300, step=by_hand)


def _bpnn(fixes):
    # bpnn.py from memory: weights in (-0.2, 0.2) and (-2, 2), rate 0.5, momentum 0.1, 1,000 rounds; two hidden units
    x = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    y = torch.tensor([[1.0], [2], [3], [4]])
    y = y / 10 if "targets" in fixes else y
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1), *([] if "linear" in fixes else [nn.Tanh()]))
    initialized(model, uniform(-0.2, 0.2), uniform(-2, 2))
    rate = 0.05 if "rate" in fixes else 0.5

    def half(o, t):
        return 0.5 * ((o - t) ** 2).sum()

    return Program(model, x, y, half, sgd(rate, momentum=0.1), r_squared, 0.9, 1, 1000)


def _far_cloud(fixes):
    # the cloud is drawn around (10, 10); 3,000 steps
    make = dice(1011)
    u = 2 * torch.rand(100, 1, generator=make) - 1
    x, y = 10 + u, 10 + 2 * u + 0.1 * torch.randn(100, 1, generator=make)
    x = standardized(x) if "inputs" in fixes else x
    y = standardized(y) if "targets" in fixes else y
    model = keras(nn.Sequential(nn.Linear(1, 3), nn.Sigmoid(), nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 1)))
    rate = 0.05 if "rate" in fixes else 0.5
    return Program(model, x, y, F.mse_loss, sgd(rate), r_squared, 0.9, 100, 3000)


def _tutorial_raw(fixes):
    # 60,000 garments in the tutorial
    x, y = garments(3000)
    model = keras(nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10), nn.Softmax(1)))

    def loss(o, t):
        return categorical_crossentropy(o, one_hot(t, 10))

    return Program(model, x / 255 if "scale" in fixes else x, y, loss, adam(), accuracy, 0.8, 32, 5)


def _one_unit_first(fixes):
    # ten examples as in the post; optimizer and dropout assumed: Adam at 0.01, 0.5
    make = dice(1013)
    x = torch.randn(10, 7, generator=make)
    y = 3 + x @ torch.randn(7, 1, generator=make)
    first, rate = 32 if "wide" in fixes else 1, 0.0 if "dropout" in fixes else 0.5
    widths, layers = (7, first, 100, 150), []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(rate)]
    model = nn.Sequential(*layers, nn.Linear(150, 1))
    return Program(model, x, y, F.mse_loss, adam(0.01), r_squared, 0.85, 10, 200)


class OneOneOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1, self.w2, self.b2 = (nn.Parameter(torch.rand(1)) for _ in range(4))
        with torch.no_grad():
            self.b1.zero_()
            self.b2.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return ((x * self.w1 + self.b1).sigmoid() * self.w2 + self.b2).sigmoid()


def _one_one_one(fixes):
    # rate 0.5; 100,000 rounds in the question
    x = torch.arange(1.0, 10)[:, None]
    y = (1.2 * x + 1) / 10

    def by_hand(model, optimizer, loss, x, y):
        with torch.no_grad():
            h = (x * model.w1 + model.b1).sigmoid()
            o = (h * model.w2 + model.b2).sigmoid()
            d2 = (o - y) * o * (1 - o)
            d1 = d2 * model.w2 * h * (1 - h)
            right = "input" in fixes
            model.w2 -= 0.5 * (d2 * (h if right else model.w2))[0]
            model.w1 -= 0.5 * (d1 * (x if right else model.w1))[0]
            if "biases" in fixes:
                model.b2 -= 0.5 * d2[0]
                model.b1 -= 0.5 * d1[0]
            return loss(o, y).item()

    return Program(OneOneOne(), x, y, F.mse_loss, sgd(0.5), r_squared, 0.8, 1, 1500, step=by_hand)


def _relu_logits(fixes):
    # six networks were tried in the question; one of two convolutions here, pixels as they are, Adam
    x, y = photographs(1000)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
        *([] if "linear" in fixes else [nn.ReLU()]),
    )
    x = x / 255 if "scale" in fixes else x
    return Program(keras(model), x, y, F.cross_entropy, adam(0.003), accuracy, 0.4, 16, 12)


def _log_of_nothing(fixes):
    # 128 x 128 pictures, 32 and 64 filters and 1,024 units in the question; two kinds of garments
    x, y = garments(6000)
    rows = (y == 2) | (y == 8)
    x, y = x[rows][:600], one_hot((y[rows][:600] == 8).long(), 2)
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
        nn.Dropout(0.5),
        nn.Linear(128, 2),
        nn.Softmax(1),
    )
    initialized(model, lambda w: nn.init.trunc_normal_(w, 0, 0.1, -0.2, 0.2), bias=lambda b: nn.init.constant_(b, 0.1))

    def loss(o, t):
        return -(t * (o.clamp(1e-10, 1) if "clip" in fixes else o).log()).sum()

    x = x / 255 if "scale" in fixes else x
    return Program(model, x, y, loss, adam(1e-4), accuracy, 0.9, 50, 8)


def _cost_always_zero(fixes):
    # widths and data are not in the post
    make = dice(1017)
    y = (torch.rand(1000, 1, generator=make) < 0.5).float()
    x = torch.randn(1000, 20, generator=make)
    x[:, :5] += 1.2 * y
    model = keras(nn.Sequential(nn.Linear(20, 25), nn.ReLU(), nn.Linear(25, 12), nn.ReLU(), nn.Linear(12, 1)))

    def softmax_cross_entropy_with_logits(o, t):
        return -(t * o.log_softmax(1)).sum(1).mean()

    loss = F.binary_cross_entropy_with_logits if "sigmoid" in fixes else softmax_cross_entropy_with_logits
    return Program(model, x, y, loss, adam(), signs, 0.85, 32, 15)


def _rmsle(fixes):
    # house prices, drawn: about 180,000
    make = dice(1018)
    x = torch.randn(2000, 20, generator=make)
    y = (12 + 0.3 * (x[:, :8] @ torch.randn(8, 1, generator=make)) / 2 + 0.1 * x[:, 8:9].abs()).exp()
    y = y.log() if "logs" in fixes else y
    model = keras(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))

    def rmsle(o, t):
        if "logs" in fixes:
            return F.mse_loss(o, t)
        o = o.clamp(min=1e-7) if "clip" in fixes else o
        return ((o + 1).log() - (t + 1).log()).square().mean().sqrt()

    def fit(o, t):
        return r_squared(o, t) if "logs" in fixes else r_squared((o.clamp(min=0) + 1).log(), (t + 1).log())

    return Program(model, x, y, rmsle, adam(), fit, 0.6, 32, 60)


def _rounded_f1(fixes):
    make = dice(1019)
    y = (torch.rand(1000, 1, generator=make) < 0.3).float()
    x = torch.randn(1000, 12, generator=make)
    x[:, :4] += 1.3 * y
    model = keras(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid()))

    def f1(o, t):
        if "cross-entropy" in fixes:
            return binary_crossentropy(o, t)
        p = o if "soft" in fixes else o.round()
        return 1 - 2 * (p * t).sum() / (p.sum() + t.sum() + 1e-7)

    def balanced(o, t):
        return 0.5 * ((o > 0.5)[t > 0.5].double().mean() + (o <= 0.5)[t < 0.5].double().mean()).item()

    return Program(model, x, y, f1, adam(), balanced, 0.8, 50, 25)


class Padded(nn.Module):
    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.words, self.layer, self.out = nn.Embedding(200, 16), nn.LSTM(16, 24, batch_first=True), nn.Linear(24, 1)
        nn.init.uniform_(self.words.weight, -0.05, 0.05)
        keras(self)
        self.masked = masked

    def forward(self, x: Tensor) -> Tensor:
        states = self.layer(self.words(x))[0]
        place = (x > 0).long().sum(1) - 1 if self.masked else torch.full((len(x),), x.shape[1] - 1)
        return self.out(states[torch.arange(len(x)), place]).sigmoid()


def _post_padding(fixes):
    # reviews of 5 to 15 words in 100 places, drawn: some words tell
    make = dice(1020)
    length = torch.randint(5, 16, (600, 1), generator=make)
    y = (torch.rand(600, 1, generator=make) < 0.5).float()
    words = torch.randint(21, 200, (600, 100), generator=make)
    tell = torch.randint(1, 11, (600, 100), generator=make) + 10 * y.long()
    x = torch.where(torch.rand(600, 100, generator=make) < 0.3, tell, words) * (torch.arange(100) < length)
    if "pre" in fixes:
        x = x.gather(1, (torch.arange(100) - 100 + length) % 100)
    masked = "mask" in fixes and "pre" not in fixes
    return Program(Padded(masked), x, y, binary_crossentropy, adam(0.003), accuracy, 0.8, 32, 8)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(784, 32), nn.Linear(32, 784)
        keras(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x.flatten(1)).relu()).sigmoid()


def _sparse_codes(fixes):
    # 60,000 digits in the blog; Keras' penalty is a sum over the batch
    x = digits(2500)[0] / 255
    weight = 1e-7 if "penalty" in fixes else 1e-4

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        code = model.encode(x.flatten(1)).relu()
        error = loss(model.decode(code).sigmoid(), y) + weight * code.sum()
        error.backward()
        optimizer.step()
        return error.item()

    how = adam(0.003) if "adam" in fixes else adadelta()
    return Program(Sparse(), x, x.flatten(1), F.binary_cross_entropy, how, r_squared_all, 0.4, 256, 40, step=step)


def _xor_500(fixes):
    # weights within 0.5, batch training at 0.5
    x, y = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([[0.0], [1], [1], [0]])
    model = nn.Sequential(nn.Linear(2, 4), nn.Sigmoid(), nn.Linear(4, 1), nn.Sigmoid())
    initialized(model, uniform(-0.5, 0.5), bias=uniform(-0.5, 0.5))
    how = adam(0.1) if "adam" in fixes else sgd(0.5)
    return Program(
        model, x, y, F.mse_loss, how, r_squared, 0.8, 4, 20000 if "epochs" in fixes and "adam" not in fixes else 500
    )


def _batch_of_one(fixes):
    x, y = garments(2000)
    model = keras(nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)))
    rate = 0.001 if "rate" in fixes and "batch" not in fixes else 0.1
    batch = 50 if "batch" in fixes else 1
    return Program(model, x / 255, y, F.cross_entropy, sgd(rate, momentum=0.9), accuracy, 0.7, batch, 4)


PROGRAMS = {
    "so-39314946": _line_nan,
    "so-47477790": _factors,
    "so-56894982": _line_one_by_one,
    "so-44601367": _same_three,
    "gh-keras-4784": _keras_4784,
    "gh-keras-2711": _keras_2711,
    "gh-keras-1478": _keras_1478,
    "so-76450489": _softmax_down,
    "so-biases-lost": _biases_lost,
    "so-3644795": _bpnn,
    "dse-31499": _far_cloud,
    "cv-372762": _tutorial_raw,
    "cto-7627358": _one_unit_first,
    "so-strange-convergence": _one_one_one,
    "so-stuck-at-2302": _relu_logits,
    "so-33712178": _log_of_nothing,
    "tf-cost-always-zero": _cost_always_zero,
    "so-rmsle-nan": _rmsle,
    "so-rounded-f1": _rounded_f1,
    "so-post-padding": _post_padding,
    "keras-blog-sparse-codes": _sparse_codes,
    "so-4493554": _xor_500,
    "so-batch-of-one": _batch_of_one,
}

STORIES = {
    "so-39314946": (
        "Stack Overflow 39314946, Why does my linear regression get nan values instead of learning?",
        "y = 2 x for x = 10 to 40 from weights within 1,000, gradient descent at 0.1: nan.",
        {
            "scale": ("input scale", "1 to 4 for 10 to 40"),
            "rate": ("learning rate", "0.001 for 0.1, where the scale is not mended"),
            "start": ("initialization", "within 1 for within 1,000"),
        },
    ),
    "so-47477790": (
        "Stack Overflow 47477790, When using tensorflow to solve algebra, all variables became nan",
        "A quadratic as a product of two lines, sum of squares, 0.01: nan.",
        {"rate": ("learning rate", "0.0001 for 0.01"), "mean": ("loss", "the mean for the sum")},
    ),
    "so-56894982": (
        "Stack Overflow 56894982, Why does my gradient descent optimizer blow up after getting close to a solution?",
        "y = 2 x, one example at a time for x up to 99, at 0.01: the fit blows up.",
        {"rate": ("learning rate", "0.00005 for 0.01")},
    ),
    "so-44601367": (
        "Stack Overflow 44601367, keras autoencoder simple example has a strange output",
        "An autoencoder is to give back 1, 2, 3 through a sigmoid.",
        {
            "linear": ("output activation", "no sigmoid at the output"),
            "targets": ("target scale", "divided by 3"),
            "adam": ("optimizer", "Adam at 0.03 for Adadelta"),
            "elu": ("hidden activation", "ELU for ReLU"),
        },
    ),
    "gh-keras-4784": (
        "GitHub keras-team/keras issue 4784, Accuracy not changing across the epochs",
        "A ReLU as probability, narrow layers of all kinds and SGD at 0.0001: 0.7247 in all epochs.",
        {
            "sigmoid": ("output activation", "sigmoid for ReLU"),
            "adam": ("optimizer", "Adam at 0.003 for SGD at 0.0001"),
            "relu": ("hidden activation", "ReLU for tanh and sigmoid"),
            "glorot": ("initialization", "Glorot's for uniform within 0.05"),
        },
    ),
    "gh-keras-2711": (
        "GitHub keras-team/keras issue 2711, Loss not changing when training (comment on skip grams)",
        "Word vectors: sigmoids in both layers, categorical cross-entropy, SGD at 1: 0.13 whatever is tried.",
        {
            "softmax": ("output activation", "softmax for 256 sigmoids"),
            "linear": ("hidden activation", "none for sigmoid"),
            "adam": ("optimizer", "Adam at 0.01 for SGD at 1"),
        },
    ),
    "gh-keras-1478": (
        "GitHub keras-team/keras issues 1478 and 1476, Model loss not improving at all",
        "The CIFAR-10 example on pictures of one's own: all photographs get one class.",
        {
            "scale": ("input scale", "divided by 255"),
            "rate": ("learning rate", "0.00001 for 0.01, where the scale is not mended"),
        },
    ),
    "so-76450489": (
        "Stack Overflow 76450489, MNIST NN from scratch output converge on one number",
        "sum() of numpy adds up the examples, so that each class is shared out over the batch: overflow.",
        {"axis": ("output activation", "softmax over the classes")},
    ),
    "so-biases-lost": (
        "Stack Overflow (bot.dharman.net 1943234), digits by a numpy network of 784, 10, 10",
        "Raw pixels, weights of deviation 1, and new biases assigned to their derivatives: no learning.",
        {
            "start": ("initialization", "weights divided by the root of their inputs, biases 0"),
            "scale": ("input scale", "divided by 255"),
            "biases": ("update", "biases are updated"),
        },
    ),
    "so-3644795": (
        "Stack Overflow 3644795 (ansaurus), Neural network in Python (bpnn.py)",
        "The targets are 1, 2, 3 and 4, and the output is a tanh.",
        {
            "targets": ("target scale", "divided by 10"),
            "linear": ("output activation", "no tanh at the output"),
            "rate": ("learning rate", "0.05 for 0.5"),
        },
    ),
    "dse-31499": (
        "Data Science Stack Exchange 31499, Neural network only converges when data cloud is close to 0",
        "Two layers of three sigmoids at a rate of 0.5: points away from the origin are not fitted.",
        {
            "inputs": ("input scale", "standardized"),
            "targets": ("target scale", "standardized"),
            "rate": ("learning rate", "0.05 for 0.5"),
        },
    ),
    "cv-372762": (
        "Cross Validated 372762, Why normalize when all features are on the same scale?",
        "The garments of the tutorial without the division by 255: 10 %.",
        {"scale": ("input scale", "divided by 255")},
    ),
    "cto-7627358": (
        "blog.51cto.com u_87851 7627358, the same prediction for all from a regression",
        "Ten examples are not fitted: the first layer has one unit, and half of all is dropped.",
        {"wide": ("architecture", "32 units for 1"), "dropout": ("regularization", "no dropout")},
    ),
    "so-strange-convergence": (
        "Stack Overflow (techfeed 468648), Strange convergence in simple neural network",
        "A hand-written update multiplies with the weight itself in place of what comes in; no biases.",
        {"input": ("update", "multiplied with what comes in"), "biases": ("architecture", "biases")},
    ),
    "so-stuck-at-2302": (
        "Stack Overflow (xue-jishu), CNN loss stuck at 2.302",
        "Six networks for CIFAR-10 stayed at 2.302: a ReLU after the last layer.",
        {"linear": ("output activation", "no ReLU at the output"), "scale": ("input scale", "divided by 255")},
    ),
    "so-33712178": (
        "Stack Overflow 33712178, Tensorflow NaN bug? (from memory)",
        "The cross-entropy takes the logarithm of a softmax that is 0: nan.",
        {"clip": ("loss", "probabilities clipped from below"), "scale": ("input scale", "divided by 255")},
    ),
    "tf-cost-always-zero": (
        "796t.com 1520485018, TensorFlow: the cost of a binary classifier is always 0",
        "softmax_cross_entropy_with_logits of a single logit.",
        {"sigmoid": ("loss", "sigmoid_cross_entropy_with_logits")},
    ),
    "so-rmsle-nan": (
        "a known kind of question of Stack Overflow: a loss of logarithms (RMSLE) is nan in Keras",
        "Outputs begin near 0, some below -1, whose logarithm is nan; prices are 180,000.",
        {"logs": ("target scale", "logarithms of prices, squared error"), "clip": ("loss", "outputs clipped at 0")},
    ),
    "so-rounded-f1": (
        "a known kind of question of Stack Overflow: F1 as a loss in Keras",
        "The F1 of rounded probabilities has no slope.",
        {
            "soft": ("gradient flow", "probabilities are not rounded"),
            "cross-entropy": ("loss", "binary cross-entropy"),
        },
    ),
    "so-post-padding": (
        "a known kind of question of Stack Overflow: pad_sequences with padding='post'",
        "Reviews of 5 to 15 words are filled up behind to 100: after so many zeros nothing is left.",
        {"pre": ("data", "filled up in front"), "mask": ("architecture", "the state after the last word is taken")},
    ),
    "keras-blog-sparse-codes": (
        "Keras blog, Building Autoencoders in Keras: the sparse autoencoder as first printed (from memory)",
        "An L1 penalty of 0.0001 on the codes, summed over the batch: all codes are 0, all pictures the same.",
        {"penalty": ("regularization", "0.0000001 for 0.0001"), "adam": ("optimizer", "Adam at 0.003 for Adadelta")},
    ),
    "so-4493554": (
        "Stack Overflow 4493554, neural network always produces same/similar outputs for any input",
        "XOR from four sigmoids after 500 rounds: 0.5003 for all four.",
        {
            "epochs": ("training length", "20,000 rounds for 500"),
            "adam": ("optimizer", "Adam at 0.1 for descent at 0.5"),
        },
    ),
    "so-batch-of-one": (
        "a known kind of question of Stack Overflow: batch_size=1, SGD at 0.1 with momentum",
        "One garment a step at 0.1 with momentum 0.9: one class for all.",
        {
            "batch": ("batch size", "50 for 1"),
            "rate": ("learning rate", "0.001 for 0.1, where the batch is not mended"),
        },
    ),
}
