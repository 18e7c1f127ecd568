"""More threads, most with the code that was asked about; comments tell what is smaller or drawn."""

import math

import torch
from common import (
    accuracy,
    adam,
    binary_crossentropy,
    categorical_crossentropy,
    dice,
    keras,
    one_hot,
    photographs,
    r_squared,
    r_squared_all,
    rmsprop,
    sgd,
    standardized,
    token_accuracy,
)
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def _ages(fixes):
    # all as in the issue
    x = torch.arange(65.0, 101, 5)[:, None]
    y = 10 * x - 450
    x = standardized(x) if "inputs" in fixes else x
    y = standardized(y) if "targets" in fixes else y
    slow = 1e-4 if "inputs" not in fixes else 0.02
    return Program(nn.Linear(1, 1), x, y, F.mse_loss, sgd(slow if "rate" in fixes else 0.001), r_squared, 0.9, 8, 1000)


def _book(fixes):
    # new points in each of 100 steps in the issue, the same here
    make = dice(1302)
    x = 20 * torch.rand(30, 1, generator=make)
    y = 2 * x + 3 * (1 + torch.rand(30, 1, generator=make))
    model = nn.Linear(1, 1)
    nn.init.uniform_(model.weight, 0, 1)
    nn.init.uniform_(model.bias, 0, 1)

    def loss(o, t):
        return ((o - t) ** 2).mean() if "mean" in fixes else (0.5 * (o - t) ** 2).sum()

    return Program(
        model, x, y, loss, sgd(1e-4 if "rate" in fixes and "mean" not in fixes else 0.001), r_squared, 0.9, 30, 100
    )


class Changes(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(32 if k else 1, 32, batch_first=True) for k in range(layers))
        self.out = nn.Linear(32, 3)
        keras(self)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)[0]
        return self.out(x)


def _changes(fixes):
    # all as in the issue
    x = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0.0]).reshape(1, 17, 1)
    y = torch.tensor([[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]])

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten())

    model = Changes(1 if "one" in fixes else 3)
    return Program(model, x, y, loss, rmsprop(), token_accuracy, 0.95, 1, 300 if "epochs" in fixes else 10)


def _xor_1295(fixes):
    # all as in the issue
    x, y = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([[0.0], [1], [1], [0]])
    width = 8 if "wide" in fixes else 2
    model = keras(nn.Sequential(nn.Linear(2, width), nn.Sigmoid(), nn.Linear(width, 1), nn.Sigmoid()))
    how = adam(0.1) if "adam" in fixes else sgd(0.01)
    return Program(model, x, y, binary_crossentropy, how, r_squared, 0.8, 4, 500)


class Rectified(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.dropout, self.out = (
            nn.RNN(8, 100, nonlinearity=kind, batch_first=True),
            nn.Dropout(0.5),
            nn.Linear(100, 3),
        )
        nn.init.xavier_uniform_(self.layer.weight_ih_l0)
        nn.init.orthogonal_(self.layer.weight_hh_l0)
        nn.init.zeros_(self.layer.bias_ih_l0)
        nn.init.zeros_(self.layer.bias_hh_l0)
        keras(self.out)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(self.layer(x)[0][:, -1])).softmax(1)


def _simple_rnn(fixes):
    # 161,488 sequences in the issue; 1,200 of 15 steps, drawn, three kinds of which one is as frequent as the others
    make = dice(1305)
    y = torch.tensor([0, 0, 1, 2]).repeat(300)
    t = torch.arange(15.0)
    pace = torch.tensor([0.3, 0.8, 1.4])[y][:, None, None]
    x = torch.sin(pace * t[None, :, None] + 6.28 * torch.rand(1200, 1, 8, generator=make))
    x = x + 0.2 * torch.randn(1200, 15, 8, generator=make)
    how = sgd(0.005 if "rate" in fixes else 0.2, momentum=0.9)
    model = Rectified("tanh" if "tanh" in fixes else "relu")
    return Program(model, x, one_hot(y, 3), categorical_crossentropy, how, accuracy, 0.85, 32, 12)


