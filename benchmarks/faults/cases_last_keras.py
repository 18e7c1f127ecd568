"""Keras-style programs: questions, collections of faults, small libraries; comments tell what is smaller or drawn."""

import torch
from common import (
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
    one_hot,
    r_squared_all,
    sgd,
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


def narrow(weight):
    """Keras' 'uniform'."""
    return nn.init.uniform_(weight, -0.05, 0.05)


def halves(o, t):
    """Mean share of right answers among the positives and among the negatives."""
    right, yes = (o > 0.5) == (t > 0.5), t > 0.5
    return (right[yes].double().mean().item() + right[~yes].double().mean().item()) / 2


@case(
    "gh-keras-126",
    "GitHub keras-team/keras issue 126, MLP example doesn't make progress",
    "Two numbers, is their sum above 0.5: tanh, dropout, softmax over one output; all predictions are 1.",
    sigmoid=("output activation", "sigmoid"),
    loss=("loss", "binary cross-entropy for squared error"),
)
def _one_softmax(fixes):
    # more examples than there
    x = torch.rand(400, 2, generator=dice(11101))
    y = (x.sum(1, keepdim=True) > 0.5).float()
    end = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = nn.Sequential(
        nn.Linear(2, 64),
        nn.Tanh(),
        nn.Dropout(0.5),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Dropout(0.5),
        nn.Linear(64, 1),
        end,
    )
    initialized(model, narrow)
    loss = binary_crossentropy if "loss" in fixes else F.mse_loss
    return Program(model, x, y, loss, sgd(0.1, momentum=0.9, nesterov=True), halves, 0.8, 16, 30)


@case(
    "so-45337371",
    "Stack Overflow 45337371; DeepLocalize",
    "The gradient of the output by the input is zero: 60 and 50 ReLUs and softmax over one unit.",
    sigmoid=("output activation", "sigmoid"),
)
def _no_slope(fixes):
    # five columns as there, what they are to tell is drawn
    x = torch.rand(500, 5, generator=dice(11105))
    y = (x[:, :1] * x[:, 1:2] > x[:, 2:3] * x[:, 3:4]).float()
    end = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = nn.Sequential(nn.Linear(5, 60), nn.ReLU(), nn.Linear(60, 50), nn.ReLU(), nn.Linear(50, 1), end)
    return Program(keras(model), x, y, binary_crossentropy, adam(), halves, 0.85, 32, 30)


@case(
    "autotrainer-case16-cnn",
    "AUTOTRAINER, DL_tools/code/GradientVanish/case16-cnn",
    "Eight convolutions and a dense layer of sigmoids: the gradient is gone before the first of them.",
    relu=("hidden activation", "ReLU"),
    norm=("normalization", "batch norm after each"),
)
def _sigmoid_convolutions(fixes):
    # garments of 14 x 14 for CIFAR-10, 8 and 12 filters for 16 and 36, 48 units for 128, batches of 64
    x, y = garments(700)
    x = F.avg_pool2d(x, 2) / 255
    unit = nn.ReLU if "relu" in fixes else nn.Sigmoid
    layers, wide = [], 1
    for k, width in enumerate((8, 8, 8, 8, 12, 12, 12, 12)):
        layers += [nn.Conv2d(wide, width, 3, padding=1), unit()]
        layers += [nn.BatchNorm2d(width)] if "norm" in fixes else []
        layers += [nn.MaxPool2d(2)] if k % 4 == 3 else []
        wide = width
    layers += [nn.Dropout(0.25), nn.Flatten(), nn.Linear(108, 48), unit(), nn.Linear(48, 10), nn.Softmax(1)]
    model = keras(nn.Sequential(*layers))
    return Program(model, x, one_hot(y, 10), categorical_crossentropy, adam(0.003), accuracy, 0.45, 64, 15)


@case(
    "autotrainer-34-relus",
    "AUTOTRAINER, Motivation/DyingReLU (MNIST, 34 layers of ReLU)",
    "Digits through 34 narrow layers of ReLU: all outputs are the same.",
    norm=("normalization", "batch norm after each"),
    fewer=("architecture", "4 layers"),
    drawn=("initialization", "He"),
    leaky=("hidden activation", "LeakyReLU(0.3)"),
)
def _deep_relus(fixes):
    # 16 units each
    x, y = digits(600)
    layers, wide = [nn.Flatten()], 784
    for _ in range(4 if "fewer" in fixes else 34):
        layers += [nn.Linear(wide, 16), nn.LeakyReLU(0.3) if "leaky" in fixes else nn.ReLU()]
        layers += [nn.BatchNorm1d(16)] if "norm" in fixes else []
        wide = 16
    model = keras(nn.Sequential(*layers, nn.Linear(16, 10), nn.Softmax(1)))
    if "drawn" in fixes:
        initialized(model, he)
    return Program(model, x / 255, one_hot(y, 10), categorical_crossentropy, adam(), accuracy, 0.6, 32, 15)


@case(
    "gh-keras-1917",
    "GitHub keras-team/keras issue 1917, The loss becomes negative (comment of March 2018)",
    "Heat maps by a network that ends in softmax over its one channel: the divergence is 32 and stays there.",
    places=("output activation", "softmax over the places"),
)
def _one_channel(fixes):
    # a disc on 16 x 16, its place as a blurred map; a small network for VGG16
    make = dice(11109)
    at = 2 + 12 * torch.rand(400, 2, generator=make)
    grid = torch.arange(16.0)
    away = (grid[None, :, None] - at[:, :1, None]) ** 2 + (grid[None, None] - at[:, 1:, None]) ** 2
    x = (torch.exp(-away / 8) + 0.3 * torch.randn(400, 16, 16, generator=make))[:, None]
    y = torch.exp(-away / 4)
    y = (y / y.sum((1, 2), keepdim=True))[:, None]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(1, 16, 7, padding=3), nn.ReLU(), nn.Conv2d(16, 8, 7, padding=3), nn.ReLU()
            )
            self.out = nn.Conv2d(8, 1, 7, padding=3)

        def forward(self, x):
            z = self.out(self.body(x))
            return z.flatten(1).softmax(1).reshape(z.shape) if "places" in fixes else z.softmax(1)

    def kld(o, t):
        o, t = o.clamp(1e-7, 1), t.clamp(1e-7, 1)
        return (t * (t / o).log()).sum((1, 2, 3)).mean()

    return Program(keras(Net()), x, y, kld, adam(), r_squared_all, 0.6, 20, 6)


@case(
    "gh-image-segmentation-keras-30",
    "GitHub divamgupta/image-segmentation-keras issue 30, I get all output predicted images of single color",
    "Masks of 0 and 255 under binary cross-entropy: the loss is negative, and all pictures become object.",
    mask=("labels", "masks of 0 and 1"),
)
def _mask_of_255(fixes):
    # bright discs on noise
    make = dice(11110)
    at = 4 + 16 * torch.rand(300, 2, generator=make)
    grid = torch.arange(24.0)
    away = (grid[None, :, None] - at[:, :1, None]) ** 2 + (grid[None, None] - at[:, 1:, None]) ** 2
    truth = (away < 16).float()[:, None]
    x = truth + 0.7 * torch.randn(300, 1, 24, 24, generator=make)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 12, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 1, 1),
        nn.Sigmoid(),
    )
    y = truth if "mask" in fixes else truth * 255
    return Program(keras(model), x, y, binary_crossentropy, adam(), halves, 0.85, 10, 10, held_out=(x, truth))


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