class Saw(nn.Module):
    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.layer, self.dense, self.last = nn.LSTM(2, 100, batch_first=True), nn.Linear(100, 2), last
        keras(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.dense(self.layer(x)[0][:, -1]))


def _saw(fixes):
    # 150 units and 10,000 windows in the issue; windows of eight rows
    row = torch.arange(1010)
    data = torch.stack([row % 10 + 1, (row + 4) % 10 + 1], 1).float()
    data = data / 10 if "scale" in fixes else data
    x, y = data.unfold(0, 8, 1)[:1000].transpose(1, 2), data[8:1008]
    last = nn.Identity() if "linear" in fixes else nn.Softmax(1)
    return Program(Saw(last), x, y, F.mse_loss, rmsprop(), r_squared_all, 0.8, 50, 40)


def _sigmoid_of_relu(fixes):
    # what a convolutional part would give is drawn: 384 columns; the last two layers are the thread's
    make = dice(1307)
    y = (torch.rand(1000, 1, generator=make) < 0.5).float()
    x = torch.randn(1000, 384, generator=make)
    x[:, :30] += 0.8 * y
    last = [] if "no relu" in fixes else [nn.ReLU()]
    model = nn.Sequential(nn.Linear(384, 64), nn.ReLU(), nn.Linear(64, 1), *last, nn.Sigmoid())

    def sure(o, t):
        return 1 - binary_crossentropy(o, t).item() / math.log(2)

    return Program(model, x, y, F.binary_cross_entropy, adam(), sure, 0.7, 32, 8)


def _sine_101647(fixes):
    # 1,500 points, layers of 200 and 15,000 steps in the thread
    make = dice(1308)
    x = 15 * torch.rand(400, 1, generator=make) - 7.5
    model = nn.Sequential(nn.Linear(1, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1))
    how = adam(0.003) if "adam" in fixes else sgd(0.05 if "rate" in fixes else 2e-3)
    return Program(model, x, (2 * x).sin(), F.mse_loss, how, r_squared, 0.8, 400, 4000)


class Grey(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Sequential(nn.Flatten(), nn.Linear(768, 128), nn.ReLU(), nn.Linear(128, 64))
        self.write = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 768), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = self.read(x).chunk(2, 1)
        noise = torch.randn_like(mean) if self.training else 0
        return torch.cat([self.write(mean + (spread / 2).exp() * noise), mean, spread], 1)


def _grey(fixes):
    # convolutions and 32 x 32 pictures in the question
    x = photographs(1000)[0] / 255
    x = x if "range" in fixes else (x - 0.5) / 0.5
    total = 768 if "sum" in fixes else 1

    def loss(o, t):
        drawn, mean, spread = o[:, :768], o[:, 768:800], o[:, 800:]
        divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()
        return total * F.mse_loss(drawn, t) + divergence

    def alike(o, t):
        return r_squared_all(o[:, :768], t)

    return Program(Grey(), x, x.flatten(1), loss, adam(), alike, 0.3, 32, 25)


class State(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.RNN(1, 1, nonlinearity="relu", batch_first=True)
        nn.init.constant_(self.layer.weight_ih_l0, 0.5)
        nn.init.constant_(self.layer.weight_hh_l0, 0.5)
        nn.init.constant_(self.layer.bias_ih_l0, 0.5)
        nn.init.zeros_(self.layer.bias_hh_l0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][..., 0]


def _state_updates(fixes):
    # the first values of the weights are not in the excerpt
    x = torch.rand(100, generator=dice(1310))
    s = 0.1 * x + 1
    for t in range(1, 100):
        s[t] += 0.9 * s[t - 1]
    shape = (1, 100) if "sequence" in fixes else (100, 1)
    how = adam(0.01) if "adam" in fixes else sgd(0.01)
    return Program(State(), x.reshape(*shape, 1), s.reshape(*shape), F.mse_loss, how, r_squared, 0.8, 32, 600)


PROGRAMS = {
    "gh-pytorch-149827": _ages,
    "gh-pytorch-book-138": _book,
    "gh-keras-5237": _changes,
    "gh-keras-1295": _xor_1295,
    "gh-keras-1285": _simple_rnn,
    "gh-keras-321": _saw,
    "forum-56327": _sigmoid_of_relu,
    "forum-101647": _sine_101647,
    "so-grey-vae": _grey,
    "gh-keras-11891": _state_updates,
}

STORIES = {
    "gh-pytorch-149827": (
        "GitHub pytorch/pytorch issue 149827, Why has my linear regression always been NaN?",
        "What people of 65 to 100 years spend: SGD at 0.001 goes to nan.",
        {
            "inputs": ("input scale", "standardized"),
            "targets": ("target scale", "standardized"),
            "rate": ("learning rate", "0.02 for 0.001, 0.0001 where inputs are not standardized"),
        },
    ),
    "gh-pytorch-book-138": (
        "GitHub chenyuntc/pytorch-book issue 138, linear regression by autograd",
        "Half the sum of squared errors of 30 points at 0.001: nan.",
        {
            "mean": ("loss", "the mean of squared errors"),
            "rate": ("learning rate", "0.0001 for 0.001, where the sum is kept"),
        },
    ),
    "gh-keras-5237": (
        "GitHub keras-team/keras issue 5237, RNN is not overfitting on simple data",
        "One sequence of 17 steps, three LSTM layers, ten updates: class 0 throughout.",
        {"epochs": ("training length", "300 for 10"), "one": ("architecture", "one layer for three")},
    ),
    "gh-keras-1295": (
        "GitHub keras-team/keras issue 1295, MLP can't learn XOR",
        "XOR from two sigmoids under SGD at 0.01: after 500 epochs all are near a half.",
        {"adam": ("optimizer", "Adam at 0.1 for SGD at 0.01"), "wide": ("architecture", "eight units for two")},
    ),
    "gh-keras-1285": (
        "GitHub keras-team/keras issue 1285, Problem with training a SimpleRNN Network",
        "A recurrent layer of ReLU under SGD at 0.2 with momentum: the most frequent class.",
        {"rate": ("learning rate", "0.005 for 0.2"), "tanh": ("hidden activation", "tanh for ReLU")},
    ),
    "gh-keras-321": (
        "GitHub keras-team/keras issue 321, LSTM with mean_squared_error doesn't reduce the loss over time",
        "A saw of two columns from 1 to 10 is to come out of a softmax.",
        {"linear": ("output activation", "no softmax"), "scale": ("target scale", "inputs and targets divided by 10")},
    ),
    "forum-56327": (
        "PyTorch forum 56327, Output of the binary classification model",
        "A ReLU before the sigmoid: no probability below a half.",
        {"no relu": ("output activation", "no ReLU before the sigmoid")},
    ),
    "forum-101647": (
        "PyTorch forum 101647, Neural net to approximate a sine function",
        "A sine of five periods under full-batch SGD at 0.002 is learned in the middle at best.",
        {"adam": ("optimizer", "Adam at 0.003 for SGD"), "rate": ("learning rate", "0.05 for 0.002")},
    ),
    "so-grey-vae": (
        "Stack Overflow (whosebug 5616116), What could cause a VAE to output random noise even after training?",
        "Pictures from -1 to 1 against a sigmoid, and an error averaged over pixels: grey.",
        {
            "range": ("target scale", "0 to 1"),
            "sum": ("loss", "the error summed over pixels"),
        },
    ),
    "gh-keras-11891": (
        "GitHub keras-team/keras issue 11891, Keras RNN ignores state updates",
        "A sequence of 100 steps is passed as 100 sequences of one step.",
        {"sequence": ("shapes", "one sequence of 100 steps"), "adam": ("optimizer", "Adam at 0.01 for SGD at 0.01")},
    ),
}
